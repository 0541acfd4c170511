//! Every path of this machine against sums in f64. Buffers are as long as they must be and not a byte longer: under a sanitizer, and on
//! a processor that is emulated, these are the same tests (`scripts/proof-cpu`).

use proptest::prelude::*;
use simd::{Floats, Out, Packed, Path, Rounded, Tile};

fn config() -> ProptestConfig {
    // Miri takes a thousand times as long, and has no files to keep a failure in.
    let cases = if cfg!(miri) { 3 } else { 256 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// Small whole numbers and halves, as f32, from a seed.
fn numbers(seed: u64, n: usize) -> Vec<f32> {
    let mut state = seed;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / 2f32.powi(20) - 8.0
    };
    (0..n).map(next).collect()
}

/// The number at `i` of `bits` each, least significant bit first.
fn bits_at(bytes: &[u8], bits: usize, i: usize) -> u32 {
    (0..bits).map(|b| i * bits + b).enumerate().map(|(to, at)| u32::from(bytes[at / 8] >> (at % 8) & 1) << to).sum()
}

/// For the ledger: what was compiled in and is there.
#[test]
fn says_which_paths() {
    println!("paths: {:?}", Path::all());
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn unpacks_every_format(
        bits in prop::sample::select(vec![2usize, 3, 4, 5, 6, 8]),
        group in prop::sample::select(vec![32usize, 64, 128]),
        groups in 1usize..5,
        seed: u64,
    ) {
        let n = group * groups;
        let bytes: Box<[u8]> = numbers(seed, n * bits / 8).iter().map(|x| x.to_bits().to_le_bytes()[1]).collect();
        let (scales, biases) = (numbers(!seed, groups), numbers(seed ^ 1, groups));
        for path in Path::all() {
            let mut out = vec![f32::NAN; n].into_boxed_slice();
            path.unpack(bits, &bytes, &scales, &biases, &mut out);
            for (i, &value) in out.iter().enumerate() {
                let (scale, bias) = (f64::from(scales[i / group]), f64::from(biases[i / group]));
                let (product, exact) = (f64::from(bits_at(&bytes, bits, i)) * scale, f64::from(bits_at(&bytes, bits, i)) * scale + bias);
                // One rounding of the product and one of the sum.
                let allowed = (product.abs() + exact.abs()) * f64::from(f32::EPSILON);
                prop_assert!((f64::from(value) - exact).abs() <= allowed, "{path:?}, number {i} of {n}: {value} is not {exact}");
            }
        }
    }

    /// Whole numbers, of which each group's largest is 127, are not moved by rounding, and their sums are exact.
    #[test]
    fn sums_rounded_rows(
        bits in prop::sample::select(vec![2usize, 3, 4, 5, 6, 8]),
        group in prop::sample::select(vec![32usize, 64, 128]),
        (groups, rows, columns) in (1usize..4, 1usize..6, 1usize..6),
        seed: u64,
    ) {
        let k = groups * group;
        let bytes: Box<[u8]> = numbers(seed, rows * k * bits / 8).iter().map(|x| x.to_bits().to_le_bytes()[1]).collect();
        let whole = |seed, n| numbers(seed, n).into_iter().map(f32::round).collect::<Box<[f32]>>();
        let (scales, biases, mut x) = (whole(!seed, rows * groups), whole(seed ^ 1, rows * groups), whole(seed ^ 2, columns * k));
        x.iter_mut().step_by(32).for_each(|x| *x = 127.0);
        let w = Packed::new(bits, group, k, &bytes, Floats::F32(&scales), Floats::F32(&biases)).expect("a matrix");
        for path in Path::all() {
            let (mut rounded, mut tile) = (Rounded::default(), Tile::default());
            path.round(bits, k, &x, &mut rounded);
            let mut out = vec![f32::NAN; rows * columns];
            // SAFETY: there is one thread.
            unsafe { path.rounded_dots(&w, 0..rows, &rounded, &mut tile, &Out::new(&mut out, rows), 0) };
            for (at, &value) in out.iter().enumerate() {
                let (j, i) = (at / rows, at % rows);
                let number = |c| f64::from(bits_at(&bytes, bits, i * k + c) as f32 * scales[(i * k + c) / group] + biases[(i * k + c) / group]);
                let exact: f64 = (0..k).map(|c| number(c) * f64::from(x[j * k + c])).sum();
                prop_assert_eq!(f64::from(value), exact, "{:?}, {} bits in {}, {}x{}x{}", path, bits, group, rows, columns, k);
            }
        }
    }

    #[test]
    fn sums_every_row(rows in 0usize..7, columns in 0usize..7, k in (1usize..9).prop_map(|n| 32 * n), seed: u64) {
        let (w, x) = (numbers(seed, rows * k).into_boxed_slice(), numbers(!seed, columns * k).into_boxed_slice());
        for path in Path::all() {
            let dots = || {
                let mut out = vec![f32::NAN; rows * columns];
                path.dots(&w, &x, k, |i, j, value| out[i * columns + j] = value);
                out
            };
            let out = dots();
            for (at, &value) in out.iter().enumerate() {
                let (w, x) = (&w[at / columns * k..][..k], &x[at % columns * k..][..k]);
                let products = || w.iter().zip(x).map(|(&w, &x)| f64::from(w) * f64::from(x));
                // The usual bound of a sum of k products in f32.
                let allowed = products().map(f64::abs).sum::<f64>() * f64::from(f32::EPSILON) * k as f64;
                prop_assert!((f64::from(value) - products().sum::<f64>()).abs() <= allowed, "{path:?}, {at} of {rows}x{columns}x{k}");
                let mut alone = f32::NAN;
                path.dots(w, x, k, |_, _, value| alone = value);
                prop_assert_eq!(alone.to_bits(), value.to_bits(), "{:?}: a row depends on its neighbours", path);
            }
            let bits = |out: &[f32]| out.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&dots()), bits(&out), "{:?} does not repeat", path);
        }
    }
}
