use std::os::unix::fs::symlink;

use super::*;

struct Home {
    folder: tempfile::TempDir,
    library: Library,
}

fn home() -> Home {
    let folder = tempfile::tempdir().unwrap();
    let library = Library {
        models: folder.path().join("models"),
        hugging_face: folder.path().join("hub"),
        folder: Some(folder.path().join("extra")),
    };
    fs::create_dir_all(&library.models).unwrap();
    Home { folder, library }
}

impl Home {
    fn repository(&self) -> PathBuf {
        self.library.hugging_face.join("models--org--Name")
    }

    /// A snapshot with links to these blobs, which are made where they are not there; their contents are as long as their names.
    fn snapshot(&self, commit: &str, reference: Option<&str>, blobs: &[&str]) {
        let folder = self.repository().join("snapshots").join(commit);
        fs::create_dir_all(folder.join("sub")).unwrap();
        fs::create_dir_all(self.repository().join("blobs")).unwrap();
        for (i, blob) in blobs.iter().enumerate() {
            fs::write(self.repository().join("blobs").join(blob), blob).unwrap();
            symlink(format!("../../blobs/{blob}"), folder.join(format!("file{i}"))).unwrap();
        }
        if let Some(reference) = reference {
            let path = self.repository().join("refs").join(reference);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, commit).unwrap();
        }
    }

    fn blobs(&self) -> Vec<String> {
        names(&self.repository().join("blobs"))
    }

    fn remove(&self, model: &str) -> Result<u64> {
        Removable::find(&self.library, model)?.remove()
    }
}

#[test]
fn what_another_snapshot_uses_stays() {
    let home = home();
    home.snapshot("aaa", Some("main"), &["shared", "old"]);
    home.snapshot("bbb", Some("refs/pr/1"), &["shared", "new"]);
    fs::write(home.repository().join("blobs/orphan.rmlx-partial"), "part").unwrap();
    assert_eq!(home.remove("org/Name").unwrap(), 3);
    assert_eq!(home.blobs(), ["new", "orphan.rmlx-partial", "shared"]);
    assert!(!home.repository().join("snapshots/aaa").exists() && !home.repository().join("refs/main").exists());
    assert!(home.repository().join("refs/refs/pr/1").exists());
    assert_eq!(fs::read_to_string(home.repository().join("snapshots/bbb/file0")).unwrap(), "shared");
    assert_eq!(home.remove("org/Name@bbb").unwrap(), "shared".len() as u64 + 3);
    // The half of another download keeps its folder.
    assert_eq!(home.blobs(), ["orphan.rmlx-partial"]);
    fs::remove_file(home.repository().join("blobs/orphan.rmlx-partial")).unwrap();
    home.snapshot("ccc", Some("main"), &["x"]);
    home.remove("org/Name").unwrap();
    assert!(!home.repository().exists());
}

#[test]
fn a_removal_that_was_ended_half_way_is_done_again() {
    let home = home();
    home.snapshot("aaa", Some("main"), &["one", "two"]);
    fs::remove_file(home.repository().join("blobs/one")).unwrap();
    assert_eq!(home.remove("org/Name").unwrap(), 3);
    assert!(!home.repository().exists());
}

#[test]
fn links_out_are_removed_and_not_followed() {
    let home = home();
    let outside = home.folder.path().join("precious");
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("file"), "keep").unwrap();
    // In a cache: a snapshot's file, and a whole folder.
    home.snapshot("aaa", Some("main"), &["own"]);
    symlink(outside.join("file"), home.repository().join("snapshots/aaa/evil")).unwrap();
    symlink(&outside, home.repository().join("snapshots/aaa/folder")).unwrap();
    assert_eq!(home.remove("org/Name").unwrap(), 3);
    // In the models folder: inside a model, and the model itself.
    let model = home.library.models.join("Mine");
    fs::create_dir_all(&model).unwrap();
    fs::write(model.join("weights"), "12345").unwrap();
    symlink(&outside, model.join("folder")).unwrap();
    assert_eq!(home.remove("Mine").unwrap(), 5);
    symlink(&outside, home.library.models.join("Link")).unwrap();
    assert_eq!(home.remove("Link").unwrap(), 0);
    assert!(!home.library.models.join("Link").exists());
    assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "keep");
}

#[test]
fn only_what_is_ours() {
    let home = home();
    let elsewhere = home.folder.path().join("elsewhere");
    fs::create_dir_all(&elsewhere).unwrap();
    let extra = home.folder.path().join("extra/Model");
    fs::create_dir_all(&extra).unwrap();
    fs::write(extra.join("config.json"), "{}").unwrap();
    let cache = home.folder.path().join("other/models--org--Name/snapshots/aaa");
    fs::create_dir_all(&cache).unwrap();
    let inside = home.library.models.join("Mine/part");
    fs::create_dir_all(&inside).unwrap();
    for model in [
        elsewhere.to_str().unwrap(),
        "Model",
        cache.to_str().unwrap(),
        inside.to_str().unwrap(),
        "/",
        home.library.models.to_str().unwrap(),
    ] {
        let e = home.remove(model).unwrap_err();
        assert!(e.code() == "invalid_request" && e.to_string().contains("hint: "), "{model}: {e}");
    }
    assert_eq!(home.remove("nothing").unwrap_err().code(), "model_not_found");
    assert!([elsewhere, extra, cache, inside].iter().all(|folder| folder.exists()));
    // By its path, what is ours is ours too.
    assert_eq!(home.remove(home.library.models.join("Mine").to_str().unwrap()).unwrap(), 0);
    assert!(!home.library.models.join("Mine").exists());
}
