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

/// A waker that panics does so on the writer's thread.
#[test]
fn a_waker_that_panics_is_called_once() {
    let (writer, mut reader) = pipe();
    let calls = Arc::new(AtomicUsize::new(0));
    let count = calls.clone();
    reader.set_waker(Box::new(move || {
        count.fetch_add(1, Ordering::SeqCst);
        panic!("a reader's fault");
    }));
    writer.push(text("a"));
    writer.push(text("b"));
    writer.push(finished());
    drop(writer);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert_eq!(reader.collect::<Vec<_>>(), [text("ab"), finished()]);
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
    let got: String = reader.by_ref().filter_map(|e| if let Event::Text { delta } = e { Some(delta) } else { None }).collect();
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
