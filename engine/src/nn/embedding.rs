//! Token embeddings.

use mlx::{Array, quant};

use super::linear::Linear;
use super::weights::{Matrix, Weights};
use crate::error::Result;

pub struct Embedding {
    matrix: Matrix,
    width: i32,
}

impl Embedding {
    /// `weight` [vocabulary, width].
    pub fn new(w: &Weights<'_>, vocabulary: usize, width: usize) -> Result<Self> {
        Ok(Self { matrix: w.matrix(vocabulary, width)?, width: width as i32 })
    }

    /// Token ids [.., n] -> [.., n, width]. Ids must be below the vocabulary's size; MLX does not check.
    pub fn forward(&self, ids: &Array) -> Result<Array> {
        match &self.matrix {
            Matrix::Dense(w) => Ok(w.take(ids, 0)?),
            Matrix::Packed(q, format) => {
                // The rows are unpacked after the look-up, so that only they are.
                let rows = quant::Quantized {
                    weight: q.weight.take(ids, 0)?,
                    scales: q.scales.take(ids, 0)?,
                    biases: q.biases.take(ids, 0)?,
                };
                let x = quant::dequantize(&rows, *format, q.scales.dtype())?;
                debug_assert_eq!(x.dim(-1), self.width);
                Ok(x)
            }
        }
    }

    /// The output projection of a model with tied embeddings.
    pub fn as_linear(&self) -> Result<Linear> {
        Linear::tied(&self.matrix)
    }
}
