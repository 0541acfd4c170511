//! The inner loops of the CPU kernels, once for each instruction set. Plain functions over slices: no MLX, no threads, so that they
//! can be tested under sanitizers and on other processors' instructions.
//!
//! All paths unpack to the same numbers; sums differ in their order and rounding, and repeat bit for bit on one path.

mod affine;
pub mod attention;
mod rows;

use std::sync::OnceLock;

/// An instruction set that this machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// Partial sums of a dot product: what the widest path has in one register.
const LANES: usize = 16;

impl Path {
    /// Those of this machine, the quickest last.
    pub fn all() -> Vec<Self> {
        #[allow(unused_mut)]
        let mut all = vec![Self(Kind::Portable)];
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            all.push(Self(Kind::Avx2));
            if is_x86_feature_detected!("avx512f") {
                all.push(Self(Kind::Avx512));
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
