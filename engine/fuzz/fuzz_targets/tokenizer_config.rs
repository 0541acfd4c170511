//! Any bytes as the small files that describe a tokenizer, and as tokenizer.json itself: an error, never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rmlx_engine::text::{ChatTemplate, GenerationDefaults, SpecialTokens, Tokenizer};

fuzz_target!(|bytes: &[u8]| {
    let Ok(config) = serde_json::from_slice::<serde_json::Value>(bytes) else { return };
    let special = SpecialTokens::from_config(&config);
    if let Some(source) = config.get("chat_template").and_then(|t| t.as_str()) {
        let _ = ChatTemplate::from_source(source, &special);
    }
    // The crate behind it panics on some files, which libFuzzer would take for ours: they are caught and end as errors.
    if let Ok(tokenizer) = Tokenizer::from_bytes(bytes, special) {
        let _ = tokenizer.encode("Hello, 世界", true).and_then(|ids| tokenizer.decode(&ids, true));
    }
    let Ok(folder) = tempfile::tempdir() else { return };
    for name in ["tokenizer_config.json", "generation_config.json"] {
        let _ = std::fs::write(folder.path().join(name), bytes);
    }
    let _ = GenerationDefaults::load(folder.path());
    let _ = ChatTemplate::load(folder.path());
});
