use memmap2::{Mmap, MmapOptions};
use proptest::prelude::*;

use super::*;

/// Numbers that anybody gets again.
struct Random(u32);

impl Random {
    fn new(seed: u32) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9) | 1)
    }

    fn bits(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0 >> 8
    }

    /// In [-1, 1).
    fn float(&mut self) -> f32 {
        self.bits() as f32 / 8_388_608.0 - 1.0
    }
}

/// A matrix before it is packed.
struct Plain {
    bits: usize,
    group: usize,
    columns: usize,
    q: Vec<u8>,
    scales: Vec<f32>,
    biases: Vec<f32>,
}

impl Plain {
    fn random(bits: usize, group: usize, rows: usize, columns: usize, random: &mut Random) -> Self {
        let q = (0..rows * columns).map(|_| (random.bits() & ((1 << bits) - 1)) as u8).collect();
        let groups = rows * columns / group;
        // Numbers that all three types have.
        let mut few = |size: f32| (0..groups).map(|_| (random.float() * 64.0).round() / 64.0 * size).collect();
        Self { bits, group, columns, q, scales: few(1.0), biases: few(8.0) }
    }

    fn rows(&self) -> usize {
        self.q.len() / self.columns
    }

    fn w(&self, row: usize, column: usize) -> f64 {
        let g = row * (self.columns / self.group) + column / self.group;
        f64::from(self.q[row * self.columns + column]) * f64::from(self.scales[g]) + f64::from(self.biases[g])
    }

    fn packed(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.q.len() * self.bits / 8];
        for (i, &q) in self.q.iter().enumerate() {
            for bit in 0..self.bits {
                let at = i * self.bits + bit;
                bytes[at / 8] |= (q >> bit & 1) << (at % 8);
            }
        }
        bytes
    }

    /// On a path, with scales of a type, and rows of x in these parts.
    fn product(&self, path: Path, kind: usize, x: &[f32], parts: &[usize]) -> Vec<f32> {
        let bytes = self.packed();
        let (s16, b16): (Vec<f16>, Vec<f16>) =
            (self.scales.iter().map(|&v| f16::from_f32(v)).collect(), self.biases.iter().map(|&v| f16::from_f32(v)).collect());
        let (sb, bb): (Vec<bf16>, Vec<bf16>) =
            (self.scales.iter().map(|&v| bf16::from_f32(v)).collect(), self.biases.iter().map(|&v| bf16::from_f32(v)).collect());
        let (scales, biases) = match kind % 3 {
            0 => (Floats::F32(&self.scales), Floats::F32(&self.biases)),
            1 => (Floats::F16(&s16), Floats::F16(&b16)),
            _ => (Floats::Bf16(&sb), Floats::Bf16(&bb)),
        };
        let w = Packed::new(self.bits, self.group, self.columns, &bytes, scales, biases).unwrap();
        on(path, &w, x, parts)
    }
}

fn on(path: Path, w: &Packed<'_>, x: &[f32], parts: &[usize]) -> Vec<f32> {
    let (mut rounded, mut tile) = (Rounded::default(), Tile::default());
    let (m, n) = (x.len() / w.columns, w.rows());
    let mut out = vec![f32::NAN; m * n];
    let grid = Out::new(&mut out, n);
    let mut start = 0usize;
    for part in parts.iter().copied().chain([usize::MAX]) {
        let end = m.min(start.saturating_add(part));
        path.round(w.bits, w.columns, &x[start * w.columns..end * w.columns], &mut rounded);
        // SAFETY: there is one thread.
        unsafe { path.rounded_dots(w, 0..n, &rounded, &mut tile, &grid, start) };
        start = end;
    }
    assert_eq!(start, m);
    out
}

/// Against f64 with x as it was. What the first rounding leaves is at most half of its scale, and the second moves that by half of a
/// 127th of it; each of a group's few operations in f32, and each addition of a group or of lanes, rounds once.
fn check(plain: &Plain, x: &[f32], kind: usize) {
    let (k, n) = (plain.columns, plain.rows());
    for path in Path::all() {
        let y = plain.product(path, kind, x, &[]);
        for (i, x) in x.chunks(k).enumerate() {
            for j in 0..n {
                let (mut exact, mut moved, mut size) = (0.0, 0.0, 0.0);
                for (g, x) in x.chunks(GROUP).enumerate() {
                    let scale = x.iter().map(|v| f64::from(v.abs())).fold(0.0, f64::max) / 127.0;
                    let mut parts = [0f64; 2];
                    for (c, &x) in x.iter().enumerate() {
                        let at = g * GROUP + c;
                        let (w, x) = (plain.w(j, at), f64::from(x));
                        let bias = f64::from(plain.biases[j * (k / plain.group) + at / plain.group]);
                        exact += w * x;
                        moved += (0.5001 * scale / 254.0 + x.abs() / f64::from(1 << 23) + f64::from(LEAST)) * w.abs();
                        // The rounded x may be half a scale more.
                        parts[0] += (w - bias).abs() * (x.abs() + scale);
                        parts[1] += bias.abs() * (x.abs() + scale);
                    }
                    size += parts[0] + parts[1];
                }
                let bound = moved + 2.0 * (k as f64 / GROUP as f64 + 24.0) * size / f64::from(1 << 24);
                let off = (f64::from(y[i * n + j]) - exact).abs();
                let Plain { bits, group, .. } = plain;
                assert!(off <= bound, "{path:?}, {bits} bits in {group}, [{k}] at {i}, {j}: off by {off}, not {bound}");
            }
        }
        // Whatever rows are beside it.
        let single: Vec<f32> = x.chunks(k).flat_map(|x| plain.product(path, kind, x, &[])).collect();
        assert_eq!(y, single, "{path:?}, alone");
        assert_eq!(y, plain.product(path, kind, x, &[1, 2, 3, 5]), "{path:?}, in parts");
    }
}

fn floats(n: usize, random: &mut Random) -> Vec<f32> {
    (0..n).map(|_| random.float()).collect()
}

#[test]
fn every_format_on_every_path() {
    let mut random = Random::new(1);
    for bits in [2, 3, 4, 5, 6, 8] {
        for group in [32, 64, 128] {
            // Whole steps, quarters, and steps that are not full, on each number of lanes.
            for (kind, groups) in [1, 2, 3, 4, 5, 9, 18].into_iter().enumerate() {
                let columns = groups * group;
                let plain = Plain::random(bits, group, 5, columns, &mut random);
                check(&plain, &floats(5 * columns, &mut random), kind);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn odd_shapes(
        m in 1usize..14, n in 1usize..14, groups in 1usize..40, bits in prop::sample::select(vec![2, 3, 4, 5, 6, 8]),
        group in prop::sample::select(vec![32, 64, 128]), kind in 0usize..3, seed in 0u32..1 << 30,
    ) {
        let mut random = Random::new(seed);
        let plain = Plain::random(bits, group, n, groups * group, &mut random);
        // Groups of very different sizes.
        let mut x = floats(m * groups * group, &mut random);
        for (i, x) in x.chunks_mut(GROUP).enumerate() {
            x.iter_mut().for_each(|v| *v *= f32::powi(2.0, (i % 7) as i32 * 4 - 12));
        }
        check(&plain, &x, kind);
    }
}

/// With whole numbers there is nothing to round: every path has exactly the sums, also where all numbers are as large as they get.
#[test]
fn sums_of_whole_numbers_are_exact() {
    let mut random = Random::new(3);
    for bits in [2, 3, 4, 5, 6, 8] {
        for groups in [1, 2, 3, 4, 7, 8] {
            let columns = groups * 32;
            for extreme in [false, true] {
                let most = ((1u16 << bits) - 1) as u8;
                let mut plain = Plain::random(bits, 32, 3, columns, &mut random);
                plain.scales.fill(1.0);
                plain.biases.fill(-3.0);
                let mut x: Vec<f32> = (0..6 * columns).map(|_| (random.bits() % 255) as f32 - 127.0).collect();
                x.iter_mut().step_by(32).for_each(|v| *v = 127.0);
                if extreme {
                    plain.q.fill(most);
                    x[..2 * columns].fill(127.0);
                    x[2 * columns..4 * columns].fill(-127.0);
                    x[4 * columns..].iter_mut().enumerate().for_each(|(i, v)| *v = if i % 2 == 0 { 127.0 } else { -127.0 });
                }
                let exact: Vec<f32> = x
                    .chunks(columns)
                    .flat_map(|x| (0..3).map(|row| (0..columns).map(|c| plain.w(row, c) * f64::from(x[c])).sum::<f64>() as f32))
                    .collect();
                for path in Path::all() {
                    assert_eq!(plain.product(path, 0, &x, &[]), exact, "{path:?}, {bits} bits, {groups} groups");
                }
            }
        }
    }
}

/// A matrix of which each row has a single one shows what x was rounded to.
#[test]
fn rounding_is_to_the_nearest_on_every_path() {
    let mut random = Random::new(6);
    for bits in [4, 8] {
        for columns in [32, 96, 256, 576, 768] {
            let mut plain = Plain::random(bits, 32, columns, columns, &mut random);
            plain.q.fill(0);
            plain.q.iter_mut().step_by(columns + 1).for_each(|q| *q = 1);
            plain.scales.fill(1.0);
            plain.biases.fill(0.0);
            let mut x = floats(columns, &mut random);
            // Halves: to the even one.
            x[..8].copy_from_slice(&[127.0, 0.5, 1.5, -2.5, -126.5, 0.49, 3.0, -0.5]);
            let nearest = |x: &[f32]| -> Vec<f32> {
                let groups = x.chunks(GROUP).flat_map(|x| {
                    let most = x.iter().fold(0f32, |m, v| m.max(v.abs()));
                    x.iter().map(move |v| (v * (127.0 / most)).round_ties_even() * (most / 127.0))
                });
                groups.collect()
            };
            let first = nearest(&x);
            let rest: Vec<f32> = x.iter().zip(&first).map(|(x, rounded)| x - rounded).collect();
            let rounded: Vec<f32> = first.iter().zip(nearest(&rest)).map(|(first, rest)| first + rest).collect();
            for path in Path::all() {
                assert_eq!(plain.product(path, 0, &x, &[]), rounded, "{path:?}, {bits} bits, {columns} columns");
            }
        }
    }
}

#[test]
fn extremes_of_x() {
    let mut random = Random::new(4);
    for bits in [4, 8, 3] {
        let plain = Plain::random(bits, 32, 4, 576, &mut random);
        let normal = floats(576, &mut random);
        let with = |at: usize, value: f32| {
            let mut x = normal.clone();
            x[at] = value;
            x
        };
        // Nothing, denormal numbers, one that outweighs the rest, the largest.
        check(&plain, &[0.0; 576], 0);
        check(&plain, &with(33, 1e30), 0);
        let tiny: Vec<f32> = normal.iter().map(|v| v * 1e-40).collect();
        for path in Path::all() {
            assert_eq!(plain.product(path, 0, &[0.0; 576], &[]), [0.0; 4], "{path:?}");
            // Below what a scale can have, x is nothing.
            assert_eq!(plain.product(path, 0, &tiny, &[]), [0.0; 4], "{path:?}");
            let huge = plain.product(path, 0, &with(575, f32::MAX / 1e6), &[]);
            assert!(huge.iter().all(|v| v.is_finite()), "{path:?}: {huge:?}");
        }
        // What is not a number stays so, wherever it is, and in its row alone.
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -f32::NAN] {
            for at in [0, 31, 32, 511, 512, 543, 544, 575] {
                let mut x = normal.repeat(3);
                x[576 + at] = bad;
                for path in Path::all() {
                    let y = plain.product(path, 0, &x, &[]);
                    assert!(y[4..8].iter().all(|v| v.is_nan()), "{path:?}, {bad} at {at}: {y:?}");
                    assert!(y[..4].iter().chain(&y[8..]).all(|v| v.is_finite()), "{path:?}, {bad} at {at}: {y:?}");
                }
            }
        }
    }
}

/// At the end of what can be read at all: a byte further is a signal.
fn at_the_end(bytes: &[u8]) -> (Mmap, Range<usize>) {
    const PAGE: usize = 64 << 10;
    let mut file = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut file, &vec![0; PAGE - bytes.len()]).unwrap();
    std::io::Write::write_all(&mut file, bytes).unwrap();
    // SAFETY: nobody else has the file.
    let map = unsafe { MmapOptions::new().len(2 * PAGE).map(&file) }.unwrap();
    (map, PAGE - bytes.len()..PAGE)
}

#[test]
fn nothing_past_the_matrix_is_read() {
    let mut random = Random::new(5);
    for bits in [2, 3, 4, 5, 6, 8] {
        for groups in [1, 2, 3, 4, 5, 15, 16, 17, 18, 21] {
            let columns = groups * 32;
            let plain = Plain::random(bits, 32, 3, columns, &mut random);
            let x = floats(2 * columns, &mut random);
            let halves = |all: &[f32]| all.iter().flat_map(|&v| f16::from_f32(v).to_bits().to_ne_bytes()).collect::<Vec<_>>();
            let maps = [at_the_end(&plain.packed()), at_the_end(&halves(&plain.scales)), at_the_end(&halves(&plain.biases))];
            let [bytes, scales, biases] = maps.each_ref().map(|(map, range)| &map[range.clone()]);
            let [scales, biases] = [scales, biases].map(bytemuck::cast_slice::<u8, f16>);
            let w = Packed::new(bits, 32, columns, bytes, Floats::F16(scales), Floats::F16(biases)).unwrap();
            for path in Path::all() {
                assert_eq!(on(path, &w, &x, &[]), plain.product(path, 1, &x, &[]), "{path:?}");
                assert_eq!(on(path, &w, &x[..columns], &[]), plain.product(path, 1, &x[..columns], &[]), "{path:?}");
            }
        }
    }
}

#[test]
fn what_is_no_matrix() {
    let (bytes, floats) = ([0u8; 64], [0f32; 4]);
    let all = |bits, group, columns, bytes, scales: usize| {
        Packed::new(bits, group, columns, bytes, Floats::F32(&floats[..scales]), Floats::F32(&floats[..scales])).is_some()
    };
    assert!(all(4, 32, 64, &bytes[..], 4));
    assert!(!all(7, 32, 64, &bytes[..], 4) && !all(4, 48, 48, &bytes[..], 4) && !all(4, 64, 32, &bytes[..], 4));
    assert!(!all(4, 32, 64, &bytes[..63], 4) && !all(4, 32, 64, &bytes[..], 3) && !all(4, 32, 0, &bytes[..], 4));
    // Rounded for another matrix.
    let w = Packed::new(4, 32, 64, &bytes, Floats::F32(&floats), Floats::F32(&floats)).unwrap();
    let mut x = Rounded::default();
    Path::best().round(8, 64, &[0.0; 64], &mut x);
    let wrong = std::panic::catch_unwind(|| {
        let mut out = [0.0; 2];
        // SAFETY: there is one thread.
        unsafe { Path::best().rounded_dots(&w, 0..2, &x, &mut Tile::default(), &Out::new(&mut out, 2), 0) };
    });
    assert!(wrong.is_err());
}
