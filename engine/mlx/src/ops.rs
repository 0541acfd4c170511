//! Operations as methods. All are lazy; all return the error of building the node (shapes that do not fit, say).

use mlx_sys as c;

use crate::array::{Array, Arrays, build};
use crate::device::stream;
use crate::dtype::Dtype;
use crate::error::Result;
#[cfg(test)]
use crate::error::check;

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident => $call:ident),* $(,)?) => {
        impl Array {
            $($(#[$doc])*
            #[track_caller]
            pub fn $name(&self) -> Result<Array> {
                let s = stream()?;
                // SAFETY: the handle and this thread's stream are valid; the result handle is owned by `build`.
                build(|r| unsafe { c::$call(r, self.raw(), s) })
            })*
        }
    };
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident => $call:ident),* $(,)?) => {
        impl Array {
            $($(#[$doc])*
            #[track_caller]
            pub fn $name(&self, other: &Array) -> Result<Array> {
                let s = stream()?;
                // SAFETY: both handles and this thread's stream are valid; the result handle is owned by `build`.
                build(|r| unsafe { c::$call(r, self.raw(), other.raw(), s) })
            })*
        }
    };
}

macro_rules! reduce {
    ($($(#[$doc:meta])* $name:ident => $call:ident),* $(,)?) => {
        impl Array {
            $($(#[$doc])*
            #[track_caller]
            pub fn $name(&self, axis: i32, keep_dims: bool) -> Result<Array> {
                let s = stream()?;
                // SAFETY: the handle and this thread's stream are valid; the result handle is owned by `build`.
                build(|r| unsafe { c::$call(r, self.raw(), axis, keep_dims, s) })
            })*
        }
    };
}

unary! {
    exp => mlx_exp,
    log => mlx_log,
    sigmoid => mlx_sigmoid,
    is_finite => mlx_isfinite,
    /// Reverses the axes.
    t => mlx_transpose,
    negative => mlx_negative,
}

binary! {
    add => mlx_add,
    sub => mlx_subtract,
    mul => mlx_multiply,
    div => mlx_divide,
    maximum => mlx_maximum,
    less => mlx_less,
    greater => mlx_greater,
    greater_equal => mlx_greater_equal,
    logical_and => mlx_logical_and,
    /// [.., m, k] x [.., k, n] -> [.., m, n]
    matmul => mlx_matmul,
}

reduce! {
    sum => mlx_sum_axis,
    max => mlx_max_axis,
    logsumexp => mlx_logsumexp_axis,
    /// The index (u32) of the largest element; the lowest index where several are equal.
    argmax => mlx_argmax_axis,
}

impl Array {
    /// `self` where the condition holds, else `other`.
    #[track_caller]
    pub fn where_(&self, condition: &Array, other: &Array) -> Result<Array> {
        let s = stream()?;
        // SAFETY: all handles and this thread's stream are valid.
        build(|r| unsafe { c::mlx_where(r, condition.raw(), self.raw(), other.raw(), s) })
    }

    /// Multiplies by a number that adopts this array's type, so that a bf16 stream stays bf16.
    #[track_caller]
    pub fn mul_scalar(&self, value: f32) -> Result<Array> {
        self.mul(&Array::scalar(value, self.dtype())?)
    }

    #[track_caller]
    pub fn add_scalar(&self, value: f32) -> Result<Array> {
        self.add(&Array::scalar(value, self.dtype())?)
    }

    #[track_caller]
    pub fn astype(&self, dtype: Dtype) -> Result<Array> {
        if self.dtype() == dtype {
            return Ok(self.clone());
        }
        let s = stream()?;
        // SAFETY: the handle and this thread's stream are valid.
        build(|r| unsafe { c::mlx_astype(r, self.raw(), dtype.raw(), s) })
    }

    /// Row-contiguous, copied only if it is not already.
    #[track_caller]
    pub fn contiguous(&self) -> Result<Array> {
        let s = stream()?;
        // SAFETY: the handle and this thread's stream are valid.
        build(|r| unsafe { c::mlx_contiguous(r, self.raw(), false, s) })
    }

    /// One dimension may be -1.
    #[track_caller]
    pub fn reshape(&self, shape: &[i32]) -> Result<Array> {
        let s = stream()?;
        // SAFETY: the handle and stream are valid; the shape is copied.
        build(|r| unsafe { c::mlx_reshape(r, self.raw(), shape.as_ptr(), shape.len(), s) })
    }

    /// A view that repeats the axes of length 1 and those in front that this array lacks.
    #[track_caller]
    pub fn broadcast_to(&self, shape: &[i32]) -> Result<Array> {
        let s = stream()?;
        // SAFETY: the handle and stream are valid; the shape is copied.
        build(|r| unsafe { c::mlx_broadcast_to(r, self.raw(), shape.as_ptr(), shape.len(), s) })
    }

    #[track_caller]
    pub fn transpose(&self, axes: &[i32]) -> Result<Array> {
        let s = stream()?;
        // SAFETY: the handle and stream are valid; the axes are copied.
        build(|r| unsafe { c::mlx_transpose_axes(r, self.raw(), axes.as_ptr(), axes.len(), s) })
    }

    #[track_caller]
    pub fn expand_dims(&self, axis: i32) -> Result<Array> {
        let s = stream()?;
        // SAFETY: the handle and stream are valid.
        build(|r| unsafe { c::mlx_expand_dims(r, self.raw(), axis, s) })
    }

    /// Elements `start..stop` of one axis; `stop` may be past the end.
    #[track_caller]
    pub fn slice(&self, axis: i32, start: i32, stop: i32) -> Result<Array> {
        let (mut from, mut to) = (vec![0; self.ndim()], self.shape().to_vec());
        let at = if axis < 0 { self.ndim() as i32 + axis } else { axis } as usize;
        (from[at], to[at]) = (start, stop.min(to[at]));
        let step = vec![1; self.ndim()];
        let s = stream()?;
        // SAFETY: the handle and stream are valid; the three lists have one number per axis and are copied.
        build(|r| unsafe {
            c::mlx_slice(r, self.raw(), from.as_ptr(), from.len(), to.as_ptr(), to.len(), step.as_ptr(), step.len(), s)
        })
    }

    /// A copy of `self` with elements `start..` of one axis replaced by `update`. MLX writes in place when `self` is the only
    /// reference to an evaluated buffer, so the caller should give up its own handle (take `self` by value).
    #[track_caller]
    pub fn slice_update(self, update: &Array, axis: i32, start: i32) -> Result<Array> {
        let (mut from, mut to) = (vec![0; self.ndim()], self.shape().to_vec());
        let at = if axis < 0 { self.ndim() as i32 + axis } else { axis } as usize;
        (from[at], to[at]) = (start, start + update.dim(axis));
        let step = vec![1; self.ndim()];
        let s = stream()?;
        // SAFETY: the handles and stream are valid; the three lists have one number per axis and are copied.
        build(|r| unsafe {
            c::mlx_slice_update(
                r,
                self.raw(),
                update.raw(),
                from.as_ptr(),
                from.len(),
                to.as_ptr(),
                to.len(),
                step.as_ptr(),
                step.len(),
                s,
            )
        })
    }

    /// Rows `indices` along an axis.
    #[track_caller]
    pub fn take(&self, indices: &Array, axis: i32) -> Result<Array> {
        let s = stream()?;
        // SAFETY: the handles and stream are valid.
        build(|r| unsafe { c::mlx_take_axis(r, self.raw(), indices.raw(), axis, s) })
    }

    #[track_caller]
    pub fn take_along(&self, indices: &Array, axis: i32) -> Result<Array> {
        let s = stream()?;
        // SAFETY: the handles and stream are valid.
        build(|r| unsafe { c::mlx_take_along_axis(r, self.raw(), indices.raw(), axis, s) })
    }

    #[track_caller]
    pub fn put_along(&self, indices: &Array, values: &Array, axis: i32) -> Result<Array> {
        let s = stream()?;
        // SAFETY: the handles and stream are valid.
        build(|r| unsafe { c::mlx_put_along_axis(r, self.raw(), indices.raw(), values.raw(), axis, s) })
    }

    /// `self` plus `values` at `indices` along an axis; an index may occur more than once.
    #[track_caller]
    pub fn scatter_add(&self, indices: &Array, values: &Array, axis: i32) -> Result<Array> {
        let s = stream()?;
        // SAFETY: the handles and stream are valid.
        build(|r| unsafe { c::mlx_scatter_add_axis(r, self.raw(), indices.raw(), values.raw(), axis, s) })
    }

    /// Indices (u32) that sort an axis upwards; equal elements keep their order.
    #[track_caller]
    pub fn argsort(&self, axis: i32) -> Result<Array> {
        let s = stream()?;
        // SAFETY: the handle and stream are valid.
        build(|r| unsafe { c::mlx_argsort_axis(r, self.raw(), axis, s) })
    }

    /// Running sums along an axis.
    #[track_caller]
    pub fn cumsum(&self, axis: i32) -> Result<Array> {
        let s = stream()?;
        let dtype = c::mlx_optional_dtype_ { value: self.dtype().raw(), has_value: false };
        // SAFETY: the handle and stream are valid.
        build(|r| unsafe { c::mlx_cumsum_axis(r, self.raw(), axis, false, true, dtype, s) })
    }

    #[track_caller]
    pub fn softmax(&self, axis: i32) -> Result<Array> {
        let s = stream()?;
        // SAFETY: the handle and stream are valid.
        build(|r| unsafe { c::mlx_softmax_axis(r, self.raw(), axis, true, s) })
    }

    #[track_caller]
    pub fn zeros(shape: &[i32], dtype: Dtype) -> Result<Array> {
        let s = stream()?;
        // SAFETY: the stream is valid; the shape is copied.
        build(|r| unsafe { c::mlx_zeros(r, shape.as_ptr(), shape.len(), dtype.raw(), s) })
    }

    /// `start, start + 1, .., stop - 1`.
    #[track_caller]
    pub fn arange(start: i32, stop: i32, dtype: Dtype) -> Result<Array> {
        let s = stream()?;
        // SAFETY: the stream is valid.
        build(|r| unsafe { c::mlx_arange(r, f64::from(start), f64::from(stop), 1.0, dtype.raw(), s) })
    }

    /// `self + a x b`, in one operation.
    #[track_caller]
    pub fn addmm(&self, a: &Array, b: &Array) -> Result<Array> {
        let s = stream()?;
        // SAFETY: the handles and stream are valid.
        build(|r| unsafe { c::mlx_addmm(r, self.raw(), a.raw(), b.raw(), 1.0, 1.0, s) })
    }
}

#[track_caller]
pub fn concatenate<'a>(arrays: impl IntoIterator<Item = &'a Array>, axis: i32) -> Result<Array> {
    let arrays = Arrays::new(arrays);
    let s = stream()?;
    // SAFETY: the handles and stream are valid.
    build(|r| unsafe { c::mlx_concatenate_axis(r, arrays.0, axis, s) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// mlx-c hands an error's text to printf as the format: a file name with '%' crashed the process.
    #[test]
    fn a_percent_sign_in_an_error_text_is_text() {
        let path = c"/no%s%n%s%s%n.safetensors";
        let s = stream().unwrap();
        // SAFETY: both maps are freed; the path outlives the call.
        let code = unsafe {
            let (mut arrays, mut texts) = (c::mlx_map_string_to_array_new(), c::mlx_map_string_to_string_new());
            let code = c::mlx_load_safetensors(&mut arrays, &mut texts, path.as_ptr(), s);
            c::mlx_map_string_to_array_free(arrays);
            c::mlx_map_string_to_string_free(texts);
            code
        };
        let e = check(code).unwrap_err();
        assert!(e.message().contains("/no%s%n%s%s%n.safetensors"), "{e}");
    }

    /// MLX refuses a lazy array of another thread; `Array: !Send` keeps safe code from getting there.
    #[test]
    fn a_lazy_array_is_refused_on_another_thread() {
        struct Smuggled(Array);
        // SAFETY: for this test only; the array is used by one thread at a time.
        unsafe impl Send for Smuggled {}
        let one = Array::scalar(1.0, Dtype::F32).unwrap();
        let lazy = Smuggled(one.add(&one).unwrap());
        let e = std::thread::spawn(move || {
            let lazy = lazy;
            lazy.0.eval().unwrap_err()
        });
        let e = e.join().unwrap();
        assert!(e.message().contains("no Stream"), "{e}");
    }
}
