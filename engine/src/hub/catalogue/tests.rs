use serde_json::{Value, json};

use super::*;

fn nowhere(_: &str) -> bool {
    false
}

/// What the hub would be read to say of a repository.
fn read() -> Value {
    json!({ "o/n": {
        "origin": "https://huggingface.co/api/models/o/n?blobs=true", "date": "2026-12-01", "commit": "a".repeat(40), "license": "mit",
        "files": [
            { "name": "config.json", "bytes": 5, "sha256": null, "git": "b".repeat(40) },
            { "name": "model.safetensors", "bytes": 70, "sha256": "c".repeat(64), "git": null },
        ],
    } })
}

const ONE: &str = "[[model]]\nrepo = \"o/n\"\ntitle = \"T\"\ntask = \"chat\"\nmemory_gb = 8\nwhy = \"w\"\nverified = false\n";

#[test]
fn the_committed_list_is_whole() {
    let entries = entries(None, &nowhere).unwrap();
    assert!(entries.len() > 5);
    // What runs today, and nothing that was not read somewhere: `parse` refuses a number without an origin.
    assert!(entries.iter().all(|e| e.task == Task::Chat && !e.verified), "{entries:#?}");
    assert!(entries.iter().all(|e| e.why.ends_with('.') && e.why.len() < 120));
    let known: BTreeMap<String, Read> = serde_json::from_str(READ).unwrap();
    assert!(
        entries.iter().all(|e| (e.commit.is_some() || e.bytes.is_some() || e.license.is_some()) == known.contains_key(&e.repo))
    );
}

#[test]
fn the_memory_chooses() {
    let recommended = |gb: u64| {
        let entries = entries(Some(gb * GB), &nowhere).unwrap();
        assert_eq!(entries.iter().filter(|e| e.recommended).count(), 1);
        assert!(entries[0].recommended && entries.is_sorted_by_key(|e| !e.recommended));
        entries[0].repo.strip_prefix("mlx-community/").unwrap().to_owned()
    };
    for (gb, repo) in [
        (2, "Qwen3-0.6B-4bit"),
        (8, "Qwen3-1.7B-4bit"),
        (16, "Qwen3-8B-4bit"),
        (18, "Qwen3-8B-4bit"),
        (32, "Qwen3-14B-4bit"),
        (64, "Qwen3-32B-4bit"),
        (128, "Llama-3.3-70B-Instruct-4bit"),
    ] {
        assert_eq!(recommended(gb), repo, "{gb} GB");
    }
    assert!(entries(None, &nowhere).unwrap()[0].memory_gb == 4);
    let here = entries(None, &|repo| repo.ends_with("Qwen3-8B-4bit")).unwrap();
    assert_eq!(here.iter().filter(|e| e.here).count(), 1);
}

#[test]
fn what_was_read_is_shown() {
    let entries = parse(ONE, &read().to_string(), None, &nowhere).unwrap();
    let [entry] = &entries[..] else { panic!("{entries:?}") };
    let read = (entry.commit.as_deref().unwrap().len(), entry.bytes, entry.license.as_deref());
    assert_eq!(read, (40, Some(75), Some("mit")));
    let bare = parse(ONE, "{}", None, &nowhere).unwrap();
    assert_eq!((&bare[0].commit, bare[0].bytes, &bare[0].license), (&None, None, &None));
}

/// A hash, a size or a commit that says not where it was read does not get in.
#[test]
fn numbers_need_an_origin() {
    assert!(parse(ONE, &read().to_string(), None, &nowhere).is_ok());
    let refused = |list: &str, read: &Value| parse(list, &read.to_string(), None, &nowhere).unwrap_err();
    for key in ["origin", "date", "commit", "files"] {
        let mut without = read();
        without["o/n"].as_object_mut().unwrap().remove(key);
        assert!(refused(ONE, &without).contains(key), "{key}");
    }
    let mut changes: Vec<(&str, Value)> = vec![
        ("/o~1n/origin", json!("")),
        ("/o~1n/origin", json!("https://huggingface.co/api/models/o/another")),
        ("/o~1n/date", json!("yesterday")),
        ("/o~1n/commit", json!("main")),
        ("/o~1n/files", json!([])),
        ("/o~1n/files/0/git", json!("b")),
        ("/o~1n/files/0/git", Value::Null),
        ("/o~1n/files/0/sha256", json!("c".repeat(64))),
        ("/o~1n/files/1/name", json!("config.json")),
    ];
    for (at, value) in changes.drain(..) {
        let mut wrong = read();
        *wrong.pointer_mut(at).unwrap() = value;
        assert!(refused(ONE, &wrong).contains("o/n"), "{at}");
    }
    // Beside the list, such numbers have no place at all.
    for line in ["commit = \"abc\"", "bytes = 5", "sha256 = \"abc\"", "license = \"mit\""] {
        assert!(refused(&format!("{ONE}{line}\n"), &json!({})).contains("unknown field"), "{line}");
    }
    assert!(refused(&format!("{ONE}{ONE}"), &json!({})).contains("twice"));
    assert!(refused(ONE, &json!({ "x/y": read()["o/n"] })).contains("x/y"));
}
