//! Attention of a few queries over one page of keys and values.

use crate::rows::{exp, fma};
use crate::{Kind, Path};

/// Positions that a page has.
pub const PAGE: usize = 256;
/// Positions whose keys lie together, element by element: as many as four of the widest registers hold.
pub const BLOCK: usize = 64;
/// Queries at most.
pub const ROWS: usize = 4;

/// Where element `i` of the key at `position` of a page is, for keys of `width` elements.
pub fn key_at(position: usize, i: usize, width: usize) -> usize {
    position / BLOCK * BLOCK * width + i * BLOCK + position % BLOCK
}

/// Room for values of `width` elements: whole registers.
pub fn padded(width: usize) -> usize {
    width.next_multiple_of(16)
}

/// What some positions give a query: softmax in parts, which [`Path::merge`] joins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part {
    /// The highest score, -inf where there is none.
    pub max: f32,
    /// The sum of e^(score - max); what goes with it is the sum of the values times the same.
    pub sum: f32,
}

impl Part {
    /// Of no positions.
    pub const NONE: Self = Self { max: f32::NEG_INFINITY, sum: 0.0 };
}

/// A page of one head.
#[derive(Debug, Clone, Copy)]
pub struct Page<'a> {
    /// As [`key_at`] says; whole blocks, at least those that are looked at.
    pub keys: &'a [f32],
    /// [positions, padded(width)]
    pub values: &'a [f32],
    pub width: usize,
}

impl Path {
    /// For each of up to [`ROWS`] queries q [rows, width] that see the first `seen` positions of the page: the part, and in `sums`
    /// [rows, padded(width)] its values. A row depends on its query and on what it sees alone, bit for bit.
    pub fn attend(self, q: &[f32], page: Page<'_>, seen: &[usize], parts: &mut [Part], sums: &mut [f32]) {
        let (rows, wide) = (seen.len(), padded(page.width));
        let most = seen.iter().copied().max().unwrap_or(0);
        assert!(rows <= ROWS && most <= PAGE && q.len() == rows * page.width && parts.len() == rows && sums.len() == rows * wide);
        assert!(page.keys.len() >= most.next_multiple_of(BLOCK) * page.width && page.values.len() >= most * wide);
        match rows {
            0 => {}
            1 => self.rows::<1>(q, page, seen, parts, sums),
            2 => self.rows::<2>(q, page, seen, parts, sums),
            3 => self.rows::<3>(q, page, seen, parts, sums),
            _ => self.rows::<4>(q, page, seen, parts, sums),
        }
    }

    fn rows<const R: usize>(self, q: &[f32], page: Page<'_>, seen: &[usize], parts: &mut [Part], sums: &mut [f32]) {
        match self.0 {
            // SAFETY: the lengths are checked, and a path exists only where the machine has it.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 | Kind::AvxVnni => unsafe { x86::avx2::<R>(q, page, seen, parts, sums) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 | Kind::Avx512Vnni => unsafe { x86::avx512::<R>(q, page, seen, parts, sums) },
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            Kind::Neon | Kind::NeonDot => unsafe { attend::<true, Plain, R, 2>(q, page, seen, parts, sums) },
            // SAFETY: as above.
            Kind::Portable => unsafe { attend::<{ cfg!(target_arch = "aarch64") }, Plain, R, 2>(q, page, seen, parts, sums) },
        }
    }

    /// Joins the part of later positions, with its values, to one of earlier positions.
    pub fn merge(self, whole: &mut Part, sums: &mut [f32], part: Part, values: &[f32]) {
        // Nothing seen; not so where the sum is not a number.
        if part.sum == 0.0 {
            return;
        }
        let max = if whole.max > part.max { whole.max } else { part.max };
        let factor = |of: f32| if of == max { 1.0 } else { exp::<false>(of - max) };
        let (old, new) = (factor(whole.max), factor(part.max));
        *whole = Part { max, sum: whole.sum * old + part.sum * new };
        for (sum, value) in sums.iter_mut().zip(values) {
            *sum = *sum * old + value * new;
        }
    }
}

/// A register of f32.
///
/// # Safety
/// Of all functions: the processor has the instructions, and at the address are as many elements.
trait Register: Copy {
    const LANES: usize;
    unsafe fn splat(x: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    /// self * b + c
    unsafe fn mul_add(self, b: Self, c: Self) -> Self;
}

/// What any compiler makes registers of.
type Plain = [f32; 4];

impl Register for Plain {
    const LANES: usize = 4;
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        [x; 4]
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's promise; an array has its elements' alignment.
        unsafe { from.cast::<Self>().read() }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<Self>().write(self) }
    }
    #[inline(always)]
    unsafe fn mul_add(self, b: Self, mut c: Self) -> Self {
        for ((c, a), b) in c.iter_mut().zip(self).zip(b) {
            *c = fma::<{ cfg!(target_arch = "aarch64") }>(a, b, *c);
        }
        c
    }
}

/// Scores of BLOCK keys: to[row][position] = q[row] . key
///
/// # Safety
/// `q` has R rows of `width` elements, `keys` a block.
#[inline(always)]
unsafe fn scores<S: Register, const R: usize, const V: usize>(
    q: *const f32,
    keys: *const f32,
    width: usize,
    to: &mut [[f32; PAGE]; R],
    first: usize,
) {
    let step = V * S::LANES;
    for start in (0..BLOCK).step_by(step) {
        // SAFETY: `start` and what a step reads after it are within the block's 64 columns, `i` within its rows.
        unsafe {
            let mut sums = [[S::splat(0.0); V]; R];
            for i in 0..width {
                let mut columns = [S::splat(0.0); V];
                for (v, column) in columns.iter_mut().enumerate() {
                    *column = S::load(keys.add(i * BLOCK + start + v * S::LANES));
                }
                for (r, row) in sums.iter_mut().enumerate() {
                    let x = S::splat(*q.add(r * width + i));
                    for (sum, column) in row.iter_mut().zip(columns) {
                        *sum = x.mul_add(column, *sum);
                    }
                }
            }
            for (row, to) in sums.iter().zip(to.iter_mut()) {
                for (v, sum) in row.iter().enumerate() {
                    sum.store(to[first + start + v * S::LANES..][..S::LANES].as_mut_ptr());
                }
            }
        }
    }
}

/// sums[row] += weight[row][position] * value, for positions in their order; 16 columns at a time of V registers.
///
/// # Safety
/// `values` has the positions as rows of `wide` elements, of which V registers are there from the address on; `sums` has R such rows.
#[inline(always)]
unsafe fn weigh<S: Register, const R: usize, const V: usize>(
    weights: [&[f32]; R],
    values: *const f32,
    wide: usize,
    sums: *mut f32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut all = [[S::splat(0.0); V]; R];
        for (r, row) in all.iter_mut().enumerate() {
            for (v, sum) in row.iter_mut().enumerate() {
                *sum = S::load(sums.add(r * wide + v * S::LANES));
            }
        }
        for position in 0..weights[0].len() {
            let mut columns = [S::splat(0.0); V];
            for (v, column) in columns.iter_mut().enumerate() {
                *column = S::load(values.add(position * wide + v * S::LANES));
            }
            for (row, weights) in all.iter_mut().zip(weights) {
                let x = S::splat(*weights.get_unchecked(position));
                for (sum, column) in row.iter_mut().zip(columns) {
                    *sum = x.mul_add(column, *sum);
                }
            }
        }
        for (r, row) in all.iter().enumerate() {
            for (v, sum) in row.iter().enumerate() {
                sum.store(sums.add(r * wide + v * S::LANES));
            }
        }
    }
}

/// # Safety
/// As [`weigh`], for whole rows: all weights have one length.
#[inline(always)]
unsafe fn weigh_all<S: Register, const R: usize, const V: usize>(
    weights: [&[f32]; R],
    values: &[f32],
    wide: usize,
    sums: *mut f32,
) {
    let mut column = 0;
    // SAFETY: the columns are within a row.
    unsafe {
        while column + V * S::LANES <= wide {
            weigh::<S, R, V>(weights, values.as_ptr().add(column), wide, sums.add(column));
            column += V * S::LANES;
        }
        while column < wide {
            weigh::<S, R, 1>(weights, values.as_ptr().add(column), wide, sums.add(column));
            column += S::LANES;
        }
    }
}

/// [`Path::attend`] with R rows.
///
/// # Safety
/// The processor has S's instructions, and the lengths are as checked there.
#[inline(always)]
unsafe fn attend<const FUSED: bool, S: Register, const R: usize, const V: usize>(
    q: &[f32],
    page: Page<'_>,
    seen: &[usize],
    parts: &mut [Part],
    sums: &mut [f32],
) {
    let (width, wide) = (page.width, padded(page.width));
    let (mut most, mut least) = (0, PAGE);
    for &n in seen {
        (most, least) = (most.max(n), least.min(n));
    }
    let mut weights = [[0f32; PAGE]; R];
    for first in (0..most).step_by(BLOCK) {
        // SAFETY: there are so many whole blocks of keys, and R queries.
        unsafe { scores::<S, R, V>(q.as_ptr(), page.keys.as_ptr().add(first * width), width, &mut weights, first) };
    }
    for ((weights, &n), part) in weights.iter_mut().zip(seen).zip(parts.iter_mut()) {
        *part = softmax::<FUSED>(weights, n);
    }
    sums.fill(0.0);
    let mut shared = [&[][..]; R];
    for (to, weights) in shared.iter_mut().zip(&weights) {
        *to = &weights[..least];
    }
    // SAFETY: values and sums have rows of `wide` elements, as many as are asked for.
    unsafe { weigh_all::<S, R, V>(shared, page.values, wide, sums.as_mut_ptr()) };
    // What only some rows see: a value that is not a number must not reach the others, which a weight of 0 would let it.
    for (r, &n) in seen.iter().enumerate() {
        if n > least {
            let (weights, values) = (&weights[r][least..n], &page.values[least * wide..]);
            // SAFETY: as above.
            unsafe { weigh_all::<S, 1, V>([weights], values, wide, sums[r * wide..(r + 1) * wide].as_mut_ptr()) };
        }
    }
}

/// Scores to weights e^(score - max), for the first n; the others become 0.
#[inline(always)]
fn softmax<const FUSED: bool>(scores: &mut [f32; PAGE], n: usize) -> Part {
    let end = n.next_multiple_of(16);
    scores[n..end].fill(f32::NEG_INFINITY);
    let scores = &mut scores[..end];
    let mut highest = [f32::NEG_INFINITY; 16];
    for scores in scores.as_chunks::<16>().0 {
        for (high, score) in highest.iter_mut().zip(scores) {
            *high = if score > high { *score } else { *high };
        }
    }
    let max = highest.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    // Where all are -inf the weights are 0, not what -inf - -inf is.
    let base = if max == f32::NEG_INFINITY { 0.0 } else { max };
    let mut sums = [0f32; 16];
    for scores in scores.as_chunks_mut::<16>().0 {
        for (sum, score) in sums.iter_mut().zip(scores) {
            *score = exp::<FUSED>(*score - base);
            *sum += *score;
        }
    }
    Part { max, sum: sums.iter().sum() }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Page, Part, Register, attend};

    macro_rules! register {
        ($type:ty, $lanes:literal, $splat:ident, $load:ident, $store:ident, $fma:ident) => {
            impl Register for $type {
                const LANES: usize = $lanes;
                #[inline(always)]
                unsafe fn splat(x: f32) -> Self {
                    // SAFETY: the caller's promise.
                    unsafe { $splat(x) }
                }
                #[inline(always)]
                unsafe fn load(from: *const f32) -> Self {
                    // SAFETY: as above.
                    unsafe { $load(from) }
                }
                #[inline(always)]
                unsafe fn store(self, to: *mut f32) {
                    // SAFETY: as above.
                    unsafe { $store(to, self) }
                }
                #[inline(always)]
                unsafe fn mul_add(self, b: Self, c: Self) -> Self {
                    // SAFETY: as above.
                    unsafe { $fma(self, b, c) }
                }
            }
        };
    }
    register!(__m256, 8, _mm256_set1_ps, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_fmadd_ps);
    register!(__m512, 16, _mm512_set1_ps, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_fmadd_ps);

    /// Eight of its sixteen registers are sums.
    ///
    /// # Safety
    /// As for [`attend`].
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn avx2<const R: usize>(q: &[f32], page: Page<'_>, seen: &[usize], parts: &mut [Part], sums: &mut [f32]) {
        // SAFETY: the caller's promise.
        unsafe { attend::<true, __m256, R, 2>(q, page, seen, parts, sums) }
    }

    /// Sixteen of its 32 registers are sums.
    ///
    /// # Safety
    /// As for [`attend`].
    #[target_feature(enable = "avx2,fma,avx512f")]
    pub(super) unsafe fn avx512<const R: usize>(q: &[f32], page: Page<'_>, seen: &[usize], parts: &mut [Part], sums: &mut [f32]) {
        // SAFETY: the caller's promise.
        unsafe { attend::<true, __m512, R, 4>(q, page, seen, parts, sums) }
    }
}

#[cfg(test)]
mod tests;
