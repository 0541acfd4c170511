//! What other readers of the cache see while a download is under way, and beside other tools' files.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rmlx_engine::api::{PullOptions, PullPhase};
use rmlx_engine::hub::{Library, Snapshot};

use crate::bench::{Bench, REPO, SHARDS, done, find, repository, tuning};
use crate::hub::What;

fn library(bench: &Bench) -> Library {
    Library { models: bench.folder.path().join("models"), hugging_face: bench.cache().root, folder: None }
}

/// A model is found when it is whole, and not before; a reader that looks all the time sees nothing between.
#[test]
fn no_reader_sees_half_a_snapshot() {
    let bench = Bench::new();
    bench.hub.pace(1_000_000);
    let models = bench.models();
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut without, mut with) = (0, 0);
            while !ended.load(Ordering::Relaxed) || with == 0 {
                match library(&bench).resolve(REPO) {
                    Ok(folder) => {
                        with += 1;
                        for name in ["config.json", "tokenizer.json", SHARDS[0], SHARDS[1]] {
                            assert!(folder.join(name).is_file(), "{name} is not there");
                        }
                    }
                    Err(_) => without += 1,
                }
            }
            (without, with)
        });
        done(&models, REPO);
        ended.store(true, Ordering::Relaxed);
        let (without, with) = reader.join().unwrap();
        assert!(without > 10 && with > 0, "{without} {with}");
    });
    assert_eq!(library(&bench).resolve("tiny").unwrap(), bench.repo().snapshot(&repository(10).commit));
    // Its commit is a name as well.
    let by_commit = format!("{REPO}@{}", repository(10).commit);
    assert!(library(&bench).resolve(&by_commit).is_ok());
}

/// Another tool fetched the configuration alone. Until the weights are here nobody takes that for a model.
#[test]
fn a_snapshot_that_another_tool_began_becomes_whole() {
    let bench = Bench::new();
    let whole = repository(10);
    let repo = bench.repo();
    let snapshot = repo.snapshot(&whole.commit);
    fs::create_dir_all(repo.folder.join("blobs")).unwrap();
    fs::create_dir_all(repo.folder.join("refs")).unwrap();
    fs::create_dir_all(&snapshot).unwrap();
    fs::write(repo.folder.join("refs/main"), &whole.commit).unwrap();
    let config = whole.file("config.json");
    fs::write(repo.folder.join("blobs").join(config.etag()), config.contents.read(0, config.size as usize).unwrap()).unwrap();
    std::os::unix::fs::symlink(format!("../../blobs/{}", config.etag()), snapshot.join("config.json")).unwrap();
    // What the other tool has begun is its own affair.
    let foreign = repo.folder.join("blobs").join(format!("{}.incomplete", whole.file(SHARDS[0]).etag()));
    fs::write(&foreign, "half").unwrap();
    bench.hub.pace(1_000_000);
    let models = bench.models();
    models.pull(REPO, PullOptions::default()).unwrap();
    while find(&models, REPO).is_some_and(|p| p.phase != PullPhase::Done) {
        let folder = library(&bench).resolve(REPO).unwrap();
        assert!(Snapshot::open(&folder).is_err() || SHARDS.iter().all(|s| snapshot.join(s).is_file()));
    }
    bench.assert_whole(&whole);
    assert!(!bench.hub.sent().contains_key("config.json"), "it was here");
    assert_eq!(fs::read_to_string(foreign).unwrap(), "half");
}

/// A file that lies under its hash with another length was never whole.
#[test]
fn a_truncated_blob_comes_again() {
    let bench = Bench::new();
    let models = bench.models();
    done(&models, REPO);
    let blob = bench.repo().folder.join("blobs").join(repository(10).file(SHARDS[0]).etag());
    fs::write(&blob, "short").unwrap();
    bench.hub.forget();
    done(&models, REPO);
    bench.assert_whole(&repository(10));
    assert_eq!(bench.hub.sent().into_keys().collect::<Vec<_>>(), [SHARDS[0]]);
}

/// All bytes of a file were here when the process ended: they are hashed, and nothing is asked for.
#[test]
fn a_file_that_is_all_here_is_verified_and_not_asked_for() {
    let bench = Bench::new();
    let models = bench.models();
    let shard = repository(10).file(SHARDS[0]).clone();
    let put = |bytes: &[u8]| {
        let blobs = bench.repo().folder.join("blobs");
        fs::create_dir_all(&blobs).unwrap();
        fs::write(blobs.join(format!("{}.rmlx-partial", shard.etag())), bytes).unwrap();
        fs::write(blobs.join(format!("{}.rmlx-parts", shard.etag())), format!("rmlx-parts 1 {0}\n0 {0}\n", shard.size)).unwrap();
    };
    let right = shard.contents.read(0, shard.size as usize).unwrap();
    put(&right);
    // A server of the kind that says so about a file that is complete.
    bench.hub.fault(SHARDS[0], 1000, What::NotSatisfiable);
    done(&models, REPO);
    bench.assert_whole(&repository(10));
    assert!(!bench.hub.sent().contains_key(SHARDS[0]));
    // The control: what is wrong is found, and comes once.
    bench.hub.clear_faults();
    models.cancel(REPO).unwrap();
    fs::remove_dir_all(&bench.repo().folder).unwrap();
    let mut wrong = right;
    wrong[1000] ^= 1;
    put(&wrong);
    done(&bench.models_with(tuning(), None), REPO);
    bench.assert_whole(&repository(10));
    assert_eq!(bench.hub.sent()[SHARDS[0]], shard.size);
}

/// Journals that somebody damaged cost bytes, never a wrong file or a panic.
#[test]
fn odd_journals_and_records_are_no_danger() {
    let bench = Bench::new();
    let shard = repository(10).file(SHARDS[0]).clone();
    let blobs = bench.repo().folder.join("blobs");
    let most = u64::MAX;
    let files = ["a", "b"].map(|name| format!(r#"["{name}",{most},"{}"]"#, "0".repeat(40))).join(",");
    let huge = format!(r#"{{"version":1,"revision":"huge","commit":"{}","paused":true,"files":[{files}]}}"#, "1".repeat(40));
    for journal in [
        "",
        "\n",
        "rmlx-parts 1 500001",
        "rmlx-parts 1 500001\n0 500001",
        "rmlx-parts 1 500001\n0 99999999999999999999\n",
        "rmlx-parts 1 500001\n5 4\n",
        "rmlx-parts 1 500001\n0 500002\n",
        "rmlx-parts 1 500001\n0 300000\n",
        "rmlx-parts 2 500001\n0 10\n",
        "rmlx-parts 1 3\n0 3\n",
        "rmlx-parts 1 500001\n-1 3\n",
        "\u{0}\u{1}",
        "rmlx-parts 1 500001\n0 10\nx\n0 500001\n",
    ] {
        fs::create_dir_all(&blobs).unwrap();
        // Shorter than what most of them claim, and wrong.
        fs::write(blobs.join(format!("{}.rmlx-partial", shard.etag())), vec![7; 100_000]).unwrap();
        fs::write(blobs.join(format!("{}.rmlx-parts", shard.etag())), journal).unwrap();
        for (revision, record) in [
            ("main", journal),
            ("x%2Fy", r#"{"version":1,"revision":"../x","commit":null,"paused":false,"files":[]}"#),
            ("huge", &huge),
        ] {
            fs::write(bench.repo().folder.join(format!(".rmlx-pull-{revision}.json")), record).unwrap();
        }
        let models = bench.models();
        assert!(models.pulls().is_empty(), "{:?}", models.pulls());
        done(&models, REPO);
        for revision in ["x%2Fy", "huge"] {
            fs::remove_file(bench.repo().folder.join(format!(".rmlx-pull-{revision}.json"))).unwrap();
        }
        bench.assert_whole(&repository(10));
        drop(models);
        fs::remove_dir_all(&bench.repo().folder).unwrap();
    }
}

/// A small file that was all here when the process ended, before it became a blob: it is checked and not asked for again. With a
/// wrong byte it alone comes again.
#[test]
fn a_small_file_that_lacks_only_its_name_gets_it() {
    for wrong in [false, true] {
        let bench = Bench::new();
        let readme = repository(10).file("README.md").clone();
        let mut bytes = readme.contents.read(0, readme.size as usize).unwrap();
        bytes[0] ^= u8::from(wrong);
        let blobs = bench.repo().folder.join("blobs");
        fs::create_dir_all(&blobs).unwrap();
        fs::write(blobs.join(format!("{}.rmlx-partial", readme.etag())), bytes).unwrap();
        fs::write(blobs.join(format!("{}.rmlx-parts", readme.etag())), format!("rmlx-parts 1 {0}\n0 {0}\n", readme.size))
            .unwrap();
        done(&bench.models(), REPO);
        bench.assert_whole(&repository(10));
        let sent = bench.hub.sent().get("README.md").copied();
        assert_eq!(sent, wrong.then_some(readme.size));
    }
}
