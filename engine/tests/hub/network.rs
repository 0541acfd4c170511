//! Networks that go and come.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use rmlx_engine::api::{PullOptions, PullPhase};

use crate::bench::{Bench, PART, REPO, SHARDS, done, find, repository, tuning, until};
use crate::hub::{Hub, What};
use crate::killed::Child;

#[test]
fn offline_it_waits_and_goes_on_by_itself() {
    let mut bench = Bench::new();
    bench.hub.hold_after(400_000);
    let models = bench.models();
    models.pull(REPO, PullOptions::default()).unwrap();
    until("a part of it is here", || find(&models, REPO).is_some_and(|p| p.done > 300_000));
    let port = bench.hub.port();
    let sent_before: u64 = bench.hub.sent().values().sum();
    let state = std::mem::replace(&mut bench.hub, Hub::start()).stop();
    until("it waits", || find(&models, REPO).is_some_and(|p| p.phase == PullPhase::Waiting));
    let pull = find(&models, REPO).unwrap();
    assert_eq!(pull.error.as_ref().unwrap().code, "hub_offline");
    assert!(pull.done >= 200_000 && pull.rate == 0, "{pull:?}");
    let mut again = None;
    until("the port is free again", || {
        again = Hub::with(state.clone(), port).ok();
        again.is_some()
    });
    bench.hub = again.unwrap();
    bench.hub.release();
    until("it is done", || find(&models, REPO).is_some_and(|p| p.phase == PullPhase::Done));
    bench.assert_whole(&repository(10));
    let sent: u64 = bench.hub.sent().values().sum();
    let total = find(&models, REPO).unwrap().total.unwrap();
    // What the four connections had under way, the hub's buffers included, may come twice.
    assert!(sent_before >= 300_000 && sent < total + 4 * PART, "{sent} of {total}");
}

#[test]
fn who_asks_again_need_not_wait() {
    let bench = Bench::new();
    let slow = rmlx_engine::hub::fetch::Tuning { back_off: (Duration::from_secs(1000), Duration::from_secs(1000)), ..tuning() };
    let models = bench.models_with(slow, None);
    bench.hub.fault("listing", 1, What::Status(500, vec![]));
    models.pull(REPO, PullOptions::default()).unwrap();
    until("it waits", || find(&models, REPO).is_some_and(|p| p.phase == PullPhase::Waiting));
    let begin = Instant::now();
    done(&models, REPO);
    assert!(begin.elapsed() < Duration::from_secs(30));
}

#[test]
fn begun_offline_it_is_remembered() {
    let bench = Bench::new();
    // Nobody listens there.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut setup = bench.setup(tuning(), None);
    let endpoint = format!("http://127.0.0.1:{port}");
    setup.remote = std::sync::Arc::new(move || rmlx_engine::hub::remote::Remote::at(&endpoint, None));
    let models = rmlx_engine::engine::Models::with(setup);
    models.pull(REPO, PullOptions::default()).unwrap();
    until("it waits", || find(&models, REPO).is_some_and(|p| p.phase == PullPhase::Waiting));
    let error = find(&models, REPO).unwrap().error.unwrap();
    assert!(error.code == "hub_offline" && error.message.contains("127.0.0.1"), "{error:?}");
    drop(models);
    let models = bench.models();
    let pull = find(&models, REPO).expect("it is remembered");
    assert_eq!((pull.phase, pull.done, pull.total), (PullPhase::Paused, 0, None));
    done(&models, REPO);
    bench.assert_whole(&repository(10));
}

/// A mirror has the same files at another address.
#[test]
fn parts_outlive_a_change_of_the_mirror() {
    let bench = Bench::new();
    bench.hub.hold_after(400_000);
    let models = bench.models();
    models.pull(REPO, PullOptions::default()).unwrap();
    until("a part of it is here", || find(&models, REPO).is_some_and(|p| p.done > 300_000));
    drop(models);
    let before = find(&bench.models(), REPO).unwrap();
    assert!(before.phase == PullPhase::Paused && before.done > 300_000, "{before:?}");
    let mirror = Hub::start();
    mirror.add(repository(10));
    let mut setup = bench.setup(tuning(), None);
    let endpoint = mirror.endpoint.clone();
    setup.remote = std::sync::Arc::new(move || rmlx_engine::hub::remote::Remote::at(&endpoint, None));
    done(&rmlx_engine::engine::Models::with(setup), REPO);
    bench.assert_whole(&repository(10));
    let sent: u64 = mirror.sent().values().sum();
    assert_eq!(sent, before.total.unwrap() - before.done, "nothing comes twice");
}

/// The newest commit is what a branch means. What it shares with the one that was begun is not fetched again.
#[test]
fn a_branch_that_moved_is_followed() {
    let bench = Bench::new();
    bench.hub.hold_after(400_000);
    let models = bench.models();
    models.pull(REPO, PullOptions::default()).unwrap();
    until("a part of it is here", || find(&models, REPO).is_some_and(|p| p.done > 300_000));
    models.pause(REPO).unwrap();
    let before = find(&models, REPO).unwrap();
    // Another second shard and the same first one.
    let mut files = repository(10).files;
    let other = repository(20);
    *files.iter_mut().find(|f| f.name == SHARDS[1]).unwrap() = other.file(SHARDS[1]).clone();
    let moved = crate::hub::Repository { files, commit: "a".repeat(40), ..repository(10) };
    bench.hub.add(moved.clone());
    bench.hub.release();
    bench.hub.forget();
    let first = before.done - {
        let old = repository(10);
        let hash = rmlx_engine::hub::remote::Hash::parse(old.file(SHARDS[1]).etag()).unwrap();
        let file = rmlx_engine::hub::remote::RemoteFile { name: SHARDS[1].into(), bytes: old.file(SHARDS[1]).size, hash };
        rmlx_engine::hub::fetch::have(&bench.repo(), &file)
    };
    let pull = done(&models, REPO);
    assert_eq!(pull.commit.as_deref(), Some("a".repeat(40).as_str()));
    bench.assert_whole(&moved);
    let sent: u64 = bench.hub.sent().values().sum();
    assert_eq!(sent, pull.total.unwrap() - first, "the first shard's parts stay");
    assert!(first > 0);
    assert!(!bench.repo().folder.join("blobs").join(repository(10).file(SHARDS[1]).etag()).exists());
}

/// Both spellings; what is excepted is asked directly, which nobody answers.
#[test]
fn proxies_of_the_environment_are_used() {
    for (name, except, whole) in
        [("http_proxy", "", true), ("HTTP_PROXY", "", true), ("ALL_PROXY", "", true), ("HTTP_PROXY", "hub.invalid", false)]
    {
        let bench = Bench::new();
        let child = Child { endpoint: "http://hub.invalid".into(), ..Child::of(&bench) };
        let mut command = child.command();
        for other in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY", "https_proxy", "HTTPS_PROXY"]
        {
            command.env_remove(other);
        }
        command.env(name, &bench.hub.endpoint).env("NO_PROXY", except).env("FETCH_UNTIL_WAITING", "1");
        let output = command.output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{told}");
        if whole {
            assert!(told.contains("told: Done"), "{name}: {told}");
            bench.assert_whole(&repository(10));
        } else {
            assert!(told.contains("hub_offline") && told.contains("hub.invalid cannot be reached"), "{told}");
            assert!(bench.hub.seen().is_empty());
        }
    }
}
