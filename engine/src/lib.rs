//! The rMLX engine: everything that works without a window. Start reading at `docs/architecture.md`.

pub mod api;
pub mod config;
pub mod engine;
pub mod error;
pub mod hub;
pub mod paths;
pub mod pipe;
