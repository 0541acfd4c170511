//! What the engine says of itself while it works.

mod support;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use rmlx_engine::api::{Activity, ActivityState, Request};
use rmlx_engine::engine::Engine;
use support::*;

/// Nothing here takes that long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

fn oracle(name: &str) -> PathBuf {
    fixtures().join("oracles").join(name)
}

fn name_of(folder: &std::path::Path) -> String {
    folder.to_str().expect("a path in UTF-8").into()
}

fn model() -> String {
    name_of(&oracle("llama"))
}

fn watched(engine: &Engine) -> mpsc::Receiver<Activity> {
    let (sender, receiver) = mpsc::channel();
    let sender = Mutex::new(sender);
    engine.watch(move |activity| drop(sender.lock().unwrap().send(activity.clone())));
    receiver
}

#[track_caller]
fn until(changes: &mpsc::Receiver<Activity>, done: impl Fn(&Activity) -> bool) -> Activity {
    loop {
        let activity = changes.recv_timeout(PATIENCE).expect("a change in time");
        if done(&activity) {
            return activity;
        }
    }
}

fn short(tokens: usize) -> Request {
    Request { max_tokens: Some(tokens), ignore_eos: true, ..request(vec![1, 2, 3]) }
}

#[test]
fn every_change_once_and_in_order() {
    let engine = engine(None);
    assert_eq!(engine.activity(), Activity::default());
    let changes = watched(&engine);
    Answer::read(engine.generate(&model(), short(5)).unwrap()).finished();
    let mut seen = Vec::new();
    while seen.last().is_none_or(|a: &Activity| a.state != ActivityState::Idle || a.running > 0) || seen.len() < 4 {
        seen.push(changes.recv_timeout(PATIENCE).unwrap());
    }
    let resident = Some(model());
    let expected = [
        Activity { state: ActivityState::Loading, loading: resident.clone(), ..Activity::default() },
        Activity { model: resident.clone(), ..Activity::default() },
        Activity { state: ActivityState::Busy, model: resident.clone(), running: 1, ..Activity::default() },
        Activity { model: resident.clone(), ..Activity::default() },
    ];
    assert_eq!(seen, expected);
    assert_eq!(engine.activity(), expected[3]);

    // What is resident is not loaded again, and looking changes nothing.
    assert!(Answer::read(engine.load(&model()).unwrap()).loaded);
    engine.status();
    Answer::read(engine.generate(&model(), short(1)).unwrap()).finished();
    assert_eq!(until(&changes, |_| true).state, ActivityState::Busy);
    assert_eq!(until(&changes, |_| true), expected[3]);
}

#[test]
fn answers_are_counted_and_a_stopped_one_is_no_error() {
    let engine = engine(None);
    let changes = watched(&engine);
    let [first, second] = [1, 2].map(|_| engine.generate(&model(), short(1_000_000)).unwrap());
    until(&changes, |a| a.running == 2 && a.state == ActivityState::Busy);
    drop(first);
    until(&changes, |a| a.running == 1 && a.state == ActivityState::Busy);
    second.cancel();
    let last = until(&changes, |a| a.running == 0);
    assert_eq!((last.state, last.error), (ActivityState::Idle, None));
}

#[test]
fn an_error_stays_until_the_next_begins() {
    let engine = engine(None);
    let changes = watched(&engine);
    let folder = tempfile::tempdir().unwrap();
    copy_without_weights(&oracle("qwen3"), folder.path());
    let mut tensors = read(&oracle("qwen3").join("model.safetensors"));
    tensors.pop();
    write(&folder.path().join("model.safetensors"), &tensors);
    let broken = name_of(folder.path());

    Answer::read(engine.load(&model()).unwrap());
    assert_eq!(Answer::read(engine.load(&broken).unwrap()).code(), "bad_weights");
    let failed = until(&changes, |a| a.state == ActivityState::Error);
    assert_eq!(failed.error.as_ref().map(|e| e.code.as_str()), Some("bad_weights"));
    assert_eq!((failed.loading, failed.running), (None, 0));
    assert_eq!(failed.model, engine.status().resident.first().cloned(), "what is resident after all");
    assert_eq!(engine.activity().state, ActivityState::Error);

    Answer::read(engine.generate(&model(), short(2)).unwrap()).finished();
    assert_eq!(until(&changes, |a| a.state != ActivityState::Error).error, None);
    assert_eq!(until(&changes, |a| a.state == ActivityState::Idle && a.running == 0).error, None);
}

#[test]
fn a_watcher_that_panics_is_not_called_again_and_hurts_nobody() {
    let engine = engine(None);
    let calls = Arc::new(Mutex::new(0));
    let counted = calls.clone();
    engine.watch(move |_| {
        *counted.lock().unwrap() += 1;
        panic!("on purpose");
    });
    let changes = watched(&engine);
    Answer::read(engine.generate(&model(), short(3)).unwrap()).finished();
    until(&changes, |a| a.state == ActivityState::Busy);
    until(&changes, |a| a.state == ActivityState::Idle);
    assert_eq!(*calls.lock().unwrap(), 1);
    Answer::read(engine.generate(&model(), short(3)).unwrap()).finished();
}

/// A watcher may look at the engine's activity and add watchers: no lock is held while it is called.
#[test]
fn a_watcher_may_look() {
    let engine = engine(None);
    let (sender, looked) = mpsc::channel();
    let own = Mutex::new((Some(engine.clone()), sender));
    engine.watch(move |told| {
        let mut own = own.lock().unwrap();
        if let Some(engine) = own.0.take() {
            engine.watch(|_| {});
            own.1.send((told.clone(), engine.activity())).unwrap();
        }
    });
    Answer::read(engine.generate(&model(), short(3)).unwrap()).finished();
    let (told, looked) = looked.recv_timeout(PATIENCE).unwrap();
    assert_eq!(told, looked);
}
