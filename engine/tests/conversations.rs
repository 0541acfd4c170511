//! Conversations through the engine's handle: what is saved when, who sees what, and what a killed process leaves.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use common::{PATIENCE, tiny_model, wait_for};
use rmlx_engine::api::{
    AnswerState, Ask, Device, ErrorInfo, Event, FinishReason, Finished, Options, Prompt, Request, Role, Thread, Turn,
};
use rmlx_engine::engine::{Engine, Reader};
use rmlx_engine::error::Error;
use serde_json::json;
use tempfile::{TempDir, tempdir};

struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempdir().unwrap();
        tiny_model(&folder.path().join("tiny"));
        Self { folder }
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    fn engine(&self) -> Engine {
        let options = Options { device: Device::Cpu, home: Some(self.home()), ..Options::default() };
        Engine::start(options).unwrap()
    }

    fn model(&self) -> String {
        self.folder.path().join("tiny").to_str().unwrap().into()
    }

    fn turn(&self, conversation: Option<i64>, ask: Ask) -> Turn {
        Turn { conversation, model: self.model(), ask }
    }

    /// Answers of exactly this many tokens, always the same.
    fn ask(&self, engine: &Engine, conversation: Option<i64>, ask: Ask, tokens: usize) -> Result<Thread, Error> {
        engine.chat_with(self.turn(conversation, ask), "", |prompt| greedy(prompt, tokens))
    }

    fn answered(&self, engine: &Engine, conversation: Option<i64>, ask: Ask, tokens: usize) -> Thread {
        let begun = self.ask(engine, conversation, ask, tokens).unwrap();
        let id = begun.conversation.id;
        if let Some(reader) = engine.follow(id) {
            assert!(matches!(end(reader).1, Ok(_)));
        }
        engine.conversation(id).unwrap()
    }
}

fn greedy(prompt: Prompt, tokens: usize) -> Request {
    let mut request = Request { max_tokens: Some(tokens), ignore_eos: true, ..Request::new(prompt) };
    request.sampling.temperature = Some(0.0);
    request
}

fn new(text: &str) -> Ask {
    Ask::New { text: text.into() }
}

/// More than any test waits for.
const ENDLESS: usize = 30_000;

/// The text and how it ended.
fn end(mut reader: Reader) -> (String, Result<Finished, ErrorInfo>) {
    let mut text = String::new();
    loop {
        match reader.next_timeout(PATIENCE) {
            Poll::Ready(Some(Event::Text { delta })) => text.push_str(&delta),
            Poll::Ready(Some(Event::Finished(finished))) => return (text, Ok(finished)),
            Poll::Ready(Some(Event::Failed(error))) => return (text, Err(error)),
            Poll::Ready(Some(_)) => {}
            other => panic!("no end: {other:?}"),
        }
    }
}

fn some_text(reader: &mut Reader) -> String {
    loop {
        match reader.next_timeout(PATIENCE) {
            Poll::Ready(Some(Event::Text { delta })) => return delta,
            Poll::Ready(Some(Event::Loading { .. } | Event::Loaded | Event::Prefill { .. })) => {}
            other => panic!("no text: {other:?}"),
        }
    }
}

fn contents(thread: &Thread) -> Vec<&str> {
    thread.messages.iter().map(|m| m.content.as_str()).collect()
}

fn state(thread: &Thread) -> AnswerState {
    thread.messages.last().unwrap().answer.as_ref().unwrap().state
}

#[test]
fn an_answer_is_saved_and_found_again_by_another_engine() {
    let place = Place::new();
    let engine = place.engine();
    let begun = place.ask(&engine, None, new("  Who are you?\nReally."), 12).unwrap();
    let id = begun.conversation.id;
    assert_eq!((begun.messages.len(), begun.conversation.title.as_str()), (2, "Who are you?"));
    assert_eq!((begun.messages[0].role, begun.messages[1].role), (Role::User, Role::Assistant));
    let followed = engine.follow(id).map(end);
    let thread = engine.conversation(id).unwrap();
    assert!(!thread.running);
    assert_eq!(thread.messages[0].content, "  Who are you?\nReally.", "as it was typed");
    let answer = thread.messages[1].answer.clone().unwrap();
    assert_eq!((answer.state, answer.model.clone(), answer.error), (AnswerState::Complete, place.model(), None));
    let finished = answer.finished.unwrap();
    assert_eq!((finished.reason, finished.usage.completion_tokens), (FinishReason::Length, 12));
    if let Some((text, ended)) = followed {
        assert_eq!((text, ended), (thread.messages[1].content.clone(), Ok(finished)));
    }
    assert!(engine.follow(id).is_none() && !engine.stop(id), "nothing is running");
    drop(engine);
    let again = place.engine();
    assert_eq!(again.conversation(id).unwrap(), thread);
    assert_eq!(again.conversations(None).unwrap(), [thread.conversation]);
}

#[test]
fn the_model_reads_the_selected_branch_and_the_system_message() {
    let place = Place::new();
    let engine = place.engine();
    let prompt_of = |conversation, ask, system: &str| {
        let mut seen = Vec::new();
        let begun = engine
            .chat_with(place.turn(conversation, ask), system, |prompt| {
                let Prompt::Chat { messages, .. } = &prompt else { panic!("{prompt:?}") };
                seen = messages.iter().map(|m| (m.role.clone(), m.content.clone())).collect();
                greedy(prompt, 4)
            })
            .unwrap();
        engine.follow(begun.conversation.id).map(end);
        (seen, engine.conversation(begun.conversation.id).unwrap())
    };
    let pair = |role: &str, content: &str| (role.to_owned(), content.to_owned());
    let (seen, first) = prompt_of(None, new("one"), "be brief");
    assert_eq!(seen, [pair("system", "be brief"), pair("user", "one")]);
    let id = first.conversation.id;
    let answer = first.messages[1].content.clone();
    assert_ne!(answer, "");
    let (seen, second) = prompt_of(Some(id), new("two"), "");
    assert_eq!(seen, [pair("user", "one"), pair("assistant", &answer), pair("user", "two")]);
    let (seen, third) = prompt_of(Some(id), Ask::Retry { message: second.messages[3].id }, "");
    assert_eq!(seen.len(), 3);
    assert_eq!(third.messages[3].versions, [second.messages[3].id, third.messages[3].id]);
    let (seen, edited) = prompt_of(Some(id), Ask::Edit { message: first.messages[0].id, text: "uno".into() }, "");
    assert_eq!(seen, [pair("user", "uno")]);
    assert_eq!((edited.messages.len(), edited.conversation.title.as_str()), (2, "uno"));
    // Nothing is gone.
    let back = engine.select_version(id, first.messages[0].id).unwrap();
    assert_eq!(contents(&back), contents(&third));
    assert_eq!(back.messages[0].versions, [first.messages[0].id, edited.messages[0].id]);
}

#[test]
fn the_settings_are_what_a_turn_is_made_with() {
    let place = Place::new();
    let engine = place.engine();
    engine.set_settings(&json!({ "chat": { "max_tokens": 3, "temperature": 0, "system": "s" } })).unwrap();
    let turn = place.turn(None, new("hi"));
    let id = engine.chat(turn).unwrap().conversation.id;
    engine.follow(id).map(end);
    let with_system = engine.conversation(id).unwrap().messages[1].answer.clone().unwrap().finished.unwrap().usage;
    assert!(with_system.completion_tokens <= 3, "{with_system:?}");
    engine.set_settings(&json!({ "chat": { "system": null } })).unwrap();
    let id = engine.chat(place.turn(None, new("hi"))).unwrap().conversation.id;
    engine.follow(id).map(end);
    let without = engine.conversation(id).unwrap().messages[1].answer.clone().unwrap().finished.unwrap().usage;
    assert!(with_system.prompt_tokens > without.prompt_tokens, "{with_system:?} {without:?}");
}

#[test]
fn what_cannot_be_asked_saves_nothing() {
    let place = Place::new();
    let engine = place.engine();
    let first = place.answered(&engine, None, new("one"), 4);
    let (id, question, answer) = (first.conversation.id, first.messages[0].id, first.messages[1].id);
    let other = place.answered(&engine, None, new("other"), 4).messages[1].id;
    let edit = |message| Ask::Edit { message, text: "x".into() };
    for (conversation, ask, code) in [
        (None, new(" \n"), "invalid_request"),
        (None, edit(question), "invalid_request"),
        (None, Ask::Retry { message: answer }, "invalid_request"),
        (Some(id), edit(answer), "invalid_request"),
        (Some(id), Ask::Edit { message: question, text: String::new() }, "invalid_request"),
        (Some(id), Ask::Retry { message: question }, "invalid_request"),
        (Some(id), Ask::Retry { message: other }, "not_found"),
        (Some(id), edit(999), "not_found"),
        (Some(999), new("x"), "not_found"),
        (None, new(&"long ".repeat(20_000)), "context_length_exceeded"),
    ] {
        let error = place.ask(&engine, conversation, ask.clone(), 4).unwrap_err();
        assert_eq!(error.code(), code, "{ask:?}: {error}");
    }
    let turn = Turn { conversation: Some(id), model: "no-such-model".into(), ask: new("x") };
    assert_eq!(engine.chat(turn).unwrap_err().code(), "model_not_found");
    assert_eq!(engine.conversation(id).unwrap(), first);
    assert_eq!(engine.conversations(None).unwrap().len(), 2);
    for error in [
        engine.conversation(999).unwrap_err(),
        engine.rename_conversation(999, "x").unwrap_err(),
        engine.delete_conversation(999).unwrap_err(),
        engine.restore_conversation(999).unwrap_err(),
        engine.select_version(id, other).unwrap_err(),
    ] {
        assert_eq!(error.code(), "not_found", "{error}");
    }
}

#[test]
fn a_stopped_answer_keeps_its_text() {
    let place = Place::new();
    let engine = place.engine();
    let id = place.ask(&engine, None, new("go"), ENDLESS).unwrap().conversation.id;
    let mut reader = engine.follow(id).unwrap();
    let first = some_text(&mut reader);
    let busy = place.ask(&engine, Some(id), new("and?"), 4).unwrap_err();
    assert_eq!(busy.code(), "invalid_request");
    assert!(busy.to_string().contains("being made"), "{busy}");
    assert!(engine.conversation(id).unwrap().running);
    // Others may run.
    place.answered(&engine, None, new("aside"), 4);
    assert!(engine.stop(id));
    let (rest, ended) = end(reader);
    assert_eq!(ended.unwrap_err().code, "cancelled");
    let thread = engine.conversation(id).unwrap();
    assert_eq!((state(&thread), thread.running), (AnswerState::Stopped, false));
    assert_eq!(thread.messages[1].content, first + &rest);
    assert_eq!(place.answered(&engine, Some(id), new("again"), 4).messages.len(), 4);
}

#[test]
fn followers_come_and_go() {
    let place = Place::new();
    let engine = place.engine();
    let id = place.ask(&engine, None, new("go"), 2000).unwrap().conversation.id;
    let mut first = engine.follow(id).unwrap();
    let begun = some_text(&mut first);
    let second = engine.follow(id).unwrap();
    drop(first);
    let third = engine.follow(id).unwrap();
    third.cancel();
    let ((text, ended), (_, left)) = (end(second), end(third));
    assert_eq!(left.unwrap_err().code, "cancelled", "only for who asked for it");
    let thread = engine.conversation(id).unwrap();
    assert_eq!(thread.messages[1].content, text);
    assert!(text.starts_with(&begun) && ended.is_ok());
    assert_eq!(state(&thread), AnswerState::Complete);
}

#[test]
fn deleting_stops_and_can_be_undone() {
    let place = Place::new();
    let engine = place.engine();
    let id = place.ask(&engine, None, new("go"), ENDLESS).unwrap().conversation.id;
    some_text(&mut engine.follow(id).unwrap());
    engine.delete_conversation(id).unwrap();
    assert!(engine.follow(id).is_none() && engine.conversations(None).unwrap().is_empty());
    assert_eq!(engine.conversation(id).unwrap_err().code(), "not_found");
    assert_eq!(place.ask(&engine, Some(id), new("x"), 4).unwrap_err().code(), "not_found");
    engine.restore_conversation(id).unwrap();
    let thread = engine.conversation(id).unwrap();
    assert_eq!(state(&thread), AnswerState::Stopped);
    assert_ne!(thread.messages[1].content, "");
}

#[test]
fn an_engine_that_goes_saves_what_there_is() {
    let place = Place::new();
    let engine = place.engine();
    let id = place.ask(&engine, None, new("go"), ENDLESS).unwrap().conversation.id;
    let mut reader = engine.follow(id).unwrap();
    let first = some_text(&mut reader);
    drop(engine);
    let (rest, ended) = end(reader);
    assert_eq!(ended.unwrap_err().code, "cancelled");
    let again = place.engine();
    let thread = again.conversation(id).unwrap();
    assert_eq!((state(&thread), thread.running), (AnswerState::Unfinished, false));
    assert_eq!(thread.messages[1].content, first + &rest);
    // It is read on as it is.
    assert_eq!(place.answered(&again, Some(id), new("more"), 4).messages.len(), 4);
}

/// A waker that has the last handle drops it on the answer's own thread.
#[test]
fn the_last_handle_may_go_on_the_answers_thread() {
    let place = Place::new();
    let engine = place.engine();
    let id = place.ask(&engine, None, new("go"), ENDLESS).unwrap().conversation.id;
    let mut reader = engine.follow(id).unwrap();
    some_text(&mut reader);
    let last = Arc::new(std::sync::Mutex::new(None));
    let held = last.clone();
    reader.set_waker(Box::new(move || drop(held.lock().unwrap().take())));
    *last.lock().unwrap() = Some(engine);
    assert_eq!(end(reader).1.unwrap_err().code, "cancelled");
    let again = place.engine();
    wait_for("the text to be saved", || !again.conversation(id).unwrap().messages[1].content.is_empty());
}

#[test]
fn an_answer_without_text_is_left_out_of_what_the_model_reads() {
    let place = Place::new();
    let engine = place.engine();
    // The model's files are fine to look at, and its weights cannot be loaded.
    let weights = place.folder.path().join("tiny/model.safetensors");
    let whole = fs::read(&weights).unwrap();
    let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    fs::write(&weights, &whole[..header + 64]).unwrap();
    let begun = place.ask(&engine, None, new("lost?"), 4);
    let id = match begun {
        Ok(begun) => begun.conversation.id,
        // Refused at once is as good, but then there is nothing to leave out.
        Err(e) => panic!("this test needs a failure after the start: {e}"),
    };
    if let Some(reader) = engine.follow(id) {
        end(reader).1.unwrap_err();
    }
    let failed = engine.conversation(id).unwrap();
    assert_eq!(state(&failed), AnswerState::Failed);
    let error = failed.messages[1].answer.clone().unwrap().error.unwrap();
    assert!(error.code == "bad_file" || error.code == "bad_weights", "{error:?}");
    fs::write(&weights, whole).unwrap();
    let mut seen = 0;
    engine
        .chat_with(place.turn(Some(id), new("again")), "", |prompt| {
            let Prompt::Chat { messages, .. } = &prompt else { panic!("{prompt:?}") };
            seen = messages.len();
            greedy(prompt, 4)
        })
        .unwrap();
    assert_eq!(seen, 1);
    if let Some(reader) = engine.follow(id) {
        end(reader).1.unwrap();
    }
    let again = place.answered(&engine, Some(id), Ask::Retry { message: failed.messages[1].id }, 4);
    assert_eq!((again.messages.len(), state(&again)), (2, AnswerState::Complete), "the other branch has the failed one");
}

#[test]
fn an_answer_that_cannot_be_saved_goes_on_and_says_so() {
    let place = Place::new();
    let engine = place.engine();
    let id = place.ask(&engine, None, new("go"), 3000).unwrap().conversation.id;
    let mut reader = engine.follow(id).unwrap();
    let first = some_text(&mut reader);
    // Another program takes the answer's row away: from now on it cannot be saved.
    let other = rusqlite::Connection::open(place.home().join("conversations.db")).unwrap();
    other.busy_timeout(Duration::from_secs(10)).unwrap();
    other.execute_batch("CREATE TRIGGER no BEFORE UPDATE ON messages BEGIN SELECT raise(ABORT, 'full'); END;").unwrap();
    let (text, ended) = end(reader);
    assert_eq!(ended.unwrap_err().code, "store");
    // Special tokens have no text.
    assert!((first + &text).len() > 2000, "followers have all of it");
    other.execute_batch("DROP TRIGGER no").unwrap();
    assert_eq!(state(&engine.conversation(id).unwrap()), AnswerState::Unfinished);
    place.answered(&engine, Some(id), new("again"), 4);
}

#[test]
fn broken_files_are_named_and_kept() {
    let place = Place::new();
    fs::create_dir_all(place.home()).unwrap();
    let database = place.home().join("conversations.db");
    let settings = place.home().join("settings.toml");
    fs::write(&database, "not a database, whatever its name says; long enough to have a header".repeat(20)).unwrap();
    fs::write(&settings, "shortcut = 5\n").unwrap();
    let engine = place.engine();
    let kept = |path: &Path| fs::read(path).unwrap();
    let before = (kept(&database), kept(&settings));
    let error = engine.conversations(None).unwrap_err();
    assert!(error.code() == "store" && error.to_string().contains("conversations.db"), "{error}");
    let error = engine.chat(place.turn(None, new("x"))).unwrap_err();
    assert!(error.code() == "bad_file" && error.to_string().contains("shortcut"), "{error}");
    let error = engine.set_settings(&json!({ "theme": "dark" })).unwrap_err();
    assert!(error.code() == "bad_file" && error.to_string().contains("settings.toml"), "{error}");
    assert!(before == (kept(&database), kept(&settings)));
}
