//! One engine, several processes: hosts and clients are real processes, and the socket between them is the real one.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::{Ended, Rmlx, end, signal, wait_for};
use rmlx_engine::api::{Activity, Device, Options};
use rmlx_engine::claim::{Claim, Holder};
use rmlx_engine::engine::Engine;
use serde_json::{Value, json};

/// Not a test: an engine that does what standard input says, and tells what it does.
#[test]
#[ignore = "the process with the engine, for the tests below"]
fn host() {
    if std::env::var_os("RMLX_TEST_HOST").is_none() {
        return;
    }
    let engine = Engine::start(Options { device: Device::Cpu, ..Options::default() }).unwrap();
    engine.watch(|activity| println!("activity {}", serde_json::to_string(activity).unwrap()));
    for line in std::io::stdin().lines() {
        match line.unwrap().as_str() {
            "share" => println!("shared {}", engine.share().map_or_else(|e| e.code(), |()| "ok")),
            other => panic!("{other}"),
        }
    }
}

struct Host {
    child: Child,
    stdin: Option<ChildStdin>,
    told: Arc<Mutex<Vec<String>>>,
}

impl Host {
    fn start(command: &mut Command) -> Self {
        command.args(["--exact", "host", "--ignored", "--nocapture"]).env("RMLX_TEST_HOST", "1");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let list = told.clone();
        thread::spawn(move || stdout.lines().map_while(Result::ok).for_each(|line| list.lock().unwrap().push(line)));
        Self { child, stdin, told }
    }

    /// Says how it went.
    fn share(&mut self) -> String {
        let before = self.of("shared ").len();
        writeln!(self.stdin.as_mut().unwrap(), "share").unwrap();
        wait_for("the host to share", || self.of("shared ").len() > before);
        self.of("shared ").pop().unwrap()
    }

    fn of(&self, what: &str) -> Vec<String> {
        // The first line of a test has its name before it.
        let told = self.told.lock().unwrap();
        told.iter().filter_map(|line| line.split_once(what).map(|(_, rest)| rest.to_owned())).collect()
    }

    fn activities(&self) -> Vec<Activity> {
        self.of("activity ").iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn running(&self) -> usize {
        self.activities().last().map_or(0, |a| a.running)
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// Ends it as it ends by itself, and says how long that took.
    fn quit(mut self) -> Duration {
        let began = Instant::now();
        drop(self.stdin.take());
        wait_for("the host's end", || self.child.try_wait().unwrap().is_some());
        began.elapsed()
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn sharing(rmlx: &Rmlx) -> Host {
    let mut host = Host::start(&mut rmlx.apart(std::env::current_exe().unwrap()));
    assert_eq!(host.share(), "ok");
    host
}

fn holder(rmlx: &Rmlx) -> Option<Holder> {
    Claim::holder_at(&rmlx.claim()).unwrap()
}

fn socket(rmlx: &Rmlx) -> PathBuf {
    holder(rmlx).and_then(|h| h.socket).expect("a socket")
}

const RUN: [&str; 9] = ["run", "MODEL", "hi", "--json", "--max-tokens", "12", "--seed", "7", "--ignore-eos"];

fn ids(ended: &Ended) -> Value {
    ended.json()["token_ids"].clone()
}

/// Computed by the process itself: a control.
#[track_caller]
fn alone(rmlx: &Rmlx) -> Value {
    let ended = rmlx.run(&[&RUN[..], &["--device", "cpu"]].concat()).ok();
    assert_eq!(ended.stderr, "");
    ids(&ended)
}

#[track_caller]
fn attached(ended: &Ended, host: &Host) {
    let notice = format!("(process {})", host.pid());
    assert!(ended.stderr.matches(&notice).count() == 1 && ended.stderr.contains("--no-attach"), "{ended:#?}");
}

/// A run without end that has begun to answer.
fn endless(rmlx: &Rmlx) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = rmlx.command(&["run", "MODEL", "hi", "--ignore-eos"]).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_exact(&mut [0; 1]).unwrap();
    (child, stdout)
}

#[test]
fn the_same_answer_from_the_other_process_which_loads_once() {
    let rmlx = Rmlx::new();
    let expected = alone(&rmlx);
    let host = sharing(&rmlx);
    for extra in [&[][..], &["--logprobs", "2"], &["--device", "auto"]] {
        let ended = rmlx.run(&[&RUN[..], extra].concat()).ok();
        attached(&ended, &host);
        assert_eq!(ids(&ended), expected);
        let report = ended.json();
        assert_eq!((&report["device"], &report["dtype"], &report["model"]), (&"cpu".into(), &"f32".into(), &rmlx.model().into()));
        assert_eq!(report["logprobs"].as_array().map_or(0, Vec::len), if extra.contains(&"--logprobs") { 12 } else { 0 });
    }
    // Names mean what they mean where they are given.
    let folder = rmlx.folder.path();
    for (model, current) in [("./tiny", folder.to_owned()), ("../tiny", folder.join("tiny"))] {
        let mut command = rmlx.command(&RUN.map(|arg| if arg == "MODEL" { model } else { arg }));
        let ended = end(command.current_dir(current).spawn().unwrap()).ok();
        attached(&ended, &host);
        assert_eq!((ids(&ended), ended.json()["model"].as_str()), (expected.clone(), Some(model)));
    }
    let elsewhere = folder.join("elsewhere/models/mine");
    common::tiny_model(&elsewhere);
    let mut command = rmlx.command(&RUN.map(|arg| if arg == "MODEL" { "mine" } else { arg }));
    let ended = end(command.env("RMLX_HOME", folder.join("elsewhere")).spawn().unwrap()).ok();
    attached(&ended, &host);

    // Where the engine is, nothing is called so, and another model might be.
    let mine = elsewhere.canonicalize().unwrap().to_str().map(Into::into);
    wait_for("the last answer's end", || host.activities().last().is_some_and(|a| a.running == 0 && a.model == mine));
    let loads = host.activities().windows(2).filter(|w| w[0].loading.is_none() && w[1].loading.is_some()).count();
    assert_eq!(loads + usize::from(host.activities()[0].loading.is_some()), 2, "{:#?}", host.activities());
}

#[test]
fn errors_are_what_they_are_here() {
    let rmlx = Rmlx::new();
    let long = rmlx.folder.path().join("long.json");
    fs::write(&long, json!(vec![5; 40_000]).to_string()).unwrap();
    let home = rmlx.home();
    let calls = [
        &["run", "no-such-model", "hi"][..],
        &["run", "MODEL", "--prompt-ids", long.to_str().unwrap()],
        &["run", "MODEL", "hi", "--logit-bias", "9999=1"],
        &["run", home.to_str().unwrap(), "hi"],
    ];
    fs::create_dir_all(&home).unwrap();
    let here = calls.map(|call| rmlx.run(call));
    let host = sharing(&rmlx);
    for (call, here) in calls.iter().zip(here) {
        let there = rmlx.run(call);
        attached(&there, &host);
        let said = there.stderr.split_once('\n').unwrap().1;
        assert_eq!((there.code, said), (Some(1), here.stderr.as_str()), "{call:?}");
        assert!(here.stderr.starts_with("error: "), "{here:#?}");
    }
    assert_eq!(host.running(), 0);
}

#[test]
fn flags_decide_who_answers() {
    let rmlx = Rmlx::new();
    // Nobody to attach to: no difference.
    rmlx.run(&[&RUN[..], &["--no-attach"]].concat()).ok();
    let host = sharing(&rmlx);
    let refused = rmlx.run(&[&RUN[..], &["--no-attach"]].concat());
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(11), ""), "{refused:#?}");
    assert!(refused.stderr.contains(&host.pid()) && refused.stderr.contains("hint: "), "{refused:#?}");
    assert_eq!(rmlx.run_with(&["chat", "MODEL", "--no-attach"], "hi\n").code, Some(11));
    // The host computes on the CPU here, whatever this machine has.
    for flags in [["--max-ctx", "64"], ["--dtype", "f16"], ["--threads", "1"], ["--device", "gpu"]] {
        let ended = rmlx.run(&[&RUN[..], &flags].concat());
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{ended:#?}");
        assert!(ended.stderr.contains(flags[0]) && ended.stderr.contains("--no-attach"), "{ended:#?}");
    }
    let checks = rmlx.run(&["doctor", "--json"]).json();
    let claim = checks.as_array().unwrap().iter().find(|check| check["name"] == "claim").unwrap();
    assert!(claim["state"] == "ok" && claim["detail"].as_str().unwrap().contains(&host.pid()), "{checks:#}");
    alone(&rmlx);
    rmlx.run(&[&RUN[..], &["--device", "cpu", "--no-attach", "--max-ctx", "64"]].concat()).ok();
    assert!(host.activities().is_empty(), "none of these went there: {:#?}", host.activities());
}

#[test]
fn a_killed_client_frees_its_slot() {
    let rmlx = Rmlx::new();
    let host = sharing(&rmlx);
    let (mut child, _stdout) = endless(&rmlx);
    wait_for("the answer to begin", || host.running() == 1);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for("the slot", || host.running() == 0);
    assert_eq!(host.activities().last().unwrap().error, None, "stopping is no fault");
    assert_eq!(ids(&rmlx.run(&RUN).ok()), alone(&rmlx));
}

#[test]
fn an_interrupt_ends_the_client_and_its_answer() {
    let rmlx = Rmlx::new();
    let host = sharing(&rmlx);
    let (child, _stdout) = endless(&rmlx);
    signal(&child.id().to_string(), "INT");
    assert_eq!(end(child).code, Some(130));
    wait_for("the slot", || host.running() == 0);
}

#[test]
fn two_at_once() {
    let rmlx = Rmlx::new();
    let host = sharing(&rmlx);
    let (first, _out) = endless(&rmlx);
    assert_eq!(ids(&rmlx.run(&RUN).ok()), alone(&rmlx));
    wait_for("both to have run at once", || host.activities().iter().any(|a| a.running == 2));
    signal(&first.id().to_string(), "KILL");
    end(first);
}

#[test]
fn chat_keeps_its_history_and_stops_at_an_interrupt() {
    let rmlx = Rmlx::new();
    let host = sharing(&rmlx);
    let file = rmlx.folder.path().join("talk.json");
    let chat = ["chat", "MODEL", "--temperature", "0", "--max-tokens", "6", "--logit-bias", "130=-1e9"];
    let talk = |extra: &[&str], file: &PathBuf| {
        let input = format!("one\ntwo\n/save {}\n", file.display());
        let ended = rmlx.run_with(&[&chat[..], extra].concat(), &input).ok();
        (ended, serde_json::from_str::<Value>(&fs::read_to_string(file).unwrap()).unwrap())
    };
    let (ended, there) = talk(&[], &file);
    attached(&ended, &host);
    let (_, here) = talk(&["--device", "cpu"], &rmlx.folder.path().join("here.json"));
    assert_eq!(there, here);
    assert_eq!(there["messages"].as_array().unwrap().len(), 4);

    let mut child = rmlx.command(&["chat", "MODEL", "--logit-bias", "130=-1e9"]).stdin(Stdio::piped()).spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    stdin.write_all(b"talk without end\n").unwrap();
    stdout.read_exact(&mut [0; 1]).unwrap();
    signal(&child.id().to_string(), "INT");
    wait_for("the slot", || host.running() == 0);
    fs::remove_file(&file).unwrap();
    stdin.write_all(format!("/save {}\n", file.display()).as_bytes()).unwrap();
    drop(stdin);
    let _ = stdout.read_to_end(&mut Vec::new());
    end(child).ok();
    assert!(fs::read_to_string(&file).unwrap().contains("talk without end"));
}

#[test]
fn a_host_that_ends_tells_its_clients() {
    let rmlx = Rmlx::new();
    let host = sharing(&rmlx);
    let (child, _stdout) = endless(&rmlx);
    let path = socket(&rmlx);
    host.quit();
    let ended = end(child);
    assert!(ended.code == Some(1) && ended.stderr.contains("error: cancelled"), "{ended:#?}");
    assert!(!path.exists() && holder(&rmlx).is_none());
}

#[test]
fn after_a_killed_host_everybody_goes_on() {
    let rmlx = Rmlx::new();
    let host = sharing(&rmlx);
    let (child, _stdout) = endless(&rmlx);
    let path = socket(&rmlx);
    host.kill();
    let ended = end(child);
    assert!(ended.code == Some(1) && ended.stderr.contains("has ended"), "{ended:#?}");
    assert!(path.exists(), "a killed process clears nothing away");
    assert_eq!(rmlx.run(&RUN).ok().stderr, "");
    let next = sharing(&rmlx);
    assert!(!path.exists(), "the next one does");
    attached(&rmlx.run(&RUN).ok(), &next);
}

#[test]
fn one_host_at_a_time() {
    let rmlx = Rmlx::new();
    let first = sharing(&rmlx);
    let mut second = Host::start(&mut rmlx.apart(std::env::current_exe().unwrap()));
    assert_eq!(second.share(), "claim_held");
    assert_eq!(fs::read_dir(socket(&rmlx).parent().unwrap()).unwrap().count(), 1, "it left nothing behind");
    attached(&rmlx.run(&RUN).ok(), &first);
    first.quit();
    assert_eq!((second.share(), second.share()), ("ok".into(), "ok".into()));
    attached(&rmlx.run(&RUN).ok(), &second);
}

#[test]
fn a_socket_that_others_can_reach_is_not_used() {
    let rmlx = Rmlx::new();
    let host = sharing(&rmlx);
    let path = socket(&rmlx);
    let folder = path.parent().unwrap().to_owned();
    let mode = |path: &PathBuf| path.symlink_metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(&folder)), (0o600, 0o700));
    for (what, opened, closed) in [(&path, 0o666, 0o600), (&folder, 0o755, 0o700)] {
        fs::set_permissions(what, fs::Permissions::from_mode(opened)).unwrap();
        let ended = rmlx.run(&RUN).ok();
        assert!(ended.stderr.contains("warning: ") && ended.stderr.contains("open to other users"), "{ended:#?}");
        assert_eq!(rmlx.run(&[&RUN[..], &["--no-attach"]].concat()).code, Some(11));
        fs::set_permissions(what, fs::Permissions::from_mode(closed)).unwrap();
    }
    assert!(host.activities().is_empty());
    attached(&rmlx.run(&RUN).ok(), &host);
}

/// The claim's file is everybody's: what stands in it may be wrong in every way.
#[test]
fn what_the_claim_names_is_not_trusted() {
    let rmlx = Rmlx::new();
    std::os::unix::fs::symlink("/etc/passwd", rmlx.claim()).unwrap();
    let alone = alone(&rmlx);
    let trapped = rmlx.run(&RUN).ok();
    assert!(ids(&trapped) == alone && trapped.stderr.contains("symbolic link"), "{trapped:#?}");
    fs::remove_file(rmlx.claim()).unwrap();
    let claim = Claim::take_at(&rmlx.claim()).unwrap();
    let quiet = rmlx.run(&RUN).ok();
    assert_eq!((ids(&quiet), quiet.stderr.as_str()), (alone.clone(), ""), "a holder that offers nothing");
    let gpu = rmlx.run(&[&RUN[..], &["--device", "gpu"]].concat());
    assert!(gpu.code == Some(11) && gpu.stderr.contains(&std::process::id().to_string()), "{gpu:#?}");

    let folder = rmlx.folder.path().join("private");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    let path = folder.join("1.sock");
    let refused = |why: &str| {
        let ended = rmlx.run(&RUN).ok();
        assert_eq!(ids(&ended), alone);
        assert!(ended.stderr.contains("warning: ") && ended.stderr.contains(why), "{why}: {ended:#?}");
    };
    claim.announce(Some(&path)).unwrap();
    refused("No such file");
    fs::write(&path, "").unwrap();
    refused("not a socket");
    fs::remove_file(&path).unwrap();
    let listener = UnixListener::bind(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    for (says, why) in [
        (&b"{\"version\":2,\"reply\":{\"kind\":\"hello\",\"pid\":1}}\n"[..], "version 2"),
        (b"SSH-2.0-OpenSSH\n", "expected value"),
        (b"{\"version\":1,\"reply\":{\"kind\":\"accepted\"}}\n", "not asked for"),
        (b"", "has ended"),
    ] {
        let listener = listener.try_clone().unwrap();
        // Who hangs up may have ended just now, so it is looked again.
        let looks = if says.is_empty() { 3 } else { 1 };
        let speaker = thread::spawn(move || {
            for _ in 0..looks {
                let (mut stream, _) = listener.accept().unwrap();
                BufReader::new(stream.try_clone().unwrap()).read_line(&mut String::new()).unwrap();
                stream.write_all(says).unwrap();
            }
        });
        refused(why);
        speaker.join().unwrap();
    }
}

fn say(path: &PathBuf, bytes: &[u8]) -> UnixStream {
    let mut stream = UnixStream::connect(path).unwrap();
    // A host that has had enough closes its end.
    let _ = stream.write_all(bytes);
    stream
}

fn reply(stream: UnixStream) -> Value {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"))
}

#[test]
fn nonsense_hurts_nobody() {
    let rmlx = Rmlx::new();
    let host = sharing(&rmlx);
    let path = socket(&rmlx);
    for (nonsense, complaint) in [
        (&b"hello\n"[..], "not a request"),
        (b"\n", "not a request"),
        (b"\xff\xfe\n", "not a request"),
        (b"{\"version\":1}\n", "missing field"),
        (b"{\"version\":1,\"ask\":{\"kind\":\"fly\"}}\n", "unknown variant"),
        (b"{\"version\":99,\"ask\":{\"kind\":\"fly\"}}\n", "version 1 of the protocol, and not 99"),
        (b"{\"version\":1,\"ask\":{\"kind\":\"load\",\"model\":{\"name\":\"x\",\"folder\":\"tiny\"}}}\n", "absolute"),
        (b"{\"version\":1,\"ask\":{\"kind\":\"load\",\"model\":{\"name\":\"x\",\"folder\":\"/no/such\"}}}\n", "/no/such"),
        (&[&b"["[..]].concat().repeat(100_000), "not arrive"),
    ] {
        if complaint == "not arrive" {
            // Half a line, and the end.
            drop(say(&path, nonsense));
            continue;
        }
        let said = reply(say(&path, nonsense));
        let message = said["reply"]["error"]["message"].as_str().unwrap_or_else(|| panic!("{said}"));
        assert!(message.contains(complaint) && said["version"] == 1, "{said}");
    }
    let deep = [vec![b'['; 100_000], b"\n".to_vec()].concat();
    assert_eq!(reply(say(&path, &deep))["reply"]["error"]["code"], "invalid_request");
    let mut long = say(&path, &vec![b'x'; (64 << 20) + 1]);
    let _ = long.write_all(&[b'x'; 1 << 16]);
    assert!(reply(long).to_string().contains("a line of more than 67108864 bytes"));

    attached(&rmlx.run(&RUN).ok(), &host);
    wait_for("the slot", || host.running() == 0);
}

fn generate(rmlx: &Rmlx, max_tokens: usize) -> Vec<u8> {
    let request = json!({
        "prompt": { "text": "hi" }, "max_tokens": max_tokens, "stop": [], "ignore_eos": true, "token_ids": true, "logprobs": 20,
        "sampling": { "temperature": 0.0, "logit_bias": [] },
    });
    let model = json!({ "name": "x", "folder": rmlx.model() });
    format!("{}\n", json!({ "version": 1, "ask": { "kind": "generate", "model": model, "request": request } })).into_bytes()
}

/// One that does not read holds up nobody else, and the host's end does not wait for it for long.
#[test]
fn a_peer_that_stops_reading() {
    let rmlx = Rmlx::new();
    let host = sharing(&rmlx);
    // About a megabyte of events, more than fits between two processes.
    let deaf = say(&socket(&rmlx), &generate(&rmlx, 1500));
    wait_for("its answer", || host.running() == 1);
    assert_eq!(ids(&rmlx.run(&RUN).ok()), alone(&rmlx));
    wait_for("the engine to be done with it", || host.running() == 0);
    let took = host.quit();
    assert!(Duration::from_millis(500) < took && took < Duration::from_secs(20), "{took:?}");
    drop(deaf);
}

#[test]
fn a_cancel_line_ends_the_answer_with_a_last_word() {
    let rmlx = Rmlx::new();
    let host = sharing(&rmlx);
    let mut stream = say(&socket(&rmlx), &generate(&rmlx, 30_000));
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("accepted"));
    stream.write_all(b"\"cancel\"\n").unwrap();
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(rest[rest.len() - 2].contains("\"cancelled\"") && rest[rest.len() - 1] == "\"end\"", "{:?}", rest.last());
    wait_for("the slot", || host.running() == 0);
}

#[test]
fn only_so_many_at_a_time() {
    let rmlx = Rmlx::new();
    let host = sharing(&rmlx);
    let path = socket(&rmlx);
    let idle: Vec<UnixStream> = (0..32).map(|_| UnixStream::connect(&path).unwrap()).collect();
    let ended = rmlx.run(&RUN).ok();
    assert!(ended.stderr.contains("32 requests"), "{ended:#?}");
    drop(idle);
    wait_for("room", || rmlx.run(&RUN).ok().stderr.contains(&format!("process {})", host.pid())));
}

#[test]
fn a_home_with_a_long_name_is_no_obstacle() {
    let rmlx = Rmlx::new();
    let long = rmlx.folder.path().join("long".repeat(40));
    let mut host = Host::start(rmlx.apart(std::env::current_exe().unwrap()).env("RMLX_HOME", &long));
    assert_eq!(host.share(), "ok");
    let path = socket(&rmlx);
    assert!(path.starts_with("/tmp") && path.symlink_metadata().unwrap().file_type().is_socket(), "{}", path.display());
    attached(&rmlx.run(&RUN).ok(), &host);
    host.quit();
    assert!(!path.parent().unwrap().exists());
}
