//! The rMLX engine: everything that works without a window. Start reading at `docs/architecture.md`.

pub mod api;
pub mod claim;
pub mod engine;
pub mod error;
pub mod log;
pub mod paths;
pub mod pipe;
