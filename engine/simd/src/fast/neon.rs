//! Four lanes, with products of bytes in one instruction where the machine has it. That multiplies signed bytes, so numbers of 8 bits
//! are 128 less, and 128 times the sum of x comes on top.

use std::arch::aarch64::*;
use std::arch::asm;

use super::{Floats, Isa};
use crate::affine::sixteen;

pub(super) struct Neon<const DOT: bool>;

/// 16 numbers, in their order; those of 8 bits less 128.
#[inline(always)]
unsafe fn numbers<const BITS: usize>(from: *const u8) -> uint8x16_t {
    // SAFETY: 16 bytes can be read; the machine has the instructions.
    unsafe {
        let bytes = vld1q_u8(from);
        if BITS == 8 {
            return veorq_u8(bytes, vdupq_n_u8(128));
        }
        let [a, b] = sixteen::<BITS>(bytes);
        vcombine_u8(vmovn_u16(a), vmovn_u16(b))
    }
}

/// Four times four lanes, transposed.
#[inline(always)]
unsafe fn transposed(rows: [uint8x16_t; 4]) -> [uint8x16_t; 4] {
    // SAFETY: the machine has the instructions.
    unsafe {
        let [a, b, c, d] = rows.map(|v| vreinterpretq_u32_u8(v));
        let pairs = [(vtrn1q_u32(a, b), vtrn1q_u32(c, d)), (vtrn2q_u32(a, b), vtrn2q_u32(c, d))];
        let [(e, f), (g, h)] = pairs.map(|(a, b)| (vreinterpretq_u64_u32(a), vreinterpretq_u64_u32(b)));
        [vtrn1q_u64(e, f), vtrn1q_u64(g, h), vtrn2q_u64(e, f), vtrn2q_u64(g, h)].map(|v| vreinterpretq_u8_u64(v))
    }
}

/// The numbers of a packed dword's bytes: the lower halves, the upper halves.
#[inline(always)]
unsafe fn nibbles(packed: uint8x16_t) -> [uint8x16_t; 2] {
    // SAFETY: the machine has the instructions.
    unsafe { [vandq_u8(packed, vdupq_n_u8(15)), vshrq_n_u8::<4>(packed)] }
}

impl<const DOT: bool> Isa for Neon<DOT> {
    const LANES: usize = 4;
    type Bytes = uint8x16_t;
    type Sum = int32x4_t;
    type Floats = float32x4_t;

    #[inline(always)]
    unsafe fn full<const BITS: usize>(from: *const u8) -> [Self::Bytes; 8] {
        // SAFETY: the trait's promise.
        unsafe {
            if BITS == 4 {
                let rows = [vld1q_u8(from), vld1q_u8(from.add(16)), vld1q_u8(from.add(32)), vld1q_u8(from.add(48))];
                let packed = transposed(rows);
                let [a, b] = nibbles(packed[0]);
                let [c, d] = nibbles(packed[1]);
                let [e, f] = nibbles(packed[2]);
                let [g, h] = nibbles(packed[3]);
                return [a, b, c, d, e, f, g, h];
            }
            let (mut lower, mut upper) = ([vdupq_n_u8(0); 4], [vdupq_n_u8(0); 4]);
            for i in 0..4 {
                lower[i] = numbers::<BITS>(from.add(4 * BITS * i));
                upper[i] = numbers::<BITS>(from.add(4 * BITS * i + 2 * BITS));
            }
            let ([a, b, c, d], [e, f, g, h]) = (transposed(lower), transposed(upper));
            [a, b, c, d, e, f, g, h]
        }
    }

    #[inline(always)]
    unsafe fn quarter<const BITS: usize>(from: *const u8) -> [Self::Bytes; 2] {
        // SAFETY: the trait's promise.
        unsafe {
            if BITS == 4 {
                return nibbles(vld1q_u8(from));
            }
            let a = vreinterpretq_u32_u8(numbers::<BITS>(from));
            let b = vreinterpretq_u32_u8(numbers::<BITS>(from.add(2 * BITS)));
            [vreinterpretq_u8_u32(vuzp1q_u32(a, b)), vreinterpretq_u8_u32(vuzp2q_u32(a, b))]
        }
    }

    #[inline(always)]
    unsafe fn bytes(from: *const u8) -> Self::Bytes {
        // SAFETY: the trait's promise.
        unsafe { vld1q_u8(from) }
    }

    #[inline(always)]
    unsafe fn put_bytes(bytes: Self::Bytes, to: *mut u8) {
        // SAFETY: the trait's promise.
        unsafe { vst1q_u8(to, bytes) }
    }

    #[inline(always)]
    unsafe fn floats(from: *const u8) -> Self::Floats {
        // SAFETY: the trait's promise.
        unsafe { vreinterpretq_f32_u8(vld1q_u8(from)) }
    }

    #[inline(always)]
    unsafe fn put_floats(floats: Self::Floats, to: *mut u8) {
        // SAFETY: the trait's promise.
        unsafe { vst1q_u8(to, vreinterpretq_u8_f32(floats)) }
    }

    #[inline(always)]
    unsafe fn scales(all: Floats<'_>, at: usize, end: usize, log: u32) -> Self::Floats {
        assert!(at <= end && end <= all.len());
        // SAFETY: the trait's promise; four floats are there, or in `four`.
        unsafe {
            if log == 0 && at + 4 <= end {
                match all {
                    Floats::F32(all) => return vld1q_f32(all.as_ptr().add(at)),
                    Floats::F16(all) => {
                        let out: float32x4_t;
                        let bits = vld1_u16(all.as_ptr().add(at).cast());
                        // Its intrinsic function is not in stable Rust yet.
                        asm!("fcvtl {0:v}.4s, {1:v}.4h", out(vreg) out, in(vreg) bits, options(pure, nomem, nostack));
                        return out;
                    }
                    Floats::Bf16(all) => {
                        let bits = vld1_u16(all.as_ptr().add(at).cast());
                        return vreinterpretq_f32_u32(vshll_n_u16::<16>(bits));
                    }
                }
            }
            let mut four = [0.0; 4];
            for (lane, v) in four.iter_mut().enumerate() {
                let at = at + (lane >> log);
                if at < end {
                    *v = all.get(at);
                }
            }
            vld1q_f32(four.as_ptr())
        }
    }

    #[inline(always)]
    unsafe fn nothing<const BITS: usize>() -> Self::Sum {
        // SAFETY: the trait's promise.
        unsafe { vdupq_n_s32(0) }
    }

    #[inline(always)]
    unsafe fn add<const BITS: usize>(sum: Self::Sum, w: Self::Bytes, x: Self::Bytes) -> Self::Sum {
        // SAFETY: the trait's promise.
        unsafe {
            let (w, x) = (vreinterpretq_s8_u8(w), vreinterpretq_s8_u8(x));
            if DOT {
                let mut sum = sum;
                // Its intrinsic function is not in stable Rust yet.
                asm!(
                    ".arch_extension dotprod",
                    "sdot {0:v}.4s, {1:v}.16b, {2:v}.16b",
                    inout(vreg) sum, in(vreg) w, in(vreg) x,
                    options(pure, nomem, nostack, preserves_flags)
                );
                return sum;
            }
            // Pairs of 128 * 127 are below 2^15.
            let pairs = vpaddq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(x)), vmull_high_s8(w, x));
            vpadalq_s16(sum, pairs)
        }
    }

    #[inline(always)]
    unsafe fn value<const BITS: usize>(sum: Self::Sum, ones: Self::Floats) -> Self::Floats {
        // SAFETY: the trait's promise.
        unsafe {
            let whole = if BITS == 8 { vaddq_s32(sum, vshlq_n_s32::<7>(vcvtq_s32_f32(ones))) } else { sum };
            vcvtq_f32_s32(whole)
        }
    }

    #[inline(always)]
    unsafe fn zero() -> Self::Floats {
        // SAFETY: the trait's promise.
        unsafe { vdupq_n_f32(0.0) }
    }

    #[inline(always)]
    unsafe fn scaled(total: Self::Floats, value: Self::Floats, w: [Self::Floats; 2], x: [Self::Floats; 2]) -> Self::Floats {
        // SAFETY: the trait's promise.
        unsafe { vfmaq_f32(total, x[0], vfmaq_f32(vmulq_f32(w[1], x[1]), w[0], value)) }
    }

    #[inline(always)]
    unsafe fn across(total: Self::Floats) -> f32 {
        // SAFETY: the trait's promise.
        unsafe { vaddvq_f32(total) }
    }
}
