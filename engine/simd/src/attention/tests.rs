use proptest::prelude::*;

use super::*;

fn numbers(n: usize, seed: u32, size: f32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        ((state >> 8) as f32 / 8_388_608.0 - 1.0) * size
    };
    (0..n).map(|_| next()).collect()
}

/// Keys and values [positions, width] as pages.
fn pages(keys: &[f32], values: &[f32], width: usize) -> Vec<(Vec<f32>, Vec<f32>)> {
    let page = |(keys, values): (&[f32], &[f32])| {
        // What nobody has written must not matter.
        let (mut k, mut v) = (vec![f32::NAN; PAGE * width], vec![f32::NAN; PAGE * padded(width)]);
        for (position, (key, value)) in keys.chunks(width).zip(values.chunks(width)).enumerate() {
            key.iter().enumerate().for_each(|(i, x)| k[key_at(position, i, width)] = *x);
            v[position * padded(width)..][..padded(width)].fill(0.0);
            v[position * padded(width)..][..width].copy_from_slice(value);
        }
        (k, v)
    };
    keys.chunks(PAGE * width).zip(values.chunks(PAGE * width)).map(page).collect()
}

/// All pages, joined: what each query gives, [rows, width].
fn whole(path: Path, q: &[f32], pages: &[(Vec<f32>, Vec<f32>)], seen: &[usize], width: usize) -> Vec<f32> {
    let (rows, wide) = (seen.len(), padded(width));
    let mut totals = vec![(Part::NONE, vec![0.0; wide]); rows];
    for (i, (keys, values)) in pages.iter().enumerate() {
        let here: Vec<usize> = seen.iter().map(|n| n.saturating_sub(i * PAGE).min(PAGE)).collect();
        let (mut parts, mut sums) = (vec![Part::NONE; rows], vec![f32::NAN; rows * wide]);
        path.attend(q, Page { keys, values, width }, &here, &mut parts, &mut sums);
        for ((total, part), sums) in totals.iter_mut().zip(parts).zip(sums.chunks(wide)) {
            path.merge(&mut total.0, &mut total.1, part, sums);
        }
    }
    totals.iter().flat_map(|(part, sums)| sums[..width].iter().map(|s| s / part.sum)).collect()
}

/// Against f64. A score is off by no more than width roundings of the sum of its terms' sizes, a weight e^s by as much of
/// itself; the sums over the positions add n roundings and the exponential and the joining a few.
fn check(rows: usize, width: usize, n: usize, size: f32, seed: u32) {
    let (q, keys) = (numbers(rows * width, seed, size), numbers(n * width, seed + 1, 1.0));
    let values = numbers(n * width, seed + 2, 1.0);
    let seen: Vec<usize> = (0..rows).map(|r| n - (rows - 1 - r).min(n - 1)).collect();
    let paged = pages(&keys, &values, width);
    for path in Path::all() {
        let got = whole(path, &q, &paged, &seen, width);
        for (r, &n) in seen.iter().enumerate() {
            let products = |p: usize| (0..width).map(move |i| (i, p * width + i));
            let (q, keys, values) = (&q[r * width..], &keys, &values);
            let score = |p: usize| products(p).map(|(i, k)| f64::from(q[i]) * f64::from(keys[k])).sum::<f64>();
            let reach = |p: usize| products(p).map(|(i, k)| (f64::from(q[i]) * f64::from(keys[k])).abs()).sum::<f64>();
            let scores: Vec<f64> = (0..n).map(score).collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let off = (0..n).map(reach).fold(0.0, f64::max) * (width as f64 + 2.0) + 2.0 * max.abs();
            let bound = (2.0 * off + n as f64 + 32.0) * 2f64.powi(-23);
            let sum: f64 = scores.iter().map(|s| (s - max).exp()).sum();
            for i in 0..width {
                let exact = (0..n).map(|p| (scores[p] - max).exp() / sum * f64::from(values[p * width + i])).sum::<f64>();
                let got = f64::from(got[r * width + i]);
                assert!((got - exact).abs() <= bound, "{path:?} {rows} x {width} of {n}: {got}, not {exact} +- {bound}");
            }
            // Alone as beside others.
            let alone = whole(path, &q[..width], &paged, &[n], width);
            assert_eq!(alone, got[r * width..][..width], "{path:?}: row {r} of {rows} x {width} of {n}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_shape(rows in 1usize..=4, width in 1usize..150, n in 1usize..700, size in 0.01f32..20.0, seed in 0u32..1 << 30) {
        check(rows, width, n, size, seed);
    }
}

#[test]
fn at_the_edges() {
    for n in [1, 2, 15, 16, 17, 63, 64, 65, 255, 256, 257, 511, 512, 513] {
        for width in [8, 64, 80, 128] {
            check(4, width, n, 1.0, n as u32);
        }
    }
}

#[test]
fn equal_and_huge_scores() {
    let (width, n) = (16, 300);
    let values = numbers(n * width, 9, 1.0);
    for path in Path::all() {
        // All alike: the mean.
        let got = whole(path, &[0.0; 16], &pages(&numbers(n * width, 8, 1.0), &values, width), &[n], width);
        for (i, got) in got.iter().enumerate() {
            let mean = values.iter().skip(i).step_by(width).map(|v| f64::from(*v)).sum::<f64>() / n as f64;
            assert!((f64::from(*got) - mean).abs() < 1e-6);
        }
        // One far above: its value; also in the first page, and in the second.
        for best in [3, 270] {
            let mut keys = vec![-1e18; n * width];
            keys[best * width..][..width].fill(1e18);
            let got = whole(path, &[1e18; 16], &pages(&keys, &values, width), &[n], width);
            assert_eq!(got, values[best * width..][..width], "{path:?}");
        }
    }
}

#[test]
fn what_is_infinite_or_no_number() {
    let (width, n) = (16, 300);
    let values = numbers(n * width, 9, 1.0);
    for path in Path::all() {
        // Scores of -inf count as not there, also where a whole page has no other.
        let mut keys = vec![f32::NEG_INFINITY; n * width];
        keys[290 * width..][..width].fill(1.0);
        let got = whole(path, &[1.0; 16], &pages(&keys, &values, width), &[n], width);
        assert_eq!(got, values[290 * width..][..width], "{path:?}");
        let got = whole(path, &[1.0; 16], &pages(&keys, &values, width), &[290], width);
        assert!(got.iter().all(|x| x.is_nan()), "nothing to see");
        for spoilt in [0, 299] {
            let mut keys = numbers(n * width, 8, 1.0);
            keys[spoilt * width] = f32::NAN;
            let got = whole(path, &[1.0; 16], &pages(&keys, &values, width), &[n], width);
            assert!(got.iter().all(|x| x.is_nan()), "{path:?}");
            // Who does not see it does not mind, also beside one who does.
            let (q, keys) = ([1.0; 32], pages(&keys, &values, width));
            let both = whole(path, &q, &keys, &[n - 1, n], width);
            assert!(both[..16].iter().all(|x| x.is_nan() == (spoilt == 0)) && both[16..].iter().all(|x| x.is_nan()));
            let mut values = values.clone();
            values[spoilt * width] = f32::INFINITY;
            let both = whole(path, &q, &pages(&numbers(n * width, 8, 1.0), &values, width), &[n - 1, n], width);
            assert!(both[16].is_infinite() && both[0].is_infinite() == (spoilt == 0) && both[17].is_finite(), "{path:?}");
        }
    }
}

/// Products of bytes add nothing to attention, so their paths are the wide ones, and not what is left over.
#[cfg(target_arch = "x86_64")]
#[test]
fn paths_with_products_of_bytes_have_the_same_loops() {
    let (q, keys, values) = (numbers(4 * 64, 1, 1.0), numbers(300 * 64, 2, 1.0), numbers(300 * 64, 3, 1.0));
    let paged = pages(&keys, &values, 64);
    let bits = |path: Kind| -> Vec<u32> {
        whole(Path(path), &q, &paged, &[297, 298, 299, 300], 64).iter().map(|x| x.to_bits()).collect()
    };
    for (wide, bytes) in [(Kind::Avx2, Kind::AvxVnni), (Kind::Avx512, Kind::Avx512Vnni)] {
        if Path::all().contains(&Path(bytes)) {
            assert!(bits(wide) == bits(bytes), "{bytes:?} is not {wide:?}");
            assert!(bits(Kind::Portable) != bits(bytes), "{bytes:?} has no fused additions");
        }
    }
}
