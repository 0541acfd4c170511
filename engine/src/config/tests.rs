use serde_json::{Value, json};

use super::*;

fn base() -> Value {
    json!({
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 64, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 128, "vocab_size": 512,
        "rms_norm_eps": 1e-6, "rope_theta": 1e6, "rope_scaling": null, "max_position_embeddings": 4096,
        "tie_word_embeddings": false, "torch_dtype": "bfloat16", "eos_token_id": [476, 474],
    })
}

fn with(key: &str, value: Value) -> Value {
    let mut config = base();
    config[key] = value;
    config
}

#[test]
fn reads_the_hub_form() {
    let c = ModelConfig::parse(&base()).unwrap();
    assert_eq!((c.architecture.as_str(), c.model_type.as_str()), ("Qwen3ForCausalLM", "qwen3"));
    assert_eq!((c.hidden_size, c.num_layers, c.num_heads, c.num_kv_heads, c.head_dim), (64, 3, 4, 2, 32));
    assert_eq!(c.rope, Rope { theta: 1e6, partial_rotary_factor: 1.0, scaling: RopeConfig::Default });
    assert_eq!((c.tie_word_embeddings, c.attention_bias), (Some(false), None));
    assert_eq!(c.eos_token_ids, [476, 474]);
    assert_eq!(c.quantization, None);
}

#[test]
fn absent_keys_follow_from_others() {
    let mut config = base();
    for key in ["num_key_value_heads", "head_dim", "rms_norm_eps", "rope_theta", "eos_token_id"] {
        config.as_object_mut().unwrap().remove(key);
    }
    let c = ModelConfig::parse(&config).unwrap();
    assert_eq!((c.num_kv_heads, c.head_dim, c.rms_norm_eps, c.rope.theta), (4, 16, 1e-6, 10_000.0));
    assert!(c.eos_token_ids.is_empty());
}

#[test]
fn nested_text_config_wins_over_the_root() {
    let mut config = json!({"architectures": ["X"], "model_type": "outer", "eos_token_id": [1, 2], "tie_word_embeddings": true,
        "quantization": {"group_size": 64, "bits": 4}});
    config["text_config"] = base();
    config["text_config"]["eos_token_id"] = json!(1);
    let c = ModelConfig::parse(&config).unwrap();
    assert_eq!((c.architecture.as_str(), c.model_type.as_str(), c.hidden_size), ("X", "outer", 64));
    assert_eq!((c.tie_word_embeddings, c.eos_token_ids), (Some(false), vec![1, 2]));
    assert_eq!(c.quantization.unwrap().default, Some(Quant { mode: QuantMode::Affine, bits: 4, group_size: 64 }));
}

#[test]
fn rope_forms() {
    let yarn = |attention_factor| RopeConfig::Yarn {
        factor: 4.0,
        beta_fast: 32.0,
        beta_slow: 1.0,
        original_context: 32,
        attention_factor,
        truncate: true,
    };
    let formula = 0.1 * 4f64.ln() + 1.0;
    let llama3 = RopeConfig::Llama3 { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_context: 32 };
    let cases = [
        (json!({"rope_type": "default"}), RopeConfig::Default),
        (json!({"type": "linear", "factor": 2}), RopeConfig::Linear { factor: 2.0 }),
        (json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}), yarn(formula)),
        (json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "attention_factor": 1.0}), yarn(1.0)),
        (
            json!({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "mscale": 1.0, "mscale_all_dim": 1.0}),
            yarn(1.0),
        ),
        (
            json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32}),
            llama3,
        ),
    ];
    for (scaling, expected) in cases {
        let c = ModelConfig::parse(&with("rope_scaling", scaling.clone())).unwrap();
        assert_eq!((c.rope.theta, &c.rope.scaling), (1e6, &expected), "{scaling}");
        let mut parameters = scaling.clone();
        parameters["rope_theta"] = json!(5e5);
        let c = ModelConfig::parse(&with("rope_parameters", parameters)).unwrap();
        assert_eq!((c.rope.theta, &c.rope.scaling), (5e5, &expected), "{scaling}");
    }
}

#[test]
fn rope_per_layer_type() {
    let c = ModelConfig::parse(&with(
        "rope_parameters",
        json!({"full_attention": {"rope_theta": 5e5, "rope_type": "linear", "factor": 8, "partial_rotary_factor": 0.5},
            "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"}}),
    ))
    .unwrap();
    let full = Rope { theta: 5e5, partial_rotary_factor: 0.5, scaling: RopeConfig::Linear { factor: 8.0 } };
    assert_eq!((&c.rope, &c.layer_ropes["full_attention"]), (&full, &full));
    assert_eq!(c.layer_ropes["sliding_attention"].theta, 1e4);
}

#[test]
fn quantization_with_overrides() {
    let q = json!({"group_size": 64, "bits": 4, "mode": "affine", "model.layers.0.mlp.gate": {"group_size": 32, "bits": 8},
        "lm_head": false, "model.embed_tokens": true});
    for key in ["quantization", "quantization_config"] {
        let q = ModelConfig::parse(&with(key, q.clone())).unwrap().quantization.unwrap();
        let four = Quant { mode: QuantMode::Affine, bits: 4, group_size: 64 };
        assert_eq!(q.of("model.layers.1.mlp.gate"), Some(four));
        assert_eq!(q.of("model.embed_tokens"), Some(four));
        assert_eq!(q.of("lm_head"), None);
        assert_eq!(q.of("model.layers.0.mlp.gate"), Some(Quant { bits: 8, group_size: 32, ..four }));
    }
}

#[test]
fn refuses() {
    let mut cases = vec![
        ("hidden_size", json!(0)),
        ("hidden_size", json!(-1)),
        ("hidden_size", json!(1e18)),
        ("hidden_size", json!(u64::MAX)),
        ("hidden_size", json!("64")),
        ("hidden_size", json!(64.5)),
        ("hidden_size", json!([64])),
        ("hidden_size", Value::Null),
        ("num_hidden_layers", json!(1_000_000_000)),
        ("num_attention_heads", json!(3)),
        ("num_key_value_heads", json!(3)),
        ("num_key_value_heads", json!(0)),
        ("head_dim", json!(1 << 20)),
        ("vocab_size", json!(1u64 << 40)),
        ("rms_norm_eps", json!(0)),
        ("rms_norm_eps", json!(-1e-6)),
        ("rms_norm_eps", json!("NaN")),
        ("rope_theta", json!(0)),
        ("rope_theta", json!(1e300)),
        ("max_position_embeddings", json!(1u64 << 60)),
        ("tie_word_embeddings", json!("yes")),
        ("eos_token_id", json!(-1)),
        ("eos_token_id", json!({"a": 1})),
        ("architectures", json!([])),
        ("architectures", json!("Qwen3ForCausalLM")),
        ("text_config", json!(3)),
        ("rope_scaling", json!("yarn")),
        ("rope_scaling", json!({"type": "dynamic", "factor": 2})),
        ("rope_scaling", json!({"type": "linear"})),
        ("rope_scaling", json!({"type": "linear", "factor": 0})),
        ("rope_scaling", json!({"type": "yarn", "factor": 4, "beta_fast": 1, "beta_slow": 32})),
        ("rope_scaling", json!({"type": "llama3", "factor": 4, "low_freq_factor": 4, "high_freq_factor": 4})),
        ("rope_parameters", json!({"full_attention": {"rope_type": "default"}, "sliding_attention": 3})),
        ("quantization", json!(4)),
        ("quantization", json!({"bits": 4})),
        ("quantization", json!({"bits": 7, "group_size": 64})),
        ("quantization", json!({"bits": 4, "group_size": 16})),
        ("quantization", json!({"bits": 4, "group_size": 64, "surprise": 1})),
        ("quantization", json!({"bits": 4, "group_size": 64, "lm_head": {}})),
    ];
    for mode in ["mxfp4", "mxfp8", "nvfp4"] {
        cases.push(("quantization", json!({"bits": 4, "group_size": 32, "mode": mode})));
    }
    for (key, value) in cases {
        let e = ModelConfig::parse(&with(key, value.clone())).expect_err(&format!("{key}: {value}"));
        assert_eq!(e.code(), "unsupported_model", "{key}: {value}: {e}");
    }
    for not_an_object in [json!(null), json!([]), json!("x")] {
        assert_eq!(ModelConfig::parse(&not_an_object).unwrap_err().code(), "unsupported_model");
    }
}

#[test]
fn foreign_quantizations_are_named() {
    for method in ["gptq", "awq", "bitsandbytes", "compressed-tensors", "bitnet", "fp8"] {
        let e = ModelConfig::parse(&with("quantization_config", json!({"quant_method": method, "bits": 4, "group_size": 128})));
        assert!(e.unwrap_err().to_string().contains(method));
    }
}

#[test]
fn errors_are_fit_for_a_terminal() {
    let e = ModelConfig::parse(&with("quantization_config", json!({"quant_method": format!("\u{1b}[2J{}", "x".repeat(9000))})));
    let text = e.unwrap_err().to_string();
    assert!(text.len() < 1000 && !text.contains('\u{1b}'), "{text}");
    assert_eq!(printable("a\tb\nc"), "a\u{fffd}b\nc");
}
