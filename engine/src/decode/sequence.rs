//! One sequence: its prompt, its states, the token on its way.
//!
//! Decoding is double-buffered: the step that follows a token is submitted before that token is read, so the device never waits
//! for the host. [`Sequence::submit`] builds and submits, [`Sequence::collect`] waits for what was submitted before.

use std::collections::VecDeque;
use std::rc::Rc;

use mlx::{Array, async_eval, eval};

use super::sample::{Drawn, NON_FINITE, Resolved, Sampler};
use crate::api::TokenLogprob;
use crate::arch::Model;
use crate::error::{Error, Result};
use crate::kv::LayerState;

pub struct Sequence {
    model: Rc<dyn Model>,
    states: Vec<LayerState>,
    prompt: Vec<u32>,
    /// Prompt tokens in the states.
    prefilled: usize,
    sampler: Sampler,
    /// Tokens to generate at most.
    max_new: usize,
    /// Submitted and not yet read, oldest first; at most two.
    pending: VecDeque<Drawn>,
    submitted: usize,
}

impl Sequence {
    /// The prompt must not be empty, and its ids within the model's vocabulary.
    pub fn new(model: Rc<dyn Model>, prompt: Vec<u32>, sampling: Resolved, max_new: usize) -> Self {
        let states = model.states();
        Self {
            model,
            states,
            prompt,
            prefilled: 0,
            sampler: Sampler::new(sampling),
            max_new,
            pending: VecDeque::new(),
            submitted: 0,
        }
    }

    /// Prompt tokens processed.
    pub fn prefilled(&self) -> usize {
        self.prefilled
    }

    pub fn prompt_len(&self) -> usize {
        self.prompt.len()
    }

    /// Whether the prompt is in; then [`Self::submit`] and [`Self::collect`] take turns.
    pub fn ready(&self) -> bool {
        self.prefilled == self.prompt.len()
    }

    pub fn states(&self) -> &[LayerState] {
        &self.states
    }

    /// Bytes of the states.
    pub fn kv_bytes(&self) -> usize {
        self.states.iter().map(LayerState::nbytes).sum()
    }

    /// Processes up to `chunk` prompt tokens; with the last of them the first token is drawn and submitted. When this fails the
    /// states are as before.
    pub fn prefill(&mut self, chunk: usize) -> Result<()> {
        let start = self.prefilled;
        let end = (start + chunk.max(1)).min(self.prompt.len());
        self.or_undo(start, |s| s.prefill_range(start, end))?;
        self.prefilled = end;
        Ok(())
    }

    /// Does a piece of work of which nothing is left in the states when it fails: they hold `before` tokens again.
    fn or_undo(&mut self, before: usize, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let done = work(self);
        if done.is_err() {
            for state in &mut self.states {
                if state.len() > before {
                    state.truncate(before)?;
                }
            }
        }
        done
    }

    fn prefill_range(&mut self, start: usize, end: usize) -> Result<()> {
        let tokens = Array::from_slice(&self.prompt[start..end], &[1, end - start])?;
        let hidden = self.model.forward(&tokens, &mut self.states)?;
        if end < self.prompt.len() {
            // The states are what this chunk is for: the last layer's output is never computed.
            return Ok(eval(self.states.iter().flat_map(LayerState::arrays))?);
        }
        self.draw(&hidden)
    }

    /// Draws the token that follows the last of `hidden` [1, n, width].
    fn draw(&mut self, hidden: &Array) -> Result<()> {
        let n = hidden.dim(1);
        let last = if n == 1 { hidden.clone() } else { hidden.slice(1, n - 1, n)? };
        let logits = self.model.logits(&last)?;
        let vocabulary = logits.dim(-1);
        let drawn = self.sampler.draw(&logits.reshape(&[1, vocabulary])?)?;
        async_eval(drawn.arrays())?;
        self.pending.push_back(drawn);
        self.submitted += 1;
        Ok(())
    }

    /// Submits the step after the newest pending token, unless the answer is long enough. When this fails the states are as before.
    pub fn submit(&mut self) -> Result<()> {
        if self.submitted >= self.max_new {
            return Ok(());
        }
        let Some(token) = self.pending.back().map(|d| d.token.clone()) else { return Ok(()) };
        // The newest token is not in them yet.
        let before = self.prompt.len() + self.submitted - 1;
        self.or_undo(before, |s| {
            let hidden = s.model.forward(&token, &mut s.states)?;
            s.draw(&hidden)
        })
    }

    /// Waits for the oldest pending token. `None`: nothing is pending.
    ///
    /// # Errors
    /// [`Error::NonFinite`] where the logits it was drawn from were not all finite.
    pub fn collect(&mut self) -> Result<Option<(u32, Option<TokenLogprob>)>> {
        let Some(drawn) = self.pending.pop_front() else { return Ok(None) };
        let id: u32 = drawn.outcome.item()?;
        if id == NON_FINITE {
            return Err(Error::NonFinite);
        }
        let logprob = match drawn.logprobs {
            None => None,
            Some(l) => {
                let top = match l.top {
                    None => Vec::new(),
                    Some((ids, values)) => ids.to_vec::<u32>()?.into_iter().zip(values.to_vec::<f32>()?).collect(),
                };
                Some(TokenLogprob { id, logprob: l.chosen.item()?, top })
            }
        };
        Ok(Some((id, logprob)))
    }
}
