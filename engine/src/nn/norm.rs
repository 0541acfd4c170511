//! Root mean square normalisation.

use mlx::{Array, fast};

use super::weights::{Compute, Weights};
use crate::error::Result;
use crate::kernels::norm;

pub struct RmsNorm {
    weight: Array,
    eps: f32,
    /// Where our kernels compute.
    own: Option<norm::RmsNorm>,
}

impl RmsNorm {
    /// `weight` [width].
    pub fn new(w: &Weights<'_>, width: usize, eps: f32) -> Result<Self> {
        let own = if let Compute::Own(_) = w.storage().compute { Some(norm::RmsNorm::new(eps)?) } else { None };
        Ok(Self { weight: w.tensor("weight", &[width])?, eps, own })
    }

    /// x / sqrt(mean(x^2) + eps) * weight over the last axis.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        Ok(match &self.own {
            Some(own) => own.forward(x, &self.weight)?,
            None => fast::rms_norm(x, Some(&self.weight), self.eps)?,
        })
    }

    /// x + delta, and the norm of that.
    pub fn after_sum(&self, x: &Array, delta: &Array) -> Result<(Array, Array)> {
        if let Some(own) = &self.own {
            return Ok(own.after_sum(x, delta, &self.weight)?);
        }
        let sum = x.add(delta)?;
        let normed = self.forward(&sum)?;
        Ok((sum, normed))
    }

    pub fn weight(&self) -> &Array {
        &self.weight
    }

    pub fn eps(&self) -> f32 {
        self.eps
    }
}
