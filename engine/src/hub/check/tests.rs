use std::os::unix::fs::symlink;

use super::*;

/// `printf 'hello' | sha256sum`, and `printf 'hello' | git hash-object --stdin`.
const SHA256: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
const GIT: &str = "b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0";

struct Repository {
    folder: tempfile::TempDir,
}

impl Repository {
    fn new() -> Self {
        let repository = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir_all(repository.snapshot()).unwrap();
        fs::create_dir_all(repository.root().join("blobs")).unwrap();
        repository
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("models--org--Name")
    }

    fn snapshot(&self) -> PathBuf {
        self.root().join("snapshots/abc")
    }

    fn put(&self, name: &str, blob: &str, contents: &str) {
        fs::write(self.root().join("blobs").join(blob), contents).unwrap();
        let link = self.snapshot().join(name);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        let up = "../".repeat(2 + name.matches('/').count());
        symlink(format!("{up}blobs/{blob}"), link).unwrap();
    }
}

fn states(folder: &Path) -> Vec<(String, FileState)> {
    let checks = check(folder, &mut |_, _| ControlFlow::Continue(())).unwrap();
    checks.into_iter().map(|c| (c.name, c.state)).collect()
}

#[test]
fn files_are_compared_with_the_names_of_their_blobs() {
    let repository = Repository::new();
    repository.put("config.json", GIT, "hello");
    repository.put("model.safetensors", SHA256, "hello");
    repository.put("tokenizer.json", &SHA256.replace('2', "3"), "hello");
    repository.put("sub/folder/file.txt", &GIT.replace('b', "a"), "hello");
    repository.put("etag-of-another-tool", "\"5-abc\"", "hello");
    symlink("../../blobs/gone", repository.snapshot().join("gone.json")).unwrap();
    let expected = [
        ("config.json", FileState::Right),
        ("etag-of-another-tool", FileState::Unknown),
        ("gone.json", FileState::Missing),
        ("model.safetensors", FileState::Right),
        ("sub/folder/file.txt", FileState::Wrong),
        ("tokenizer.json", FileState::Wrong),
    ];
    assert_eq!(states(&repository.snapshot()), expected.map(|(n, s)| (n.to_owned(), s)));
    // One byte more in the file that was right.
    fs::write(repository.root().join("blobs").join(SHA256), "hello!").unwrap();
    assert!(states(&repository.snapshot()).contains(&("model.safetensors".into(), FileState::Wrong)));
}

#[test]
fn files_that_should_be_there_are_missing() {
    let repository = Repository::new();
    let index = r#"{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}"#;
    repository.put("model.safetensors.index.json", "index", index);
    repository.put("model-1.safetensors", SHA256, "hello");
    let states = states(&repository.snapshot());
    for name in ["config.json", "tokenizer.json", "model-2.safetensors"] {
        assert!(states.contains(&(name.into(), FileState::Missing)), "{states:?}");
    }
    assert_eq!(states.len(), 5);
}

#[test]
fn outside_of_a_cache_nothing_says_what_is_right() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("config.json"), "{}").unwrap();
    fs::write(folder.path().join("tokenizer.json"), "{}").unwrap();
    assert_eq!(states(folder.path()), ["config.json", "tokenizer.json"].map(|n| (n.to_owned(), FileState::Unknown)));
}

#[test]
fn links_that_lead_out_are_refused() {
    let repository = Repository::new();
    fs::write(repository.folder.path().join("secret"), "x").unwrap();
    symlink("../../../secret", repository.snapshot().join("config.json")).unwrap();
    let e = check(&repository.snapshot(), &mut |_, _| ControlFlow::Continue(())).unwrap_err();
    assert_eq!(e.code(), "bad_file");
}

#[test]
fn it_tells_how_far_it_is_and_can_be_stopped() {
    let repository = Repository::new();
    let long = "x".repeat(3 * STEP + 1);
    repository.put("a", SHA256, &long);
    repository.put("b", GIT, "hello");
    let mut told = Vec::new();
    check(&repository.snapshot(), &mut |done, total| {
        told.push((done, total));
        ControlFlow::Continue(())
    })
    .unwrap();
    let total = long.len() as u64 + 5;
    assert_eq!(told.last(), Some(&(total, total)));
    assert!(told.len() >= 5 && told.is_sorted(), "{told:?}");
    let mut steps = 0;
    let stopped = check(&repository.snapshot(), &mut |_, _| {
        steps += 1;
        ControlFlow::Break(())
    });
    assert!(matches!(stopped, Err(Error::Cancelled)) && steps == 1);
}
