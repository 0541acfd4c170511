//! The handle to the engine: the one door for the command line, the server and the app.
//!
//! A stand-in until the worker exists: a folder with a `config.json` is a model, and its answers are numbered words, so
//! that everything above the handle can be tried.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

pub use crate::api::Options;
use crate::api::{
    BenchPlan, BenchReport, BenchRow, Check, CheckState, Event, FinishReason, Finished, LoadStage, Logits, ModelEntry, ModelInfo,
    Prompt, Request, Status, Timings, TokenLogprob, Usage,
};
use crate::error::{Error, Result};
pub use crate::pipe::Reader;
use crate::pipe::{Writer, pipe};

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
    pub fn load(&self, model: &str) -> Result<Reader> {
        resolve(model)?;
        let (writer, reader) = pipe();
        thread::spawn(move || {
            load(&writer);
            writer.end();
        });
        Ok(reader)
    }

    /// Answers; a model that is not resident is loaded first, with its events in the same reader.
    pub fn generate(&self, model: &str, request: Request) -> Result<Reader> {
        resolve(model)?;
        let (writer, reader) = pipe();
        thread::spawn(move || {
            load(&writer);
            answer(&writer, &request);
        });
        Ok(reader)
    }

    pub fn logits(&self, model: &str, prompt: Prompt) -> Result<Logits> {
        resolve(model)?;
        let tokens = tokens(&prompt);
        let data = vec![0.5; tokens.len() * VOCAB];
        Ok(Logits { tokens, vocab: VOCAB, data })
    }

    /// From the snapshot's files; nothing is loaded.
    pub fn info(&self, model: &str) -> Result<ModelInfo> {
        Ok(ModelInfo {
            name: model.into(),
            folder: resolve(model)?,
            architecture: "llama".into(),
            parameters: 1000,
            bytes: 4000,
            quantization: None,
            weights_dtype: "f32".into(),
            context_length: Some(64),
            hidden: 32,
            layers: 2,
            heads: 4,
            kv_heads: 2,
            head_dim: 8,
            vocab: VOCAB,
            tied_embeddings: true,
            has_chat_template: true,
            stop_ids: vec![1],
            kv_bytes_per_token: 128,
        })
    }

    pub fn list(&self) -> Result<Vec<ModelEntry>> {
        Ok(Vec::new())
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
        Err(Error::Internal("not wired".into()))
    }

    pub fn status(&self) -> Status {
        let mlx_version = MLX_VERSION.into();
        Status { device: "cpu".into(), dtype: Some("f32".into()), mlx_version, ..Status::default() }
    }

    pub fn bench(&self, model: &str, plan: BenchPlan) -> Result<BenchReport> {
        resolve(model)?;
        let rows = plan.contexts.into_iter().map(|ctx| BenchRow { ctx, ..BenchRow::default() }).collect();
        Ok(BenchReport { model: model.into(), device: "cpu".into(), dtype: "f32".into(), mlx_version: MLX_VERSION.into(), rows })
    }

    pub fn doctor(&self) -> Vec<Check> {
        vec![Check { name: "MLX".into(), state: CheckState::Ok, detail: MLX_VERSION.into(), fix: None }]
    }
}

const VOCAB: usize = 132;

fn resolve(model: &str) -> Result<PathBuf> {
    let folder = PathBuf::from(model);
    if folder.join("config.json").is_file() {
        return Ok(folder);
    }
    Err(Error::ModelNotFound { name: model.into(), hint: "\nhint: `rmlx list` shows what there is".into() })
}

fn load(writer: &Writer) {
    for done in 0..=10 {
        writer.push(Event::Loading { stage: LoadStage::Weights, done, total: 10 });
    }
    writer.push(Event::Loaded);
}

fn tokens(prompt: &Prompt) -> Vec<u32> {
    match prompt {
        Prompt::Tokens(ids) => ids.clone(),
        Prompt::Text(text) => text.bytes().map(u32::from).collect(),
        Prompt::Chat { messages, .. } => messages.iter().flat_map(|m| m.content.bytes()).map(u32::from).collect(),
    }
}

fn answer(writer: &Writer, request: &Request) {
    let prompt_tokens = tokens(&request.prompt).len();
    writer.push(Event::Prefill { done: prompt_tokens, total: prompt_tokens });
    let endless = request.ignore_eos || !request.sampling.logit_bias.is_empty();
    let limit = request.max_tokens.unwrap_or(if endless { 100_000 } else { 20 });
    for n in 0..limit {
        if writer.is_cancelled() {
            return writer.fail(&Error::Cancelled);
        }
        thread::sleep(Duration::from_millis(5));
        let id = (n % VOCAB) as u32;
        if request.token_ids || request.logprobs.is_some() {
            let top = vec![(id, -0.5); request.logprobs.unwrap_or(0)];
            let logprob = request.logprobs.map(|_| TokenLogprob { id, logprob: -0.5, top });
            writer.push(Event::Token { id, logprob });
        }
        writer.push(Event::Text { delta: format!("w{n} ") });
    }
    writer.push(Event::Finished(Finished {
        reason: if request.max_tokens.is_some() { FinishReason::Length } else { FinishReason::Stop },
        stop: None,
        usage: Usage { prompt_tokens, completion_tokens: limit },
        timings: Timings::default(),
        kv_bytes: 128 * (prompt_tokens + limit),
    }));
}
