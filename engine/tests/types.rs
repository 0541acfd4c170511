//! The arithmetic type: in a bf16 stream every intermediate is bf16, whatever types the snapshot's norms and scales have, and the
//! cache has two bytes for each element.

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use mlx::quant::{self, Affine};
use mlx::{Array, Dtype, Recorded, fast, record};
use rmlx_engine::arch::Model;
use rmlx_engine::error::Result;
use rmlx_engine::kernels::Precision;
use rmlx_engine::kv::LayerState;
use rmlx_engine::nn::Compute;
use rmlx_engine::registry::{Placement, Resident};
use serde_json::json;
use support::*;

fn oracle(name: &str) -> PathBuf {
    fixtures().join("oracles").join(name)
}

/// A copy of a fixture whose norms and biases are f16 and whose matrices are bf16, or packed in 4 bits with scales in f16.
fn half_and_half(name: &str, pack: bool, folder: &Path) {
    let source = oracle(name);
    copy_without_weights(&source, folder);
    let f16 = |a: &Array| a.astype(Dtype::F16).unwrap();
    let mut tensors = Vec::new();
    for (name, a) in read(&source.join("model.safetensors")) {
        match name.strip_suffix(".weight") {
            Some(module) if a.ndim() == 2 && pack => {
                let q = quant::quantize(&a, Affine { bits: 4, group_size: 32 }).unwrap();
                tensors.push((name.clone(), q.weight));
                tensors.push((format!("{module}.scales"), f16(&q.scales)));
                tensors.push((format!("{module}.biases"), f16(&q.biases)));
            }
            _ if a.ndim() == 2 => tensors.push((name, a)),
            _ => tensors.push((name, f16(&a))),
        }
    }
    let stored: BTreeSet<&str> = tensors.iter().map(|(_, a)| a.dtype().name()).collect();
    assert_eq!(stored, BTreeSet::from(if pack { ["f16", "u32"] } else { ["bf16", "f16"] }));
    write(&folder.join("model.safetensors"), &tensors);
    if pack {
        let mut config = json(&source.join("config.json"));
        config["quantization"] = json!({"bits": 4, "group_size": 32});
        std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    }
}

/// What a walk through a prompt and two more steps gives.
struct Walk {
    results: Vec<Recorded>,
    states: Vec<LayerState>,
    logits: Array,
}

fn walk(model: &dyn Model) -> Walk {
    let mut states = model.states();
    let (logits, results) = record(|| {
        let mut logits = None;
        for tokens in [&[5u32, 300, 17, 9][..], &[44], &[2]] {
            let tokens = Array::from_slice(tokens, &[1, tokens.len()]).unwrap();
            let hidden = model.forward(&tokens, &mut states).unwrap();
            logits = Some(model.logits(&hidden).unwrap());
        }
        logits.expect("three steps")
    });
    Walk { results, states, logits }
}

/// The results that are of another type. Ids are integers.
fn leaks(walk: &Walk, dtype: Dtype) -> Vec<&Recorded> {
    walk.results.iter().filter(|r| ![dtype, Dtype::U32, Dtype::I32].contains(&r.dtype)).collect()
}

fn placed(name: &str, pack: bool, placement: Placement) -> Resident {
    let folder = tempfile::tempdir().unwrap();
    half_and_half(name, pack, folder.path());
    load_placed(folder.path(), placement)
}

const ARCHS: [&str; 6] = ["llama", "llama3_rope", "qwen2", "qwen3", "qwen3_tied", "qwen3_yarn"];

#[test]
fn every_intermediate_is_of_the_streams_type() {
    for name in ARCHS {
        let config = json(&oracle(name).join("config.json"));
        let number = |key: &str| config[key].as_u64().map(|n| n as usize);
        let (layers, kv_heads) = (number("num_hidden_layers").unwrap(), number("num_key_value_heads").unwrap());
        let head_dim =
            number("head_dim").unwrap_or_else(|| number("hidden_size").unwrap() / number("num_attention_heads").unwrap());
        for (pack, compute) in [
            (true, Compute::Mlx),
            (true, Compute::Own(Precision::Exact)),
            (true, Compute::Plain),
            (false, Compute::Own(Precision::Exact)),
        ] {
            for dtype in [Dtype::Bf16, Dtype::F16] {
                let resident = placed(name, pack, Placement { dtype: Some(dtype), compute });
                assert_eq!(resident.dtype, dtype);
                let walk = walk(&*resident.model);
                // The walk saw the layers, not only the ends.
                let least = if let Compute::Own(_) = compute { 10 } else { 20 };
                assert!(walk.results.len() > 3 * least * layers, "{} results", walk.results.len());
                assert_eq!(leaks(&walk, dtype), [] as [&Recorded; 0], "{name}, packed {pack}, {compute:?}");
                assert_eq!(walk.logits.dtype(), dtype);
                assert_eq!(walk.states.len(), layers);
                for state in &walk.states {
                    assert_eq!((state.len(), state.dtype()), (6, Some(dtype)));
                    if let LayerState::Paged(_) = state {
                        // The same room, but no arrays; the heads here have whole registers.
                        assert_eq!(state.nbytes(), 2 * 2 * kv_heads * head_dim * 256);
                        continue;
                    }
                    let elements: usize = state.arrays().map(Array::size).sum();
                    // Keys and values, room for 256 positions.
                    assert_eq!(elements, 2 * kv_heads * head_dim * 256);
                    assert_eq!(state.nbytes(), 2 * elements);
                    assert!(state.arrays().all(|a| a.dtype() == dtype));
                }
            }
        }
    }
}

/// It is the same model: the logits are near those in f32.
#[test]
fn the_types_agree_on_the_answer() {
    for pack in [true, false] {
        let with = |dtype| {
            let resident = placed("qwen3", pack, Placement { dtype: Some(dtype), compute: Compute::Mlx });
            walk(&*resident.model).logits.to_f32().unwrap()
        };
        let exact = with(Dtype::F32);
        let spread = exact.iter().map(|x| x.abs()).fold(0.0, f32::max);
        for (dtype, allowed) in [(Dtype::Bf16, 0.5), (Dtype::F16, 0.1)] {
            let off = max_difference(&with(dtype), &exact);
            assert!(off > 0.0 && off < allowed && allowed < spread, "{dtype}, packed {pack}: {off} of {spread}");
        }
    }
}

/// Left to itself, the stream has the type that most of the snapshot's float tensors have.
#[test]
fn the_stream_follows_the_snapshot() {
    let auto = Placement { dtype: None, compute: Compute::Mlx };
    assert_eq!(load_placed(&oracle("qwen3"), auto).dtype, Dtype::Bf16);
    // Packed, all floats of this one are f16.
    let resident = placed("qwen3", true, auto);
    assert_eq!(resident.dtype, Dtype::F16);
    assert_eq!(leaks(&walk(&*resident.model), Dtype::F16), [] as [&Recorded; 0]);
    // On the CPU the default is f32.
    let resident = load_as(&oracle("qwen3"), rmlx_engine::api::Dtype::Auto).unwrap();
    assert_eq!(resident.dtype, Dtype::F32);
    assert_eq!(leaks(&walk(&*resident.model), Dtype::F32), [] as [&Recorded; 0]);
}

/// A model with a fault in its types.
struct Leaking<F> {
    inner: Rc<dyn Model>,
    fault: F,
}

impl<F: Fn(&Array) -> mlx::Result<Array>> Model for Leaking<F> {
    fn forward(&self, tokens: &Array, states: &mut [LayerState]) -> Result<Array> {
        Ok((self.fault)(&self.inner.forward(tokens, states)?)?)
    }

    fn logits(&self, hidden: &Array) -> Result<Array> {
        self.inner.logits(hidden)
    }

    fn states(&self) -> Vec<LayerState> {
        self.inner.states()
    }
}

/// The control: faults that are easily made must be found, with their place.
#[test]
fn leaks_are_found() {
    let resident = placed("qwen3", false, Placement { dtype: Some(Dtype::Bf16), compute: Compute::Mlx });
    let found = |fault: fn(&Array) -> mlx::Result<Array>| {
        let walk = walk(&Leaking { inner: resident.model.clone(), fault });
        leaks(&walk, Dtype::Bf16).into_iter().cloned().collect::<Vec<_>>()
    };
    // None yet.
    assert_eq!(found(|x| x.mul_scalar(2.0)), []);
    // A scalar in f32 is strong: it widens all that follows.
    let leaks = found(|x| x.mul(&Array::scalar(2.0, Dtype::F32)?));
    assert!(leaks.len() >= 6 && leaks.iter().all(|r| r.dtype == Dtype::F32), "{leaks:?}");
    assert!(leaks[0].at.file().ends_with("types.rs"), "{leaks:?}");
    // A norm left in f16 widens a bf16 stream.
    let leaks = found(|x| fast::rms_norm(x, Some(&Array::zeros(&[64], Dtype::F16)?), 1e-6));
    assert!(leaks.iter().any(|r| r.dtype == Dtype::F32), "{leaks:?}");
    // Widened for a moment and narrowed again.
    let leaks = found(|x| x.astype(Dtype::F32)?.exp()?.astype(Dtype::Bf16));
    assert_eq!(leaks.len(), 6, "{leaks:?}");
}

/// The control of the cache's size: keys in f32 are seen.
#[test]
fn a_wide_cache_is_seen() {
    let mut state = LayerState::full();
    let wide = Array::zeros(&[1, 2, 3, 8], Dtype::F32).unwrap();
    state.attend(&wide, &wide, &wide, 1.0).unwrap();
    let elements: usize = state.arrays().map(Array::size).sum();
    assert_eq!((state.dtype(), state.nbytes()), (Some(Dtype::F32), 4 * elements));
    // And what does not fit a cache is refused, leaving it as it was.
    let narrow = Array::zeros(&[1, 2, 1, 8], Dtype::Bf16).unwrap();
    state.attend(&narrow, &narrow, &narrow, 1.0).unwrap_err();
    assert_eq!((state.len(), state.dtype()), (3, Some(Dtype::F32)));
    state.attend(&wide, &wide, &wide, 1.0).unwrap();
    assert_eq!(state.len(), 6);
}
