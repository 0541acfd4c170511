//! The commands as the page calls them: through Tauri's own checks (permissions, arguments) on its mock runtime, with a real engine
//! over a tiny model.

use std::collections::{BTreeSet, HashMap};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use std::{fs, thread};

use rmlx_engine::api::{Device, Event, Options, PullPhase, Role};
use serde_json::{Value, json};
use tauri::ipc::{CallbackFn, InvokeBody, InvokeResponseBody};
use tauri::test::{INVOKE_KEY, MockRuntime, get_ipc_response, mock_builder};
use tauri::webview::InvokeRequest;
use tauri::{App, Listener, WebviewUrl, WebviewWindow, WebviewWindowBuilder};

use super::*;
use crate::app::{configure, context, lock, on_pulls, start};
use crate::window::MAIN;

macro_rules! names {
    ($($topic:ident::$name:ident),* $(,)?) => { &[$(stringify!($name)),*] };
}

const NAMES: &[&str] = commands!(names);
const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// Nothing here takes that long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

type Messages = Arc<Mutex<HashMap<u32, Vec<String>>>>;

/// An app without a display, with a home of its own.
struct Rig {
    app: App<MockRuntime>,
    window: WebviewWindow<MockRuntime>,
    messages: Messages,
    home: tempfile::TempDir,
}

impl Rig {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let messages = Messages::default();
        let sink = messages.clone();
        let builder = mock_builder().channel_interceptor(move |_, channel, index, body| {
            let InvokeResponseBody::Json(json) = body else { panic!("not JSON") };
            let mut messages = lock(&sink);
            let messages = messages.entry(channel.0).or_default();
            assert_eq!(messages.len(), index);
            messages.push(json.clone());
            true
        });
        let app = configure(builder).build(context()).unwrap();
        let options = Options { device: Device::Cpu, home: Some(home.path().into()), ..Options::default() };
        start(app.handle(), Engine::start(options).unwrap());
        let window = WebviewWindowBuilder::new(&app, MAIN, WebviewUrl::default()).build().unwrap();
        Self { app, window, messages, home }
    }

    /// One whose answers are short and the same each time.
    fn answering() -> Self {
        let rig = Self::new();
        rig.ok("settings_set", json!({ "patch": { "chat": { "max_tokens": 12, "temperature": 0.0 } } }));
        rig
    }

    fn call(&self, command: &str, arguments: Value) -> std::result::Result<Value, Value> {
        call(&self.window, command, arguments)
    }

    fn ok(&self, command: &str, arguments: Value) -> Value {
        self.call(command, arguments).unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    /// The code of a refusal, which also has a message.
    fn code(&self, command: &str, arguments: Value) -> String {
        let error = self.call(command, arguments).expect_err(command);
        let error: ErrorInfo = serde_json::from_value(error).unwrap();
        assert!(!error.message.is_empty());
        error.code
    }

    fn events(&self, channel: u32) -> Vec<Event> {
        let messages = lock(&self.messages);
        messages[&channel].iter().flat_map(|json| serde_json::from_str::<Vec<Event>>(json).unwrap()).collect()
    }

    /// What the page hears of a change.
    fn hear(&self, change: &str) -> mpsc::Receiver<Value> {
        let (sink, heard) = mpsc::channel();
        self.window.listen(change.to_owned(), move |event| {
            let _ = sink.send(serde_json::from_str(event.payload()).unwrap());
        });
        heard
    }

    fn ask(&self, conversation: Option<i64>, ask: Value) -> Value {
        self.ok("chat_send", json!({ "turn": { "conversation": conversation, "model": tiny(), "ask": ask } }))
    }

    /// Asks, waits for the end of the answer, and returns the conversation's number.
    fn chat(&self, text: &str, channel: u32) -> i64 {
        let thread = self.ask(None, json!({ "type": "new", "text": text }));
        let id = thread["conversation"]["id"].as_i64().unwrap();
        // A short answer may have ended before it can be followed.
        self.follow(id, channel);
        assert_eq!(self.ok("conversation_get", json!({ "id": id }))["running"], false);
        id
    }

    fn follow(&self, conversation: i64, channel: u32) -> Value {
        follow(&self.window, conversation, channel)
    }

    fn titles(&self, search: Option<&str>) -> Vec<String> {
        let list = self.ok("conversations_list", json!({ "search": search }));
        list.as_array().unwrap().iter().map(|entry| entry["title"].as_str().unwrap().into()).collect()
    }
}

fn call(window: &WebviewWindow<MockRuntime>, command: &str, arguments: Value) -> std::result::Result<Value, Value> {
    let request = InvokeRequest {
        cmd: command.into(),
        callback: CallbackFn(0),
        error: CallbackFn(1),
        url: "tauri://localhost".parse().unwrap(),
        body: InvokeBody::Json(arguments),
        headers: Default::default(),
        invoke_key: INVOKE_KEY.into(),
    };
    get_ipc_response(window, request).map(|body| body.deserialize().unwrap())
}

fn follow(window: &WebviewWindow<MockRuntime>, conversation: i64, channel: u32) -> Value {
    let on_events = format!("__CHANNEL__:{channel}");
    call(window, "chat_follow", json!({ "conversation": conversation, "onEvents": on_events })).unwrap()
}

fn tiny() -> String {
    format!("{ROOT}/tests/fixtures/oracles/qwen3")
}

fn text(events: &[Event]) -> String {
    events.iter().filter_map(|event| if let Event::Text { delta } = event { Some(&**delta) } else { None }).collect()
}

#[test]
fn a_question_is_answered_and_kept() {
    let rig = Rig::new();
    // Long enough to be followed while it is made.
    rig.ok("settings_set", json!({ "patch": { "chat": { "max_tokens": 300, "temperature": 0.0 } } }));
    let thread = rig.ask(None, json!({ "type": "new", "text": "What is a whale?" }));
    assert_eq!(thread["running"], true);
    let id = thread["conversation"]["id"].as_i64().unwrap();
    assert_eq!(rig.follow(id, 7), true);
    let events = rig.events(7);
    let Some(Event::Finished(finished)) = events.last() else { panic!("{events:?}") };
    assert!((1..=300).contains(&finished.usage.completion_tokens), "{finished:?}");
    assert!(!text(&events).is_empty());

    let thread = rig.ok("conversation_get", json!({ "id": id }));
    let thread: rmlx_engine::api::Thread = serde_json::from_value(thread).unwrap();
    assert!(!thread.running);
    let roles: Vec<_> = thread.messages.iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant]);
    assert_eq!(thread.messages[1].content, text(&events));
    // Nothing is running any more.
    assert_eq!(rig.follow(id, 8), false);
    assert_eq!(rig.ok("chat_stop", json!({ "conversation": id })), false);
    assert_eq!(rig.code("conversation_get", json!({ "id": id + 1 })), "not_found");
}

#[test]
fn a_running_answer_is_stopped() {
    let rig = Rig::new();
    rig.ok("settings_set", json!({ "patch": { "chat": { "temperature": 0.0 } } }));
    let thread = rig.ask(None, json!({ "type": "new", "text": "Go on and on." }));
    let id = thread["conversation"]["id"].as_i64().unwrap();
    let window = rig.window.clone();
    let following = thread::spawn(move || follow(&window, id, 1));
    let begun = Instant::now();
    while !lock(&rig.messages).get(&1).is_some_and(|messages| messages.iter().any(|json| json.contains("delta"))) {
        assert!(begun.elapsed() < PATIENCE, "no text came");
        thread::yield_now();
    }
    assert_eq!(rig.ok("chat_stop", json!({ "conversation": id })), true);
    assert_eq!(following.join().unwrap(), true);
    let thread = rig.ok("conversation_get", json!({ "id": id }));
    assert_eq!(thread["messages"][1]["answer"]["state"], "stopped");
    assert_eq!(thread["messages"][1]["content"], text(&rig.events(1)));
}

#[test]
fn conversations_are_found_renamed_deleted_and_brought_back() {
    let rig = Rig::answering();
    let heard = rig.hear("conversations");
    let whale = rig.chat("What is a whale?", 1);
    rig.chat("What is a tulip?", 2);
    assert_eq!(rig.titles(None).len(), 2);
    assert_eq!(rig.titles(Some("whale")).len(), 1);

    while heard.try_recv().is_ok() {}
    rig.ok("conversation_rename", json!({ "id": whale, "title": "Big animals" }));
    heard.recv_timeout(PATIENCE).unwrap();
    assert_eq!(rig.titles(Some("animals")), ["Big animals"]);

    rig.ok("conversation_delete", json!({ "id": whale }));
    assert_eq!(rig.titles(None).len(), 1);
    assert_eq!(rig.code("conversation_get", json!({ "id": whale })), "not_found");
    rig.ok("conversation_restore", json!({ "id": whale }));
    assert_eq!(rig.titles(Some("animals")), ["Big animals"]);
    assert_eq!(rig.code("conversation_rename", json!({ "id": 999, "title": "x" })), "not_found");
}

#[test]
fn versions_of_a_message_are_chosen_between() {
    let rig = Rig::answering();
    let id = rig.chat("What is a whale?", 1);
    let thread = rig.ok("conversation_get", json!({ "id": id }));
    let first = thread["messages"][0]["id"].as_i64().unwrap();
    rig.ask(Some(id), json!({ "type": "edit", "message": first, "text": "What is a tulip?" }));
    rig.follow(id, 2);
    let edited = rig.ok("conversation_get", json!({ "id": id }));
    assert_eq!(edited["messages"][0]["content"], "What is a tulip?");
    let back = rig.ok("conversation_select", json!({ "conversation": id, "message": first }));
    assert_eq!(back["messages"][0]["content"], "What is a whale?");
    assert_eq!(back["messages"][0]["versions"].as_array().unwrap().len(), 2);
    assert_eq!(rig.code("conversation_select", json!({ "conversation": id, "message": 999 })), "not_found");
}

#[test]
fn settings_change_and_bad_ones_are_refused() {
    let rig = Rig::new();
    let heard = rig.hear("settings");
    let before = rig.ok("settings_get", json!({}));
    let after = rig.ok("settings_set", json!({ "patch": { "theme": "dark" } }));
    assert_eq!(after["theme"], "dark");
    assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), after);
    for wrong in [
        json!({ "nonsense": 1 }),
        json!({ "theme": "purple" }),
        json!([]),
        json!({ "theme": "light", "shortcut": "Ctrl+Nonsense" }),
        json!({ "shortcut": "A" }),
    ] {
        assert_eq!(rig.code("settings_set", json!({ "patch": wrong })), "invalid_request", "{wrong}");
    }
    assert_eq!(rig.ok("settings_get", json!({})), after);
    rig.ok("settings_set", json!({ "patch": { "theme": null, "shortcut": "" } }));
    let last = rig.ok("settings_get", json!({}));
    assert_eq!((&last["theme"], &last["shortcut"]), (&before["theme"], &json!("")));
}

#[test]
fn a_model_is_loaded_with_its_stages_and_the_activity_is_told() {
    let rig = Rig::new();
    let heard = rig.hear("activity");
    assert_eq!(rig.ok("activity_get", json!({}))["model"], Value::Null);
    rig.ok("model_load", json!({ "model": tiny(), "onEvents": "__CHANNEL__:3" }));
    assert!(matches!(rig.events(3).as_slice(), [.., Event::Loaded]), "{:?}", rig.events(3));
    let begun = Instant::now();
    while heard.recv_timeout(PATIENCE).unwrap()["model"] == Value::Null {
        assert!(begun.elapsed() < PATIENCE);
    }
    assert!(rig.ok("activity_get", json!({}))["model"].as_str().unwrap().ends_with("qwen3"));
    let unknown = json!({ "model": "no-such-model", "onEvents": "__CHANNEL__:4" });
    assert_eq!(rig.code("model_load", unknown), "model_not_found");
    let here = engine(&rig).models().unwrap().list().unwrap();
    assert_eq!(rig.ok("models_list", json!({})), serde_json::to_value(here).unwrap());
}

#[test]
fn a_model_is_unloaded() {
    let rig = Rig::new();
    rig.ok("model_unload", json!({}));
    rig.ok("model_load", json!({ "model": tiny(), "onEvents": "__CHANNEL__:1" }));
    rig.ok("model_unload", json!({}));
    let begun = Instant::now();
    while rig.ok("activity_get", json!({}))["model"] != Value::Null {
        assert!(begun.elapsed() < PATIENCE, "it is still there");
        thread::yield_now();
    }
    // It comes back.
    rig.ok("model_load", json!({ "model": tiny(), "onEvents": "__CHANNEL__:2" }));
}

#[test]
fn a_models_files_are_checked() {
    let rig = Rig::new();
    // As in a cache, where a file is called by its hash.
    let repository = rig.home.path().join("models--a--b");
    let (blobs, snapshot) = (repository.join("blobs"), repository.join("snapshots").join("0".repeat(40)));
    fs::create_dir_all(&blobs).unwrap();
    fs::create_dir_all(&snapshot).unwrap();
    let hello = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let other = hello.replace('2', "3");
    for (name, hash) in [("config.json", hello), ("model.safetensors", &other)] {
        fs::write(blobs.join(hash), "hello").unwrap();
        std::os::unix::fs::symlink(blobs.join(hash), snapshot.join(name)).unwrap();
    }
    let checks = rig.ok("model_verify", json!({ "model": snapshot, "onEvents": "__CHANNEL__:5" }));
    let state = |name: &str| {
        let file = checks.as_array().unwrap().iter().find(|file| file["name"] == name);
        file.unwrap_or_else(|| panic!("{name}: {checks}"))["state"].clone()
    };
    assert_eq!((state("config.json"), state("model.safetensors")), (json!("right"), json!("wrong")));
    let last: Value = serde_json::from_str(lock(&rig.messages)[&5].last().unwrap()).unwrap();
    assert_eq!(last, json!({ "done": 10, "total": 10 }));
    // Where none is going on.
    rig.ok("model_verify_stop", json!({}));
    assert_eq!(rig.code("model_verify", json!({ "model": "no-such-model", "onEvents": "__CHANNEL__:6" })), "model_not_found");
    assert_eq!(rig.code("model_remove", json!({ "model": "no-such-model" })), "model_not_found");
}

/// Nothing here reaches for the network.
#[test]
fn what_is_no_repository_is_refused_and_suggestions_are_there() {
    let rig = Rig::new();
    for wrong in ["", "../x", "a/b/c", "a b/c"] {
        assert_eq!(rig.code("pull_plan", json!({ "model": wrong })), "invalid_request", "{wrong}");
        assert_eq!(rig.code("pull_start", json!({ "model": wrong, "options": {} })), "invalid_request", "{wrong}");
        assert_eq!(rig.code("pull_pause", json!({ "model": wrong })), "invalid_request", "{wrong}");
        assert_eq!(rig.code("pull_cancel", json!({ "model": wrong })), "invalid_request", "{wrong}");
    }
    assert!(rig.call("pull_start", json!({ "model": "a/b", "options": { "nonsense": true } })).is_err());
    let suggestions = rig.ok("catalogue_list", json!({}));
    assert!(suggestions.as_array().is_some_and(|all| !all.is_empty()), "{suggestions}");
}

#[test]
fn downloads_are_told_and_too_many_are_asked_for() {
    let rig = Rig::new();
    let heard = rig.hear("pulls");
    let pull = |n: usize, phase| rmlx_engine::api::Pull {
        repo: format!("example/model-{n}"),
        revision: "main".into(),
        commit: None,
        phase,
        done: 1,
        total: Some(2),
        verified: 0,
        rate: 3,
        seconds_left: Some(4),
        error: None,
        elsewhere: false,
    };
    let tell = |pulls: &[rmlx_engine::api::Pull]| {
        on_pulls(rig.app.handle(), pulls);
        let told = |value: &Value| value.is_null() || value.as_array().is_some_and(|all| all.len() == pulls.len());
        let begun = Instant::now();
        loop {
            // The engine's own downloads, of which there are none, are told as well.
            let value = heard.recv_timeout(PATIENCE).unwrap();
            if told(&value) {
                return value;
            }
            assert!(begun.elapsed() < PATIENCE);
        }
    };
    let state = crate::app::state(rig.app.handle());
    let one = [pull(1, PullPhase::Fetching)];
    assert_eq!(tell(&one), serde_json::to_value(&one).unwrap());
    // The app does not end in the middle of a download.
    assert!(state.in_use());
    assert_eq!(tell(&[pull(1, PullPhase::Paused)])[0]["phase"], "paused");
    assert!(!state.in_use());
    let many: Vec<_> = (0..100).map(|n| pull(n, PullPhase::Paused)).collect();
    assert_eq!(tell(&many), Value::Null);
}

fn engine(rig: &Rig) -> Engine {
    crate::app::state(rig.app.handle()).engine().unwrap()
}

#[test]
fn the_endpoint_is_switched_and_remembered() {
    let rig = Rig::new();
    let heard = rig.hear("endpoint");
    assert_eq!(rig.ok("endpoint_get", json!({})), json!({ "state": "off" }));
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let on = rig.ok("endpoint_set", json!({ "on": true, "port": port }));
    assert_eq!(on, json!({ "state": "on", "url": format!("http://127.0.0.1:{port}") }));
    assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), on);
    assert!(health(port).starts_with("HTTP/1.1 200"));
    assert_eq!(rig.ok("settings_get", json!({}))["endpoint"], json!({ "enabled": true, "port": port }));

    // Another port moves it, by whichever command.
    let other = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    rig.ok("settings_set", json!({ "patch": { "endpoint": { "port": other } } }));
    assert!(health(other).starts_with("HTTP/1.1 200"));
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());

    assert_eq!(rig.ok("endpoint_set", json!({ "on": false })), json!({ "state": "off" }));
    assert!(TcpStream::connect(("127.0.0.1", other)).is_err());
    assert_eq!(rig.ok("settings_get", json!({}))["endpoint"], json!({ "enabled": false, "port": other }));

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let failed = rig.ok("endpoint_set", json!({ "on": true, "port": taken.local_addr().unwrap().port() }));
    assert_eq!((&failed["state"], &failed["error"]["code"]), (&json!("failed"), &json!("port_taken")));
    assert!(failed["next_port"].is_u64(), "{failed}");
    assert_eq!(rig.ok("endpoint_get", json!({})), failed);
    // Once the port is free the same switch works.
    drop(taken);
    assert_eq!(rig.ok("endpoint_set", json!({ "on": true }))["state"], "on");
    rig.ok("endpoint_set", json!({ "on": false }));
    assert_eq!(rig.code("endpoint_set", json!({ "on": true, "port": 0 })), "invalid_request");
}

fn health(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "GET /health HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_page_knows_where_it_is_and_keeps_a_bounded_state() {
    let rig = Rig::new();
    let info = rig.ok("app_info", json!({}));
    assert_eq!(info["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(info["platform"], std::env::consts::OS);
    assert_eq!((&info["tray"], &info["shortcut_problem"]), (&json!(false), &Value::Null));
    assert_eq!(info["demo"], rmlx_engine::engine::STARTER);
    assert!(info["memory"].as_u64().is_some_and(|bytes| bytes > 1 << 28), "{info}");

    assert_eq!(rig.ok("page_state_get", json!({})), "");
    rig.ok("page_state_set", json!({ "state": "x".repeat(64 << 10) }));
    assert_eq!(rig.code("page_state_set", json!({ "state": "y".repeat((64 << 10) + 1) })), "invalid_request");
    assert_eq!(rig.ok("page_state_get", json!({})).as_str().unwrap().len(), 64 << 10);
}

#[test]
fn links_that_are_not_for_a_browser_are_refused() {
    let rig = Rig::new();
    for url in ["file:///etc/passwd", "javascript:alert(1)", "/bin/sh", "tauri://localhost"] {
        assert_eq!(rig.code("link_open", json!({ "url": url })), "invalid_request", "{url}");
    }
}

#[test]
fn nothing_else_can_be_called_nor_by_another_window() {
    let rig = Rig::new();
    for command in
        ["plugin:event|emit", "plugin:window|close", "plugin:webview|create_webview_window", "plugin:path|resolve", "no"]
    {
        let error = rig.call(command, json!({ "event": "x", "label": MAIN })).expect_err(command);
        assert!(error.as_str().unwrap().contains("not allowed"), "{command}: {error}");
    }
    let other = WebviewWindowBuilder::new(&rig.app, "other", WebviewUrl::default()).build().unwrap();
    assert!(call(&other, "settings_get", json!({})).is_err());
    // The control: the same call from the main window.
    assert!(call(&rig.window, "settings_get", json!({})).is_ok());
    // Arguments of a wrong kind end the call, not the app.
    assert!(rig.call("conversation_get", json!({ "id": "x" })).is_err());
    assert!(rig.call("chat_send", json!({ "turn": {} })).is_err());
}

#[test]
fn a_panic_ends_one_call() {
    let error = tauri::async_runtime::block_on(blocking(|| -> Result<()> { panic!("on purpose") })).unwrap_err();
    assert_eq!(error.code, "internal");
    assert!(Rig::new().home.path().exists());
}

/// What stands between quotes after one of `before`.
fn quoted<'a>(text: &'a str, before: &[&str]) -> BTreeSet<&'a str> {
    let after = |mark: &&str| text.match_indices(*mark).map(|(at, mark)| &text[at + mark.len()..]).collect::<Vec<_>>();
    before.iter().flat_map(after).filter_map(|rest| rest.split('"').next()).collect()
}

#[test]
fn the_page_calls_exactly_these_commands() {
    let page = fs::read_to_string(format!("{ROOT}/ui/src/ipc.ts")).unwrap();
    let called = quoted(&page, &["call(\"", "streaming(\""]);
    assert_eq!(called, NAMES.iter().copied().collect());
}

#[test]
fn the_page_may_call_exactly_these_commands() {
    let file = fs::read_to_string(format!("{ROOT}/src-tauri/capabilities/main.json")).unwrap();
    let capability: Value = serde_json::from_str(&file).unwrap();
    let granted: BTreeSet<_> =
        capability["permissions"].as_array().unwrap().iter().map(|p| p.as_str().unwrap().to_owned()).collect();
    let events =
        ["core:event:allow-listen", "core:event:allow-unlisten", "core:webview:allow-set-webview-zoom"].map(str::to_owned);
    let commands = NAMES.iter().map(|name| format!("allow-{}", name.replace('_', "-")));
    assert_eq!(granted, commands.chain(events).collect());
    assert_eq!(capability["windows"], json!([MAIN]));
    assert_eq!(capability.get("remote"), None);
    let files = fs::read_dir(format!("{ROOT}/src-tauri/capabilities")).unwrap().count();
    assert_eq!(files, 1, "one window, one file");
}
