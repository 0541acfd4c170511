//! The memory of a layer against a plain list.

use mlx::{Array, Dtype};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use rmlx_engine::config::{Rope as RopeSettings, RopeConfig};
use rmlx_engine::kv::LayerState;
use rmlx_engine::nn::Rope;

const HEADS: usize = 2;
const WIDTH: usize = 8;

/// Keys or values [1, 2, n, 8] that say which token they belong to.
fn rows(tokens: &[f32]) -> Array {
    let all: Vec<f32> = (0..HEADS).flat_map(|h| tokens.iter().flat_map(move |t| vec![t + 1000.0 * h as f32; WIDTH])).collect();
    Array::from_slice(&all, &[1, HEADS, tokens.len(), WIDTH]).unwrap()
}

/// Appends tokens and asks with queries of zero, which look at all alike: the mean of the values up to each token.
fn append(state: &mut LayerState, tokens: &[f32]) -> Vec<f32> {
    let queries = Array::zeros(&[1, HEADS as i32, tokens.len() as i32, WIDTH as i32], Dtype::F32).unwrap();
    let seen = state.attend(&queries, &rows(tokens), &rows(tokens), 1.0).unwrap();
    seen.slice(-1, 3, 4).unwrap().to_vec().unwrap()
}

fn means(held: &[f32], new: usize) -> Vec<f32> {
    let one = |head: usize, end: usize| held[..end].iter().sum::<f32>() / end as f32 + 1000.0 * head as f32;
    (0..HEADS).flat_map(|head| (held.len() - new + 1..=held.len()).map(move |end| one(head, end))).collect()
}

#[derive(Debug, Clone)]
enum Act {
    Append(usize),
    /// To this share of what is there.
    Truncate(f64),
    /// What cannot be appended.
    Spoil(usize),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (1usize..6).prop_map(Act::Append),
        2 => (1usize..400).prop_map(Act::Append),
        2 => (0f64..=1.0).prop_map(Act::Truncate),
        1 => (0usize..5).prop_map(Act::Spoil),
    ]
}

fn spoilt(state: &mut LayerState, way: usize) {
    let zeros = |shape: [i32; 4], dtype| Array::zeros(&shape, dtype).unwrap();
    let good = || zeros([1, 2, 3, 8], Dtype::F32);
    let (k, v) = match way {
        // Enough to need more room, too.
        0 => (zeros([1, 2, 3, 8], Dtype::F32), zeros([1, 2, 300, 8], Dtype::F32)),
        1 => (zeros([1, 2, 300, 8], Dtype::F32), good()),
        2 => (good(), zeros([1, 2, 3, 8], Dtype::Bf16)),
        3 => (zeros([1, 3, 3, 8], Dtype::F32), good()),
        _ => (Array::zeros(&[2, 3, 8], Dtype::F32).unwrap(), good()),
    };
    assert!(state.attend(&good(), &k, &v, 1.0).is_err(), "way {way}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]
    #[test]
    fn a_cache_is_a_list(acts in prop::collection::vec(act(), 1..14), paged in any::<bool>()) {
        let mut state = if paged { LayerState::paged() } else { LayerState::full() };
        // Our pages have values in whole registers of 16.
        let elements = if paged { WIDTH + 16 } else { 2 * WIDTH };
        let (mut held, mut next, mut room) = (Vec::new(), 0, 0usize);
        for act in acts {
            match act {
                Act::Append(n) => {
                    let new: Vec<f32> = (next..next + n).map(|i| (i * 37 % 101) as f32).collect();
                    next += n;
                    held.extend(&new);
                    let got = append(&mut state, &new);
                    for (got, expected) in got.iter().zip(means(&held, n)) {
                        prop_assert!((got - expected).abs() < 0.01, "{} for {}", got, expected);
                    }
                    if held.len() > room {
                        room = held.len().next_multiple_of(256);
                    }
                }
                Act::Truncate(share) => {
                    let len = (held.len() as f64 * share) as usize;
                    state.truncate(len).unwrap();
                    held.truncate(len);
                    prop_assert!(state.truncate(len + 1).is_err());
                }
                Act::Spoil(way) => spoilt(&mut state, way),
            }
            prop_assert_eq!((state.len(), state.is_empty()), (held.len(), held.is_empty()));
            // Keys and values in f32; what is truncated keeps its room.
            prop_assert_eq!(state.nbytes(), HEADS * elements * 4 * room);
        }
    }
}

/// Keys and values of a type, of which the cache gives back what it was given.
#[test]
fn both_kinds_agree() {
    let numbers: Vec<f32> = (0..2 * 300 * 8).map(|i| ((i * 7919) % 1009) as f32 / 500.0 - 1.0).collect();
    let all = Array::from_slice(&numbers, &[1, 2, 300, 8]).unwrap();
    let (mut full, mut paged) = (LayerState::full(), LayerState::paged());
    for (start, end) in [(0, 250), (250, 251), (251, 300)] {
        let part = all.slice(2, start, end).unwrap();
        let queries = part.mul_scalar(3.0).unwrap();
        let with = |state: &mut LayerState| state.attend(&queries, &part, &part, 0.7).unwrap().to_f32().unwrap();
        let (a, b) = (with(&mut full), with(&mut paged));
        assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-5));
    }
    assert_eq!((full.dtype(), full.len()), (paged.dtype(), paged.len()));
    // A handle on what is to be waited for does not hold the cache up.
    let held: Vec<Array> = paged.arrays().cloned().collect();
    assert_eq!(held.len(), 1);
}

/// A head of which the configuration rotates less than one pair is refused at load.
#[test]
fn a_rotation_of_nothing_is_refused() {
    for (head_dim, partial) in [(8, 0.01), (8, 0.2), (1, 1.0)] {
        let settings = RopeSettings { theta: 1e4, partial_rotary_factor: partial, scaling: RopeConfig::Default };
        let e = Rope::new(&settings, head_dim).err().expect("a refusal");
        assert_eq!(e.code(), "unsupported_model");
    }
    let settings = RopeSettings { theta: 1e4, partial_rotary_factor: 0.25, scaling: RopeConfig::Default };
    let x = Array::from_slice(&[1.5f32; 8], &[1, 1, 1, 8]).unwrap();
    let y: Vec<f32> = Rope::new(&settings, 8).unwrap().forward(&x, 5).unwrap().to_vec().unwrap();
    assert!(y[0] != 1.5 && y[1] != 1.5 && y[2..] == [1.5; 6], "{y:?}");
}
