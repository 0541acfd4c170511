//! Any bytes as a GGUF file: everything that an import does before it writes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rmlx_engine::hub::import::Plan;
use rmlx_engine::hub::import::gguf::Gguf;
use rmlx_engine::hub::import::repack::repack;

fuzz_target!(|bytes: &[u8]| {
    let Ok(gguf) = Gguf::read(bytes, bytes.len() as u64) else { return };
    for tensor in gguf.tensors.values() {
        let start = tensor.offset as usize;
        let _ = repack(tensor.kind, &bytes[start..start + tensor.bytes]);
    }
    let _ = Plan::new(&gguf, None);
});
