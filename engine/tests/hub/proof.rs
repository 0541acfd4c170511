//! The long tier: large files, the Python client beside ours.
#![cfg(target_os = "linux")]
