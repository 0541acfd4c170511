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

fn array(rows: usize, columns: usize, dtype: Dtype, seed: u32) -> Array {
    Array::from_slice(&numbers(rows * columns, seed), &[rows, columns]).unwrap().astype(dtype).unwrap()
}

fn on(path: Path, x: &Array, w: &Array) -> Vec<f32> {
    let kernel = CpuKernel::new("test", move |inputs, outputs| product(&inputs[0], &inputs[1], &mut outputs[0], path)).unwrap();
    let shape = [x.dim(0), w.dim(0)];
    kernel.call([x, w], &[(&shape, Dtype::F32)]).unwrap()[0].to_vec().unwrap()
}

/// Against f64: every term is rounded at most once per addition that it takes part in, which are no more than k / 4 and a few.
fn check(m: usize, n: usize, k: usize, x: Dtype, w: Dtype, seed: u32) {
    let (x, w) = (array(m, k, x, seed), array(n, k, w, seed + 1));
    let (xs, ws) = (x.to_f32().unwrap(), w.to_f32().unwrap());
    for path in Path::all() {
        let y = on(path, &x, &w);
        for i in 0..m {
            for j in 0..n {
                let terms = || ws[j * k..][..k].iter().zip(&xs[i * k..][..k]).map(|(w, x)| f64::from(*w) * f64::from(*x));
                let (exact, size) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
                let bound = (k as f64 / 4.0 + 8.0) * size / f64::from(1 << 24);
                let off = (f64::from(y[i * n + j]) - exact).abs();
                assert!(off <= bound, "{path:?} [{m}, {k}] x [{n}, {k}] of {} at {i}, {j}: off by {off}, not {bound}", w.dtype());
            }
        }
        let single: Vec<f32> = (0..m as i32).flat_map(|i| on(path, &x.slice(0, i, i + 1).unwrap(), &w)).collect();
        assert_eq!(y, single, "{path:?}: a row depends on its neighbours");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_shape_and_type(
        m in 1usize..12, n in 1usize..40, k in 1usize..200, seed in 0u32..1 << 30,
        x in prop::sample::select(vec![Dtype::F32, Dtype::F16, Dtype::Bf16]),
        w in prop::sample::select(vec![Dtype::F32, Dtype::F16, Dtype::Bf16]),
    ) {
        check(m, n, k, x, w, seed);
    }
}

/// Large enough for several threads and parts of x.
#[test]
fn many_rows() {
    check(130, 67, 2100, Dtype::F32, Dtype::Bf16, 1);
    check(1, 3001, 576, Dtype::F32, Dtype::F16, 2);
}

/// Of which none fits the cache.
#[test]
fn long_rows() {
    check(2, 3, (1 << 17) + 5, Dtype::F32, Dtype::F16, 3);
}

#[test]
fn as_mlx_computes_it() {
    for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
        let w = array(48, 100, dtype, 3);
        let x = Array::from_slice(&numbers(600, 4), &[2, 3, 100]).unwrap().astype(dtype).unwrap();
        let y = matmul(&x, &w).unwrap();
        assert_eq!((y.shape(), y.dtype()), (&[2, 3, 48][..], dtype));
        let wide = |a: &Array| a.astype(Dtype::F32).unwrap();
        let slow = wide(&x).matmul(&wide(&w).t().unwrap()).unwrap().to_f32().unwrap();
        let off = y.to_f32().unwrap().iter().zip(&slow).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
        let allowed = if dtype == Dtype::F32 { 1e-5 } else { 0.05 };
        assert!(off < allowed, "{dtype}: {off}");
        // Some rows of the matrix, a transposed x, no rows.
        let part = matmul(&x, &w.slice(0, 11, 30).unwrap()).unwrap();
        assert_eq!(part.to_f32().unwrap(), y.slice(-1, 11, 30).unwrap().to_f32().unwrap());
        let across = matmul(&x.transpose(&[1, 0, 2]).unwrap(), &w).unwrap();
        assert_eq!(across.to_f32().unwrap(), y.transpose(&[1, 0, 2]).unwrap().to_f32().unwrap());
        assert!(matmul(&Array::zeros(&[0, 100], dtype).unwrap(), &w).unwrap().to_f32().unwrap().is_empty());
    }
}

#[test]
fn rows_are_looked_up() {
    for stored in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
        let w = array(20, 7, stored, 8);
        let all = w.to_f32().unwrap();
        let ids = Array::from_slice(&[19u32, 0, 7, 7], &[2, 2]).unwrap();
        let expected: Vec<f32> = [19, 0, 7, 7].iter().flat_map(|id| all[id * 7..][..7].to_vec()).collect();
        let rows = take(&w, &ids, Dtype::F32).unwrap();
        assert_eq!((rows.shape(), rows.to_f32().unwrap()), (&[2, 2, 7][..], expected));
        assert_eq!(take(&w, &ids, Dtype::Bf16).unwrap().dtype(), Dtype::Bf16);
        for id in [20, -1] {
            let error = take(&w, &Array::from_slice(&[id], &[1]).unwrap(), Dtype::F32).and_then(|y| y.eval()).unwrap_err();
            assert!(error.to_string().contains(&format!("there is no row {id} of 20")), "{error}");
        }
    }
}

#[test]
fn what_does_not_fit_is_an_error() {
    let w = array(8, 64, Dtype::Bf16, 5);
    let told = |x: &Array, w: &Array| matmul(x, w).and_then(|y| y.eval()).unwrap_err().to_string();
    assert!(told(&array(1, 32, Dtype::F32, 6), &w).contains("[1, 32] does not fit a matrix with 64 inputs"));
    assert!(told(&Array::zeros(&[1, 64], Dtype::U32).unwrap(), &w).contains("takes floats, not u32"));
    assert!(told(&array(1, 64, Dtype::F32, 7), &Array::zeros(&[8, 64], Dtype::U32).unwrap()).contains("takes floats, not u32"));
    assert!(told(&array(1, 64, Dtype::F32, 7), &Array::zeros(&[64], Dtype::F32).unwrap()).contains("takes a matrix, not [64]"));
}
