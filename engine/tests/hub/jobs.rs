//! Downloads as jobs: pause, cancel, one for a model, one after another, seen from another process.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rmlx_engine::api::{Pull, PullOptions, PullPhase};
use rmlx_engine::engine::Models;
use rmlx_engine::error::Error;

use crate::bench::{Bench, REPO, SHARD, SHARDS, done, failed, fetch, find, leftovers, repository, tuning, until};
use crate::hub::{Repository, What, lock};

/// A download of which some is here and more is to come.
fn begun(bench: &Bench, models: &Models) -> Pull {
    bench.hub.hold_after(400_000);
    models.pull(REPO, PullOptions::default()).unwrap();
    let mut pull = None;
    until("a part of it is here", || {
        pull = find(models, REPO);
        pull.as_ref().is_some_and(|p| p.done > 300_000)
    });
    pull.unwrap()
}

#[test]
fn pause_stops_everything_and_resume_asks_for_the_rest() {
    let bench = Bench::new();
    let models = bench.models();
    begun(&bench, &models);
    let begin = Instant::now();
    models.pause(REPO).unwrap();
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    let paused = find(&models, REPO).unwrap();
    assert_eq!((paused.phase, paused.rate, paused.elsewhere), (PullPhase::Paused, 0, false));
    assert!(paused.done > 300_000 && paused.total.is_some_and(|t| t > paused.done), "{paused:?}");
    until("sockets are closed", || bench.hub.state.sending.load(Ordering::Relaxed) == 0);
    thread::sleep(Duration::from_millis(300));
    assert_eq!(find(&models, REPO), Some(paused.clone()), "nothing comes after a pause");
    assert!(!bench.repo().folder.join("snapshots").exists());
    bench.hub.release();
    bench.hub.forget();
    done(&models, REPO);
    bench.assert_whole(&repository(10));
    let sent: u64 = bench.hub.sent().values().sum();
    assert_eq!(sent, paused.total.unwrap() - paused.done, "nothing comes twice");
    assert_eq!(models.pause("acme/none").unwrap_err().code(), "not_found");
}

#[test]
fn cancel_leaves_nothing_but_what_others_use() {
    let bench = Bench::new();
    let models = bench.models();
    begun(&bench, &models);
    let begin = Instant::now();
    models.cancel(REPO).unwrap();
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    assert!(find(&models, REPO).is_none() && !bench.repo().folder.exists(), "{:?}", leftovers(&bench.cache().root));
    until("sockets are closed", || bench.hub.state.sending.load(Ordering::Relaxed) == 0);
    assert_eq!(models.cancel(REPO).unwrap_err().code(), "not_found");
    // With a whole snapshot beside it: the first shard is the same in both.
    bench.hub.release();
    done(&models, REPO);
    let mut next = repository(20);
    *next.files.iter_mut().find(|f| f.name == SHARDS[0]).unwrap() = repository(10).file(SHARDS[0]).clone();
    next.branches = vec!["next".into()];
    bench.hub.add(next);
    bench.hub.hold_after(100_000);
    let model = format!("{REPO}@next");
    models.pull(&model, PullOptions::default()).unwrap();
    let there = SHARD as u64 + 20_000;
    until("a part of it is here", || find(&models, &model).is_some_and(|p| p.done > there + 50_000));
    models.cancel(&model).unwrap();
    bench.assert_whole(&repository(10));
    assert_eq!(models.pulls().len(), 1, "only what is done");
}

#[test]
fn a_paused_download_can_be_cancelled_after_a_restart() {
    let bench = Bench::new();
    begun(&bench, &bench.models());
    let models = bench.models();
    assert_eq!(find(&models, REPO).unwrap().phase, PullPhase::Paused);
    models.cancel(REPO).unwrap();
    assert!(models.pulls().is_empty() && !bench.repo().folder.exists());
}

#[test]
fn two_requests_are_one_download() {
    let bench = Bench::new();
    let models = bench.models();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| models.pull(REPO, PullOptions::default()).unwrap());
        }
    });
    done(&models, REPO);
    assert_eq!(models.pulls().len(), 1);
    let sent: u64 = bench.hub.sent().values().sum();
    assert_eq!(sent, find(&models, REPO).unwrap().total.unwrap());
}

#[test]
fn downloads_take_turns_and_those_that_wait_let_others_go() {
    let bench = Bench::new();
    let other = |name: &str| Repository { name: name.into(), ..repository(30) };
    bench.hub.add(other("acme/second"));
    bench.hub.add(Repository { branches: vec!["next".into()], ..repository(40) });
    let models = bench.models();
    begun(&bench, &models);
    let next = format!("{REPO}@next");
    for model in ["acme/second", &next] {
        models.pull(model, PullOptions::default()).unwrap();
        until("it is queued", || find(&models, model).is_some_and(|p| p.phase == PullPhase::Queued));
    }
    assert!(!bench.hub.seen().iter().any(|s| s.path.starts_with("/acme/second/resolve")));
    // The first one is sent away for ten minutes before it has all its parts, and lets the second one go.
    let phase = |model: &str| find(&models, model).unwrap().phase;
    for shard in SHARDS {
        bench.hub.fault(&format!("{REPO}/{shard}"), 100_000, What::Status(429, vec![("Retry-After", "600".into())]));
    }
    bench.hub.release();
    until("the second one is done", || phase("acme/second") == PullPhase::Done);
    assert_eq!((phase(REPO), phase(&next)), (PullPhase::Waiting, PullPhase::Queued), "the same repository is one at a time");
    assert_eq!(find(&models, REPO).unwrap().error.unwrap().code, "hub_busy");
    bench.hub.clear_faults();
    // Who asks again need not wait.
    models.pull(REPO, PullOptions::default()).unwrap();
    until("all are done", || phase(REPO) == PullPhase::Done && phase(&next) == PullPhase::Done);
}

#[test]
fn another_process_follows_and_takes_over() {
    let bench = Bench::new();
    // Locks belong to open files, so a second handle is as good as a second process.
    let (first, second) = (bench.models(), bench.models());
    begun(&bench, &first);
    let listed = find(&second, REPO).unwrap();
    assert!(listed.elsewhere && listed.phase == PullPhase::Fetching && listed.done > 0, "{listed:?}");
    second.pull(REPO, PullOptions::default()).unwrap();
    until("it follows", || find(&second, REPO).is_some_and(|p| p.elsewhere && p.done > 300_000 && p.total.is_some()));
    assert_eq!(second.cancel(REPO).unwrap_err().code(), "invalid_request", "it is not ours to remove");
    second.pull(REPO, PullOptions::default()).unwrap();
    until("it follows", || find(&second, REPO).is_some_and(|p| p.elsewhere));
    // As if its process had ended.
    drop(first);
    bench.hub.release();
    until("it is done", || find(&second, REPO).is_some_and(|p| p.phase == PullPhase::Done));
    bench.assert_whole(&repository(10));
    let sent: u64 = bench.hub.sent().values().sum();
    let total = find(&second, REPO).unwrap().total.unwrap();
    assert!(sent <= total + 4 * (256 << 10), "{sent} of {total}");
}

#[test]
fn what_another_process_ends_is_ended_here() {
    let bench = Bench::new();
    for (end, phase) in [
        (
            &(|first: &Models, bench: &Bench| {
                bench.hub.release();
                done(first, REPO);
            }) as &dyn Fn(&Models, &Bench),
            Some(PullPhase::Done),
        ),
        (&|first, _| first.pause(REPO).unwrap(), Some(PullPhase::Paused)),
        (&|first, _| first.cancel(REPO).unwrap(), None),
    ] {
        let (first, second) = (bench.models(), bench.models());
        begun(&bench, &first);
        second.pull(REPO, PullOptions::default()).unwrap();
        until("it follows", || find(&second, REPO).is_some_and(|p| p.elsewhere && p.total.is_some()));
        end(&first, &bench);
        until("it ends", || find(&second, REPO).map(|p| (p.phase, p.elsewhere)) == phase.map(|p| (p, false)));
        if phase == Some(PullPhase::Done) {
            bench.assert_whole(&repository(10));
        }
        drop((first, second));
        let _ = std::fs::remove_dir_all(&bench.repo().folder);
    }
}

#[test]
fn what_was_paused_before_goes_on_when_another_process_is_through() {
    let bench = Bench::new();
    let models = bench.models();
    begun(&bench, &models);
    models.pause(REPO).unwrap();
    bench.hub.release();
    // Somebody else's, for another revision say.
    let lock = bench.repo().lock().unwrap().unwrap();
    models.pull(REPO, PullOptions::default()).unwrap();
    until("it waits", || find(&models, REPO).is_some_and(|p| p.elsewhere));
    drop(lock);
    until("it is done", || find(&models, REPO).is_some_and(|p| p.phase == PullPhase::Done));
    bench.assert_whole(&repository(10));
}

#[test]
fn watchers_hear_of_every_step() {
    let bench = Bench::new();
    let models = bench.models();
    let heard: Arc<Mutex<Vec<Vec<Pull>>>> = Arc::default();
    let writes = heard.clone();
    models.watch_pulls(move |pulls| lock(&writes).push(pulls.to_vec()));
    bench.hub.pace(40_000);
    begun(&bench, &models);
    until("progress is told", || lock(&heard).len() > 6);
    bench.hub.pace(0);
    bench.hub.release();
    done(&models, REPO);
    until("the end is told", || lock(&heard).last().is_some_and(|p| p.len() == 1 && p[0].phase == PullPhase::Done));
    let all = lock(&heard).clone();
    assert!(all.windows(2).all(|w| w[0] != w[1]), "only changes");
    let counts: Vec<u64> = all.iter().filter_map(|p| p.first()).map(|p| p.done).collect();
    assert!(counts.last() > counts.first() && counts.is_sorted(), "{counts:?}");
    // Then it is quiet.
    let before = lock(&heard).len();
    thread::sleep(Duration::from_millis(400));
    assert_eq!(lock(&heard).len(), before);
}

#[test]
fn a_panic_ends_one_download() {
    let bench = Bench::new();
    let mut setup = bench.setup(tuning(), None);
    bench.hub.add(Repository { name: "acme/second".into(), ..repository(30) });
    setup.check = Arc::new(|asked| {
        Box::pin(async move {
            assert_ne!(asked.listing.repo, "acme/second", "a planted panic");
            Ok(())
        })
    });
    let models = Models::with(setup);
    let pull = fetch(&models, "acme/second");
    assert_eq!((pull.phase, pull.error.unwrap().code), (PullPhase::Failed, "internal".into()));
    done(&models, REPO);
}

#[test]
fn what_the_check_says_ends_it_before_a_byte() {
    let bench = Bench::new();
    let mut setup = bench.setup(tuning(), None);
    setup.check = Arc::new(|asked| {
        Box::pin(async move {
            assert!(asked.disk.fits && asked.files.iter().any(|f| f.name == SHARDS[0]));
            if asked.options.anyway { Ok(()) } else { Err(Error::Unsupported("no such arithmetic".into())) }
        })
    });
    let models = Models::with(setup);
    let (code, message) = failed(&models, REPO);
    assert!(code == "unsupported_model" && message.contains("arithmetic"), "{message}");
    assert!(bench.hub.sent().is_empty() && !bench.repo().folder.exists());
    models.pull(REPO, PullOptions { anyway: true }).unwrap();
    until("it is done", || find(&models, REPO).is_some_and(|p| p.phase == PullPhase::Done));
}

/// Refuses every repository to those who do not want it anyway.
fn stern(bench: &Bench) -> Models {
    let mut setup = bench.setup(tuning(), None);
    setup.check = Arc::new(|asked| {
        Box::pin(async move { if asked.options.anyway { Ok(()) } else { Err(Error::Unsupported("no such arithmetic".into())) } })
    });
    Models::with(setup)
}

#[test]
fn what_was_begun_anyway_goes_on_anyway_and_nothing_else_does() {
    let bench = Bench::new();
    let anyway = PullOptions { anyway: true };
    let begin = |models: &Models| {
        bench.hub.hold_after(300_000);
        models.pull(REPO, anyway).unwrap();
        until("a part of it is here", || find(models, REPO).is_some_and(|p| p.done >= 300_000));
    };
    // Paused, or ended with its process: it is in the record.
    let models = stern(&bench);
    begin(&models);
    models.pause(REPO).unwrap();
    drop(models);
    bench.hub.release();
    done(&stern(&bench), REPO);
    bench.assert_whole(&repository(10));

    // A branch that moved is another model, which nobody agreed to.
    std::fs::remove_dir_all(&bench.repo().folder).unwrap();
    let models = stern(&bench);
    begin(&models);
    drop(models);
    bench.hub.release();
    bench.hub.add(repository(20));
    let models = stern(&bench);
    assert_eq!(failed(&models, REPO).0, "unsupported_model");
    models.cancel(REPO).unwrap();

    // What was begun without a problem is looked at again, however much of it is here.
    let easy = bench.models();
    begun(&bench, &easy);
    easy.pause(REPO).unwrap();
    drop(easy);
    bench.hub.release();
    let models = stern(&bench);
    assert_eq!(failed(&models, REPO).0, "unsupported_model");
    models.pull(REPO, anyway).unwrap();
    until("it is done", || find(&models, REPO).is_some_and(|p| p.phase == PullPhase::Done));
    bench.assert_whole(&repository(20));
}

/// One of two who ask for the same wants it anyway: so it is for both, and after a pause too.
#[test]
fn who_joins_and_wants_it_anyway_is_heard() {
    let bench = Bench::new();
    let models = bench.models();
    begun(&bench, &models);
    models.pull(REPO, PullOptions { anyway: true }).unwrap();
    models.pause(REPO).unwrap();
    bench.hub.release();
    drop(models);
    done(&stern(&bench), REPO);
    bench.assert_whole(&repository(10));
}
