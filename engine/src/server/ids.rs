//! Names for answers and requests that nobody has seen before.

use std::hash::{BuildHasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

/// `prefix` and 24 random hexadecimal digits.
pub fn fresh(prefix: &str) -> String {
    // Every RandomState has keys of its own, from the system's random numbers.
    let random = RandomState::new();
    format!("{prefix}{:016x}{:08x}", random.hash_one(0), random.hash_one(1) as u32)
}

/// Seconds since 1970.
pub fn now() -> u64 {
    seconds(SystemTime::now())
}

pub fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
