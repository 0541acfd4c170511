//! Affine-quantized matrices on the CPU: products and look-ups that leave the weights packed.
//!
//! A matrix [outputs, inputs] has groups of 32, 64 or 128 inputs with one scale and one bias each: w = q * scale + bias. Its numbers
//! q of 2, 3, 4, 5, 6 or 8 bits lie one after another, little-endian, without gaps. Weights are unpacked to f32 a few rows at a time,
//! with one rounding each for the product and the sum: the same numbers, bit for bit, that unpacking the whole matrix gives.
//!
//! With [`Precision::Fast`] x is rounded instead, and the numbers q meet it as they are: see `simd::Path::rounded_dots`.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::sync::{PoisonError, RwLock};

use mlx::cpu::{CpuKernel, Input, Output};
use mlx::quant::{Affine, Quantized};
use mlx::{Array, Dtype};
use simd::{Out, Packed, Path, Rounded, Tile};

use super::floats::{Floats, TILE, block, in_f32, named, rows_in_cache};
use super::{Precision, pool};

/// Whether the functions here take matrices of this format.
pub fn supports(format: Affine) -> bool {
    matches!(format.bits, 2 | 3 | 4 | 5 | 6 | 8) && matches!(format.group_size, 32 | 64 | 128)
}

/// x [.., inputs] times the transpose of q [outputs, inputs], in x's type; computed in f32, or with x rounded to 16 bits. A row of the
/// result depends on that row of x alone, bit for bit, however many others there are and however many threads. Where x is NaN or
/// infinite, so is what it meets, in both precisions.
///
/// # Errors
/// At evaluation: shapes that do not fit together, types that are not floats.
#[track_caller]
pub fn matmul(x: &Array, q: &Quantized, format: Affine, precision: Precision) -> mlx::Result<Array> {
    let mut shape = x.shape().to_vec();
    if let (Some(last), Some(outputs)) = (shape.last_mut(), q.weight.shape().first()) {
        *last = *outputs;
    }
    let kernel = CpuKernel::new("affine matmul", move |inputs, outputs| {
        let [x, weight, scales, biases] = inputs else { return Err("takes four inputs".into()) };
        product(x, &Matrix::new(weight, scales, biases, format)?, &mut outputs[0], precision, Path::best())
    })?;
    one(kernel.call([x, &q.weight, &q.scales, &q.biases], &[(&shape, x.dtype())])?)
}

/// The rows of q [rows, columns] that `ids` [..] (u32 or i32) name: [.., columns] in `dtype`.
///
/// # Errors
/// At evaluation: an id that names no row, and as for [`matmul`].
#[track_caller]
pub fn take(q: &Quantized, format: Affine, ids: &Array, dtype: Dtype) -> mlx::Result<Array> {
    let mut shape = ids.shape().to_vec();
    shape.push(q.scales.dim(-1) * format.group_size);
    let kernel = CpuKernel::new("affine rows", move |inputs, outputs| {
        let [ids, weight, scales, biases] = inputs else { return Err("takes four inputs".into()) };
        look_up(ids, &Matrix::new(weight, scales, biases, format)?, &mut outputs[0], Path::best())
    })?;
    one(kernel.call([ids, &q.weight, &q.scales, &q.biases], &[(&shape, dtype)])?)
}

#[track_caller]
fn one(mut outputs: Vec<Array>) -> mlx::Result<Array> {
    Ok(outputs.pop().expect("a kernel has the outputs that it was called for"))
}

struct Matrix<'a> {
    bits: usize,
    group: usize,
    rows: usize,
    columns: usize,
    packed: Cow<'a, [u32]>,
    scales: Floats<'a>,
    biases: Floats<'a>,
}

impl<'a> Matrix<'a> {
    fn new(weight: &Input<'a>, scales: &Input<'a>, biases: &Input<'a>, format: Affine) -> Result<Self, String> {
        if !supports(format) {
            return Err(format!("no format of {} bits in groups of {}", format.bits, format.group_size));
        }
        let (bits, group) = (format.bits as usize, format.group_size as usize);
        let (&[rows, words], &[also_rows, groups]) = (weight.shape(), scales.shape()) else {
            return Err(format!("takes matrices, not {:?} and {:?}", weight.shape(), scales.shape()));
        };
        let columns = groups as usize * group;
        if rows != also_rows || biases.shape() != scales.shape() || words as usize * 32 != columns * bits {
            let shapes = [weight.shape(), scales.shape(), biases.shape()];
            return Err(format!("{shapes:?} are no matrix of {bits} bits in groups of {group}"));
        }
        let (packed, scales, biases) = (weight.dense()?, Floats::new(scales)?, Floats::new(biases)?);
        Ok(Self { bits, group, rows: rows as usize, columns, packed, scales, biases })
    }

    /// Unpacks rows, which lie one after another, into `out` [rows, columns].
    fn unpack(&self, rows: Range<usize>, out: &mut [f32], spare: &mut [Vec<f32>; 2], path: Path) {
        let words = self.columns * self.bits / 32;
        // To the end of the matrix, not of the rows: wide loads may look ahead.
        let bytes: &[u8] = bytemuck::cast_slice(&self.packed[rows.start * words..]);
        let groups = self.columns / self.group;
        let range = rows.start * groups..rows.end * groups;
        let [scales, biases] = spare;
        let (scales, biases) = (self.scales.part(range.clone(), scales, path), self.biases.part(range, biases, path));
        path.unpack(self.bits, bytes, scales, biases, out);
    }

    /// `None` where it has no elements.
    fn packed(&self) -> Option<Packed<'_>> {
        let bytes = bytemuck::cast_slice(&self.packed);
        Packed::new(self.bits, self.group, self.columns, bytes, self.scales.as_slice(), self.biases.as_slice())
    }
}

/// Unpacked rows, and their scales and biases.
#[derive(Default)]
struct Scratch {
    rows: Vec<f32>,
    spare: [Vec<f32>; 2],
}

thread_local! {
    /// Kept, because allocating it is as much work as filling it.
    static SCRATCH: Cell<Scratch> = const { Cell::new(Scratch { rows: Vec::new(), spare: [Vec::new(), Vec::new()] }) };
}

fn product(x: &Input<'_>, matrix: &Matrix<'_>, out: &mut Output<'_>, precision: Precision, path: Path) -> Result<(), String> {
    if x.shape().last().is_none_or(|&k| k as usize != matrix.columns) {
        return Err(format!("{:?} does not fit a matrix with {} inputs", x.shape(), matrix.columns));
    }
    let x = Floats::new(x)?.wide(path);
    let pool = pool::current();
    in_f32(out, |out| match precision {
        Precision::Fast if path.rounds() => multiply_rounded(&x, matrix, out, path, &pool),
        Precision::Exact | Precision::Fast => multiply(&x, matrix, out, path, &pool),
    })
}

/// out [m, rows] = x [m, columns] * matrix^T
fn multiply(x: &[f32], matrix: &Matrix<'_>, out: &mut [f32], path: Path, pool: &pool::Pool) {
    let (n, k) = (matrix.rows, matrix.columns);
    if out.is_empty() || k == 0 {
        return;
    }
    let m = x.len() / k;
    let block = block(m, n, k, pool.threads());
    let chunk = rows_in_cache(4 * k);
    let shared = Out::new(out, n);
    pool.run(n.div_ceil(block), &|index| {
        let mut scratch = SCRATCH.take();
        let Scratch { rows: unpacked, spare } = &mut scratch;
        unpacked.resize(unpacked.len().max(TILE * k), 0.0);
        let rows = index * block..n.min((index + 1) * block);
        for (part, x) in x.chunks(chunk * k).enumerate() {
            for first in rows.clone().step_by(TILE) {
                let count = TILE.min(rows.end - first);
                matrix.unpack(first..first + count, &mut unpacked[..count * k], spare, path);
                path.dots(&unpacked[..count * k], x, k, |row, at, value| {
                    // SAFETY: this column of the result belongs to this block of the matrix, and blocks do not overlap.
                    unsafe { shared.set(part * chunk + at, first + row, value) };
                });
            }
        }
        SCRATCH.set(scratch);
    });
}

thread_local! {
    /// Rounded rows of the products that this thread begins, kept as above. Products do not nest.
    static ROUNDED: RefCell<Vec<RwLock<Rounded>>> = const { RefCell::new(Vec::new()) };
    static SPREAD: Cell<Tile> = Cell::default();
}

/// [`multiply`] with x rounded.
fn multiply_rounded(x: &[f32], matrix: &Matrix<'_>, out: &mut [f32], path: Path, pool: &pool::Pool) {
    let (n, k) = (matrix.rows, matrix.columns);
    let Some(packed) = matrix.packed().filter(|_| !out.is_empty()) else { return };
    let m = x.len() / k;
    // Each thread rounds some rows.
    let chunk = rows_in_cache(Rounded::row_bytes(path, k)).min(m.div_ceil(pool.threads()).next_multiple_of(TILE));
    let block = block(m, n, k, pool.threads());
    let shared = Out::new(out, n);
    ROUNDED.with_borrow_mut(|parts| {
        let count = m.div_ceil(chunk);
        parts.resize_with(count.max(parts.len()), RwLock::default);
        pool.run(count, &|part| {
            let x = &x[part * chunk * k..m.min((part + 1) * chunk) * k];
            path.round(packed.bits(), k, x, &mut parts[part].write().unwrap_or_else(PoisonError::into_inner));
        });
        pool.run(n.div_ceil(block), &|index| {
            let mut tile = SPREAD.take();
            let rows = index * block..n.min((index + 1) * block);
            for (part, x) in parts[..count].iter().enumerate() {
                let x = x.read().unwrap_or_else(PoisonError::into_inner);
                // SAFETY: these columns of the result belong to this block of the matrix, and blocks do not overlap.
                unsafe { path.rounded_dots(&packed, rows.clone(), &x, &mut tile, &shared, part * chunk) };
            }
            SPREAD.set(tile);
        });
        // Those of a long prompt would stay as large as it.
        parts.truncate(KEPT);
    });
}

/// Parts of a rounded x that are kept for the next product.
const KEPT: usize = 8;

fn look_up(ids: &Input<'_>, matrix: &Matrix<'_>, out: &mut Output<'_>, path: Path) -> Result<(), String> {
    let ids = named(ids, matrix.rows)?;
    in_f32(out, |out| {
        let mut spare = Default::default();
        for (id, row) in ids.into_iter().zip(out.chunks_mut(matrix.columns.max(1))) {
            matrix.unpack(id..id + 1, row, &mut spare, path);
        }
    })
}

#[cfg(test)]
mod tests;
