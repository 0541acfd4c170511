//! The array handle: creation, facts, reading.

use std::ffi::c_void;
use std::fmt;
use std::sync::{Arc, Mutex};

use mlx_sys as c;

use crate::cpu;
use crate::dtype::{Dtype, Element};
use crate::error::{self, Error, Result, check, init};
use crate::record;

/// A reference-counted handle on a node of MLX's graph. Cloning copies the handle, not the data.
///
/// The raw handle is a pointer, which makes the type `!Send + !Sync`: an array stays on the thread whose stream it waits for.
pub struct Array(c::mlx_array);

pub(crate) const NULL: c::mlx_array = c::mlx_array_ { ctx: std::ptr::null_mut() };

impl Drop for Array {
    fn drop(&mut self) {
        // SAFETY: the handle is owned; MLX ignores a null one.
        unsafe { c::mlx_array_free(self.0) };
    }
}

impl Clone for Array {
    fn clone(&self) -> Self {
        let mut copy = Self(NULL);
        // SAFETY: both handles are valid; the call makes `copy` a second reference to the same array.
        unsafe { c::mlx_array_set(&mut copy.0, self.0) };
        copy
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Array({} {:?})", self.dtype(), self.shape())
    }
}

/// Calls an operation that writes its result into a handle. The handle is freed when the call fails.
#[inline]
#[track_caller]
pub(crate) fn build(call: impl FnOnce(*mut c::mlx_array) -> i32) -> Result<Array> {
    let mut result = Array(NULL);
    check(call(&mut result.0))?;
    record::note(&result);
    Ok(result)
}

impl Array {
    #[inline]
    pub(crate) fn raw(&self) -> c::mlx_array {
        self.0
    }

    #[track_caller]
    pub(crate) fn from_raw(raw: c::mlx_array) -> Result<Self> {
        if raw.ctx.is_null() { Err(error::last()) } else { Ok(Self(raw)) }
    }

    /// Copies `data` into an array of `shape`.
    #[track_caller]
    pub fn from_slice<T: Element>(data: &[T], shape: &[usize]) -> Result<Self> {
        Self::from_bytes(bytemuck::cast_slice(data), shape, T::DTYPE)
    }

    /// Copies little-endian bytes into an array; their number must be that of the shape.
    #[track_caller]
    pub fn from_bytes(bytes: &[u8], shape: &[usize], dtype: Dtype) -> Result<Self> {
        init();
        let dims = checked_dims(shape, dtype, bytes.len())?;
        // SAFETY: the data holds exactly the bytes of `dims` and is copied before the call returns.
        Self::from_raw(unsafe { c::mlx_array_new_data(bytes.as_ptr().cast(), dims.as_ptr(), dims.len() as i32, dtype.raw()) })
    }

    /// Makes an array over memory that `owner` keeps alive: without a copy where the backend can use it in place (page-aligned
    /// memory on Metal), else copied. `owner` is dropped exactly once, when MLX no longer needs the memory, perhaps on another
    /// thread.
    ///
    /// The memory must not change while `owner` lives; `bytes_of` names it.
    #[track_caller]
    pub fn from_owner<O: Send + 'static>(
        owner: O,
        bytes_of: impl FnOnce(&O) -> &[u8],
        shape: &[usize],
        dtype: Dtype,
    ) -> Result<Self> {
        init();
        type Slot<O> = Arc<Mutex<Option<Box<O>>>>;
        extern "C" fn release<O>(slot: *mut c_void) {
            // SAFETY: `slot` came from Box::into_raw below and MLX calls its deleter at most once.
            let slot = unsafe { Box::from_raw(slot.cast::<Slot<O>>()) };
            let owner = slot.lock().map(|mut o| o.take());
            drop(owner);
        }
        // Boxed: the owner must not move once its bytes are known.
        let owner = Box::new(owner);
        let bytes = bytes_of(&owner);
        let dims = checked_dims(shape, dtype, bytes.len())?;
        let data = bytes.as_ptr();
        let slot: Slot<O> = Arc::new(Mutex::new(Some(owner)));
        let payload = Box::into_raw(Box::new(slot.clone()));
        // SAFETY: `data` points at exactly the bytes of `dims`, kept alive by the slot until `release` empties it.
        let raw = unsafe {
            c::mlx_array_new_data_managed_payload(
                data.cast_mut().cast(),
                dims.as_ptr(),
                dims.len() as i32,
                dtype.raw(),
                payload.cast(),
                Some(release::<O>),
            )
        };
        if raw.ctx.is_null() && slot.lock().is_ok_and(|o| o.is_some()) {
            // SAFETY: the construction failed before MLX ran its deleter (the slot is still full), so the payload is ours.
            drop(unsafe { Box::from_raw(payload) });
        }
        Self::from_raw(raw)
    }

    /// A 0-d array of the given type.
    #[track_caller]
    pub fn scalar(value: f32, dtype: Dtype) -> Result<Self> {
        match dtype {
            Dtype::F32 => Self::from_slice(&[value], &[]),
            Dtype::F16 => Self::from_slice(&[half::f16::from_f32(value)], &[]),
            Dtype::Bf16 => Self::from_slice(&[half::bf16::from_f32(value)], &[]),
            Dtype::F64 => Self::from_slice(&[f64::from(value)], &[]),
            Dtype::I32 => Self::from_slice(&[value as i32], &[]),
            Dtype::U32 => Self::from_slice(&[value as u32], &[]),
            other => Err(Error::new(format!("no scalar of type {other}"))),
        }
    }

    pub fn dtype(&self) -> Dtype {
        // SAFETY: the handle is valid.
        Dtype::from_raw(unsafe { c::mlx_array_dtype(self.0) })
    }

    pub fn ndim(&self) -> usize {
        // SAFETY: the handle is valid.
        unsafe { c::mlx_array_ndim(self.0) }
    }

    pub fn shape(&self) -> &[i32] {
        let n = self.ndim();
        if n == 0 {
            return &[];
        }
        // SAFETY: MLX keeps `ndim` numbers for as long as the array, which `self` holds.
        unsafe { std::slice::from_raw_parts(c::mlx_array_shape(self.0), n) }
    }

    /// The length of one axis; negative axes count from the end.
    pub fn dim(&self, axis: i32) -> i32 {
        let shape = self.shape();
        let at = if axis < 0 { shape.len() as i32 + axis } else { axis };
        shape[at as usize]
    }

    pub fn size(&self) -> usize {
        // SAFETY: the handle is valid.
        unsafe { c::mlx_array_size(self.0) }
    }

    pub fn nbytes(&self) -> usize {
        // SAFETY: the handle is valid.
        unsafe { c::mlx_array_nbytes(self.0) }
    }

    /// Whether the elements lie in logical order without gaps. Known once the array is evaluated.
    fn is_row_contiguous(&self) -> bool {
        let shape = self.shape();
        if shape.is_empty() {
            return true;
        }
        // SAFETY: MLX keeps one stride per axis for as long as the array, which `self` holds.
        let strides = unsafe { std::slice::from_raw_parts(c::mlx_array_strides(self.0), shape.len()) };
        let mut expected = 1;
        for (&dim, &stride) in shape.iter().zip(strides).rev() {
            if dim != 1 && stride != expected {
                return false;
            }
            expected *= dim as usize;
        }
        true
    }

    #[track_caller]
    pub fn eval(&self) -> Result<()> {
        // SAFETY: the handle is valid and belongs to this thread.
        check(unsafe { c::mlx_array_eval(self.0) })?;
        cpu::check_waited()
    }

    /// Evaluates and copies the elements out, in logical (row-major) order. The type must be the array's.
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if self.dtype() != T::DTYPE {
            return Err(Error::new(format!("an array of {} was read as {}", self.dtype(), T::DTYPE)));
        }
        self.eval()?;
        let n = self.size();
        if n == 0 {
            return Ok(Vec::new());
        }
        // Only where it must be: a copy would queue up behind whatever was submitted after this array.
        let dense = if self.is_row_contiguous() { self.clone() } else { self.contiguous()? };
        dense.eval()?;
        // SAFETY: `dense` is evaluated and row-contiguous, so its buffer holds `n` elements of T's type from this address on.
        // The buffer is aligned for every element type.
        let data = unsafe { std::slice::from_raw_parts(c::mlx_array_data_uint8(dense.0).cast::<T>(), n) };
        Ok(data.to_vec())
    }

    /// [`Array::to_vec`] of the values as f32.
    #[track_caller]
    pub fn to_f32(&self) -> Result<Vec<f32>> {
        self.astype(Dtype::F32)?.to_vec()
    }

    /// The one element of an array of size 1.
    #[track_caller]
    pub fn item<T: Element>(&self) -> Result<T> {
        match self.to_vec::<T>()?.as_slice() {
            [one] => Ok(*one),
            many => Err(Error::new(format!("an array of {} elements was read as one", many.len()))),
        }
    }
}

#[track_caller]
fn checked_dims(shape: &[usize], dtype: Dtype, bytes: usize) -> Result<Vec<i32>> {
    let mut expected = Some(dtype.size());
    let mut dims = Vec::with_capacity(shape.len());
    for &d in shape {
        expected = expected.and_then(|e| e.checked_mul(d));
        dims.push(i32::try_from(d).map_err(|_| Error::new(format!("shape {shape:?} has a dimension over 2^31")))?);
    }
    if expected != Some(bytes) {
        return Err(Error::new(format!("{bytes} bytes do not fill shape {shape:?} of {dtype}")));
    }
    Ok(dims)
}

/// A vector of array handles for the calls that take one; freed on drop.
pub(crate) struct Arrays(pub(crate) c::mlx_vector_array);

impl Arrays {
    pub(crate) fn new<'a>(arrays: impl IntoIterator<Item = &'a Array>) -> Self {
        init();
        let raw: Vec<c::mlx_array> = arrays.into_iter().map(Array::raw).collect();
        // SAFETY: the handles are valid; the vector takes references of its own.
        Self(unsafe { c::mlx_vector_array_new_data(raw.as_ptr(), raw.len()) })
    }

    pub(crate) fn empty() -> Self {
        init();
        // SAFETY: allocates a handle, freed by Drop.
        Self(unsafe { c::mlx_vector_array_new() })
    }

    #[track_caller]
    pub(crate) fn get(&self) -> Result<Vec<Array>> {
        // SAFETY: the handle is valid and the indices are below its size.
        (0..unsafe { c::mlx_vector_array_size(self.0) })
            .map(|i| build(|r| unsafe { c::mlx_vector_array_get(r, self.0, i) }))
            .collect()
    }
}

impl Drop for Arrays {
    fn drop(&mut self) {
        // SAFETY: the handle is owned.
        unsafe { c::mlx_vector_array_free(self.0) };
    }
}

/// Evaluates several arrays in one go.
#[track_caller]
pub fn eval<'a>(arrays: impl IntoIterator<Item = &'a Array>) -> Result<()> {
    let arrays = Arrays::new(arrays);
    // SAFETY: the handles are valid and belong to this thread.
    check(unsafe { c::mlx_eval(arrays.0) })?;
    cpu::check_waited()
}

/// Submits several arrays for evaluation and returns at once.
#[track_caller]
pub fn async_eval<'a>(arrays: impl IntoIterator<Item = &'a Array>) -> Result<()> {
    let arrays = Arrays::new(arrays);
    // SAFETY: as in `eval`.
    check(unsafe { c::mlx_async_eval(arrays.0) })
}
