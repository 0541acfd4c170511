//! y = x W^T + b, whatever W is made of.

use mlx::{Array, quant};

use super::weights::{Matrix, Weights};
use crate::error::Result;

/// Owns the choice of how a matrix product is computed.
pub struct Linear {
    matrix: Matrix,
    bias: Option<Array>,
}

impl Linear {
    /// `weight` [outputs, inputs], `bias` [outputs] where the architecture has one.
    pub fn new(w: &Weights<'_>, inputs: usize, outputs: usize, bias: bool) -> Result<Self> {
        let matrix = w.matrix(outputs, inputs)?;
        let bias = if bias { Some(w.tensor("bias", &[outputs])?) } else { None };
        Ok(Self { matrix: matrix.transposed()?, bias })
    }

    /// The same matrix as an embedding's (tied weights).
    pub fn tied(matrix: &Matrix) -> Result<Self> {
        Ok(Self { matrix: matrix.clone().transposed()?, bias: None })
    }

    /// x [.., inputs] -> [.., outputs]
    pub fn forward(&self, x: &Array) -> Result<Array> {
        let y = match (&self.matrix, &self.bias) {
            (Matrix::Dense(wt), Some(b)) => return Ok(b.addmm(x, wt)?),
            (Matrix::Dense(wt), None) => x.matmul(wt)?,
            (Matrix::Packed(q, format), _) => quant::matmul(x, q, *format)?,
        };
        Ok(match &self.bias {
            Some(b) => y.add(b)?,
            None => y,
        })
    }
}

impl Matrix {
    /// Dense matrices as [inputs, outputs]; a view, made once instead of at every step.
    fn transposed(self) -> Result<Self> {
        Ok(match self {
            Self::Dense(w) => Self::Dense(w.t()?),
            packed => packed,
        })
    }
}
