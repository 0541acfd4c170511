use std::fs;

use half::f16;
use serde_json::Value;
use tokenizers::Tokenizer;

use super::*;
use crate::hub::made::{self, HEAD_DIM, HEADS, HIDDEN, KV_HEADS, Numbers};
use crate::hub::safetensors::Dtype;
use crate::hub::{Snapshot, Weights};

fn quiet(_: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

struct Case {
    folder: tempfile::TempDir,
    options: ImportOptions,
}

impl Case {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = ImportOptions { out: folder.path().join("models/Tiny"), force: false };
        Self { folder, options }
    }

    fn import(&self, file: &made::Gguf) -> Result<Imported> {
        let path = self.folder.path().join("Tiny.gguf");
        fs::write(&path, file.bytes()).unwrap();
        gguf(&path, &self.options, &mut quiet)
    }

    fn is_empty(&self) -> bool {
        fs::read_dir(self.folder.path().join("models")).map_or(true, |mut d| d.next().is_none())
    }
}

/// What the file's blocks say, by the format's definition, row by row.
fn weights_of(t: &made::Tensor) -> Vec<f32> {
    let half = |b: &[u8]| f16::from_le_bytes([b[0], b[1]]).to_f32();
    let nibbles =
        |codes: &[u8]| [codes.iter().map(|c| c & 15).collect::<Vec<_>>(), codes.iter().map(|c| c >> 4).collect()].concat();
    match t.kind {
        made::F32 => weights::floats(&t.data),
        made::F16 => t.data.chunks(2).map(half).collect(),
        made::Q4_0 => t
            .data
            .chunks(18)
            .flat_map(|b| nibbles(&b[2..]).into_iter().map(|q| (f32::from(q) - 8.0) * half(b)).collect::<Vec<_>>())
            .collect(),
        made::Q4_1 => t
            .data
            .chunks(20)
            .flat_map(|b| nibbles(&b[4..]).into_iter().map(|q| f32::from(q) * half(b) + half(&b[2..])).collect::<Vec<_>>())
            .collect(),
        made::Q8_0 => {
            t.data.chunks(34).flat_map(|b| b[2..].iter().map(|q| f32::from(*q as i8) * half(b)).collect::<Vec<_>>()).collect()
        }
        other => panic!("type {other}"),
    }
}

/// What MLX computes from a snapshot's tensors, without its rounding to their type.
fn weights_in(w: &Weights, module: &str) -> Vec<f32> {
    let halves = |bytes: &[u8]| bytes.chunks(2).map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32()).collect::<Vec<_>>();
    let name = format!("{module}.weight");
    let bytes = w.bytes(&name).unwrap();
    let info = w.get(&name).unwrap();
    match info.dtype {
        Dtype::F16 => return halves(bytes),
        Dtype::F32 => return weights::floats(bytes),
        _ => assert_eq!(info.dtype, Dtype::U32),
    }
    let scales = halves(w.bytes(&format!("{module}.scales")).unwrap());
    let biases = halves(w.bytes(&format!("{module}.biases")).unwrap());
    let bits = bytes.len() * 8 / (scales.len() * 32);
    let words = bytes.chunks(4).map(|b| u32::from_le_bytes(b.try_into().unwrap()));
    let codes = words.flat_map(|word| (0..32 / bits).map(move |i| (word >> (i * bits)) & ((1 << bits) - 1)));
    codes.enumerate().map(|(i, q)| scales[i / 32] * q as f32 + biases[i / 32]).collect()
}

/// Row `r` of a snapshot's projection is this row of llama's GGUF.
fn paired_row(r: usize) -> usize {
    let (head, within) = (r / HEAD_DIM, r % HEAD_DIM);
    head * HEAD_DIM + if within < HEAD_DIM / 2 { 2 * within } else { 2 * (within - HEAD_DIM / 2) + 1 }
}

#[test]
fn every_weight_is_exact() {
    for architecture in ["llama", "qwen2"] {
        let (case, file) = (Case::new(), made::model(architecture));
        let imported = case.import(&file).unwrap();
        let snapshot = Snapshot::open(&imported.folder).unwrap();
        let w = snapshot.weights().unwrap();
        let mut modules = 0;
        for t in &file.tensors {
            let module = snapshot_module(&t.name);
            if t.name.ends_with(".bias") {
                assert_eq!(w.get(&format!("{module}.bias")).unwrap().shape, [t.dims[0] as usize]);
                continue;
            }
            let (mut expected, got) = (weights_of(t), weights_in(&w, &module));
            if architecture == "llama" && (t.name.contains("attn_q") || t.name.contains("attn_k")) {
                let rows = expected.len() / HIDDEN;
                expected = (0..rows).flat_map(|r| expected[paired_row(r) * HIDDEN..][..HIDDEN].to_vec()).collect();
            }
            // The sign of a zero is the one thing that a sum does not keep.
            assert!(expected.iter().zip(&got).all(|(a, b)| a == b) && expected.len() == got.len(), "{architecture} {}", t.name);
            modules += 1;
        }
        assert_eq!(modules, file.tensors.iter().filter(|t| !t.name.ends_with(".bias")).count());
        assert_eq!(imported.tensors, w.len());
        assert_eq!(
            imported.bytes,
            fs::read_dir(&imported.folder).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum::<u64>()
        );
    }
}

fn snapshot_module(name: &str) -> String {
    let name = name.rsplit_once('.').unwrap().0;
    match name {
        "token_embd" => return "model.embed_tokens".into(),
        "output_norm" => return "model.norm".into(),
        "output" => return "lm_head".into(),
        _ => {}
    }
    let parts: Vec<&str> = name.split('.').collect();
    let part = match parts[2] {
        "attn_norm" => "input_layernorm",
        "ffn_norm" => "post_attention_layernorm",
        "attn_q" => "self_attn.q_proj",
        "attn_k" => "self_attn.k_proj",
        "attn_v" => "self_attn.v_proj",
        "attn_output" => "self_attn.o_proj",
        "ffn_gate" => "mlp.gate_proj",
        "ffn_up" => "mlp.up_proj",
        "ffn_down" => "mlp.down_proj",
        other => panic!("{other}"),
    };
    format!("model.layers.{}.{part}", parts[1])
}

#[test]
fn configuration() {
    let case = Case::new();
    let imported = case.import(&made::model("llama")).unwrap();
    let snapshot = Snapshot::open(&imported.folder).unwrap();
    let c = snapshot.model_config().unwrap();
    assert_eq!(c.architecture, "LlamaForCausalLM");
    assert_eq!((c.hidden_size, c.num_heads, c.num_kv_heads, c.head_dim), (HIDDEN, HEADS, KV_HEADS, HEAD_DIM));
    assert_eq!((c.rms_norm_eps, c.rope.theta, c.tie_word_embeddings), (1e-5, 10_000.0, Some(true)));
    assert_eq!(snapshot.config()["rms_norm_eps"].to_string(), "0.00001");
    assert_eq!(c.eos_token_ids, [2]);
    let q = c.quantization.unwrap();
    let bits = |module: &str| q.of(module).map(|q| (q.bits, q.group_size));
    assert_eq!(bits("model.layers.0.mlp.up_proj"), Some((4, 32)));
    assert_eq!(bits("model.embed_tokens"), Some((8, 32)));
    assert_eq!(bits("model.layers.1.self_attn.v_proj"), None);
    assert_eq!(snapshot.text("chat_template.jinja").unwrap().unwrap(), "{{ messages[0].content }}");
    let w = snapshot.weights().unwrap();
    assert_eq!(w.files()[0].metadata()["format"], "mlx");
    // Made of numbers that f16 does not hold.
    assert_eq!(w.get("model.norm.weight").unwrap().dtype, Dtype::F32);

    let qwen = Case::new();
    let snapshot = Snapshot::open(&qwen.import(&made::model("qwen2")).unwrap().folder).unwrap();
    let c = snapshot.model_config().unwrap();
    assert_eq!((c.architecture.as_str(), c.tie_word_embeddings), ("Qwen2ForCausalLM", Some(false)));
    assert_eq!(c.eos_token_ids, [2, 0]);
}

#[test]
fn norms_that_fit_become_half() {
    let mut file = made::model("llama");
    file.tensor("output_norm.weight").data = (0..HIDDEN).flat_map(|i| (i as f32 * -0.25).to_le_bytes()).collect();
    // The smallest subnormal of f16, negative.
    file.tensor("output_norm.weight").data[..4].copy_from_slice(&(-(2f32.powi(-24))).to_le_bytes());
    let case = Case::new();
    let w = Snapshot::open(&case.import(&file).unwrap().folder).unwrap().weights().unwrap();
    assert_eq!(w.get("model.norm.weight").unwrap().dtype, Dtype::F16);
    assert_eq!(w.bytes("model.norm.weight").unwrap()[..4], [1, 0x80, 0x00, 0xb4]);
}

#[test]
fn rope_scaling_is_carried() {
    let scaling = |change: &dyn Fn(&mut made::Gguf)| {
        let mut file = made::model("llama");
        change(&mut file);
        let case = Case::new();
        case.import(&file).map(|i| Snapshot::open(&i.folder).unwrap().config()["rope_scaling"].clone())
    };
    let set = |kind: &'static str| {
        move |g: &mut made::Gguf| {
            g.set_text("llama.rope.scaling.type", kind).set_f32("llama.rope.scaling.factor", 4.0);
            g.set_u32("llama.rope.scaling.original_context_length", 64);
        }
    };
    assert_eq!(scaling(&|_| {}).unwrap(), Value::Null);
    assert_eq!(scaling(&set("none")).unwrap(), Value::Null);
    assert_eq!(scaling(&set("linear")).unwrap(), json!({"rope_type": "linear", "factor": 4.0}));
    let yarn = json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64});
    assert_eq!(scaling(&set("yarn")).unwrap(), yarn);
    assert!(scaling(&set("longrope")).unwrap_err().to_string().contains("longrope"));

    // As llama3 scaling by 8 gives them for theta 10000 and heads of 16: wavelengths of 2 pi * 10000^(i / 8).
    let factors = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 8.0 / 3.0, 8.0_f32];
    let smooth = |i: i32| {
        let wavelength = std::f64::consts::TAU * 10_000f64.powf(f64::from(i) / 8.0);
        let s = (8192.0 / wavelength - 1.0) / 3.0;
        (1.0 / ((1.0 - s) / 8.0 + s)) as f32
    };
    let with = |factors: &[f32]| {
        let data = factors.iter().flat_map(|f| f.to_le_bytes()).collect();
        let tensor = made::Tensor { name: "rope_freqs.weight".into(), dims: vec![8], kind: made::F32, data };
        scaling(&move |g| g.tensors.insert(1, made::Tensor { ..tensor.clone() }))
    };
    let right: Vec<f32> = (0..8).map(|i| if i == 6 { smooth(6) } else { factors[i as usize] }).collect();
    assert_eq!(with(&right).unwrap()["rope_type"], "llama3");
    assert_eq!(with(&right).unwrap()["factor"], 8.0);
    assert!(with(&[1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 3.0, 8.0]).is_err());
}

#[test]
fn extreme_scales() {
    let half = |x: f32| f16::from_f32(x).to_le_bytes();
    // Kind, scale, whether it can be kept.
    let cases = [
        (made::Q4_0, half(8184.0), true),
        (made::Q4_0, half(8192.0), false),
        (made::Q4_0, half(6e-8), true),
        (made::Q8_0, half(-511.5), true),
        (made::Q8_0, half(512.0), false),
        (made::Q8_0, half(-6e-8), true),
        (made::Q4_0, half(f32::NAN), false),
        (made::Q4_1, half(f32::INFINITY), false),
        (made::Q4_1, half(65504.0), true),
    ];
    for (kind, scale, fits) in cases {
        let name = if kind == made::Q8_0 { "token_embd.weight" } else { "blk.0.ffn_up.weight" };
        let mut file = made::model("llama");
        let t = file.tensor(name);
        let n = t.dims.iter().product::<u64>() as usize;
        (t.kind, t.data) = (kind, Numbers(3).data(kind, n));
        t.data[..2].copy_from_slice(&scale);
        let expected = weights_of(t);
        let case = Case::new();
        match case.import(&file) {
            Ok(imported) => {
                let w = Snapshot::open(&imported.folder).unwrap().weights().unwrap();
                assert!(fits && weights_in(&w, &snapshot_module(name)) == expected, "{kind} {scale:?}");
            }
            Err(e) => {
                assert!(!fits && e.to_string().contains(&format!("tensor {name}: block 0")), "{e}");
                assert!(case.is_empty());
            }
        }
    }
}

#[test]
fn refuses() {
    type Change = fn(&mut made::Gguf);
    let cases: &[(Change, &str)] = &[
        (|g| g.version = 1, "version 1"),
        (|g| g.version = 3_u32.swap_bytes(), "big-endian"),
        (
            |g| {
                g.set_text("general.architecture", "mamba");
            },
            "mamba",
        ),
        (
            |g| {
                g.unset("general.architecture");
            },
            "general.architecture is missing",
        ),
        (
            |g| {
                g.set_u32("general.alignment", 0);
            },
            "general.alignment",
        ),
        (
            |g| {
                g.set_u32("llama.block_count", 3);
            },
            "blk.2.attn_norm.weight is missing",
        ),
        (
            |g| {
                g.set_u32("llama.block_count", 1);
            },
            "blk.1",
        ),
        (
            |g| {
                g.set_u32("llama.block_count", u32::MAX);
            },
            "llama.block_count",
        ),
        (
            |g| {
                g.set_u32("llama.attention.head_count", 0);
            },
            "head_count is 0",
        ),
        (
            |g| {
                g.set_u32("llama.attention.head_count_kv", 3);
            },
            "do not go together",
        ),
        (
            |g| {
                g.set_u32("llama.embedding_length", 96);
            },
            "token_embd.weight has shape",
        ),
        (
            |g| {
                g.set_u32("llama.rope.dimension_count", 8);
            },
            "partial rotation",
        ),
        (
            |g| {
                g.set_u32("llama.expert_count", 8);
            },
            "llama.expert_count is not understood",
        ),
        (
            |g| {
                g.set_text("llama.context_length", "long");
            },
            "llama.context_length",
        ),
        (|g| g.tensor("blk.0.ffn_up.weight").kind = 12, "Q4_K"),
        (|g| g.tensor("blk.0.ffn_up.weight").kind = 99, "number 99"),
        (|g| g.tensor("blk.0.ffn_up.weight").dims = vec![0, 96], "a dimension of 0"),
        (|g| g.tensor("blk.0.ffn_up.weight").dims = vec![1 << 40, 1 << 40], "truncated"),
        (|g| g.tensor("blk.0.ffn_up.weight").dims = vec![48, 96], "whole blocks"),
        (|g| g.tensor("blk.0.ffn_up.weight").dims = vec![64, 95], "shape"),
        (|g| g.tensor("blk.0.ffn_up.weight").dims = vec![], "0 dimensions"),
        (|g| g.tensor("blk.0.ffn_up.weight").name = "blk.0.ffn_up_exps.weight".into(), "blk.0.ffn_up.weight is missing"),
        (|g| g.tensor("blk.0.ffn_up.weight").name = "blk.0.attn_q.weight".into(), "two tensors"),
        (
            |g| g.tensors.push(made::Tensor { name: "more".into(), dims: vec![1], kind: 0, data: vec![0; 4] }),
            "more is not understood",
        ),
        (|g| drop(g.tensors.pop()), "output_norm.weight is missing"),
        (
            |g| {
                g.set_text("tokenizer.ggml.model", "llama");
            },
            "tokenizer llama",
        ),
        (
            |g| {
                g.set_text("tokenizer.ggml.pre", "viking");
            },
            "viking",
        ),
        (
            |g| {
                g.unset("tokenizer.ggml.pre");
            },
            "tokenizer.ggml.pre is missing",
        ),
        (
            |g| {
                g.set_u32("tokenizer.ggml.eos_token_id", 5000);
            },
            "eos_token_id is 5000",
        ),
        (
            |g| {
                g.set_bool("tokenizer.ggml.add_space_prefix", true);
            },
            "add_space_prefix",
        ),
        (
            |g| {
                g.set_texts("tokenizer.ggml.merges", &["no".into()]);
            },
            "not two tokens",
        ),
        (
            |g| {
                g.set_texts("tokenizer.ggml.merges", &["h zz".into()]);
            },
            "needs token \"zz\"",
        ),
        (
            |g| {
                g.set_texts("tokenizer.ggml.tokens", &["a".into()]);
            },
            "1 tokens",
        ),
        (
            |g| {
                g.set_ints("tokenizer.ggml.token_type", &[9; 266]);
            },
            "type 9",
        ),
        (
            |g| {
                g.set_texts("tokenizer.ggml.tokens", &vec!["a".into(); 266]);
            },
            "there twice",
        ),
        (
            |g| {
                g.unset("tokenizer.ggml.bos_token_id").set_bool("tokenizer.ggml.add_bos_token", true);
            },
            "bos_token_id",
        ),
        (|g| g.metadata.push(g.metadata[0].clone()), "two metadata entries"),
    ];
    for (change, reason) in cases {
        let mut file = made::model("llama");
        change(&mut file);
        let case = Case::new();
        let e = case.import(&file).expect_err(reason);
        assert!(e.to_string().contains(reason), "{reason}: {e}");
        assert_eq!(e.code(), "bad_file", "{e}");
        assert!(case.is_empty());
    }
}

#[test]
fn cancelling_leaves_nothing() {
    let case = Case::new();
    let path = case.folder.path().join("Tiny.gguf");
    fs::write(&path, made::model("llama").bytes()).unwrap();
    let mut seen = Vec::new();
    let mut stop = |done, total| {
        seen.push((done, total));
        if seen.len() == 5 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    assert_eq!(gguf(&path, &case.options, &mut stop).unwrap_err().code(), "cancelled");
    assert!(case.is_empty());
    assert!(seen.is_sorted() && seen[0].0 == 0);

    let mut last = (0, 1);
    let mut all = |done, total| {
        last = (done, total);
        ControlFlow::Continue(())
    };
    gguf(&path, &case.options, &mut all).unwrap();
    assert_eq!(last.0, last.1);
}

#[test]
fn a_place_that_is_taken() {
    let (case, file) = (Case::new(), made::model("llama"));
    let forced = |case: &Case| {
        let options = ImportOptions { force: true, ..case.options.clone() };
        gguf(&case.folder.path().join("Tiny.gguf"), &options, &mut quiet)
    };
    let out = &case.options.out;
    case.import(&file).unwrap();
    fs::write(out.join("old"), "").unwrap();
    let e = case.import(&file).unwrap_err();
    assert!(e.code() == "invalid_request" && e.to_string().contains("--force"), "{e}");
    forced(&case).unwrap();
    assert!(!out.join("old").exists() && out.join("model.safetensors").exists());

    // Not a snapshot: never replaced.
    fs::remove_file(out.join("config.json")).unwrap();
    assert_eq!(forced(&case).unwrap_err().code(), "invalid_request");
    assert!(out.join("model.safetensors").exists());
    fs::remove_dir_all(out).unwrap();
    fs::write(out, "a file").unwrap();
    assert_eq!(forced(&case).unwrap_err().code(), "invalid_request");
    fs::remove_file(out).unwrap();

    // What a killed import left goes; what a running one writes stays.
    let partial = out.with_file_name(".Tiny.partial");
    fs::create_dir(&partial).unwrap();
    fs::write(partial.join("model.safetensors.partial"), "half").unwrap();
    let running = Place::claim(&case.options).unwrap();
    assert!(!partial.join("model.safetensors.partial").exists());
    assert!(case.import(&file).unwrap_err().to_string().contains("running"));
    drop(running);
    case.import(&file).unwrap();
    let left: Vec<_> = fs::read_dir(out.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["Tiny"]);
}

#[test]
fn names() {
    let cases = [
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct"),
        ("/a/b/model-q8_0.gguf", "model"),
        ("model.f16.gguf", "model"),
        ("Qwen2-0.5B.gguf", "Qwen2-0.5B"),
        ("Q4_0.gguf", "Q4_0"),
    ];
    for (path, name) in cases {
        assert_eq!(default_name(Path::new(path)), name);
    }
}

/// The tokens and merges that three texts use, at their places in the whole vocabulary; the ids are the whole tokenizer's.
#[test]
fn trimmed_tokenizer_gives_the_starter_model_s_ids() {
    const VOCABULARY: usize = 49152;
    let fixture: Value = serde_json::from_str(include_str!("../../../tests/fixtures/smollm2-tokenizer.json")).unwrap();
    let mut texts: Vec<String> = (0..VOCABULARY).map(|i| format!("[PAD{i}]")).collect();
    let mut kinds = vec![5; VOCABULARY];
    for (text, id) in fixture["tokens"].as_object().unwrap() {
        let id = id.as_u64().unwrap() as usize;
        (texts[id], kinds[id]) = (text.clone(), if id < 3 { 3 } else { 1 });
    }
    let strings = |v: &Value| v.as_array().unwrap().iter().map(|s| s.as_str().unwrap().to_owned()).collect::<Vec<_>>();
    let mut file = made::model("llama");
    file.set_texts("tokenizer.ggml.tokens", &texts).set_ints("tokenizer.ggml.token_type", &kinds);
    file.set_texts("tokenizer.ggml.merges", &strings(&fixture["merges"]));
    let bytes = file.bytes();
    let gguf = Gguf::read(&bytes[..], bytes.len() as u64).unwrap();
    let rebuilt = tokenizer::rebuild(&gguf, VOCABULARY, 8192).unwrap();
    check_ids(&Tokenizer::from_bytes(rebuilt.tokenizer.to_string()).unwrap(), &fixture);
}

fn check_ids(tokenizer: &Tokenizer, fixture: &Value) {
    for (text, ids) in [("text", "ids"), ("chat", "chat_ids"), ("odd", "odd_ids")] {
        let text = fixture[text].as_str().unwrap();
        let ids: Vec<u32> = serde_json::from_value(fixture[ids].clone()).unwrap();
        assert_eq!(tokenizer.encode(text, true).unwrap().get_ids(), ids);
        assert_eq!(tokenizer.decode(&ids, false).unwrap(), text);
    }
}

#[test]
fn tokenizer_variants() {
    let rebuild = |change: &dyn Fn(&mut made::Gguf)| {
        let mut file = made::model("llama");
        change(&mut file);
        let bytes = file.bytes();
        tokenizer::rebuild(&Gguf::read(&bytes[..], bytes.len() as u64).unwrap(), 266, 256).unwrap()
    };
    let ids = |r: &Rebuilt, text: &str| {
        let tokenizer = Tokenizer::from_bytes(r.tokenizer.to_string()).unwrap();
        let ids = tokenizer.encode(text, true).unwrap().get_ids().to_vec();
        assert_eq!(tokenizer.decode(&ids, true).unwrap().trim_start_matches("<|im_start|>"), text);
        ids
    };
    let letter = |c: char| 4 + made::byte_letters().iter().position(|l| l.starts_with(c)).unwrap() as u32;
    let (hello, hell) = (263, 262);
    // Llama 3 puts its BOS in front, and a word that is a token is never split.
    let llama = rebuild(&|g| {
        g.set_text("tokenizer.ggml.pre", "llama-bpe").set_texts("tokenizer.ggml.merges", &[]);
    });
    assert_eq!(ids(&llama, "hello"), [1, hello]);
    assert_eq!(ids(&llama, "hell hellox")[..3], [1, hell, letter('Ġ')]);
    // The same without the merges, where they are needed.
    let smollm = rebuild(&|g| {
        g.set_texts("tokenizer.ggml.merges", &[]);
    });
    assert_eq!(ids(&smollm, "he"), [letter('h'), letter('e')]);
    let gpt2 = rebuild(&|g| {
        g.set_text("tokenizer.ggml.pre", "gpt-2");
    });
    assert_eq!(ids(&gpt2, "hello w"), [hello, 264]);
    // A tokenizer of Qwen composes characters.
    let qwen = rebuild(&|g| {
        g.set_text("tokenizer.ggml.pre", "qwen2");
    });
    let composed = Tokenizer::from_bytes(qwen.tokenizer.to_string()).unwrap();
    assert_eq!(composed.encode("e\u{301}", true).unwrap().get_ids(), composed.encode("é", true).unwrap().get_ids());
    assert_eq!(qwen.stops, [2, 0]);
    // User-defined tokens are found in text, and shown.
    assert_eq!(ids(&qwen, "<think>he"), [3, 260]);
    let both = rebuild(&|g| {
        g.set_bool("tokenizer.ggml.add_bos_token", true).set_bool("tokenizer.ggml.add_eos_token", true);
    });
    let both = Tokenizer::from_bytes(both.tokenizer.to_string()).unwrap();
    assert_eq!(both.encode("he", true).unwrap().get_ids(), [1, 260, 2]);
    assert_eq!(both.encode("he", false).unwrap().get_ids(), [260]);
}

/// The starter model's file, where set-up has brought it.
fn starter() -> Option<PathBuf> {
    let var = |key| std::env::var_os(key).map(PathBuf::from);
    let caches = || var("XDG_CACHE_HOME").or_else(|| Some(var("HOME")?.join(".cache")));
    let cache = var("RMLX_BUILD_CACHE").or_else(|| Some(caches()?.join("rmlx-build")))?;
    let path = cache.join("starter/SmolLM2-135M-Instruct.Q4_1.gguf");
    path.is_file().then_some(path)
}

#[test]
fn starter_model() {
    let Some(path) = starter() else {
        eprintln!("skipped: the starter model is not here");
        return;
    };
    let case = Case::new();
    let imported = gguf(&path, &case.options, &mut quiet).unwrap();
    let snapshot = Snapshot::open(&imported.folder).unwrap();
    let w = snapshot.weights().unwrap();
    assert_eq!((imported.architecture.as_str(), imported.tensors, w.len()), ("LlamaForCausalLM", 694, 694));
    // 20 bytes for 32 weights of 4 bits, 36 for 32 of 8 bits, 2 for a norm's.
    assert_eq!(w.total_bytes(), 106_168_320 / 32 * 20 + 49_152 * 576 / 32 * 36 + 61 * 576 * 2);
    assert_eq!(w.get("model.embed_tokens.weight").unwrap().shape, [49152, 144]);
    let fixture: Value = serde_json::from_str(include_str!("../../../tests/fixtures/smollm2-tokenizer.json")).unwrap();
    let tokenizer = Tokenizer::from_file(snapshot.file("tokenizer.json").unwrap().unwrap()).unwrap();
    check_ids(&tokenizer, &fixture);
}
