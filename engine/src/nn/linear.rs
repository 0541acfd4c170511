//! y = x W^T + b, whatever W is made of.

use mlx::{Array, concatenate, quant};

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

/// Several projections of one input. Where they are stored alike they are one matrix: the device then reads the input once and
/// launches one kernel instead of one each.
pub struct Fan {
    parts: Vec<Linear>,
    /// Where each projection's outputs end, when `parts` is a single joined matrix.
    ends: Vec<i32>,
}

impl Fan {
    /// `parts` are names and numbers of outputs.
    pub fn new(w: &Weights<'_>, inputs: usize, parts: &[(&str, usize)], bias: bool) -> Result<Self> {
        let matrices: Vec<Matrix> =
            parts.iter().map(|(name, outputs)| w.at(name).matrix(*outputs, inputs)).collect::<Result<_>>()?;
        let mut biases = Vec::new();
        if bias {
            for (name, outputs) in parts {
                biases.push(w.at(name).tensor("bias", &[*outputs])?);
            }
        }
        let ends = parts
            .iter()
            .scan(0, |end, (_, outputs)| {
                *end += *outputs as i32;
                Some(*end)
            })
            .collect();
        if let Some(joined) = Matrix::joined(&matrices)? {
            let bias = if bias { Some(w.settled(concatenate(&biases, 0)?)?) } else { None };
            return Ok(Self { parts: vec![Linear { matrix: w.settled_matrix(joined)?.transposed()?, bias }], ends });
        }
        let mut biases = biases.into_iter();
        let single = |m: Matrix| Ok(Linear { matrix: m.transposed()?, bias: biases.next() });
        Ok(Self { parts: matrices.into_iter().map(single).collect::<Result<_>>()?, ends })
    }

    /// x [.., inputs] -> one [.., outputs] per projection.
    pub fn forward(&self, x: &Array) -> Result<Vec<Array>> {
        let [joined] = self.parts.as_slice() else { return self.parts.iter().map(|p| p.forward(x)).collect() };
        let y = joined.forward(x)?;
        let mut start = 0;
        let mut split = |&end: &i32| {
            let part = y.slice(-1, start, end);
            start = end;
            Ok(part?)
        };
        self.ends.iter().map(&mut split).collect()
    }
}

impl Matrix {
    /// The rows of all, where all are stored in the same way.
    fn joined(all: &[Self]) -> Result<Option<Self>> {
        let packed: Option<Vec<_>> = all.iter().map(|m| if let Self::Packed(q, f) = m { Some((q, *f)) } else { None }).collect();
        if let Some([(_, format), rest @ ..]) = packed.as_deref() {
            if rest.iter().any(|(_, f)| f != format) {
                return Ok(None);
            }
            let rows = |part: fn(&quant::Quantized) -> &Array| concatenate(packed.iter().flatten().map(|(q, _)| part(q)), 0);
            let q = quant::Quantized { weight: rows(|q| &q.weight)?, scales: rows(|q| &q.scales)?, biases: rows(|q| &q.biases)? };
            return Ok(Some(Self::Packed(q, *format)));
        }
        let dense: Option<Vec<&Array>> = all.iter().map(|m| if let Self::Dense(w) = m { Some(w) } else { None }).collect();
        Ok(match dense {
            Some(dense) => Some(Self::Dense(concatenate(dense, 0)?)),
            None => None,
        })
    }

    /// Dense matrices as [inputs, outputs]; a view, made once instead of at every step.
    fn transposed(self) -> Result<Self> {
        Ok(match self {
            Self::Dense(w) => Self::Dense(w.t()?),
            packed => packed,
        })
    }
}
