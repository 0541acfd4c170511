//! Qwen3: RMS norms over each query and key head, a head size of its own.
//! Reference: transformers `models/qwen3/modeling_qwen3.py`.

use super::decoder::{self, Spec};
use super::{Arch, Model};
use crate::config::ModelConfig;
use crate::error::Result;
use crate::nn::Weights;

pub(super) const ARCH: Arch =
    Arch { name: "qwen3", class: "Qwen3ForCausalLM", rename: decoder::rename, check: decoder::check, build };

fn build(config: &ModelConfig, w: &Weights<'_>) -> Result<Box<dyn Model>> {
    let bias = config.attention_bias.unwrap_or(false);
    decoder::build(config, w, Spec { qkv_bias: bias, out_bias: bias, qk_norm: true, ..Spec::default() })
}
