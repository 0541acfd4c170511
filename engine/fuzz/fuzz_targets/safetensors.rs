//! Any bytes as a safetensors header: what is accepted lies within the file and fits its shapes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rmlx_engine::hub::safetensors::Header;

fuzz_target!(|input: (u16, &[u8])| {
    let (data, json) = (input.0 as usize, input.1);
    let start = 8 + json.len();
    if let Ok(header) = Header::parse(json, start, start + data) {
        let total: usize = header.tensors.values().map(|t| t.range.len()).sum();
        assert_eq!(total, data);
        for t in header.tensors.values() {
            assert!(t.range.start >= start && t.range.end <= start + data);
            assert_eq!(t.range.len(), t.dtype.size() * t.shape.iter().product::<usize>());
        }
    }
});
