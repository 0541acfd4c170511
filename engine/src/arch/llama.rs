//! Llama 2 and 3, SmolLM2 and whatever else says `LlamaForCausalLM`.
//! Reference: transformers `models/llama/modeling_llama.py`.

use super::decoder::{self, Spec};
use super::{Arch, Model};
use crate::config::ModelConfig;
use crate::error::Result;
use crate::nn::Weights;

pub(super) const ARCH: Arch =
    Arch { name: "llama", class: "LlamaForCausalLM", rename: decoder::rename, check: decoder::check, build };

fn build(config: &ModelConfig, w: &Weights<'_>) -> Result<Box<dyn Model>> {
    let attention_bias = config.attention_bias.unwrap_or(false);
    let mlp_bias = config.fields().flag("mlp_bias")?.unwrap_or(false);
    decoder::build(config, w, Spec { qkv_bias: attention_bias, out_bias: attention_bias, mlp_bias, qk_norm: false })
}
