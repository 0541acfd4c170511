//! From a prompt to tokens: prefill, step, sample, stop. No clock and no randomness but what is passed in.

mod generation;
mod sample;
mod sequence;
pub mod stop;

pub use generation::{End, Generation, Plan, Token};
pub use sample::{Resolved, Sampler};
pub use sequence::Sequence;
