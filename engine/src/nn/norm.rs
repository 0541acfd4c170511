//! Root mean square normalisation.

use mlx::{Array, fast};

use super::weights::Weights;
use crate::error::Result;

pub struct RmsNorm {
    weight: Array,
    eps: f32,
}

impl RmsNorm {
    /// `weight` [width].
    pub fn new(w: &Weights<'_>, width: usize, eps: f32) -> Result<Self> {
        Ok(Self { weight: w.tensor("weight", &[width])?, eps })
    }

    /// x / sqrt(mean(x^2) + eps) * weight over the last axis.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        Ok(fast::rms_norm(x, Some(&self.weight), self.eps)?)
    }
}
