//! Token embeddings.

use mlx::{Array, Dtype};

use super::linear::Linear;
use super::weights::{Matrix, Weights};
use crate::error::Result;
use crate::kernels::dense;

pub struct Embedding {
    matrix: Matrix,
    /// Of what it gives.
    dtype: Dtype,
}

impl Embedding {
    /// `weight` [vocabulary, width].
    pub fn new(w: &Weights<'_>, vocabulary: usize, width: usize) -> Result<Self> {
        Ok(Self { matrix: w.matrix(vocabulary, width)?, dtype: w.storage().dtype })
    }

    /// Token ids [.., n] -> [.., n, width]. Ids must be below the vocabulary's size; MLX does not check.
    pub fn forward(&self, ids: &Array) -> Result<Array> {
        Ok(match &self.matrix {
            Matrix::Dense(w) => w.take(ids, 0)?,
            Matrix::Stored(w) => dense::take(w, ids, self.dtype)?,
            Matrix::Packed(packed) => packed.take(ids, self.dtype)?,
        })
    }

    /// The output projection of a model with tied embeddings.
    pub fn as_linear(&self) -> Result<Linear> {
        Linear::tied(&self.matrix)
    }
}
