//! One answer: a sequence of tokens, the text they make, and where it ends.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use super::sample::Resolved;
use super::sequence::Sequence;
use super::stop::StopFinder;
use crate::api::{FinishReason, TokenLogprob};
use crate::arch::Model;
use crate::error::Result;
use crate::text::{Detokenizer, Tokenizer};

/// What one answer needs to know besides the model.
pub struct Plan {
    pub prompt: Vec<u32>,
    pub sampling: Resolved,
    /// Tokens to generate at most.
    pub max_new: usize,
    /// Ids that end the answer.
    pub stop_ids: BTreeSet<u32>,
    /// Texts that end the answer.
    pub stop: Vec<String>,
}

pub struct Generation {
    pub sequence: Sequence,
    max_new: usize,
    stop_ids: BTreeSet<u32>,
    /// Tokens read.
    collected: usize,
    detokenizer: Detokenizer,
    stop: StopFinder,
}

/// What one token brought.
#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    pub id: u32,
    /// Text that is certain now.
    pub text: String,
    pub logprob: Option<TokenLogprob>,
    /// Set on the last token.
    pub end: Option<End>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    pub reason: FinishReason,
    /// The stop text that ended it.
    pub stop: Option<String>,
}

impl Generation {
    pub fn new(model: Rc<dyn Model>, tokenizer: Arc<Tokenizer>, plan: Plan) -> Self {
        Self {
            sequence: Sequence::new(model, plan.prompt, plan.sampling, plan.max_new),
            max_new: plan.max_new,
            stop_ids: plan.stop_ids,
            collected: 0,
            detokenizer: Detokenizer::new(tokenizer),
            stop: StopFinder::new(plan.stop),
        }
    }

    /// Tokens read.
    pub fn collected(&self) -> usize {
        self.collected
    }

    /// Waits for the oldest token on its way. `None`: there is none.
    pub fn collect(&mut self) -> Result<Option<Token>> {
        let Some((id, logprob)) = self.sequence.collect()? else { return Ok(None) };
        self.collected += 1;
        if self.stop_ids.contains(&id) {
            return self.last(id, logprob, String::new(), FinishReason::Stop).map(Some);
        }
        let released = self.stop.push(&self.detokenizer.push(id)?);
        if released.stop.is_some() {
            let end = Some(End { reason: FinishReason::Stop, stop: released.stop });
            return Ok(Some(Token { id, text: released.text, logprob, end }));
        }
        if self.collected >= self.max_new {
            return self.last(id, logprob, released.text, FinishReason::Length).map(Some);
        }
        Ok(Some(Token { id, text: released.text, logprob, end: None }))
    }

    /// The last token, with the text that was held back until now.
    fn last(&mut self, id: u32, logprob: Option<TokenLogprob>, mut text: String, reason: FinishReason) -> Result<Token> {
        let mut tail = self.stop.push(&self.detokenizer.finish()?);
        text.push_str(&tail.text);
        if tail.stop.is_none() {
            tail = self.stop.finish();
            text.push_str(&tail.text);
        }
        let reason = if tail.stop.is_some() { FinishReason::Stop } else { reason };
        Ok(Token { id, text, logprob, end: Some(End { reason, stop: tail.stop }) })
    }
}
