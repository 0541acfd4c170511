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
        self.0.cancelled.store(true, Ordering::Release);
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

    fn wake(&self) {
        self.ready.notify_one();
        if let Some(wake) = &lock(&self.waker).0 {
            wake();
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
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use proptest::prelude::*;

    use super::*;
    use crate::api::{FinishReason, Finished, LoadStage, Timings, Usage};

    fn text(delta: &str) -> Event {
        Event::Text { delta: delta.into() }
    }

    fn prefill(done: usize) -> Event {
        Event::Prefill { done, total: 100 }
    }

    fn loading(done: u64) -> Event {
        Event::Loading { stage: LoadStage::Weights, done, total: 100 }
    }

    fn finished() -> Event {
        Event::Finished(Finished {
            reason: FinishReason::Stop,
            stop: None,
            usage: Usage::default(),
            timings: Timings::default(),
            kv_bytes: 0,
        })
    }

    #[test]
    fn texts_merge_and_progress_overwrites() {
        let (writer, reader) = pipe();
        for event in [
            loading(1),
            loading(2),
            Event::Loaded,
            prefill(3),
            prefill(4),
            text("a"),
            text(""),
            text("b"),
            Event::Token { id: 7, logprob: None },
            text("c"),
            finished(),
            text("too late"),
        ] {
            writer.push(event);
        }
        let got: Vec<Event> = reader.collect();
        let token = Event::Token { id: 7, logprob: None };
        assert_eq!(got, [loading(2), Event::Loaded, prefill(4), text("ab"), token, text("c"), finished()]);
    }

    #[test]
    fn a_lost_writer_is_a_failure_and_a_lost_reader_a_cancel() {
        let (writer, mut reader) = pipe();
        writer.push(text("half"));
        drop(writer);
        assert_eq!(reader.next(), Some(text("half")));
        let Some(Event::Failed(error)) = reader.next() else { panic!("no failure") };
        assert_eq!(error.code, "internal");
        assert_eq!(reader.next(), None);
        assert_eq!(reader.try_next(), Poll::Ready(None));

        let (writer, reader) = pipe();
        writer.push(text("unread"));
        assert!(!writer.is_cancelled());
        drop(reader);
        assert!(writer.is_cancelled());
        writer.push(text("nobody reads this"));
        assert!(writer.0.queue().events.is_empty());
    }

    #[test]
    fn an_asked_for_cancel_still_ends_with_the_writers_word() {
        let (writer, mut reader) = pipe();
        reader.cancel();
        assert!(writer.is_cancelled());
        writer.fail(&Error::Cancelled);
        drop(writer);
        let Some(Event::Failed(error)) = reader.next() else { panic!("no failure") };
        assert_eq!(error.code, "cancelled");
        assert_eq!(reader.next(), None);
    }

    #[test]
    fn a_load_ends_without_a_last_event() {
        let (writer, reader) = pipe();
        writer.push(Event::Loaded);
        writer.end();
        assert_eq!(reader.collect::<Vec<_>>(), [Event::Loaded]);
    }

    #[test]
    fn waiting_ends_with_the_event_or_the_time() {
        let (writer, mut reader) = pipe();
        assert_eq!(reader.try_next(), Poll::Pending);
        assert_eq!(reader.next_timeout(Duration::from_millis(20)), Poll::Pending);
        assert_eq!(reader.next_timeout(Duration::ZERO), Poll::Pending);
        let late = thread::spawn(move || {
            thread::sleep(Duration::from_millis(30));
            writer.push(text("x"));
            thread::sleep(Duration::from_millis(30));
            writer.push(finished());
        });
        assert_eq!(reader.next_timeout(Duration::MAX), Poll::Ready(Some(text("x"))));
        assert_eq!(reader.next_timeout(Duration::from_secs(60)), Poll::Ready(Some(finished())));
        assert_eq!(reader.next_timeout(Duration::MAX), Poll::Ready(None));
        late.join().unwrap();
    }

    #[test]
    fn a_waker_is_called_for_what_is_there_and_what_comes() {
        let (writer, mut reader) = pipe();
        let calls = Arc::new(AtomicUsize::new(0));
        let count = calls.clone();
        let counter = move || {
            count.fetch_add(1, Ordering::SeqCst);
        };
        reader.set_waker(Box::new(counter.clone()));
        assert_eq!(calls.load(Ordering::SeqCst), 0);
        writer.push(text("a"));
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        reader.set_waker(Box::new(counter));
        assert_eq!(calls.load(Ordering::SeqCst), 2);
        drop(writer);
        assert_eq!(calls.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn a_slow_reader_costs_no_more_than_the_text() {
        let (writer, mut reader) = pipe();
        let mut expected = String::new();
        for i in 0..100_000 {
            writer.push(prefill(i));
            writer.push(loading(i as u64));
            writer.push(Event::Loaded);
            writer.push(text("word "));
            expected.push_str("word ");
        }
        assert!(writer.0.queue().events.len() <= 4, "{} events", writer.0.queue().events.len());
        writer.push(finished());
        drop(writer);
        let got: String =
            reader.by_ref().filter_map(|e| if let Event::Text { delta } = e { Some(delta) } else { None }).collect();
        assert_eq!(got, expected);
    }

    /// What a writer does, and when the reader looks.
    #[derive(Debug, Clone)]
    enum Act {
        Push(Event),
        Read,
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            6 => ".{0,4}".prop_map(|delta| Act::Push(Event::Text { delta })),
            1 => (0..100usize).prop_map(|done| Act::Push(prefill(done))),
            1 => (0..100u64).prop_map(|done| Act::Push(loading(done))),
            1 => Just(Act::Push(Event::Loaded)),
            2 => any::<u32>().prop_map(|id| Act::Push(Event::Token { id, logprob: None })),
            3 => Just(Act::Read),
        ]
    }

    fn texts(events: &[Event]) -> String {
        events.iter().filter_map(|e| if let Event::Text { delta } = e { Some(delta.as_str()) } else { None }).collect()
    }

    fn ids(events: &[Event]) -> Vec<u32> {
        events.iter().filter_map(|e| if let Event::Token { id, .. } = e { Some(*id) } else { None }).collect()
    }

    proptest! {
        #[test]
        fn any_interleaving_gives_the_pushed_text(acts in prop::collection::vec(act(), 0..200)) {
            let (writer, mut reader) = pipe();
            let (mut pushed, mut got) = (Vec::new(), Vec::new());
            for act in acts {
                match act {
                    Act::Push(event) => {
                        pushed.push(event.clone());
                        writer.push(event);
                    }
                    Act::Read => {
                        if let Poll::Ready(Some(event)) = reader.try_next() {
                            got.push(event);
                        }
                    }
                }
                let tokens = writer.0.queue().events.iter().filter(|e| matches!(e, Event::Token { .. })).count();
                // At most one text between any two others, and three kinds of progress.
                prop_assert!(writer.0.queue().events.len() <= 2 * (tokens + 3) + 1);
            }
            writer.push(finished());
            got.extend(reader);
            prop_assert_eq!(texts(&got), texts(&pushed));
            prop_assert_eq!(ids(&got), ids(&pushed));
            prop_assert_eq!(got.last(), Some(&finished()));
            prop_assert_eq!(got.iter().filter(|e| matches!(e, Event::Finished(_) | Event::Failed(_))).count(), 1);
        }

        #[test]
        fn threads_give_the_pushed_text(deltas in prop::collection::vec(".{0,3}", 0..300), slow in any::<bool>()) {
            let (writer, reader) = pipe();
            let expected = deltas.concat();
            let pushing = thread::spawn(move || {
                for delta in deltas {
                    writer.push(Event::Text { delta });
                }
                writer.push(finished());
            });
            let mut got = Vec::new();
            for event in reader {
                got.push(event);
                if slow {
                    thread::yield_now();
                }
            }
            pushing.join().unwrap();
            prop_assert_eq!(texts(&got), expected);
            prop_assert_eq!(got.last(), Some(&finished()));
        }
    }
}
