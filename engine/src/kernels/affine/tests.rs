use mlx::quant::{dequantize, matmul as slow_matmul, quantize};
use proptest::prelude::*;

use super::*;

/// Numbers in [-1, 1) that anybody gets again.
fn numbers(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

fn format(bits: i32, group_size: i32) -> Affine {
    Affine { bits, group_size }
}

/// A quantized [rows, columns], scales and biases in `dtype`.
fn packed(rows: usize, columns: usize, format: Affine, dtype: Dtype, seed: u32) -> Quantized {
    let w = Array::from_slice(&numbers(rows * columns, seed), &[rows, columns]).unwrap();
    let q = quantize(&w, format).unwrap();
    Quantized { scales: q.scales.astype(dtype).unwrap(), biases: q.biases.astype(dtype).unwrap(), ..q }
}

/// The matrix as MLX unpacks it.
fn unpacked(q: &Quantized, format: Affine) -> Vec<f32> {
    let wide = |a: &Array| a.astype(Dtype::F32).unwrap();
    let q = Quantized { weight: q.weight.clone(), scales: wide(&q.scales), biases: wide(&q.biases) };
    dequantize(&q, format, Dtype::F32).unwrap().to_vec().unwrap()
}

/// [`matmul`] on a path of the test's choice.
fn on(path: Path, x: &Array, q: &Quantized, format: Affine) -> Array {
    let rows = q.weight.dim(0);
    let kernel = CpuKernel::new("test", move |inputs, outputs| {
        let [x, weight, scales, biases] = inputs else { unreachable!() };
        product(x, &Matrix::new(weight, scales, biases, format)?, &mut outputs[0], Precision::Exact, path)
    });
    let shape = [x.dim(0), rows];
    one(kernel.unwrap().call([x, &q.weight, &q.scales, &q.biases], &[(&shape, x.dtype())]).unwrap()).unwrap()
}

/// Against f64: every term is rounded at most once per addition that it takes part in. On all paths these are no more than k / 8
/// and a few, so the error is below (k / 8 + 8) * 2^-24 of the sum of the terms' sizes.
fn check(m: usize, n: usize, groups: usize, format: Affine, scales: Dtype, seed: u32) {
    let k = groups * format.group_size as usize;
    let q = packed(n, k, format, scales, seed);
    let w = unpacked(&q, format);
    let xs = numbers(m * k, seed + 1);
    let x = Array::from_slice(&xs, &[m, k]).unwrap();
    for path in Path::all() {
        let y = on(path, &x, &q, format).to_vec::<f32>().unwrap();
        assert_eq!(y.len(), m * n);
        for i in 0..m {
            for j in 0..n {
                let terms =
                    || w[j * k..(j + 1) * k].iter().zip(&xs[i * k..(i + 1) * k]).map(|(w, x)| f64::from(*w) * f64::from(*x));
                let (exact, size) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
                let bound = (k as f64 / 8.0 + 8.0) * size / f64::from(1 << 24);
                let off = (f64::from(y[i * n + j]) - exact).abs();
                assert!(off <= bound, "{path:?} {format:?} [{m}, {k}] x [{n}, {k}] at {i}, {j}: off by {off}, not {bound}");
            }
        }
        assert_eq!(on(path, &x, &q, format).to_vec::<f32>().unwrap(), y, "{path:?} does not repeat");
    }
}

#[test]
fn every_format_on_every_path() {
    let mut seed = 1;
    for bits in [2, 3, 4, 5, 6, 8] {
        for group in [32, 64, 128] {
            for (m, n, groups, scales) in [(1, 7, 1, Dtype::F32), (3, 5, 2, Dtype::Bf16), (9, 18, 3, Dtype::F16)] {
                check(m, n, groups, format(bits, group), scales, seed);
                seed += 2;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn odd_shapes(
        m in 1usize..20, n in 1usize..40, groups in 1usize..6, bits in prop::sample::select(vec![2, 3, 4, 5, 6, 8]),
        group in prop::sample::select(vec![32, 64, 128]), seed in 0u32..1 << 30,
    ) {
        check(m, n, groups, format(bits, group), Dtype::F32, seed);
    }
}

/// Large enough for several threads, and for x to come in parts.
#[test]
fn many_rows() {
    check(200, 70, 24, format(4, 64), Dtype::Bf16, 77);
    check(1, 3000, 3, format(4, 128), Dtype::F32, 78);
}

/// Elements of a row that does not fit the cache, rounded or not.
const LONG: usize = 1 << 18;

#[test]
fn long_rows() {
    let format = format(4, 32);
    check(2, 3, LONG / 32, format, Dtype::F32, 79);
    let (q, x) = (packed(3, LONG, format, Dtype::F32, 80), Array::from_slice(&numbers(2 * LONG, 81), &[2, LONG]).unwrap());
    let y = |precision| matmul(&x, &q, format, precision).unwrap().to_f32().unwrap();
    let size: f32 = unpacked(&q, format).iter().fold(0.0, |most, w| most.max(w.abs()));
    for (exact, fast) in y(Precision::Exact).into_iter().zip(y(Precision::Fast)) {
        // No element of x is moved by more than 2^-15, nor a sum by more than all of them could.
        assert!((exact - fast).abs() <= size * LONG as f32 / 32768.0, "{fast} is not {exact}");
    }
}

#[test]
fn a_row_does_not_depend_on_its_neighbours_or_the_threads() {
    alone_or_not(format(4, 64), Precision::Exact, multiply);
}

#[test]
fn nor_does_a_rounded_one() {
    for (bits, group) in [(4, 64), (8, 32), (3, 128)] {
        alone_or_not(format(bits, group), Precision::Fast, multiply_rounded);
    }
}

type Multiply = fn(&[f32], &Matrix<'_>, &mut [f32], Path, &pool::Pool);

fn alone_or_not(format: Affine, precision: Precision, multiply: Multiply) {
    let (m, n, k) = (37, 90, 1536);
    let (q, xs) = (packed(n, k, format, Dtype::F32, 5), numbers(m * k, 6));
    let all = matmul(&Array::from_slice(&xs, &[m, k]).unwrap(), &q, format, precision).unwrap().to_vec::<f32>().unwrap();
    for (i, x) in xs.chunks(k).enumerate() {
        let alone = matmul(&Array::from_slice(x, &[1, k]).unwrap(), &q, format, precision).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(alone, all[i * n..(i + 1) * n], "row {i}");
    }
    let (weight, scales, biases) = (
        q.weight.to_vec().unwrap(),
        Floats::F32(q.scales.to_vec().unwrap().into()),
        Floats::F32(q.biases.to_vec().unwrap().into()),
    );
    let matrix = Matrix {
        bits: format.bits as usize,
        group: format.group_size as usize,
        rows: n,
        columns: k,
        packed: Cow::Owned(weight),
        scales,
        biases,
    };
    for threads in [1, 2, 5] {
        let mut out = vec![0.0; m * n];
        multiply(&xs, &matrix, &mut out, Path::best(), &pool::Pool::new(threads));
        assert_eq!(out, all, "{threads} threads");
    }
}

/// The control for the reference: MLX's own packed product, and other types of x, more axes, views.
#[test]
fn as_mlx_computes_it() {
    let format = format(4, 32);
    let q = packed(48, 128, format, Dtype::F32, 9);
    let x = Array::from_slice(&numbers(2 * 3 * 128, 10), &[2, 3, 128]).unwrap();
    let far = |a: &Array, b: &Array| {
        let pairs = a.to_f32().unwrap().into_iter().zip(b.to_f32().unwrap());
        pairs.map(|(a, b)| (a - b).abs()).fold(0f32, f32::max)
    };
    let slow = slow_matmul(&x, &q, format).unwrap();
    let y = matmul(&x, &q, format, Precision::Exact).unwrap();
    assert_eq!((y.shape(), y.dtype()), (&[2, 3, 48][..], Dtype::F32));
    assert!(far(&y, &slow) < 1e-5 && far(&y, &slow.add_scalar(1e-3).unwrap()) > 1e-4);
    // A transposed x, and some of the matrix's rows.
    let xt = x.transpose(&[1, 0, 2]).unwrap();
    assert_eq!(far(&matmul(&xt, &q, format, Precision::Exact).unwrap(), &y.transpose(&[1, 0, 2]).unwrap()), 0.0);
    let rows = |a: &Array| a.slice(0, 11, 30).unwrap();
    let part = Quantized { weight: rows(&q.weight), scales: rows(&q.scales), biases: rows(&q.biases) };
    assert_eq!(far(&matmul(&x, &part, format, Precision::Exact).unwrap(), &y.slice(-1, 11, 30).unwrap()), 0.0);
    for (dtype, off) in [(Dtype::F16, 2e-2), (Dtype::Bf16, 2e-1)] {
        let y = matmul(&x.astype(dtype).unwrap(), &q, format, Precision::Exact).unwrap();
        assert!(y.dtype() == dtype && far(&y, &slow) < off, "{dtype}: {}", far(&y, &slow));
    }
    // No rows.
    assert_eq!(
        matmul(&Array::zeros(&[0, 128], Dtype::F32).unwrap(), &q, format, Precision::Exact).unwrap().to_vec::<f32>().unwrap(),
        [0f32; 0]
    );
}

/// Rounding moves an element of x by half a 127th of the largest of its 32, so a sum of w * x by no more than that times the sum of
/// |w| there. `simd` tests the details; this is the node with its types of x, views, and several parts of many rows.
#[test]
fn rounded_products_are_near() {
    for (bits, group, (m, n, k)) in [(4, 32, (1, 700, 576)), (8, 64, (300, 90, 1536)), (6, 128, (5, 33, 384))] {
        let format = format(bits, group);
        let q = packed(n, k, format, Dtype::F16, 21);
        let w = unpacked(&q, format);
        let x = Array::from_slice(&numbers(m * k, 22), &[m, k]).unwrap();
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
            let x = x.astype(dtype).unwrap();
            let y = |precision| matmul(&x, &q, format, precision).unwrap();
            let (exact, fast) = (y(Precision::Exact), y(Precision::Fast));
            assert_eq!((fast.shape(), fast.dtype()), (exact.shape(), dtype));
            let (exact, fast, xs) = (exact.to_f32().unwrap(), fast.to_f32().unwrap(), x.to_f32().unwrap());
            let narrow = if dtype == Dtype::F32 { 0.0 } else { 1.0 / 128.0 };
            for (at, (exact, fast)) in exact.iter().zip(&fast).enumerate() {
                let (x, w) = (&xs[at / n * k..][..k], &w[at % n * k..][..k]);
                let moved: f32 = x
                    .chunks(32)
                    .zip(w.chunks(32))
                    .map(|(x, w)| x.iter().fold(0f32, |m, v| m.max(v.abs())) / 253.0 * w.iter().map(|w| w.abs()).sum::<f32>())
                    .sum();
                assert!(
                    (exact - fast).abs() <= moved + narrow * exact.abs() + 1e-3,
                    "{bits} bits, {dtype} at {at}: {exact}, {fast}"
                );
            }
            assert!(!Path::best().rounds() || exact != fast, "nothing was rounded");
            // As one row of a view.
            let row = x.slice(0, m as i32 - 1, m as i32).unwrap();
            let last = matmul(&row, &q, format, Precision::Fast).unwrap().to_f32().unwrap();
            assert_eq!(last, fast[(m - 1) * n..], "{dtype}");
        }
    }
}

#[test]
fn looked_up_rows_are_the_unpacked_ones() {
    for bits in [2, 3, 4, 5, 6, 8] {
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
            let format = format(bits, 32);
            let q = packed(20, 96, format, dtype, 11);
            let w = unpacked(&q, format);
            let ids = [19u32, 0, 7, 7, 18, 3];
            let expected: Vec<f32> = ids.iter().flat_map(|&id| w[id as usize * 96..][..96].to_vec()).collect();
            let rows = take(&q, format, &Array::from_slice(&ids, &[2, 3]).unwrap(), Dtype::F32).unwrap();
            assert_eq!(rows.shape(), [2, 3, 96]);
            assert_eq!(rows.to_vec::<f32>().unwrap(), expected, "{bits} bits, {dtype}");
        }
    }
    for path in Path::all() {
        let q = packed(5, 64, format(3, 64), Dtype::F32, 12);
        let mut row = [0.0; 64];
        let (scales, biases) = (q.scales.to_vec().unwrap(), q.biases.to_vec().unwrap());
        // The last row, so that loads that look ahead have nothing to look at.
        path.unpack(3, &bytemuck::cast_slice(&q.weight.to_vec::<u32>().unwrap())[24 * 4..], &scales[4..], &biases[4..], &mut row);
        assert_eq!(row, unpacked(&q, format(3, 64))[256..], "{path:?}");
    }
}

#[test]
fn what_does_not_fit_is_an_error() {
    let format = format(4, 32);
    let q = packed(8, 64, format, Dtype::F32, 13);
    let told = |y: mlx::Result<Array>| y.and_then(|y| y.eval()).unwrap_err().to_string();
    let x = |columns: i32, dtype| Array::zeros(&[1, columns], dtype).unwrap();
    assert!(
        told(matmul(&x(32, Dtype::F32), &q, format, Precision::Exact)).contains("[1, 32] does not fit a matrix with 64 inputs")
    );
    assert!(told(matmul(&x(64, Dtype::U32), &q, format, Precision::Exact)).contains("takes floats, not u32"));
    assert!(
        told(matmul(&x(64, Dtype::F32), &q, Affine { bits: 8, ..format }, Precision::Exact)).contains("are no matrix of 8 bits")
    );
    assert!(told(matmul(&x(64, Dtype::F32), &q, Affine { bits: 7, ..format }, Precision::Exact)).contains("no format of 7 bits"));
    for (ids, text) in [(vec![3, 8], "there is no row 8 of 8"), (vec![-1], "there is no row -1")] {
        let ids = Array::from_slice(&ids, &[ids.len()]).unwrap();
        assert!(told(take(&q, format, &ids, Dtype::F32)).contains(text));
    }
}
