//! Small valid files for tests, made byte by byte so that they share nothing with the code under test.

/// A GGUF file in the making. Numbers are what the format has, so that a test can also make wrong ones.
#[derive(Clone)]
pub struct Gguf {
    pub version: u32,
    /// Key, and its type and value as bytes.
    pub metadata: Vec<(String, Vec<u8>)>,
    pub tensors: Vec<Tensor>,
}

#[derive(Clone)]
pub struct Tensor {
    pub name: String,
    /// Innermost first.
    pub dims: Vec<u64>,
    pub kind: u32,
    pub data: Vec<u8>,
}

pub const F32: u32 = 0;
pub const F16: u32 = 1;
pub const Q4_0: u32 = 2;
pub const Q4_1: u32 = 3;
pub const Q8_0: u32 = 8;

fn text(s: &str) -> Vec<u8> {
    [&(s.len() as u64).to_le_bytes(), s.as_bytes()].concat()
}

fn typed(kind: u32, value: &[u8]) -> Vec<u8> {
    [&kind.to_le_bytes(), value].concat()
}

fn list(kind: u32, items: Vec<Vec<u8>>) -> Vec<u8> {
    [&9_u32.to_le_bytes()[..], &kind.to_le_bytes(), &(items.len() as u64).to_le_bytes(), &items.concat()].concat()
}

impl Gguf {
    pub fn set(&mut self, key: &str, value: Vec<u8>) -> &mut Self {
        self.metadata.retain(|(k, _)| k != key);
        self.metadata.push((key.into(), value));
        self
    }

    pub fn set_text(&mut self, key: &str, value: &str) -> &mut Self {
        self.set(key, typed(8, &text(value)))
    }

    pub fn set_u32(&mut self, key: &str, value: u32) -> &mut Self {
        self.set(key, typed(4, &value.to_le_bytes()))
    }

    pub fn set_f32(&mut self, key: &str, value: f32) -> &mut Self {
        self.set(key, typed(6, &value.to_le_bytes()))
    }

    pub fn set_bool(&mut self, key: &str, value: bool) -> &mut Self {
        self.set(key, typed(7, &[value.into()]))
    }

    pub fn set_texts(&mut self, key: &str, values: &[String]) -> &mut Self {
        self.set(key, list(8, values.iter().map(|s| text(s)).collect()))
    }

    pub fn set_ints(&mut self, key: &str, values: &[i32]) -> &mut Self {
        self.set(key, list(5, values.iter().map(|n| n.to_le_bytes().to_vec()).collect()))
    }

    pub fn unset(&mut self, key: &str) -> &mut Self {
        self.metadata.retain(|(k, _)| k != key);
        self
    }

    pub fn tensor(&mut self, name: &str) -> &mut Tensor {
        self.tensors.iter_mut().find(|t| t.name == name).expect("the test names a tensor that is there")
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            out.extend(text(key));
            out.extend(value);
        }
        let mut offset = 0_u64;
        for t in &self.tensors {
            out.extend(text(&t.name));
            out.extend((t.dims.len() as u32).to_le_bytes());
            t.dims.iter().for_each(|d| out.extend(d.to_le_bytes()));
            out.extend(t.kind.to_le_bytes());
            out.extend(offset.to_le_bytes());
            offset += t.data.len().next_multiple_of(32) as u64;
        }
        for t in &self.tensors {
            out.resize(out.len().next_multiple_of(32), 0);
            out.extend(&t.data);
        }
        out
    }
}

/// A repeatable stream of numbers.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> u64 {
        // Knuth's constants; the high bits are the good ones.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.next() as usize % n
    }

    /// A finite f16 of either sign with magnitude from about 2^-8 to 2.
    fn half(&mut self) -> [u8; 2] {
        let bits = (self.next() as u16 & 0x83ff) | ((7 + self.below(9) as u16) << 10);
        bits.to_le_bytes()
    }

    /// Data of a tensor with `n` weights.
    pub fn data(&mut self, kind: u32, n: usize) -> Vec<u8> {
        let mut out = Vec::new();
        match kind {
            F32 => (0..n).for_each(|_| out.extend((self.below(1 << 20) as f32 / 3.0e5 - 1.0).to_le_bytes())),
            F16 => (0..n).for_each(|_| out.extend(self.half())),
            _ => {
                let (halves, codes) = match kind {
                    Q4_0 => (1, 16),
                    Q4_1 => (2, 16),
                    _ => (1, 32),
                };
                for _ in 0..n / 32 {
                    (0..halves).for_each(|_| out.extend(self.half()));
                    (0..codes).for_each(|_| out.push(self.next() as u8));
                }
            }
        }
        out
    }
}

/// Every byte as byte-level tokenizers spell it, in the order of their ids.
pub fn byte_letters() -> Vec<String> {
    let printable = |b: &u32| (33..=126).contains(b) || (161..=172).contains(b) || (174..=255).contains(b);
    let own: Vec<u32> = (0..256).filter(printable).collect();
    let moved = (0..256).filter(|b| !printable(b)).enumerate().map(|(i, _)| 256 + i as u32);
    own.iter().copied().chain(moved).filter_map(char::from_u32).map(String::from).collect()
}

pub const HIDDEN: usize = 64;
pub const HEADS: usize = 4;
pub const KV_HEADS: usize = 2;
pub const HEAD_DIM: usize = 16;
pub const INNER: usize = 96;
pub const LAYERS: usize = 2;

/// A two-layer model of `llama` or `qwen2`, with every importable type in it.
pub fn model(architecture: &str) -> Gguf {
    let mut g = Gguf { version: 3, metadata: Vec::new(), tensors: Vec::new() };
    let key = |k: &str| format!("{architecture}.{k}");
    g.set_text("general.architecture", architecture).set_text("general.name", "Tiny");
    g.set_u32(&key("block_count"), LAYERS as u32).set_u32(&key("context_length"), 256);
    g.set_u32(&key("embedding_length"), HIDDEN as u32).set_u32(&key("feed_forward_length"), INNER as u32);
    g.set_u32(&key("attention.head_count"), HEADS as u32).set_u32(&key("attention.head_count_kv"), KV_HEADS as u32);
    g.set_f32(&key("attention.layer_norm_rms_epsilon"), 1e-5).set_f32(&key("rope.freq_base"), 10_000.0);

    let mut tokens = vec!["<|endoftext|>".to_owned(), "<|im_start|>".into(), "<|im_end|>".into(), "<think>".into()];
    let mut kinds = vec![3, 3, 3, 4];
    tokens.extend(byte_letters());
    tokens.extend(["he", "ll", "hell", "hello", "Ġw"].map(Into::into));
    kinds.resize(tokens.len(), 1);
    tokens.push("[PAD265]".into());
    kinds.push(5);
    let vocabulary = tokens.len();
    let merges = ["h e", "l l", "he ll", "hell o", "Ġ w"].map(String::from);
    g.set_text("tokenizer.ggml.model", "gpt2");
    g.set_text("tokenizer.ggml.pre", if architecture == "llama" { "smollm" } else { "qwen2" });
    g.set_texts("tokenizer.ggml.tokens", &tokens).set_ints("tokenizer.ggml.token_type", &kinds);
    g.set_texts("tokenizer.ggml.merges", &merges);
    g.set_u32("tokenizer.ggml.bos_token_id", 1).set_u32("tokenizer.ggml.eos_token_id", 2);
    g.set_text("tokenizer.chat_template", "{{ messages[0].content }}");

    let mut numbers = Numbers(7);
    let mut add = |name: String, dims: &[usize], kind: u32| {
        let data = numbers.data(kind, dims.iter().product());
        g.tensors.push(Tensor { name, dims: dims.iter().map(|d| *d as u64).collect(), kind, data });
    };
    let (q, kv) = (HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM);
    add("token_embd.weight".into(), &[HIDDEN, vocabulary], Q8_0);
    for i in 0..LAYERS {
        let name = |n: &str| format!("blk.{i}.{n}");
        add(name("attn_norm.weight"), &[HIDDEN], F32);
        add(name("ffn_norm.weight"), &[HIDDEN], F32);
        add(name("attn_q.weight"), &[HIDDEN, q], Q4_1);
        add(name("attn_k.weight"), &[HIDDEN, kv], Q4_0);
        add(name("attn_v.weight"), &[HIDDEN, kv], F16);
        add(name("attn_output.weight"), &[q, HIDDEN], F32);
        if architecture == "qwen2" {
            for (letter, rows) in [("q", q), ("k", kv), ("v", kv)] {
                add(name(&format!("attn_{letter}.bias")), &[rows], F32);
            }
        }
        add(name("ffn_gate.weight"), &[HIDDEN, INNER], Q4_0);
        add(name("ffn_up.weight"), &[HIDDEN, INNER], Q4_1);
        add(name("ffn_down.weight"), &[INNER, HIDDEN], Q4_1);
    }
    add("output_norm.weight".into(), &[HIDDEN], F32);
    if architecture == "qwen2" {
        add("output.weight".into(), &[HIDDEN, vocabulary], Q8_0);
    }
    g
}

/// A safetensors file with this header and this much data.
pub fn safetensors(header: &str, data: usize) -> Vec<u8> {
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend(header.as_bytes());
    out.extend((0..data).map(|i| i as u8));
    out
}
