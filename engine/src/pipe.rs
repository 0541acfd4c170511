//! The EventPipe: how events travel from the engine to whoever reads an answer.
//!
//! * `push` never blocks, however slow the reader.
//! * The queue stays short: adjacent text deltas merge into one event, and progress (`Loading`, `Prefill`) overwrites the
//!   progress that is still queued. Only `Token` events queue one by one, for requests that ask for them.
//! * `Finished` and `Failed` are last. A writer that goes away without one (or [`Writer::end`]) leaves a `Failed` behind.
//! * A dropped reader is a cancel.

use std::collections::VecDeque;
use std::fmt;
use std::mem::discriminant;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::api::{ErrorInfo, Event};
use crate::error::Error;

pub fn pipe() -> (Writer, Reader) {
    let shared = Arc::new(Shared::default());
    (Writer(shared.clone()), Reader(shared))
}

#[derive(Debug)]
pub struct Writer(Arc<Shared>);

#[derive(Debug)]
pub struct Reader(Arc<Shared>);

/// Does what [`Reader::cancel`] does, from another thread than the reader's.
#[derive(Debug)]
pub struct Canceller(Arc<Shared>);

impl Canceller {
    pub fn cancel(&self) {
        self.0.cancel();
    }
}

impl Writer {
    /// Nothing is queued after the last event, nor when nobody is left to read it.
    pub fn push(&self, event: Event) {
        {
            let mut queue = self.0.queue();
            if queue.closed || queue.abandoned {
                return;
            }
            queue.push(event);
        }
        self.0.wake();
    }

    pub fn fail(&self, error: &Error) {
        self.push(Event::Failed(ErrorInfo::from(error)));
    }

    /// Ends without a last event: a load is over once it is `Loaded`.
    pub fn end(self) {
        self.0.queue().closed = true;
        self.0.wake();
    }

    /// The reader no longer wants the rest.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire)
    }

    /// Nobody is left to read what comes.
    pub fn is_abandoned(&self) -> bool {
        self.0.queue().abandoned
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.fail(&Error::Internal("the engine dropped this answer before its end".into()));
    }
}

impl Reader {
    /// What is there now: an event, the end (`None`), or nothing yet.
    pub fn try_next(&mut self) -> Poll<Option<Event>> {
        self.0.queue().pop()
    }

    /// As [`Self::try_next`], but waits this long for something to come.
    pub fn next_timeout(&mut self, timeout: Duration) -> Poll<Option<Event>> {
        let deadline = Instant::now().checked_add(timeout);
        let mut queue = self.0.queue();
        loop {
            let next = queue.pop();
            let left = deadline.map_or(timeout, |d| d.saturating_duration_since(Instant::now()));
            if next.is_ready() || left.is_zero() {
                return next;
            }
            queue = self.0.ready.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Asks the writer to stop. It still says how it ended: read on, or drop the reader.
    pub fn cancel(&self) {
        self.0.cancel();
    }

    pub fn canceller(&self) -> Canceller {
        Canceller(self.0.clone())
    }

    /// Calls `wake` whenever there may be something new, from the writer's thread; it must be quick and not set a waker
    /// itself. When something is there already it is called at once.
    pub fn set_waker(&mut self, wake: Box<dyn Fn() + Send>) {
        *lock(&self.0.waker) = Waker(Some(wake));
        let ready = {
            let queue = self.0.queue();
            queue.closed || !queue.events.is_empty()
        };
        if ready {
            self.0.wake();
        }
    }
}

/// Blocks until the next event; `None` after the last.
impl Iterator for Reader {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let mut queue = self.0.queue();
        loop {
            if let Poll::Ready(next) = queue.pop() {
                return next;
            }
            queue = self.0.ready.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.cancel();
        let mut queue = self.0.queue();
        queue.abandoned = true;
        queue.events = VecDeque::new();
    }
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    ready: Condvar,
    cancelled: AtomicBool,
    /// Apart from the queue, so that a waker may read the pipe.
    waker: Mutex<Waker>,
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<Event>,
    /// The last event was pushed.
    closed: bool,
    /// The reader is gone.
    abandoned: bool,
}

#[derive(Default)]
struct Waker(Option<Box<dyn Fn() + Send>>);

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    fn wake(&self) {
        self.ready.notify_one();
        let mut waker = lock(&self.waker);
        // A reader's panic must not end the engine's thread. What panicked is not called again.
        if let Some(wake) = &waker.0
            && catch_unwind(AssertUnwindSafe(wake)).is_err()
        {
            *waker = Waker::default();
        }
    }
}

impl Queue {
    fn push(&mut self, event: Event) {
        match event {
            Event::Text { delta } => {
                if let Some(Event::Text { delta: queued }) = self.events.back_mut() {
                    queued.push_str(&delta);
                } else if !delta.is_empty() {
                    self.events.push_back(Event::Text { delta });
                }
            }
            Event::Loading { .. } | Event::Loaded | Event::Prefill { .. } => {
                // In place: a reader sees the newest state a little early, and the texts around it stay merged.
                match self.events.iter_mut().rfind(|queued| discriminant(*queued) == discriminant(&event)) {
                    Some(queued) => *queued = event,
                    None => self.events.push_back(event),
                }
            }
            Event::Token { .. } => self.events.push_back(event),
            Event::Finished(_) | Event::Failed(_) => {
                self.closed = true;
                self.events.push_back(event);
            }
        }
    }

    fn pop(&mut self) -> Poll<Option<Event>> {
        match self.events.pop_front() {
            Some(event) => Poll::Ready(Some(event)),
            None if self.closed => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Waker" } else { "None" })
    }
}

/// No code that panics runs under these locks, so a poisoned one still guards whole data.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
