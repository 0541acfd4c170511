//! A sequence in flight: its generation, its reader, its times.

use std::time::Instant;

use super::{Job, guarded};
use crate::api::{ErrorInfo, Event, FinishReason, Finished, Timings, Usage};
use crate::decode::{End, Generation};
use crate::error::{Error, Result};
use crate::pipe::Writer;
use crate::registry::Resident;

pub struct Running {
    generation: Generation,
    writer: Writer,
    emit_tokens: bool,
    times: Times,
    over: bool,
    /// Why it is over, until somebody took it.
    failure: Option<ErrorInfo>,
    /// Keeps the claim for as long as the model is used. Last, so that it goes after the arrays.
    _resident: Resident,
}

struct Times {
    asked: Instant,
    started: Option<Instant>,
    first: Option<Instant>,
    latest: Option<Instant>,
}

impl Running {
    /// `None` when there is nothing to generate.
    pub fn start(job: Job, resident: &Resident, writer: Writer) -> Result<Option<Self>, ErrorInfo> {
        let nothing = job.plan.max_new == 0;
        let generation = match guarded(|| Ok(Generation::new(resident.model.clone(), job.tokenizer, job.plan))) {
            Ok(generation) => generation,
            Err(e) => {
                tracing::warn!(code = e.code(), "an answer failed: {e}");
                writer.fail(&e);
                return Err(ErrorInfo::from(&e));
            }
        };
        let times = Times { asked: job.asked, started: None, first: None, latest: None };
        let mut running = Self {
            generation,
            writer,
            emit_tokens: job.emit_tokens,
            times,
            over: false,
            failure: None,
            _resident: resident.clone(),
        };
        if nothing {
            running.finish(End { reason: FinishReason::Length, stop: None });
            return Ok(None);
        }
        Ok(Some(running))
    }

    /// Ends it before its end.
    pub fn cancel(self) {
        self.writer.fail(&Error::Cancelled);
    }

    pub fn ready(&self) -> bool {
        self.over || self.generation.sequence.ready()
    }

    pub fn over(&self) -> bool {
        self.over
    }

    /// The error that ended it, once.
    pub fn failure(&mut self) -> Option<ErrorInfo> {
        self.failure.take()
    }

    pub fn prefill(&mut self, chunk: usize) {
        self.times.started.get_or_insert_with(Instant::now);
        self.attempt(|r| {
            r.generation.sequence.prefill(chunk)?;
            r.writer.push(Event::Prefill { done: r.generation.sequence.prefilled(), total: r.generation.sequence.prompt_len() });
            Ok(())
        });
    }

    pub fn submit(&mut self) {
        if self.generation.sequence.ready() {
            self.attempt(|r| r.generation.sequence.submit());
        }
    }

    pub fn collect(&mut self) {
        if self.generation.sequence.ready() {
            self.attempt(Self::collect_one);
        }
    }

    fn collect_one(&mut self) -> Result<()> {
        let Some(token) = self.generation.collect()? else { return Ok(()) };
        let now = Instant::now();
        self.times.first.get_or_insert(now);
        self.times.latest = Some(now);
        if self.emit_tokens {
            self.writer.push(Event::Token { id: token.id, logprob: token.logprob });
        }
        if !token.text.is_empty() {
            self.writer.push(Event::Text { delta: token.text });
        }
        if let Some(end) = token.end {
            self.finish(end);
        }
        Ok(())
    }

    /// Does a piece of work unless nobody waits for it; a failure (or panic) ends this sequence alone.
    fn attempt(&mut self, work: impl FnOnce(&mut Self) -> Result<()>) {
        if self.over {
            return;
        }
        if self.writer.is_cancelled() {
            self.writer.fail(&Error::Cancelled);
            self.over = true;
            return;
        }
        if let Err(e) = guarded(|| work(self)) {
            // Whoever reads the answer tells the human.
            tracing::error!(code = e.code(), "an answer failed: {e}");
            self.writer.fail(&e);
            self.failure = Some(ErrorInfo::from(&e));
            self.over = true;
        }
    }

    fn finish(&mut self, end: End) {
        let usage =
            Usage { prompt_tokens: self.generation.sequence.prompt_len(), completion_tokens: self.generation.collected() };
        let timings = self.times.summary(usage);
        tracing::info!(?usage, ?timings, "an answer ended");
        let kv_bytes = self.generation.sequence.kv_bytes();
        self.writer.push(Event::Finished(Finished { reason: end.reason, stop: end.stop, usage, timings, kv_bytes }));
        self.over = true;
    }
}

impl Times {
    fn summary(&self, usage: Usage) -> Timings {
        let ms = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64() * 1e3;
        let now = Instant::now();
        let started = self.started.unwrap_or(now);
        let first = self.first.unwrap_or(now);
        let latest = self.latest.unwrap_or(first);
        let rate = |tokens: usize, ms: f64| if ms > 0.0 { tokens as f64 * 1e3 / ms } else { 0.0 };
        let prefill_ms = ms(started, first);
        Timings {
            queued_ms: ms(self.asked, started),
            prefill_ms,
            first_token_ms: ms(self.asked, first),
            total_ms: ms(self.asked, latest),
            prefill_tokens_per_second: rate(usage.prompt_tokens, prefill_ms),
            decode_tokens_per_second: rate(usage.completion_tokens.saturating_sub(1), ms(first, latest)),
        }
    }
}
