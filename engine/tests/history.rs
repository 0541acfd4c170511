//! Kept conversations through the real binary: `chat --keep`, `--resume`, `history`, `settings`, and processes that are killed.

mod common;

use std::io::{Read, Write};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::{Rmlx, end, signal, wait_for};
use rmlx_engine::api::{AnswerState, Device, Options};
use rmlx_engine::engine::Engine;
use serde_json::Value;

/// Keeps the tiny model from its special tokens, so that it never ends by itself.
const NO_END: [&str; 4] = ["--logit-bias=128=-100", "--logit-bias=129=-100", "--logit-bias=130=-100", "--logit-bias=131=-100"];

fn chat<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["chat", "MODEL"], &NO_END[..], more].concat()
}

fn engine(rmlx: &Rmlx) -> Engine {
    Engine::start(Options { device: Device::Cpu, home: Some(rmlx.home()), ..Options::default() }).unwrap()
}

fn contents(thread: &Value) -> Vec<&str> {
    thread["messages"].as_array().unwrap().iter().map(|m| m["content"].as_str().unwrap()).collect()
}

#[test]
fn a_chat_is_kept_when_asked_for() {
    let rmlx = Rmlx::new();
    rmlx.run_with(&chat(&["--max-tokens", "4"]), "not kept\n").ok();
    assert!(!rmlx.home().join("conversations.db").exists());
    let kept = rmlx.run_with(&chat(&["--keep", "--max-tokens", "4"]), "first question\nsecond\n").ok();
    assert!(kept.stderr.contains("conversation 1") && kept.stderr.contains("--resume 1"), "{kept:#?}");
    let shown = rmlx.run(&["history", "show", "1", "--json"]).ok().json();
    let messages = contents(&shown);
    assert_eq!((messages.len(), messages[0], messages[2]), (4, "first question", "second"));
    let ends = |text: &str| format!("{text}{}", if text.ends_with('\n') { "" } else { "\n" });
    assert_eq!(kept.stdout, ends(messages[1]) + &ends(messages[3]), "only the answers");
    assert_eq!(shown["conversation"]["title"], "first question");

    let file = rmlx.folder.path().join("talk.json");
    let lines = format!("third\n/save {}\n", file.display());
    let resumed = rmlx.run_with(&chat(&["--resume", "1", "--max-tokens", "4"]), &lines).ok();
    assert!(resumed.stderr.contains("(4 messages)"), "{resumed:#?}");
    let saved: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let shown = rmlx.run(&["history", "show", "1", "--json"]).ok().json();
    assert_eq!((contents(&shown).len(), contents(&shown)[4]), (6, "third"));
    assert_eq!(contents(&saved), contents(&shown));

    let two = rmlx.run_with(&chat(&["--keep", "--max-tokens", "4"]), "one\n/reset\nother\n").ok();
    assert!(two.stderr.contains("conversation 3"), "{two:#?}");
    for (args, stdin, complaint) in [
        (chat(&["--resume", "99"]), "hi\n", "no conversation has the number 99"),
        (chat(&["--keep"]), "/load x.json\n", "--resume"),
    ] {
        let ended = rmlx.run_with(&args, stdin);
        assert_eq!(ended.code, Some(1), "{ended:#?}");
        assert!(ended.stderr.contains(complaint), "{ended:#?}");
    }
}

#[test]
fn history_lists_finds_renames_and_deletes() {
    let rmlx = Rmlx::new();
    let none = rmlx.run(&["history"]).ok();
    assert_eq!((none.stdout.as_str(), none.stderr.as_str()), ("", "no conversations are kept\n"));
    for question in ["about apples", "about pears"] {
        rmlx.run_with(&chat(&["--keep", "--max-tokens", "3"]), question).ok();
    }
    let listed = rmlx.run(&["history"]).ok().stdout;
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines[0].starts_with("ID") && lines[1].contains("about pears") && lines[2].contains("about apples"), "{listed}");
    assert_eq!(rmlx.run(&["history", "list"]).ok().stdout, listed);
    let json = rmlx.run(&["history", "--json"]).ok().json();
    assert_eq!((json[0]["id"].as_i64(), json[1]["title"].as_str()), (Some(2), Some("about apples")));
    let found = rmlx.run(&["history", "search", "--json", "pear"]).ok().json();
    assert_eq!((found.as_array().unwrap().len(), &found[0]["id"]), (1, &Value::from(2)));
    assert!(rmlx.run(&["history", "search", "about", "apples"]).ok().stdout.contains("about apples"));
    assert!(rmlx.run(&["history", "search", "plums"]).ok().stderr.contains("nothing is found"));
    rmlx.run(&["history", "rename", "1", "Fruit"]).ok();
    let deleted = rmlx.run(&["history", "delete", "2"]).ok();
    assert!(deleted.stderr.contains("history restore 2"), "{deleted:#?}");
    let listed = rmlx.run(&["history"]).ok().stdout;
    assert!(listed.contains("Fruit") && !listed.contains("pears"), "{listed}");
    assert_eq!(rmlx.run(&["history", "restore", "2", "--json"]).ok().json()["id"], 2);
    assert!(rmlx.run(&["history"]).ok().stdout.contains("pears"));
    for args in [["history", "show", "9"], ["history", "delete", "9"], ["history", "restore", "9"]] {
        let ended = rmlx.run(&args);
        assert_eq!((ended.code, ended.stderr.contains("number 9")), (Some(1), true), "{ended:#?}");
    }
    assert_eq!(rmlx.run(&["history", "show", "x"]).code, Some(2));
}

#[test]
fn what_is_stored_cannot_drive_the_terminal() {
    let rmlx = Rmlx::new();
    rmlx.run_with(&chat(&["--keep", "--max-tokens", "3"]), "red \u{1b}[31m \u{9b}2J \u{7} bell\n").ok();
    rmlx.run(&["history", "rename", "1", "\u{1b}]0;title\u{7}"]).ok();
    for args in [&["history"][..], &["history", "show", "1"], &["history", "search", "bell"], &["history", "search", "be"]] {
        let ended = rmlx.run(args).ok();
        assert!(ended.stdout.contains("31m") || ended.stdout.contains("0;title"), "{ended:#?}");
        let controls = |text: &str| text.chars().any(|c| c.is_control() && c != '\n');
        assert!(!controls(&ended.stdout) && !controls(&ended.stderr), "{ended:#?}");
    }
    // Programs get it as it is.
    let shown = rmlx.run(&["history", "show", "1", "--json"]).ok().json();
    assert!(contents(&shown)[0].contains('\u{1b}'));
}

#[test]
fn settings_are_shown_and_count_for_kept_chats() {
    let rmlx = Rmlx::new();
    let shown = rmlx.run(&["settings"]).ok().stdout;
    assert!(shown.starts_with("# /") && shown.contains("settings.toml\n") && shown.contains("port = 8080"), "{shown}");
    let values: toml::Table = shown.parse().unwrap();
    assert_eq!(values["theme"].as_str(), Some("system"));
    std::fs::create_dir_all(rmlx.home()).unwrap();
    std::fs::write(rmlx.home().join("settings.toml"), "[chat]\nmax_tokens = 2\ntemperature = 0.7\n").unwrap();
    assert!(rmlx.run(&["settings"]).ok().stdout.contains("temperature = 0.7\n"));
    rmlx.run_with(&chat(&["--keep"]), "hi\n").ok();
    rmlx.run_with(&chat(&["--keep", "--max-tokens", "5"]), "hi\n").ok();
    for (id, tokens) in [("1", 2), ("2", 5)] {
        let shown = rmlx.run(&["history", "show", id, "--json"]).ok().json();
        assert_eq!(shown["messages"][1]["answer"]["finished"]["usage"]["completion_tokens"], tokens, "{shown:#}");
    }
    std::fs::write(rmlx.home().join("settings.toml"), "[chat]\nmax_token = 2\n").unwrap();
    for args in [vec!["settings"], chat(&["--keep"])] {
        let ended = rmlx.run(&args);
        assert_eq!(ended.code, Some(1), "{ended:#?}");
        assert!(ended.stderr.contains("settings.toml") && ended.stderr.contains("is chat.max_tokens meant?"), "{ended:#?}");
    }
}

#[test]
fn an_interrupt_keeps_what_there_is() {
    let rmlx = Rmlx::new();
    let mut child = rmlx.command(&chat(&["--keep"])).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"go\n").unwrap();
    let mut first = [0; 1];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    signal(&child.id().to_string(), "INT");
    drop(input);
    let ended = end(child).ok();
    assert!(ended.stderr.contains("conversation 1"), "{ended:#?}");
    let thread = engine(&rmlx).conversation(1).unwrap();
    let answer = &thread.messages[1];
    assert_eq!(answer.answer.as_ref().unwrap().state, AnswerState::Stopped);
    // The two characters before a line's end that may have been added.
    assert!(format!("{}{}", first[0] as char, ended.stdout).trim_end_matches('\n').len() <= answer.content.len());
    assert_ne!(answer.content, "");
}

/// SIGKILL in the middle of an answer: the unsaved second of it is lost, and nothing else.
#[test]
fn a_killed_process_loses_a_second_at_most() {
    /// A save takes its time on a loaded machine.
    const SLACK: Duration = Duration::from_secs(2);
    let rmlx = Rmlx::new();
    rmlx.run_with(&chat(&["--keep", "--max-tokens", "4"]), "before\n").ok();
    let before = engine(&rmlx).conversation(1).unwrap();

    let mut child = rmlx.command(&chat(&["--resume", "1"])).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"go\n").unwrap();
    let mut stdout = child.stdout.take().unwrap();
    // What was printed when.
    let printed = Arc::new(Mutex::new(Vec::<(Instant, u8)>::new()));
    let printing = printed.clone();
    let reading = thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(n @ 1..) = stdout.read(&mut buffer) {
            let now = Instant::now();
            printing.lock().unwrap().extend(buffer[..n].iter().map(|byte| (now, *byte)));
        }
    });
    let since = |began: Instant| Instant::now().duration_since(began);
    wait_for("some seconds of text", || {
        printed.lock().unwrap().first().is_some_and(|(began, _)| since(*began) > Duration::from_secs(1) + SLACK + SLACK)
    });
    let killed = Instant::now();
    child.kill().unwrap();
    child.wait().unwrap();
    drop(input);
    reading.join().unwrap();

    let engine = engine(&rmlx);
    let thread = engine.conversation(1).unwrap();
    assert_eq!(thread.messages[..2], before.messages[..], "what was saved before");
    assert_eq!((thread.messages[2].content.as_str(), thread.running), ("go", false));
    assert_eq!(thread.messages[3].answer.as_ref().unwrap().state, AnswerState::Unfinished);
    let saved = thread.messages[3].content.as_bytes();
    let printed = printed.lock().unwrap();
    let all: Vec<u8> = printed.iter().map(|(_, byte)| *byte).collect();
    let shorter = saved.len().min(all.len());
    assert!(saved[..shorter] == all[..shorter], "what is saved is what was said");
    let sure = printed.iter().filter(|(at, _)| killed.duration_since(*at) > Duration::from_secs(1) + SLACK).count();
    assert!(sure > 0 && saved.len() >= sure, "{} of {} bytes are saved, {sure} of them are old enough", saved.len(), all.len());
    drop(engine);

    let shown = rmlx.run(&["history", "show", "1"]).ok().stdout;
    assert!(shown.contains("(unfinished)"), "{shown:.200}");
    rmlx.run_with(&chat(&["--resume", "1", "--max-tokens", "2"]), "go on\n").ok();
}

#[test]
fn processes_share_the_conversations() {
    let rmlx = Rmlx::new();
    let input = rmlx.folder.path().join("lines");
    std::fs::write(&input, "one\ntwo\nthree\n").unwrap();
    let engine = engine(&rmlx);
    let chats: Vec<_> = (0..4)
        .map(|_| {
            let input = std::fs::File::open(&input).unwrap();
            rmlx.command(&chat(&["--keep", "--max-tokens", "20"])).stdin(input).spawn().unwrap()
        })
        .collect();
    // The app, meanwhile.
    let watching = {
        let engine = engine.clone();
        thread::spawn(move || {
            let began = Instant::now();
            let mut stamps = std::collections::BTreeSet::new();
            let all = |engine: &Engine| {
                let list = engine.conversations(None).unwrap();
                list.len() == 4 && list.iter().all(|c| engine.conversation(c.id).unwrap().messages.len() == 6)
            };
            while !all(&engine) {
                stamps.insert(engine.conversations_stamp().unwrap());
                engine.conversations(Some("three")).unwrap();
                assert!(began.elapsed() < common::PATIENCE);
            }
            stamps.len()
        })
    };
    for chat in chats {
        end(chat).ok();
    }
    assert!(watching.join().unwrap() > 1, "changes of other processes are seen");
    for entry in engine.conversations(None).unwrap() {
        let thread = engine.conversation(entry.id).unwrap();
        let states: Vec<_> = thread.messages.iter().filter_map(|m| Some(m.answer.as_ref()?.state)).collect();
        assert_eq!(states, [AnswerState::Complete; 3], "{entry:?}");
    }
}
