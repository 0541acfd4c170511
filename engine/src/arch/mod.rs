//! Architectures. To add one: a file here and a line in [`ARCHS`]; see `docs/adding.md`.

mod decoder;
mod llama;
mod qwen2;
mod qwen3;

use mlx::Array;

use crate::config::ModelConfig;
use crate::error::{Error, Result};
use crate::kv::LayerState;
use crate::nn::Weights;

/// A decoder of one sequence at a time: it does not know how its states store what they hold.
pub trait Model {
    /// Token ids [1, n] that follow what `states` have seen -> hidden states after the last norm [1, n, width].
    fn forward(&self, tokens: &Array, states: &mut [LayerState]) -> Result<Array>;
    /// Hidden states [.., width] -> scores of the next token [.., vocabulary].
    fn logits(&self, hidden: &Array) -> Result<Array>;
    /// Fresh states, one per layer.
    fn states(&self) -> Vec<LayerState>;
}

/// One architecture: how its checkpoints are recognised, renamed and built.
pub struct Arch {
    /// What people call it.
    pub name: &'static str,
    /// `architectures[0]` of config.json.
    pub class: &'static str,
    /// The checkpoint's name of a tensor -> the name that `build` asks for; `None` drops a tensor that carries nothing.
    pub rename: fn(&ModelConfig, &str) -> Option<String>,
    /// Refuses, before any weight is read, what this implementation would get wrong.
    pub check: fn(&ModelConfig) -> Result<()>,
    pub build: fn(&ModelConfig, &Weights<'_>) -> Result<Box<dyn Model>>,
}

pub static ARCHS: &[Arch] = &[llama::ARCH, qwen2::ARCH, qwen3::ARCH];

/// The architecture of a checkpoint.
pub fn find(config: &ModelConfig) -> Result<&'static Arch> {
    let arch = named(&config.architecture)?;
    (arch.check)(config)?;
    Ok(arch)
}

/// The architecture of a class of `config.json`, whatever else its configuration says.
pub fn named(class: &str) -> Result<&'static Arch> {
    ARCHS.iter().find(|a| a.class == class).ok_or_else(|| {
        let known: Vec<_> = ARCHS.iter().map(|a| a.class).collect();
        Error::Unsupported(format!("{class} is not among the architectures of this version: {}", known.join(", ")))
    })
}
