//! The parts models are made of. Nothing here knows an architecture, a cache or a file.

mod embedding;
mod linear;
mod mlp;
mod norm;
mod rope;
mod weights;

pub use embedding::Embedding;
pub use linear::{Fan, Linear};
pub use mlp::SwiGlu;
pub use norm::RmsNorm;
pub use rope::Rope;
pub use weights::{Compute, Progress, Storage, TensorView, Tensors, Weights};
