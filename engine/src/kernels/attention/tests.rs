use half::{bf16, f16};
use mlx::fast::{self, Frequencies, Mask};
use mlx::{Array, Dtype};
use proptest::prelude::*;

use super::*;
use crate::kernels::rows::testing::{close, numbers, typed};

/// Angles of theta^(-2i / dims).
fn rotation(theta: f64, dims: usize, position_scale: f32) -> Rotation {
    let angle = |i: usize| theta.powf(-2.0 * i as f64 / dims as f64) as f32;
    Rotation { angles: (0..dims / 2).map(angle).collect(), position_scale }
}

/// A cache and what its calls need.
struct Layer {
    plan: Arc<Plan>,
    store: Arc<Mutex<Store>>,
    norms: Option<(Array, Array)>,
    order: Option<Array>,
}

impl Layer {
    fn new(plan: Plan, dtype: Dtype) -> Self {
        let weight = |seed| typed(&numbers(plan.width, seed), &[plan.width], dtype);
        let norms = plan.norm_eps.map(|_| (weight(101), weight(102)));
        Self { plan: Arc::new(plan), store: Arc::default(), norms, order: None }
    }

    fn attend(&mut self, before: usize, x: &Array) -> Array {
        let norms = self.norms.as_ref().map(|(q, k)| (q, k));
        let (y, order) = attend(&self.plan, &self.store, before, x, norms, self.order.as_ref()).unwrap();
        self.order = Some(order);
        y
    }

    /// All tokens of x [1, n, ..] in pieces of these sizes, the last repeated.
    fn in_pieces(plan: &Plan, x: &Array, pieces: &[i32]) -> Vec<f32> {
        let (mut layer, mut at, mut out) = (Self::new(plan.clone(), x.dtype()), 0, Vec::new());
        let mut pieces = pieces.iter().copied().chain(std::iter::repeat(*pieces.last().unwrap()));
        while at < x.dim(1) {
            let end = (at + pieces.next().unwrap()).min(x.dim(1));
            out.extend(layer.attend(at as usize, &x.slice(1, at, end).unwrap()).to_f32().unwrap());
            at = end;
        }
        out
    }
}

/// The same by MLX's operations, all tokens at once.
fn by_mlx(plan: &Plan, x: &Array, theta: f32) -> Array {
    let n = x.dim(1);
    let (heads, kv_heads, width) = (plan.heads as i32, plan.kv_heads as i32, plan.width as i32);
    let part = |first: i32, heads: i32| {
        x.slice(-1, first * width, (first + heads) * width).unwrap().reshape(&[1, n, heads, width]).unwrap()
    };
    let (q, k, v) = (part(0, heads), part(heads, kv_heads), part(heads + kv_heads, kv_heads));
    let turned = |x: Array, seed| {
        let weight = typed(&numbers(plan.width, seed), &[plan.width], x.dtype());
        let x = match plan.norm_eps {
            Some(eps) => fast::rms_norm(&x, Some(&weight), eps).unwrap(),
            None => x,
        };
        let x = x.transpose(&[0, 2, 1, 3]).unwrap();
        let Some(rotation) = &plan.rotation else { return x };
        let dims = 2 * rotation.angles.len() as i32;
        fast::rope(&x, dims, &Frequencies::Base(theta), rotation.position_scale, 0).unwrap()
    };
    let v = v.transpose(&[0, 2, 1, 3]).unwrap();
    let y = fast::attention(&turned(q, 101), &turned(k, 102), &v, plan.scale, Mask::Causal).unwrap();
    y.transpose(&[0, 2, 1, 3]).unwrap().reshape(&[1, n, -1]).unwrap()
}

fn projections(plan: &Plan, n: usize, dtype: Dtype, seed: u32) -> Array {
    typed(&numbers(n * plan.projected(), seed), &[1, n, plan.projected()], dtype)
}

#[test]
fn as_mlx_computes_it() {
    for (heads, kv_heads, width, dims, norm_eps, position_scale) in
        [(9, 3, 64, 64, None, 1.0), (4, 1, 24, 16, Some(1e-6), 0.5), (2, 2, 80, 20, None, 1.0), (10, 2, 8, 8, Some(1e-5), 1.0)]
    {
        let rotation = Some(rotation(1e4, dims, position_scale));
        let plan = Plan { heads, kv_heads, width, scale: (width as f32).powf(-0.5), rotation, norm_eps };
        for (n, dtype, allowed) in [
            (1, Dtype::F32, 1e-4),
            (5, Dtype::F32, 1e-4),
            (300, Dtype::F32, 1e-4),
            (40, Dtype::F16, 5e-3),
            (270, Dtype::Bf16, 4e-2),
        ] {
            let x = projections(&plan, n, dtype, 7);
            let mut layer = Layer::new(plan.clone(), dtype);
            let y = layer.attend(0, &x);
            let reference = by_mlx(&plan, &x, 1e4);
            close(&y, &reference, allowed);
            // The control: a rotation by one position more is seen.
            if n == 300 {
                let shifted = Plan { scale: plan.scale * 1.5, ..plan.clone() };
                let off = by_mlx(&shifted, &x, 1e4).sub(&reference).unwrap().to_f32().unwrap();
                assert!(off.iter().any(|x| x.abs() > 10.0 * allowed));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// However the tokens come in, each row is the same, bit for bit.
    #[test]
    fn pieces_do_not_matter(
        n in 1usize..600, pieces in prop::collection::vec(1i32..300, 1..6), group in 1usize..5, width in 3usize..40,
        dtype in prop::sample::select(vec![Dtype::F32, Dtype::F16, Dtype::Bf16]), seed in 0u32..1 << 30,
    ) {
        let rotation = Some(rotation(1e4, width / 2 * 2, 1.0));
        let plan = Plan { heads: 2 * group, kv_heads: 2, width, scale: 0.3, rotation, norm_eps: Some(1e-6) };
        let x = projections(&plan, n, dtype, seed);
        let whole = Layer::in_pieces(&plan, &x, &[n as i32]);
        prop_assert_eq!(&Layer::in_pieces(&plan, &x, &pieces), &whole);
        if n < 100 {
            prop_assert_eq!(&Layer::in_pieces(&plan, &x, &[1]), &whole);
        }
        // A view of something wider, every second token of twice as many.
        let wider = mlx::concatenate([&x, &x], -1).unwrap().slice(-1, 0, plan.projected() as i32).unwrap();
        prop_assert_eq!(&Layer::in_pieces(&plan, &wider, &[n as i32]), &whole);
        let columns = x.transpose(&[0, 2, 1]).unwrap().contiguous().unwrap().transpose(&[0, 2, 1]).unwrap();
        prop_assert_eq!(&Layer::in_pieces(&plan, &columns, &[n as i32]), &whole);
    }
}

/// Every number of threads gives the same; enough work for several.
#[test]
fn threads_do_not_matter() {
    let plan = Plan { heads: 8, kv_heads: 2, width: 32, scale: 0.2, rotation: None, norm_eps: None };
    let x = projections(&plan, 900, Dtype::F32, 5);
    let with = |threads| {
        pool::set_threads(Some(threads));
        (Layer::in_pieces(&plan, &x, &[900]), Layer::in_pieces(&plan, &x, &[898, 1]))
    };
    let one = with(1);
    assert_eq!(one.0, one.1);
    for threads in [2, 5] {
        assert!(with(threads) == one, "{threads} threads");
    }
    pool::set_threads(None);
}

#[test]
fn what_was_cut_off_is_gone() {
    let plan = Plan { heads: 2, kv_heads: 1, width: 16, scale: 0.25, rotation: None, norm_eps: None };
    let x = projections(&plan, 600, Dtype::F32, 5);
    let part = |start, end| x.slice(1, start, end).unwrap();
    let mut layer = Layer::new(plan.clone(), Dtype::F32);
    layer.attend(0, &part(0, 300)).eval().unwrap();
    // Other tokens in the place of the last 200, which nobody has asked for when they are cut off.
    layer.attend(300, &part(300, 500));
    layer.attend(100, &part(400, 600));
    let y = layer.attend(300, &part(7, 8)).to_f32().unwrap();
    let direct = mlx::concatenate([&part(0, 100), &part(400, 600), &part(7, 8)], 1).unwrap();
    assert_eq!(y, Layer::in_pieces(&plan, &direct, &[301])[300 * 32..]);
}

/// What is built first runs first, in whatever order results are asked for, and stays as it was when more is appended.
#[test]
fn calls_run_in_their_order() {
    let plan = Plan { heads: 2, kv_heads: 1, width: 16, scale: 0.25, rotation: None, norm_eps: None };
    let x = projections(&plan, 9, Dtype::F32, 5);
    let part = |start, end| x.slice(1, start, end).unwrap();
    let mut layer = Layer::new(plan.clone(), Dtype::F32);
    let (first, second) = (layer.attend(0, &part(0, 4)), layer.attend(4, &part(4, 5)));
    let (third, other) = (layer.attend(5, &part(5, 9)), layer.attend(2, &part(0, 3)));
    let whole = Layer::in_pieces(&plan, &x, &[9]);
    let _ = other.to_f32().unwrap();
    let got = [third, second, first].map(|y| y.to_f32().unwrap());
    assert_eq!(got[2], whole[..4 * 32]);
    assert_eq!(got[1], whole[4 * 32..5 * 32]);
    assert_eq!(got[0], whole[5 * 32..]);
}

#[test]
fn what_does_not_fit_is_an_error_and_changes_nothing() {
    let plan = Plan { heads: 2, kv_heads: 1, width: 16, scale: 0.25, rotation: None, norm_eps: None };
    let x = projections(&plan, 5, Dtype::F32, 5);
    let mut layer = Layer::new(plan.clone(), Dtype::F32);
    let _ = layer.attend(0, &x).to_f32().unwrap();
    let mut told = |plan: &Plan, before, x: &Array, norm: Option<&Array>| {
        let norms = norm.map(|n| (n, n));
        let (y, order) = attend(&Arc::new(plan.clone()), &layer.store, before, x, norms, layer.order.as_ref()).unwrap();
        layer.order = Some(order);
        y.eval().unwrap_err().to_string()
    };
    let half = x.astype(Dtype::F16).unwrap();
    let weight = |n: i32| Array::zeros(&[n], Dtype::F32).unwrap();
    assert!(told(&plan, 6, &x, None).contains("1 of 6 tokens that came before are missing"));
    assert!(told(&plan, 5, &half, None).contains("the cache is not of f16"));
    assert!(told(&plan, 5, &x.slice(-1, 0, 60).unwrap(), None).contains("does not fit 2 heads of 16 on 1"));
    assert!(told(&plan, 5, &x, Some(&weight(16))).contains("does not fit"));
    let normed = Plan { norm_eps: Some(1e-5), ..plan.clone() };
    assert!(told(&normed, 5, &x, Some(&weight(15))).contains("[15] is no weight of heads of 16"));
    assert!(told(&Plan { width: 8, heads: 6, ..plan.clone() }, 5, &x, None).contains("cannot be appended to 1 of 16"));
    assert!(told(&Plan { kv_heads: 0, ..plan.clone() }, 5, &x, None).contains("do not fit together"));
    assert!(told(&Plan { rotation: Some(rotation(1e4, 18, 1.0)), ..plan.clone() }, 5, &x, None).contains("do not fit together"));
    // As if nothing had been.
    let y = layer.attend(5, &x.slice(1, 0, 1).unwrap()).to_f32().unwrap();
    let direct = mlx::concatenate([&x, &x.slice(1, 0, 1).unwrap()], 1).unwrap();
    assert_eq!(y, Layer::in_pieces(&plan, &direct, &[6])[5 * 32..]);
}

#[test]
fn the_room_is_what_is_allocated() {
    fn bytes<T>(pages: &[Box<[T]>]) -> usize {
        pages.iter().map(|p| size_of_val(&**p)).sum()
    }
    for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
        let plan = Plan { heads: 2, kv_heads: 2, width: 24, scale: 0.25, rotation: None, norm_eps: None };
        let mut layer = Layer::new(plan.clone(), dtype);
        let _ = layer.attend(0, &projections(&plan, 257, dtype, 5)).to_f32().unwrap();
        let mut store = layer.store.lock().unwrap();
        let held = match dtype {
            Dtype::F32 => bytes(store::Stored::pages(&mut store).map(|p: &mut Vec<Box<[f32]>>| &**p).unwrap()),
            Dtype::F16 => bytes(store::Stored::pages(&mut store).map(|p: &mut Vec<Box<[f16]>>| &**p).unwrap()),
            _ => bytes(store::Stored::pages(&mut store).map(|p: &mut Vec<Box<[bf16]>>| &**p).unwrap()),
        };
        assert_eq!(held, Store::room(257, 2, 24) * dtype.size());
        assert!(held_bytes() >= held);
        // That stays known when it is gone.
        drop(store);
        drop(layer);
        assert!(most_held_bytes() >= held);
        // Keys take what they need, values whole registers, both for two pages.
        assert_eq!(Store::room(257, 2, 24), 512 * 2 * (24 + 32));
    }
}
