//! The inner loops of the CPU kernels, once for each instruction set. Plain functions over slices: no MLX, no threads, so that they
//! can be tested under sanitizers and on other processors' instructions.
//!
//! All paths unpack to the same numbers; sums differ in their order and rounding, and repeat bit for bit on one path.

mod affine;
pub mod attention;
mod dense;
mod fast;
mod rows;

pub use fast::{Floats, Packed, Rounded, Tile};

#[cfg(target_arch = "aarch64")]
use std::arch::is_aarch64_feature_detected;
use std::marker::PhantomData;
use std::sync::OnceLock;

/// An instruction set that this machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// And products of bytes.
    #[cfg(target_arch = "x86_64")]
    AvxVnni,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// And products and shuffles of bytes (VNNI, VBMI).
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
    #[cfg(target_arch = "aarch64")]
    Neon,
    /// And products of bytes.
    #[cfg(target_arch = "aarch64")]
    NeonDot,
}

/// A result [.., columns] that several threads write, each elements of its own.
#[derive(Debug)]
pub struct Out<'a> {
    start: *mut f32,
    len: usize,
    columns: usize,
    borrowed: PhantomData<&'a mut [f32]>,
}

// SAFETY: `set` is only called for elements that no other thread writes or reads.
unsafe impl Sync for Out<'_> {}

impl<'a> Out<'a> {
    pub fn new(all: &'a mut [f32], columns: usize) -> Self {
        Self { start: all.as_mut_ptr(), len: all.len(), columns, borrowed: PhantomData }
    }

    /// # Safety
    /// Nobody else uses this element now.
    ///
    /// # Panics
    /// Where there is no such element.
    #[inline(always)]
    pub unsafe fn set(&self, row: usize, column: usize, value: f32) {
        let at = row * self.columns + column;
        assert!(column < self.columns && at < self.len);
        // SAFETY: in bounds, and the caller's promise.
        unsafe { self.start.add(at).write(value) };
    }

    /// To what was set.
    ///
    /// # Safety
    /// As for [`Self::set`].
    ///
    /// # Panics
    /// As [`Self::set`].
    #[inline(always)]
    pub(crate) unsafe fn add(&self, row: usize, column: usize, value: f32) {
        let at = row * self.columns + column;
        assert!(column < self.columns && at < self.len);
        // SAFETY: in bounds, and the caller's promise.
        unsafe { *self.start.add(at) += value };
    }
}

/// Partial sums of a dot product: what the widest path has in one register.
const LANES: usize = 16;

impl Path {
    /// Those of this machine, the quickest last.
    pub fn all() -> Vec<Self> {
        #[allow(unused_mut)]
        let mut all = vec![Self(Kind::Portable)];
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c") {
            all.push(Self(Kind::Avx2));
            if is_x86_feature_detected!("avxvnni") {
                all.push(Self(Kind::AvxVnni));
            }
            if is_x86_feature_detected!("avx512f") {
                all.push(Self(Kind::Avx512));
                let bytes = is_x86_feature_detected!("avx512vbmi") && is_x86_feature_detected!("avx512vnni");
                if bytes && is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vl") {
                    all.push(Self(Kind::Avx512Vnni));
                }
            }
        }
        #[cfg(target_arch = "aarch64")]
        if is_aarch64_feature_detected!("neon") {
            all.push(Self(Kind::Neon));
            if is_aarch64_feature_detected!("dotprod") {
                all.push(Self(Kind::NeonDot));
            }
        }
        all
    }

    /// The quickest.
    pub fn best() -> Self {
        static BEST: OnceLock<Path> = OnceLock::new();
        *BEST.get_or_init(|| *Self::all().last().expect("there is a portable path"))
    }
}
