//! The rMLX engine: everything that works without a window. Start reading at `docs/architecture.md`.

pub mod api;
pub mod decode;
pub mod error;
pub mod paths;
pub mod text;
