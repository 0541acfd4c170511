//! y = x W^T + b, whatever W is made of.

use mlx::quant::Quantized;
use mlx::{Array, concatenate};

use super::weights::{Matrix, Packed, Weights};
use crate::error::Result;
use crate::kernels::dense;

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
            (Matrix::Stored(w), _) => dense::matmul(x, w)?,
            (Matrix::Packed(packed), _) => packed.product(x)?,
        };
        Ok(match &self.bias {
            Some(b) => y.add(b)?,
            None => y,
        })
    }
}

/// Several projections of one input. Where they are stored alike they lie in one matrix: a decode step then launches one kernel
/// instead of one each. With many rows the launches do not matter, but outputs of their own do: what follows can write in place.
pub struct Fan {
    parts: Vec<Linear>,
    /// All rows of `parts`, which are views of it, and where the outputs of each end.
    joined: Option<(Linear, Vec<i32>)>,
}

impl Fan {
    /// `parts` are names and numbers of outputs.
    pub fn new(w: &Weights<'_>, inputs: usize, parts: &[(&str, usize)], bias: bool) -> Result<Self> {
        let mut ends = Vec::new();
        let mut matrices = Vec::new();
        let mut biases = Vec::new();
        for (name, outputs) in parts {
            let w = w.at(name);
            matrices.push(w.matrix(*outputs, inputs)?);
            if bias {
                biases.push(w.tensor("bias", &[*outputs])?);
            }
            ends.push(ends.last().copied().unwrap_or(0) + *outputs as i32);
        }
        let mut joined = None;
        if let Some(all) = Matrix::joined(&matrices)? {
            let all = w.settled_matrix(all)?;
            for (i, (matrix, end)) in matrices.iter_mut().zip(&ends).enumerate() {
                *matrix = all.rows(if i == 0 { 0 } else { ends[i - 1] }, *end)?;
            }
            let bias = if bias { Some(w.settled(concatenate(&biases, 0)?)?) } else { None };
            joined = Some((Linear { matrix: all.transposed()?, bias }, ends));
        }
        let mut biases = biases.into_iter();
        let single = |m: Matrix| Ok(Linear { matrix: m.transposed()?, bias: biases.next() });
        Ok(Self { parts: matrices.into_iter().map(single).collect::<Result<_>>()?, joined })
    }

    /// x [.., rows, inputs] -> one [.., rows, outputs] per projection.
    pub fn forward(&self, x: &Array) -> Result<Vec<Array>> {
        let Some((joined, ends)) = self.joined.as_ref().filter(|_| x.dim(-2) == 1) else {
            return self.parts.iter().map(|p| p.forward(x)).collect();
        };
        let y = joined.forward(x)?;
        let mut start = 0;
        let mut split = |&end: &i32| {
            let part = y.slice(-1, start, end);
            start = end;
            Ok(part?)
        };
        ends.iter().map(&mut split).collect()
    }

    /// The same outputs side by side, [.., outputs of all]: for what reads its inputs wherever they lie.
    pub fn in_one(&self, x: &Array) -> Result<Array> {
        match &self.joined {
            Some((joined, _)) => joined.forward(x),
            None => Ok(concatenate(&self.forward(x)?, -1)?),
        }
    }
}

impl Matrix {
    /// The rows of all, where all are stored in the same way.
    fn joined(all: &[Self]) -> Result<Option<Self>> {
        let packed: Option<Vec<&Packed>> = all.iter().map(|m| if let Self::Packed(p) = m { Some(p) } else { None }).collect();
        if let Some([first, rest @ ..]) = packed.as_deref() {
            let alike = |p: &Packed| (p.format, p.q.scales.dtype()) == (first.format, first.q.scales.dtype());
            if !rest.iter().all(|p| alike(p)) {
                return Ok(None);
            }
            let rows = |part: fn(&Quantized) -> &Array| concatenate(packed.iter().flatten().map(|p| part(&p.q)), 0);
            let q = Quantized { weight: rows(|q| &q.weight)?, scales: rows(|q| &q.scales)?, biases: rows(|q| &q.biases)? };
            return Ok(Some(Self::Packed(Packed { q, ..(*first).clone() })));
        }
        let dense: Option<Vec<&Array>> = all.iter().map(|m| if let Self::Dense(w) = m { Some(w) } else { None }).collect();
        if let Some(dense) = dense {
            return Ok(Some(Self::Dense(concatenate(dense, 0)?)));
        }
        let stored: Option<Vec<&Array>> = all.iter().map(|m| if let Self::Stored(w) = m { Some(w) } else { None }).collect();
        Ok(match stored.as_deref() {
            Some([first, rest @ ..]) if rest.iter().all(|w| w.dtype() == first.dtype()) => {
                Some(Self::Stored(concatenate(stored.into_iter().flatten(), 0)?))
            }
            _ => None,
        })
    }

    /// A view of some rows.
    fn rows(&self, start: i32, end: i32) -> Result<Self> {
        let part = |a: &Array| a.slice(0, start, end);
        Ok(match self {
            Self::Dense(w) => Self::Dense(part(w)?),
            Self::Stored(w) => Self::Stored(part(w)?),
            Self::Packed(packed) => {
                let q = &packed.q;
                let q = Quantized { weight: part(&q.weight)?, scales: part(&q.scales)?, biases: part(&q.biases)? };
                Self::Packed(Packed { q, ..packed.clone() })
            }
        })
    }

    /// MLX's dense matrices as [inputs, outputs]; a view, made once instead of at every step.
    fn transposed(self) -> Result<Self> {
        Ok(match self {
            Self::Dense(w) => Self::Dense(w.t()?),
            stored => stored,
        })
    }
}
