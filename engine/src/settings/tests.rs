use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Arc;
use std::thread;

use proptest::prelude::*;
use serde_json::json;
use tempfile::tempdir;

use super::*;
use crate::api::{ChatSettings, EndpointSettings, Theme};

fn text(home: &Path) -> String {
    fs::read_to_string(path(home)).unwrap()
}

#[test]
fn the_file_holds_the_differences_only() {
    let folder = tempdir().unwrap();
    let home = folder.path().join("home");
    assert_eq!(read(&home).unwrap(), Settings::default());
    assert!(!home.exists(), "reading makes nothing");
    assert_eq!(change(&home, &json!({})).unwrap(), Settings::default());
    assert!(!path(&home).exists(), "nothing differs");
    let patch = json!({ "theme": "dark", "chat": { "temperature": 0.7 }, "endpoint": { "port": 8080, "enabled": true } });
    let after = change(&home, &patch).unwrap();
    assert_eq!(
        after,
        Settings {
            theme: Theme::Dark,
            chat: ChatSettings { temperature: Some(0.7), ..ChatSettings::default() },
            endpoint: EndpointSettings { enabled: true, port: 8080 },
            ..Settings::default()
        }
    );
    assert_eq!(text(&home), "theme = \"dark\"\n\n[chat]\ntemperature = 0.7\n\n[endpoint]\nenabled = true\n");
    assert_eq!(read(&home).unwrap(), after);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&home), mode(&path(&home))), (0o700, 0o600));
    // Others stay; null is the default.
    change(&home, &json!({ "chat": { "temperature": null, "max_tokens": 5 }, "model": "m" })).unwrap();
    assert_eq!(text(&home), "model = \"m\"\ntheme = \"dark\"\n\n[chat]\nmax_tokens = 5\n\n[endpoint]\nenabled = true\n");
    let reset = json!({ "chat": null, "model": null, "theme": null, "endpoint": { "enabled": null } });
    assert_eq!(change(&home, &reset).unwrap(), Settings::default());
    assert_eq!(text(&home), "");
    assert_eq!(fs::read_dir(&home).unwrap().count(), 2, "the file and its lock");
}

#[test]
fn what_is_wrong_is_named_and_nothing_is_changed() {
    let folder = tempdir().unwrap();
    let home = folder.path();
    change(home, &json!({ "theme": "light" })).unwrap();
    for (patch, named) in [
        (json!({ "them": "dark" }), "them: no such setting\nhint: is theme meant?"),
        (json!({ "chat": { "temprature": 1 } }), "chat.temprature: no such setting\nhint: is chat.temperature meant?"),
        (json!({ "temperature": 1 }), "temperature: no such setting\nhint: is chat.temperature meant?"),
        (json!({ "port": 1 }), "port: no such setting\nhint: is endpoint.port meant?"),
        (json!({ "entirely_else": 1 }), "hint: there are model, theme"),
        (json!({ "theme": "blue" }), "theme: "),
        (json!({ "theme": 1 }), "theme: "),
        (json!({ "shortcut": "a\nb" }), "shortcut: "),
        (json!({ "model": "" }), "model: "),
        (json!({ "model": ["m"] }), "model: "),
        (json!({ "chat": 1 }), "chat: must be a table"),
        (json!({ "chat": { "temperature": -0.1 } }), "chat.temperature: "),
        (json!({ "chat": { "temperature": "hot" } }), "chat.temperature: "),
        (json!({ "chat": { "temperature": 1e300 } }), "chat.temperature: "),
        (json!({ "chat": { "max_tokens": 0 } }), "chat.max_tokens: "),
        (json!({ "chat": { "max_tokens": 1.5 } }), "chat.max_tokens: "),
        (json!({ "endpoint": { "port": 0 } }), "endpoint.port: "),
        (json!({ "endpoint": { "port": 65536 } }), "endpoint.port: "),
        (json!({ "endpoint": { "enabled": "yes" } }), "endpoint.enabled: "),
        (json!([]), "an object of fields"),
        (json!(null), "an object of fields"),
    ] {
        let error = change(home, &patch).unwrap_err();
        assert_eq!(error.code(), "invalid_request", "{patch}");
        assert!(error.to_string().contains(named), "{patch}: {error}");
        assert_eq!(text(home), "theme = \"light\"\n");
    }
}

#[test]
fn a_broken_file_is_named_and_never_overwritten() {
    let folder = tempdir().unwrap();
    let home = folder.path();
    for (broken, named) in [
        ("theme = ", "line 1"),
        ("colour = 1", "colour: no such setting"),
        ("[chat]\ntemprature = 1", "is chat.temperature meant?"),
        ("[endpoint]\nport = 0", "endpoint.port: "),
        ("theme = 2020-01-01", "theme: "),
        ("chat = 1", "chat: "),
        ("[chat]\ntemperature = nan", "chat.temperature: "),
        ("[chat]\ntemperature = inf", "chat.temperature: "),
    ] {
        fs::write(path(home), broken).unwrap();
        for error in [read(home).unwrap_err(), change(home, &json!({ "theme": "dark" })).unwrap_err()] {
            let told = error.to_string();
            assert!(error.code() == "bad_file" && told.contains("settings.toml") && told.contains(named), "{broken}: {told}");
        }
        assert_eq!(text(home), broken);
    }
    fs::write(path(home), b"model = \"\xff\"").unwrap();
    assert!(read(home).unwrap_err().to_string().contains("not UTF-8"));
    fs::write(path(home), "#".repeat((1 << 20) + 1)).unwrap();
    assert!(read(home).unwrap_err().to_string().contains("more than"));
    fs::write(path(home), format!("model = {}", "[".repeat(100_000))).unwrap();
    let error = read(home).unwrap_err();
    assert!(error.code() == "bad_file" && error.to_string().len() < 2000);
    fs::remove_file(path(home)).unwrap();
    fs::create_dir(path(home)).unwrap();
    assert_eq!(read(home).unwrap_err().code(), "bad_file");
}

#[test]
fn a_link_stays_one_and_what_is_half_written_does_not_count() {
    let folder = tempdir().unwrap();
    let home = folder.path().join("home");
    fs::create_dir(&home).unwrap();
    let real = folder.path().join("dotfiles.toml");
    fs::write(&real, "theme = \"dark\"\n").unwrap();
    symlink(&real, path(&home)).unwrap();
    fs::write(home.join("settings.toml.partial"), "what a killed process left = ").unwrap();
    assert_eq!(change(&home, &json!({ "model": "m" })).unwrap().theme, Theme::Dark);
    assert!(fs::symlink_metadata(path(&home)).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(real).unwrap(), "model = \"m\"\ntheme = \"dark\"\n");
}

#[test]
fn many_writers_lose_nothing() {
    let folder = tempdir().unwrap();
    let home = Arc::new(folder.path().to_path_buf());
    // Each has the lock by a file of its own, as processes have.
    let fields: [&dyn Fn(u32) -> Value; 3] = [
        &|n| json!({ "endpoint": { "port": 1000 + n } }),
        &|n| json!({ "chat": { "max_tokens": 1 + n } }),
        &|n| json!({ "model": format!("model {n}") }),
    ];
    let patches: Vec<Vec<Value>> = fields.iter().map(|field| (0..50).map(field).collect()).collect();
    let threads: Vec<_> = patches
        .into_iter()
        .map(|patches| {
            let home = home.clone();
            thread::spawn(move || patches.iter().for_each(|patch| drop(change(&home, patch).unwrap())))
        })
        .collect();
    while threads.iter().any(|t| !t.is_finished()) {
        read(&home).unwrap();
    }
    threads.into_iter().for_each(|t| t.join().unwrap());
    let last = read(&home).unwrap();
    assert_eq!((last.endpoint.port, last.chat.max_tokens, last.model.as_deref()), (1049, Some(50), Some("model 49")));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn what_is_set_is_read_again(
        model in prop::option::of("[^\\p{Cc}\\s][^\\p{Cc}]{0,20}"),
        system in "(?s).{0,60}",
        temperature in prop::option::of(0f32..1e6),
        max_tokens in prop::option::of(1usize..1 << 40),
        port in 1u16..,
        enabled: bool,
    ) {
        let folder = tempdir().unwrap();
        let settings = Settings {
            model,
            chat: ChatSettings { system, temperature, max_tokens },
            endpoint: EndpointSettings { enabled, port },
            ..Settings::default()
        };
        let patch = serde_json::to_value(&settings).unwrap();
        prop_assert_eq!(&change(folder.path(), &patch).unwrap(), &settings);
        prop_assert_eq!(&read(folder.path()).unwrap(), &settings);
    }

    #[test]
    fn no_text_and_no_patch_makes_it_panic(text in "(?s).{0,80}", key in "[a-z._]{0,12}", value in "[0-9.\\-a-z\"\\[\\]{}]{0,8}") {
        let folder = tempdir().unwrap();
        fs::write(path(folder.path()), text).unwrap();
        let _ = read(folder.path());
        let value = serde_json::from_str(&value).unwrap_or(Value::Null);
        let _ = changed(&Settings::default(), &json!({ key: value }));
    }
}
