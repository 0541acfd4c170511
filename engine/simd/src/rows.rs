//! Work on single rows: the exponential, norms, activations.

use crate::{Kind, LANES, Path};

/// Calls the body for this path: each function below is one plain loop, compiled once for each instruction set.
macro_rules! dispatch {
    ($path:expr, $body:ident($($argument:ident: $type:ty),*)) => {{
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        fn avx2($($argument: $type),*) {
            $body::<true>($($argument),*)
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,avx512f")]
        fn avx512($($argument: $type),*) {
            $body::<true>($($argument),*)
        }
        match $path.0 {
            // SAFETY: a path exists only where the machine has it.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 | Kind::AvxVnni => unsafe { avx2($($argument),*) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 | Kind::Avx512Vnni => unsafe { avx512($($argument),*) },
            // What every processor of this kind has: 64-bit ARM has fused additions. All are named, so that a new one is not forgotten.
            #[cfg(target_arch = "aarch64")]
            Kind::Neon | Kind::NeonDot => $body::<true>($($argument),*),
            Kind::Portable => $body::<{ cfg!(target_arch = "aarch64") }>($($argument),*),
        }
    }};
}

impl Path {
    /// out = e^x, for any x. The error is below 2 units in the last place; results under 2^-126 have an absolute error below
    /// 2^-148. NaN stays NaN.
    pub fn exp(self, x: &[f32], out: &mut [f32]) {
        assert!(x.len() == out.len());
        dispatch!(self, exps(x: &[f32], out: &mut [f32]));
    }

    /// out = x / sqrt(mean(x^2) + eps) * weight
    pub fn rms_norm(self, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
        assert!(x.len() == out.len() && x.len() == weight.len());
        dispatch!(self, rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]));
    }

    /// out = silu(gate) * up, where silu(x) = x / (1 + e^-x)
    pub fn silu_mul(self, gate: &[f32], up: &[f32], out: &mut [f32]) {
        assert!(gate.len() == out.len() && up.len() == out.len());
        dispatch!(self, silu_mul(gate: &[f32], up: &[f32], out: &mut [f32]));
    }

    /// Rotates the pairs (x[i], x[i + half]) by the angles whose cosines and sines are given, half = cos.len(); the rest stays.
    pub fn rotate(self, x: &mut [f32], cos: &[f32], sin: &[f32]) {
        assert!(cos.len() == sin.len() && x.len() >= 2 * cos.len());
        dispatch!(self, rotate(x: &mut [f32], cos: &[f32], sin: &[f32]));
    }
}

/// a * b + c, in one rounding where that is one instruction.
#[inline(always)]
pub(crate) fn fma<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// e^x = 2^n e^r with |r| <= ln 2 / 2, where the series of e^r up to r^7 is off by less than 6e-9.
#[inline(always)]
pub(crate) fn exp<const FUSED: bool>(x: f32) -> f32 {
    /// Added to a number, it leaves the nearest integer in the lowest bits.
    const MAGIC: f32 = 12_582_912.0;
    /// ln 2 in two parts; products of the first with an n are exact.
    const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    // Beyond, the result is 0 or infinite. Comparisons that are false for NaN, so that it passes.
    let x = if x < -104.0 { -104.0 } else { x };
    let x = if x > 89.0 { 89.0 } else { x };
    let shifted = fma::<FUSED>(x, std::f32::consts::LOG2_E, MAGIC);
    let n = shifted - MAGIC;
    let r = fma::<FUSED>(n, -LN_2[1], fma::<FUSED>(n, -LN_2[0], x));
    let mut p = 1.0 / 5040.0;
    for term in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        p = fma::<FUSED>(p, r, term);
    }
    // In two steps, since 2^n alone may be out of range where the result is not.
    let n = (shifted.to_bits() as i32).wrapping_sub(MAGIC.to_bits() as i32);
    let power = |n: i32| f32::from_bits((n.wrapping_add(127) as u32) << 23);
    p * power(n >> 1) * power(n.wrapping_sub(n >> 1))
}

#[inline(always)]
fn exps<const FUSED: bool>(x: &[f32], out: &mut [f32]) {
    for (out, x) in out.iter_mut().zip(x) {
        *out = exp::<FUSED>(*x);
    }
}

#[inline(always)]
fn silu_mul<const FUSED: bool>(gate: &[f32], up: &[f32], out: &mut [f32]) {
    for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
        *out = gate / (1.0 + exp::<FUSED>(-gate)) * up;
    }
}

#[inline(always)]
fn rms_norm<const FUSED: bool>(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let mut sums = [0f32; LANES];
    let (whole, rest) = x.as_chunks::<LANES>();
    for x in whole {
        for (sum, x) in sums.iter_mut().zip(x) {
            *sum = fma::<FUSED>(*x, *x, *sum);
        }
    }
    for (sum, x) in sums.iter_mut().zip(rest) {
        *sum = fma::<FUSED>(*x, *x, *sum);
    }
    let total: f32 = sums.iter().sum();
    let factor = 1.0 / (total / x.len() as f32 + eps).sqrt();
    for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
        *out = x * factor * weight;
    }
}

#[inline(always)]
fn rotate<const FUSED: bool>(x: &mut [f32], cos: &[f32], sin: &[f32]) {
    let (low, high) = x.split_at_mut(cos.len());
    for (((low, high), cos), sin) in low.iter_mut().zip(high).zip(cos).zip(sin) {
        let (a, b) = (*low, *high);
        *low = fma::<FUSED>(a, *cos, -(b * sin));
        *high = fma::<FUSED>(a, *sin, b * cos);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn apply(path: Path, work: impl Fn(Path, &mut [f32]), n: usize) -> Vec<f32> {
        let mut out = vec![f32::NAN; n];
        work(path, &mut out);
        out
    }

    /// Every 97th float of both signs, and the ends.
    #[test]
    fn the_exponential_of_every_size_of_number() {
        let xs: Vec<f32> = (0..=u32::MAX / 97).map(|i| f32::from_bits(i * 97)).collect();
        for path in Path::all() {
            let ys = apply(path, |p, out| p.exp(&xs, out), xs.len());
            for (x, y) in xs.iter().zip(ys) {
                let exact = f64::from(*x).exp();
                if x.is_nan() {
                    assert!(y.is_nan());
                } else if exact > f64::from(f32::MAX) * (1.0 + 2f64.powi(-23)) {
                    assert_eq!(y, f32::INFINITY, "e^{x}");
                } else if exact < f64::from(f32::MAX) * (1.0 - 2f64.powi(-22)) {
                    let bound = 2.0 * (exact * 2f64.powi(-23)).max(2f64.powi(-149));
                    let off = (f64::from(y) - exact).abs();
                    assert!(off <= bound, "{path:?}: e^{x} is {y}, off by {off}, not {bound}");
                }
            }
        }
    }

    #[test]
    fn the_exponential_at_the_ends() {
        let xs = [0.0, -0.0, f32::NEG_INFINITY, f32::INFINITY, f32::MIN, f32::MAX, -104.0, -87.4, 88.72, f32::NAN];
        for path in Path::all() {
            let ys = apply(path, |p, out| p.exp(&xs, out), xs.len());
            assert_eq!(ys[..7], [1.0, 1.0, 0.0, f32::INFINITY, 0.0, f32::INFINITY, 0.0], "{path:?}");
            assert!(ys[7] > 0.0 && ys[8] > 3.3e38 && ys[8].is_finite() && ys[9].is_nan(), "{path:?}: {ys:?}");
        }
    }

    proptest! {
        #[test]
        fn a_norm(x in prop::collection::vec(-1e3f32..1e3, 1..200), eps in 1e-7f32..1e-3, scale in -12i32..12) {
            let x: Vec<f32> = x.iter().map(|x| x * 2f32.powi(scale)).collect();
            let weight: Vec<f32> = (0..x.len()).map(|i| (i as f32 * 0.7).sin() * 3.0).collect();
            let mean = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / x.len() as f64;
            for path in Path::all() {
                let ys = apply(path, |p, out| p.rms_norm(&x, &weight, eps, out), x.len());
                for ((y, x), w) in ys.iter().zip(&x).zip(&weight) {
                    let exact = f64::from(*x) / (mean + f64::from(eps)).sqrt() * f64::from(*w);
                    // A sum of n / 16 + 16 squares of one sign, half of its error after the root, and five roundings more.
                    let bound = ((ys.len() as f64 / 16.0 + 16.0) / 2.0 + 6.0) * 2f64.powi(-24) * exact.abs() + 1e-38;
                    prop_assert!((f64::from(*y) - exact).abs() <= bound, "{:?}: {} not {}", path, y, exact);
                }
            }
        }

        #[test]
        fn an_activation(pairs in prop::collection::vec((-110f32..110.0, -1e3f32..1e3), 1..100)) {
            let (gate, up): (Vec<f32>, Vec<f32>) = pairs.iter().copied().unzip();
            for path in Path::all() {
                let ys = apply(path, |p, out| p.silu_mul(&gate, &up, out), gate.len());
                for ((y, g), u) in ys.iter().zip(&gate).zip(&up) {
                    let exact = f64::from(*g) / (1.0 + (-f64::from(*g)).exp()) * f64::from(*u);
                    let bound = 8.0 * 2f64.powi(-24) * exact.abs() + 1e-33;
                    prop_assert!((f64::from(*y) - exact).abs() <= bound, "{:?}: {} not {}", path, y, exact);
                }
            }
        }

        #[test]
        fn a_rotation(half in 1usize..70, rest in 0usize..9, angle in -1e4f32..1e4) {
            let x: Vec<f32> = (0..2 * half + rest).map(|i| (i as f32 * 1.3).cos()).collect();
            let (sin, cos): (Vec<f32>, Vec<f32>) = (0..half).map(|i| (angle / (i + 1) as f32).sin_cos()).unzip();
            for path in Path::all() {
                let mut y = x.clone();
                path.rotate(&mut y, &cos, &sin);
                prop_assert_eq!(&y[2 * half..], &x[2 * half..]);
                for i in 0..half {
                    let wide = |x: f32| f64::from(x);
                    let (a, b, c, s) = (wide(x[i]), wide(x[i + half]), wide(cos[i]), wide(sin[i]));
                    for (y, exact) in [(y[i], a * c - b * s), (y[i + half], a * s + b * c)] {
                        prop_assert!((wide(y) - exact).abs() <= 3.0 * 2f64.powi(-24) * (a.abs() + b.abs()));
                    }
                }
            }
        }
    }

    /// Products of bytes add nothing to these loops, so their paths are the wide ones, and not what is left over.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn paths_with_products_of_bytes_have_the_same_loops() {
        let x: Vec<f32> = (0..200).map(|i| (i as f32 * 0.37).sin() * 5.0).collect();
        let (sin, cos): (Vec<f32>, Vec<f32>) = x[..100].iter().map(|x| x.sin_cos()).unzip();
        let bits = |path: Kind| {
            let path = Path(path);
            let mut all = apply(path, |p, out| p.exp(&x, out), 200);
            all.extend(apply(path, |p, out| p.rms_norm(&x, &x, 1e-5, out), 200));
            all.extend(apply(path, |p, out| p.silu_mul(&x, &x, out), 200));
            let mut turned = x.clone();
            path.rotate(&mut turned, &cos, &sin);
            all.extend(turned);
            all.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
        };
        for (wide, bytes) in [(Kind::Avx2, Kind::AvxVnni), (Kind::Avx512, Kind::Avx512Vnni)] {
            if Path::all().contains(&Path(bytes)) {
                assert!(bits(wide) == bits(bytes), "{bytes:?} is not {wide:?}");
                assert!(bits(Kind::Portable) != bits(bytes), "{bytes:?} has no fused additions");
            }
        }
    }

    #[test]
    fn what_is_not_a_number_stays_so() {
        let (mut x, ones) = ([1f32; 40], [1f32; 40]);
        x[33] = f32::NAN;
        for path in Path::all() {
            assert!(apply(path, |p, out| p.rms_norm(&x, &ones, 1e-5, out), 40).iter().all(|y| y.is_nan()));
            let y = apply(path, |p, out| p.silu_mul(&x, &ones, out), 40);
            assert!(y[33].is_nan() && y[32].is_finite());
        }
    }
}
