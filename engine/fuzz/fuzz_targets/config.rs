//! Any bytes as a `config.json`: what is accepted can be multiplied without overflow.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rmlx_engine::config::ModelConfig;

fuzz_target!(|bytes: &[u8]| {
    let Ok(json) = serde_json::from_slice(bytes) else { return };
    if let Ok(c) = ModelConfig::parse(&json) {
        assert!(c.num_kv_heads >= 1 && c.num_heads % c.num_kv_heads == 0 && c.num_heads * c.head_dim <= 1 << 20);
        assert!(c.rms_norm_eps > 0.0 && c.rope.theta.is_finite());
    }
});
