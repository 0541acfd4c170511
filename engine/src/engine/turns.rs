//! Answers of conversations that are being made. Each has a thread that reads the engine's events, saves the text as it grows and
//! passes the events on to those who follow.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::api::{AnswerState, ErrorInfo, Event};
use crate::error::{Error, Result};
use crate::pipe::{Reader, Writer, pipe};
use crate::store::{Ending, Saved, Store};

/// A killed process loses no more of an answer than this.
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// By conversation: one answer each.
type Answers = Arc<Mutex<HashMap<i64, Arc<Answer>>>>;

#[derive(Default)]
pub struct Turns(Answers);

struct Answer {
    id: i64,
    wake: Mutex<Wake>,
    woken: Condvar,
    seen: Mutex<Seen>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Apart from what followers see, because a follower's waker may drop the last handle of the engine.
#[derive(Default)]
struct Wake {
    /// The engine may have events.
    news: bool,
    stop: Option<Stop>,
    over: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Stop {
    /// By the user.
    Asked,
    /// The engine goes: what there is of the answer is saved as unfinished.
    Leaving,
}

/// What a new follower is to be told, and those that follow.
#[derive(Default)]
struct Seen {
    /// Before the first text: how far the load or the prompt is.
    progress: Option<Event>,
    text: String,
    last: Option<Event>,
    followers: Vec<Writer>,
}

impl Turns {
    /// The message that is being made in a conversation.
    pub fn running(&self, conversation: i64) -> Option<i64> {
        lock(&self.0).get(&conversation).map(|answer| answer.id)
    }

    pub fn start(&self, store: Arc<Store>, saved: Saved, reader: Reader) -> Result<()> {
        let answer = Arc::new(Answer {
            id: saved.answer,
            wake: Mutex::default(),
            woken: Condvar::new(),
            seen: Mutex::default(),
            thread: Mutex::default(),
        });
        lock(&self.0).insert(saved.conversation, answer.clone());
        let (answers, running) = (self.0.clone(), answer.clone());
        let thread = thread::Builder::new().name("answer".into()).spawn(move || {
            let last = catch_unwind(AssertUnwindSafe(|| running.run(&store, saved, reader)))
                .unwrap_or_else(|_| failed(&Error::Internal("a panic while an answer was saved".into())));
            // Whoever sees the last event finds the answer saved and the conversation free.
            lock(&answers).remove(&saved.conversation);
            let _ = catch_unwind(AssertUnwindSafe(|| running.finish(last)));
            lock(&running.wake).over = true;
            running.woken.notify_all();
        });
        match thread {
            Ok(thread) => {
                *lock(&answer.thread) = Some(thread);
                Ok(())
            }
            Err(e) => {
                lock(&self.0).remove(&saved.conversation);
                Err(Error::Internal(format!("a thread for the answer did not start: {e}")))
            }
        }
    }

    pub fn follow(&self, conversation: i64) -> Option<Reader> {
        let answer = lock(&self.0).get(&conversation).cloned()?;
        let (writer, reader) = pipe();
        answer.follow(writer);
        Some(reader)
    }

    /// Returns when the answer is saved. `false`: none was running.
    pub fn stop(&self, conversation: i64) -> bool {
        let Some(answer) = lock(&self.0).get(&conversation).cloned() else { return false };
        answer.stop(Stop::Asked);
        let mut wake = lock(&answer.wake);
        while !wake.over {
            wake = answer.woken.wait(wake).unwrap_or_else(PoisonError::into_inner);
        }
        true
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        let answers: Vec<_> = lock(&self.0).values().cloned().collect();
        answers.iter().for_each(|answer| answer.stop(Stop::Leaving));
        for answer in answers {
            let thread = lock(&answer.thread).take();
            // A follower's waker that owns the engine's last handle runs on this very thread.
            if let Some(thread) = thread.filter(|t| t.thread().id() != thread::current().id()) {
                let _ = thread.join();
            }
        }
    }
}

impl Answer {
    /// Reads the answer to its end and saves it; the event that ends it.
    fn run(self: &Arc<Self>, store: &Store, saved: Saved, mut reader: Reader) -> Event {
        let answer = self.clone();
        reader.set_waker(Box::new(move || {
            lock(&answer.wake).news = true;
            answer.woken.notify_all();
        }));
        let mut grown = false;
        let mut next_save = Instant::now() + SAVE_EVERY;
        let last = loop {
            match reader.try_next() {
                Poll::Ready(Some(last @ (Event::Finished(_) | Event::Failed(_)))) => break last,
                Poll::Ready(Some(event)) => {
                    grown |= matches!(event, Event::Text { .. });
                    self.pass(event);
                }
                Poll::Ready(None) => break failed(&Error::Internal("the answer has no end".into())),
                // What had come before the user stopped it is read by now.
                Poll::Pending => {
                    if self.wait(grown.then_some(next_save)).is_some() {
                        break failed(&Error::Cancelled);
                    }
                }
            }
            if grown && Instant::now() >= next_save {
                // A full disk, say: the answer goes on, the next attempt has this text too, and the end tells of the last.
                match store.grow(saved, &self.text()) {
                    Ok(()) => grown = false,
                    Err(e) => tracing::warn!(code = e.code(), "an answer is not saved yet"),
                }
                next_save = Instant::now() + SAVE_EVERY;
            }
        };
        // Frees the engine before the disk is waited for.
        drop(reader);
        self.save(store, saved, last)
    }

    fn save(&self, store: &Store, saved: Saved, last: Event) -> Event {
        let stop = lock(&self.wake).stop;
        let (state, finished, error) = match &last {
            Event::Finished(finished) => (AnswerState::Complete, Some(finished.clone()), None),
            Event::Failed(error) if error.code == Error::Cancelled.code() => match stop {
                Some(Stop::Asked) => (AnswerState::Stopped, None, None),
                // The engine went first.
                Some(Stop::Leaving) | None => (AnswerState::Unfinished, None, None),
            },
            Event::Failed(error) => (AnswerState::Failed, None, Some(error.clone())),
            other => return other.clone(),
        };
        match store.end(saved, &self.text(), &Ending { state, finished, error }) {
            Ok(()) => last,
            Err(e) => {
                tracing::error!(code = e.code(), "an answer was not saved");
                failed(&e)
            }
        }
    }

    /// Until the engine has news, the time has come, or somebody stops the answer.
    fn wait(&self, until: Option<Instant>) -> Option<Stop> {
        let mut wake = lock(&self.wake);
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if wake.stop.is_some() || wake.news || left.is_some_and(|left| left.is_zero()) {
                wake.news = false;
                return wake.stop;
            }
            wake = match left {
                Some(left) => self.woken.wait_timeout(wake, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.woken.wait(wake).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn stop(&self, stop: Stop) {
        lock(&self.wake).stop.get_or_insert(stop);
        self.woken.notify_all();
    }

    fn text(&self) -> String {
        lock(&self.seen).text.clone()
    }

    fn follow(&self, writer: Writer) {
        let mut seen = lock(&self.seen);
        if let Some(progress) = &seen.progress {
            writer.push(progress.clone());
        }
        if !seen.text.is_empty() {
            writer.push(Event::Text { delta: seen.text.clone() });
        }
        match &seen.last {
            Some(last) => writer.push(last.clone()),
            None => seen.followers.push(writer),
        }
    }

    fn pass(&self, event: Event) {
        let mut seen = lock(&self.seen);
        match &event {
            Event::Text { delta } => {
                seen.text.push_str(delta);
                seen.progress = None;
            }
            Event::Loading { .. } | Event::Prefill { .. } => seen.progress = Some(event.clone()),
            _ => seen.progress = None,
        }
        seen.followers.retain(|follower| {
            let wanted = !follower.is_cancelled();
            if wanted {
                follower.push(event.clone());
            } else {
                follower.fail(&Error::Cancelled);
            }
            wanted
        });
    }

    fn finish(&self, last: Event) {
        let mut seen = lock(&self.seen);
        seen.last = Some(last.clone());
        for follower in seen.followers.drain(..) {
            follower.push(last.clone());
        }
    }
}

fn failed(error: &Error) -> Event {
    Event::Failed(ErrorInfo::from(error))
}

/// Nothing that panics leaves half-changed data under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
