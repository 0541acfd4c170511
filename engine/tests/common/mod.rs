//! What the tests of the real binary share: the binary in a home of its own, and a model small enough to make on the spot.

// Each test crate compiles this file and uses its part of it.
#![allow(dead_code)]

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use safetensors::Dtype;
use safetensors::tensor::{TensorView, serialize_to_file};
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

/// A state folder, a model called [`Self::model`], and the binary that sees them.
pub struct Rmlx {
    pub folder: TempDir,
}

/// Long enough for a loaded machine, short enough for a hanging test.
pub const PATIENCE: Duration = Duration::from_secs(60);

impl Rmlx {
    pub fn new() -> Self {
        let folder = tempdir().unwrap();
        tiny_model(&folder.path().join("tiny"));
        Self { folder }
    }

    pub fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// Of this test's processes, whoever holds the machine's.
    pub fn claim(&self) -> PathBuf {
        self.folder.path().join("claim")
    }

    pub fn model(&self) -> String {
        self.folder.path().join("tiny").to_str().unwrap().to_owned()
    }

    /// `MODEL` in `args` stands for the tiny model. Runs on the CPU, whatever this machine has.
    pub fn command(&self, args: &[&str]) -> Command {
        let model = self.model();
        let mut command = self.apart(env!("CARGO_BIN_EXE_rmlx"));
        command.args(args.iter().map(|arg| if *arg == "MODEL" { model.as_str() } else { arg }));
        command
    }

    /// Another program, kept from everything that is this machine's user's.
    pub fn apart(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("RMLX_CLAIM", self.claim()).env_remove("XDG_RUNTIME_DIR").env("TMPDIR", self.folder.path());
        command.env("RMLX_HOME", self.home()).env_remove("RUST_LOG").env("COLUMNS", "100");
        // No model of this machine's user.
        command.env("HF_HOME", self.folder.path().join("hf")).env("HOME", self.folder.path());
        command.env_remove("HF_HUB_CACHE").env_remove("HUGGINGFACE_HUB_CACHE").env_remove("XDG_CACHE_HOME");
        // Nor its keyring and token, and no hub but one that a test names.
        command.env("RMLX_KEYRING", "off").env("HF_ENDPOINT", "http://127.0.0.1:9");
        for key in ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
            command.env_remove(key);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn run(&self, args: &[&str]) -> Ended {
        self.run_with(args, "")
    }

    pub fn run_with(&self, args: &[&str], stdin: &str) -> Ended {
        let input = self.folder.path().join("stdin");
        fs::write(&input, stdin).unwrap();
        let child = self.command(args).stdin(fs::File::open(input).unwrap()).spawn().unwrap();
        end(child)
    }
}

#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self
    }

    /// The last line of standard output.
    #[track_caller]
    pub fn json(&self) -> Value {
        let line = self.stdout.lines().last().unwrap_or_default();
        serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {self:#?}"))
    }
}

/// Waits for the end, and kills what does not come to one.
pub fn end(child: Child) -> Ended {
    let pid = child.id().to_string();
    let (sender, output) = mpsc::channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    let output: Output = match output.recv_timeout(PATIENCE) {
        Ok(output) => output.unwrap(),
        Err(_) => {
            signal(&pid, "KILL");
            panic!("rmlx did not end by itself; killed: {:#?}", output.recv().unwrap().unwrap());
        }
    };
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// `name` without SIG.
pub fn signal(pid: &str, name: &str) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status().unwrap();
    assert!(sent.success());
}

pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "waited in vain for: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

const SPECIAL: [&str; 4] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"];
const VOCAB: usize = 128 + SPECIAL.len();

/// A Llama with random weights whose tokens are the ASCII characters, so that every answer is readable at once.
pub fn tiny_model(folder: &Path) {
    const HIDDEN: usize = 32;
    const MLP: usize = 64;
    const KV: usize = 16;
    fs::create_dir_all(folder).unwrap();
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float32",
        "hidden_size": HIDDEN, "intermediate_size": MLP, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "vocab_size": VOCAB,
        "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
        "attention_bias": false, "mlp_bias": false, "tie_word_embeddings": true,
        "bos_token_id": 129, "eos_token_id": 130,
    });
    fs::write(folder.join("config.json"), config.to_string()).unwrap();

    let mut shapes = vec![("model.embed_tokens.weight".to_owned(), vec![VOCAB, HIDDEN])];
    for layer in 0..2 {
        for (name, shape) in [
            ("input_layernorm", vec![HIDDEN]),
            ("self_attn.q_proj", vec![HIDDEN, HIDDEN]),
            ("self_attn.k_proj", vec![KV, HIDDEN]),
            ("self_attn.v_proj", vec![KV, HIDDEN]),
            ("self_attn.o_proj", vec![HIDDEN, HIDDEN]),
            ("post_attention_layernorm", vec![HIDDEN]),
            ("mlp.gate_proj", vec![MLP, HIDDEN]),
            ("mlp.up_proj", vec![MLP, HIDDEN]),
            ("mlp.down_proj", vec![HIDDEN, MLP]),
        ] {
            shapes.push((format!("model.layers.{layer}.{name}.weight"), shape));
        }
    }
    shapes.push(("model.norm.weight".to_owned(), vec![HIDDEN]));
    let mut state = 1_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    let data: Vec<Vec<u8>> = shapes
        .iter()
        .map(|(name, shape)| {
            let count = shape.iter().product();
            (0..count).flat_map(|_| if name.contains("norm") { 1.0_f32 } else { random() }.to_le_bytes()).collect()
        })
        .collect();
    let views =
        shapes.into_iter().zip(&data).map(|((name, shape), data)| (name, TensorView::new(Dtype::F32, shape, data).unwrap()));
    serialize_to_file(views, None, &folder.join("model.safetensors")).unwrap();

    let special: Vec<Value> = (128..VOCAB)
        .zip(SPECIAL)
        .map(|(id, content)| {
            json!({ "id": id, "content": content, "special": true, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false })
        })
        .collect();
    let vocab: HashMap<String, usize> = (0..128_u8).map(|byte| (printable(byte).to_string(), usize::from(byte))).collect();
    let byte_level = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true });
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "added_tokens": special,
        "pre_tokenizer": byte_level, "post_processor": null, "decoder": byte_level,
        "model": { "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": [] },
    });
    fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let config = json!({
        "tokenizer_class": "GPT2Tokenizer", "bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|pad|>",
        "chat_template": "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}\
            {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    });
    fs::write(folder.join("tokenizer_config.json"), config.to_string()).unwrap();
}

/// The character that byte-level tokenizers write for a byte.
fn printable(byte: u8) -> char {
    match byte {
        b'!'..=b'~' => char::from(byte),
        0..=b' ' => char::from_u32(0x100 + u32::from(byte)).unwrap(),
        // 127 comes after the 33 bytes up to the space.
        _ => char::from_u32(0x100 + 33).unwrap(),
    }
}
