//! Files that are broken in thousands of ways: every one is read or refused, without a panic and within a small multiple of its
//! size in memory. The same functions are fuzz targets in `engine/fuzz`; this is the part that runs everywhere.

#[allow(dead_code)]
#[path = "../src/hub/made.rs"]
mod made;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use made::Numbers;
use rmlx_engine::config::ModelConfig;
use rmlx_engine::hub::import::Plan;
use rmlx_engine::hub::import::gguf::Gguf;
use rmlx_engine::hub::import::repack::repack;
use rmlx_engine::hub::safetensors::Header;
use rmlx_engine::hub::{Library, Snapshot};

thread_local! {
    /// Bytes that this thread holds, and the most it held. Signed: what one thread takes another may free.
    static HELD: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

struct Counting;

fn count(bytes: isize) {
    // A thread that ends has no counter any more.
    let _ = HELD.try_with(|held| {
        let (now, peak) = held.get();
        held.set((now + bytes, peak.max(now + bytes)));
    });
}

// SAFETY: every call goes to the system's allocator as it is; counting neither allocates nor panics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most memory that `f` takes beyond what is held before, in bytes.
fn peak(f: impl FnOnce()) -> usize {
    let before = HELD.get().0;
    HELD.set((before, before));
    f();
    (HELD.get().1 - before) as usize
}

/// Runs `f` on many damaged copies of `good`; none may take more than `times` its size, and a constant.
fn damage(good: &[u8], cases: usize, times: usize, f: impl Fn(&[u8])) {
    let mut numbers = Numbers(99);
    for case in 0..cases {
        let mut bad = good.to_vec();
        // The heads of files are where most can go wrong.
        let reach = [64, 1 << 14, usize::MAX][case % 3];
        for _ in 0..numbers.below(4) {
            if bad.is_empty() {
                break;
            }
            let at = numbers.below(bad.len().min(reach));
            match numbers.below(6) {
                0 => bad[at] ^= 1 << numbers.below(8),
                1 => bad[at] = numbers.next() as u8,
                2 => bad[at] = 0xff,
                // A count or a length that is too large, or just so.
                3 => {
                    let value = [u64::MAX, i64::MAX as u64, 1 << 40, 1 << 32, bad.len() as u64, 0][numbers.below(6)];
                    let n = (bad.len() - at).min(8);
                    bad[at..at + n].copy_from_slice(&value.to_le_bytes()[..n]);
                }
                4 => drop(bad.remove(at)),
                _ => bad.insert(at, numbers.next() as u8),
            }
        }
        if numbers.below(4) == 0 {
            bad.truncate(numbers.below(good.len()));
        }
        let limit = times * bad.len() + (64 << 10);
        let took = peak(|| f(&bad));
        assert!(took <= limit, "case {case}: {took} bytes of memory for {} of input", bad.len());
    }
}

#[test]
fn gguf() {
    for architecture in ["llama", "qwen2"] {
        let good = made::model(architecture).bytes();
        let read = |bytes: &[u8]| {
            let Ok(gguf) = Gguf::read(bytes, bytes.len() as u64) else { return false };
            for tensor in gguf.tensors.values() {
                let start = tensor.offset as usize;
                let _ = repack(tensor.kind, &bytes[start..start + tensor.bytes]);
            }
            Plan::new(&gguf, None).is_ok()
        };
        assert!(read(&good));
        damage(&good, 6000, 16, |bytes| {
            read(bytes);
        });
    }
}

#[test]
fn safetensors_header() {
    let tensor = |i: usize| {
        format!(r#""model.layers.{i}.weight":{{"dtype":"F16","shape":[4,2],"data_offsets":[{},{}]}}"#, i * 16, i * 16 + 16)
    };
    let tensors: Vec<String> = (0..20).map(tensor).collect();
    let good = format!(r#"{{"__metadata__":{{"format":"mlx"}},{}}}"#, tensors.join(","));
    let read = |json: &[u8]| Header::parse(json, 8 + json.len(), 8 + json.len() + 320).is_ok();
    assert!(read(good.as_bytes()));
    damage(good.as_bytes(), 10_000, 16, |json| {
        read(json);
    });
    // Many small things, which weigh more in memory than in the file.
    let many =
        (0..2000).map(|i| format!(r#""{i}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#)).collect::<Vec<_>>().join(",");
    let many = format!("{{{many}}}");
    assert!(peak(|| drop(Header::parse(many.as_bytes(), many.len(), many.len()))) < 16 * many.len());
}

#[test]
fn configuration() {
    let good = br#"{"architectures":["LlamaForCausalLM"],"hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,
        "num_key_value_heads":2,"head_dim":16,"intermediate_size":96,"vocab_size":266,"rms_norm_eps":1e-5,"rope_theta":1e4,
        "rope_scaling":{"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":64,"beta_fast":32,"beta_slow":1},
        "rope_parameters":{"full_attention":{"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4},
        "sliding_attention":{"rope_type":"linear","factor":2}},"max_position_embeddings":256,"tie_word_embeddings":true,
        "eos_token_id":[1,2],"quantization":{"group_size":32,"bits":4,"mode":"affine","lm_head":false,"a":{"group_size":64,"bits":8}}}"#;
    let read = |bytes: &[u8]| {
        let config = serde_json::from_slice(bytes).ok()?;
        ModelConfig::parse(&config).ok()
    };
    assert!(read(good).is_some());
    damage(good, 20_000, 64, |bytes| {
        if let Some(c) = read(bytes) {
            // What is accepted can be multiplied without overflow.
            assert!(c.num_kv_heads >= 1 && c.num_heads % c.num_kv_heads == 0 && c.num_heads * c.head_dim <= 1 << 20);
            assert!(c.rms_norm_eps > 0.0 && c.rope.theta.is_finite());
        }
    });
}

/// Whole folders, through the file system.
#[test]
fn snapshots() {
    let folder = tempfile::tempdir().unwrap();
    let library = Library { models: folder.path().into(), hugging_face: folder.path().join("none"), folder: None };
    let model = folder.path().join("model");
    std::fs::create_dir(&model).unwrap();
    let config = br#"{"architectures": ["LlamaForCausalLM"], "quantization": {"group_size": 32, "bits": 4}}"#;
    let index = br#"{"metadata": {}, "weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}"#;
    let shard = |name: &str| made::safetensors(&format!(r#"{{"{name}":{{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}}}"#), 4);
    let files: [(&str, &[u8]); 5] = [
        ("config.json", config),
        ("model.safetensors.index.json", index),
        ("1.safetensors", &shard("a")),
        ("2.safetensors", &shard("b")),
        ("tokenizer.json", b"{}"),
    ];
    for (name, bytes) in files {
        std::fs::write(model.join(name), bytes).unwrap();
    }
    assert_eq!(library.list()[0].problem, None);
    for (name, good) in files {
        damage(good, 400, 64, |bytes| {
            std::fs::write(model.join(name), bytes).unwrap();
            let _ = library.list();
            if let Ok(weights) = Snapshot::open(&model).and_then(|s| s.weights()) {
                for (tensor, info) in weights.iter() {
                    assert_eq!(weights.bytes(tensor).unwrap().len(), info.range.len());
                }
            }
        });
        std::fs::write(model.join(name), good).unwrap();
    }
}
