//! `rmlx serve` as a process.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::{Frame, Stream, body, chat, get, only};
use crate::common::{Rmlx, end, signal, wait_for};

struct Process {
    child: Option<Child>,
    at: SocketAddr,
    _out: BufReader<ChildStdout>,
}

impl Process {
    fn start(rmlx: &Rmlx, args: &[&str]) -> Self {
        let args = [&["serve", "--device", "cpu", "--port", "0"], args].concat();
        let mut child = command(rmlx, &args).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut first = String::new();
        out.read_line(&mut first).unwrap();
        let at = first.trim().rsplit_once("http://").unwrap_or_else(|| panic!("{first:?}")).1.parse().unwrap();
        Self { child: Some(child), at, _out: out }
    }

    fn pid(&self) -> String {
        self.child.as_ref().unwrap().id().to_string()
    }

    fn end(mut self) -> Option<i32> {
        end(self.child.take().unwrap()).code
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// With a claim of the test's own.
fn command(rmlx: &Rmlx, args: &[&str]) -> std::process::Command {
    let mut command = rmlx.command(args);
    command.env("RMLX_CLAIM", rmlx.folder.path().join("claim"));
    command
}

#[test]
fn it_answers_and_ends_well() {
    let rmlx = Rmlx::new();
    let server = Process::start(&rmlx, &["--model", &rmlx.model()]);
    let model = rmlx.model();
    wait_for("the model", || get(server.at, "/health").ok()["model"] == json!(model));
    let listed = get(server.at, "/v1/models").ok();
    let ids: Vec<&str> = listed["data"].as_array().unwrap().iter().map(|m| m["id"].as_str().unwrap()).collect();
    assert_eq!(ids, [model.as_str()]);
    assert_eq!(chat(server.at, &body(&model, json!({ "logit_bias": only('h'), "max_tokens": 3 }))).text(), "hhh");
    // In flight when the end is asked for.
    let secret = json!([{ "role": "user", "content": "a secret" }]);
    let mut answer = body(&model, json!({ "logit_bias": only('h'), "max_tokens": 300, "messages": secret }));
    answer["stream"] = true.into();
    let mut stream = Stream::open(server.at, &answer);
    stream.tokens(1);
    signal(&server.pid(), "TERM");
    assert!(stream.any(|frame| frame == Frame::Done));
    assert_eq!(server.end(), Some(0));
    let logs: String = std::fs::read_dir(rmlx.home().join("logs"))
        .unwrap()
        .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap())
        .collect();
    assert!(logs.contains("/v1/chat/completions") && logs.contains("\"status\":200"), "requests are logged: {logs}");
    assert!(!logs.contains("a secret") && !logs.contains("hhh"), "what they say is not: {logs}");
}

/// Also as soon as it can be reached, and while it loads.
#[test]
fn it_ends_well_from_the_start() {
    let rmlx = Rmlx::new();
    for args in [&[][..], &["--model", &rmlx.model()]] {
        let server = Process::start(&rmlx, args);
        signal(&server.pid(), "TERM");
        assert_eq!(server.end(), Some(0));
    }
}

#[test]
fn the_second_signal_ends_it_at_once() {
    let rmlx = Rmlx::new();
    let server = Process::start(&rmlx, &[]);
    let model = rmlx.model();
    // A path that nobody offered.
    assert_eq!(chat(server.at, &body(&model, json!({}))).error().0, 404);
    let id = rmlx.home().join("models/own");
    std::fs::create_dir_all(id.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(&model, id).unwrap();
    let mut answer = body("own", json!({ "logit_bias": { "130": -100, "128": -100 }, "max_tokens": 30_000 }));
    answer["stream"] = true.into();
    let mut stream = Stream::open(server.at, &answer);
    stream.tokens(1);
    let began = Instant::now();
    signal(&server.pid(), "INT");
    wait_for("the port to close", || std::net::TcpStream::connect(server.at).is_err());
    signal(&server.pid(), "INT");
    assert_eq!(server.end(), Some(130));
    assert!(began.elapsed() < Duration::from_secs(9), "it waited for the answer");
}

#[test]
fn one_engine_and_one_owner_of_a_port() {
    let rmlx = Rmlx::new();
    let server = Process::start(&rmlx, &[]);
    let second = end(command(&rmlx, &["serve", "--device", "cpu", "--port", "0"]).spawn().unwrap());
    assert_eq!(second.code, Some(11), "{second:?}");
    assert!(second.stderr.contains(&server.pid()) && second.stderr.contains("hint:"), "{second:?}");
    // Another claim, the same port, which the settings name.
    let port = server.at.port().to_string();
    std::fs::write(rmlx.home().join("settings.toml"), format!("[endpoint]\nport = {port}\n")).unwrap();
    let mut other = command(&rmlx, &["serve", "--device", "cpu"]);
    let refused = end(other.env("RMLX_CLAIM", rmlx.folder.path().join("other")).spawn().unwrap());
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains(&format!("rmlx (process {})", server.pid())), "{refused:?}");
    assert!(refused.stderr.contains("is free"), "{refused:?}");
    let unknown =
        end(command(&rmlx, &["serve", "--model", "nothing"]).env("RMLX_CLAIM", rmlx.folder.path().join("3")).spawn().unwrap());
    assert!(unknown.code == Some(1) && unknown.stderr.contains("nothing"), "{unknown:?}");
}
