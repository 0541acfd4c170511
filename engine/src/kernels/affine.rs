//! Affine-quantized matrices on the CPU: products and look-ups that leave the weights packed.
//!
//! A matrix [outputs, inputs] has groups of 32, 64 or 128 inputs with one scale and one bias each: w = q * scale + bias. Its numbers
//! q of 2, 3, 4, 5, 6 or 8 bits lie one after another, little-endian, without gaps. Weights are unpacked to f32 a few rows at a time,
//! with one rounding each for the product and the sum: the same numbers, bit for bit, that unpacking the whole matrix gives.

use std::borrow::Cow;
use std::cell::Cell;
use std::ops::Range;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use mlx::cpu::{CpuKernel, Input, Output};
use mlx::quant::{Affine, Quantized};
use mlx::{Array, Dtype, Element};

use super::{Precision, pool};
use simd::Path;

/// Whether the functions here take matrices of this format.
pub fn supports(format: Affine) -> bool {
    matches!(format.bits, 2 | 3 | 4 | 5 | 6 | 8) && matches!(format.group_size, 32 | 64 | 128)
}

/// x [.., inputs] times the transpose of q [outputs, inputs], in x's type; computed in f32. A row of the result depends on that row
/// of x alone, bit for bit, however many others there are and however many threads.
///
/// # Errors
/// At evaluation: shapes that do not fit together, types that are not floats.
#[track_caller]
pub fn matmul(x: &Array, q: &Quantized, format: Affine, precision: Precision) -> mlx::Result<Array> {
    let _ = precision;
    let mut shape = x.shape().to_vec();
    if let (Some(last), Some(outputs)) = (shape.last_mut(), q.weight.shape().first()) {
        *last = *outputs;
    }
    let kernel = CpuKernel::new("affine matmul", move |inputs, outputs| {
        let [x, weight, scales, biases] = inputs else { return Err("takes four inputs".into()) };
        product(x, &Matrix::new(weight, scales, biases, format)?, &mut outputs[0], Path::best())
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

/// Floats of any type, as they lie.
enum Floats<'a> {
    F32(Cow<'a, [f32]>),
    F16(Cow<'a, [f16]>),
    Bf16(Cow<'a, [bf16]>),
}

impl<'a> Floats<'a> {
    fn new(input: &Input<'a>) -> Result<Self, String> {
        Ok(match input.dtype() {
            Dtype::F32 => Self::F32(input.dense()?),
            Dtype::F16 => Self::F16(input.dense()?),
            Dtype::Bf16 => Self::Bf16(input.dense()?),
            other => return Err(format!("takes floats, not {other}")),
        })
    }

    /// Some of them, in `to` unless they are f32 as they lie.
    fn part<'b>(&'b self, range: Range<usize>, to: &'b mut Vec<f32>) -> &'b [f32] {
        match self {
            Self::F32(all) => return &all[range],
            Self::F16(all) => {
                to.resize(range.len(), 0.0);
                all[range].convert_to_f32_slice(to);
            }
            // Its bits are the upper half of an f32's.
            Self::Bf16(all) => {
                to.clear();
                to.extend(all[range].iter().map(|v| f32::from_bits(u32::from(v.to_bits()) << 16)));
            }
        }
        to
    }

    fn wide(self) -> Cow<'a, [f32]> {
        match self {
            Self::F32(all) => all,
            Self::F16(all) => all.iter().map(|v| v.to_f32()).collect(),
            Self::Bf16(all) => all.iter().map(|v| v.to_f32()).collect(),
        }
    }
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
        path.unpack(self.bits, bytes, self.scales.part(range.clone(), scales), self.biases.part(range, biases), out);
    }
}

/// Rows of the matrix that are unpacked together, and rows of x that they meet together.
const TILE: usize = 4;
/// Bytes of x that stay in a core's second-level cache while the matrix passes by.
const CACHED: usize = 512 << 10;
/// Multiplications that are worth a second thread.
const SHARE: usize = 1 << 16;

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

/// A result that several threads write, each elements of its own.
struct Shared(*mut f32, usize);

// SAFETY: `set` is only called for elements that no other thread writes or reads.
unsafe impl Sync for Shared {}

impl Shared {
    /// # Safety
    /// Nobody else uses this element now.
    unsafe fn set(&self, at: usize, value: f32) {
        assert!(at < self.1);
        // SAFETY: in bounds, and the caller's promise.
        unsafe { self.0.add(at).write(value) };
    }
}

fn product(x: &Input<'_>, matrix: &Matrix<'_>, out: &mut Output<'_>, path: Path) -> Result<(), String> {
    if x.shape().last().is_none_or(|&k| k as usize != matrix.columns) {
        return Err(format!("{:?} does not fit a matrix with {} inputs", x.shape(), matrix.columns));
    }
    let x = Floats::new(x)?.wide();
    let pool = pool::current();
    in_f32(out, |out| multiply(&x, matrix, out, path, &pool))
}

/// out [m, rows] = x [m, columns] * matrix^T
fn multiply(x: &[f32], matrix: &Matrix<'_>, out: &mut [f32], path: Path, pool: &pool::Pool) {
    let (n, k) = (matrix.rows, matrix.columns);
    if out.is_empty() || k == 0 {
        return;
    }
    let m = x.len() / k;
    // Four blocks a thread, so that one that comes late does not hold up the others.
    let blocks = if m * n * k < SHARE { 1 } else { pool.threads() * 4 };
    let block = n.div_ceil(blocks).next_multiple_of(TILE);
    let chunk = (CACHED / 4 / k).next_multiple_of(TILE);
    let shared = Shared(out.as_mut_ptr(), out.len());
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
                    unsafe { shared.set((part * chunk + at) * n + first + row, value) };
                });
            }
        }
        SCRATCH.set(scratch);
    });
}

fn look_up(ids: &Input<'_>, matrix: &Matrix<'_>, out: &mut Output<'_>, path: Path) -> Result<(), String> {
    let ids: Vec<i64> = match ids.dtype() {
        Dtype::U32 => ids.dense::<u32>()?.iter().map(|&id| i64::from(id)).collect(),
        Dtype::I32 => ids.dense::<i32>()?.iter().map(|&id| i64::from(id)).collect(),
        other => return Err(format!("takes ids of u32 or i32, not {other}")),
    };
    if let Some(id) = ids.iter().find(|&&id| usize::try_from(id).map_or(true, |id| id >= matrix.rows)) {
        return Err(format!("there is no row {id} of {}", matrix.rows));
    }
    in_f32(out, |out| {
        let mut spare = Default::default();
        for (id, row) in ids.iter().zip(out.chunks_mut(matrix.columns.max(1))) {
            let id = *id as usize;
            matrix.unpack(id..id + 1, row, &mut spare, path);
        }
    })
}

/// Runs `work` on an f32 form of the output.
fn in_f32(out: &mut Output<'_>, work: impl FnOnce(&mut [f32])) -> Result<(), String> {
    fn narrow<T: Element>(out: &mut Output<'_>, work: impl FnOnce(&mut [f32]), to: fn(f32) -> T) -> Result<(), String> {
        let out = out.slice::<T>()?;
        let mut wide = vec![0.0; out.len()];
        work(&mut wide);
        out.iter_mut().zip(wide).for_each(|(o, w)| *o = to(w));
        Ok(())
    }
    match out.dtype() {
        Dtype::F32 => {
            work(out.slice()?);
            Ok(())
        }
        Dtype::F16 => narrow(out, work, f16::from_f32),
        Dtype::Bf16 => narrow(out, work, bf16::from_f32),
        other => Err(format!("gives floats, not {other}")),
    }
}

#[cfg(test)]
mod tests;
