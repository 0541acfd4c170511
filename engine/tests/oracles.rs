//! Every architecture against its reference: tiny snapshots with random weights and what transformers computes from them in f32
//! (`tests/oracles` makes them). Fast ways of computing are compared with the slow ones.

mod support;

use std::path::Path;

use mlx::quant::{self, Affine};
use serde_json::json;
use support::*;

const ARCHS: [&str; 6] = ["llama", "llama3_rope", "qwen2", "qwen3", "qwen3_tied", "qwen3_yarn"];

fn oracle(name: &str) -> std::path::PathBuf {
    fixtures().join("oracles").join(name)
}

fn prompt_of(folder: &Path) -> Vec<u32> {
    integers(&folder.join("expected.safetensors"), "input_ids")
}

fn number(expected: &serde_json::Value, key: &str) -> f64 {
    expected[key].as_f64().unwrap_or_else(|| panic!("{key} is a number"))
}

#[test]
fn logits_and_greedy_tokens_are_the_references() {
    for name in ARCHS {
        let folder = oracle(name);
        let expected = json(&folder.join("expected.json"));
        let (reference, shape) = floats(&folder.join("expected.safetensors"), "logits");
        let prompt = prompt_of(&folder);
        assert_eq!(shape, [prompt.len(), 512]);
        let model = load(&folder);
        let atol = number(&expected, "atol") as f32;
        let whole = logits(&model, &prompt, prompt.len());
        let off = max_difference(&whole, &reference);
        assert!(off <= atol, "{name}: logits are {off} from the reference, allowed {atol}");

        // Prefill in one piece is prefill in chunks is token by token.
        for chunk in [1, 7, 64] {
            let off = max_difference(&logits(&model, &prompt, chunk), &whole);
            assert!(off <= atol, "{name}: chunks of {chunk} are {off} from the whole, allowed {atol}");
        }

        let steps = number(&expected, "greedy_safe_steps") as usize;
        assert_eq!(greedy(&model, &prompt, steps), ids(&expected["greedy_ids"])[..steps], "{name}");
    }
}

/// A cache grows in steps of 256: what was in it stays, wherever the prompt is cut.
#[test]
fn a_growing_cache_changes_nothing() {
    for name in ["qwen2", "qwen3_yarn"] {
        let model = load(&oracle(name));
        let prompt: Vec<u32> = (0..600u32).map(|i| (i * i + 7 * i) % 470).collect();
        let whole = logits(&model, &prompt, prompt.len());
        for chunk in [1, 100, 255, 256, 257] {
            let off = max_difference(&logits(&model, &prompt, chunk), &whole);
            assert!(off <= 3e-4, "{name}: chunks of {chunk} are {off} from the whole");
        }
    }
}

/// A configuration that lies about sizes is refused by the weights' headers: nothing of those sizes is allocated.
#[test]
fn sizes_that_the_weights_do_not_have_are_refused() {
    let source = oracle("qwen3");
    for (key, value) in [
        ("hidden_size", json!(65536)),
        ("num_hidden_layers", json!(1024)),
        ("vocab_size", json!(4194304)),
        ("intermediate_size", json!(1048576)),
        ("num_attention_heads", json!(1024)),
        ("head_dim", json!(1024)),
        ("head_dim", json!(2)),
        ("num_hidden_layers", json!(2)),
    ] {
        let folder = tempfile::tempdir().unwrap();
        copy_without_weights(&source, folder.path());
        std::fs::copy(source.join("model.safetensors"), folder.path().join("model.safetensors")).unwrap();
        let mut config = json(&source.join("config.json"));
        config[key] = value.clone();
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        let e = load_as(folder.path(), rmlx_engine::api::Dtype::F32).err().expect("a load error");
        assert_eq!(e.code(), "bad_weights", "{key} {value}: {e}");
        assert!(e.to_string().len() < 2000, "{e}");
    }
}

/// The control: another rope base must be seen.
#[test]
fn a_wrong_rope_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let source = oracle("llama3_rope");
    copy_without_weights(&source, folder.path());
    std::fs::copy(source.join("model.safetensors"), folder.path().join("model.safetensors")).unwrap();
    let mut config = json(&source.join("config.json"));
    config["rope_scaling"] = serde_json::Value::Null;
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let (reference, _) = floats(&source.join("expected.safetensors"), "logits");
    let prompt = prompt_of(&source);
    let off = max_difference(&logits(&load(folder.path()), &prompt, prompt.len()), &reference);
    assert!(off > 0.01, "{off}");
}

#[test]
fn shards_are_the_single_file() {
    let source = oracle("qwen3");
    let folder = tempfile::tempdir().unwrap();
    copy_without_weights(&source, folder.path());
    let tensors = read(&source.join("model.safetensors"));
    let mut map = serde_json::Map::new();
    for (i, part) in tensors.chunks(tensors.len().div_ceil(3)).enumerate() {
        let file = format!("model-{:05}-of-00003.safetensors", i + 1);
        write(&folder.path().join(&file), part);
        map.extend(part.iter().map(|(n, _)| (n.clone(), file.clone().into())));
    }
    let index = json!({"metadata": {"total_size": 1}, "weight_map": map});
    std::fs::write(folder.path().join("model.safetensors.index.json"), index.to_string()).unwrap();
    let prompt = prompt_of(&source);
    assert_eq!(logits(&load(folder.path()), &prompt, 64), logits(&load(&source), &prompt, 64));
}

/// Writes the qwen3 oracle quantized by MLX as mlx-lm does: every matrix, embedding and head included.
fn quantized(bits: i32, group_size: i32, folder: &Path) {
    let source = oracle("qwen3");
    copy_without_weights(&source, folder);
    let mut tensors = Vec::new();
    for (name, a) in read(&source.join("model.safetensors")) {
        match name.strip_suffix(".weight") {
            Some(module) if a.ndim() == 2 => {
                let q = quant::quantize(&a, Affine { bits, group_size }).unwrap();
                tensors.push((name.clone(), q.weight));
                tensors.push((format!("{module}.scales"), q.scales));
                tensors.push((format!("{module}.biases"), q.biases));
            }
            _ => tensors.push((name, a)),
        }
    }
    write(&folder.join("model.safetensors"), &tensors);
    let mut config = json(&source.join("config.json"));
    config["quantization"] = json!({"bits": bits, "group_size": group_size, "mode": "affine"});
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
}

#[test]
fn every_affine_width_is_the_references() {
    let prompt = prompt_of(&oracle("qwen3"));
    for variant in ["2", "3", "4", "4_g32", "5", "6", "8"] {
        let reference = oracle("quant").join(format!("qwen3-affine{variant}"));
        let expected = json(&reference.join("expected.json"));
        let tensors = reference.join("expected.safetensors");
        let folder = tempfile::tempdir().unwrap();
        quantized(number(&expected, "bits") as i32, number(&expected, "group_size") as i32, folder.path());
        let model = load(folder.path());

        let (wanted, shape) = floats(&tensors, "logits");
        let positions = ids(&expected["logits_positions"]);
        assert_eq!(shape, [(positions[1] - positions[0]) as usize, 512]);
        let all = logits(&model, &prompt, prompt.len());
        let off = max_difference(&all[positions[0] as usize * 512..positions[1] as usize * 512], &wanted);
        let atol = number(&expected, "atol") as f32;
        assert!(off <= atol, "{variant}: logits are {off} from the reference, allowed {atol}");
        let steps = number(&expected, "greedy_safe_steps") as usize;
        assert_eq!(greedy(&model, &prompt, steps), integers(&tensors, "greedy_ids")[..steps], "{variant}");

        // The matrices themselves, unpacked as the engine unpacks them: bit for bit.
        let rows = ids(&expected["dequantized_rows"]);
        let format = Affine { bits: number(&expected, "bits") as i32, group_size: number(&expected, "group_size") as i32 };
        let stored: std::collections::BTreeMap<_, _> = read(&folder.path().join("model.safetensors")).into_iter().collect();
        for module in ["lm_head", "model.layers.2.mlp.down_proj", "model.layers.2.mlp.up_proj"] {
            let part = |name: &str| stored[&format!("{module}.{name}")].slice(0, rows[0] as i32, rows[1] as i32).unwrap();
            let wide = |name: &str| part(name).astype(mlx::Dtype::F32).unwrap();
            let packed = quant::Quantized { weight: part("weight"), scales: wide("scales"), biases: wide("biases") };
            let unpacked = quant::dequantize(&packed, format, mlx::Dtype::F32).unwrap();
            let (wanted, shape) = floats(&tensors, &format!("dequant.{module}.weight"));
            assert_eq!(shape[0], (rows[1] - rows[0]) as usize);
            assert_eq!(unpacked.to_vec::<f32>().unwrap(), wanted, "{variant}: {module}");
        }
    }
}

/// The same matrices unpacked at load, by our kernels, and by MLX's (the path of the GPU, on its CPU backend).
#[test]
fn packed_matrices_are_the_unpacked_ones() {
    use rmlx_engine::kernels::Precision;
    use rmlx_engine::nn::Compute;
    use rmlx_engine::registry::Placement;
    let folder = tempfile::tempdir().unwrap();
    quantized(4, 64, folder.path());
    let prompt = &prompt_of(&oracle("qwen3"))[..12];
    let placement = |compute| Placement { dtype: Some(mlx::Dtype::F32), compute };
    let with = |compute| logits(&load_placed(folder.path(), placement(compute)), prompt, prompt.len());
    let unpacked = with(Compute::Plain);
    for (compute, allowed) in [(Compute::Mlx, 1e-3), (Compute::Own(Precision::Exact), 1e-4)] {
        let off = max_difference(&with(compute), &unpacked);
        assert!(off < allowed, "{compute:?}: {off}");
    }
}

/// Norms, rotation, attention and activation by our kernels and by MLX's operations: every architecture, a prompt that crosses a page
/// of the cache. No bit depends on the pieces that the prompt comes in.
#[test]
fn own_kernels_are_mlx_operations() {
    use rmlx_engine::kernels::Precision;
    use rmlx_engine::nn::Compute;
    use rmlx_engine::registry::Placement;
    let prompt: Vec<u32> = (0..300u32).map(|i| (i * i + 7 * i) % 470).collect();
    for name in ARCHS {
        let load = |compute| load_placed(&oracle(name), Placement { dtype: Some(mlx::Dtype::F32), compute });
        let (own, plain) = (load(Compute::Own(Precision::Exact)), load(Compute::Plain));
        let whole = logits(&own, &prompt, 300);
        let off = max_difference(&whole, &logits(&plain, &prompt, 300));
        assert!(off > 0.0 && off < 2e-4, "{name}: {off}");
        assert!(logits(&own, &prompt, 7) == whole, "{name}: chunks of 7");
    }
    let folder = tempfile::tempdir().unwrap();
    quantized(4, 64, folder.path());
    let packed = load_placed(folder.path(), Placement { dtype: Some(mlx::Dtype::F32), compute: Compute::Own(Precision::Exact) });
    let whole = logits(&packed, &prompt, 300);
    for chunk in [1, 3, 255, 256] {
        assert!(logits(&packed, &prompt, chunk) == whole, "chunks of {chunk}");
    }
}

/// With activations rounded to 16 bits: a product is off by 2^-16 of its largest terms at most, which a few layers do not make much
/// of. A prompt in pieces gives the same as in one, bit for bit.
#[test]
fn rounded_activations_give_nearly_the_same() {
    use rmlx_engine::kernels::Precision;
    use rmlx_engine::nn::Compute;
    use rmlx_engine::registry::Placement;
    for bits in [4, 8] {
        let folder = tempfile::tempdir().unwrap();
        quantized(bits, 32, folder.path());
        let prompt = &prompt_of(&oracle("qwen3"))[..24];
        let with = |precision, chunk| {
            let placement = Placement { dtype: Some(mlx::Dtype::F32), compute: Compute::Own(precision) };
            logits(&load_placed(folder.path(), placement), prompt, chunk)
        };
        let (exact, fast) = (with(Precision::Exact, 24), with(Precision::Fast, 24));
        let norm = |all: &mut dyn Iterator<Item = f32>| all.map(|v| f64::from(v).powi(2)).sum::<f64>().sqrt();
        let off = norm(&mut exact.iter().zip(&fast).map(|(a, b)| a - b)) / norm(&mut exact.iter().copied());
        println!("{bits} bits: {off:.5} of the logits");
        assert!(off > 0.0 && off < 2e-4, "{bits} bits: {off}");
        assert_eq!(with(Precision::Fast, 1), fast, "{bits} bits: one by one");
    }
}

/// Overrides per module: one matrix at 8 bits, one left as it is.
#[test]
fn modules_may_be_stored_in_their_own_way() {
    let source = oracle("qwen3");
    let folder = tempfile::tempdir().unwrap();
    copy_without_weights(&source, folder.path());
    let (eight, plain) = ("model.layers.0.mlp.up_proj", "lm_head");
    let mut tensors = Vec::new();
    for (name, a) in read(&source.join("model.safetensors")) {
        match name.strip_suffix(".weight") {
            Some(module) if a.ndim() == 2 && module != plain => {
                let bits = if module == eight { 8 } else { 6 };
                let q = quant::quantize(&a, Affine { bits, group_size: 32 }).unwrap();
                tensors.push((name.clone(), q.weight));
                tensors.push((format!("{module}.scales"), q.scales));
                tensors.push((format!("{module}.biases"), q.biases));
            }
            _ => tensors.push((name, a)),
        }
    }
    write(&folder.path().join("model.safetensors"), &tensors);
    let mut config = json(&source.join("config.json"));
    config["quantization"] = json!({"bits": 6, "group_size": 32, eight: {"bits": 8, "group_size": 32}, plain: false});
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let prompt = prompt_of(&source);
    let off = max_difference(&logits(&load(folder.path()), &prompt, 64), &logits(&load(&source), &prompt, 64));
    assert!(off > 0.0 && off < 3.0, "{off}");
}

#[test]
fn what_does_not_fit_is_named() {
    let source = oracle("qwen3");
    type Change<'a> = dyn Fn(&mut Vec<(String, mlx::Array)>) + 'a;
    let broken = |change: &Change<'_>| {
        let folder = tempfile::tempdir().unwrap();
        copy_without_weights(&source, folder.path());
        let mut tensors = read(&source.join("model.safetensors"));
        change(&mut tensors);
        write(&folder.path().join("model.safetensors"), &tensors);
        load_as(folder.path(), rmlx_engine::api::Dtype::F32).err().expect("a load error").to_string()
    };
    let at = |tensors: &[(String, mlx::Array)], name: &str| tensors.iter().position(|(n, _)| n == name).unwrap();
    let norm = "model.layers.1.self_attn.q_norm.weight";
    let text = broken(&|t| drop(t.remove(at(t, norm))));
    assert!(text.contains(&format!("missing: {norm}")), "{text}");
    let text = broken(&|t| t.push(("model.layers.0.mlp.extra.weight".into(), mlx::Array::zeros(&[2], mlx::Dtype::F32).unwrap())));
    assert!(text.contains("unexpected: model.layers.0.mlp.extra.weight"), "{text}");
    let text = broken(&|t| {
        let i = at(t, norm);
        t[i].1 = mlx::Array::zeros(&[31], mlx::Dtype::F32).unwrap();
    });
    assert!(text.contains(norm) && text.contains("[31]") && text.contains("[32]"), "{text}");
    let text = broken(&|t| {
        let i = at(t, norm);
        t[i].1 = mlx::Array::zeros(&[32], mlx::Dtype::U32).unwrap();
    });
    assert!(text.contains(norm) && text.contains("u32"), "{text}");
}
