//! What every decoder's `config.json` shares, read into plain values. A number that no real model has is refused here, before
//! anything is sized by it. Keys of one architecture alone stay in [`ModelConfig::text`] and are read with [`Fields`].

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// A decoder's shape. Where the file nests the language model in `text_config`, that part is what is described.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// `architectures[0]`, what chooses the implementation.
    pub architecture: String,
    /// `model_type` of the whole model; empty where the file has none.
    pub model_type: String,
    pub hidden_size: usize,
    pub num_layers: usize,
    pub num_heads: usize,
    /// Divides `num_heads`.
    pub num_kv_heads: usize,
    pub head_dim: usize,
    pub intermediate_size: usize,
    pub vocab_size: usize,
    pub rms_norm_eps: f32,
    /// For files that give one rotary setting per layer type this is the one of `full_attention`.
    pub rope: Rope,
    /// One setting per layer type (`full_attention`, `sliding_attention`), empty for files with one setting for all.
    pub layer_ropes: BTreeMap<String, Rope>,
    /// Tokens.
    pub max_position_embeddings: usize,
    /// `None`: the file does not say, and the architecture's own default holds.
    pub tie_word_embeddings: Option<bool>,
    /// `None`: as above.
    pub attention_bias: Option<bool>,
    /// `dtype` or `torch_dtype` as written (`bfloat16`), a hint only: tensors carry their own type.
    pub dtype: Option<String>,
    /// Of `config.json` alone; `generation_config.json` may name more.
    pub eos_token_ids: Vec<u32>,
    pub quantization: Option<Quantization>,
    /// The whole file.
    pub raw: Map<String, Value>,
    /// The language model's part: `text_config` over the root's keys, or the root itself.
    pub text: Map<String, Value>,
}

/// Rotary position embedding of one kind of layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    pub theta: f64,
    /// Share of each head that is rotated, over 0 and at most 1.
    pub partial_rotary_factor: f64,
    pub scaling: RopeConfig,
}

/// How frequencies are stretched past the trained context.
#[derive(Debug, Clone, PartialEq)]
pub enum RopeConfig {
    Default,
    /// Positions are divided by `factor`.
    Linear {
        factor: f64,
    },
    Llama3 {
        factor: f64,
        low_freq_factor: f64,
        high_freq_factor: f64,
        /// Trained context, in tokens.
        original_context: usize,
    },
    Yarn {
        factor: f64,
        beta_fast: f64,
        beta_slow: f64,
        /// Trained context, in tokens.
        original_context: usize,
        /// What cos and sin are multiplied by: the file's value, or the one that follows from `factor` and `mscale`.
        attention_factor: f64,
        /// Whether the ramp's ends are rounded to whole pairs.
        truncate: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuantMode {
    /// `w = scale * code + bias` per group along the input dimension.
    Affine,
}

impl QuantMode {
    /// As `config.json` spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Affine => "affine",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quant {
    pub mode: QuantMode,
    /// 2, 3, 4, 5, 6 or 8.
    pub bits: u32,
    /// 32, 64 or 128.
    pub group_size: usize,
}

/// Which modules are quantized and how. A module without a `scales` tensor is not quantized whatever this says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quantization {
    pub default: Option<Quant>,
    /// By module path (`model.layers.0.mlp.gate`); `None` is a module that stays as it is.
    pub overrides: BTreeMap<String, Option<Quant>>,
}

impl Quantization {
    /// How `module` is stored.
    pub fn of(&self, module: &str) -> Option<Quant> {
        self.overrides.get(module).copied().unwrap_or(self.default)
    }

    /// Such as `affine 4/8-bit, group 32`.
    pub fn summary(&self) -> String {
        let all = || self.default.iter().chain(self.overrides.values().flatten());
        let joined = |mut numbers: Vec<usize>| {
            numbers.sort_unstable();
            numbers.dedup();
            numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join("/")
        };
        let mode = all().next().map_or("", |q| q.mode.name());
        let bits = joined(all().map(|q| q.bits as usize).collect());
        format!("{mode} {bits}-bit, group {}", joined(all().map(|q| q.group_size).collect()))
    }

    /// From a snapshot's `config.json`: `quantization`, else its copy `quantization_config`. A method that is not MLX's own is
    /// refused by its name.
    ///
    /// # Errors
    /// [`Error::Unsupported`].
    pub fn parse(root: &Map<String, Value>) -> Result<Option<Self>> {
        let (key, value) = match (present(root, "quantization"), present(root, "quantization_config")) {
            (Some(v), _) => ("quantization", v),
            (None, Some(v)) => ("quantization_config", v),
            (None, None) => return Ok(None),
        };
        let map = value.as_object().ok_or_else(|| unsupported(format!("{key} is not an object")))?;
        if let Some(method) = present(map, "quant_method") {
            return Err(unsupported(format!(
                "weights quantized with {method} are not supported; MLX's affine quantization is\ntake an MLX conversion of it"
            )));
        }
        let mut quantization = Self { default: quant(key, map)?, overrides: BTreeMap::new() };
        for (module, v) in map {
            let own = match v {
                _ if matches!(module.as_str(), "group_size" | "bits" | "mode") => continue,
                Value::Bool(false) => None,
                Value::Bool(true) => quantization.default,
                Value::Object(m) => {
                    let q = quant(module, m)?;
                    Some(q.ok_or_else(|| unsupported(format!("{key}: {module} lacks bits and group_size")))?)
                }
                _ => return Err(unsupported(format!("{key} has a key {module} that this version does not know"))),
            };
            quantization.overrides.insert(module.clone(), own);
        }
        Ok(Some(quantization))
    }
}

fn quant(what: &str, map: &Map<String, Value>) -> Result<Option<Quant>> {
    let fields = Fields { map, place: what };
    let mode = match fields.text("mode")? {
        None | Some("affine") => QuantMode::Affine,
        Some(other) => return Err(unsupported(format!("{what}: quantization mode {other} is not supported, only affine"))),
    };
    match (fields.opt_int("bits", u32::MAX as usize)?, fields.opt_int("group_size", u32::MAX as usize)?) {
        (None, None) => Ok(None),
        (Some(bits @ (2..=6 | 8)), Some(group_size @ (32 | 64 | 128))) => Ok(Some(Quant { mode, bits: bits as u32, group_size })),
        (Some(b), Some(g)) => Err(unsupported(format!(
            "{what}: {b} bits in groups of {g} are not supported; bits are 2, 3, 4, 5, 6 or 8, groups 32, 64 or 128"
        ))),
        _ => Err(unsupported(format!("{what}: bits and group_size go together, and one is missing"))),
    }
}

impl ModelConfig {
    /// Reads a whole `config.json`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the key and its value: something is missing, of another type, outside what models have, or
    /// contradicts another key.
    pub fn parse(config: &Value) -> Result<Self> {
        let root = config.as_object().ok_or_else(|| unsupported("config.json is not an object".into()))?;
        let mut text = root.clone();
        if let Some(nested) = present(root, "text_config") {
            let nested = nested.as_object().ok_or_else(|| unsupported("text_config is not an object".into()))?;
            text.shift_remove("text_config");
            text.extend(nested.iter().map(|(k, v)| (k.clone(), v.clone())));
        }
        let f = Fields::new(&text);

        let hidden_size = f.int("hidden_size", 1 << 16)?;
        let num_heads = f.int("num_attention_heads", 1024)?;
        let num_kv_heads = f.opt_int("num_key_value_heads", 1024)?.unwrap_or(num_heads);
        if num_heads % num_kv_heads != 0 {
            return Err(unsupported(format!("{num_heads} attention heads cannot share {num_kv_heads} key/value heads")));
        }
        let head_dim = match f.opt_int("head_dim", 1024)? {
            Some(d) => d,
            None if hidden_size % num_heads == 0 && hidden_size / num_heads <= 1024 => hidden_size / num_heads,
            None => return Err(unsupported(format!("hidden_size {hidden_size} does not divide into {num_heads} heads"))),
        };
        let max_position_embeddings = f.int("max_position_embeddings", 1 << 27)?;
        let (rope, layer_ropes) = ropes(&f, max_position_embeddings)?;

        Ok(Self {
            architecture: architecture(root).ok_or_else(|| unsupported("config.json names no architecture".into()))?.into(),
            model_type: Fields::new(root).text("model_type")?.unwrap_or_default().into(),
            hidden_size,
            num_layers: f.int("num_hidden_layers", 1024)?,
            num_heads,
            num_kv_heads,
            head_dim,
            intermediate_size: f.int("intermediate_size", 1 << 20)?,
            vocab_size: f.int("vocab_size", 1 << 22)?,
            rms_norm_eps: f.float("rms_norm_eps", 1e-12..=0.1)?.unwrap_or(1e-6) as f32,
            rope,
            layer_ropes,
            max_position_embeddings,
            tie_word_embeddings: f.flag("tie_word_embeddings")?,
            attention_bias: f.flag("attention_bias")?,
            dtype: f.text("dtype")?.or(f.text("torch_dtype")?).map(Into::into),
            eos_token_ids: token_ids(&f, root)?,
            quantization: Quantization::parse(root)?,
            raw: root.clone(),
            text,
        })
    }

    /// Positions that the model was trained or stretched for.
    pub fn context_capacity(&self) -> usize {
        match self.rope.scaling {
            RopeConfig::Yarn { factor, original_context, .. } => {
                self.max_position_embeddings.max((factor * original_context as f64) as usize)
            }
            _ => self.max_position_embeddings,
        }
    }

    /// Typed access to the keys of one architecture.
    pub fn fields(&self) -> Fields<'_> {
        Fields::new(&self.text)
    }
}

/// `architectures[0]` of a `config.json`.
pub fn architecture(root: &Map<String, Value>) -> Option<&str> {
    root.get("architectures")?.as_array()?.first()?.as_str()
}

fn token_ids(f: &Fields, root: &Map<String, Value>) -> Result<Vec<u32>> {
    // A conversion may widen the root's list and leave the nested one as it was.
    let value = present(root, "eos_token_id").or_else(|| present(f.map, "eos_token_id"));
    let id = |v: &Value| {
        v.as_u64().and_then(|n| u32::try_from(n).ok()).ok_or_else(|| unsupported(format!("eos_token_id is {v}, not a token id")))
    };
    match value {
        None => Ok(Vec::new()),
        Some(Value::Array(ids)) => ids.iter().map(id).collect(),
        Some(one) => Ok(vec![id(one)?]),
    }
}

/// Both spellings: `rope_parameters` (for all layers, or per layer type), and `rope_theta` with `rope_scaling`.
fn ropes(f: &Fields, max_position: usize) -> Result<(Rope, BTreeMap<String, Rope>)> {
    let mut by_layer = BTreeMap::new();
    if let Some(parameters) = f.object("rope_parameters")? {
        if parameters.values().any(Value::is_object) {
            for (layer_type, v) in parameters {
                if v.is_null() {
                    continue;
                }
                let map = v.as_object().ok_or_else(|| unsupported(format!("rope_parameters.{layer_type} is not an object")))?;
                by_layer.insert(layer_type.clone(), rope(f, map, max_position)?);
            }
            let main = by_layer.get("full_attention").or_else(|| by_layer.values().next());
            let main = main.ok_or_else(|| unsupported("rope_parameters is empty".into()))?.clone();
            return Ok((main, by_layer));
        }
        return Ok((rope(f, parameters, max_position)?, by_layer));
    }
    let none = Map::new();
    let scaling = f.object("rope_scaling")?.unwrap_or(&none);
    Ok((rope(f, scaling, max_position)?, by_layer))
}

/// `map` wins over the keys of the same name beside it.
fn rope(outer: &Fields, map: &Map<String, Value>, max_position: usize) -> Result<Rope> {
    let f = Fields { map, place: "rope" };
    let theta = match f.float("rope_theta", 1.0..=1e12)? {
        Some(t) => t,
        None => outer.float("rope_theta", 1.0..=1e12)?.unwrap_or(10_000.0),
    };
    let partial_rotary_factor = match f.float("partial_rotary_factor", 1e-3..=1.0)? {
        Some(p) => p,
        None => outer.float("partial_rotary_factor", 1e-3..=1.0)?.unwrap_or(1.0),
    };
    const FACTORS: std::ops::RangeInclusive<f64> = 1e-3..=1e4;
    let factor = || f.float("factor", FACTORS)?.ok_or_else(|| unsupported("rope scaling has no factor".into()));
    let original = || {
        let written = f.opt_int("original_max_position_embeddings", 1 << 27)?;
        Ok::<_, Error>(written.or(outer.opt_int("original_max_position_embeddings", 1 << 27)?).unwrap_or(max_position))
    };
    let scaling = match f.text("rope_type")?.or(f.text("type")?).unwrap_or("default") {
        "default" => RopeConfig::Default,
        "linear" => RopeConfig::Linear { factor: factor()? },
        "llama3" => {
            let low = f.float("low_freq_factor", FACTORS)?.unwrap_or(1.0);
            let high = f.float("high_freq_factor", FACTORS)?.unwrap_or(4.0);
            if low >= high {
                return Err(unsupported(format!("rope low_freq_factor {low} is not below high_freq_factor {high}")));
            }
            RopeConfig::Llama3 { factor: factor()?, low_freq_factor: low, high_freq_factor: high, original_context: original()? }
        }
        "yarn" => yarn(&f, f.float("factor", FACTORS)?, original()?, max_position)?,
        other => return Err(unsupported(format!("rope type {other} is not supported"))),
    };
    Ok(Rope { theta, partial_rotary_factor, scaling })
}

fn yarn(f: &Fields, factor: Option<f64>, original_context: usize, max_position: usize) -> Result<RopeConfig> {
    let factor = factor.unwrap_or(max_position as f64 / original_context as f64);
    let beta = |key, default| Ok::<_, Error>(f.float(key, 1e-3..=1e6)?.unwrap_or(default));
    let (beta_fast, beta_slow) = (beta("beta_fast", 32.0)?, beta("beta_slow", 1.0)?);
    if beta_fast <= beta_slow {
        return Err(unsupported(format!("rope beta_fast {beta_fast} is not above beta_slow {beta_slow}")));
    }
    let mscale = |m: f64| if factor <= 1.0 { 1.0 } else { 0.1 * m * factor.ln() + 1.0 };
    let scales = (f.float("mscale", 0.0..=100.0)?, f.float("mscale_all_dim", 0.0..=100.0)?);
    let attention_factor = match (f.float("attention_factor", 1e-3..=1e3)?, scales) {
        (Some(a), _) => a,
        (None, (Some(m), Some(all))) if m != 0.0 && all != 0.0 => mscale(m) / mscale(all),
        _ => mscale(1.0),
    };
    let truncate = f.flag("truncate")?.unwrap_or(true);
    Ok(RopeConfig::Yarn { factor, beta_fast, beta_slow, original_context, attention_factor, truncate })
}

/// Typed reads of a JSON object; `null` counts as absent. Errors name the key and the value.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a> {
    map: &'a Map<String, Value>,
    place: &'a str,
}

impl<'a> Fields<'a> {
    pub fn new(map: &'a Map<String, Value>) -> Self {
        Self { map, place: "config.json" }
    }

    /// A whole number from 1 to `max`.
    ///
    /// # Errors
    /// [`Error::Unsupported`]: absent, not a whole number, or outside.
    pub fn int(&self, key: &str, max: usize) -> Result<usize> {
        self.opt_int(key, max)?.ok_or_else(|| unsupported(format!("{}: {key} is missing", self.place)))
    }

    /// As [`Self::int`], and `None` where the key is absent.
    pub fn opt_int(&self, key: &str, max: usize) -> Result<Option<usize>> {
        let Some(v) = present(self.map, key) else { return Ok(None) };
        match v.as_u64().and_then(|n| usize::try_from(n).ok()) {
            Some(n) if (1..=max).contains(&n) => Ok(Some(n)),
            _ => Err(unsupported(format!("{}: {key} is {}, not a whole number from 1 to {max}", self.place, brief(v)))),
        }
    }

    /// A number within `range`.
    pub fn float(&self, key: &str, range: std::ops::RangeInclusive<f64>) -> Result<Option<f64>> {
        let Some(v) = present(self.map, key) else { return Ok(None) };
        match v.as_f64() {
            Some(x) if range.contains(&x) => Ok(Some(x)),
            _ => {
                let (low, high) = (range.start(), range.end());
                Err(unsupported(format!("{}: {key} is {}, not a number from {low} to {high}", self.place, brief(v))))
            }
        }
    }

    pub fn flag(&self, key: &str) -> Result<Option<bool>> {
        let Some(v) = present(self.map, key) else { return Ok(None) };
        v.as_bool().map(Some).ok_or_else(|| self.not_a(key, v, "true or false"))
    }

    pub fn text(&self, key: &str) -> Result<Option<&'a str>> {
        let Some(v) = present(self.map, key) else { return Ok(None) };
        v.as_str().map(Some).ok_or_else(|| self.not_a(key, v, "a text"))
    }

    pub fn object(&self, key: &str) -> Result<Option<&'a Map<String, Value>>> {
        let Some(v) = present(self.map, key) else { return Ok(None) };
        v.as_object().map(Some).ok_or_else(|| self.not_a(key, v, "an object"))
    }

    fn not_a(&self, key: &str, v: &Value, what: &str) -> Error {
        unsupported(format!("{}: {key} is {}, not {what}", self.place, brief(v)))
    }
}

fn present<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    map.get(key).filter(|v| !v.is_null())
}

/// A value as error text, whatever its size.
fn brief(v: &Value) -> String {
    match v {
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
        Value::String(s) if s.len() > 40 => "a long text".into(),
        other => other.to_string(),
    }
}

fn unsupported(reason: String) -> Error {
    Error::Unsupported(printable(&reason))
}

/// Text with parts of a file in it, fit for a terminal: no control characters but line ends, and not endless.
pub(crate) fn printable(text: &str) -> String {
    const MAX_CHARS: usize = 600;
    let clean = text.chars().map(|c| if c.is_control() && c != '\n' { char::REPLACEMENT_CHARACTER } else { c });
    let mut out: String = clean.take(MAX_CHARS).collect();
    if out.len() < text.len() && text.chars().nth(MAX_CHARS).is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests;
