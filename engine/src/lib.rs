//! The rMLX engine: everything that works without a window. Start reading at `docs/architecture.md`.

pub mod api;
pub mod arch;
pub mod attach;
pub mod claim;
pub mod config;
pub mod contained;
pub mod decode;
pub mod doctor;
pub mod engine;
pub mod error;
pub mod fit;
pub mod hub;
pub mod kernels;
pub mod kv;
pub mod log;
pub mod nn;
pub mod paths;
pub mod pipe;
pub mod registry;
pub mod secrets;
pub mod server;
pub mod settings;
pub mod store;
pub mod text;
pub mod worker;
