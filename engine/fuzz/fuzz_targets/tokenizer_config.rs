//! Any bytes as the small files that describe a tokenizer, and as tokenizer.json itself: an error, never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rmlx_engine::text::{ChatTemplate, GenerationDefaults, SpecialTokens, Tokenizer};

// libFuzzer's hook ends the process at any panic. Those that the engine catches are errors; those it does not still end it.
fuzz_target!(init: std::panic::set_hook(Box::new(|_| {})), |bytes: &[u8]| {
    let Ok(config) = serde_json::from_slice::<serde_json::Value>(bytes) else { return };
    let special = SpecialTokens::from_config(&config);
    if let Some(source) = config.get("chat_template").and_then(|t| t.as_str()) {
        let _ = ChatTemplate::from_source(source, &special);
    }
    if let Ok(tokenizer) = Tokenizer::from_bytes(bytes, special) {
        let _ = tokenizer.encode("Hello, 世界", true).and_then(|ids| tokenizer.decode(&ids, true));
    }
    let Ok(folder) = tempfile::tempdir() else { return };
    for name in ["tokenizer_config.json", "generation_config.json"] {
        let _ = std::fs::write(folder.path().join(name), bytes);
    }
    let _ = GenerationDefaults::load(folder.path());
    let _ = ChatTemplate::load(folder.path());
});
