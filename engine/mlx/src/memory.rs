//! MLX's allocator: figures in bytes, and its limits.

use mlx_sys as c;

use crate::error::{Result, check, init};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Held by live arrays.
    pub active: usize,
    /// The largest `active` since the last [`reset_peak`].
    pub peak: usize,
    /// Freed by arrays and kept for reuse.
    pub cache: usize,
}

pub fn usage() -> Usage {
    init();
    let mut u = Usage::default();
    // SAFETY: each call only writes its number.
    unsafe {
        c::mlx_get_active_memory(&mut u.active);
        c::mlx_get_peak_memory(&mut u.peak);
        c::mlx_get_cache_memory(&mut u.cache);
    }
    u
}

pub fn reset_peak() {
    init();
    // SAFETY: no arguments.
    unsafe { c::mlx_reset_peak_memory() };
}

/// Gives the cache back to the system. The CPU backend's is the heap, of which glibc keeps what was freed in the middle.
#[track_caller]
pub fn clear_cache() -> Result<()> {
    init();
    // SAFETY: no arguments.
    check(unsafe { c::mlx_clear_cache() })?;
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> std::ffi::c_int;
        }
        // SAFETY: any number is allowed; the heap's own locks keep other threads off.
        unsafe { malloc_trim(0) };
    }
    Ok(())
}

/// Above this many bytes an allocation waits for work in flight, then fails.
#[track_caller]
pub fn set_limit(bytes: usize) -> Result<()> {
    init();
    let mut before = 0;
    // SAFETY: the call only writes the former limit.
    check(unsafe { c::mlx_set_memory_limit(&mut before, bytes) })
}
