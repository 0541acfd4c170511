//! Doors that are closed, and which key is missing.

use rmlx_engine::api::PullPhase;

use crate::bench::{Bench, REPO, done, failed, fetch, repository, tuning};
use crate::hub::{STRANGER, TOKEN, What, lock};

#[test]
fn a_gated_repository_says_what_to_do() {
    let bench = Bench::new();
    lock(&bench.hub.state.repos).get_mut(REPO).unwrap()[0].gated = true;
    let page = format!("{}/{REPO}", bench.hub.endpoint);
    let tokens = format!("{}/settings/tokens", bench.hub.endpoint);
    for (token, code, said, address) in [
        (None, "hub_gated", "terms to be accepted", &page),
        (Some(STRANGER), "hub_gated", "with that account", &page),
        (Some("hf_nobody"), "hub_token", "does not know the access token", &tokens),
    ] {
        let models = bench.models_with(tuning(), token);
        let (got, message) = failed(&models, REPO);
        assert_eq!(got, code, "{token:?}: {message}");
        assert!(message.contains(said) && message.contains(address.as_str()), "{token:?}: {message}");
        assert!(token.is_none_or(|t| !message.contains(t)), "{message}");
        assert!(!bench.repo().folder.exists(), "nothing came, nothing stays");
    }
    done(&bench.models_with(tuning(), Some(TOKEN)), REPO);
    bench.assert_whole(&repository(10));
}

#[test]
fn what_is_not_there_is_not_found() {
    let bench = Bench::new();
    for (model, token, said) in [
        ("acme/none", None, "private"),
        ("acme/none", Some(TOKEN), "there is no repository acme/none"),
        ("acme/tiny@none", None, "no such revision"),
    ] {
        let (code, message) = failed(&bench.models_with(tuning(), token), model);
        assert!(code == "hub_not_found" && message.contains(said), "{message}");
        assert!(message.contains("hint:"), "{message}");
    }
    assert!(std::fs::read_dir(bench.cache().root).unwrap().flatten().all(|e| e.file_name() == ".locks"), "no folders stay");
}

#[test]
fn a_repository_without_weights_is_no_model() {
    let bench = Bench::new();
    bench.hub.add(crate::hub::Repository::new("acme/data", &[("config.json", b"{}".to_vec()), ("a.gguf", vec![1])]));
    let (code, message) = failed(&bench.models(), "acme/data");
    assert!(code == "unsupported_model" && message.contains("safetensors"), "{message}");
    assert!(bench.hub.sent().is_empty());
}

#[test]
fn who_asks_too_often_waits_as_long_as_told() {
    for file in ["listing", "config.json"] {
        let bench = Bench::new();
        let wait = vec![("Retry-After", "1".to_owned())];
        bench.hub.fault(file, 1, What::Status(429, wait));
        let models = bench.models();
        let begin = std::time::Instant::now();
        models.pull(REPO, Default::default()).unwrap();
        let mut seen = None;
        crate::bench::until("it waits", || {
            seen = crate::bench::find(&models, REPO).filter(|p| p.phase == PullPhase::Waiting);
            seen.is_some()
        });
        assert_eq!(seen.unwrap().error.unwrap().code, "hub_busy");
        // Not before the time that the server named.
        crate::bench::until("it is done", || crate::bench::find(&models, REPO).is_some_and(|p| p.phase == PullPhase::Done));
        assert!(begin.elapsed() >= std::time::Duration::from_secs(1), "{:?}", begin.elapsed());
        let pull = fetch(&models, REPO);
        assert_eq!((pull.phase, pull.error), (PullPhase::Done, None));
        bench.assert_whole(&repository(10));
    }
}
