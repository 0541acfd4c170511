//! The long tier: large files, and the hub's Python client beside ours.
//!
//! `RMLX_HUB_PYTHON` names a Python that has `huggingface_hub`; `scripts/proof` brings one.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rmlx_engine::api::{PullOptions, PullPhase};
use rmlx_engine::engine::{Models, Setup};
use rmlx_engine::hub::fetch::Tuning;
use rmlx_engine::hub::remote::Remote;
use tempfile::TempDir;

use crate::bench::{Bench, REPO, done, find, noise, repository, until};
use crate::hub::{Hub, Repository, TOKEN};
use crate::killed::{Child, kill_after};

const LARGE: &str = "acme/large";

/// A repository of a configuration and one file of so many bytes, on the disk.
fn large(folder: &Path, bytes: u64) -> Repository {
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("config.json"), "{}").unwrap();
    let mut file = fs::File::create(folder.join("model.safetensors")).unwrap();
    let block = noise(7, 8 << 20);
    for number in 0..bytes / block.len() as u64 {
        // No two blocks are alike.
        file.write_all(&number.to_le_bytes()).unwrap();
        file.write_all(&block[8..]).unwrap();
    }
    drop(file);
    Repository::from_folder(LARGE, folder).unwrap()
}

fn plain(bench: &Bench) -> Models {
    let endpoint = bench.hub.endpoint.clone();
    Models::with(Setup {
        home: bench.home(),
        cache: bench.cache(),
        remote: Arc::new(move || Remote::at(&endpoint, None)),
        check: Arc::new(|_| Box::pin(async { Ok(()) })),
        tuning: Tuning { reserve: 0, ..Tuning::default() },
    })
}

/// 2 GB, killed at ten points; what was safe is never asked for again, and the hash is right.
#[test]
#[ignore = "minutes"]
fn proof_two_gigabytes_killed_ten_times() {
    let folder = place();
    let bench = Bench { folder: place(), hub: Hub::start() };
    bench.hub.add(large(&folder.path().join("repo"), 2 << 30));
    let child = Child { repo: LARGE.into(), part: 32 << 20, ..Child::of(&bench) };
    bench.hub.pace(60_000_000);
    let mut sent = 0;
    let mut have = 0;
    let mut wasted = Vec::new();
    let mut chance = u64::from_le_bytes(noise(u64::from(std::process::id()), 8).try_into().unwrap());
    for _ in 0..10 {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let bytes = (20 << 20) + (chance >> 33) % (250 << 20);
        kill_after(&bench, &child, bytes);
        let now: u64 = bench.hub.sent().values().sum();
        let pull = find(&plain(&bench), LARGE).unwrap();
        assert!(pull.phase == PullPhase::Paused && pull.done >= have, "{pull:?}");
        wasted.push((now - sent - (pull.done - have)) >> 20);
        (sent, have) = (now, pull.done);
    }
    println!("{} MB of 2048 were safe after ten kills; MB lost by each: {wasted:?}", have >> 20);
    bench.hub.pace(0);
    bench.hub.forget();
    let models = plain(&bench);
    let begin = Instant::now();
    models.pull(LARGE, PullOptions::default()).unwrap();
    wait(&models);
    let rest: u64 = bench.hub.sent().values().sum();
    println!("the other {} MB came in {:?}", rest >> 20, begin.elapsed());
    let total = find(&models, LARGE).unwrap().total.unwrap();
    assert_eq!(rest, total - have, "no byte that was safe comes again");
    // By the same route as any reader, and not by the hash that was checked on the way.
    let snapshot = bench.cache().repo(LARGE).unwrap().folder.join("snapshots");
    let got = fs::read_dir(snapshot).unwrap().next().unwrap().unwrap().path().join("model.safetensors");
    let same = Command::new("cmp").arg(got).arg(folder.path().join("repo/model.safetensors")).status().unwrap();
    assert!(same.success());
}

fn wait(models: &Models) {
    let begin = Instant::now();
    while find(models, LARGE).unwrap().phase != PullPhase::Done {
        assert!(begin.elapsed() < Duration::from_secs(600), "{:?}", find(models, LARGE));
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Throughput, memory, and how long a cancel takes, beside the Python client on the same server.
#[test]
#[ignore = "minutes"]
fn proof_as_quick_as_the_python_client() {
    let python = python();
    let folder = place();
    let mut bench = Bench { folder: place(), hub: Hub::start() };
    // A process of its own, so that its memory is not ours.
    let repo = large(&folder.path().join("serve/acme/large"), 1 << 30);
    drop(repo);
    let mut serving = serve(&folder.path().join("serve"));
    let endpoint = serving.endpoint.clone();
    let mut ours = Vec::new();
    let mut theirs = Vec::new();
    let mut memory = (0, 0);
    for round in 0..3 {
        let child = Child {
            endpoint: endpoint.clone(),
            folder: bench.folder.path().join(format!("ours-{round}")),
            repo: LARGE.into(),
            part: 32 << 20,
            small_disk: None,
        };
        let (time, peak) = timed(&mut child.command());
        ours.push(1024.0 / time);
        memory.0 = memory.0.max(peak);
        fs::remove_dir_all(&child.folder).unwrap();
        let cache = bench.folder.path().join(format!("theirs-{round}"));
        let mut command = snapshot_download(&python, &endpoint, &cache, LARGE, "");
        let (time, peak) = timed(&mut command);
        theirs.push(1024.0 / time);
        memory.1 = memory.1.max(peak);
        fs::remove_dir_all(&cache).unwrap();
    }
    let best = |all: &[f64]| all.iter().copied().fold(0.0, f64::max);
    println!("MB/s, whole process: ours {ours:.0?}, Python {theirs:.0?}");
    println!("peak memory in MB: ours {}, Python {}", memory.0 >> 10, memory.1 >> 10);
    serving.child.kill().unwrap();
    serving.child.wait().unwrap();
    // A cancel in full flight.
    bench.hub = Hub::start();
    bench.hub.add(Repository::from_folder(LARGE, &folder.path().join("serve/acme/large")).unwrap());
    bench.hub.pace(20_000_000);
    let models = plain(&bench);
    let before = anonymous();
    models.pull(LARGE, PullOptions::default()).unwrap();
    until("half is here", || find(&models, LARGE).unwrap().done > 512 << 20);
    let begin = Instant::now();
    models.cancel(LARGE).unwrap();
    let cancel = begin.elapsed();
    println!("cancel at half of 1 GB: {} ms", cancel.as_millis());
    assert!(cancel < Duration::from_secs(2));
    // The hub's own buffers are in this process as well.
    until("the memory is back", || anonymous() < before + (32 << 20));
    println!("memory after the cancel: {} KB more than before", anonymous().saturating_sub(before) >> 10);
    assert!(best(&ours) >= best(&theirs), "{ours:?} {theirs:?}");
    assert!(memory.0 < 200 << 10, "{} KB", memory.0);
}

/// What we fetch the Python client finds whole, and what it fetched we find whole.
#[test]
#[ignore = "needs a Python client"]
fn proof_the_python_client_and_we_share_a_cache() {
    let python = python();
    let bench = Bench::new();
    bench.hub.redirect_from(100_000);
    done(&bench.models(), REPO);
    let root = bench.cache().root;
    let scan = r#"
import json, sys
from huggingface_hub import scan_cache_dir, snapshot_download
found = scan_cache_dir(sys.argv[1])
files = sorted(f.file_name for repo in found.repos for rev in repo.revisions for f in rev.files)
print(json.dumps([[str(w) for w in found.warnings], [r.repo_id for r in found.repos], [sorted(rev.refs) for r in found.repos for rev in r.revisions], files]))
print(snapshot_download(sys.argv[2], cache_dir=sys.argv[1], local_files_only=True))
"#;
    let output = Command::new(&python).args(["-c", scan]).arg(&root).arg(REPO).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut lines = told.lines();
    let found: serde_json::Value = serde_json::from_str(lines.next().unwrap()).unwrap();
    let names: Vec<String> =
        repository(10).files.into_iter().map(|f| f.name).filter(|n| !n.contains('/') && !n.ends_with(".bin")).collect();
    assert_eq!(found, serde_json::json!([[], [REPO], [["main"]], names]));
    assert_eq!(Path::new(lines.next().unwrap()), bench.repo().snapshot(&repository(10).commit));
    // Online it asks for nothing but what we leave out.
    bench.hub.forget();
    let status = snapshot_download(&python, &bench.hub.endpoint, &root, REPO, "").status().unwrap();
    assert!(status.success());
    let sent: Vec<String> = bench.hub.sent().into_iter().filter(|(_, n)| *n > 0).map(|(f, _)| f).collect();
    assert_eq!(sent, ["original/consolidated.00.pth", "pytorch_model.bin"]);

    // The other way round, with a token.
    let bench = Bench::new();
    let status = snapshot_download(&python, &bench.hub.endpoint, &bench.cache().root, REPO, TOKEN).status().unwrap();
    assert!(status.success());
    bench.hub.forget();
    let pull = done(&bench.models(), REPO);
    assert_eq!(Some(pull.done), pull.total);
    assert!(bench.hub.sent().is_empty(), "nothing comes twice");
    // Ours has the same names, links and contents; theirs has some more.
    let ours = Bench::new();
    done(&ours.models(), REPO);
    let tree = |root: &Path, snapshot: PathBuf| {
        let mut links: Vec<_> =
            fs::read_dir(snapshot).unwrap().flatten().map(|e| (e.file_name(), fs::read_link(e.path()).ok())).collect();
        links.retain(|(name, target)| target.is_some() && name != "pytorch_model.bin");
        links.sort();
        (links, fs::read_to_string(root.join("models--acme--tiny/refs/main")).unwrap())
    };
    let commit = repository(10).commit;
    assert_eq!(
        tree(&ours.cache().root, ours.repo().snapshot(&commit)),
        tree(&bench.cache().root, bench.repo().snapshot(&commit))
    );
}

/// Over TLS, with the roots that the system knows: a certificate that it does not know is refused, and the token with it.
#[test]
#[ignore = "needs a Python and openssl"]
fn proof_tls_trusts_what_the_system_trusts() {
    use std::io::{BufRead, BufReader};
    let bench = Bench::new();
    let keys = tempfile::tempdir().unwrap();
    let (cert, key) = (keys.path().join("cert.pem"), keys.path().join("key.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=CA:FALSE"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&cert)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let script = r#"
import socket, ssl, sys, threading
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
def pump(a, b):
    try:
        while data := a.recv(65536):
            b.sendall(data)
    except OSError:
        pass
    finally:
        b.close()
def serve(plain):
    try:
        secure = context.wrap_socket(plain, server_side=True)
    except OSError:
        return
    hub = socket.create_connection(("127.0.0.1", int(sys.argv[3])))
    threading.Thread(target=pump, args=(secure, hub), daemon=True).start()
    pump(hub, secure)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"#;
    let mut front = Command::new("python3")
        .args(["-c", script])
        .args([&cert, &key])
        .arg(bench.hub.port().to_string())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut port = String::new();
    BufReader::new(front.stdout.as_mut().unwrap()).read_line(&mut port).unwrap();
    let child = Child { endpoint: format!("https://localhost:{}", port.trim()), ..Child::of(&bench) };
    let told = |roots: Option<&Path>| {
        let mut command = child.command();
        command
            .env("FETCH_UNTIL_WAITING", "1")
            .env("NO_PROXY", "localhost")
            .env_remove("SSL_CERT_FILE")
            .env_remove("SSL_CERT_DIR");
        if let Some(roots) = roots {
            command.env("SSL_CERT_FILE", roots);
        }
        String::from_utf8_lossy(&command.output().unwrap().stdout).into_owned()
    };
    let unknown = told(None);
    assert!(unknown.contains("hub_offline") && unknown.contains("certificate"), "{unknown}");
    assert!(bench.hub.seen().is_empty());
    let known = told(Some(&cert));
    assert!(known.contains("told: Done"), "{known}");
    bench.assert_whole(&repository(10));
    front.kill().unwrap();
    front.wait().unwrap();
}

struct Serving {
    child: std::process::Child,
    endpoint: String,
}

/// The hub as a process: the example of that name, built on demand.
fn serve(folder: &Path) -> Serving {
    use std::io::{BufRead, BufReader};
    // Not run by cargo, so that it can be ended.
    let built =
        Command::new(env!("CARGO")).args(["build", "-q", "-p", "rmlx-engine", "--example", "local-hub"]).status().unwrap();
    assert!(built.success());
    let example = std::env::current_exe().unwrap().parent().unwrap().join("../examples/local-hub");
    let mut child = Command::new(example).arg(folder).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut endpoint = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut endpoint).unwrap();
    Serving { child, endpoint: endpoint.trim().into() }
}

fn python() -> PathBuf {
    let python = std::env::var_os("RMLX_HUB_PYTHON").map(PathBuf::from).filter(|python| python.exists());
    python.expect("RMLX_HUB_PYTHON names a Python with huggingface_hub; scripts/proof sees to it")
}

fn snapshot_download(python: &Path, endpoint: &str, cache: &Path, repo: &str, token: &str) -> Command {
    let script =
        "import sys\nfrom huggingface_hub import snapshot_download\nsnapshot_download(sys.argv[2], cache_dir=sys.argv[1])\n";
    let mut command = Command::new(python);
    command.args(["-c", script]).arg(cache).arg(repo);
    command.env("HF_ENDPOINT", endpoint).env("HF_HOME", cache.join("home")).env("HF_HUB_DISABLE_PROGRESS_BARS", "1");
    command.env("HF_HUB_DISABLE_TELEMETRY", "1").env_remove("HF_TOKEN");
    if !token.is_empty() {
        command.env("HF_TOKEN", token);
    }
    command
}

/// Memory of this process that is no file's, in bytes.
fn anonymous() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let kb = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    kb.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() << 10
}

/// Seconds, and the most memory in KB.
fn timed(command: &mut Command) -> (f64, u64) {
    let begin = Instant::now();
    let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    let mut peak = 0;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        let text = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:"));
        let kb = line.and_then(|l| l.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0);
        peak = peak.max(kb);
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(status.success());
    (begin.elapsed().as_secs_f64(), peak)
}

/// Room for gigabytes: not where temporary files lie in memory.
fn place() -> TempDir {
    let target = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    tempfile::tempdir_in(target).unwrap()
}
