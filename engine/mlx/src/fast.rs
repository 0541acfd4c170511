//! MLX's fused operations.

use mlx_sys as c;

use crate::array::{Array, NULL, build};
use crate::device::stream;
use crate::error::Result;

/// x / rms(x) * weight over the last axis; computed in f32, returned in x's type.
#[track_caller]
pub fn rms_norm(x: &Array, weight: Option<&Array>, eps: f32) -> Result<Array> {
    let s = stream()?;
    // SAFETY: the handles (a null one means: none) and the stream are valid.
    build(|r| unsafe { c::mlx_fast_rms_norm(r, x.raw(), weight.map_or(NULL, Array::raw), eps, s) })
}

/// The angles of a rotary embedding.
#[derive(Debug, Clone)]
pub enum Frequencies {
    /// theta^(-2i/dims)
    Base(f32),
    /// One wavelength (1 / angle per position, f32) per rotated pair.
    Periods(Array),
}

/// Rotates pairs (i, i + dims/2) of x's last axis, [.., positions, dims..]; the first position is `offset`.
#[track_caller]
pub fn rope(x: &Array, dims: i32, frequencies: &Frequencies, scale: f32, offset: i32) -> Result<Array> {
    let s = stream()?;
    let (base, periods) = match frequencies {
        Frequencies::Base(theta) => (c::mlx_optional_float_ { value: *theta, has_value: true }, NULL),
        Frequencies::Periods(p) => (c::mlx_optional_float_ { value: 0.0, has_value: false }, p.raw()),
    };
    // SAFETY: the handles (a null one means: none) and the stream are valid.
    build(|r| unsafe { c::mlx_fast_rope(r, x.raw(), dims, false, base, scale, offset, periods, s) })
}

/// Which keys a query sees.
#[derive(Debug, Clone, Copy)]
pub enum Mask<'a> {
    None,
    /// Query i of n sees keys up to (number of keys - n + i).
    Causal,
    /// Added to (or, if boolean, allowed by) the scores; broadcast to [batch, heads, queries, keys].
    Array(&'a Array),
}

/// softmax(scale * q k^T + mask) v, softmax in f32. q [batch, heads, n, d]; k and v [batch, kv heads, m, d].
#[track_caller]
pub fn attention(q: &Array, k: &Array, v: &Array, scale: f32, mask: Mask<'_>) -> Result<Array> {
    let s = stream()?;
    let (mode, array) = match mask {
        Mask::None => (c"", NULL),
        Mask::Causal => (c"causal", NULL),
        Mask::Array(a) => (c"array", a.raw()),
    };
    // SAFETY: the handles (a null one means: none), the text and the stream are valid.
    build(|r| unsafe {
        c::mlx_fast_scaled_dot_product_attention(r, q.raw(), k.raw(), v.raw(), scale, mode.as_ptr(), array, NULL, false, s)
    })
}
