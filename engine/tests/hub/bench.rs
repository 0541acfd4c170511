//! A hub, a cache of its own and a handle on both.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rmlx_engine::api::{Pull, PullOptions, PullPhase};
use rmlx_engine::engine::{Models, Setup};
use rmlx_engine::hub::cache::{Cache, Repo};
use rmlx_engine::hub::fetch::Tuning;
use rmlx_engine::hub::remote::Remote;
use tempfile::TempDir;

use crate::hub::{Hub, Repository};

pub const REPO: &str = "acme/tiny";
pub const SHARDS: [&str; 2] = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
/// Bytes of a shard, no multiple of a part.
pub const SHARD: usize = 500_001;
pub const PART: u64 = 64 << 10;
/// Long enough for a loaded machine, short enough for a hanging test.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Bench {
    pub folder: TempDir,
    pub hub: Hub,
}

/// Small parts and short times, but for silence: a loaded machine may be silent.
pub fn tuning() -> Tuning {
    Tuning {
        part: PART,
        connections: 4,
        stall: Duration::from_secs(20),
        checkpoint: Duration::from_millis(20),
        tries: 3,
        pause: Duration::from_millis(5),
        back_off: (Duration::from_millis(20), Duration::from_millis(100)),
        reserve: 0,
        free: |_| Ok(u64::MAX),
    }
}

/// Bytes that repeat nowhere near a part.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x
    };
    let mut bytes: Vec<u8> = (0..length.div_ceil(8)).flat_map(|_| next().to_le_bytes()).collect();
    bytes.truncate(length);
    bytes
}

/// Two shards and what goes with them, and some files that nobody needs.
pub fn repository(weights: u64) -> Repository {
    Repository::new(
        REPO,
        &[
            ("config.json", br#"{"architectures":["LlamaForCausalLM"]}"#.to_vec()),
            ("tokenizer.json", noise(1, 20_000)),
            ("chat_template.jinja", b"{{ messages }}".to_vec()),
            ("empty.json", Vec::new()),
            ("README.md", b"---\nlicense: apache-2.0\npipeline_tag: text-generation\n---\n".to_vec()),
            ("model.safetensors.index.json", b"{\"weight_map\":{}}".to_vec()),
            (SHARDS[0], noise(weights, SHARD)),
            (SHARDS[1], noise(weights + 1, SHARD)),
            ("pytorch_model.bin", noise(4, 1000)),
            ("original/consolidated.00.pth", noise(5, 1000)),
        ],
    )
}

impl Bench {
    pub fn new() -> Self {
        let bench = Self { folder: tempfile::tempdir().unwrap(), hub: Hub::start() };
        bench.hub.add(repository(10));
        bench
    }

    pub fn cache(&self) -> Cache {
        Cache { root: self.folder.path().join("hub") }
    }

    pub fn repo(&self) -> Repo {
        self.cache().repo(REPO).unwrap()
    }

    pub fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    pub fn models(&self) -> Models {
        self.models_with(tuning(), None)
    }

    pub fn models_with(&self, tuning: Tuning, token: Option<&str>) -> Models {
        Models::with(self.setup(tuning, token))
    }

    pub fn setup(&self, tuning: Tuning, token: Option<&str>) -> Setup {
        let (endpoint, token) = (self.hub.endpoint.clone(), token.map(String::from));
        Setup {
            home: self.home(),
            cache: self.cache(),
            remote: Arc::new(move || Remote::at(&endpoint, token.clone())),
            check: Arc::new(|_| Box::pin(async { Ok(()) })),
            tuning,
        }
    }

    /// The files that are needed, against what the hub has.
    #[track_caller]
    pub fn assert_whole(&self, repository: &Repository) {
        let snapshot = self.repo().snapshot(&repository.commit);
        for file in &repository.files {
            let path = snapshot.join(&file.name);
            if file.name.contains('/') || file.name.ends_with(".bin") {
                assert!(!path.exists(), "{} is not needed", file.name);
                continue;
            }
            let wanted = file.contents.read(0, file.size as usize).unwrap();
            let got = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            assert!(got == wanted, "{} differs", file.name);
            let link = std::fs::read_link(&path).unwrap();
            assert_eq!(link, Path::new("../../blobs").join(file.etag()));
        }
        let main = std::fs::read_to_string(self.repo().folder.join("refs/main")).unwrap();
        assert_eq!(main, repository.commit);
        assert_eq!(leftovers(&self.repo().folder), [""; 0]);
    }
}

/// Files of our own names below a folder.
pub fn leftovers(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.contains("rmlx") {
            found.push(name);
        }
        if entry.file_type().unwrap().is_dir() {
            found.extend(leftovers(&entry.path()));
        }
    }
    found
}

#[track_caller]
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub fn find(models: &Models, model: &str) -> Option<Pull> {
    let (repo, revision) = model.split_once('@').unwrap_or((model, "main"));
    models.pulls().into_iter().find(|p| p.repo == repo && p.revision == revision)
}

/// Begins, and waits until it has ended or waits.
#[track_caller]
pub fn fetch(models: &Models, model: &str) -> Pull {
    models.pull(model, PullOptions::default()).unwrap();
    let mut last = None;
    until("the download ends", || {
        last = find(models, model);
        last.as_ref().is_none_or(|p| matches!(p.phase, PullPhase::Done | PullPhase::Failed))
    });
    last.expect("a download that ended is listed")
}

#[track_caller]
pub fn done(models: &Models, model: &str) -> Pull {
    let pull = fetch(models, model);
    assert_eq!(pull.phase, PullPhase::Done, "{pull:?}");
    assert_eq!((Some(pull.done), pull.verified, pull.error.clone()), (pull.total, pull.done, None), "{pull:?}");
    pull
}

#[track_caller]
pub fn failed(models: &Models, model: &str) -> (String, String) {
    let pull = fetch(models, model);
    assert_eq!(pull.phase, PullPhase::Failed, "{pull:?}");
    let error = pull.error.expect("why it failed");
    (error.code, error.message)
}
