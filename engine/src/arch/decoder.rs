//! The decoder that most dense models share: x + attention(norm(x)), then x + mlp(norm(x)), a norm at the end; grouped heads,
//! rotary positions, SwiGLU. The architectures that differ only in details hand those in as a [`Spec`].

use std::sync::Arc;

use mlx::Array;

use super::Model;
use crate::config::ModelConfig;
use crate::error::{Error, Result};
use crate::kernels::attention::Plan;
use crate::kv::LayerState;
use crate::nn::{Compute, Embedding, Fan, Linear, RmsNorm, Rope, SwiGlu, Weights};

/// Where the dense architectures differ.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Spec {
    pub qkv_bias: bool,
    pub out_bias: bool,
    pub mlp_bias: bool,
    /// RMS norms over each head of the queries and keys, before the rotation.
    pub qk_norm: bool,
}

/// The names that MLX conversions and the hub use are the same here. Dropped: rotary tables that old conversions stored, and the
/// copy of the embedding that some tied checkpoints carry.
pub(super) fn rename(config: &ModelConfig, name: &str) -> Option<String> {
    let tied_copy = config.tie_word_embeddings == Some(true) && name.starts_with("lm_head.");
    (!name.ends_with("rotary_emb.inv_freq") && !tied_copy).then(|| name.to_string())
}

/// What all of them assume.
pub(super) fn check(config: &ModelConfig) -> Result<()> {
    let fields = config.fields();
    match fields.text("hidden_act")? {
        None | Some("silu" | "swish") => {}
        Some(other) => return Err(Error::Unsupported(format!("activation {other} (silu is)"))),
    }
    if fields.flag("use_sliding_window")? == Some(true) {
        return Err(Error::Unsupported("use_sliding_window: true".into()));
    }
    Ok(())
}

pub(super) fn build(config: &ModelConfig, w: &Weights<'_>, spec: Spec) -> Result<Box<dyn Model>> {
    Ok(Box::new(Decoder::new(config, w, spec)?))
}

struct Attention {
    heads: i32,
    kv_heads: i32,
    head_dim: i32,
    scale: f32,
    qkv: Fan,
    out: Linear,
    norms: Option<(RmsNorm, RmsNorm)>,
    rope: Rope,
    /// Where our kernels compute: all between the projections in one.
    in_one: Option<Arc<Plan>>,
}

impl Attention {
    fn new(c: &ModelConfig, w: &Weights<'_>, spec: Spec) -> Result<Self> {
        let (q_width, kv_width) = (c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim);
        let projections = [("q_proj", q_width), ("k_proj", kv_width), ("v_proj", kv_width)];
        let norm = |name: &str| RmsNorm::new(&w.at(name), c.head_dim, c.rms_norm_eps);
        let rope = Rope::new(&c.rope, c.head_dim)?;
        let scale = (c.head_dim as f32).powf(-0.5) * rope.score_factor;
        let plan = || Plan {
            heads: c.num_heads,
            kv_heads: c.num_kv_heads,
            width: c.head_dim,
            scale,
            rotation: Some(rope.rotation()),
            norm_eps: spec.qk_norm.then_some(c.rms_norm_eps),
        };
        Ok(Self {
            in_one: if let Compute::Own(_) = w.storage().compute { Some(Arc::new(plan())) } else { None },
            heads: c.num_heads as i32,
            kv_heads: c.num_kv_heads as i32,
            head_dim: c.head_dim as i32,
            scale,
            qkv: Fan::new(w, c.hidden_size, &projections, spec.qkv_bias)?,
            out: Linear::new(&w.at("o_proj"), q_width, c.hidden_size, spec.out_bias)?,
            norms: if spec.qk_norm { Some((norm("q_norm")?, norm("k_norm")?)) } else { None },
            rope,
        })
    }

    fn forward(&self, x: &Array, state: &mut LayerState) -> Result<Array> {
        if let Some(plan) = &self.in_one {
            let norms = self.norms.as_ref().map(|(q, k)| (q.weight(), k.weight()));
            return self.out.forward(&state.attend_in_one(plan, &self.qkv.in_one(x)?, norms)?);
        }
        let n = x.dim(1);
        let mut projected = self.qkv.forward(x)?.into_iter();
        let mut heads = |heads: i32| match projected.next() {
            Some(y) => Ok(y.reshape(&[1, n, heads, self.head_dim])?),
            None => Err(Error::Internal("a projection is missing".into())),
        };
        let (mut q, mut k, v) = (heads(self.heads)?, heads(self.kv_heads)?, heads(self.kv_heads)?);
        if let Some((q_norm, k_norm)) = &self.norms {
            (q, k) = (q_norm.forward(&q)?, k_norm.forward(&k)?);
        }
        const HEADS_FIRST: [i32; 4] = [0, 2, 1, 3];
        let offset = state.len();
        let q = self.rope.forward(&q.transpose(&HEADS_FIRST)?, offset)?;
        let k = self.rope.forward(&k.transpose(&HEADS_FIRST)?, offset)?;
        let y = state.attend(&q, &k, &v.transpose(&HEADS_FIRST)?, self.scale)?;
        self.out.forward(&y.transpose(&HEADS_FIRST)?.reshape(&[1, n, -1])?)
    }
}

/// What goes from layer to layer: a sum of which the last term may be still to be added.
struct Stream {
    x: Array,
    delta: Option<Array>,
}

impl Stream {
    /// The sum, and its norm.
    fn norm(self, norm: &RmsNorm) -> Result<(Array, Array)> {
        match &self.delta {
            Some(delta) => norm.after_sum(&self.x, delta),
            None => {
                let normed = norm.forward(&self.x)?;
                Ok((self.x, normed))
            }
        }
    }
}

struct Block {
    attention_norm: RmsNorm,
    attention: Attention,
    mlp_norm: RmsNorm,
    mlp: SwiGlu,
}

impl Block {
    fn new(c: &ModelConfig, w: &Weights<'_>, spec: Spec) -> Result<Self> {
        let norm = |name: &str| RmsNorm::new(&w.at(name), c.hidden_size, c.rms_norm_eps);
        Ok(Self {
            attention_norm: norm("input_layernorm")?,
            attention: Attention::new(c, &w.at("self_attn"), spec)?,
            mlp_norm: norm("post_attention_layernorm")?,
            mlp: SwiGlu::new(&w.at("mlp"), c.hidden_size, c.intermediate_size, spec.mlp_bias)?,
        })
    }

    /// The sum at the end is left to the next norm: the two are one operation of ours.
    fn forward(&self, stream: Stream, state: &mut LayerState) -> Result<Stream> {
        let (x, normed) = stream.norm(&self.attention_norm)?;
        let (x, normed) = self.mlp_norm.after_sum(&x, &self.attention.forward(&normed, state)?)?;
        let delta = self.mlp.forward(&normed)?;
        Ok(Stream { x, delta: Some(delta) })
    }
}

struct Decoder {
    embedding: Embedding,
    blocks: Vec<Block>,
    norm: RmsNorm,
    head: Linear,
    compute: Compute,
}

impl Decoder {
    fn new(c: &ModelConfig, w: &Weights<'_>, spec: Spec) -> Result<Self> {
        let trunk = w.at("model");
        let embedding = Embedding::new(&trunk.at("embed_tokens"), c.vocab_size, c.hidden_size)?;
        let blocks: Result<_> = (0..c.num_layers).map(|i| Block::new(c, &trunk.at("layers").at(i), spec)).collect();
        // transformers' default for these families when the file does not say: Llama and Qwen2 untied, Qwen3 untied.
        let head = if c.tie_word_embeddings.unwrap_or(false) {
            embedding.as_linear()?
        } else {
            Linear::new(&w.at("lm_head"), c.hidden_size, c.vocab_size, false)?
        };
        Ok(Self {
            blocks: blocks?,
            norm: RmsNorm::new(&trunk.at("norm"), c.hidden_size, c.rms_norm_eps)?,
            embedding,
            head,
            compute: w.storage().compute,
        })
    }
}

impl Model for Decoder {
    fn forward(&self, tokens: &Array, states: &mut [LayerState]) -> Result<Array> {
        let mut stream = Stream { x: self.embedding.forward(tokens)?, delta: None };
        for (block, state) in self.blocks.iter().zip(states) {
            stream = block.forward(stream, state)?;
        }
        Ok(stream.norm(&self.norm)?.1)
    }

    fn logits(&self, hidden: &Array) -> Result<Array> {
        self.head.forward(hidden)
    }

    fn states(&self) -> Vec<LayerState> {
        let fresh = || if let Compute::Own(_) = self.compute { LayerState::paged() } else { LayerState::full() };
        self.blocks.iter().map(|_| fresh()).collect()
    }
}
