//! How a chat completion looks, in one piece and in chunks.

use serde_json::{Value, json};

use super::logprobs::Logprobs;
use crate::api::{Event, FinishReason, Finished, Usage};
use crate::server::answer::{Frames, frame};
use crate::server::errors::ApiError;
use crate::server::ids;

/// What every chunk of an answer repeats.
pub struct Completion {
    id: String,
    created: u64,
    model: String,
    logprobs: Option<Logprobs>,
    include_usage: bool,
}

impl Completion {
    pub fn new(model: String, logprobs: Option<Logprobs>, include_usage: bool) -> Self {
        Self { id: ids::fresh("chatcmpl-"), created: ids::now(), model, logprobs, include_usage }
    }

    /// Keeps what the event brings, and returns its text and the log probabilities that go with it.
    pub fn take(&mut self, event: Event) -> Option<(String, Vec<Value>)> {
        match event {
            Event::Token { logprob: Some(token), .. } => {
                if let Some(logprobs) = &mut self.logprobs {
                    logprobs.token(&token);
                }
                None
            }
            Event::Text { delta } => {
                let told = self.logprobs.as_mut().map(|l| l.text(&delta)).unwrap_or_default();
                Some((delta, told))
            }
            _ => None,
        }
    }

    /// The answer in one piece.
    pub fn whole(&self, text: &str, logprobs: Vec<Value>, finished: &Finished) -> Value {
        json!({
            "id": self.id,
            "object": "chat.completion",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": fingerprint(),
            "choices": [{
                "index": 0,
                "message": { "role": "assistant", "content": text, "refusal": null },
                "logprobs": self.logprobs_object(logprobs),
                "finish_reason": reason(finished.reason),
            }],
            "usage": usage(finished.usage),
        })
    }

    fn logprobs_object(&self, content: Vec<Value>) -> Option<Value> {
        self.logprobs.is_some().then(|| json!({ "content": content, "refusal": null }))
    }

    fn chunk(&self, choices: Value) -> Value {
        let mut chunk = json!({
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": fingerprint(),
            "choices": choices,
        });
        if self.include_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    fn delta(&self, delta: Value, logprobs: Option<Value>, finish_reason: Option<&str>) -> Value {
        self.chunk(json!([{ "index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason }]))
    }
}

impl Frames for Completion {
    fn begin(&mut self) -> String {
        frame(&self.delta(json!({ "role": "assistant", "content": "", "refusal": null }), None, None))
    }

    fn event(&mut self, event: Event) -> String {
        let Some((text, told)) = self.take(event) else { return String::new() };
        frame(&self.delta(json!({ "content": text }), self.logprobs_object(told), None))
    }

    fn end(&mut self, finished: &Finished) -> String {
        let mut frames = frame(&self.delta(json!({}), None, Some(reason(finished.reason))));
        if self.include_usage {
            let mut last = self.chunk(json!([]));
            last["usage"] = usage(finished.usage);
            frames.push_str(&frame(&last));
        }
        frames.push_str("data: [DONE]\n\n");
        frames
    }

    /// Without `[DONE]`: the official clients raise at this frame, and to any other it should not look like a whole answer.
    fn failed(&mut self, error: &ApiError) -> String {
        frame(&error.body())
    }
}

fn usage(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": { "cached_tokens": 0 },
    })
}

fn reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
    }
}

/// The same seed gives the same text while this stays the same.
fn fingerprint() -> String {
    format!("rmlx-{}-mlx-{}", env!("CARGO_PKG_VERSION"), crate::engine::MLX_VERSION)
}
