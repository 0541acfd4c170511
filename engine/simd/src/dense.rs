//! Floats of two bytes, as f32.

use half::slice::HalfFloatSliceExt;

#[cfg(target_arch = "x86_64")]
use crate::Kind;
use crate::{Floats, Path};

impl Path {
    /// As many as `out` has, from `at` on.
    pub fn widen(self, from: Floats<'_>, at: usize, out: &mut [f32]) {
        let end = at + out.len();
        match from {
            Floats::F32(all) => out.copy_from_slice(&all[at..end]),
            Floats::F16(all) => all[at..end].convert_to_f32_slice(out),
            // Its bits are the upper half of an f32's.
            Floats::Bf16(all) => {
                let from = &all[at..end];
                #[cfg(target_arch = "x86_64")]
                if self.0 != Kind::Portable {
                    // SAFETY: all others have AVX2, and a path exists only where the machine has it.
                    return unsafe { shifted_avx2(from, out) };
                }
                shifted(from, out);
            }
        }
    }
}

#[inline(always)]
fn shifted(from: &[half::bf16], out: &mut [f32]) {
    for (to, from) in out.iter_mut().zip(from) {
        *to = f32::from_bits(u32::from(from.to_bits()) << 16);
    }
}

/// # Safety
/// The machine has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn shifted_avx2(from: &[half::bf16], out: &mut [f32]) {
    shifted(from, out);
}
