//! Qwen2 and Qwen2.5: biases on the query, key and value projections.
//! Reference: transformers `models/qwen2/modeling_qwen2.py`.

use super::decoder::{self, Spec};
use super::{Arch, Model};
use crate::config::ModelConfig;
use crate::error::Result;
use crate::nn::Weights;

pub(super) const ARCH: Arch =
    Arch { name: "qwen2", class: "Qwen2ForCausalLM", rename: decoder::rename, check: decoder::check, build };

fn build(config: &ModelConfig, w: &Weights<'_>) -> Result<Box<dyn Model>> {
    decoder::build(config, w, Spec { qkv_bias: true, ..Spec::default() })
}
