//! What kernels with matrices share: floats of any type as inputs and outputs.

use std::borrow::Cow;
use std::ops::Range;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use mlx::cpu::{Input, Output};
use mlx::{Dtype, Element};
use simd::Path;

/// Floats of any type, as they lie.
pub(super) enum Floats<'a> {
    F32(Cow<'a, [f32]>),
    F16(Cow<'a, [f16]>),
    Bf16(Cow<'a, [bf16]>),
}

impl<'a> Floats<'a> {
    pub(super) fn new(input: &Input<'a>) -> Result<Self, String> {
        Ok(match input.dtype() {
            Dtype::F32 => Self::F32(input.dense()?),
            Dtype::F16 => Self::F16(input.dense()?),
            Dtype::Bf16 => Self::Bf16(input.dense()?),
            other => return Err(format!("takes floats, not {other}")),
        })
    }

    pub(super) fn as_slice(&self) -> simd::Floats<'_> {
        match self {
            Self::F32(all) => simd::Floats::F32(all),
            Self::F16(all) => simd::Floats::F16(all),
            Self::Bf16(all) => simd::Floats::Bf16(all),
        }
    }

    /// Some of them, in `to` unless they are f32 as they lie.
    pub(super) fn part<'b>(&'b self, range: Range<usize>, to: &'b mut Vec<f32>, path: Path) -> &'b [f32] {
        if let Self::F32(all) = self {
            return &all[range];
        }
        to.resize(range.len(), 0.0);
        path.widen(self.as_slice(), range.start, to);
        to
    }

    pub(super) fn wide(self, path: Path) -> Cow<'a, [f32]> {
        if let Self::F32(all) = self {
            return all;
        }
        let mut to = vec![0.0; self.as_slice().len()];
        path.widen(self.as_slice(), 0, &mut to);
        to.into()
    }
}

/// Runs `work` on an f32 form of the output.
pub(super) fn in_f32(out: &mut Output<'_>, work: impl FnOnce(&mut [f32])) -> Result<(), String> {
    fn narrow<T: Element>(out: &mut Output<'_>, work: impl FnOnce(&mut [f32])) -> Result<(), String>
    where
        [T]: HalfFloatSliceExt,
    {
        let out = out.slice::<T>()?;
        let mut wide = vec![0.0; out.len()];
        work(&mut wide);
        // All at once: an f16 alone is a call that looks for the instruction first.
        out.convert_from_f32_slice(&wide);
        Ok(())
    }
    match out.dtype() {
        Dtype::F32 => {
            work(out.slice()?);
            Ok(())
        }
        Dtype::F16 => narrow::<f16>(out, work),
        Dtype::Bf16 => narrow::<bf16>(out, work),
        other => Err(format!("gives floats, not {other}")),
    }
}

/// The rows that ids (u32 or i32) name, of so many.
pub(super) fn named(ids: &Input<'_>, rows: usize) -> Result<Vec<usize>, String> {
    let ids: Vec<i64> = match ids.dtype() {
        Dtype::U32 => ids.dense::<u32>()?.iter().map(|&id| i64::from(id)).collect(),
        Dtype::I32 => ids.dense::<i32>()?.iter().map(|&id| i64::from(id)).collect(),
        other => return Err(format!("takes ids of u32 or i32, not {other}")),
    };
    let row = |id: i64| usize::try_from(id).ok().filter(|&id| id < rows).ok_or_else(|| format!("there is no row {id} of {rows}"));
    ids.into_iter().map(row).collect()
}

/// Rows of a matrix that are unpacked together, and rows of x that they meet together.
pub(super) const TILE: usize = 4;
/// Bytes of x that stay in a core's second-level cache while the matrix passes by.
const CACHED: usize = 512 << 10;
/// Multiplications that are worth a second thread.
const SHARE: usize = 1 << 16;

/// How many rows of x of so many bytes are looked at together: at least one tile, however long they are.
pub(super) fn rows_in_cache(bytes: usize) -> usize {
    (CACHED / bytes).max(1).next_multiple_of(TILE)
}

/// How many of a matrix's rows one index of the loop takes.
pub(super) fn block(m: usize, rows: usize, columns: usize, threads: usize) -> usize {
    // Four blocks a thread, so that one that comes late does not hold up the others.
    let blocks = if m * rows * columns < SHARE { 1 } else { threads * 4 };
    rows.div_ceil(blocks).next_multiple_of(TILE)
}
