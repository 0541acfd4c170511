//! Affine-quantized matrices: w = q * scale + bias, groups along the input dimension, packed little-endian in u32.

use mlx_sys as c;

use crate::array::{Array, Arrays, NULL, build};
use crate::device::stream;
use crate::dtype::Dtype;
use crate::error::{Error, Result, check};

/// The shape of a quantized matrix's groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Affine {
    pub bits: i32,
    pub group_size: i32,
}

const MODE: &std::ffi::CStr = c"affine";

fn int(value: i32) -> c::mlx_optional_int {
    c::mlx_optional_int_ { value, has_value: true }
}

/// The three arrays of a quantized matrix [out, in].
#[derive(Debug, Clone)]
pub struct Quantized {
    pub weight: Array,
    pub scales: Array,
    pub biases: Array,
}

/// Quantizes the last axis of w [out, in].
#[track_caller]
pub fn quantize(w: &Array, format: Affine) -> Result<Quantized> {
    let s = stream()?;
    let mut out = Arrays::empty();
    // SAFETY: the handles, the text and the stream are valid; `out` is owned and freed.
    check(unsafe { c::mlx_quantize(&mut out.0, w.raw(), int(format.group_size), int(format.bits), MODE.as_ptr(), NULL, s) })?;
    match <[Array; 3]>::try_from(out.get()?) {
        Ok([weight, scales, biases]) => Ok(Quantized { weight, scales, biases }),
        Err(other) => Err(Error::new(format!("quantize returned {} arrays", other.len()))),
    }
}

/// The matrix in `dtype`.
#[track_caller]
pub fn dequantize(q: &Quantized, format: Affine, dtype: Dtype) -> Result<Array> {
    let s = stream()?;
    let dtype = c::mlx_optional_dtype_ { value: dtype.raw(), has_value: true };
    // SAFETY: the handles, the text and the stream are valid.
    build(|r| unsafe {
        c::mlx_dequantize(
            r,
            q.weight.raw(),
            q.scales.raw(),
            q.biases.raw(),
            int(format.group_size),
            int(format.bits),
            MODE.as_ptr(),
            NULL,
            dtype,
            s,
        )
    })
}

/// x [.., in] times the transpose of a quantized w [out, in].
#[track_caller]
pub fn matmul(x: &Array, q: &Quantized, format: Affine) -> Result<Array> {
    let s = stream()?;
    // SAFETY: the handles, the text and the stream are valid.
    build(|r| unsafe {
        c::mlx_quantized_matmul(
            r,
            x.raw(),
            q.weight.raw(),
            q.scales.raw(),
            q.biases.raw(),
            true,
            int(format.group_size),
            int(format.bits),
            MODE.as_ptr(),
            s,
        )
    })
}
