//! Models on the hub and snapshots on this disk: asking what there is, fetching it, finding, reading and removing it, making it from
//! other formats. Nothing here knows MLX, and nothing here trusts an answer or a file: every count, offset and name is checked before
//! anything is sized or opened by it.

pub mod cache;
pub mod catalogue;
pub mod check;
pub mod fetch;
pub mod find;
pub mod import;
#[cfg(test)]
mod made;
pub mod plan;
pub mod remote;
pub mod remove;
pub mod safetensors;
pub mod search;
pub mod snapshot;

pub use find::{Entry, Library, Place, STARTER};
pub use snapshot::{Snapshot, Weights};

use std::path::PathBuf;

use crate::error::Result;

/// The folder of a model, by what a user writes: see [`find`].
///
/// # Errors
/// As [`Library::resolve`].
pub fn resolve(model: &str) -> Result<PathBuf> {
    Library::from_env().resolve(model)
}
