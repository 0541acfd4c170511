//! Products of packed rows with rows that are rounded to 16 bits: whole numbers within 32 elements, f32 across them.
//!
//! x is rounded to x.scale * i for each 32 elements, with i in -127..=127, and what that leaves is rounded in the same way: x is the
//! sum of two rows of 8 bits. (One alone moves a small model's likelihoods by a quarter of a nat.) w is q * w.scale + w.bias. So 32
//! elements of either give x.scale * (w.scale * sum(q * i) + w.bias * sum(i)), with both sums exact. The bias meets the rounded x,
//! not the true one: then the error is that of rounding times w, and not times q * w.scale, which is larger.
//!
//! A row becomes steps. A full step has as many groups of 32 as a register has lanes, so that a lane is a group and eight products
//! of four bytes each give its sum. What is left at the end of a row are quarter steps: four lanes are a group, two products each.
//! In memory a step is the lanes' scales, then their biases (for x: the sums of i), then the bytes of each product; an unpacked
//! tile of w and a rounded x look alike.

use std::ops::Range;

use half::{bf16, f16};

use crate::{Kind, Out, Path};

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
#[cfg(test)]
mod tests;

/// Elements of x with a scale of their own.
const GROUP: usize = 32;
/// Bytes after those of a step that loads may touch.
const SLACK: usize = 64;
/// Below this nothing is left of a group: its scale would be a denormal number, whose inverse is not finite.
const LEAST: f32 = f32::MIN_POSITIVE * 127.0;

/// Floats as they lie.
#[derive(Debug, Clone, Copy)]
pub enum Floats<'a> {
    F32(&'a [f32]),
    F16(&'a [f16]),
    Bf16(&'a [bf16]),
}

impl Floats<'_> {
    pub fn len(&self) -> usize {
        match self {
            Self::F32(all) => all.len(),
            Self::F16(all) => all.len(),
            Self::Bf16(all) => all.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, at: usize) -> f32 {
        match self {
            Self::F32(all) => all[at],
            Self::F16(all) => all[at].to_f32(),
            Self::Bf16(all) => all[at].to_f32(),
        }
    }
}

/// A packed matrix [rows, columns]: numbers of `bits` bits without gaps, a scale and a bias for each `group` of a row.
#[derive(Debug, Clone, Copy)]
pub struct Packed<'a> {
    bits: usize,
    columns: usize,
    rows: usize,
    /// log2(group / 32)
    log: u32,
    bytes: &'a [u8],
    scales: Floats<'a>,
    biases: Floats<'a>,
}

impl<'a> Packed<'a> {
    /// `None` where these are no matrix: bits of 2, 3, 4, 5, 6 or 8, groups of 32, 64 or 128 that divide the columns, whole rows.
    pub fn new(
        bits: usize,
        group: usize,
        columns: usize,
        bytes: &'a [u8],
        scales: Floats<'a>,
        biases: Floats<'a>,
    ) -> Option<Self> {
        let fits = matches!(bits, 2..=6 | 8) && matches!(group, 32 | 64 | 128) && columns > 0 && columns.is_multiple_of(group);
        let row = columns * bits / 8;
        if !fits || !bytes.len().is_multiple_of(row) {
            return None;
        }
        let rows = bytes.len() / row;
        let alike = scales.len() == rows * (columns / group) && biases.len() == scales.len();
        alike.then_some(Self { bits, columns, rows, log: (group / GROUP).ilog2(), bytes, scales, biases })
    }

    pub fn bits(&self) -> usize {
        self.bits
    }

    pub fn rows(&self) -> usize {
        self.rows
    }
}

/// As much as the widest register, and aligned like it.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Rows of x, rounded for one kind of matrix on one path, each as two rows of steps. Can be filled again.
#[derive(Debug, Default)]
pub struct Rounded {
    lines: Vec<Line>,
    shape: Option<Shape>,
    rows: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    path: Path,
    columns: usize,
    nibbles: bool,
}

impl Rounded {
    /// Bytes of one row of x.
    pub fn row_bytes(path: Path, columns: usize) -> usize {
        2 * Steps::of(path, columns).lines() * 64
    }

    pub fn rows(&self) -> usize {
        self.rows
    }
}

/// Memory of one thread's tiles. Can be used again.
#[derive(Debug, Default)]
pub struct Tile(Vec<Line>);

/// A result from one of its rows on.
#[derive(Clone, Copy)]
struct At<'a>(&'a Out<'a>, usize);

impl At<'_> {
    /// What a row of steps gives: the first of two sets, the second adds.
    ///
    /// # Safety
    /// As for [`Out::set`].
    #[inline(always)]
    unsafe fn put(self, row: usize, column: usize, value: f32) {
        // SAFETY: the caller's promise.
        unsafe {
            match row % 2 {
                0 => self.0.set(self.1 + row / 2, column, value),
                _ => self.0.add(self.1 + row / 2, column, value),
            }
        }
    }
}

/// What a row of groups divides into.
#[derive(Debug, Clone, Copy)]
struct Steps {
    lanes: usize,
    full: usize,
    quarter: usize,
}

impl Steps {
    fn of(path: Path, columns: usize) -> Self {
        let lanes = match path.0 {
            Kind::Portable => portable::Portable::LANES,
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 | Kind::Avx512 | Kind::AvxVnni => avx2::Avx2::<false>::LANES,
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512Vnni => avx512::Avx512::LANES,
            #[cfg(target_arch = "aarch64")]
            Kind::Neon | Kind::NeonDot => neon::Neon::<false>::LANES,
        };
        let groups = columns / GROUP;
        let (full, rest) = (groups / lanes, groups % lanes);
        match rest.div_ceil(lanes / 4) {
            quarter @ 0..=2 => Self { lanes, full, quarter },
            // A full step costs as much as two quarters and is not always full.
            _ => Self { lanes, full: full + 1, quarter: 0 },
        }
    }

    /// Of one row; rows begin at whole ones.
    fn lines(self) -> usize {
        (self.full_bytes() * self.full + self.quarter_bytes() * self.quarter).div_ceil(64)
    }

    /// Two lines of floats and eight of bytes.
    fn full_bytes(self) -> usize {
        4 * self.lanes * 10
    }

    fn quarter_bytes(self) -> usize {
        4 * self.lanes * 4
    }
}

/// What an instruction set does with one register.
///
/// # Safety
/// Of all functions: the machine has the instructions, and pointers are good for a register's bytes (`full` and `quarter`: for those
/// of the numbers and [`SLACK`]).
trait Isa {
    const LANES: usize;
    type Bytes: Copy;
    type Sum: Copy;
    type Floats: Copy;

    /// The numbers of `LANES` groups: of each product, four bytes a lane.
    unsafe fn full<const BITS: usize>(from: *const u8) -> [Self::Bytes; 8];
    /// The numbers of `LANES / 4` groups.
    unsafe fn quarter<const BITS: usize>(from: *const u8) -> [Self::Bytes; 2];
    unsafe fn bytes(from: *const u8) -> Self::Bytes;
    unsafe fn put_bytes(bytes: Self::Bytes, to: *mut u8);
    unsafe fn floats(from: *const u8) -> Self::Floats;
    unsafe fn put_floats(floats: Self::Floats, to: *mut u8);
    /// Lane i has the float `at + (i >> log)` where that is below `end`, else zero.
    unsafe fn scales(all: Floats<'_>, at: usize, end: usize, log: u32) -> Self::Floats;
    /// Rounds eight groups as [`round`] does, into eight lanes of a step from `to` on, where it can do so quicker.
    const ROUNDS: bool = false;
    unsafe fn round_eight(_x: *const f32, _nibbles: bool, _to: *mut u8) {
        unreachable!("the caller has looked at ROUNDS")
    }
    unsafe fn nothing<const BITS: usize>() -> Self::Sum;
    /// The sum and the products of four bytes of w with four of x. At most eight times.
    unsafe fn add<const BITS: usize>(sum: Self::Sum, w: Self::Bytes, x: Self::Bytes) -> Self::Sum;
    /// The sum as floats; `ones` is that of x's numbers.
    unsafe fn value<const BITS: usize>(sum: Self::Sum, ones: Self::Floats) -> Self::Floats;
    unsafe fn zero() -> Self::Floats;
    /// total + x.0 * (w.0 * value + w.1 * x.1)
    unsafe fn scaled(total: Self::Floats, value: Self::Floats, w: [Self::Floats; 2], x: [Self::Floats; 2]) -> Self::Floats;
    /// Of all lanes.
    unsafe fn across(total: Self::Floats) -> f32;
}

/// Which of a group's 32 elements is the `place`th of those that are multiplied. Those of a packed byte's lower half come together,
/// and those of its upper half.
const fn element(nibbles: bool, place: usize) -> usize {
    if nibbles { place / 8 * 8 + place % 4 * 2 + place / 4 % 2 } else { place }
}

/// Of a group whose largest element this is, and its inverse.
#[inline(always)]
fn scale(largest: f32) -> (f32, f32) {
    match largest {
        _ if !largest.is_finite() => (f32::NAN, 0.0),
        _ if largest < LEAST => (0.0, 0.0),
        _ => (largest / 127.0, 127.0 / largest),
    }
}

/// What rounding leaves of a row.
#[inline(always)]
fn remainders(x: &[f32], out: &mut [f32]) {
    for (group, out) in x.chunks_exact(GROUP).zip(out.chunks_exact_mut(GROUP)) {
        let largest = group.iter().fold(0, |all, v| (v.to_bits() & 0x7FFF_FFFF).max(all));
        let (scale, inverse) = scale(f32::from_bits(largest));
        for (to, v) in out.iter_mut().zip(group) {
            // The same whole number as in `round`.
            *to = v - scale * ((v * inverse + WHOLE) - WHOLE);
        }
    }
}

/// Added to a float below 2^22 it leaves no place for a fraction: what remains is the nearest whole number, an even one of two.
const WHOLE: f32 = 12_582_912.0;

/// One row of x as steps.
///
/// # Safety
/// The machine has the instructions.
#[inline(always)]
unsafe fn round<I: Isa>(x: &[f32], nibbles: bool, steps: Steps, out: &mut [Line]) {
    // SAFETY: lines are bytes.
    let out = unsafe { std::slice::from_raw_parts_mut(out.as_mut_ptr().cast::<u8>(), out.len() * 64) };
    let (lanes, register) = (steps.lanes, 4 * steps.lanes);
    let (full, quarter) = (steps.full_bytes(), steps.quarter_bytes());
    let in_full = steps.full * lanes;
    // Lanes of no group must not count: the last step begins as zeros.
    let used = steps.full * full + steps.quarter * quarter;
    out[used - if steps.quarter == 0 { full } else { quarter }..].fill(0);
    let quick = if I::ROUNDS { in_full.min(x.len() / GROUP) / 8 * 8 } else { 0 };
    for index in (0..quick).step_by(8) {
        let at = index / lanes * full + index % lanes * 4;
        // SAFETY: eight groups are there, and as many lanes of one step.
        unsafe { I::round_eight(x[index * GROUP..].as_ptr(), nibbles, out[at..].as_mut_ptr()) };
    }
    for (index, group) in x.chunks_exact(GROUP).enumerate().skip(quick) {
        // Of the bits, because these order NaN above infinity, and a maximum of floats ignores NaN.
        let largest = group.iter().fold(0, |all, v| (v.to_bits() & 0x7FFF_FFFF).max(all));
        let (scale, inverse) = scale(f32::from_bits(largest));
        // The lowest byte of the sum is the whole number, because its last bit stands for one.
        let mut whole = [0i8; GROUP];
        for (to, v) in whole.iter_mut().zip(group) {
            *to = (v * inverse + WHOLE).to_bits() as i8;
        }
        let mut placed = [0i8; GROUP];
        if nibbles {
            (0..GROUP).for_each(|i| placed[i] = whole[element(true, i)]);
        } else {
            placed = whole;
        }
        let mut four = |at: usize, value: [u8; 4]| out[at..at + 4].copy_from_slice(&value);
        let dword = |d: usize| -> [u8; 4] { std::array::from_fn(|i| placed[4 * d + i] as u8) };
        let sum = |places: &[i8]| places.iter().map(|&v| i32::from(v)).sum::<i32>() as f32;
        if index < in_full {
            let at = index / lanes * full + index % lanes * 4;
            four(at, scale.to_ne_bytes());
            four(at + register, sum(&placed).to_ne_bytes());
            (0..8).for_each(|d| four(at + (2 + d) * register, dword(d)));
        } else {
            let index = index - in_full;
            let at = steps.full * full + index / (lanes / 4) * quarter + index % (lanes / 4) * 16;
            for part in 0..4 {
                let at = at + 4 * part;
                four(at, scale.to_ne_bytes());
                four(at + register, sum(&placed[8 * part..8 * part + 8]).to_ne_bytes());
                (0..2).for_each(|d| four(at + (2 + d) * register, dword(2 * part + d)));
            }
        }
    }
}

/// Where `len` bytes from `at` on and some more can be read.
#[inline(always)]
fn readable(bytes: &[u8], at: usize, len: usize, spare: &mut [u8; 512 + SLACK]) -> *const u8 {
    let rest = &bytes[at..];
    if rest.len() >= len + SLACK {
        return rest.as_ptr();
    }
    // The end of the matrix.
    *spare = [0; 512 + SLACK];
    let there = len.min(rest.len());
    spare[..there].copy_from_slice(&rest[..there]);
    spare.as_ptr()
}

/// Calls `each` for every step of a row of w: its number of products, its scales and biases, where its numbers are, and where it
/// begins in a row of steps.
macro_rules! each_step {
    ($I:ident, $BITS:ident, $w:ident, $row:ident, $steps:ident, |$scales:ident, $from:ident, $at:ident| $full:expr, $quarter:expr) => {{
        let (start, groups) = ($row * $w.columns * $BITS / 8, $w.columns / GROUP);
        let (first, end) = ($row * (groups >> $w.log), ($row + 1) * (groups >> $w.log));
        let mut spare = [0; 512 + SLACK];
        let (bytes, mut $at) = (4 * $BITS, 0);
        let mut group = 0;
        for _ in 0..$steps.full {
            let at = first + (group >> $w.log);
            let $scales = [$I::scales($w.scales, at, end, $w.log), $I::scales($w.biases, at, end, $w.log)];
            let $from = readable($w.bytes, start + group * bytes, $I::LANES * bytes, &mut spare);
            $full;
            group += $I::LANES;
            $at += $steps.full_bytes();
        }
        for _ in 0..$steps.quarter {
            let at = first + (group >> $w.log);
            let $scales = [$I::scales($w.scales, at, end, $w.log + 2), $I::scales($w.biases, at, end, $w.log + 2)];
            let $from = readable($w.bytes, start + group * bytes, $I::LANES / 4 * bytes, &mut spare);
            $quarter;
            group += $I::LANES / 4;
            $at += $steps.quarter_bytes();
        }
    }};
}

/// What one step adds to the total, with R rows of w and C of x.
///
/// # Safety
/// As for [`Isa`].
#[inline(always)]
unsafe fn meet<I: Isa, const BITS: usize, const S: usize, const R: usize, const C: usize>(
    totals: &mut [[I::Floats; C]; R],
    scales: [[I::Floats; 2]; R],
    numbers: impl Fn(usize, usize) -> I::Bytes,
    x: [*const u8; C],
) {
    let register = 4 * I::LANES;
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [[I::nothing::<BITS>(); C]; R];
        for s in 0..S {
            let mut xs = [I::bytes(x[0].add((2 + s) * register)); C];
            for j in 1..C {
                xs[j] = I::bytes(x[j].add((2 + s) * register));
            }
            for (i, sums) in sums.iter_mut().enumerate() {
                let w = numbers(i, s);
                for j in 0..C {
                    sums[j] = I::add::<BITS>(sums[j], w, xs[j]);
                }
            }
        }
        for j in 0..C {
            let x = [I::floats(x[j]), I::floats(x[j].add(register))];
            for i in 0..R {
                totals[i][j] = I::scaled(totals[i][j], I::value::<BITS>(sums[i][j], x[1]), scales[i], x);
            }
        }
    }
}

/// The products of one packed row with both rows of steps of one row of x.
///
/// # Safety
/// As for [`Isa`]; x has twice the steps of a row.
#[inline(always)]
unsafe fn single<I: Isa, const BITS: usize>(w: &Packed<'_>, row: usize, x: *const u8, steps: Steps) -> [f32; 2] {
    // SAFETY: the caller's promise; `readable` is.
    unsafe {
        let rest = x.add(steps.lines() * 64);
        let mut total = [[I::zero(); 2]];
        each_step!(
            I,
            BITS,
            w,
            row,
            steps,
            |scales, from, at| {
                let q = I::full::<BITS>(from);
                meet::<I, BITS, 8, 1, 2>(&mut total, [scales], |_, s| q[s], [x.add(at), rest.add(at)])
            },
            {
                let q = I::quarter::<BITS>(from);
                meet::<I, BITS, 2, 1, 2>(&mut total, [scales], |_, s| q[s], [x.add(at), rest.add(at)])
            }
        );
        total[0].map(|total| I::across(total))
    }
}

/// One packed row as steps.
///
/// # Safety
/// As for [`Isa`]; `to` has room for the steps of a row.
#[inline(always)]
unsafe fn spread<I: Isa, const BITS: usize>(w: &Packed<'_>, row: usize, to: *mut u8, steps: Steps) {
    let register = 4 * I::LANES;
    // SAFETY: the caller's promise; `readable` is.
    unsafe {
        each_step!(
            I,
            BITS,
            w,
            row,
            steps,
            |scales, from, at| {
                (0..2).for_each(|i| I::put_floats(scales[i], to.add(at + i * register)));
                for (s, q) in I::full::<BITS>(from).into_iter().enumerate() {
                    I::put_bytes(q, to.add(at + (2 + s) * register));
                }
            },
            {
                (0..2).for_each(|i| I::put_floats(scales[i], to.add(at + i * register)));
                for (s, q) in I::quarter::<BITS>(from).into_iter().enumerate() {
                    I::put_bytes(q, to.add(at + (2 + s) * register));
                }
            }
        );
    }
}

/// The products of R spread rows with C rows of x.
///
/// # Safety
/// As for [`Isa`]; w has R rows of steps, x has C.
#[inline(always)]
unsafe fn tile<I: Isa, const BITS: usize, const R: usize, const C: usize>(
    w: *const u8,
    x: *const u8,
    steps: Steps,
) -> [[f32; C]; R] {
    let (register, stride) = (4 * I::LANES, steps.lines() * 64);
    // SAFETY: the caller's promise.
    unsafe {
        let mut totals = [[I::zero(); C]; R];
        let mut at = 0;
        macro_rules! step {
            ($S:literal) => {
                let mut scales = [[I::zero(); 2]; R];
                for i in 0..R {
                    let w = w.add(i * stride + at);
                    scales[i] = [I::floats(w), I::floats(w.add(register))];
                }
                let mut xs = [x.add(at); C];
                for j in 1..C {
                    xs[j] = x.add(j * stride + at);
                }
                let numbers = |i: usize, s: usize| I::bytes(w.add(i * stride + at + (2 + s) * register));
                meet::<I, BITS, $S, R, C>(&mut totals, scales, numbers, xs)
            };
        }
        for _ in 0..steps.full {
            step!(8);
            at += steps.full_bytes();
        }
        for _ in 0..steps.quarter {
            step!(2);
            at += steps.quarter_bytes();
        }
        let mut out = [[0.0; C]; R];
        for i in 0..R {
            for j in 0..C {
                out[i][j] = I::across(totals[i][j]);
            }
        }
        out
    }
}

/// Where a tile that begins at this row of w and of x belongs.
///
/// # Safety
/// As for [`tile`] and [`Out::set`].
#[inline(always)]
unsafe fn put<I: Isa, const BITS: usize, const R: usize, const C: usize>(
    w: *const u8,
    x: *const u8,
    steps: Steps,
    [row, column]: [usize; 2],
    out: At<'_>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let values = tile::<I, BITS, R, C>(w, x, steps);
        for j in 0..C {
            for (i, values) in values.iter().enumerate() {
                out.put(column + j, row + i, values[j]);
            }
        }
    }
}

/// Rows of w that are spread together, whatever tiles they divide into.
const HIGH: usize = 4;

/// # Safety
/// As for [`Isa`] and [`Out::set`]; `rows` are of w, `lines` has `count` rows of steps for it, two of each row of x.
#[inline(always)]
unsafe fn products<I: Isa, const BITS: usize, const R: usize, const C: usize>(
    w: &Packed<'_>,
    rows: Range<usize>,
    (lines, count): (&[Line], usize),
    spare: &mut Tile,
    steps: Steps,
    out: At<'_>,
) {
    let stride = steps.lines();
    let x = lines.as_ptr().cast::<u8>();
    // SAFETY: the caller's promise; the tile has room for HIGH rows.
    unsafe {
        if count == 2 {
            for row in rows {
                let [first, rest] = single::<I, BITS>(w, row, x, steps);
                out.put(0, row, first);
                out.put(1, row, rest);
            }
            return;
        }
        if spare.0.len() < HIGH * stride {
            spare.0.resize(HIGH * stride, Line([0; 64]));
        }
        let unpacked = spare.0.as_mut_ptr().cast::<u8>();
        for first in rows.clone().step_by(HIGH) {
            let high = HIGH.min(rows.end - first);
            for i in 0..high {
                spread::<I, BITS>(w, first + i, unpacked.add(i * stride * 64), steps);
            }
            let mut column = 0;
            while column < count {
                let x = x.add(column * stride * 64);
                let wide = if count - column >= C { C } else { 1 };
                let mut i = 0;
                while i < high {
                    let w = unpacked.add(i * stride * 64);
                    let tall = if high - i >= R { R } else { 1 };
                    match (tall == R, wide == C) {
                        (true, true) => put::<I, BITS, R, C>(w, x, steps, [first + i, column], out),
                        (true, false) => put::<I, BITS, R, 1>(w, x, steps, [first + i, column], out),
                        (false, true) => put::<I, BITS, 1, C>(w, x, steps, [first + i, column], out),
                        (false, false) => put::<I, BITS, 1, 1>(w, x, steps, [first + i, column], out),
                    }
                    i += tall;
                }
                column += wide;
            }
        }
    }
}

/// The functions of a path, compiled for its instructions.
macro_rules! entries {
    ($module:ident, $isa:ty, $features:literal, $rows:literal, $columns:literal) => {
        mod $module {
            use super::*;

            /// # Safety
            /// The machine has the instructions.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn round_rows(x: &[f32], columns: usize, nibbles: bool, steps: Steps, out: &mut [Line]) {
                let mut rest = vec![0.0; columns];
                for (x, out) in x.chunks_exact(columns).zip(out.chunks_exact_mut(2 * steps.lines())) {
                    let (first, second) = out.split_at_mut(steps.lines());
                    remainders(x, &mut rest);
                    // SAFETY: the caller's promise.
                    unsafe {
                        round::<$isa>(x, nibbles, steps, first);
                        round::<$isa>(&rest, nibbles, steps, second);
                    }
                }
            }

            /// # Safety
            /// The machine has the instructions; `rows` are of w, x is rounded for it on this path, and as for [`Out::set`].
            #[target_feature(enable = $features)]
            pub(super) unsafe fn run<const BITS: usize>(
                w: &Packed<'_>,
                rows: Range<usize>,
                x: (&[Line], usize),
                spare: &mut Tile,
                steps: Steps,
                out: At<'_>,
            ) {
                // SAFETY: the caller's promise.
                unsafe { products::<$isa, BITS, $rows, $columns>(w, rows, x, spare, steps, out) }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
entries!(on_avx2, avx2::Avx2<false>, "avx2,fma,f16c", 2, 2);
#[cfg(target_arch = "x86_64")]
entries!(on_avx_vnni, avx2::Avx2<true>, "avx2,fma,f16c,avxvnni", 2, 2);
#[cfg(target_arch = "x86_64")]
entries!(on_avx512, avx512::Avx512, "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni", 4, 4);
#[cfg(target_arch = "aarch64")]
entries!(on_neon, neon::Neon<false>, "neon", 2, 4);
#[cfg(target_arch = "aarch64")]
entries!(on_neon_dot, neon::Neon<true>, "neon", 4, 4);
// What every machine has.
#[cfg(target_arch = "x86_64")]
entries!(on_portable, portable::Portable, "sse2", 1, 1);
#[cfg(target_arch = "aarch64")]
entries!(on_portable, portable::Portable, "neon", 1, 1);

/// Calls a function of this path's module.
macro_rules! dispatch {
    ($path:expr, $name:ident $(::<$bits:ident>)?, ($($argument:expr),*)) => {
        match $path.0 {
            // SAFETY: a path exists only where the machine has it; the caller of this has checked the rest.
            Kind::Portable => unsafe { on_portable::$name$(::<$bits>)?($($argument),*) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 | Kind::Avx512 => unsafe { on_avx2::$name$(::<$bits>)?($($argument),*) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Kind::AvxVnni => unsafe { on_avx_vnni::$name$(::<$bits>)?($($argument),*) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512Vnni => unsafe { on_avx512::$name$(::<$bits>)?($($argument),*) },
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            Kind::Neon => unsafe { on_neon::$name$(::<$bits>)?($($argument),*) },
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            Kind::NeonDot => unsafe { on_neon_dot::$name$(::<$bits>)?($($argument),*) },
        }
    };
}

impl Path {
    /// Rounds rows x [.., columns] to 16 bits for products with matrices of `bits` bits. A group with NaN or an infinity becomes NaN.
    pub fn round(self, bits: usize, columns: usize, x: &[f32], out: &mut Rounded) {
        assert!(columns > 0 && columns.is_multiple_of(GROUP) && x.len().is_multiple_of(columns));
        let (steps, nibbles) = (Steps::of(self, columns), bits == 4);
        let (rows, lines) = (x.len() / columns, 2 * x.len() / columns * steps.lines());
        out.lines.resize(lines, Line([0; 64]));
        (out.rows, out.shape) = (rows, Some(Shape { path: self, columns, nibbles }));
        dispatch!(self, round_rows, (x, columns, nibbles, steps, &mut out.lines));
    }

    /// Whether products with rounded rows are quicker than those in f32.
    pub fn rounds(self) -> bool {
        self.0 != Kind::Portable
    }

    /// The product of each of these rows of w with each row of x, to `out` [.., rows of w] from its row `first` on. Each is summed
    /// in the same order whatever rows are beside it. Sums of whole numbers are the same on all paths; the order of sums in f32
    /// differs.
    ///
    /// # Safety
    /// Nobody else uses these elements of `out` now.
    pub unsafe fn rounded_dots(
        self,
        w: &Packed<'_>,
        rows: Range<usize>,
        x: &Rounded,
        spare: &mut Tile,
        out: &Out<'_>,
        first: usize,
    ) {
        let shape = Shape { path: self, columns: w.columns, nibbles: w.bits == 4 };
        assert!(x.shape == Some(shape), "x is rounded for another matrix");
        assert!(rows.end <= w.rows);
        let steps = Steps::of(self, w.columns);
        let (lines, count) = (x.lines.as_slice(), 2 * x.rows);
        let out = At(out, first);
        macro_rules! each {
            ($($bits:literal)*) => {
                match w.bits {
                    $($bits => {
                        const BITS: usize = $bits;
                        dispatch!(self, run::<BITS>, (w, rows, (lines, count), spare, steps, out))
                    })*
                    other => unreachable!("no matrix has {other} bits"),
                }
            };
        }
        each!(2 3 4 5 6 8);
    }
}
