//! Random numbers from explicit keys: the same key gives the same numbers on one backend.

use mlx_sys as c;

use crate::array::{Array, build};
use crate::device::stream;
use crate::dtype::Dtype;
use crate::error::Result;

/// A key for step `counter` of the stream that `seed` names.
#[track_caller]
pub fn key(seed: u64, counter: u64) -> Result<Array> {
    // splitmix64's finaliser spreads neighbouring counters over the key space.
    let mut z = seed.wrapping_add(counter.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^= z >> 31;
    Array::from_slice(&[(z >> 32) as u32, z as u32], &[2])
}

/// An index (u32) drawn with probability softmax(logits) along an axis.
#[track_caller]
pub fn categorical(logits: &Array, axis: i32, key: &Array) -> Result<Array> {
    let s = stream()?;
    // SAFETY: the handles and stream are valid.
    build(|r| unsafe { c::mlx_random_categorical(r, logits.raw(), axis, key.raw(), s) })
}

/// Standard normal numbers.
#[track_caller]
pub fn normal(shape: &[i32], dtype: Dtype, key: &Array) -> Result<Array> {
    let s = stream()?;
    // SAFETY: the handles and stream are valid; the shape is copied.
    build(|r| unsafe { c::mlx_random_normal(r, shape.as_ptr(), shape.len(), dtype.raw(), 0.0, 1.0, key.raw(), s) })
}
