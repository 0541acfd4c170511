//! What the hub says is not trusted.

use rmlx_engine::hub::remote::{Hash, Remote};
use serde_json::{Value, json};

use crate::bench::{Bench, REPO, repository};
use crate::hub::Repository;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn a_listing_has_what_the_hub_says() {
    let bench = Bench::new();
    let mut gated = repository(3);
    (gated.gated, gated.name) = (true, "acme/gated".into());
    bench.hub.add(gated);
    let remote = Remote::at(&format!("{}/", bench.hub.endpoint), None).unwrap();
    let expected = repository(10);
    let runtime = runtime();
    let listing = runtime.block_on(remote.listing(REPO, "main")).unwrap();
    assert_eq!((listing.repo.as_str(), &listing.commit, listing.gated), (REPO, &expected.commit, false));
    assert_eq!((listing.license.as_deref(), listing.task.as_deref()), (Some("apache-2.0"), Some("text-generation")));
    assert_eq!(listing.files.len(), expected.files.len());
    for (file, expected) in listing.files.iter().zip(&expected.files) {
        assert_eq!((&file.name, file.bytes, file.hash.hex()), (&expected.name, expected.size, expected.etag()));
        assert_eq!(matches!(file.hash, Hash::Sha256(_)), expected.name.ends_with(".safetensors"));
    }
    assert!(runtime.block_on(remote.listing("acme/gated", "main")).unwrap().gated);
    let by_commit = runtime.block_on(remote.listing(REPO, &expected.commit)).unwrap();
    assert_eq!(by_commit, listing);
    let config = runtime.block_on(remote.small_file(&listing, "config.json", 1000)).unwrap().unwrap();
    assert_eq!(config, expected.file("config.json").contents.read(0, config.len()).unwrap());
    assert_eq!(runtime.block_on(remote.small_file(&listing, "none.json", 1000)).unwrap(), None);
    let large = runtime.block_on(remote.small_file(&listing, "tokenizer.json", 1000)).unwrap_err();
    assert!(large.code() == "hub_bad_answer" && large.to_string().contains("20000"), "{large}");
    bench.hub.fault("config.json", 1, crate::hub::What::Corrupt);
    let damaged = runtime.block_on(remote.small_file(&listing, "config.json", 1000)).unwrap_err();
    assert_eq!(damaged.code(), "bad_download");
}

#[test]
fn hostile_listings_are_refused() {
    let bench = Bench::new();
    let remote = Remote::at(&bench.hub.endpoint, None).unwrap();
    let runtime = runtime();
    let file = |name: &str| json!({"rfilename": name, "size": 1, "blobId": "0".repeat(40)});
    let with = |siblings: Value| json!({"id": "acme/odd", "sha": "1".repeat(40), "siblings": siblings});
    let long = "a/".repeat(400) + "b";
    let cases = [
        (with(json!([file("../x")])), "name"),
        (with(json!([file("/etc/passwd")])), "name"),
        (with(json!([file("a/../../b")])), "name"),
        (with(json!([file("a//b")])), "name"),
        (with(json!([file("./a")])), "name"),
        (with(json!([file("a\\b")])), "name"),
        (with(json!([file("a\0b")])), "name"),
        (with(json!([file("")])), "name"),
        (with(json!([file(&long)])), "name"),
        (with(json!([file(&"n".repeat(300))])), "name"),
        (with(json!([file("a"), file("a")])), "twice"),
        (with(json!([{"rfilename": "a", "size": 1, "blobId": "../../x"}])), "hash"),
        (with(json!([{"rfilename": "a", "size": 1, "blobId": "A".repeat(40)}])), "hash"),
        (with(json!([{"rfilename": "a", "size": 1, "blobId": "0".repeat(40), "lfs": {"sha256": "x", "size": 1}}])), "hash"),
        (with(json!([{"rfilename": "a", "blobId": "0".repeat(40)}])), "size"),
        (with(json!([{"rfilename": "a", "size": -1, "blobId": "0".repeat(40)}])), "cannot be read"),
        (with(json!([{"rfilename": "a", "size": u64::MAX, "blobId": "0".repeat(40)}])), "no disk"),
        (json!({"id": "acme/odd", "sha": "main", "siblings": []}), "commit"),
        (json!({"id": "../odd", "sha": "1".repeat(40), "siblings": []}), "no name"),
        (json!({"id": "acme/odd"}), "cannot be read"),
        (json!([]), "cannot be read"),
        // The control.
        (with(json!([file("a/b.c")])), ""),
    ];
    for (listing, reason) in cases {
        let mut repository = Repository::new("acme/odd", &[]);
        repository.listing = Some(listing.clone());
        bench.hub.add(repository);
        match runtime.block_on(remote.listing("acme/odd", "main")) {
            Ok(_) => assert_eq!(reason, "", "{listing}"),
            Err(e) => {
                assert_eq!(e.code(), "hub_bad_answer", "{listing}: {e}");
                assert!(!reason.is_empty() && e.to_string().contains(reason), "{listing}: {e}");
                assert!(!e.to_string().contains('\0') && e.to_string().len() < 1000, "{e}");
            }
        }
    }
}

#[test]
fn odd_names_never_reach_the_hub() {
    let bench = Bench::new();
    let models = bench.models();
    for name in [
        "",
        "/",
        "a/",
        "/b",
        "a/b/c",
        "../b",
        "a/..",
        "a/.b",
        "a/b.git",
        "a--b/c",
        "a b/c",
        "a/b?x",
        "a/b#x",
        "a/b%2e",
        "ä/b",
        "-a/b",
        "a/b@",
        "a/b@../x",
        "a/b@/x",
        "a/b@a b",
        "a/b@a\\b",
        "a/b@x/../y",
        "a/b@-x",
    ] {
        let error = models.pull(name, Default::default()).expect_err(name);
        assert_eq!(error.code(), "invalid_request", "{name}: {error}");
    }
    assert!(models.pull(&format!("a/{}", "n".repeat(100)), Default::default()).is_err());
    assert!(bench.hub.seen().is_empty() && models.pulls().is_empty());
    for endpoint in ["", "huggingface.co", "ftp://x", "https://user:secret@x", "http://x/?q"] {
        let error = Remote::at(endpoint, None).err().unwrap_or_else(|| panic!("{endpoint}"));
        assert!(!error.to_string().contains("secret"));
    }
}
