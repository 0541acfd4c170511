//! Following an answer (or a load) to its end, with progress for the human and an eye on signals.

use std::ops::ControlFlow;
use std::task::Poll;
use std::time::Duration;

use rmlx_engine::api::{Event, Finished, LoadStage, TokenLogprob};
use rmlx_engine::engine::Reader;

use crate::failure::{Failure, Result};
use crate::progress::{Progress, Unit};
use crate::signals::{Signals, end_line};

#[derive(Debug, Default)]
pub struct Answer {
    pub text: String,
    pub token_ids: Vec<u32>,
    pub logprobs: Vec<TokenLogprob>,
    /// `None`: stopped before its end.
    pub finished: Option<Finished>,
}

/// How the human's wish to stop (a signal) is noticed: often enough for a finger on Ctrl-C.
const TICK: Duration = Duration::from_millis(50);

pub type OnText<'a> = &'a mut dyn FnMut(&str) -> Result<()>;

/// Reads an answer to its last event. `on_text` gets the text as it comes. What came is in `answer` whatever happens; a
/// signal ends it with [`Failure::Signal`], and dropping the reader then tells the engine.
pub fn follow(reader: Reader, signals: &Signals, answer: &mut Answer, on_text: OnText) -> Result<()> {
    let mut progress = Progress::new();
    let ended = each(reader, signals, &mut progress, |event, progress| take(event, progress, answer, on_text));
    // After text, whoever prints it ends its line.
    if matches!(ended, Err(Failure::Signal(_))) && answer.text.is_empty() {
        drop(progress);
        end_line();
    }
    ended
}

/// Reads a load until the model is there.
pub fn follow_load(reader: Reader, signals: &Signals) -> Result<()> {
    let mut progress = Progress::new();
    let ended = each(reader, signals, &mut progress, |event, progress| match event {
        Event::Loaded => Ok(ControlFlow::Break(())),
        other => take(other, progress, &mut Answer::default(), &mut |_| Ok(())),
    });
    if let Err(Failure::Signal(_)) = ended {
        drop(progress);
        end_line();
    }
    ended
}

fn each(
    mut reader: Reader,
    signals: &Signals,
    progress: &mut Progress,
    mut take: impl FnMut(Event, &mut Progress) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let _polite = signals.polite();
    loop {
        match reader.next_timeout(TICK) {
            Poll::Pending => progress.tick(),
            Poll::Ready(None) => return Ok(()),
            Poll::Ready(Some(event)) => {
                if take(event, progress)?.is_break() {
                    return Ok(());
                }
            }
        }
        if let Some(signal) = signals.caught() {
            return Err(Failure::Signal(signal));
        }
    }
}

fn take(event: Event, progress: &mut Progress, answer: &mut Answer, on_text: OnText) -> Result<ControlFlow<()>> {
    match event {
        Event::Loading { stage, done, total } => {
            let (name, unit) = match stage {
                LoadStage::Inspect => ("reading the model's files", Unit::Nothing),
                LoadStage::Weights => ("loading", Unit::Bytes),
                LoadStage::Warmup => ("warming up", Unit::Nothing),
            };
            progress.update(name, unit, done, total);
        }
        Event::Loaded => progress.clear(),
        Event::Prefill { done, total } => progress.update("reading the prompt", Unit::Tokens, done as u64, total as u64),
        Event::Text { delta } => {
            progress.clear();
            answer.text.push_str(&delta);
            on_text(&delta)?;
        }
        Event::Token { id, logprob } => {
            answer.token_ids.push(id);
            answer.logprobs.extend(logprob);
        }
        Event::Finished(finished) => {
            answer.finished = Some(finished);
            return Ok(ControlFlow::Break(()));
        }
        Event::Failed(error) => return Err(Failure::Engine(error)),
    }
    Ok(ControlFlow::Continue(()))
}
