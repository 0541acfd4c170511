//! Arrays for registers. The reference of the other paths.

use super::{Floats, Isa, element};

pub(super) struct Portable;

const LANES: usize = 8;

/// The 32 numbers of a group, in the order of their products.
fn group<const BITS: usize>(from: &[u8]) -> [[u8; 4]; 8] {
    let number = |i: usize| {
        let pair = [from[i * BITS / 8], *from.get(i * BITS / 8 + 1).unwrap_or(&0)];
        (u16::from_le_bytes(pair) >> (i * BITS % 8)) as u8 & ((1u16 << BITS) - 1) as u8
    };
    std::array::from_fn(|d| std::array::from_fn(|i| number(element(BITS == 4, 4 * d + i))))
}

// SAFETY comments: these functions are unsafe only because the trait's are, but for those with pointers.
impl Isa for Portable {
    const LANES: usize = LANES;
    type Bytes = [[u8; 4]; LANES];
    type Sum = [i32; LANES];
    type Floats = [f32; LANES];

    #[inline(always)]
    unsafe fn full<const BITS: usize>(from: *const u8) -> [Self::Bytes; 8] {
        // SAFETY: the trait's promise.
        let bytes = unsafe { std::slice::from_raw_parts(from, 4 * BITS * LANES) };
        let mut out = [[[0; 4]; LANES]; 8];
        for (lane, bytes) in bytes.chunks_exact(4 * BITS).enumerate() {
            for (d, four) in group::<BITS>(bytes).into_iter().enumerate() {
                out[d][lane] = four;
            }
        }
        out
    }

    #[inline(always)]
    unsafe fn quarter<const BITS: usize>(from: *const u8) -> [Self::Bytes; 2] {
        // SAFETY: the trait's promise.
        let bytes = unsafe { std::slice::from_raw_parts(from, 4 * BITS * LANES / 4) };
        let mut out = [[[0; 4]; LANES]; 2];
        for (g, bytes) in bytes.chunks_exact(4 * BITS).enumerate() {
            for (d, four) in group::<BITS>(bytes).into_iter().enumerate() {
                out[d % 2][4 * g + d / 2] = four;
            }
        }
        out
    }

    #[inline(always)]
    unsafe fn bytes(from: *const u8) -> Self::Bytes {
        // SAFETY: the trait's promise.
        unsafe { from.cast::<Self::Bytes>().read() }
    }

    #[inline(always)]
    unsafe fn put_bytes(bytes: Self::Bytes, to: *mut u8) {
        // SAFETY: the trait's promise.
        unsafe { to.cast::<Self::Bytes>().write(bytes) }
    }

    #[inline(always)]
    unsafe fn floats(from: *const u8) -> Self::Floats {
        // SAFETY: the trait's promise.
        unsafe { from.cast::<Self::Floats>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn put_floats(floats: Self::Floats, to: *mut u8) {
        // SAFETY: the trait's promise.
        unsafe { to.cast::<Self::Floats>().write_unaligned(floats) }
    }

    #[inline(always)]
    unsafe fn scales(all: Floats<'_>, at: usize, end: usize, log: u32) -> Self::Floats {
        std::array::from_fn(|lane| {
            let at = at + (lane >> log);
            if at < end { all.get(at) } else { 0.0 }
        })
    }

    #[inline(always)]
    unsafe fn nothing<const BITS: usize>() -> Self::Sum {
        [0; LANES]
    }

    #[inline(always)]
    unsafe fn add<const BITS: usize>(mut sum: Self::Sum, w: Self::Bytes, x: Self::Bytes) -> Self::Sum {
        for ((sum, w), x) in sum.iter_mut().zip(w).zip(x) {
            for (w, x) in w.into_iter().zip(x) {
                *sum += i32::from(w) * i32::from(x as i8);
            }
        }
        sum
    }

    #[inline(always)]
    unsafe fn value<const BITS: usize>(sum: Self::Sum, _: Self::Floats) -> Self::Floats {
        sum.map(|v| v as f32)
    }

    #[inline(always)]
    unsafe fn zero() -> Self::Floats {
        [0.0; LANES]
    }

    #[inline(always)]
    unsafe fn scaled(total: Self::Floats, value: Self::Floats, w: [Self::Floats; 2], x: [Self::Floats; 2]) -> Self::Floats {
        std::array::from_fn(|i| total[i] + x[0][i] * (w[0][i] * value[i] + w[1][i] * x[1][i]))
    }

    #[inline(always)]
    unsafe fn across(total: Self::Floats) -> f32 {
        total.iter().sum()
    }
}
