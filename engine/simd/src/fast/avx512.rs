//! Sixteen lanes, with VNNI's products and VBMI's shuffles of bytes.

use std::arch::x86_64::*;

use super::{Floats, Isa};

pub(super) struct Avx512;

/// For eight times eight numbers of BITS bits: the eight bytes around each eight, and at which of their bits each number begins.
struct Spread<const BITS: usize>;

impl<const BITS: usize> Spread<BITS> {
    const BYTES: [u8; 64] = {
        let mut all = [0; 64];
        let mut i = 0;
        while i < 64 {
            all[i] = (i / 8 * BITS + i % 8) as u8;
            i += 1;
        }
        all
    };
    const SHIFTS: u64 = {
        let (mut all, mut i) = (0, 0);
        while i < 8 {
            all |= ((i * BITS) as u64) << (8 * i);
            i += 1;
        }
        all
    };
}

/// 64 numbers, in their order.
#[inline(always)]
unsafe fn numbers<const BITS: usize>(from: *const u8) -> __m512i {
    // SAFETY: 64 bytes can be read; the machine has the instructions.
    unsafe {
        let bytes = _mm512_loadu_si512(from.cast());
        if BITS == 8 {
            return bytes;
        }
        let places = _mm512_loadu_si512(Spread::<BITS>::BYTES.as_ptr().cast());
        let shifts = _mm512_set1_epi64(Spread::<BITS>::SHIFTS as i64);
        let shifted = _mm512_multishift_epi64_epi8(shifts, _mm512_permutexvar_epi8(places, bytes));
        _mm512_and_si512(shifted, _mm512_set1_epi8((1 << BITS) - 1))
    }
}

/// Every second of the two's 32 lanes.
#[inline(always)]
unsafe fn halves(a: __m512i, b: __m512i) -> [__m512i; 2] {
    // SAFETY: the machine has the instructions.
    unsafe {
        let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
        [_mm512_permutex2var_epi32(a, even, b), _mm512_permutex2var_epi32(a, odd, b)]
    }
}

/// From 64 lanes in a row: every fourth.
#[inline(always)]
unsafe fn fourths([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    // SAFETY: the machine has the instructions.
    unsafe {
        let ([a, b], [c, d]) = (halves(a, b), halves(c, d));
        let ([p, r], [q, s]) = (halves(a, c), halves(b, d));
        [p, q, r, s]
    }
}

/// The numbers of a packed dword's bytes: the lower halves, the upper halves.
#[inline(always)]
unsafe fn nibbles(packed: __m512i) -> [__m512i; 2] {
    // SAFETY: the machine has the instructions.
    unsafe {
        let mask = _mm512_set1_epi8(15);
        [_mm512_and_si512(packed, mask), _mm512_and_si512(_mm512_srli_epi16::<4>(packed), mask)]
    }
}

impl Isa for Avx512 {
    const LANES: usize = 16;
    type Bytes = __m512i;
    type Sum = __m512i;
    type Floats = __m512;

    #[inline(always)]
    unsafe fn full<const BITS: usize>(from: *const u8) -> [Self::Bytes; 8] {
        // SAFETY: the trait's promise.
        unsafe {
            if BITS == 4 {
                let packed = fourths([
                    _mm512_loadu_si512(from.cast()),
                    _mm512_loadu_si512(from.add(64).cast()),
                    _mm512_loadu_si512(from.add(128).cast()),
                    _mm512_loadu_si512(from.add(192).cast()),
                ]);
                let [a, b] = nibbles(packed[0]);
                let [c, d] = nibbles(packed[1]);
                let [e, f] = nibbles(packed[2]);
                let [g, h] = nibbles(packed[3]);
                return [a, b, c, d, e, f, g, h];
            }
            let mut even = [_mm512_setzero_si512(); 4];
            let mut odd = even;
            for i in 0..4 {
                let at = from.add(i * 16 * BITS);
                [even[i], odd[i]] = halves(numbers::<BITS>(at), numbers::<BITS>(at.add(8 * BITS)));
            }
            let ([a, c, e, g], [b, d, f, h]) = (fourths(even), fourths(odd));
            [a, b, c, d, e, f, g, h]
        }
    }

    #[inline(always)]
    unsafe fn quarter<const BITS: usize>(from: *const u8) -> [Self::Bytes; 2] {
        // SAFETY: the trait's promise.
        unsafe {
            if BITS == 4 {
                return nibbles(_mm512_loadu_si512(from.cast()));
            }
            halves(numbers::<BITS>(from), numbers::<BITS>(from.add(8 * BITS)))
        }
    }

    #[inline(always)]
    unsafe fn bytes(from: *const u8) -> Self::Bytes {
        // SAFETY: the trait's promise.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    unsafe fn put_bytes(bytes: Self::Bytes, to: *mut u8) {
        // SAFETY: the trait's promise.
        unsafe { _mm512_storeu_si512(to.cast(), bytes) }
    }

    #[inline(always)]
    unsafe fn floats(from: *const u8) -> Self::Floats {
        // SAFETY: the trait's promise.
        unsafe { _mm512_loadu_ps(from.cast()) }
    }

    #[inline(always)]
    unsafe fn put_floats(floats: Self::Floats, to: *mut u8) {
        // SAFETY: the trait's promise.
        unsafe { _mm512_storeu_ps(to.cast(), floats) }
    }

    #[inline(always)]
    unsafe fn scales(all: Floats<'_>, at: usize, end: usize, log: u32) -> Self::Floats {
        assert!(at <= end && end <= all.len());
        let mask = ((1u32 << (end - at).min(16)) - 1) as __mmask16;
        // SAFETY: the trait's promise; what the mask leaves out is not read.
        unsafe {
            let floats = match all {
                Floats::F32(all) => _mm512_maskz_loadu_ps(mask, all.as_ptr().add(at)),
                Floats::F16(all) => _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, all.as_ptr().add(at).cast())),
                Floats::Bf16(all) => {
                    let bits = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, all.as_ptr().add(at).cast()));
                    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(bits))
                }
            };
            let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            _mm512_permutexvar_ps(_mm512_srl_epi32(lanes, _mm_cvtsi32_si128(log as i32)), floats)
        }
    }

    const ROUNDS: bool = true;
    #[inline(always)]
    unsafe fn round_eight(x: *const f32, nibbles: bool, to: *mut u8) {
        // SAFETY: the trait's promise.
        unsafe { super::avx2::round_eight(x, nibbles, to, 64) }
    }

    #[inline(always)]
    unsafe fn nothing<const BITS: usize>() -> Self::Sum {
        // SAFETY: the trait's promise.
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    unsafe fn add<const BITS: usize>(sum: Self::Sum, w: Self::Bytes, x: Self::Bytes) -> Self::Sum {
        // SAFETY: the trait's promise.
        unsafe { _mm512_dpbusd_epi32(sum, w, x) }
    }

    #[inline(always)]
    unsafe fn value<const BITS: usize>(sum: Self::Sum, _: Self::Floats) -> Self::Floats {
        // SAFETY: the trait's promise.
        unsafe { _mm512_cvtepi32_ps(sum) }
    }

    #[inline(always)]
    unsafe fn zero() -> Self::Floats {
        // SAFETY: the trait's promise.
        unsafe { _mm512_setzero_ps() }
    }

    #[inline(always)]
    unsafe fn scaled(total: Self::Floats, value: Self::Floats, w: [Self::Floats; 2], x: [Self::Floats; 2]) -> Self::Floats {
        // SAFETY: the trait's promise.
        unsafe { _mm512_fmadd_ps(x[0], _mm512_fmadd_ps(w[0], value, _mm512_mul_ps(w[1], x[1])), total) }
    }

    #[inline(always)]
    unsafe fn across(total: Self::Floats) -> f32 {
        // SAFETY: the trait's promise.
        unsafe { _mm512_reduce_add_ps(total) }
    }
}
