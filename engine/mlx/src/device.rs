//! Devices and the stream that this thread's operations go to.

use std::cell::RefCell;
use std::ffi::CStr;
use std::marker::PhantomData;

use mlx_sys as c;

use crate::cpu;
use crate::error::{self, Result, check, init};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Device {
    Cpu,
    /// Metal or CUDA, whichever this build of MLX has.
    Gpu,
}

impl Device {
    fn raw(self) -> c::mlx_device_type {
        match self {
            Self::Cpu => c::MLX_CPU,
            Self::Gpu => c::MLX_GPU,
        }
    }
}

struct RawDevice(c::mlx_device);

impl RawDevice {
    fn new(device: Device) -> Self {
        init();
        // SAFETY: allocates a handle; freed once, by Drop.
        Self(unsafe { c::mlx_device_new_type(device.raw(), 0) })
    }
}

impl Drop for RawDevice {
    fn drop(&mut self) {
        // SAFETY: the handle came from mlx_device_new_type and is freed only here.
        unsafe { c::mlx_device_free(self.0) };
    }
}

/// A stream belongs to the thread that made it, so it never leaves this module's thread-local.
struct Stream {
    raw: c::mlx_stream,
    device: Device,
    _not_send: PhantomData<*const ()>,
}

impl Stream {
    #[track_caller]
    fn new(device: Device) -> Result<Self> {
        let dev = RawDevice::new(device);
        // SAFETY: `dev` lives through both calls; the stream handle is freed once, by Drop.
        let raw = unsafe {
            check(c::mlx_set_default_device(dev.0))?;
            c::mlx_stream_new_device(dev.0)
        };
        if raw.ctx.is_null() { Err(error::last()) } else { Ok(Self { raw, device, _not_send: PhantomData }) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the handle came from mlx_stream_new_device and is freed only here.
        unsafe { c::mlx_stream_free(self.raw) };
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Stream>> = const { RefCell::new(None) };
}

/// Sends this thread's operations to `device` from now on, on a stream of its own.
#[track_caller]
pub fn use_device(device: Device) -> Result<()> {
    let stream = Stream::new(device)?;
    CURRENT.with(|current| *current.borrow_mut() = Some(stream));
    Ok(())
}

/// The device of this thread's operations.
pub fn current_device() -> Device {
    CURRENT.with(|current| current.borrow().as_ref().map_or(Device::Cpu, |s| s.device))
}

#[track_caller]
pub(crate) fn stream() -> Result<c::mlx_stream> {
    CURRENT.with(|current| {
        if let Some(stream) = current.borrow().as_ref() {
            return Ok(stream.raw);
        }
        let stream = Stream::new(Device::Cpu)?;
        let raw = stream.raw;
        *current.borrow_mut() = Some(stream);
        Ok(raw)
    })
}

/// Waits until everything submitted by this thread is done.
#[track_caller]
pub fn synchronize() -> Result<()> {
    // SAFETY: the stream is this thread's and alive.
    check(unsafe { c::mlx_synchronize(stream()?) })?;
    cpu::check_waited()
}

/// Whether this build of MLX has a GPU backend and the machine a GPU.
pub fn gpu_available() -> bool {
    init();
    let (mut metal, mut cuda) = (false, false);
    // SAFETY: both calls only write the flag.
    unsafe {
        c::mlx_metal_is_available(&mut metal);
        c::mlx_cuda_is_available(&mut cuda);
    }
    metal || cuda
}

/// The name that the GPU's driver gives, where there is a GPU.
pub fn device_name(device: Device) -> Option<String> {
    if device == Device::Gpu && !gpu_available() {
        return None;
    }
    let dev = RawDevice::new(device);
    // SAFETY: the info handle is freed on every path; the text is copied before that.
    unsafe {
        let mut info = c::mlx_device_info_new();
        let mut text = std::ptr::null();
        let mut has = false;
        let key = c"device_name".as_ptr();
        let found = c::mlx_device_info_get(&mut info, dev.0) == 0
            && c::mlx_device_info_has_key(&mut has, info, key) == 0
            && has
            && c::mlx_device_info_get_string(&mut text, info, key) == 0
            && !text.is_null();
        let name = found.then(|| CStr::from_ptr(text).to_string_lossy().into_owned());
        c::mlx_device_info_free(info);
        name
    }
}

/// The version of the MLX library that is loaded.
pub fn version() -> String {
    init();
    // SAFETY: the string handle is freed after its text is copied.
    unsafe {
        let mut text = c::mlx_string_new();
        let ok = c::mlx_version(&mut text) == 0;
        let version = if ok { CStr::from_ptr(c::mlx_string_data(text)).to_string_lossy().into_owned() } else { "?".into() };
        c::mlx_string_free(text);
        version
    }
}

/// Threads of the CPU backend's matrix products; `None` leaves the library's own choice. `false`: the library that MLX was linked
/// to has no such setting.
pub fn set_cpu_threads(threads: Option<usize>) -> bool {
    let Some(threads) = threads else { return true };
    // The library has a limit of its own, far below.
    let threads = i32::try_from(threads.max(1)).unwrap_or(i32::MAX);
    #[cfg(target_os = "linux")]
    {
        let Some(found) = symbol(c"openblas_set_num_threads") else { return false };
        // SAFETY: OpenBLAS declares this function as void openblas_set_num_threads(int).
        let set: extern "C" fn(i32) = unsafe { std::mem::transmute(found) };
        set(threads);
        true
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = threads;
        false
    }
}

/// Bytes of memory that the GPU has, where its driver says.
pub fn gpu_memory() -> Option<usize> {
    gpu_number(&[c"free_memory", c"memory_size", c"total_memory"])
}

/// Bytes that a program should use of it at most: what Metal recommends, or what is free on a graphics card.
pub fn gpu_budget() -> Option<usize> {
    gpu_number(&[c"max_recommended_working_set_size", c"free_memory"])
}

/// The first of these that the driver tells.
fn gpu_number(keys: &[&CStr]) -> Option<usize> {
    if !gpu_available() {
        return None;
    }
    let dev = RawDevice::new(Device::Gpu);
    // SAFETY: the info handle is freed on every path.
    unsafe {
        let mut info = c::mlx_device_info_new();
        let mut bytes = None;
        if c::mlx_device_info_get(&mut info, dev.0) == 0 {
            for key in keys {
                let (mut has, mut value) = (false, 0);
                if c::mlx_device_info_has_key(&mut has, info, key.as_ptr()) == 0
                    && has
                    && c::mlx_device_info_get_size(&mut value, info, key.as_ptr()) == 0
                {
                    bytes = Some(value);
                    break;
                }
            }
        }
        c::mlx_device_info_free(info);
        bytes
    }
}

/// What OpenBLAS says of itself, where MLX's matrix products go to it.
pub fn cpu_matrix_library() -> Option<String> {
    #[cfg(target_os = "linux")]
    {
        let found = symbol(c"openblas_get_config")?;
        // SAFETY: OpenBLAS declares this function as char* openblas_get_config(void) and returns a static text.
        let text = unsafe {
            let config: extern "C" fn() -> *const std::ffi::c_char = std::mem::transmute(found);
            CStr::from_ptr(config())
        };
        Some(text.to_string_lossy().trim().to_string())
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// A function of a library that is loaded, by name: OpenBLAS, which set-up puts in the place of the reference BLAS that MLX's
/// Linux wheel is linked to, has functions that the reference lacks.
#[cfg(target_os = "linux")]
fn symbol(name: &CStr) -> Option<*mut std::ffi::c_void> {
    unsafe extern "C" {
        fn dlsym(handle: *mut std::ffi::c_void, name: *const std::ffi::c_char) -> *mut std::ffi::c_void;
    }
    init();
    // SAFETY: a null handle (RTLD_DEFAULT) searches the libraries that are loaded; the name is a C string.
    let found = unsafe { dlsym(std::ptr::null_mut(), name.as_ptr()) };
    (!found.is_null()).then_some(found)
}
