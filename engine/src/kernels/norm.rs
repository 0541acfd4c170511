//! Root mean square norms, alone and after the sum that comes before them in every layer.

use std::borrow::Cow;
use std::mem::MaybeUninit;

use mlx::Array;
use mlx::cpu::{CpuKernel, Input, Output};
use simd::Path;

use super::rows::{Float, Rows, Shared, in_blocks, of_one_type, of_type, one, put, two, with_spare};

/// x / sqrt(mean(x^2) + eps) * weight over the last axis, computed in f32.
pub struct RmsNorm {
    alone: CpuKernel,
    after_sum: CpuKernel,
}

impl RmsNorm {
    #[track_caller]
    pub fn new(eps: f32) -> mlx::Result<Self> {
        Ok(Self {
            alone: CpuKernel::new("rms norm", move |inputs, outputs| {
                let dtype = of_one_type(inputs, outputs)?;
                of_type!(dtype, norm(inputs, outputs, eps))
            })?,
            after_sum: CpuKernel::new("sum and rms norm", move |inputs, outputs| {
                let dtype = of_one_type(inputs, outputs)?;
                of_type!(dtype, sum_and_norm(inputs, outputs, eps))
            })?,
        })
    }

    /// x [.., width], weight [width], of one type.
    #[track_caller]
    pub fn forward(&self, x: &Array, weight: &Array) -> mlx::Result<Array> {
        one(self.alone.call([x, weight], &[(x.shape(), x.dtype())])?)
    }

    /// x + delta, and the norm of it; both of one shape.
    #[track_caller]
    pub fn after_sum(&self, x: &Array, delta: &Array, weight: &Array) -> mlx::Result<(Array, Array)> {
        let like_x = (x.shape(), x.dtype());
        two(self.after_sum.call([x, delta, weight], &[like_x, like_x])?)
    }
}

/// The weight as it lies.
fn weight_of<'a, T: Float>(weight: &Input<'a>, width: usize) -> Result<Cow<'a, [T]>, String> {
    let stored = weight.dense::<T>()?;
    if stored.len() != width {
        return Err(format!("{:?} is no weight of rows of {width}", weight.shape()));
    }
    Ok(stored)
}

fn norm<T: Float>(inputs: &[Input<'_>], outputs: &mut [Output<'_>], eps: f32) -> Result<(), String> {
    let [x, weight] = inputs else { return Err("takes two inputs".into()) };
    let x = Rows::<T>::new(x)?;
    let (width, stored, path) = (x.width, weight_of::<T>(weight, x.width)?, Path::best());
    let mut wide = Vec::new();
    let weight = T::wide(&stored, &mut wide);
    // SAFETY: each row below is written, and there are no others.
    let out = Shared::new(unsafe { outputs[0].unwritten::<T>()? });
    in_blocks(x.count, x.count * width, &|rows| {
        with_spare(|[spare, result, _]| {
            result.resize(width, 0.0);
            for row in rows {
                path.rms_norm(T::wide(x.row(row), spare), weight, eps, result);
                // SAFETY: a row belongs to one block.
                put(result, unsafe { out.part(row * width, width) });
            }
        });
    });
    Ok(())
}

fn sum_and_norm<T: Float>(inputs: &[Input<'_>], outputs: &mut [Output<'_>], eps: f32) -> Result<(), String> {
    let [x, delta, weight] = inputs else { return Err("takes three inputs".into()) };
    if x.shape() != delta.shape() {
        return Err(format!("cannot add {:?} to {:?}", delta.shape(), x.shape()));
    }
    let (x, delta) = (Rows::<T>::new(x)?, Rows::<T>::new(delta)?);
    let (width, stored, path) = (x.width, weight_of::<T>(weight, x.width)?, Path::best());
    let mut wide = Vec::new();
    let weight = T::wide(&stored, &mut wide);
    let [sums, norms] = outputs else { return Err("gives two outputs".into()) };
    // SAFETY: each row below is written, and there are no others.
    let (sums, norms) = unsafe { (Shared::new(sums.unwritten::<T>()?), Shared::new(norms.unwritten::<T>()?)) };
    in_blocks(x.count, x.count * width, &|rows| {
        with_spare(|[spare, more, total]| {
            total.resize(width, 0.0);
            for row in rows {
                let (x, delta) = (T::wide(x.row(row), spare), T::wide(delta.row(row), more));
                // SAFETY: a row belongs to one block.
                let (sums, norms) = unsafe { (sums.part(row * width, width), norms.part(row * width, width)) };
                for (((total, sum), x), delta) in total.iter_mut().zip(sums).zip(x).zip(delta) {
                    *total = rounded(x + delta, sum);
                }
                more.resize(width, 0.0);
                path.rms_norm(total, weight, eps, more);
                put(more, norms);
            }
        });
    });
    Ok(())
}

/// Writes a number, and says what it is in that type.
fn rounded<T: Float>(x: f32, to: &mut MaybeUninit<T>) -> f32 {
    let mut wide = [0.0];
    T::widen(&[*to.write(T::narrow(x))], &mut wide);
    wide[0]
}

#[cfg(test)]
mod tests;
