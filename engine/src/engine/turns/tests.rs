//! With an engine that is this test: it says what it wants, when it wants.

use tempfile::{TempDir, tempdir};

use super::*;
use crate::api::{Ask, FinishReason, Finished, LoadStage, Thread, Timings, Turn, Usage};

struct Case {
    store: Arc<Store>,
    turns: Turns,
    saved: Saved,
    engine: Writer,
    _folder: TempDir,
}

const PATIENCE: Duration = Duration::from_secs(30);

impl Case {
    fn new() -> Self {
        let folder = tempdir().unwrap();
        let store = Arc::new(Store::open(folder.path()).unwrap());
        let turn = Turn { conversation: None, model: "m".into(), ask: Ask::New { text: "q".into() } };
        let saved = store.begin(&store.place(&turn).unwrap(), "m").unwrap();
        let (engine, reader) = pipe();
        let turns = Turns::default();
        turns.start(store.clone(), saved, reader).unwrap();
        Self { store, turns, saved, engine, _folder: folder }
    }

    fn says(&self, text: &str) {
        self.engine.push(Event::Text { delta: text.into() });
    }

    fn thread(&self) -> Thread {
        self.store.thread(self.saved.conversation).unwrap()
    }

    fn content(&self) -> String {
        self.thread().messages[1].content.clone()
    }

    fn state(&self) -> (AnswerState, Option<ErrorInfo>) {
        let answer = self.thread().messages[1].answer.clone().unwrap();
        (answer.state, answer.error)
    }

    fn follow(&self) -> Reader {
        self.turns.follow(self.saved.conversation).unwrap()
    }

    fn stop(&self) -> bool {
        self.turns.stop(self.saved.conversation)
    }
}

#[track_caller]
fn next(reader: &mut Reader) -> Event {
    match reader.next_timeout(PATIENCE) {
        Poll::Ready(Some(event)) => event,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn text(reader: &mut Reader, wanted: &str) {
    let mut text = String::new();
    while text.len() < wanted.len() {
        match next(reader) {
            Event::Text { delta } => text.push_str(&delta),
            other => panic!("{other:?} after {text}"),
        }
    }
    assert_eq!(text, wanted);
}

fn wait_for(mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "waited in vain");
        thread::sleep(Duration::from_millis(5));
    }
}

fn finished() -> Event {
    let usage = Usage { prompt_tokens: 1, completion_tokens: 1 };
    Event::Finished(Finished { reason: FinishReason::Stop, stop: None, usage, timings: Timings::default(), kv_bytes: 0 })
}

#[test]
fn who_comes_late_is_told_how_far_it_is() {
    let case = Case::new();
    let loading = Event::Loading { stage: LoadStage::Weights, done: 5, total: 10 };
    let mut first = case.follow();
    case.engine.push(loading.clone());
    assert_eq!(next(&mut first), loading);
    let mut second = case.follow();
    assert_eq!(next(&mut second), loading, "again, for the second");
    case.engine.push(Event::Prefill { done: 1, total: 2 });
    assert_eq!(next(&mut second), Event::Prefill { done: 1, total: 2 });
    case.says("one ");
    text(&mut second, "one ");
    case.says("two");
    text(&mut second, "two");
    let mut third = case.follow();
    text(&mut third, "one two");
    case.engine.push(finished());
    for reader in [&mut second, &mut third] {
        assert_eq!(next(reader), finished());
        assert_eq!(case.state(), (AnswerState::Complete, None), "saved before anybody hears of the end");
        assert_eq!(reader.next_timeout(PATIENCE), Poll::Ready(None));
    }
    assert_eq!(case.content(), "one two");
    assert!(case.turns.follow(case.saved.conversation).is_none() && !case.stop());
}

#[test]
fn text_is_saved_while_it_grows() {
    let case = Case::new();
    let mut reader = case.follow();
    for (delta, all) in [("one ", "one "), ("two ", "one two ")] {
        case.says(delta);
        text(&mut reader, delta);
        // The engine says no more; it is saved all the same.
        wait_for(|| case.content() == all);
    }
    assert_eq!(case.state().0, AnswerState::Unfinished);
    case.stop();
}

#[test]
fn stopping_does_not_wait_for_the_engine() {
    let case = Case::new();
    let mut reader = case.follow();
    case.says("half");
    assert!(case.stop());
    assert!(case.engine.is_cancelled());
    case.says("late");
    text(&mut reader, "half");
    assert!(matches!(next(&mut reader), Event::Failed(error) if error.code == "cancelled"));
    assert_eq!((case.content().as_str(), case.state()), ("half", (AnswerState::Stopped, None)));
}

#[test]
fn a_failure_keeps_the_text_before_it() {
    let case = Case::new();
    case.says("half");
    let error = Error::Mlx("no memory".into());
    case.engine.fail(&error);
    wait_for(|| case.turns.running(case.saved.conversation).is_none());
    assert_eq!((case.content().as_str(), case.state()), ("half", (AnswerState::Failed, Some(ErrorInfo::from(&error)))));
}

#[test]
fn who_leaves_stops_nothing() {
    let case = Case::new();
    let mut stays = case.follow();
    drop(case.follow());
    case.says("text");
    text(&mut stays, "text");
    assert!(!case.engine.is_cancelled());
    case.engine.push(finished());
    assert_eq!(next(&mut stays), finished());
}

#[test]
fn a_followers_panic_is_its_own() {
    let case = Case::new();
    let mut bad = case.follow();
    bad.set_waker(Box::new(|| panic!("a follower's own")));
    case.says("text");
    case.engine.push(finished());
    wait_for(|| case.turns.running(case.saved.conversation).is_none());
    assert_eq!((case.content().as_str(), case.state().0), ("text", AnswerState::Complete));
}

#[test]
fn what_runs_when_all_goes_is_saved_as_unfinished() {
    let case = Case::new();
    let mut reader = case.follow();
    case.says("half");
    text(&mut reader, "half");
    let Case { store, turns, saved, engine, _folder } = case;
    drop(turns);
    let thread = store.thread(saved.conversation).unwrap();
    let answer = thread.messages[1].answer.as_ref().unwrap();
    assert_eq!((thread.messages[1].content.as_str(), answer.state), ("half", AnswerState::Unfinished));
    assert!(engine.is_cancelled());
    assert!(matches!(next(&mut reader), Event::Failed(error) if error.code == "cancelled"));
}
