//! Packed weights stay packed in memory too: what the process holds with the starter model loaded. Linux only: read from /proc, in a
//! process of its own.
#![cfg(target_os = "linux")]

mod support;

use std::process::Command;

use rmlx_engine::api::Request;
use support::*;

/// What a loaded model may hold beside its weights: the tokenizer (49,152 words and their merges), the KV cache, and what the
/// allocator keeps for next time.
const BESIDE: u64 = 40 << 20;

/// Resident memory of this process in bytes.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn the_starter_model_takes_little_more_than_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("starter");
    // Another process imports: what that took is not counted here.
    let imported = Command::new(env!("CARGO_BIN_EXE_rmlx"))
        .env("RMLX_HOME", folder.path())
        .arg("import")
        .arg(starter_gguf())
        .arg("--out")
        .arg(&model)
        .output()
        .unwrap();
    assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
    let stored = model.join("model.safetensors").metadata().unwrap().len();

    let engine = engine(None);
    let before = resident();
    let asked = Request { max_tokens: Some(8), ignore_eos: true, ..request((1..64).collect()) };
    assert_eq!(Answer::read(engine.generate(model.to_str().unwrap(), asked).unwrap()).ids.len(), 8);
    // Status comes after what was dropped.
    engine.status();
    engine.status();
    let held = resident().saturating_sub(before);
    println!("{held} bytes are held for {stored} stored");
    // A mapping of the file that nobody touches would look as small.
    assert!(held > stored, "{held} bytes for {stored}: was it loaded?");
    let limit = (1.15 * stored as f64) as u64 + BESIDE;
    assert!(held <= limit, "{held} bytes for {stored}, more than {limit}");

    // One more copy of the weights would be seen.
    let copy = vec![1u8; stored as usize];
    let with_copy = resident().saturating_sub(before);
    assert!(std::hint::black_box(copy)[0] == 1 && with_copy > limit, "{with_copy} bytes with a copy of {stored}");
}
