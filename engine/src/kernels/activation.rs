//! Gated activations.

use mlx::Array;
use mlx::cpu::{CpuKernel, Input, Output};
use simd::Path;

use super::rows::{Float, Rows, Shared, in_blocks, of_one_type, of_type, one, put, with_spare};

/// silu(gate) * up, where silu(x) = x / (1 + e^-x), computed in f32.
pub struct SwiGlu(CpuKernel);

impl SwiGlu {
    #[track_caller]
    pub fn new() -> mlx::Result<Self> {
        Ok(Self(CpuKernel::new("silu and product", |inputs, outputs| {
            let dtype = of_one_type(inputs, outputs)?;
            of_type!(dtype, silu_mul(inputs, outputs))
        })?))
    }

    /// x [.., 2 * width], of which the first halves are the gates, to [.., width].
    #[track_caller]
    pub fn forward(&self, x: &Array) -> mlx::Result<Array> {
        let mut shape = x.shape().to_vec();
        if let Some(last) = shape.last_mut() {
            *last /= 2;
        }
        one(self.0.call([x], &[(&shape, x.dtype())])?)
    }
}

fn silu_mul<T: Float>(inputs: &[Input<'_>], outputs: &mut [Output<'_>]) -> Result<(), String> {
    let x = Rows::<T>::new(&inputs[0])?;
    if !x.width.is_multiple_of(2) {
        return Err(format!("{:?} has no two halves", inputs[0].shape()));
    }
    let (width, path) = (x.width / 2, Path::best());
    // SAFETY: each row below is written, and there are no others.
    let out = Shared::new(unsafe { outputs[0].unwritten::<T>()? });
    in_blocks(x.count, x.count * width, &|rows| {
        with_spare(|[spare, result, _]| {
            result.resize(width, 0.0);
            for row in rows {
                let (gate, up) = T::wide(x.row(row), spare).split_at(width);
                path.silu_mul(gate, up, result);
                // SAFETY: a row belongs to one block.
                put(result, unsafe { out.part(row * width, width) });
            }
        });
    });
    Ok(())
}

#[cfg(test)]
mod tests;
