//! The handle to the engine: the one door for the command line, the server and the app.
//!
//! A stand-in: the worker behind it is not wired yet.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

pub use crate::api::Options;
use crate::api::{BenchPlan, BenchReport, Check, Logits, ModelEntry, ModelInfo, Prompt, Request, Status};
use crate::error::{Error, Result};
pub use crate::pipe::Reader;

/// The MLX that this program was compiled against.
pub const MLX_VERSION: &str = "0.32.2";

/// Cheap to clone; every clone speaks to the same engine.
#[derive(Debug, Clone)]
pub struct Engine;

impl Engine {
    pub fn start(_options: Options) -> Result<Self> {
        Ok(Self)
    }

    /// Resolves the name and loads: `Loading` events, then `Loaded` or `Failed`. Dropping the reader cancels the load.
    pub fn load(&self, _model: &str) -> Result<Reader> {
        Err(not_wired())
    }

    /// Answers; a model that is not resident is loaded first, with its events in the same reader.
    pub fn generate(&self, _model: &str, _request: Request) -> Result<Reader> {
        Err(not_wired())
    }

    pub fn logits(&self, _model: &str, _prompt: Prompt) -> Result<Logits> {
        Err(not_wired())
    }

    /// From the snapshot's files; nothing is loaded.
    pub fn info(&self, _model: &str) -> Result<ModelInfo> {
        Err(not_wired())
    }

    pub fn list(&self) -> Result<Vec<ModelEntry>> {
        Err(not_wired())
    }

    /// Writes a snapshot from a foreign file and returns its folder. `progress` gets bytes done and in all.
    pub fn import(
        &self,
        _file: &Path,
        _out: Option<PathBuf>,
        _name: Option<String>,
        _force: bool,
        _progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<PathBuf> {
        Err(not_wired())
    }

    pub fn status(&self) -> Status {
        Status { device: "cpu".into(), mlx_version: MLX_VERSION.into(), ..Status::default() }
    }

    pub fn bench(&self, _model: &str, _plan: BenchPlan) -> Result<BenchReport> {
        Err(not_wired())
    }

    pub fn doctor(&self) -> Vec<Check> {
        Vec::new()
    }
}

fn not_wired() -> Error {
    Error::Internal("not wired".into())
}
