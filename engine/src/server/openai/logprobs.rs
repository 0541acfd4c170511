//! Log probabilities of tokens, told with the text that the tokens made.

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::api::TokenLogprob;
use crate::engine::TokenBytes;

pub struct Logprobs {
    bytes: TokenBytes,
    /// Tokens whose text is still to come, and where in the answer it begins.
    waiting: VecDeque<(usize, Value)>,
    /// Bytes of all tokens so far.
    tokens_end: usize,
    /// Bytes of the text so far.
    text_end: usize,
}

impl Logprobs {
    pub fn new(bytes: TokenBytes) -> Self {
        Self { bytes, waiting: VecDeque::new(), tokens_end: 0, text_end: 0 }
    }

    pub fn token(&mut self, token: &TokenLogprob) {
        let top: Vec<Value> = token.top.iter().map(|(id, logprob)| self.entry(*id, *logprob)).collect();
        let mut entry = self.entry(token.id, token.logprob);
        entry["top_logprobs"] = top.into();
        self.waiting.push_back((self.tokens_end, entry));
        self.tokens_end += self.bytes.of(token.id).len();
    }

    /// What belongs to this text. Tokens of a stop text and the model's own end belong to none.
    pub fn text(&mut self, delta: &str) -> Vec<Value> {
        self.text_end += delta.len();
        let mut told = Vec::new();
        while let Some((_, entry)) = self.waiting.pop_front_if(|(begin, _)| *begin < self.text_end) {
            told.push(entry);
        }
        told
    }

    fn entry(&self, id: u32, logprob: f32) -> Value {
        let bytes = self.bytes.of(id);
        // Minus infinity is no JSON; OpenAI writes this for what is out of reach.
        let logprob = if logprob.is_finite() { logprob } else { -9999.0 };
        json!({ "token": String::from_utf8_lossy(&bytes), "logprob": logprob, "bytes": bytes })
    }
}
