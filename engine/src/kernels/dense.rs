//! Products with matrices [outputs, inputs] that are stored as floats, which stay in their type: a few rows at a time become f32.

use std::borrow::Cow;
use std::cell::Cell;

use mlx::cpu::{CpuKernel, Input, Output};
use mlx::{Array, Dtype};
use simd::{Out, Path};

use super::floats::{Floats, TILE, block, in_f32, named, rows_in_cache};
use super::pool;

/// x [.., inputs] times the transpose of w [outputs, inputs], in x's type; computed in f32, whatever the precision: there is nothing
/// packed here whose whole numbers could be used. A row of the result depends on that row of x alone, bit for bit, however many
/// others there are and however many threads.
///
/// # Errors
/// At evaluation: shapes that do not fit together, types that are not floats.
#[track_caller]
pub fn matmul(x: &Array, w: &Array) -> mlx::Result<Array> {
    let mut shape = x.shape().to_vec();
    if let (Some(last), Some(outputs)) = (shape.last_mut(), w.shape().first()) {
        *last = *outputs;
    }
    let kernel = CpuKernel::new("dense matmul", move |inputs, outputs| {
        let [x, w] = inputs else { return Err("takes two inputs".into()) };
        product(x, w, &mut outputs[0], Path::best())
    })?;
    let mut outputs = kernel.call([x, w], &[(&shape, x.dtype())])?;
    Ok(outputs.pop().expect("a kernel has the outputs that it was called for"))
}

/// The rows of w [rows, columns] that `ids` [..] (u32 or i32) name: [.., columns] in `dtype`.
///
/// # Errors
/// At evaluation: an id that names no row, and as for [`matmul`].
#[track_caller]
pub fn take(w: &Array, ids: &Array, dtype: Dtype) -> mlx::Result<Array> {
    let mut shape = ids.shape().to_vec();
    shape.push(w.dim(-1));
    let kernel = CpuKernel::new("dense rows", move |inputs, outputs| {
        let [ids, w] = inputs else { return Err("takes two inputs".into()) };
        look_up(ids, w, &mut outputs[0], Path::best())
    })?;
    let mut outputs = kernel.call([ids, w], &[(&shape, dtype)])?;
    Ok(outputs.pop().expect("a kernel has the outputs that it was called for"))
}

fn look_up(ids: &Input<'_>, w: &Input<'_>, out: &mut Output<'_>, path: Path) -> Result<(), String> {
    let &[rows, columns] = w.shape() else {
        return Err(format!("takes a matrix, not {:?}", w.shape()));
    };
    let (ids, w, columns) = (named(ids, rows as usize)?, Floats::new(w)?, columns as usize);
    in_f32(out, |out| {
        for (id, row) in ids.into_iter().zip(out.chunks_mut(columns.max(1))) {
            path.widen(w.as_slice(), id * columns, row);
        }
    })
}

fn product(x: &Input<'_>, w: &Input<'_>, out: &mut Output<'_>, path: Path) -> Result<(), String> {
    let &[rows, columns] = w.shape() else {
        return Err(format!("takes a matrix, not {:?}", w.shape()));
    };
    if x.shape().last() != Some(&columns) {
        return Err(format!("{:?} does not fit a matrix with {columns} inputs", x.shape()));
    }
    let (x, w) = (Floats::new(x)?, Floats::new(w)?);
    let x = padded(x.wide(path), columns as usize);
    let pool = pool::current();
    in_f32(out, |out| multiply(&x, &w, [rows as usize, columns as usize], out, path, &pool))
}

/// Elements of a row that sums take at once.
const STEP: usize = 16;

/// Rows of whole steps.
fn padded(x: Cow<'_, [f32]>, columns: usize) -> Cow<'_, [f32]> {
    let wide = columns.next_multiple_of(STEP);
    if wide == columns {
        return x;
    }
    let mut all = vec![0.0; x.len() / columns.max(1) * wide];
    for (to, from) in all.chunks_exact_mut(wide).zip(x.chunks_exact(columns)) {
        to[..columns].copy_from_slice(from);
    }
    all.into()
}

thread_local! {
    /// Kept, because allocating it is as much work as filling it.
    static SCRATCH: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// out [m, rows] = x [m, columns] * w^T, with rows of x padded to whole steps.
fn multiply(x: &[f32], w: &Floats<'_>, [n, columns]: [usize; 2], out: &mut [f32], path: Path, pool: &pool::Pool) {
    if out.is_empty() || columns == 0 {
        return;
    }
    let k = columns.next_multiple_of(STEP);
    let m = x.len() / k;
    let block = block(m, n, k, pool.threads());
    let chunk = rows_in_cache(4 * k);
    let shared = Out::new(out, n);
    pool.run(n.div_ceil(block), &|index| {
        let mut scratch = SCRATCH.take();
        let rows = index * block..n.min((index + 1) * block);
        for (part, x) in x.chunks(chunk * k).enumerate() {
            for first in rows.clone().step_by(TILE) {
                let count = TILE.min(rows.end - first);
                let set = |row: usize, at: usize, value: f32| {
                    // SAFETY: this column of the result belongs to this block of the matrix, and blocks do not overlap.
                    unsafe { shared.set(part * chunk + at, first + row, value) };
                };
                if let (Floats::F32(w), true) = (w, k == columns) {
                    path.dots(&w[first * k..(first + count) * k], x, k, set);
                    continue;
                }
                // What is past a row's end must be zeros, also after another matrix.
                scratch.clear();
                scratch.resize(count * k, 0.0);
                for (row, to) in scratch.chunks_exact_mut(k).enumerate() {
                    path.widen(w.as_slice(), (first + row) * columns, &mut to[..columns]);
                }
                path.dots(&scratch, x, k, set);
            }
        }
        SCRATCH.set(scratch);
    });
}

#[cfg(test)]
mod tests;
