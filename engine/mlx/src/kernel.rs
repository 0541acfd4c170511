//! GPU kernels from source text, through `fast.metal_kernel` or `fast.cuda_kernel`, whichever backend this MLX has.

use std::ffi::{CString, c_char};

use mlx_sys as c;

use crate::array::{Array, Arrays};
use crate::device::stream;
use crate::dtype::Dtype;
use crate::error::{Error, Result, check, init, last};

/// The text of a kernel: its body, what precedes it, and the names its inputs and outputs have in the body.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    pub name: &'a str,
    pub inputs: &'a [&'a str],
    pub outputs: &'a [&'a str],
    pub header: &'a str,
    pub body: &'a str,
}

/// How one call is launched. `grid` counts threads, not groups, on both backends.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    pub grid: [i32; 3],
    pub group: [i32; 3],
    pub outputs: &'a [(&'a [i32], Dtype)],
    pub ints: &'a [(&'a str, i32)],
    pub dtypes: &'a [(&'a str, Dtype)],
}

enum Raw {
    Metal(c::mlx_fast_metal_kernel),
    Cuda(c::mlx_fast_cuda_kernel),
}

/// A kernel that compiles when it is first applied. Its inputs are made row-contiguous.
pub struct Kernel(Raw);

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: the handle is owned.
        unsafe {
            match self.0 {
                Raw::Metal(k) => c::mlx_fast_metal_kernel_free(k),
                Raw::Cuda(k) => c::mlx_fast_cuda_kernel_free(k),
            }
        }
    }
}

/// A vector of texts, freed on every path (also when the construction that borrows it fails).
struct Strings(c::mlx_vector_string);

impl Strings {
    #[track_caller]
    fn new(texts: &[&str]) -> Result<Self> {
        let owned: Vec<CString> = texts.iter().map(|t| text(t)).collect::<Result<_>>()?;
        let mut pointers: Vec<*const c_char> = owned.iter().map(|t| t.as_ptr()).collect();
        // SAFETY: the pointers are valid for the call, which copies the texts.
        Ok(Self(unsafe { c::mlx_vector_string_new_data(pointers.as_mut_ptr(), pointers.len()) }))
    }
}

impl Drop for Strings {
    fn drop(&mut self) {
        // SAFETY: the handle is owned.
        unsafe { c::mlx_vector_string_free(self.0) };
    }
}

#[track_caller]
fn text(t: &str) -> Result<CString> {
    CString::new(t).map_err(|_| Error::new("a kernel's text has a NUL"))
}

impl Kernel {
    /// Fails where this build of MLX has no GPU backend.
    #[track_caller]
    pub fn new(source: Source<'_>) -> Result<Self> {
        init();
        let (inputs, outputs) = (Strings::new(source.inputs)?, Strings::new(source.outputs)?);
        let (name, header, body) = (text(source.name)?, text(source.header)?, text(source.body)?);
        let mut metal = false;
        // SAFETY: the call only writes the flag.
        unsafe { c::mlx_metal_is_available(&mut metal) };
        // SAFETY: names, texts and vectors outlive the calls, which copy them; a null handle means failure.
        let raw = unsafe {
            if metal {
                let k =
                    c::mlx_fast_metal_kernel_new(name.as_ptr(), inputs.0, outputs.0, body.as_ptr(), header.as_ptr(), true, false);
                (!k.ctx.is_null()).then_some(Raw::Metal(k))
            } else {
                let k = c::mlx_fast_cuda_kernel_new(name.as_ptr(), inputs.0, outputs.0, body.as_ptr(), header.as_ptr(), true, 0);
                (!k.ctx.is_null()).then_some(Raw::Cuda(k))
            }
        };
        raw.map(Kernel).ok_or_else(last)
    }

    #[track_caller]
    pub fn call(&self, inputs: &[Array], launch: &Launch<'_>) -> Result<Vec<Array>> {
        let (s, inputs) = (stream()?, Arrays::new(inputs));
        let mut out = Arrays::empty();
        macro_rules! apply {
            ($kernel:expr, $new:ident, $free:ident, $output:ident, $grid:ident, $group:ident, $int:ident, $dtype:ident, $apply:ident) => {{
                // SAFETY: the configuration is freed after its last use; shapes and names are copied; all handles are valid.
                unsafe {
                    let config = c::$new();
                    let mut code = c::$grid(config, launch.grid[0], launch.grid[1], launch.grid[2]);
                    code |= c::$group(config, launch.group[0], launch.group[1], launch.group[2]);
                    for (shape, dtype) in launch.outputs {
                        code |= c::$output(config, shape.as_ptr(), shape.len(), dtype.raw());
                    }
                    for (name, value) in launch.ints {
                        code |= text(name).map_or(1, |n| c::$int(config, n.as_ptr(), *value));
                    }
                    for (name, dtype) in launch.dtypes {
                        code |= text(name).map_or(1, |n| c::$dtype(config, n.as_ptr(), dtype.raw()));
                    }
                    if code == 0 {
                        code = c::$apply(&mut out.0, $kernel, inputs.0, config, s);
                    }
                    c::$free(config);
                    check(code)?;
                }
            }};
        }
        match self.0 {
            Raw::Metal(k) => apply!(
                k,
                mlx_fast_metal_kernel_config_new,
                mlx_fast_metal_kernel_config_free,
                mlx_fast_metal_kernel_config_add_output_arg,
                mlx_fast_metal_kernel_config_set_grid,
                mlx_fast_metal_kernel_config_set_thread_group,
                mlx_fast_metal_kernel_config_add_template_arg_int,
                mlx_fast_metal_kernel_config_add_template_arg_dtype,
                mlx_fast_metal_kernel_apply
            ),
            Raw::Cuda(k) => apply!(
                k,
                mlx_fast_cuda_kernel_config_new,
                mlx_fast_cuda_kernel_config_free,
                mlx_fast_cuda_kernel_config_add_output_arg,
                mlx_fast_cuda_kernel_config_set_grid,
                mlx_fast_cuda_kernel_config_set_thread_group,
                mlx_fast_cuda_kernel_config_add_template_arg_int,
                mlx_fast_cuda_kernel_config_add_template_arg_dtype,
                mlx_fast_cuda_kernel_apply
            ),
        }
        out.get()
    }
}
