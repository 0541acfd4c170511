//! Eight lanes, with VNNI's products where the machine has them for these registers.

use std::arch::x86_64::*;

use super::{Floats, GROUP, Isa, scale};
use crate::affine::sixteen;

pub(super) struct Avx2<const VNNI: bool>;

/// The 32 numbers of a group, in their order.
#[inline(always)]
unsafe fn numbers<const BITS: usize>(from: *const u8) -> __m256i {
    // SAFETY: the numbers and SLACK bytes can be read; the machine has the instructions.
    unsafe {
        if BITS == 8 {
            return _mm256_loadu_si256(from.cast());
        }
        let (a, b) = (_mm_loadu_si128(from.cast()), _mm_loadu_si128(from.add(2 * BITS).cast()));
        let both = _mm256_packus_epi16(sixteen::<BITS>(a), sixteen::<BITS>(b));
        _mm256_permute4x64_epi64::<0xD8>(both)
    }
}

/// The four bytes of each product of eight groups.
#[inline(always)]
unsafe fn products(groups: [__m256i; 8]) -> [__m256i; 8] {
    // SAFETY: the machine has the instructions.
    unsafe {
        let (mut lower, mut upper) = ([_mm256_setzero_si256(); 4], [_mm256_setzero_si256(); 4]);
        for i in 0..4 {
            lower[i] = _mm256_permute2x128_si256::<0x20>(groups[i], groups[i + 4]);
            upper[i] = _mm256_permute2x128_si256::<0x31>(groups[i], groups[i + 4]);
        }
        let ([a, b, c, d], [e, f, g, h]) = (transposed(lower), transposed(upper));
        [a, b, c, d, e, f, g, h]
    }
}

/// See [`Isa::round_eight`]; `register` is the bytes of a step's register.
///
/// # Safety
/// As for [`Isa`]; `x` has eight groups.
#[inline(always)]
pub(super) unsafe fn round_eight(x: *const f32, nibbles: bool, to: *mut u8, register: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut scales = [0.0; 8];
        let mut groups = [_mm256_setzero_si256(); 8];
        for i in 0..8 {
            let at = x.add(i * GROUP);
            let v = [_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(8)), _mm256_loadu_ps(at.add(16)), _mm256_loadu_ps(at.add(24))];
            let bits = |v: __m256| _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7FFF_FFFF));
            let eight = _mm256_max_epi32(_mm256_max_epi32(bits(v[0]), bits(v[1])), _mm256_max_epi32(bits(v[2]), bits(v[3])));
            let four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256::<1>(eight));
            let two = _mm_max_epi32(four, _mm_unpackhi_epi64(four, four));
            let one = _mm_max_epi32(two, _mm_shuffle_epi32::<1>(two));
            let (scale, inverse) = scale(f32::from_bits(_mm_cvtsi128_si32(one) as u32));
            scales[i] = scale;
            let inverse = _mm256_set1_ps(inverse);
            // To the nearest, an even one of two.
            let whole = |v: __m256| _mm256_cvtps_epi32(_mm256_mul_ps(v, inverse));
            let (a, b) = (_mm256_packs_epi32(whole(v[0]), whole(v[1])), _mm256_packs_epi32(whole(v[2]), whole(v[3])));
            let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
            groups[i] = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), order);
            if nibbles {
                let halves = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
                groups[i] = _mm256_shuffle_epi8(groups[i], _mm256_broadcastsi128_si256(halves));
            }
        }
        let mut sums = _mm256_setzero_si256();
        for (i, bytes) in products(groups).into_iter().enumerate() {
            _mm256_storeu_si256(to.add((2 + i) * register).cast(), bytes);
            sums = _mm256_add_epi16(sums, _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes));
        }
        let sums = _mm256_cvtepi32_ps(_mm256_madd_epi16(sums, _mm256_set1_epi16(1)));
        _mm256_storeu_ps(to.cast(), _mm256_loadu_ps(scales.as_ptr()));
        _mm256_storeu_ps(to.add(register).cast(), sums);
    }
}

/// Four times four lanes of each half, transposed.
#[inline(always)]
unsafe fn transposed([a, b, c, d]: [__m256i; 4]) -> [__m256i; 4] {
    // SAFETY: the machine has the instructions.
    unsafe {
        let (ab, cd) = (_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d));
        let (upper_ab, upper_cd) = (_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d));
        [
            _mm256_unpacklo_epi64(ab, cd),
            _mm256_unpackhi_epi64(ab, cd),
            _mm256_unpacklo_epi64(upper_ab, upper_cd),
            _mm256_unpackhi_epi64(upper_ab, upper_cd),
        ]
    }
}

/// The numbers of a packed dword's bytes: the lower halves, the upper halves.
#[inline(always)]
unsafe fn nibbles(packed: __m256i) -> [__m256i; 2] {
    // SAFETY: the machine has the instructions.
    unsafe {
        let mask = _mm256_set1_epi8(15);
        [_mm256_and_si256(packed, mask), _mm256_and_si256(_mm256_srli_epi16::<4>(packed), mask)]
    }
}

impl<const VNNI: bool> Isa for Avx2<VNNI> {
    const LANES: usize = 8;
    type Bytes = __m256i;
    /// With VNNI the first alone. Else sums of pairs in 16 bits: of the numbers up to 15, and of what is above these four bits.
    /// Eight pairs of 15 * 127 are below 2^15.
    type Sum = [__m256i; 2];
    type Floats = __m256;

    #[inline(always)]
    unsafe fn full<const BITS: usize>(from: *const u8) -> [Self::Bytes; 8] {
        // SAFETY: the trait's promise.
        unsafe {
            if BITS == 4 {
                let mut rows = [_mm256_setzero_si256(); 4];
                for (i, row) in rows.iter_mut().enumerate() {
                    let (lower, upper) = (from.add(16 * i), from.add(16 * (i + 4)));
                    *row = _mm256_loadu2_m128i(upper.cast(), lower.cast());
                }
                let packed = transposed(rows);
                let [a, b] = nibbles(packed[0]);
                let [c, d] = nibbles(packed[1]);
                let [e, f] = nibbles(packed[2]);
                let [g, h] = nibbles(packed[3]);
                return [a, b, c, d, e, f, g, h];
            }
            let mut groups = [_mm256_setzero_si256(); 8];
            for (i, group) in groups.iter_mut().enumerate() {
                *group = numbers::<BITS>(from.add(4 * BITS * i));
            }
            products(groups)
        }
    }

    #[inline(always)]
    unsafe fn quarter<const BITS: usize>(from: *const u8) -> [Self::Bytes; 2] {
        // SAFETY: the trait's promise.
        unsafe {
            if BITS == 4 {
                return nibbles(_mm256_loadu_si256(from.cast()));
            }
            let (a, b) = (numbers::<BITS>(from), numbers::<BITS>(from.add(4 * BITS)));
            let (a, b) = (_mm256_castsi256_ps(a), _mm256_castsi256_ps(b));
            let in_order = |mixed: __m256| _mm256_permute4x64_epi64::<0xD8>(_mm256_castps_si256(mixed));
            [in_order(_mm256_shuffle_ps::<0x88>(a, b)), in_order(_mm256_shuffle_ps::<0xDD>(a, b))]
        }
    }

    #[inline(always)]
    unsafe fn bytes(from: *const u8) -> Self::Bytes {
        // SAFETY: the trait's promise.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }

    #[inline(always)]
    unsafe fn put_bytes(bytes: Self::Bytes, to: *mut u8) {
        // SAFETY: the trait's promise.
        unsafe { _mm256_storeu_si256(to.cast(), bytes) }
    }

    #[inline(always)]
    unsafe fn floats(from: *const u8) -> Self::Floats {
        // SAFETY: the trait's promise.
        unsafe { _mm256_loadu_ps(from.cast()) }
    }

    #[inline(always)]
    unsafe fn put_floats(floats: Self::Floats, to: *mut u8) {
        // SAFETY: the trait's promise.
        unsafe { _mm256_storeu_ps(to.cast(), floats) }
    }

    #[inline(always)]
    unsafe fn scales(all: Floats<'_>, at: usize, end: usize, log: u32) -> Self::Floats {
        assert!(at <= end && end <= all.len());
        // SAFETY: the trait's promise; eight floats are there, or in `last`.
        unsafe {
            let floats = if at + 8 <= all.len() {
                match all {
                    Floats::F32(all) => _mm256_loadu_ps(all.as_ptr().add(at)),
                    Floats::F16(all) => _mm256_cvtph_ps(_mm_loadu_si128(all.as_ptr().add(at).cast())),
                    Floats::Bf16(all) => {
                        let bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(all.as_ptr().add(at).cast()));
                        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(bits))
                    }
                }
            } else {
                let mut last = [0.0; 8];
                (at..end).for_each(|i| last[i - at] = all.get(i));
                _mm256_loadu_ps(last.as_ptr())
            };
            let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            let places = _mm256_srl_epi32(lanes, _mm_cvtsi32_si128(log as i32));
            let inside = _mm256_cmpgt_epi32(_mm256_set1_epi32((end - at).min(8) as i32), places);
            _mm256_and_ps(_mm256_permutevar8x32_ps(floats, places), _mm256_castsi256_ps(inside))
        }
    }

    const ROUNDS: bool = true;
    #[inline(always)]
    unsafe fn round_eight(x: *const f32, nibbles: bool, to: *mut u8) {
        // SAFETY: the trait's promise.
        unsafe { round_eight(x, nibbles, to, 32) }
    }

    #[inline(always)]
    unsafe fn nothing<const BITS: usize>() -> Self::Sum {
        // SAFETY: the trait's promise.
        unsafe { [_mm256_setzero_si256(); 2] }
    }

    #[inline(always)]
    unsafe fn add<const BITS: usize>(sum: Self::Sum, w: Self::Bytes, x: Self::Bytes) -> Self::Sum {
        // SAFETY: the trait's promise.
        unsafe {
            if VNNI {
                return [_mm256_dpbusd_avx_epi32(sum[0], w, x), sum[1]];
            }
            if BITS <= 4 {
                return [_mm256_add_epi16(sum[0], _mm256_maddubs_epi16(w, x)), sum[1]];
            }
            let [lower, upper] = nibbles(w);
            [_mm256_add_epi16(sum[0], _mm256_maddubs_epi16(lower, x)), _mm256_add_epi16(sum[1], _mm256_maddubs_epi16(upper, x))]
        }
    }

    #[inline(always)]
    unsafe fn value<const BITS: usize>(sum: Self::Sum, _: Self::Floats) -> Self::Floats {
        // SAFETY: the trait's promise.
        unsafe {
            if VNNI {
                return _mm256_cvtepi32_ps(sum[0]);
            }
            let mut whole = _mm256_madd_epi16(sum[0], _mm256_set1_epi16(1));
            if BITS > 4 {
                whole = _mm256_add_epi32(whole, _mm256_madd_epi16(sum[1], _mm256_set1_epi16(16)));
            }
            _mm256_cvtepi32_ps(whole)
        }
    }

    #[inline(always)]
    unsafe fn zero() -> Self::Floats {
        // SAFETY: the trait's promise.
        unsafe { _mm256_setzero_ps() }
    }

    #[inline(always)]
    unsafe fn scaled(total: Self::Floats, value: Self::Floats, w: [Self::Floats; 2], x: [Self::Floats; 2]) -> Self::Floats {
        // SAFETY: the trait's promise.
        unsafe { _mm256_fmadd_ps(x[0], _mm256_fmadd_ps(w[0], value, _mm256_mul_ps(w[1], x[1])), total) }
    }

    #[inline(always)]
    unsafe fn across(total: Self::Floats) -> f32 {
        // SAFETY: the trait's promise.
        unsafe {
            let four = _mm_add_ps(_mm256_castps256_ps128(total), _mm256_extractf128_ps::<1>(total));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }
}
