//! Servers that misbehave, and what is fetched nevertheless, or why not.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rmlx_engine::api::{PullOptions, PullPhase};
use rmlx_engine::hub::fetch::Tuning;

use crate::bench::{Bench, PART, REPO, SHARD, SHARDS, done, failed, fetch, find, repository, tuning, until};
use crate::hub::{TOKEN, What};

#[test]
fn files_come_in_parts_and_become_a_snapshot() {
    let bench = Bench::new();
    bench.hub.pace(1_000_000);
    let models = bench.models();
    let pull = done(&models, REPO);
    bench.assert_whole(&repository(10));
    assert_eq!(pull.commit, Some(repository(10).commit));
    let sent = bench.hub.sent();
    assert_eq!(sent[SHARDS[0]], SHARD as u64, "every byte once");
    let ranges = bench.hub.seen().iter().filter(|s| s.file.as_deref() == Some(SHARDS[0])).filter_map(|s| s.range.clone()).count();
    assert_eq!(ranges as u64, (SHARD as u64).div_ceil(PART));
    assert!(!sent.contains_key("pytorch_model.bin") && !sent.contains_key("original/consolidated.00.pth"));
    let small = bench.hub.seen().into_iter().find(|s| s.file.as_deref() == Some("tokenizer.json")).unwrap();
    assert_eq!(small.range, None, "small files are asked for as a whole");
    let most = bench.hub.state.most_sending.load(Ordering::Relaxed);
    assert!((2..=4).contains(&most), "{most} connections at once");
    // Again: nothing is asked for but the listing.
    bench.hub.forget();
    done(&models, REPO);
    assert!(bench.hub.sent().is_empty());
}

#[test]
fn whatever_breaks_once_is_asked_for_again() {
    let long = Duration::from_secs(3600);
    for (what, times) in [
        (What::Drop(1000), 3),
        (What::Drop(0), 2),
        (What::Short(10), 2),
        (What::Stall(5000, long), 2),
        (What::Stall(0, long), 1),
        (What::Status(500, vec![]), 2),
        (What::Status(502, vec![]), 1),
        (What::WrongRange, 1),
        (What::WrongTotal, 1),
        (What::Corrupt, 1),
        (What::NotSatisfiable, 1),
        (What::IgnoreRange, 1),
        (What::IgnoreRange, 1000),
        (What::Delay(Duration::from_millis(50)), 5),
        (What::Delay(long), 1),
    ] {
        let bench = Bench::new();
        bench.hub.fault(SHARDS[1], times, what.clone());
        let silent = matches!(&what, What::Stall(_, time) | What::Delay(time) if *time == long);
        let stall = if silent { Duration::from_millis(500) } else { tuning().stall };
        let models = bench.models_with(Tuning { stall, ..tuning() }, None);
        done(&models, REPO);
        bench.assert_whole(&repository(10));
        let other = bench.hub.sent()[SHARDS[0]];
        assert_eq!(other, SHARD as u64, "{what:?}: the other shard comes once");
    }
}

/// The control of the test above: what never stops is an end, and says which.
#[test]
fn whatever_stays_broken_ends_the_download() {
    for (what, file, code) in [
        (What::Corrupt, SHARDS[1], "bad_download"),
        (What::Corrupt, "config.json", "bad_download"),
        (What::WrongRange, SHARDS[1], "hub_bad_answer"),
        (What::WrongTotal, SHARDS[1], "hub_bad_answer"),
        (What::Redirect("ftp://127.0.0.1/x".into()), SHARDS[1], "hub_bad_answer"),
        (What::Status(404, vec![("X-Error-Code", "EntryNotFound".into())]), SHARDS[1], "hub_not_found"),
    ] {
        let bench = Bench::new();
        bench.hub.fault(file, 100_000, what.clone());
        let models = bench.models();
        let (got, message) = failed(&models, REPO);
        assert_eq!(got, code, "{what:?}: {message}");
        assert!(!bench.repo().folder.join("snapshots").exists(), "{what:?}: nothing to load");
        // The other files stay, and the download can go on.
        bench.hub.clear_faults();
        bench.hub.forget();
        done(&models, REPO);
        bench.assert_whole(&repository(10));
    }
}

#[test]
fn a_damaged_file_alone_comes_again() {
    let bench = Bench::new();
    bench.hub.fault(SHARDS[0], 1, What::Corrupt);
    done(&bench.models(), REPO);
    bench.assert_whole(&repository(10));
    let sent = bench.hub.sent();
    assert_eq!((sent[SHARDS[0]], sent[SHARDS[1]]), (2 * SHARD as u64, SHARD as u64));
}

#[test]
fn the_token_goes_to_the_hub_and_nowhere_else() {
    let bench = Bench::new();
    bench.hub.redirect_from(100_000);
    let models = bench.models_with(tuning(), Some(TOKEN));
    done(&models, REPO);
    bench.assert_whole(&repository(10));
    let (other, own): (Vec<_>, Vec<_>) = bench.hub.seen().into_iter().partition(|s| s.other);
    let with_token = |seen: &[crate::hub::Seen]| seen.iter().filter(|s| s.headers.contains_key("authorization")).count();
    assert!(!other.is_empty() && with_token(&own) == own.len(), "the hub is told who asks");
    assert_eq!(with_token(&other), 0);
    assert!(other.iter().all(|s| !format!("{:?}", s.headers).contains(TOKEN) && !s.path.contains(TOKEN)));
    // The place of the first part serves the others: no need to ask the hub for each.
    let asked = own.iter().filter(|s| s.file.as_deref() == Some(SHARDS[0])).count();
    assert!(asked <= 4, "{asked}");
}

#[test]
fn an_address_that_ran_out_is_asked_for_again() {
    let bench = Bench::new();
    bench.hub.redirect_from(100_000);
    let models = bench.models();
    // The other address refuses as if a signature had run out.
    bench.hub.fault(SHARDS[0], 2, What::Status(403, vec![]));
    done(&models, REPO);
    bench.assert_whole(&repository(10));
    let asked = bench.hub.seen().iter().filter(|s| !s.other && s.file.as_deref() == Some(SHARDS[0])).count();
    assert!(asked >= 2, "{asked}");
}

#[test]
fn redirects_end() {
    let bench = Bench::new();
    let to = format!("{}/acme/tiny/resolve/main/config.json", bench.hub.endpoint);
    bench.hub.fault("config.json", 100_000, What::Redirect(to));
    let models = bench.models();
    let (code, message) = failed(&models, REPO);
    assert!(code == "hub_bad_answer" && message.contains("redirects"), "{message}");
}

/// Neither errors nor the records on the disk have what a redirect's address gives away.
#[test]
fn signed_addresses_stay_secret() {
    let bench = Bench::new();
    bench.hub.redirect_from(100_000);
    bench.hub.fault(SHARDS[0], 100_000, What::Status(403, vec![]));
    let models = bench.models_with(tuning(), Some(TOKEN));
    let pull = fetch(&models, REPO);
    let mut all = format!("{pull:?}");
    for entry in std::fs::read_dir(&bench.repo().folder).unwrap().flatten().filter(|e| e.path().is_file()) {
        all.push_str(&std::fs::read_to_string(entry.path()).unwrap());
    }
    assert!(all.contains(SHARDS[0]), "{all}");
    assert!(!all.contains("Signature") && !all.contains(TOKEN), "{all}");
}

#[test]
fn the_limit_holds_and_can_change() {
    let bench = Bench::new();
    let settings = |rate: &str| {
        std::fs::create_dir_all(bench.home()).unwrap();
        std::fs::write(bench.home().join("settings.toml"), format!("[models]\nrate_limit = {rate}\n")).unwrap();
    };
    settings("40000");
    let models = bench.models();
    let begin = Instant::now();
    models.pull(REPO, PullOptions::default()).unwrap();
    until("some of it is here", || find(&models, REPO).unwrap().done > 80_000);
    let slow = begin.elapsed();
    assert!(slow > Duration::from_millis(600), "{slow:?}");
    let pull = find(&models, REPO).unwrap();
    assert!(pull.phase == PullPhase::Fetching && (1..120_000).contains(&pull.rate), "{pull:?}");
    assert!(pull.seconds_left.is_some_and(|s| s > 5), "{pull:?}");
    settings("1000000000");
    let quick = Instant::now();
    done(&models, REPO);
    assert!(quick.elapsed() < Duration::from_secs(15), "at the old limit it takes 23 s: {:?}", quick.elapsed());
}
