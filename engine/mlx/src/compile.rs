//! Functions of arrays that MLX fuses into few kernels.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

use mlx_sys as c;

use crate::array::{Array, Arrays};
use crate::device::{Device, current_device};
use crate::error::{Error, Result, check, init, set_last};

type Body = fn(&[Array]) -> Result<Array>;

/// An elementwise function, fused on the GPU for operands of any shape. On the CPU its body runs as it is: there MLX would call a
/// C++ compiler at run time.
pub struct Compiled {
    body: Body,
    fused: Option<Closure>,
}

struct Closure(c::mlx_closure);

impl Drop for Closure {
    fn drop(&mut self) {
        // SAFETY: the handle is owned.
        unsafe { c::mlx_closure_free(self.0) };
    }
}

/// What MLX calls to trace the body. Neither an error nor a panic may cross into C++.
extern "C" fn trace(result: *mut c::mlx_vector_array, input: c::mlx_vector_array, body: *mut c_void) -> i32 {
    // SAFETY: the payload is the function pointer that `new` passed.
    let body = unsafe { std::mem::transmute::<*mut c_void, Body>(body) };
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let input = std::mem::ManuallyDrop::new(Arrays(input)); // MLX keeps its ownership
        body(&input.get()?)
    }));
    match outcome {
        Ok(Ok(array)) => {
            let arrays = Arrays::new([&array]);
            // SAFETY: `result` is MLX's own handle to fill; it copies the references.
            unsafe { c::mlx_vector_array_set(result, arrays.0) }
        }
        Ok(Err(e)) => {
            set_last(e.message().to_string());
            1
        }
        Err(_) => {
            set_last("a compiled function panicked".into());
            1
        }
    }
}

impl Compiled {
    #[track_caller]
    pub fn new(body: Body) -> Result<Self> {
        init();
        if current_device() == Device::Cpu {
            return Ok(Self { body, fused: None });
        }
        // SAFETY: the payload is a function pointer, which needs no destructor; both closures are owned and freed.
        let plain = Closure(unsafe { c::mlx_closure_new_func_payload(Some(trace), body as *mut c_void, None) });
        let mut fused = Closure(c::mlx_closure_ { ctx: std::ptr::null_mut() });
        // SAFETY: as above.
        check(unsafe { c::mlx_compile(&mut fused.0, plain.0, true) })?;
        Ok(Self { body, fused: Some(fused) })
    }

    #[track_caller]
    pub fn call(&self, inputs: &[Array]) -> Result<Array> {
        let Some(fused) = &self.fused else { return (self.body)(inputs) };
        let inputs = Arrays::new(inputs);
        let mut out = Arrays::empty();
        // SAFETY: the handles are valid; `out` is owned and freed.
        check(unsafe { c::mlx_closure_apply(&mut out.0, fused.0, inputs.0) })?;
        out.get()?.pop().ok_or_else(|| Error::new("a compiled function returned nothing"))
    }
}
