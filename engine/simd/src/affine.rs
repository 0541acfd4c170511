//! Affine-quantized rows: unpacking, and products with f32 rows.

use crate::{Kind, LANES, Path};

impl Path {
    /// Numbers of `bits` bits each from the start of `bytes`, as q * scale + bias. Each of the groups that `out` divides into has a
    /// scale and a bias.
    pub fn unpack(self, bits: usize, bytes: &[u8], scales: &[f32], biases: &[f32], out: &mut [f32]) {
        macro_rules! each {
            ($($bits:literal)*) => {
                match bits {
                    $($bits => self.unpack_bits::<$bits>(bytes, scales, biases, out),)*
                    other => unreachable!("no format has {other} bits"),
                }
            };
        }
        each!(2 3 4 5 6 8);
    }

    fn unpack_bits<const BITS: usize>(self, bytes: &[u8], scales: &[f32], biases: &[f32], out: &mut [f32]) {
        let group = out.len() / scales.len().max(1);
        assert!(group * scales.len() == out.len() && group.is_multiple_of(16) && scales.len() == biases.len());
        assert!(bytes.len() * 8 >= out.len() * BITS);
        match self.0 {
            Kind::Portable => portable::unpack::<BITS>(bytes, scales, biases, group, out),
            // SAFETY: a path exists only where the machine has it; the lengths are checked.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 | Kind::AvxVnni => unsafe { x86::unpack_avx2::<BITS>(bytes, scales, biases, group, out) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 | Kind::Avx512Vnni => unsafe { x86::unpack_avx512::<BITS>(bytes, scales, biases, group, out) },
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            Kind::Neon | Kind::NeonDot => unsafe { neon::unpack::<BITS>(bytes, scales, biases, group, out) },
        }
    }

    /// The dot product of every row of w [.., k] with every row of x [.., k], to `set(row of w, row of x, value)`; k is a multiple
    /// of 16. Each is summed in the same order whatever rows are beside it.
    pub fn dots(self, w: &[f32], x: &[f32], k: usize, mut set: impl FnMut(usize, usize, f32)) {
        assert!(k.is_multiple_of(LANES) && w.len().is_multiple_of(k) && x.len().is_multiple_of(k));
        let (rows, columns) = (w.len() / k, x.len() / k);
        let mut row = 0;
        while row < rows {
            let high = if rows - row >= 4 { 4 } else { 1 };
            let mut at = 0;
            while at < columns {
                let wide = if columns - at >= 4 { 4 } else { 1 };
                let (w, x) = (&w[row * k..(row + high) * k], &x[at * k..(at + wide) * k]);
                let put = |i: usize, j: usize, value: f32| set(row + i, at + j, value);
                match (high, wide) {
                    (4, 4) => self.tile::<4, 4>(w, x, k, put),
                    (4, _) => self.tile::<4, 1>(w, x, k, put),
                    (_, 4) => self.tile::<1, 4>(w, x, k, put),
                    _ => self.tile::<1, 1>(w, x, k, put),
                }
                at += wide;
            }
            row += high;
        }
    }

    fn tile<const H: usize, const W: usize>(self, w: &[f32], x: &[f32], k: usize, mut put: impl FnMut(usize, usize, f32)) {
        assert!(w.len() == H * k && x.len() == W * k && k.is_multiple_of(LANES));
        let sums = match self.0 {
            Kind::Portable => portable::tile::<H, W>(w, x, k),
            // Eight of its sixteen registers are sums.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 | Kind::AvxVnni if W == 4 => {
                let (left, right) = x.split_at(2 * k);
                // SAFETY: a path exists only where the machine has it; the lengths are checked.
                let halves = unsafe { [x86::tile_avx2::<H, 2>(w, left, k), x86::tile_avx2::<H, 2>(w, right, k)] };
                std::array::from_fn(|i| std::array::from_fn(|j| halves[j / 2][i][j % 2]))
            }
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 | Kind::AvxVnni => unsafe { x86::tile_avx2::<H, W>(w, x, k) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 | Kind::Avx512Vnni => unsafe { x86::tile_avx512::<H, W>(w, x, k) },
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            Kind::Neon | Kind::NeonDot => unsafe { neon::tile::<H, W>(w, x, k) },
        };
        for (i, row) in sums.iter().enumerate() {
            for (j, &value) in row.iter().enumerate() {
                put(i, j, value);
            }
        }
    }
}

#[cfg(target_arch = "aarch64")]
pub(crate) use neon::sixteen;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86::sixteen;

mod portable {
    use crate::LANES;

    pub(super) fn unpack<const BITS: usize>(bytes: &[u8], scales: &[f32], biases: &[f32], group: usize, out: &mut [f32]) {
        // Eight numbers are BITS whole bytes.
        let mut bytes = bytes.chunks_exact(BITS);
        for ((values, &scale), &bias) in out.chunks_exact_mut(group).zip(scales).zip(biases) {
            for (values, bytes) in values.chunks_exact_mut(8).zip(&mut bytes) {
                let mut word = [0; 8];
                word[..BITS].copy_from_slice(bytes);
                let word = u64::from_le_bytes(word);
                for (i, value) in values.iter_mut().enumerate() {
                    let q = (word >> (i * BITS)) & ((1 << BITS) - 1);
                    *value = q as f32 * scale + bias;
                }
            }
        }
    }

    pub(super) fn tile<const H: usize, const W: usize>(w: &[f32], x: &[f32], k: usize) -> [[f32; W]; H] {
        let dot = |w: &[f32], x: &[f32]| {
            let mut sums = [0f32; LANES];
            for (w, x) in w.chunks_exact(LANES).zip(x.chunks_exact(LANES)) {
                for ((sum, w), x) in sums.iter_mut().zip(w).zip(x) {
                    *sum += w * x;
                }
            }
            sums.iter().sum()
        };
        std::array::from_fn(|i| std::array::from_fn(|j| dot(&w[i * k..(i + 1) * k], &x[j * k..(j + 1) * k])))
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    /// How 16 numbers come out of 2 * BITS bytes: for each, the two bytes that hold it, and the factor that moves its bits to the
    /// upper end of the two.
    struct Spread<const BITS: usize>;

    impl<const BITS: usize> Spread<BITS> {
        const BYTES: [u8; 32] = {
            let mut all = [0; 32];
            let mut i = 0;
            while i < 16 {
                let byte = (i * BITS / 8) as u8;
                all[2 * i] = byte;
                // The upper bit makes it zero: past the bytes, where nothing of the number is.
                all[2 * i + 1] = if byte < 15 { byte + 1 } else { 0x80 };
                i += 1;
            }
            all
        };
        const FACTORS: [u16; 16] = {
            let mut all = [0; 16];
            let mut i = 0;
            while i < 16 {
                all[i] = 1 << (16 - BITS - i * BITS % 8);
                i += 1;
            }
            all
        };
    }

    /// The 16 bytes from `at` on, those past the end of the matrix as zeros.
    ///
    /// # Safety
    /// `at <= bytes.len()`
    #[inline(always)]
    unsafe fn bytes_at(bytes: &[u8], at: usize) -> __m128i {
        if at + 16 <= bytes.len() {
            // SAFETY: 16 bytes are there.
            return unsafe { _mm_loadu_si128(bytes.as_ptr().add(at).cast()) };
        }
        let mut last = [0u8; 16];
        last[..bytes.len() - at].copy_from_slice(&bytes[at..]);
        // SAFETY: 16 bytes are there.
        unsafe { _mm_loadu_si128(last.as_ptr().cast()) }
    }

    /// The 16 numbers at the start of these bytes, as u16.
    ///
    /// # Safety
    /// The machine has AVX2.
    #[inline(always)]
    pub(crate) unsafe fn sixteen<const BITS: usize>(bytes: __m128i) -> __m256i {
        // SAFETY: both constants have 32 bytes; the caller's promise.
        unsafe {
            let places = _mm256_loadu_si256(Spread::<BITS>::BYTES.as_ptr().cast());
            let factors = _mm256_loadu_si256(Spread::<BITS>::FACTORS.as_ptr().cast());
            let pairs = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), places);
            _mm256_srl_epi16(_mm256_mullo_epi16(pairs, factors), _mm_cvtsi32_si128(16 - BITS as i32))
        }
    }

    /// # Safety
    /// `bytes` has the numbers of `out`, which is groups of a multiple of 16 elements, each with its scale and bias.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn unpack_avx2<const BITS: usize>(
        bytes: &[u8],
        scales: &[f32],
        biases: &[f32],
        group: usize,
        out: &mut [f32],
    ) {
        let mut at = 0;
        for ((values, &scale), &bias) in out.chunks_exact_mut(group).zip(scales).zip(biases) {
            let (scale, bias) = (_mm256_set1_ps(scale), _mm256_set1_ps(bias));
            for values in values.chunks_exact_mut(16) {
                // SAFETY: the caller's promise.
                let numbers = unsafe { sixteen::<BITS>(bytes_at(bytes, at)) };
                at += 2 * BITS;
                let halves = [_mm256_castsi256_si128(numbers), _mm256_extracti128_si256::<1>(numbers)];
                for (half, values) in halves.into_iter().zip(values.chunks_exact_mut(8)) {
                    let q = _mm256_cvtepi32_ps(_mm256_cvtepu16_epi32(half));
                    // SAFETY: there are eight values.
                    unsafe { _mm256_storeu_ps(values.as_mut_ptr(), _mm256_add_ps(_mm256_mul_ps(q, scale), bias)) };
                }
            }
        }
    }

    /// # Safety
    /// As for [`unpack_avx2`].
    #[target_feature(enable = "avx2,fma,avx512f")]
    pub(super) unsafe fn unpack_avx512<const BITS: usize>(
        bytes: &[u8],
        scales: &[f32],
        biases: &[f32],
        group: usize,
        out: &mut [f32],
    ) {
        let mut at = 0;
        for ((values, &scale), &bias) in out.chunks_exact_mut(group).zip(scales).zip(biases) {
            let (scale, bias) = (_mm512_set1_ps(scale), _mm512_set1_ps(bias));
            for values in values.chunks_exact_mut(16) {
                // SAFETY: the caller's promise.
                let numbers = unsafe { sixteen::<BITS>(bytes_at(bytes, at)) };
                at += 2 * BITS;
                let q = _mm512_cvtepi32_ps(_mm512_cvtepu16_epi32(numbers));
                // SAFETY: there are sixteen values.
                unsafe { _mm512_storeu_ps(values.as_mut_ptr(), _mm512_add_ps(_mm512_mul_ps(q, scale), bias)) };
            }
        }
    }

    /// # Safety
    /// w has H rows of k elements, x has W, and k is a multiple of 16.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn tile_avx2<const H: usize, const W: usize>(w: &[f32], x: &[f32], k: usize) -> [[f32; W]; H] {
        let mut sums = [[_mm256_setzero_ps(); W]; H];
        for at in (0..k).step_by(8) {
            // Loops, because a closure in a library function would be called for each.
            let mut xs = [_mm256_setzero_ps(); W];
            for (j, to) in xs.iter_mut().enumerate() {
                // SAFETY: eight elements from `at` on are within the row.
                *to = unsafe { _mm256_loadu_ps(x.as_ptr().add(j * k + at)) };
            }
            for (i, row) in sums.iter_mut().enumerate() {
                // SAFETY: as above.
                let w = unsafe { _mm256_loadu_ps(w.as_ptr().add(i * k + at)) };
                for (sum, x) in row.iter_mut().zip(xs) {
                    *sum = _mm256_fmadd_ps(w, x, *sum);
                }
            }
        }
        let mut dots = [[0.0; W]; H];
        for (dots, sums) in dots.iter_mut().zip(sums) {
            for (dot, sum) in dots.iter_mut().zip(sums) {
                let four = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps::<1>(sum));
                let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
                *dot = _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
            }
        }
        dots
    }

    /// # Safety
    /// As for [`tile_avx2`].
    #[target_feature(enable = "avx2,fma,avx512f")]
    pub(super) unsafe fn tile_avx512<const H: usize, const W: usize>(w: &[f32], x: &[f32], k: usize) -> [[f32; W]; H] {
        let mut sums = [[_mm512_setzero_ps(); W]; H];
        for at in (0..k).step_by(16) {
            // Loops, because a closure in a library function would be called for each.
            let mut xs = [_mm512_setzero_ps(); W];
            for (j, to) in xs.iter_mut().enumerate() {
                // SAFETY: sixteen elements from `at` on are within the row.
                *to = unsafe { _mm512_loadu_ps(x.as_ptr().add(j * k + at)) };
            }
            for (i, row) in sums.iter_mut().enumerate() {
                // SAFETY: as above.
                let w = unsafe { _mm512_loadu_ps(w.as_ptr().add(i * k + at)) };
                for (sum, x) in row.iter_mut().zip(xs) {
                    *sum = _mm512_fmadd_ps(w, x, *sum);
                }
            }
        }
        let mut dots = [[0.0; W]; H];
        for (dots, sums) in dots.iter_mut().zip(sums) {
            for (dot, sum) in dots.iter_mut().zip(sums) {
                *dot = _mm512_reduce_add_ps(sum);
            }
        }
        dots
    }
}

#[cfg(target_arch = "aarch64")]
mod neon {
    use std::arch::aarch64::*;

    /// How 16 numbers come out of 2 * BITS bytes: for each, the two bytes that hold it, and how far its bits move down.
    struct Spread<const BITS: usize>;

    impl<const BITS: usize> Spread<BITS> {
        const BYTES: [u8; 32] = {
            let mut all = [0; 32];
            let mut i = 0;
            while i < 16 {
                all[2 * i] = (i * BITS / 8) as u8;
                // Past the bytes it makes zero, where nothing of the number is.
                all[2 * i + 1] = all[2 * i] + 1;
                i += 1;
            }
            all
        };
        const SHIFTS: [i16; 16] = {
            let mut all = [0; 16];
            let mut i = 0;
            while i < 16 {
                all[i] = -((i * BITS % 8) as i16);
                i += 1;
            }
            all
        };
    }

    /// The 16 numbers at the start of these bytes, as u16.
    ///
    /// # Safety
    /// The machine has NEON.
    #[inline(always)]
    pub(crate) unsafe fn sixteen<const BITS: usize>(bytes: uint8x16_t) -> [uint16x8_t; 2] {
        // SAFETY: both constants have 32 bytes; the caller's promise.
        unsafe {
            let mut out = [vdupq_n_u16(0); 2];
            for (i, out) in out.iter_mut().enumerate() {
                let places = vld1q_u8(Spread::<BITS>::BYTES.as_ptr().add(16 * i));
                let shifts = vld1q_s16(Spread::<BITS>::SHIFTS.as_ptr().add(8 * i));
                let pairs = vreinterpretq_u16_u8(vqtbl1q_u8(bytes, places));
                *out = vandq_u16(vshlq_u16(pairs, shifts), vdupq_n_u16((1 << BITS) - 1));
            }
            out
        }
    }

    /// # Safety
    /// `bytes` has the numbers of `out`, which is groups of a multiple of 16 elements, each with its scale and bias.
    pub(super) unsafe fn unpack<const BITS: usize>(bytes: &[u8], scales: &[f32], biases: &[f32], group: usize, out: &mut [f32]) {
        let mut at = 0;
        for ((values, &scale), &bias) in out.chunks_exact_mut(group).zip(scales).zip(biases) {
            for values in values.chunks_exact_mut(16) {
                let mut last = [0u8; 16];
                let from = match bytes.get(at..at + 16) {
                    Some(bytes) => bytes,
                    // The end of the matrix.
                    None => {
                        last[..bytes.len() - at].copy_from_slice(&bytes[at..]);
                        &last
                    }
                };
                at += 2 * BITS;
                // SAFETY: `from` has 16 bytes, `values` has 16 floats.
                unsafe {
                    let (scale, bias) = (vdupq_n_f32(scale), vdupq_n_f32(bias));
                    let [a, b] = sixteen::<BITS>(vld1q_u8(from.as_ptr()));
                    let fours = [vget_low_u16(a), vget_high_u16(a), vget_low_u16(b), vget_high_u16(b)];
                    for (i, four) in fours.into_iter().enumerate() {
                        let q = vcvtq_f32_u32(vmovl_u16(four));
                        // Not fused: two roundings, as everywhere.
                        vst1q_f32(values.as_mut_ptr().add(4 * i), vaddq_f32(vmulq_f32(q, scale), bias));
                    }
                }
            }
        }
    }

    /// # Safety
    /// w has H rows of k elements, x has W, and k is a multiple of 16.
    pub(super) unsafe fn tile<const H: usize, const W: usize>(w: &[f32], x: &[f32], k: usize) -> [[f32; W]; H] {
        // SAFETY: four elements from `at` on are within each row.
        unsafe {
            let mut sums = [[vdupq_n_f32(0.0); W]; H];
            for at in (0..k).step_by(4) {
                let mut xs = [vdupq_n_f32(0.0); W];
                for (j, to) in xs.iter_mut().enumerate() {
                    *to = vld1q_f32(x.as_ptr().add(j * k + at));
                }
                for (i, row) in sums.iter_mut().enumerate() {
                    let w = vld1q_f32(w.as_ptr().add(i * k + at));
                    for (sum, x) in row.iter_mut().zip(xs) {
                        *sum = vfmaq_f32(*sum, w, x);
                    }
                }
            }
            sums.map(|row| row.map(|sum| vaddvq_f32(sum)))
        }
    }
}
