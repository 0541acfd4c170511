use std::fs;
use std::time::Instant;

use keyring_core::mock::{Cred, Store};
use keyring_core::{CredentialStore, Error as Trouble};

use super::*;

const SOON: Duration = Duration::from_secs(20);

fn secret(text: &str) -> Secret {
    Secret::new(text).unwrap()
}

fn entry(store: &Arc<CredentialStore>) -> Entry {
    store.build(SERVICE, USER, None).unwrap()
}

fn with(store: &Arc<CredentialStore>) -> Secrets {
    let store = store.clone();
    Secrets::new(Vec::new(), None, Box::new(move || store.build(SERVICE, USER, None)), SOON)
}

fn without() -> Secrets {
    Secrets::new(Vec::new(), None, Box::new(|| Err(Trouble::PlatformFailure("no bus".into()))), SOON)
}

fn store() -> Arc<CredentialStore> {
    Store::new().unwrap()
}

fn exposed(secrets: &Secrets) -> Option<String> {
    secrets.token().unwrap().map(|s| s.expose().to_owned())
}

#[test]
fn it_is_kept_in_the_keyring_and_found_there() {
    let store = store();
    let secrets = with(&store);
    assert_eq!((secrets.show(), exposed(&secrets)), (TokenState { kept: TokenKept::None, note: None }, None));
    assert_eq!(secrets.set(Some(secret("hf_abc"))), TokenState { kept: TokenKept::Keyring, note: None });
    assert_eq!(entry(&store).get_password().unwrap(), "hf_abc");
    // Another process finds it, and forgets it.
    let other = with(&store);
    assert_eq!((other.show().kept, exposed(&other).as_deref()), (TokenKept::Keyring, Some("hf_abc")));
    assert_eq!(other.set(None), TokenState { kept: TokenKept::None, note: None });
    assert!(matches!(entry(&store).get_password(), Err(Trouble::NoEntry)));
    assert_eq!(exposed(&other), None);
    // What is not there is forgotten already.
    assert_eq!(other.set(None).kept, TokenKept::None);
}

/// A keyring that asks its user each time would ask for every download.
#[test]
fn it_is_read_once() {
    let store = store();
    entry(&store).set_password("hf_abc").unwrap();
    let opened = Arc::new(Mutex::new(0));
    let (counted, kept) = (opened.clone(), store.clone());
    let open = move || {
        *counted.lock().unwrap() += 1;
        kept.build(SERVICE, USER, None)
    };
    let secrets = Secrets::new(Vec::new(), None, Box::new(open), SOON);
    assert_eq!(exposed(&secrets).as_deref(), Some("hf_abc"));
    entry(&store).set_password("changed behind its back").unwrap();
    assert_eq!(exposed(&secrets.clone()).as_deref(), Some("hf_abc"));
    assert_eq!(*opened.lock().unwrap(), 1);
}

#[test]
fn without_a_keyring_it_lasts_for_the_session_and_says_so() {
    let secrets = without();
    let none = secrets.show();
    assert!(none.kept == TokenKept::None && none.note.unwrap().contains("no secure store"));
    let kept = secrets.set(Some(secret("hf_abc")));
    assert_eq!((kept.kept, exposed(&secrets).as_deref()), (TokenKept::Session, Some("hf_abc")));
    assert!(kept.note.unwrap().contains("until this program ends"));
    let forgotten = secrets.set(None);
    assert_eq!((forgotten.kept, exposed(&secrets)), (TokenKept::None, None));
    assert!(forgotten.note.unwrap().contains("stays there"));
}

#[test]
fn a_locked_keyring_is_asked_again_when_there_is_something_to_keep() {
    let store = store();
    let credential = entry(&store);
    let fail = || {
        let cred = credential.as_any().downcast_ref::<Cred>().unwrap();
        cred.set_error(Trouble::NoStorageAccess("locked: hf_in_the_error".into()));
    };
    let secrets = with(&store);
    fail();
    let kept = secrets.set(Some(secret("hf_abc")));
    assert_eq!(kept.kept, TokenKept::Session);
    let note = kept.note.unwrap();
    assert!(note.contains("locked") && !note.contains("hf_"), "{note}");
    assert_eq!(secrets.set(Some(secret("hf_def"))).kept, TokenKept::Keyring);
    assert_eq!(exposed(&secrets).as_deref(), Some("hf_def"));
}

/// A prompt that nobody answers must not stop a download from beginning, and its late answer counts.
#[test]
fn nobody_waits_for_ever() {
    let store = store();
    entry(&store).set_password("hf_late").unwrap();
    let (unlock, locked) = mpsc::channel::<()>();
    let kept = store.clone();
    let open = move || {
        let _ = locked.recv();
        kept.build(SERVICE, USER, None)
    };
    let secrets = Secrets::new(Vec::new(), None, Box::new(open), Duration::from_millis(50));
    let began = Instant::now();
    let shown = secrets.show();
    assert!(began.elapsed() < Duration::from_secs(10));
    assert!(shown.kept == TokenKept::None && shown.note.unwrap().contains("password"));
    // A token that is set meanwhile is used at once, and is kept as soon as it can be.
    assert_eq!(secrets.set(Some(secret("hf_new"))).kept, TokenKept::Session);
    assert_eq!(exposed(&secrets).as_deref(), Some("hf_new"));
    drop(unlock);
    while secrets.show().kept != TokenKept::Keyring || entry(&store).get_password().unwrap() != "hf_new" {
        assert!(began.elapsed() < SOON, "{:?}", secrets.show());
        thread::yield_now();
    }
    assert_eq!(exposed(&secrets).as_deref(), Some("hf_new"));
}

#[test]
fn a_keyring_that_dies_is_none() {
    let secrets = Secrets::new(Vec::new(), None, Box::new(|| panic!("the store's own fault")), SOON);
    assert_eq!(secrets.set(Some(secret("hf_abc"))).kept, TokenKept::Session);
    assert_eq!(secrets.set(Some(secret("hf_def"))).kept, TokenKept::Session);
    assert_eq!(exposed(&secrets).as_deref(), Some("hf_def"));
}

/// Environment, keyring, session, file.
#[test]
fn the_order() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, "hf_file\n").unwrap();
    let make = |environment: Vec<(&'static str, Option<Secret>)>, store: Option<Arc<CredentialStore>>| {
        let open = move || match &store {
            Some(store) => store.build(SERVICE, USER, None),
            None => Err(Trouble::PlatformFailure("none".into())),
        };
        Secrets::new(environment, Some(file.clone()), Box::new(open), SOON)
    };
    let secrets = make(Vec::new(), None);
    assert_eq!((secrets.show().kept, exposed(&secrets).as_deref()), (TokenKept::File, Some("hf_file")));
    secrets.set(Some(secret("hf_session")));
    assert_eq!((secrets.show().kept, exposed(&secrets).as_deref()), (TokenKept::Session, Some("hf_session")));
    let store = store();
    let secrets = make(Vec::new(), Some(store.clone()));
    assert_eq!(secrets.show().kept, TokenKept::File);
    secrets.set(Some(secret("hf_keyring")));
    assert_eq!((secrets.show().kept, exposed(&secrets).as_deref()), (TokenKept::Keyring, Some("hf_keyring")));
    let secrets =
        make(vec![("HF_TOKEN", Some(secret("hf_env"))), ("HUGGING_FACE_HUB_TOKEN", Some(secret("hf_old")))], Some(store));
    let shown = secrets.show();
    assert_eq!((shown.kept, exposed(&secrets).as_deref()), (TokenKept::Environment, Some("hf_env")));
    assert!(shown.note.unwrap().contains("HF_TOKEN"));
    // The file is read and never written.
    assert_eq!(fs::read_to_string(&file).unwrap(), "hf_file\n");
    fs::write(&file, "x y\nz").unwrap();
    assert_eq!(make(Vec::new(), None).show().kept, TokenKept::None);
}

#[test]
fn what_is_no_token_is_refused_by_name() {
    let environment = vec![("HF_TOKEN", None), ("HUGGING_FACE_HUB_TOKEN", Some(secret("hf_old")))];
    let secrets = Secrets::new(environment, None, Box::new(|| Err(Trouble::NoDefaultStore)), SOON);
    let e = secrets.token().unwrap_err().to_string();
    assert!(e.contains("HF_TOKEN") && e.contains("unset it") && !e.contains("hf_old"), "{e}");
    let shown = secrets.show();
    assert!(shown.kept == TokenKept::None && shown.note.as_ref().is_some_and(|n| n.contains("HF_TOKEN")), "{shown:?}");
}

#[test]
fn forgetting_does_not_hide_what_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, "hf_file").unwrap();
    let secrets = Secrets::new(Vec::new(), Some(file.clone()), Box::new(|| Err(Trouble::NoDefaultStore)), SOON);
    secrets.set(Some(secret("hf_session")));
    let shown = secrets.set(None);
    let note = shown.note.unwrap();
    assert!(shown.kept == TokenKept::File && note.contains("forgotten here") && note.contains("hub's own tools"), "{note}");
    fs::remove_file(&file).unwrap();
    assert_eq!(secrets.set(None).kept, TokenKept::None);
}

#[test]
fn it_is_shown_nowhere() {
    let store = store();
    let secrets = with(&store);
    secrets.set(Some(secret("hf_abc")));
    let shown = format!("{:?} {:?} {:?}", secrets.token(), secrets.show(), secrets.state());
    assert!(!shown.contains("hf_abc") && shown.contains("Secret(…)"), "{shown}");
    for text in ["", "  ", "hf abc", "hf_\u{e9}", "a\0b", &"x".repeat(LONGEST + 1)] {
        let e = Secret::new(text).unwrap_err();
        assert!(e.code() == "invalid_request" && (text.trim().is_empty() || !e.to_string().contains(text)), "{e}");
    }
    assert_eq!(Secret::new(" hf_abc\n").unwrap().expose(), "hf_abc");
}

#[test]
fn a_keyring_that_comes_back_is_asked_again() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let store = store();
    entry(&store).set_password("hf_abc").unwrap();
    let there = Arc::new(AtomicBool::new(false));
    let secrets = |retry| {
        let (kept, there) = (store.clone(), there.clone());
        let open = move || {
            if there.load(Ordering::Relaxed) {
                kept.build(SERVICE, USER, None)
            } else {
                Err(Trouble::PlatformFailure("no bus".into()))
            }
        };
        let mut secrets = Secrets::new(Vec::new(), None, Box::new(open), SOON);
        Arc::get_mut(&mut secrets.0).unwrap().retry = retry;
        secrets
    };
    let away = || there.store(false, Ordering::Relaxed);
    let back = || there.store(true, Ordering::Relaxed);
    let patient = secrets(Duration::from_secs(3600));
    assert_eq!(exposed(&patient), None);
    back();
    assert_eq!(exposed(&patient), None, "not for every request");
    assert_eq!(patient.show().kept, TokenKept::Keyring, "but where somebody looks");
    assert_eq!(exposed(&patient).as_deref(), Some("hf_abc"));
    // By itself after a while.
    away();
    let quick = secrets(Duration::ZERO);
    assert_eq!(exposed(&quick), None);
    back();
    assert_eq!(exposed(&quick).as_deref(), Some("hf_abc"));
    // What it could not keep it keeps then.
    away();
    let late = secrets(Duration::from_secs(3600));
    assert_eq!(late.set(Some(secret("hf_new"))).kept, TokenKept::Session);
    back();
    assert_eq!(late.show(), TokenState { kept: TokenKept::Keyring, note: None });
    assert_eq!(entry(&store).get_password().unwrap(), "hf_new");
}
