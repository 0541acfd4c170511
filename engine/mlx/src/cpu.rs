//! CPU kernels: Rust functions that are nodes of MLX's graph, beside the GPU's in [`crate::kernel`].

use std::borrow::Cow;
use std::ffi::{CString, c_int, c_void};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mlx_sys as c;

use crate::array::{Array, Arrays};
use crate::device::stream;
use crate::dtype::{Dtype, Element};
use crate::error::{Error, Result, check};

/// What runs; an error is a text without the kernel's name.
type Work = dyn Fn(&[Input<'_>], &mut [Output<'_>]) -> Result<(), String> + Send + Sync;

/// A Rust function on arrays. Each call is one lazy operation that runs in stream order on a thread of MLX's CPU backend.
///
/// An error or a panic becomes the error of this thread's next call that waits for an evaluation (not of one that only submits),
/// once: the one it belongs to, or, where several were submitted ahead, one before it. So that what was made of a failed output
/// cannot pass for a result either, its floats are then NaN (integers are 0, which as indices are at least valid).
#[derive(Clone)]
pub struct CpuKernel(Arc<Kernel>);

struct Kernel {
    name: CString,
    work: Box<Work>,
}

/// What failed since somebody was told. MLX passes an exception of a task on, but to one waiting call or to several, by chance.
#[derive(Default)]
struct Failure {
    /// Apart from the text, so that a wait costs one look where nothing failed.
    any: AtomicBool,
    first: Mutex<Option<String>>,
}

thread_local! {
    /// Of the operations that this thread builds, which are those of its stream.
    static FAILURE: Arc<Failure> = Arc::default();
}

impl Failure {
    fn set(&self, text: String) {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(text);
        self.any.store(true, Ordering::Release);
    }

    fn take(&self) -> Option<String> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        self.any.store(false, Ordering::Release);
        first.take()
    }
}

/// The error of a kernel that failed, for a call that has waited.
#[inline]
#[track_caller]
pub(crate) fn check_waited() -> Result<()> {
    match FAILURE.with(|failure| failure.take()) {
        None => Ok(()),
        Some(text) => Err(Error::new(text)),
    }
}

/// What a node of the graph holds.
struct Call {
    kernel: CpuKernel,
    failure: Arc<Failure>,
}

impl CpuKernel {
    /// The function is dropped when this and every graph that has a call of it are gone, on whatever thread that happens.
    #[track_caller]
    pub fn new(
        name: &str,
        work: impl Fn(&[Input<'_>], &mut [Output<'_>]) -> Result<(), String> + Send + Sync + 'static,
    ) -> Result<Self> {
        let name = CString::new(name).map_err(|_| Error::new("a kernel's name has a NUL"))?;
        Ok(Self(Arc::new(Kernel { name, work: Box::new(work) })))
    }

    /// Adds a call to the graph: outputs of these shapes and types. Fails on a GPU's stream.
    #[track_caller]
    pub fn call<'a>(&self, inputs: impl IntoIterator<Item = &'a Array>, outputs: &[(&[i32], Dtype)]) -> Result<Vec<Array>> {
        if let Some((shape, dtype)) = outputs.iter().find(|(shape, dtype)| bytes(shape, *dtype).is_none()) {
            return Err(Error::new(format!("no output has shape {shape:?} of {dtype}")));
        }
        let (s, inputs, mut out) = (stream()?, Arrays::new(inputs), Arrays::empty());
        let shapes: Vec<c_int> = outputs.iter().flat_map(|(shape, _)| *shape).copied().collect();
        let ndims: Vec<usize> = outputs.iter().map(|(shape, _)| shape.len()).collect();
        let dtypes: Vec<c::mlx_dtype> = outputs.iter().map(|(_, dtype)| dtype.raw()).collect();
        let context = Box::into_raw(Box::new(Call { kernel: self.clone(), failure: FAILURE.with(Arc::clone) })).cast();
        // SAFETY: all handles are valid; shapes and types are copied, and the name lives as long as the context that holds its
        // kernel. The context is what `run` and `free` take it for, and MLX's from here on; it may move to other threads since the
        // function is Send and Sync.
        check(unsafe {
            c::rmlx_cpu_kernel(
                &mut out.0,
                self.0.name.as_ptr(),
                inputs.0,
                shapes.as_ptr(),
                ndims.as_ptr(),
                dtypes.as_ptr(),
                outputs.len(),
                run,
                context,
                free,
                s,
            )
        })?;
        out.get()
    }
}

/// The bytes of an output, where there can be one.
fn bytes(shape: &[i32], dtype: Dtype) -> Option<usize> {
    let mut sizes = shape.iter().map(|&d| usize::try_from(d).ok());
    let total = sizes.try_fold(dtype.size(), |total, d| total.checked_mul(d?))?;
    isize::try_from(total).is_ok().then_some(total)
}

/// Neither an error nor a panic may cross into C++.
unsafe extern "C" fn run(
    context: *mut c_void,
    inputs: *const c::rmlx_buffer,
    n_inputs: usize,
    outputs: *const c::rmlx_buffer,
    n_outputs: usize,
) {
    // SAFETY: `call` made the context; MLX keeps it for as long as the node or its task.
    let call = unsafe { &*context.cast::<Call>() };
    // SAFETY: the caller passes so many buffers, which live for the duration of this call.
    let (inputs, outputs) = unsafe { (slice(inputs, n_inputs), slice(outputs, n_outputs)) };
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let inputs: Vec<Input<'_>> = inputs.iter().map(|b| Input(Buffer::new(b))).collect();
        let mut outputs: Vec<Output<'_>> = outputs.iter().map(Output::new).collect();
        (call.kernel.0.work)(&inputs, &mut outputs)?;
        // What the function did not touch is zeros as well.
        outputs.iter_mut().for_each(Output::prepare);
        Ok(())
    }));
    let text = match outcome {
        Ok(Ok(())) => return,
        Ok(Err(text)) => text,
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
            let text = format!("panicked: {}", text.unwrap_or("without a text"));
            // Leaked: a payload whose drop panics would do so into C++.
            std::mem::forget(panic);
            text
        }
    };
    // What the function had borrowed is gone.
    outputs.iter().for_each(|b| Output::new(b).spoil());
    call.failure.set(format!("[{}] {text}", call.kernel.0.name.to_string_lossy()));
}

unsafe extern "C" fn free(context: *mut c_void) {
    // SAFETY: `call` made the context, and MLX frees it once.
    let call = unsafe { Box::from_raw(context.cast::<Call>()) };
    // A panic of what the function owns may not cross into C++.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(call))).map_err(std::mem::forget);
}

/// A slice from a pointer that may be null where there is nothing.
///
/// # Safety
/// Otherwise as [`std::slice::from_raw_parts`].
unsafe fn slice<'a, T>(data: *const T, n: usize) -> &'a [T] {
    if n == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(data, n) }
}

/// An array's memory while a kernel runs.
struct Buffer<'a> {
    data: *mut c_void,
    dtype: Dtype,
    shape: &'a [i32],
    strides: &'a [i64],
    size: usize,
}

impl<'a> Buffer<'a> {
    fn new(raw: &'a c::rmlx_buffer) -> Self {
        // SAFETY: the C++ side passes `ndim` lengths and strides that live as long as the buffer.
        let (shape, strides) = unsafe { (slice(raw.shape, raw.ndim), slice(raw.strides, raw.ndim)) };
        let size = shape.iter().map(|&d| d as usize).product();
        Self { data: raw.data, dtype: Dtype::from_raw(raw.dtype), shape, strides, size }
    }

    fn is<T: Element>(&self) -> Result<(), String> {
        if self.dtype == T::DTYPE { Ok(()) } else { Err(format!("an array of {} was taken as {}", self.dtype, T::DTYPE)) }
    }
}

/// An array that a kernel reads, as it lies in memory.
pub struct Input<'a>(Buffer<'a>);

impl<'a> Input<'a> {
    pub fn dtype(&self) -> Dtype {
        self.0.dtype
    }

    pub fn shape(&self) -> &'a [i32] {
        self.0.shape
    }

    /// In elements; 0 along a broadcast axis, negative along a reversed one.
    pub fn strides(&self) -> &'a [i64] {
        self.0.strides
    }

    pub fn size(&self) -> usize {
        self.0.size
    }

    /// Whether the elements lie in row-major order without gaps.
    pub fn is_dense(&self) -> bool {
        let mut expected = 1;
        self.0.shape.iter().zip(self.0.strides).rev().all(|(&dim, &stride)| {
            let fits = dim == 1 || stride == expected;
            expected *= i64::from(dim);
            fits || self.0.size == 0
        })
    }

    /// All elements from the lowest address of this array to the highest, and where in them its first element is: element
    /// `[i, j, ..]` is at `first + i * strides[0] + j * strides[1] + ..`. Between them may lie others that are not this array's.
    pub fn span<T: Element>(&self) -> Result<(&'a [T], usize), String> {
        self.0.is::<T>()?;
        if self.0.size == 0 {
            return Ok((&[], 0));
        }
        let (mut below, mut above) = (0i64, 0i64);
        for (&dim, &stride) in self.0.shape.iter().zip(self.0.strides) {
            let reach = (i64::from(dim) - 1) * stride;
            if reach < 0 { below -= reach } else { above += reach }
        }
        // SAFETY: lowest and highest element belong to the array, hence everything between them to its one allocation, which the
        // task holds; MLX's allocations are aligned for every element type, any bits are a T, and stream order keeps writers off.
        let all = unsafe {
            let lowest = self.0.data.cast::<T>().cast_const().sub(below as usize);
            std::slice::from_raw_parts(lowest, (below + above) as usize + 1)
        };
        Ok((all, below as usize))
    }

    /// The elements in row-major order: in place where they lie so, else a copy.
    pub fn dense<T: Element>(&self) -> Result<Cow<'a, [T]>, String> {
        let (all, first) = self.span::<T>()?;
        if self.is_dense() {
            return Ok(Cow::Borrowed(all));
        }
        let mut copy = Vec::with_capacity(self.0.size);
        let mut at = vec![0i32; self.0.shape.len()];
        let mut place = first as i64;
        while copy.len() < self.0.size {
            copy.push(all[place as usize]);
            for axis in (0..at.len()).rev() {
                let (dim, stride) = (self.0.shape[axis], self.0.strides[axis]);
                at[axis] += 1;
                place += stride;
                if at[axis] < dim {
                    break;
                }
                at[axis] = 0;
                place -= i64::from(dim) * stride;
            }
        }
        Ok(Cow::Owned(copy))
    }
}

/// An array that a kernel writes: row-major, zeros at first.
pub struct Output<'a> {
    buffer: Buffer<'a>,
    /// Whether all of it has been written. It is not before somebody asks for it, since zeros cost as much as results.
    written: bool,
}

impl<'a> Output<'a> {
    fn new(raw: &'a c::rmlx_buffer) -> Self {
        Self { buffer: Buffer::new(raw), written: false }
    }

    pub fn dtype(&self) -> Dtype {
        self.buffer.dtype
    }

    pub fn shape(&self) -> &[i32] {
        self.buffer.shape
    }

    pub fn size(&self) -> usize {
        self.buffer.size
    }

    pub fn slice<T: Element>(&mut self) -> Result<&mut [T], String> {
        self.buffer.is::<T>()?;
        self.prepare();
        if self.buffer.size == 0 {
            return Ok(&mut []);
        }
        // SAFETY: the C++ side allocated this memory for this output alone, and all of it has been written; it is aligned for every
        // element type, any bits are a T, and `&mut self` keeps it to one slice at a time.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.buffer.data.cast::<T>(), self.buffer.size) })
    }

    /// The memory as it came, for a function that writes all of it anyway.
    ///
    /// # Safety
    /// Before the function returns `Ok`, every element has been written.
    pub unsafe fn unwritten<T: Element>(&mut self) -> Result<&mut [MaybeUninit<T>], String> {
        self.buffer.is::<T>()?;
        self.written = true;
        if self.buffer.size == 0 {
            return Ok(&mut []);
        }
        // SAFETY: as in `slice`, but for the writing, of which this type assumes nothing.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.buffer.data.cast::<MaybeUninit<T>>(), self.buffer.size) })
    }

    fn prepare(&mut self) {
        if !self.written {
            self.fill(0);
        }
    }

    fn spoil(&mut self) {
        self.fill(if self.buffer.dtype.is_float() || self.buffer.dtype == Dtype::C64 { 0xff } else { 0 });
    }

    fn fill(&mut self, byte: u8) {
        self.written = true;
        if self.buffer.size != 0 {
            // SAFETY: as in `slice`, in bytes; all ones is a NaN of every float type.
            unsafe { std::ptr::write_bytes(self.buffer.data.cast::<u8>(), byte, self.buffer.size * self.buffer.dtype.size()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_may_be_negative() {
        let data: Vec<i32> = (0..12).collect();
        // Rows of [3, 4] in reverse, every second column from the end.
        let (shape, strides) = ([3, 2], [-4, -2]);
        let first = std::ptr::from_ref(&data[11]).cast_mut().cast();
        let raw =
            c::rmlx_buffer { data: first, shape: shape.as_ptr(), strides: strides.as_ptr(), ndim: 2, dtype: Dtype::I32.raw() };
        let input = Input(Buffer::new(&raw));
        assert!(!input.is_dense());
        assert_eq!(input.span::<i32>().unwrap(), (&data[1..], 10));
        assert_eq!(*input.dense::<i32>().unwrap(), [11, 9, 7, 5, 3, 1]);
    }
}
