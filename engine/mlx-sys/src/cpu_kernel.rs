//! `cxx/cpu_kernel.cpp`: a node of MLX's graph whose work is a function of ours.

use std::ffi::{c_char, c_int, c_void};

use crate::{mlx_dtype, mlx_stream, mlx_vector_array};

/// One array while the function runs.
#[repr(C)]
pub struct rmlx_buffer {
    /// The first element; null where the array has none.
    pub data: *mut c_void,
    pub shape: *const i32,
    /// In elements.
    pub strides: *const i64,
    pub ndim: usize,
    pub dtype: mlx_dtype,
}

/// Must not unwind. Errors are the function's own matter.
pub type rmlx_cpu_kernel_run = unsafe extern "C" fn(
    context: *mut c_void,
    inputs: *const rmlx_buffer,
    n_inputs: usize,
    outputs: *const rmlx_buffer,
    n_outputs: usize,
);

pub type rmlx_cpu_kernel_free = unsafe extern "C" fn(context: *mut c_void);

unsafe extern "C" {
    /// `context` is MLX's from here on, also when this fails: `free` runs once, on whatever thread drops the last user of it.
    pub fn rmlx_cpu_kernel(
        res: *mut mlx_vector_array,
        name: *const c_char,
        inputs: mlx_vector_array,
        shapes: *const c_int,
        ndims: *const usize,
        dtypes: *const mlx_dtype,
        n_outputs: usize,
        run: rmlx_cpu_kernel_run,
        context: *mut c_void,
        free: rmlx_cpu_kernel_free,
        s: mlx_stream,
    ) -> c_int;
}
