//! Processes that end without a last word: the test binary runs itself as one that fetches.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rmlx_engine::api::PullPhase;
use rmlx_engine::engine::{Models, Setup};
use rmlx_engine::hub::cache::Cache;
use rmlx_engine::hub::fetch::Tuning;
use rmlx_engine::hub::remote::Remote;

use crate::bench::{Bench, PART, REPO, done, fetch, find, repository, tuning, until};

/// What a child fetches, and where.
#[derive(Clone)]
pub struct Child {
    pub endpoint: String,
    pub folder: PathBuf,
    pub repo: String,
    pub part: u64,
    /// Bytes of a file system that is mounted over the folder, then made larger.
    pub small_disk: Option<u64>,
}

impl Child {
    pub fn of(bench: &Bench) -> Self {
        let folder = bench.folder.path().into();
        Self { endpoint: bench.hub.endpoint.clone(), folder, repo: REPO.into(), part: PART, small_disk: None }
    }

    pub fn command(&self) -> Command {
        let own = std::env::current_exe().unwrap();
        let mut command = match self.small_disk {
            None => Command::new(own),
            Some(size) => {
                let mount = format!("mount -t tmpfs -o size={size} tmpfs \"$FETCH_FOLDER\" && exec \"$0\" \"$@\"");
                let mut command = Command::new("unshare");
                command.args([namespace(), "sh", "-c", &mount]).arg(own);
                command
            }
        };
        command.args(["killed::child", "--exact", "--nocapture", "--test-threads=1"]);
        command.env("FETCH_ENDPOINT", &self.endpoint).env("FETCH_FOLDER", &self.folder).env("FETCH_REPO", &self.repo);
        command.env("FETCH_PART", self.part.to_string()).env("FETCH_SMALL", self.small_disk.unwrap_or(0).to_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }
}

/// Who is not root may mount in a namespace of its own.
pub fn namespace() -> &'static str {
    let root = std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0);
    if root { "-m" } else { "-Urm" }
}

/// Not a test unless it is told what to fetch: then it is the process that does it.
#[test]
fn child() {
    let Ok(endpoint) = std::env::var("FETCH_ENDPOINT") else { return };
    let var = |name: &str| std::env::var(name).unwrap();
    let folder = PathBuf::from(var("FETCH_FOLDER"));
    let part = var("FETCH_PART").parse().unwrap();
    let tuning = if part == PART { tuning() } else { Tuning { part, reserve: 0, ..Tuning::default() } };
    let models = Models::with(Setup {
        home: folder.join("home"),
        cache: Cache { root: folder.join("hub") },
        remote: Arc::new(move || Remote::at(&endpoint, None)),
        check: Arc::new(|_| Box::pin(async { Ok(()) })),
        tuning,
    });
    let repo = var("FETCH_REPO");
    let tell = || {
        let pull = fetch(&models, &repo);
        println!("\ntold: {:?} {}", pull.phase, pull.error.map_or_else(String::new, |e| format!("{} {:?}", e.code, e.message)));
    };
    if std::env::var_os("FETCH_UNTIL_WAITING").is_some() {
        models.pull(&repo, Default::default()).unwrap();
        let mut pull = None;
        until("it waits or ends", || {
            pull = find(&models, &repo).filter(|p| matches!(p.phase, PullPhase::Waiting | PullPhase::Failed | PullPhase::Done));
            pull.is_some()
        });
        let pull = pull.unwrap();
        println!("\ntold: {:?} {:?}", pull.phase, pull.error);
        return;
    }
    tell();
    if var("FETCH_SMALL") != "0" {
        let larger = Command::new("mount").args(["-o", "remount,size=8m"]).arg(&folder).status().unwrap();
        assert!(larger.success());
        tell();
    }
}

/// Ends a child when so many bytes of the file have gone out, and not kindly.
pub fn kill_after(bench: &Bench, child: &Child, bytes: u64) {
    let mut running = child.command().stderr(Stdio::null()).spawn().unwrap();
    let before: u64 = bench.hub.sent().values().sum();
    let begin = Instant::now();
    while bench.hub.sent().values().sum::<u64>() < before + bytes {
        assert!(begin.elapsed() < Duration::from_secs(120), "the child fetches");
        if running.try_wait().unwrap().is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    running.kill().unwrap();
    let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
    assert!(!lines.any(|l| l.unwrap().contains("Done")), "it was killed too late");
    running.wait().unwrap();
    until("its sockets are closed", || bench.hub.state.sending.load(std::sync::atomic::Ordering::Relaxed) == 0);
}

#[test]
fn killed_it_says_what_is_here_and_goes_on() {
    let bench = Bench::new();
    bench.hub.pace(400_000);
    let child = Child::of(&bench);
    let mut have = 0;
    let mut claimed = 0;
    for bytes in [50_000, 250_000, 350_000] {
        bench.hub.forget();
        // More does not come, however late it is killed.
        bench.hub.hold_after(bytes);
        kill_after(&bench, &child, bytes);
        let pull = find(&bench.models(), REPO).expect("it is remembered");
        assert!(pull.phase == PullPhase::Paused && !pull.elsewhere, "{pull:?}");
        assert!(pull.done >= have && pull.total.is_some_and(|t| t > pull.done), "{pull:?}");
        let sent: u64 = bench.hub.sent().values().sum();
        claimed += sent;
        assert!(pull.done <= claimed, "{} on the disk, {claimed} sent", pull.done);
        have = pull.done;
    }
    assert!(have > 100_000, "{have}");
    assert!(!bench.repo().folder.join("snapshots").exists());
    bench.hub.forget();
    bench.hub.pace(0);
    bench.hub.release();
    let models = bench.models();
    let pull = done(&models, REPO);
    bench.assert_whole(&repository(10));
    let sent: u64 = bench.hub.sent().values().sum();
    assert_eq!(sent, pull.total.unwrap() - have, "no byte that was safe comes again");
}

/// Another process fetches it and is killed: who followed goes on from what it left.
#[test]
fn who_follows_a_killed_process_takes_over() {
    let bench = Bench::new();
    bench.hub.hold_after(400_000);
    let mut running = Child::of(&bench).command().stderr(Stdio::null()).spawn().unwrap();
    until("the child is at it", || find(&bench.models(), REPO).is_some_and(|p| p.elsewhere && p.done > 0));
    let models = bench.models();
    models.pull(REPO, Default::default()).unwrap();
    until("we follow", || find(&models, REPO).is_some_and(|p| p.elsewhere && p.done > 200_000));
    running.kill().unwrap();
    running.wait().unwrap();
    until("we are at it", || find(&models, REPO).is_some_and(|p| !p.elsewhere));
    bench.hub.release();
    until("it is done", || find(&models, REPO).is_some_and(|p| p.phase == PullPhase::Done));
    bench.assert_whole(&repository(10));
}
