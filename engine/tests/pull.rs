//! The commands around downloads: the real binary against a hub of our own.

mod common;
#[path = "support/hub/mod.rs"]
mod hub;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Ended, Rmlx, end, signal, wait_for};
use hub::{Hub, Repository, lock};
use rmlx_engine::api::{Device, Event, Options};
use rmlx_engine::engine::Engine;
use serde_json::{Value, json};

const REPO: &str = "acme/tiny";

/// A hub that has the tiny model, and the binary that knows no other.
struct Bench {
    rmlx: Rmlx,
    hub: Hub,
}

impl Bench {
    fn new() -> Self {
        let bench = Self { rmlx: Rmlx::new(), hub: Hub::start() };
        bench.add(|r| r.license = Some("mit".into()));
        bench
    }

    fn add(&self, change: impl FnOnce(&mut Repository)) {
        let mut repository = Repository::from_folder(REPO, Path::new(&self.rmlx.model())).unwrap();
        change(&mut repository);
        self.hub.add(repository);
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.rmlx.command(args);
        command.env("HF_ENDPOINT", &self.hub.endpoint);
        command
    }

    fn run(&self, args: &[&str]) -> Ended {
        end(self.command(args).spawn().unwrap())
    }

    fn repository(&self) -> PathBuf {
        self.rmlx.folder.path().join("hf/hub/models--acme--tiny")
    }

    fn size(&self) -> u64 {
        lock(&self.hub.state.repos)[REPO][0].files.iter().map(|f| f.size).sum()
    }

    fn sent(&self) -> u64 {
        self.hub.sent().values().sum()
    }
}

#[track_caller]
fn refused(ended: &Ended, code: i32, text: &str) {
    assert!(ended.code == Some(code) && ended.stderr.contains(text), "{text}: {ended:#?}");
}

#[test]
fn a_model_comes_runs_is_checked_and_goes() {
    let bench = Bench::new();
    let pulled = bench.run(&["pull", REPO]).ok();
    let folder = PathBuf::from(pulled.stdout.trim());
    assert!(folder.starts_with(bench.repository().join("snapshots")) && folder.join("model.safetensors").exists(), "{pulled:#?}");
    assert!(pulled.stderr.contains("licence       mit") && pulled.stderr.contains("rmlx run acme/tiny"), "{pulled:#?}");
    let sent = bench.sent();

    let answer = bench.run(&["--device", "cpu", "run", REPO, "hi", "--max-tokens", "4", "--ignore-eos"]).ok();
    assert!(answer.stdout.len() > 1);
    let listed = bench.run(&["list", "--json"]).ok().json();
    let [model] = &listed.as_array().unwrap()[..] else { panic!("{listed}") };
    assert_eq!((&model["name"], &model["source"], &model["problem"]), (&json!(REPO), &json!("hugging_face"), &Value::Null));
    let checks = bench.run(&["verify", REPO, "--json"]).ok().json();
    assert!(checks.as_array().unwrap().iter().all(|c| c["state"] == "right"), "{checks}");
    // What is here is not fetched again.
    let again = bench.run(&["pull", REPO]).ok();
    assert_eq!(again.stdout.trim(), folder.to_str().unwrap());
    let small: u64 = ["config.json", "tokenizer_config.json"].iter().filter_map(|f| bench.hub.sent().get(*f).copied()).sum();
    assert!(bench.sent() - sent <= small, "{:?}", bench.hub.sent());

    refused(&bench.run(&["rm", REPO]), 2, "--yes");
    assert!(folder.exists());
    let removed = bench.run(&["rm", REPO, "--yes"]).ok();
    assert!(removed.stderr.contains("removed acme/tiny"), "{removed:#?}");
    assert!(!bench.repository().exists());
    refused(&bench.run(&["rm", REPO, "--yes"]), 1, "no model is called");
    // The user's own folder is not ours.
    refused(&bench.run(&["rm", "MODEL", "--yes"]), 1, "not rMLX's to remove");
    assert!(Path::new(&bench.rmlx.model()).join("config.json").exists());
}

#[test]
fn the_plan_comes_first() {
    let bench = Bench::new();
    let shown = bench.run(&["pull", REPO, "--plan"]).ok();
    for part in ["architecture  LlamaForCausalLM", "memory        about ", "kind          chat"] {
        assert!(shown.stdout.contains(part), "{part}: {shown:#?}");
    }
    let plan = bench.run(&["pull", REPO, "--plan", "--json"]).ok().json();
    let plan = &plan["plan"];
    assert_eq!((&plan["bytes"], &plan["to_fetch"]), (&json!(bench.size()), &json!(bench.size())));
    assert_eq!((&plan["problems"], &plan["disk"]["fits"]), (&json!([]), &json!(true)));
    // Only what a plan reads went over the line.
    assert!(!bench.hub.sent().contains_key("model.safetensors"), "{:?}", bench.hub.sent());
    assert!(!bench.repository().exists());
}

#[test]
fn what_would_not_run_is_refused_before_a_byte_of_weights() {
    let bench = Bench::new();
    let file = |name: &'static str, text: &str| (name, text.as_bytes().to_vec());
    let weights = file("model.safetensors", "0123456789");
    let gguf = Repository::new("acme/gguf", &[file("README.md", ""), file("tiny.Q4_0.gguf", "GGUF")]);
    let other = Repository::new(
        "acme/other",
        &[file("config.json", r#"{"architectures": ["MambaForCausalLM"]}"#), file("tokenizer.json", "{}"), weights.clone()],
    );
    let base = Repository::new("acme/base", &[file("config.json", "{}"), file("tokenizer.json", "{}"), weights]);
    [gguf, other, base].into_iter().for_each(|r| bench.hub.add(r));
    for (repo, text) in [
        ("acme/gguf", "this is a GGUF repository"),
        ("acme/other", "MambaForCausalLM is not among the architectures"),
        ("acme/none", "there is no repository acme/none"),
        ("acme/tiny@v9", "no such revision"),
        ("not a name", "is not the name of a repository"),
    ] {
        for args in [&["pull", repo][..], &["pull", repo, "--plan"], &["pull", repo, "--json"]] {
            let ended = bench.run(args);
            assert_eq!(ended.code, Some(1), "{ended:#?}");
            assert!(format!("{}{}", ended.stdout, ended.stderr).contains(text), "{args:?}: {ended:#?}");
        }
    }
    assert!(!bench.hub.sent().contains_key("model.safetensors") && !bench.hub.sent().contains_key("tiny.Q4_0.gguf"));
    let noted = bench.run(&["pull", "acme/base", "--plan"]);
    assert!(noted.stdout.contains("note: a base model"), "{noted:#?}");
    // Whoever wants the files anyway gets them; what has no weights stays refused.
    bench.run(&["pull", "acme/other", "--anyway"]).ok();
    assert!(bench.hub.sent().contains_key("model.safetensors"));
    refused(&bench.run(&["pull", "acme/gguf", "--anyway"]), 1, "GGUF");
}

#[test]
fn a_gate_needs_the_right_token_and_nobody_sees_it() {
    let bench = Bench::new();
    lock(&bench.hub.state.repos).clear();
    bench.add(|r| r.gated = true);
    refused(&bench.run(&["pull", REPO]), 1, "gated");
    let with = |token: &str, args: &[&str]| end(bench.command(args).env("HF_TOKEN", token).spawn().unwrap());
    refused(&with(hub::STRANGER, &["pull", REPO]), 1, "accept the terms");
    refused(&with("hf_wrong", &["pull", REPO]), 1, "does not know the access token");
    refused(&with(hub::STRANGER, &["pull", REPO, "--anyway"]), 1, "gated");
    let ended = with(hub::TOKEN, &["pull", REPO, "--json", "--log", "trace"]).ok();
    let state = with(hub::TOKEN, &["token", "--json"]).ok();
    assert_eq!(state.json()["kept"], "environment");
    let mut seen = format!("{ended:?}{state:?}");
    for file in fs::read_dir(bench.rmlx.home().join("logs")).unwrap() {
        seen.push_str(&fs::read_to_string(file.unwrap().path()).unwrap());
    }
    assert!(seen.contains("started") && !seen.contains(hub::TOKEN) && !seen.contains("hf_wrong"));
    assert!(bench.hub.seen().iter().any(|s| s.headers.get("authorization").is_some_and(|v| v == "Bearer hf_known")));
}

#[test]
fn control_c_pauses_and_the_next_pull_goes_on() {
    let bench = Bench::new();
    bench.hub.pace(20_000);
    let child = bench.command(&["pull", REPO]).spawn().unwrap();
    let pid = child.id().to_string();
    let some = bench.size() / 4;
    wait_for("a part of it came", || bench.sent() > some);
    signal(&pid, "INT");
    let ended = end(child);
    refused(&ended, 130, "go on with: rmlx pull acme/tiny");
    let unfinished = bench.run(&["list", "--unfinished", "--json"]).ok().json();
    let (done, total) = (unfinished[0]["done"].as_u64().unwrap(), unfinished[0]["total"].as_u64().unwrap());
    assert!(done > 0 && done < total, "{unfinished}");
    let listed = bench.run(&["list"]).ok();
    assert!(listed.stdout.contains("NOT FINISHED") && listed.stdout.contains("rmlx pull acme/tiny"), "{listed:#?}");
    assert_eq!(bench.run(&["list", "--json"]).ok().json(), json!([]), "a part is no model");
    refused(&bench.run(&["run", REPO, "hi"]), 1, "no model is called");
    bench.hub.pace(0);
    bench.hub.forget();
    let lines = bench.run(&["pull", REPO, "--json"]).ok();
    let last = lines.json();
    assert_eq!(last["model"], REPO);
    assert!(lines.stdout.lines().any(|l| l.contains("\"phase\":\"done\"")), "{lines:#?}");
    assert!(bench.hub.sent().get("model.safetensors").is_none_or(|sent| *sent < total), "{:?}", bench.hub.sent());
    assert_eq!(bench.run(&["list", "--unfinished", "--json"]).ok().json(), json!([]));
}

#[test]
fn a_damaged_file_is_found_and_fetched_again() {
    let bench = Bench::new();
    let folder = PathBuf::from(bench.run(&["pull", REPO]).ok().stdout.trim());
    let blob = fs::canonicalize(folder.join("model.safetensors")).unwrap();
    let mut bytes = fs::read(&blob).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&blob, &bytes).unwrap();
    bench.hub.forget();
    let found = bench.run(&["verify", REPO]);
    refused(&found, 1, "--repair");
    assert!(found.stdout.lines().any(|l| l.starts_with("model.safetensors") && l.ends_with("WRONG")), "{found:#?}");
    bench.run(&["verify", REPO, "--repair"]).ok();
    assert!(bench.run(&["verify", REPO]).ok().stdout.lines().all(|l| l.ends_with("right")));
    let sent = bench.hub.sent();
    assert_eq!(sent["model.safetensors"], bytes.len() as u64, "{sent:?}");
    assert!(!sent.contains_key("tokenizer.json"), "that file alone: {sent:?}");
    // Of another place nothing is known.
    let own = bench.run(&["verify", "MODEL"]).ok();
    assert!(own.stdout.lines().all(|l| l.ends_with("nothing to compare with")), "{own:#?}");
}

#[test]
fn a_model_in_memory_is_not_removed() {
    let bench = Bench::new();
    // In this process.
    let home = bench.rmlx.home();
    let own = home.join("models/Own");
    common::tiny_model(&own);
    let engine = Engine::start(Options { device: Device::Cpu, home: Some(home), ..Options::default() }).unwrap();
    let models = engine.models().unwrap();
    let loaded = engine.load(own.to_str().unwrap()).unwrap().last().unwrap();
    assert_eq!(loaded, Event::Loaded);
    let e = models.remove("Own").unwrap_err();
    assert!(e.to_string().contains("is in memory") && own.exists(), "{e}");
    let folder = models.folder("Own").unwrap();
    drop(engine);
    // Nobody has it any more.
    assert!(models.remove("Own").unwrap() > 0 && !folder.exists());
    // In another process, which answers for this one.
    bench.run(&["pull", REPO]).ok();
    let serve = bench.command(&["serve", "--port", "0"]).spawn().unwrap();
    wait_for("the engine of another process answers", || {
        let ended = bench.run(&["run", REPO, "hi", "--max-tokens", "2", "--ignore-eos"]);
        ended.code == Some(0) && ended.stderr.contains("running already")
    });
    refused(&bench.run(&["rm", REPO, "--yes"]), 1, "is in memory");
    assert!(bench.repository().exists());
    signal(&serve.id().to_string(), "TERM");
    end(serve).ok();
    bench.run(&["rm", REPO, "--yes"]).ok();
}

#[test]
fn search_shows_what_would_run_and_what_is_here() {
    let bench = Bench::new();
    bench.hub.add(Repository::new("acme/tiny-gguf", &[("a.gguf", b"GGUF".to_vec())]));
    let found = bench.run(&["search", "tiny", "--json"]).ok().json();
    let names: Vec<_> = found.as_array().unwrap().iter().map(|m| m["repo"].as_str().unwrap()).collect();
    assert_eq!(names, ["acme/tiny", "acme/tiny-gguf"]);
    assert_eq!((&found[0]["problem"], &found[0]["here"]), (&Value::Null, &json!(false)));
    bench.run(&["pull", REPO]).ok();
    let table = bench.run(&["search", "tiny"]).ok().stdout;
    assert!(table.contains("here\n") && table.contains("GGUF repository"), "{table}");
    assert_eq!(bench.run(&["search", "nothing of this name"]).ok().stderr, "nothing is found\n");
}

#[test]
fn without_a_network_it_says_so() {
    let bench = Bench::new();
    let ended = end(bench.rmlx.command(&["pull", REPO]).spawn().unwrap());
    refused(&ended, 1, "cannot be reached");
    refused(&end(bench.rmlx.command(&["search", "tiny"]).spawn().unwrap()), 1, "cannot be reached");
}

#[test]
fn without_a_keyring_a_token_is_not_kept_and_nobody_believes_it() {
    let bench = Bench::new();
    let none = bench.run(&["token", "--json"]).ok().json();
    assert_eq!(none["kept"], "none");
    let set = bench.rmlx.run_with(&["token", "set"], "hf_secret\n");
    refused(&set, 1, "was not kept");
    assert!(!format!("{set:?}").contains("hf_secret"));
    refused(&bench.rmlx.run_with(&["token", "set"], "two words\n"), 1, "not an access token");
    refused(&bench.run(&["token", "set"]), 1, "not an access token");
    // No argument can carry one.
    assert_eq!(bench.run(&["token", "set", "hf_secret"]).code, Some(2));
    let file = bench.rmlx.folder.path().join("hf/token");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, "hf_known\n").unwrap();
    assert_eq!(bench.run(&["token", "--json"]).ok().json()["kept"], "file");
    lock(&bench.hub.state.repos).clear();
    bench.add(|r| r.gated = true);
    bench.run(&["pull", REPO]).ok();
}

#[test]
fn what_is_here_of_a_download_can_be_removed() {
    let bench = Bench::new();
    lock(&bench.hub.state.repos).clear();
    bench.add(|r| r.branches.push("v1".into()));
    let begun = format!("{REPO}@v1");
    // Whole files without a snapshot, as a download that was ended leaves them.
    let ended = bench.run(&["pull", &begun]).ok();
    assert!(ended.stdout.contains("snapshots"));
    let repository = bench.repository();
    fs::remove_dir_all(repository.join("snapshots")).unwrap();
    let files: Vec<Value> = fs::read_dir(repository.join("blobs"))
        .unwrap()
        .map(|blob| blob.unwrap())
        .map(|blob| {
            json!([blob.file_name().to_str().unwrap(), blob.metadata().unwrap().len(), blob.file_name().to_str().unwrap()])
        })
        .collect();
    let record = json!({ "version": 1, "revision": "v1", "commit": "0".repeat(40), "paused": true, "files": files });
    fs::write(repository.join(".rmlx-pull-v1.json"), record.to_string()).unwrap();

    refused(&bench.run(&["run", &begun, "hi"]), 1, "not finished; go on with: rmlx pull acme/tiny@v1");
    refused(&bench.run(&["rm", "--yes", REPO]), 1, "hint: fetch it with: rmlx pull acme/tiny");
    refused(&bench.run(&["rm", &begun]), 2, "--yes removes without asking");
    let removed = bench.run(&["rm", "--yes", &begun]).ok();
    assert!(removed.stderr.contains("removed acme/tiny@v1") && !removed.stderr.contains(": 0 B"), "{removed:#?}");
    assert!(!repository.join("blobs").exists() && bench.run(&["list", "--unfinished"]).ok().stdout.is_empty());
    refused(&bench.run(&["rm", "--yes", &begun]), 1, "no model is called");
}

#[test]
fn what_could_not_be_loaded_is_not_fetched() {
    let bench = Bench::new();
    let elsewhere = bench.rmlx.folder.path().join("disk");
    fs::create_dir_all(&elsewhere).unwrap();
    fs::create_dir_all(bench.repository()).unwrap();
    std::os::unix::fs::symlink(&elsewhere, bench.repository().join("blobs")).unwrap();
    refused(&bench.run(&["pull", REPO]), 1, "HF_HUB_CACHE");
    assert!(fs::read_dir(&elsewhere).unwrap().next().is_none() && bench.sent() == 0);
    // A whole repository on another disk is.
    let moved = elsewhere.join("models--acme--tiny");
    fs::create_dir(&moved).unwrap();
    fs::remove_dir_all(bench.repository()).unwrap();
    std::os::unix::fs::symlink(&moved, bench.repository()).unwrap();
    bench.run(&["pull", REPO]).ok();
    assert!(bench.run(&["--device", "cpu", "run", REPO, "hi", "--max-tokens", "4", "--ignore-eos"]).ok().stdout.len() > 1);
}

#[test]
fn settings_that_are_not_followed_are_told() {
    let bench = Bench::new();
    let home = bench.rmlx.home();
    fs::create_dir_all(&home).unwrap();
    for (line, key) in [("rate_limit = \"10 MB\"", "models.rate_limit"), ("folder = \"/none/of/it\"", "/none/of/it")] {
        fs::write(home.join("settings.toml"), format!("[models]\n{line}\n")).unwrap();
        for args in [&["pull", REPO][..], &["list"], &["list", "--json"]] {
            let told = bench.run(args).ok();
            assert!(told.stderr.contains("warning: the settings are not followed") && told.stderr.contains(key), "{told:#?}");
        }
    }
    fs::write(home.join("settings.toml"), "").unwrap();
    assert!(!bench.run(&["list"]).ok().stderr.contains("warning"));
}

#[test]
fn a_token_that_is_none_is_refused_by_name() {
    let bench = Bench::new();
    let ended = end(bench.command(&["pull", REPO]).env("HF_TOKEN", "two words").spawn().unwrap());
    refused(&ended, 1, "HF_TOKEN: what is set there is not an access token");
    assert!(!format!("{ended:?}").contains("two words"));
}

#[test]
fn a_chat_template_beside_the_tokenizer_is_used_wherever_it_stands() {
    let text = "{% for m in messages %}{{ m.content }}{% endfor %}";
    let plain = json!({ "chat_template": text }).to_string();
    for (name, contents) in [("chat_template.jinja", Some(text)), ("chat_template.json", Some(plain.as_str())), ("none", None)] {
        let bench = Bench::new();
        let repository = lock(&bench.hub.state.repos).remove(REPO).unwrap().remove(0);
        let mut files: Vec<(&str, Vec<u8>)> = Vec::new();
        for file in repository.files.iter().filter(|f| !f.name.starts_with("chat_template")) {
            let mut bytes = file.contents.read(0, file.size as usize).unwrap();
            if file.name == "tokenizer_config.json" {
                let mut config: Value = serde_json::from_slice(&bytes).unwrap();
                config.as_object_mut().unwrap().remove("chat_template");
                bytes = config.to_string().into_bytes();
            }
            files.push((&file.name, bytes));
        }
        files.extend(contents.map(|text| (name, text.as_bytes().to_vec())));
        bench.hub.add(Repository::new(REPO, &files));
        let kind = if contents.is_some() { "kind          chat" } else { "kind          base" };
        let pulled = bench.run(&["pull", REPO]).ok();
        assert!(pulled.stderr.contains(kind), "{name}: {pulled:#?}");
        let answer = bench.run(&["--device", "cpu", "run", REPO, "hi", "--max-tokens", "4", "--ignore-eos"]);
        // The control: without a template nothing can be chatted.
        assert_eq!(answer.code == Some(0) && answer.stdout.len() > 1, contents.is_some(), "{name}: {answer:#?}");
    }
}

#[test]
fn what_was_begun_anyway_is_not_refused_when_it_goes_on() {
    let bench = Bench::new();
    let other = r#"{"architectures": ["MambaForCausalLM"]}"#;
    let files =
        [("config.json", other.as_bytes().to_vec()), ("tokenizer.json", b"{}".to_vec()), ("model.safetensors", vec![7; 1 << 20])];
    bench.hub.add(Repository::new("acme/other", &files));
    bench.hub.hold_after(500_000);
    let child = bench.command(&["pull", "acme/other", "--anyway"]).spawn().unwrap();
    let pid = child.id().to_string();
    wait_for("a part of it came", || bench.sent() >= 500_000);
    signal(&pid, "INT");
    refused(&end(child), 130, "go on with: rmlx pull acme/other");
    bench.hub.release();
    let ended = bench.run(&["pull", "acme/other"]).ok();
    assert!(ended.stderr.contains("problem: "), "it is still told: {ended:#?}");
    // The control: from its beginning it is refused.
    bench.run(&["rm", "--yes", "acme/other"]);
    let _ = fs::remove_dir_all(bench.rmlx.folder.path().join("hf/hub/models--acme--other"));
    refused(&bench.run(&["pull", "acme/other"]), 1, "MambaForCausalLM");
}
