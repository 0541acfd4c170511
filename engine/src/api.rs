//! Every type that crosses a border: requests, events, error codes. Plain data; serde derives live here and nowhere else.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::Error;

mod models;
pub use models::*;

/// One message of a conversation. Fields that a role does not use stay empty; they reach the chat template as they are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Message {
    pub role: String,
    pub content: String,
}

impl Message {
    pub fn new(role: &str, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into() }
    }
}

/// What the model continues.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prompt {
    /// Rendered through the model's chat template. `variables` are handed to it (`enable_thinking`, ...).
    Chat {
        messages: Vec<Message>,
        variables: serde_json::Map<String, Value>,
    },
    /// Tokenized as it is, with the special tokens that the tokenizer itself adds (a BOS, say).
    Text(String),
    Tokens(Vec<u32>),
}

/// How the next token is chosen. `None` means: the snapshot's generation_config, else the value that changes nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// 0 takes the most probable token.
    pub temperature: Option<f32>,
    pub top_p: Option<f32>,
    pub top_k: Option<u32>,
    pub min_p: Option<f32>,
    /// Divides (or, where negative, multiplies) the logits of recent tokens; 1 is off.
    pub repetition_penalty: Option<f32>,
    pub presence_penalty: Option<f32>,
    pub frequency_penalty: Option<f32>,
    /// Added to the logits of these token ids.
    pub logit_bias: Vec<(u32, f32)>,
    /// The same seed gives the same answer. `None` draws one, which the log names.
    pub seed: Option<u64>,
}

/// One answer to make.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Request {
    pub prompt: Prompt,
    pub sampling: Sampling,
    /// `None`: until the model ends or the context is full.
    pub max_tokens: Option<usize>,
    /// Texts that end the answer; they are not part of it.
    pub stop: Vec<String>,
    /// Go on past the model's own stop tokens (measurements).
    pub ignore_eos: bool,
    /// Log probabilities of the chosen token and of this many alternatives (0 to 20).
    pub logprobs: Option<usize>,
    /// Emit an [`Event::Token`] per token even without log probabilities.
    pub token_ids: bool,
}

impl Request {
    pub fn new(prompt: Prompt) -> Self {
        Self {
            prompt,
            sampling: Sampling::default(),
            max_tokens: None,
            stop: Vec::new(),
            ignore_eos: false,
            logprobs: None,
            token_ids: false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct TokenLogprob {
    pub id: u32,
    pub logprob: f32,
    /// The most probable tokens, best first.
    pub top: Vec<(u32, f32)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(ts_rs::TS))]
pub enum FinishReason {
    /// The model ended, or a stop text was found.
    Stop,
    /// `max_tokens` or the context limit.
    Length,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Usage {
    pub prompt_tokens: usize,
    pub completion_tokens: usize,
}

/// Measured times of one answer, in milliseconds from the moment the engine took the request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Timings {
    /// Waiting for the model and for other sequences before the first chunk.
    pub queued_ms: f64,
    pub prefill_ms: f64,
    /// Until the first token was read.
    pub first_token_ms: f64,
    pub total_ms: f64,
    /// Prompt tokens over prefill time.
    pub prefill_tokens_per_second: f64,
    /// Tokens after the first over the time between the first and the last.
    pub decode_tokens_per_second: f64,
}

/// The last event of an answer that did not fail.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Finished {
    pub reason: FinishReason,
    /// The stop text that ended the answer.
    pub stop: Option<String>,
    pub usage: Usage,
    pub timings: Timings,
    /// Bytes of this sequence's KV cache when it ended.
    pub kv_bytes: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct ErrorInfo {
    /// [`crate::error::Error::code`].
    pub code: String,
    pub message: String,
}

impl From<&Error> for ErrorInfo {
    fn from(error: &Error) -> Self {
        Self { code: error.code().into(), message: error.to_string() }
    }
}

/// What a reader of an answer (or of a load) sees, in order. `Finished` and `Failed` are last; nothing follows them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[cfg_attr(test, derive(ts_rs::TS))]
pub enum Event {
    Loading {
        stage: LoadStage,
        done: u64,
        total: u64,
    },
    Loaded,
    /// Prompt tokens processed.
    Prefill {
        done: usize,
        total: usize,
    },
    Text {
        delta: String,
    },
    /// One per generated token, before or with its text; only when ids or log probabilities were asked for.
    Token {
        id: u32,
        logprob: Option<TokenLogprob>,
    },
    Finished(Finished),
    Failed(ErrorInfo),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(ts_rs::TS))]
pub enum LoadStage {
    /// Reading headers and configuration; no unit.
    Inspect,
    /// Reading (and converting) weights; bytes of the files.
    Weights,
    /// A first step, so that the first answer does not pay for it.
    Warmup,
}

/// What an engine is started with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    pub device: Device,
    pub dtype: Dtype,
    /// Threads of the CPU device; `None`: as many as the machine has cores.
    pub threads: Option<usize>,
    /// On the CPU: compute in f32 throughout, instead of with activations rounded to 16 bits inside products with packed matrices.
    pub exact: bool,
    /// Most tokens of one sequence, prompt and answer together; `None`: what the model allows.
    pub max_ctx: Option<usize>,
    /// The folder of conversations and settings; `None`: the state folder.
    pub home: Option<PathBuf>,
    /// Another process that holds the claim is an error, whether or not its engine could be used.
    pub no_attach: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Device {
    /// The GPU when MLX has one, else the CPU.
    #[default]
    Auto,
    Cpu,
    Gpu,
}

/// The arithmetic type of activations and of the KV cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dtype {
    /// The snapshot's own type on the GPU, f32 on the CPU.
    #[default]
    Auto,
    F32,
    Bf16,
    F16,
}

/// The logits after every token of a prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct Logits {
    pub tokens: Vec<u32>,
    pub vocab: usize,
    /// Row-major `[tokens, vocab]`.
    pub data: Vec<f32>,
}

/// What a snapshot's files say, without loading it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct ModelInfo {
    pub name: String,
    pub folder: PathBuf,
    /// The architecture that runs it (`llama`, ...).
    pub architecture: String,
    /// Weights, counted before packing.
    pub parameters: u64,
    /// Size of the weight files.
    pub bytes: u64,
    /// `None`: not quantized.
    pub quantization: Option<Quantization>,
    /// The type of the weights that are not packed (`bf16`, ...).
    pub weights_dtype: String,
    pub context_length: Option<usize>,
    pub hidden: usize,
    pub layers: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub vocab: usize,
    /// The output projection is the embedding.
    pub tied_embeddings: bool,
    /// Without one the model is a base model: it continues text and does not answer.
    pub has_chat_template: bool,
    pub stop_ids: Vec<u32>,
    /// Of all layers, at two bytes an element.
    pub kv_bytes_per_token: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Quantization {
    /// `affine`.
    pub mode: String,
    pub bits: u32,
    pub group_size: u32,
    /// Some modules have another width.
    pub mixed: bool,
}

/// A snapshot on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct ModelEntry {
    /// What `load` takes.
    pub name: String,
    pub folder: PathBuf,
    /// Size of its files.
    pub bytes: u64,
    /// `None`: its configuration names none.
    pub architecture: Option<String>,
    /// Such as `affine 4-bit, group 64`; `None`: not quantized.
    pub quantization: Option<String>,
    pub source: ModelSource,
    /// Without one the model is a base model: it continues text and does not answer.
    pub has_chat_template: bool,
    /// Why it cannot be run, when that is plain from its files.
    pub problem: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(ts_rs::TS))]
pub enum ModelSource {
    /// rMLX's own models folder.
    Own,
    /// The Hugging Face cache.
    HuggingFace,
    /// The folder of [`ModelSettings::folder`].
    Folder,
}

/// The engine at this moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Status {
    /// `cpu` or `gpu`: what `auto` came to.
    pub device: String,
    /// Of the resident model; `None` while there is none.
    pub dtype: Option<String>,
    /// Of the library that is loaded.
    pub mlx_version: String,
    /// MLX's arrays, and the keys and values that are not MLX's.
    pub active_bytes: u64,
    /// The most of either, which need not have been at one time.
    pub peak_bytes: u64,
    /// What MLX keeps for later.
    pub cache_bytes: u64,
    pub resident: Vec<String>,
}

/// What to measure. Prompts are made of fixed pseudo-random token ids; decoding is greedy and goes past stop tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BenchPlan {
    /// Prompt lengths, one row each.
    pub contexts: Vec<usize>,
    /// Tokens to decode after each prompt.
    pub tokens: usize,
    /// Tokens per prefill step; `None`: the engine's own.
    pub prompt_chunk: Option<usize>,
    /// Measured repetitions of a row (its numbers are medians), after one that is thrown away.
    pub runs: usize,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchReport {
    pub model: String,
    pub device: String,
    pub dtype: String,
    pub mlx_version: String,
    pub rows: Vec<BenchRow>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct BenchRow {
    pub ctx: usize,
    /// Prompt tokens over the time until the first token was read.
    pub prefill_tok_s: f64,
    pub ttft_ms: f64,
    /// Tokens after the first over the time between the first and the last.
    pub decode_tok_s: f64,
    pub kv_bytes: u64,
    /// MLX's peak, counted from before the prefill, and the keys and values that are not MLX's.
    pub peak_bytes: u64,
    /// Building and submitting one decode step. On the CPU backend submitting waits for earlier steps, so this is not host time alone.
    pub host_us_per_token: f64,
    /// Operations of MLX's graph in one decode step, sampling included.
    pub operations_per_token: usize,
}

/// One finding of `doctor`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    pub name: String,
    pub state: CheckState,
    pub detail: String,
    /// What to do about it.
    pub fix: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckState {
    Ok,
    Warn,
    Fail,
}

/// What the engine is doing, for a menu-bar icon; sent on every change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Activity {
    pub state: ActivityState,
    /// The resident model.
    pub model: Option<String>,
    /// The model that is being loaded.
    pub loading: Option<String>,
    /// Answers in flight.
    pub running: usize,
    /// Of the last load or answer that failed (not: was cancelled), until the next one begins.
    pub error: Option<ErrorInfo>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum ActivityState {
    #[default]
    Idle,
    Loading,
    Busy,
    Error,
}

// ---- conversations ---------------------------------------------------------------------------------------------------------

/// A conversation in the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct ConversationEntry {
    pub id: i64,
    pub title: String,
    /// The model that answered last.
    pub model: Option<String>,
    /// Milliseconds since 1970.
    pub created_ms: i64,
    pub updated_ms: i64,
    /// Of a search: where the text was found.
    pub found: Option<Found>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Found {
    /// `None`: in the title.
    pub message: Option<i64>,
    /// Text around the match. `\u{2}` and `\u{3}` stand before and after what matched.
    pub snippet: String,
}

/// A conversation as it is read: from the first message to the newest of the branch that is selected.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Thread {
    pub conversation: ConversationEntry,
    pub messages: Vec<ThreadMessage>,
    /// The last message is an answer that is being made in this process: `follow` gives its events.
    pub running: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct ThreadMessage {
    pub id: i64,
    pub role: Role,
    pub content: String,
    pub created_ms: i64,
    /// The ids of all versions of this message (edited questions, retried answers) in the order of their making; its own among
    /// them. Most messages have one.
    pub versions: Vec<i64>,
    /// Of an assistant's message.
    pub answer: Option<AnswerInfo>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    User,
    Assistant,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct AnswerInfo {
    pub model: String,
    pub state: AnswerState,
    /// Of an answer that was not cut off.
    pub finished: Option<Finished>,
    /// Why it failed.
    pub error: Option<ErrorInfo>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum AnswerState {
    /// Being made, or its process ended before it did: what was saved of it stands in the message.
    Unfinished,
    Complete,
    /// By the user.
    Stopped,
    Failed,
}

/// What to do next in a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Turn {
    /// `None` begins a new one (with [`Ask::New`]).
    pub conversation: Option<i64>,
    pub model: String,
    pub ask: Ask,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Ask {
    /// A new question at the end of the selected branch.
    New { text: String },
    /// A new version of a question; the old one and what followed it stay, as another branch.
    Edit { message: i64, text: String },
    /// A new version of an answer.
    Retry { message: i64 },
}

// ---- settings --------------------------------------------------------------------------------------------------------------

/// What the user has chosen. The file holds the differences to these defaults only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The model of a new conversation.
    pub model: Option<String>,
    pub theme: Theme,
    /// Shows and hides the window, from any application; empty: none. `CmdOrCtrl+Shift+Space`, for example.
    pub shortcut: String,
    pub chat: ChatSettings,
    pub endpoint: EndpointSettings,
    pub models: ModelSettings,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(default, deny_unknown_fields)]
pub struct ModelSettings {
    /// Another folder with models, beside rMLX's own and the Hugging Face cache.
    pub folder: Option<PathBuf>,
    /// Bytes a second that downloads take at most; `None`: what the line gives.
    pub rate_limit: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(default, deny_unknown_fields)]
pub struct ChatSettings {
    /// The system message of every conversation; empty: none.
    pub system: String,
    /// `None`: what the model's publisher recommends.
    pub temperature: Option<f32>,
    /// `None`: until the model ends or the context is full.
    pub max_tokens: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(default, deny_unknown_fields)]
pub struct EndpointSettings {
    pub enabled: bool,
    pub port: u16,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum Theme {
    #[default]
    System,
    Light,
    Dark,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            model: None,
            theme: Theme::default(),
            shortcut: "CmdOrCtrl+Shift+Space".into(),
            chat: ChatSettings::default(),
            endpoint: EndpointSettings::default(),
            models: ModelSettings::default(),
        }
    }
}

impl Default for EndpointSettings {
    fn default() -> Self {
        Self { enabled: false, port: 8080 }
    }
}

// ---- the localhost endpoint ------------------------------------------------------------------------------------------------

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum EndpointState {
    #[default]
    Off,
    On {
        /// The base address without a path: `http://127.0.0.1:8080`.
        url: String,
    },
    /// It was switched on and could not start.
    Failed {
        error: ErrorInfo,
        /// A port that is free, when the chosen one is taken.
        next_port: Option<u16>,
    },
}

#[cfg(test)]
mod tests;
