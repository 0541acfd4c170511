//! Every type that crosses a border: requests, events, error codes. Plain data; serde derives live here and nowhere else.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One message of a conversation. Fields that a role does not use stay empty; they reach the chat template as they are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq)]
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
    pub seed: Option<u64>,
}

/// One answer to make.
#[derive(Debug, Clone)]
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
}

impl Request {
    pub fn new(prompt: Prompt) -> Self {
        Self { prompt, sampling: Sampling::default(), max_tokens: None, stop: Vec::new(), ignore_eos: false, logprobs: None }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenLogprob {
    pub id: u32,
    pub logprob: f32,
    /// The most probable tokens, best first.
    pub top: Vec<(u32, f32)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The model ended, or a stop text was found.
    Stop,
    /// `max_tokens` or the context limit.
    Length,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    pub prompt_tokens: usize,
    pub completion_tokens: usize,
}

/// Measured times of one answer, in milliseconds from the moment the engine took the request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
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
pub struct ErrorInfo {
    /// [`crate::error::Error::code`].
    pub code: String,
    pub message: String,
}

/// What a reader of an answer (or of a load) sees, in order. `Finished` and `Failed` are last; nothing follows them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
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
pub enum LoadStage {
    /// Reading headers and configuration; no unit.
    Inspect,
    /// Reading (and converting) weights; bytes of the files.
    Weights,
    /// A first step, so that the first answer does not pay for it.
    Warmup,
}
