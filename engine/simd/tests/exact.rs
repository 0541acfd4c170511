//! Unpacking and products in f32, on every path.

use half::{bf16, f16};
use simd::{Floats, Path};

/// Numbers that anybody gets again.
fn bits(seed: &mut u32) -> u32 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 17;
    *seed ^= *seed << 5;
    *seed >> 8
}

fn floats(n: usize, seed: &mut u32) -> Vec<f32> {
    (0..n).map(|_| bits(seed) as f32 / 8_388_608.0 - 1.0).collect()
}

/// Bit for bit what the formula gives, with a rounding each for the product and the sum.
#[test]
fn numbers_are_unpacked() {
    let mut seed = 1;
    for width in [2, 3, 4, 5, 6, 8] {
        for (group, groups) in [(32, 1), (32, 3), (64, 2), (128, 5)] {
            let bytes: Vec<u8> = (0..group * groups * width / 8).map(|_| bits(&mut seed) as u8).collect();
            let (scales, biases) = (floats(groups, &mut seed), floats(groups, &mut seed));
            let number = |i: usize| {
                let bit = |b: usize| u32::from(bytes[(i * width + b) / 8] >> ((i * width + b) % 8) & 1) << b;
                (0..width).map(bit).sum::<u32>() as f32
            };
            let expected: Vec<f32> = (0..group * groups).map(|i| number(i) * scales[i / group] + biases[i / group]).collect();
            for path in Path::all() {
                let mut out = vec![0.0; group * groups];
                path.unpack(width, &bytes, &scales, &biases, &mut out);
                assert_eq!(out, expected, "{path:?}, {width} bits in {group}");
            }
        }
    }
}

/// Against f64: a term takes part in no more than k / 4 additions and a few.
#[test]
fn dots_are_near_and_do_not_depend_on_their_neighbours() {
    let mut seed = 2;
    for (n, m, k) in [(1, 1, 16), (4, 4, 32), (5, 6, 48), (9, 3, 592), (2, 13, 4096)] {
        let (w, x) = (floats(n * k, &mut seed), floats(m * k, &mut seed));
        for path in Path::all() {
            let mut y = vec![f32::NAN; n * m];
            path.dots(&w, &x, k, |row, at, value| y[at * n + row] = value);
            for (at, &y) in y.iter().enumerate() {
                let (w, x) = (&w[at % n * k..][..k], &x[at / n * k..][..k]);
                let terms = || w.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x));
                let bound = (k as f64 / 4.0 + 8.0) * terms().map(f64::abs).sum::<f64>() / f64::from(1 << 24);
                let off = (f64::from(y) - terms().sum::<f64>()).abs();
                assert!(off <= bound, "{path:?} [{n}, {k}] x [{m}, {k}]: off by {off}, not {bound}");
                path.dots(w, x, k, |_, _, alone| assert_eq!(alone, y, "{path:?}"));
            }
        }
    }
}

#[test]
fn floats_become_wider() {
    let all = floats(77, &mut 3);
    let (halves, shorts): (Vec<f16>, Vec<bf16>) =
        (all.iter().map(|&v| f16::from_f32(v)).collect(), all.iter().map(|&v| bf16::from_f32(v)).collect());
    for path in Path::all() {
        for (from, expected) in [
            (Floats::F32(&all), all.clone()),
            (Floats::F16(&halves), halves.iter().map(|v| v.to_f32()).collect()),
            (Floats::Bf16(&shorts), shorts.iter().map(|v| v.to_f32()).collect::<Vec<_>>()),
        ] {
            let mut out = [0.0; 70];
            path.widen(from, 5, &mut out);
            assert_eq!(out, expected[5..75], "{path:?}, {from:?}");
        }
    }
}
