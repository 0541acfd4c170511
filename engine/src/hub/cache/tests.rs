use tempfile::tempdir;

use super::*;

fn file(name: &str, contents: &str) -> RemoteFile {
    let hash = Hash::Git("0".repeat(40));
    let mut hasher = hash.hasher(contents.len() as u64);
    hasher.update(contents.as_bytes());
    RemoteFile { name: name.into(), bytes: contents.len() as u64, hash: Hash::parse(&hasher.hex()).unwrap() }
}

fn put(repo: &Repo, file: &RemoteFile, contents: &str) {
    make_folder(&repo.folder.join("blobs")).unwrap();
    fs::write(repo.blob(&file.hash), contents).unwrap();
}

fn listing(files: &[RemoteFile]) -> Listing {
    Listing { repo: "a/b".into(), commit: "1".repeat(40), gated: false, license: None, task: None, files: files.to_vec() }
}

#[test]
fn records_survive_and_foreign_ones_are_none() {
    let root = tempdir().unwrap();
    let cache = Cache { root: root.path().into() };
    let repo = cache.repo("a/b").unwrap();
    let record = Record {
        revision: "refs/pr/1".into(),
        commit: Some("1".repeat(40)),
        files: vec![file("x/y.json", "1"), file("z", "2")],
        paused: true,
        anyway: true,
    };
    repo.write_record(&record).unwrap();
    let other = Record { revision: "refs%2Fpr%2F1".into(), commit: None, files: vec![], paused: false, anyway: false };
    assert_eq!(repo.record("refs/pr/1"), Some(record.clone()));
    repo.write_record(&other).unwrap();
    assert_eq!(repo.record("refs%2Fpr%2F1"), Some(other.clone()), "names that look alike are two");
    assert_eq!(cache.unfinished().len(), 2);
    let huge = |a: u64, b: u64| {
        let zeros = "0".repeat(40);
        format!(
            r#"{{"version":1,"revision":"main","commit":null,"paused":false,"files":[["x",{a},"{zeros}"],["y",{b},"{zeros}"]]}}"#
        )
    };
    fs::write(repo.record_path("main"), huge((1 << 60) - 2, 1)).unwrap();
    assert!(!repo.record("main").unwrap().anyway, "the control, and a record of an older version");
    for text in [
        "",
        "{}",
        r#"{"version":2,"revision":"main","commit":null,"paused":false,"files":[]}"#,
        r#"{"version":1,"revision":"../m","commit":null,"paused":false,"files":[]}"#,
        r#"{"version":1,"revision":"main","commit":"x","paused":false,"files":[]}"#,
        r#"{"version":1,"revision":"main","commit":null,"paused":false,"files":[["../x",1,"0000000000000000000000000000000000000000"]]}"#,
        r#"{"version":1,"revision":"main","commit":null,"paused":false,"files":[["x",1,"../../x"]]}"#,
        // Sizes that no disk has, and whose sum no number has.
        &huge(1 << 60, 0),
        &huge(u64::MAX, 1),
        &huge(1 << 63, 1 << 63),
    ] {
        fs::write(repo.record_path("main"), text).unwrap();
        assert_eq!(repo.record("main"), None, "{text}");
    }
    fs::remove_file(repo.record_path("main")).unwrap();
    fs::write(repo.folder.join(format!("{NEW}1")), "torn").unwrap();
    repo.discard(&record).unwrap();
    repo.discard(&other).unwrap();
    assert!(!repo.folder.exists() && cache.unfinished().is_empty());
}

#[test]
fn a_snapshot_is_made_of_whole_blobs_only() {
    let root = tempdir().unwrap();
    let repo = Cache { root: root.path().into() }.repo("a/b").unwrap();
    let files = [file("config.json", "{}"), file("additional_chat_templates/x.jinja", "xx"), file("empty.json", "")];
    put(&repo, &files[0], "{}");
    put(&repo, &files[1], "x");
    put(&repo, &files[2], "");
    let error = repo.publish(&listing(&files), "main", &files).unwrap_err();
    assert!(error.to_string().contains("x.jinja"), "{error}");
    assert!(!repo.folder.join("snapshots").exists() && !repo.folder.join("refs").exists());
    put(&repo, &files[1], "xx");
    for revision in ["main", "refs/pr/1", &"1".repeat(40)] {
        repo.publish(&listing(&files), revision, &files).unwrap();
    }
    let snapshot = repo.snapshot(&"1".repeat(40));
    assert_eq!(fs::read_to_string(snapshot.join(&files[1].name)).unwrap(), "xx");
    assert_eq!(fs::read_link(snapshot.join("config.json")).unwrap(), Path::new("../../blobs").join(files[0].hash.hex()));
    assert_eq!(fs::read_to_string(repo.folder.join("refs/refs/pr/1")).unwrap(), "1".repeat(40));
    assert_eq!(names(&repo.folder.join("refs")), ["main", "refs"], "a commit needs no reference");
    assert_eq!(repo.linked().len(), 3);
    // What is linked is not discarded.
    let record = Record { revision: "main".into(), commit: None, files: files.to_vec(), paused: false, anyway: false };
    repo.discard(&record).unwrap();
    assert!(files.iter().all(|f| repo.has(f)));
}

#[test]
fn one_process_at_a_time_has_the_lock() {
    let root = tempdir().unwrap();
    let repo = Cache { root: root.path().into() }.repo("a/b").unwrap();
    assert!(!repo.is_locked());
    let lock = repo.lock().unwrap().unwrap();
    assert!(repo.is_locked() && repo.lock().unwrap().is_none());
    drop(lock);
    assert!(!repo.is_locked() && repo.lock().unwrap().is_some());
}

#[test]
fn a_full_disk_is_told_apart() {
    let full = disk_error(Path::new("/"), 10, io::Error::from(ErrorKind::StorageFull));
    assert!(matches!(&full, Error::DiskFull { needed: 10, .. }) && full.to_string().contains("hint:"), "{full}");
    assert_eq!(disk_error(Path::new("/"), 10, io::Error::from(ErrorKind::PermissionDenied)).code(), "io");
    assert!(free(Path::new("/no/such/folder")).unwrap() > 0, "of the folder that is there");
}

#[test]
fn what_could_not_be_loaded_is_not_fetched() {
    let root = tempdir().unwrap();
    let repo = Cache { root: root.path().join("hub") }.repo("a/b").unwrap();
    repo.check().unwrap();
    make_folder(&repo.folder).unwrap();
    repo.check().unwrap();
    let elsewhere = root.path().join("disk");
    make_folder(&elsewhere).unwrap();
    for part in ["blobs", "snapshots", "refs"] {
        let link = repo.folder.join(part);
        symlink(&elsewhere, &link).unwrap();
        let e = repo.check().unwrap_err().to_string();
        assert!(e.contains(part) && e.contains("HF_HUB_CACHE"), "{e}");
        fs::remove_file(&link).unwrap();
        make_folder(&link).unwrap();
        repo.check().unwrap();
    }
    // The whole repository on another disk, by its own name and by another.
    let moved = elsewhere.join("models--a--b");
    fs::rename(&repo.folder, &moved).unwrap();
    symlink(&moved, &repo.folder).unwrap();
    repo.check().unwrap();
    fs::remove_file(&repo.folder).unwrap();
    symlink(&elsewhere, &repo.folder).unwrap();
    assert!(repo.check().unwrap_err().to_string().contains("another name"));
}
