use reqwest::Url;

use super::*;

fn remote(endpoint: &str) -> Remote {
    Remote::at(endpoint, Some("hf_secret".into())).unwrap()
}

#[test]
fn redirects_lead_to_http_addresses_and_never_into_the_clear() {
    let hub = remote("https://hub.example");
    let at = Url::parse("https://hub.example/a/b").unwrap();
    let next = |location| hub.next(&at, Some(location)).map(|u| u.to_string()).map_err(|t| t.error.to_string());
    assert_eq!(next("/c/d").unwrap(), "https://hub.example/c/d");
    assert_eq!(next("https://cdn.example/x?Signature=s").unwrap(), "https://cdn.example/x?Signature=s");
    for (location, said) in [
        ("http://hub.example/a", "from https to http"),
        ("http://cdn.example/x?Signature=s", "from https to http"),
        ("ftp://x/y", "not http"),
        ("file:///etc/passwd", "not http"),
        ("https://", "to nowhere"),
    ] {
        let error = next(location).unwrap_err();
        assert!(error.contains(said) && !error.contains("Signature"), "{location}: {error}");
    }
    assert!(hub.next(&at, None).is_err());
    let plain = remote("http://127.0.0.1:80");
    assert!(plain.next(&Url::parse("http://127.0.0.1/a").unwrap(), Some("http://127.0.0.1:81/x")).is_ok());
}

#[test]
fn the_hub_is_its_scheme_host_and_port() {
    let hub = remote("https://hub.example/mirror/");
    assert_eq!(hub.endpoint, "https://hub.example/mirror");
    for (url, is) in [
        ("https://hub.example/x", true),
        ("https://hub.example:443/x", true),
        ("http://hub.example/x", false),
        ("https://hub.example:444/x", false),
        ("https://cdn.hub.example/x", false),
        ("https://hub.example.evil/x", false),
        ("https://hub.example@evil/x", false),
    ] {
        assert_eq!(hub.is_hub(&Url::parse(url).unwrap()), is, "{url}");
    }
}

#[test]
fn addresses_escape_what_names_may_have() {
    let hub = remote("https://hub.example/mirror");
    let listing =
        Listing { repo: "a/b".into(), commit: "0".repeat(40), gated: false, license: None, task: None, files: Vec::new() };
    let file = RemoteFile { name: "c d/e?f#g%h".into(), bytes: 1, hash: Hash::Git("0".repeat(40)) };
    let expected = format!("https://hub.example/mirror/a/b/resolve/{}/c%20d/e%3Ff%23g%25h", "0".repeat(40));
    assert_eq!(hub.file_address(&listing, &file).unwrap().as_str(), expected);
    let revision = hub.address(&["api", "models"], "a/b", &["revision", "refs/pr/1"]).unwrap();
    assert_eq!(revision.as_str(), "https://hub.example/mirror/api/models/a/b/revision/refs%2Fpr%2F1");
}

/// Known from git and from coreutils.
#[test]
fn hashes_are_those_of_git_and_sha256() {
    for (hex, contents) in [
        ("e69de29bb2d1d6434b8b29ae775ad8c2e48c5391", ""),
        ("ce013625030ba8dba906f756967f9e9ca394464a", "hello\n"),
        ("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", ""),
        ("5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03", "hello\n"),
    ] {
        let hash = Hash::parse(hex).unwrap();
        assert!(hash.fits(contents.as_bytes()), "{hex}");
        assert!(!hash.fits(b"other"));
    }
    assert!(Hash::parse("E69DE29BB2D1D6434B8B29AE775AD8C2E48C5391").is_none() && Hash::parse("e69de29").is_none());
}

#[test]
fn a_pasted_address_is_recognised() {
    let hint = |text: &str| check_repo(text).unwrap_err().to_string().split_once("hint: ").unwrap().1.to_owned();
    for text in [
        "https://huggingface.co/org/Name",
        "https://huggingface.co/org/Name/tree/main?x=y#z",
        "http://mirror.example/org/Name/",
        "hf.co/org/Name",
        "org/Name/",
        "/org/Name",
        " org/Name\n",
    ] {
        assert_eq!(hint(text), "is org/Name meant?", "{text}");
    }
    for text in ["", "a/b/c", "../x", "https://huggingface.co", "https://huggingface.co/org", "x--y/z", "org/\u{fc}"] {
        assert_eq!(hint(text), "ORG/NAME or ORG/NAME@REVISION", "{text}");
    }
}

#[test]
fn what_cannot_be_reached_says_where_to_look() {
    let hub = remote("http://127.0.0.1:9");
    let said = |url: &str| hub.unreachable(&Url::parse(url).unwrap(), "why").error.to_string();
    let there = said("http://127.0.0.1:9/x");
    assert!(there.starts_with("127.0.0.1 cannot be reached: why\nhint: look at the network"), "{there}");
    // The rest depends on whether this machine has a proxy.
    let proxy = there.contains("what is set");
    assert_eq!(there.contains("HF_ENDPOINT, which is http://127.0.0.1:9"), !proxy, "{there}");
    assert!(!said("https://cdn.example/x?Signature=s").contains("Signature"));
}

#[test]
fn contents_have_one_size() {
    let text = |second: u64| {
        let (sha, blob) = ("0".repeat(40), "1".repeat(40));
        let file = |name: &str, size: u64| format!(r#"{{"rfilename": "{name}", "size": {size}, "blobId": "{blob}"}}"#);
        format!(r#"{{"sha": "{sha}", "siblings": [{}, {}]}}"#, file("a", 5), file("b", second))
    };
    assert_eq!(parse("o/n", text(5).as_bytes()).unwrap().files.len(), 2);
    assert!(parse("o/n", text(6).as_bytes()).unwrap_err().contains("two sizes"));
}
