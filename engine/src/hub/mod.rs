//! Snapshots on this disk: finding them, reading them, making them from other formats. Nothing here knows MLX, and nothing
//! here trusts a file: every count, offset and name is checked before anything is sized or opened by it.

pub mod import;
pub mod safetensors;
// pub mod snapshot;
