//! `scripts/catalogue-refresh` against the local hub.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use rmlx_engine::hub::fetch::needed;
use rmlx_engine::hub::remote::Remote;
use serde_json::{Value, json};

use crate::bench::{Bench, REPO, SHARDS};
use crate::hub::{Repository, TOKEN, What, lock};

fn refresh(bench: &Bench, repos: &[&str], token: Option<&str>) -> (Output, Value) {
    let list: String = repos.iter().map(|r| format!("[[model]]\nrepo = \"{r}\"\n")).collect();
    let (list_file, out) = (bench.folder.path().join("list.toml"), bench.folder.path().join("read.json"));
    fs::write(&list_file, list).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/catalogue-refresh");
    let mut command = Command::new("python3");
    command.arg(script).arg("--list").arg(&list_file).arg("--out").arg(&out);
    command
        .env("HF_ENDPOINT", &bench.hub.endpoint)
        .env("CATALOGUE_PAUSE", "0")
        .env_remove("HF_TOKEN")
        .envs(token.map(|t| ("HF_TOKEN", t)));
    for key in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env_remove(key);
    }
    let output = command.output().unwrap();
    let read = fs::read(&out).ok().and_then(|text| serde_json::from_slice(&text).ok());
    (output, read.unwrap_or_default())
}

#[test]
fn it_reads_what_a_download_would_fetch() {
    let bench = Bench::new();
    let (output, read) = refresh(&bench, &[REPO], None);
    assert!(output.status.success(), "{output:?}");
    let read = &read[REPO];
    assert_eq!(read["origin"], format!("{}/api/models/{REPO}?blobs=true", bench.hub.endpoint));
    assert_eq!((read["commit"].as_str().unwrap().len(), read["date"].as_str().unwrap().len()), (40, 10));
    let remote = Remote::at(&bench.hub.endpoint, None).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let listing = runtime.block_on(remote.listing(REPO, "main")).unwrap();
    let mut wanted: Vec<_> = needed(&listing).into_iter().map(|f| (f.name.clone(), f.bytes, f.hash.hex().to_owned())).collect();
    wanted.sort();
    let hash = |f: &Value| f["sha256"].as_str().or(f["git"].as_str()).unwrap().to_owned();
    let files = read["files"].as_array().unwrap();
    let found: Vec<_> =
        files.iter().map(|f| (f["name"].as_str().unwrap().to_owned(), f["bytes"].as_u64().unwrap(), hash(f))).collect();
    assert_eq!(found, wanted);
    assert!(found.iter().any(|(name, ..)| name == SHARDS[1]));
}

#[test]
fn what_has_not_changed_keeps_its_day_and_what_is_gone_stays_known() {
    let bench = Bench::new();
    let (_, first) = refresh(&bench, &[REPO], None);
    let mut old = first.clone();
    old[REPO]["date"] = json!("2020-01-01");
    let out = bench.folder.path().join("read.json");
    fs::write(&out, old.to_string()).unwrap();
    assert_eq!(refresh(&bench, &[REPO], None).1, old);
    // A new commit is a new day.
    let mut changed = Repository::new(REPO, &[("config.json", b"{}".to_vec()), ("model.safetensors", vec![7; 100])]);
    changed.license = Some("mit".into());
    bench.hub.add(changed);
    let (_, new) = refresh(&bench, &[REPO], None);
    assert!(new[REPO]["commit"] != first[REPO]["commit"] && new[REPO]["date"] != "2020-01-01", "{new}");
    assert_eq!(new[REPO]["license"], "mit");
    lock(&bench.hub.state.repos).clear();
    let (output, kept) = refresh(&bench, &[REPO, "acme/none"], None);
    assert_eq!((output.status.code(), &kept), (Some(1), &new));
    // What is no longer in the list is not known any more.
    assert_eq!(refresh(&bench, &[], None).1, json!({}));
}

#[test]
fn it_tries_again_and_believes_nothing() {
    let bench = Bench::new();
    bench.hub.fault("*", 2, What::Status(503, Vec::new()));
    assert!(refresh(&bench, &[REPO], Some(TOKEN)).0.status.success());
    assert!(bench.hub.seen().iter().all(|s| s.headers.contains_key("authorization")));
    lock(&bench.hub.state.repos).clear();
    let mut broken = Repository::new(REPO, &[("model.safetensors", vec![7; 100])]);
    broken.listing = Some(json!({ "sha": "main", "siblings": [{ "rfilename": "model.safetensors", "size": 5 }] }));
    bench.hub.add(broken);
    fs::remove_file(bench.folder.path().join("read.json")).unwrap();
    let (output, read) = refresh(&bench, &[REPO], None);
    assert_eq!((output.status.code(), read), (Some(1), json!({})));
}
