//! What a GGUF of a known architecture holds: its shape from the metadata, the tensors that must be there and their names in a
//! snapshot, and `config.json`. Metadata or tensors that would change the result and are not understood are refused.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::gguf::{Gguf, Tensor, TensorType};
use super::repack::GROUP;

/// Rows of a projection whose heads GGUF stores with rotary pairs side by side, and a snapshot half by half.
pub type Heads = usize;

/// One tensor of the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    pub source: String,
    /// With its last part: `model.norm.weight`.
    pub target: String,
    pub shape: Vec<usize>,
    pub heads: Option<Heads>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    Llama,
    Qwen2,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    pub architecture: Architecture,
    pub layers: usize,
    pub hidden: usize,
    pub intermediate: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub vocabulary: usize,
    pub context: usize,
    pub eps: f64,
    pub rope_theta: f64,
    /// As `rope_scaling` of a `config.json`.
    pub rope_scaling: Option<Value>,
    pub tied: bool,
    pub attention_bias: bool,
}

/// Keys under the architecture's name that are read, or that say nothing that tensors and other keys do not.
const KNOWN_KEYS: &[&str] = &[
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.layer_norm_rms_epsilon",
    "attention.value_length",
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scaling.attn_factor",
    "rope.scaling.factor",
    "rope.scaling.finetuned",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
    "tensor_data_layout",
    "vocab_size",
];

/// Factors on the rotary frequencies, as a tensor; Llama 3.1 and later have it instead of metadata.
const ROPE_FACTORS: &str = "rope_freqs.weight";

impl Model {
    /// `rope_factors` are the values of the tensor `rope_freqs.weight`, where the file has one.
    ///
    /// # Errors
    /// The key or tensor, and the reason.
    pub fn read(gguf: &Gguf, rope_factors: Option<&[f32]>) -> Result<Self, String> {
        let name = gguf.opt_text("general.architecture")?.ok_or("general.architecture is missing")?;
        let architecture = match name {
            "llama" => Architecture::Llama,
            "qwen2" => Architecture::Qwen2,
            other => return Err(format!("architecture {other} cannot be imported; llama and qwen2 can")),
        };
        let prefix = format!("{name}.");
        let unknown = gguf.metadata.keys().filter_map(|k| k.strip_prefix(&prefix)).find(|k| !KNOWN_KEYS.contains(k));
        if let Some(key) = unknown {
            return Err(format!("{prefix}{key} is not understood, and may change what the model computes"));
        }
        let int = |key: &str, max| Ok::<_, String>(gguf.int(&format!("{prefix}{key}"), max)? as usize);
        let opt_int = |key: &str, max| Ok::<_, String>(gguf.opt_int(&format!("{prefix}{key}"), max)?.map(|n| n as usize));
        let float = |key: &str| gguf.opt_float(&format!("{prefix}{key}"));

        let hidden = at_least_one("embedding_length", int("embedding_length", 1 << 16)?)?;
        let heads = at_least_one("attention.head_count", int("attention.head_count", 1024)?)?;
        let kv_heads = at_least_one("attention.head_count_kv", opt_int("attention.head_count_kv", 1024)?.unwrap_or(heads))?;
        let head_dim = match opt_int("attention.key_length", 1024)? {
            Some(d) => at_least_one("attention.key_length", d)?,
            None if hidden % heads == 0 => hidden / heads,
            None => return Err(format!("{hidden} dimensions do not divide into {heads} heads")),
        };
        if heads % kv_heads != 0 || head_dim % 2 != 0 {
            return Err(format!("{heads} heads, {kv_heads} key/value heads and {head_dim} dimensions a head do not go together"));
        }
        if opt_int("attention.value_length", 1024)?.is_some_and(|d| d != head_dim) {
            return Err("attention.value_length is not attention.key_length".into());
        }
        if opt_int("rope.dimension_count", 1024)?.is_some_and(|d| d != head_dim) {
            return Err("rope.dimension_count is not the size of a head: partial rotation is not understood".into());
        }
        let context = at_least_one("context_length", int("context_length", 1 << 27)?)?;
        let embedding = gguf.tensors.get("token_embd.weight").ok_or("tensor token_embd.weight is missing")?;
        let model = Self {
            architecture,
            layers: at_least_one("block_count", int("block_count", 1024)?)?,
            hidden,
            intermediate: at_least_one("feed_forward_length", int("feed_forward_length", 1 << 20)?)?,
            heads,
            kv_heads,
            head_dim,
            vocabulary: embedding.shape.first().copied().unwrap_or(0),
            context,
            eps: float("attention.layer_norm_rms_epsilon")?.ok_or("attention.layer_norm_rms_epsilon is missing")?,
            rope_theta: float("rope.freq_base")?.unwrap_or(10_000.0),
            rope_scaling: rope_scaling(gguf, &prefix)?,
            tied: !gguf.tensors.contains_key("output.weight"),
            attention_bias: gguf.tensors.contains_key("blk.0.attn_q.bias"),
        };
        match rope_factors {
            None => Ok(model),
            Some(_) if model.rope_scaling.is_some() => Err(format!("both rope.scaling and tensor {ROPE_FACTORS}")),
            Some(factors) => Ok(Self { rope_scaling: Some(llama3(factors, model.rope_theta, head_dim)?), ..model }),
        }
    }

    /// Every tensor of the result, in the file's order of layers.
    ///
    /// # Errors
    /// The first tensor that is missing, has another shape, or is not understood.
    pub fn mappings(&self, gguf: &Gguf) -> Result<Vec<Mapping>, String> {
        let mut all = Vec::new();
        let mut add = |source: String, target: String, shape: &[usize], heads: Option<Heads>| {
            all.push(Mapping { source, target, shape: shape.into(), heads });
        };
        let (hidden, q, kv) = (self.hidden, self.heads * self.head_dim, self.kv_heads * self.head_dim);
        // Only llama's converter rearranges rotary pairs.
        let pairs = |heads| (self.architecture == Architecture::Llama).then_some(heads);
        add("token_embd.weight".into(), "model.embed_tokens.weight".into(), &[self.vocabulary, hidden], None);
        for i in 0..self.layers {
            let (from, to) = (format!("blk.{i}"), format!("model.layers.{i}"));
            for (source, target) in [("attn_norm", "input_layernorm"), ("ffn_norm", "post_attention_layernorm")] {
                add(format!("{from}.{source}.weight"), format!("{to}.{target}.weight"), &[hidden], None);
            }
            for (letter, rows, heads) in [("q", q, pairs(self.heads)), ("k", kv, pairs(self.kv_heads)), ("v", kv, None)] {
                let target = format!("{to}.self_attn.{letter}_proj");
                add(format!("{from}.attn_{letter}.weight"), format!("{target}.weight"), &[rows, hidden], heads);
                if self.attention_bias {
                    add(format!("{from}.attn_{letter}.bias"), format!("{target}.bias"), &[rows], heads);
                }
            }
            add(format!("{from}.attn_output.weight"), format!("{to}.self_attn.o_proj.weight"), &[hidden, q], None);
            if self.attention_bias && self.architecture == Architecture::Llama {
                add(format!("{from}.attn_output.bias"), format!("{to}.self_attn.o_proj.bias"), &[hidden], None);
            }
            let inner = self.intermediate;
            add(format!("{from}.ffn_gate.weight"), format!("{to}.mlp.gate_proj.weight"), &[inner, hidden], None);
            add(format!("{from}.ffn_up.weight"), format!("{to}.mlp.up_proj.weight"), &[inner, hidden], None);
            add(format!("{from}.ffn_down.weight"), format!("{to}.mlp.down_proj.weight"), &[hidden, inner], None);
        }
        add("output_norm.weight".into(), "model.norm.weight".into(), &[hidden], None);
        if !self.tied {
            add("output.weight".into(), "lm_head.weight".into(), &[self.vocabulary, hidden], None);
        }

        for m in &all {
            let t = gguf.tensors.get(&m.source).ok_or_else(|| format!("tensor {} is missing", m.source))?;
            if t.shape != m.shape {
                return Err(format!("tensor {} has shape {:?}, and the metadata implies {:?}", m.source, t.shape, m.shape));
            }
            if m.shape.len() == 1 && t.kind.block() != 1 {
                return Err(format!("tensor {} is a quantized vector", m.source));
            }
        }
        let known: std::collections::BTreeSet<&str> = all.iter().map(|m| m.source.as_str()).collect();
        match gguf.tensors.keys().find(|name| !known.contains(name.as_str()) && *name != ROPE_FACTORS) {
            Some(name) => Err(format!("tensor {name} is not understood")),
            None => Ok(all),
        }
    }

    /// The tensor that [`Self::read`] wants the values of, where the file has it.
    ///
    /// # Errors
    /// It is not a short list of f32.
    pub fn rope_factors(gguf: &Gguf) -> Result<Option<&Tensor>, String> {
        match gguf.tensors.get(ROPE_FACTORS) {
            Some(t) if t.kind == TensorType::F32 && t.shape.len() == 1 && t.shape[0] <= 512 => Ok(Some(t)),
            Some(_) => Err(format!("tensor {ROPE_FACTORS} is not a short list of F32")),
            None => Ok(None),
        }
    }

    /// `config.json`, without the token ids, which the tokenizer knows.
    pub fn config(&self, gguf: &Gguf, mappings: &[Mapping]) -> Map<String, Value> {
        let (class, model_type) = match self.architecture {
            Architecture::Llama => ("LlamaForCausalLM", "llama"),
            Architecture::Qwen2 => ("Qwen2ForCausalLM", "qwen2"),
        };
        let all_f32 = gguf.tensors.values().all(|t| t.kind == TensorType::F32);
        let config = json!({
            "architectures": [class],
            "model_type": model_type,
            "attention_bias": self.attention_bias,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "max_position_embeddings": self.context,
            "num_attention_heads": self.heads,
            "num_hidden_layers": self.layers,
            "num_key_value_heads": self.kv_heads,
            "rms_norm_eps": self.eps,
            "rope_scaling": self.rope_scaling,
            "rope_theta": self.rope_theta,
            "tie_word_embeddings": self.tied,
            "torch_dtype": if all_f32 { "float32" } else { "float16" },
            "vocab_size": self.vocabulary,
        });
        let Value::Object(mut config) = config else { return Map::new() };
        if let Some(quantization) = quantization(gguf, mappings) {
            // Other readers look under the second name.
            config.insert("quantization".into(), quantization.clone());
            config.insert("quantization_config".into(), quantization);
        }
        config
    }
}

/// The most frequent width is the default; every other matrix is an override.
fn quantization(gguf: &Gguf, mappings: &[Mapping]) -> Option<Value> {
    let matrices: Vec<(&str, Option<u32>)> = mappings
        .iter()
        .filter(|m| m.shape.len() == 2)
        .filter_map(|m| Some((m.target.strip_suffix(".weight")?, bits(gguf.tensors.get(&m.source)?.kind))))
        .collect();
    let mut counts = BTreeMap::new();
    for bits in matrices.iter().filter_map(|(_, bits)| *bits) {
        *counts.entry(bits).or_insert(0) += 1;
    }
    let (&default, _) = counts.iter().max_by_key(|(_, n)| **n)?;
    let mut map = Map::new();
    map.insert("group_size".into(), json!(GROUP));
    map.insert("bits".into(), json!(default));
    map.insert("mode".into(), json!("affine"));
    for (module, bits) in matrices.iter().filter(|(_, bits)| *bits != Some(default)) {
        let own = bits.map_or(json!(false), |b| json!({"group_size": GROUP, "bits": b, "mode": "affine"}));
        map.insert((*module).into(), own);
    }
    Some(Value::Object(map))
}

/// Of the MLX form of a type; `None` is not quantized.
pub fn bits(kind: TensorType) -> Option<u32> {
    match kind {
        TensorType::F32 | TensorType::F16 => None,
        TensorType::Q4_0 | TensorType::Q4_1 => Some(4),
        TensorType::Q8_0 => Some(8),
    }
}

fn rope_scaling(gguf: &Gguf, prefix: &str) -> Result<Option<Value>, String> {
    let key = |k: &str| format!("{prefix}rope.scaling.{k}");
    if gguf.opt_float(&key("attn_factor"))?.is_some_and(|f| f != 1.0) {
        return Err(format!("{} is not understood", key("attn_factor")));
    }
    let factor = || gguf.opt_float(&key("factor"))?.filter(|f| *f > 0.0).ok_or_else(|| format!("{} is missing", key("factor")));
    match gguf.opt_text(&key("type"))? {
        None if gguf.metadata.contains_key(&key("factor")) => Err(format!("{} without a type", key("factor"))),
        None | Some("none") => Ok(None),
        Some("linear") => Ok(Some(json!({"rope_type": "linear", "factor": factor()?}))),
        Some("yarn") => {
            let original = gguf.int(&key("original_context_length"), 1 << 27)?;
            Ok(Some(json!({"rope_type": "yarn", "factor": factor()?, "original_max_position_embeddings": original})))
        }
        Some(other) => Err(format!("rope scaling {other} is not understood")),
    }
}

/// Finds the setting that the factors come from. Llama's published ones differ in `factor` alone.
fn llama3(factors: &[f32], theta: f64, head_dim: usize) -> Result<Value, String> {
    const LOW: f64 = 1.0;
    const HIGH: f64 = 4.0;
    const ORIGINAL: f64 = 8192.0;
    let factor = factors.last().copied().map_or(0.0, f64::from);
    let expected = |i: usize| {
        let wavelength = std::f64::consts::TAU * theta.powf(2.0 * i as f64 / head_dim as f64);
        if wavelength < ORIGINAL / HIGH {
            1.0
        } else if wavelength > ORIGINAL / LOW {
            factor
        } else {
            let smooth = (ORIGINAL / wavelength - LOW) / (HIGH - LOW);
            1.0 / ((1.0 - smooth) / factor + smooth)
        }
    };
    let fits = |(i, f): (usize, &f32)| (f64::from(*f) / expected(i) - 1.0).abs() < 1e-3;
    if factor < 1.0 || factors.len() != head_dim / 2 || !factors.iter().enumerate().all(fits) {
        return Err(format!("the factors in tensor {ROPE_FACTORS} are not Llama 3's"));
    }
    Ok(json!({"rope_type": "llama3", "factor": factor, "low_freq_factor": LOW, "high_freq_factor": HIGH,
        "original_max_position_embeddings": ORIGINAL as u64}))
}

fn at_least_one(key: &str, n: usize) -> Result<usize, String> {
    if n == 0 { Err(format!("{key} is 0")) } else { Ok(n) }
}
