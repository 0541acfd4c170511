use std::os::unix::fs::symlink;

use super::*;
use crate::hub::made;

struct Home {
    folder: tempfile::TempDir,
    library: Library,
}

fn home() -> Home {
    let folder = tempfile::tempdir().unwrap();
    let library = Library { models: folder.path().join("models"), hugging_face: folder.path().join("hub"), folder: None };
    Home { folder, library }
}

fn snapshot(folder: &Path) -> u64 {
    fs::create_dir_all(folder).unwrap();
    let config = r#"{"architectures": ["LlamaForCausalLM"], "quantization": {"group_size": 32, "bits": 4,
        "model.embed_tokens": {"group_size": 32, "bits": 8}}}"#;
    let weights = made::safetensors(r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#, 4);
    fs::write(folder.join("config.json"), config).unwrap();
    fs::write(folder.join("model.safetensors"), &weights).unwrap();
    fs::write(folder.join("tokenizer.json"), "{}").unwrap();
    (config.len() + weights.len() + 2) as u64
}

impl Home {
    fn cache(&self, repository: &str, commit: &str, reference: Option<&str>) -> PathBuf {
        let root = self.library.hugging_face.join(repository);
        let folder = root.join("snapshots").join(commit);
        snapshot(&folder);
        if let Some(reference) = reference {
            let file = root.join("refs").join(reference);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, commit).unwrap();
        }
        folder
    }

    fn found(&self, model: &str) -> PathBuf {
        self.library.resolve(model).unwrap_or_else(|e| panic!("{model}: {e}"))
    }

    fn missing(&self, model: &str) -> String {
        let e = self.library.resolve(model).expect_err(model);
        assert_eq!(e.code(), "model_not_found", "{model}: {e}");
        e.to_string()
    }
}

#[test]
fn resolves() {
    let home = home();
    let own = home.library.models.join("Own");
    snapshot(&own);
    snapshot(&home.library.models.join(STARTER));
    let main = home.cache("models--org--Name", "aaa", Some("main"));
    let pull = home.cache("models--org--Name", "bbb", Some("refs/pr/1"));
    let lone = home.cache("models--gpt--Only", "ccc", None);
    let twin = home.cache("models--x--Twin", "ddd", Some("main"));
    home.cache("models--y--Twin", "eee", Some("main"));
    home.cache("datasets--org--Data", "fff", Some("main"));

    assert_eq!(home.found("Own"), own);
    assert_eq!(home.found("starter"), home.library.models.join(STARTER));
    assert_eq!(home.found(STARTER), home.library.models.join(STARTER));
    assert_eq!(home.found(own.to_str().unwrap()), own);
    for name in ["org/Name", "Name", "Name@main", "org/Name@aaa"] {
        assert_eq!(home.found(name), main);
    }
    assert_eq!(home.found("org/Name@refs/pr/1"), pull);
    assert_eq!(home.found("Name@bbb"), pull);
    assert_eq!(home.found("gpt/Only"), lone);
    assert_eq!(home.found("x/Twin"), twin);
    let e = home.library.resolve("Twin").unwrap_err();
    assert!(e.code() == "invalid_request" && e.to_string().contains("x/Twin, y/Twin"), "{e}");
    // Relative to the folder of the test run, this package's.
    assert_eq!(home.found("src"), Path::new("src"));
    assert_eq!(home.found("./src"), Path::new("./src"));

    for name in
        ["none", "/none", "./none", "org/None", "Name@none", "org/Data", "Name@../snapshots/aaa", "Name@.", ".hidden", "", "@"]
    {
        home.missing(name);
    }
    let text = home.missing("none");
    assert!(text.contains("Own") && text.contains("org/Name") && text.contains("x/Twin"), "{text}");
}

#[test]
fn every_snapshot_of_a_repository_is_listed() {
    let mut home = home();
    let main = home.cache("models--org--Name", "aaa", Some("main"));
    let old = home.cache("models--org--Name", "bbb", None);
    let tag = home.cache("models--org--Name", "ccc", Some("v1"));
    let change = home.cache("models--org--Name", "ddd", Some("refs/pr/1"));
    let (one, two) = (home.cache("models--x--Bare", "eee", None), home.cache("models--x--Bare", "fff", None));
    let lone = home.cache("models--x--Lone", "ggg", Some("v2"));
    let expected = [
        ("org/Name", main),
        ("org/Name@bbb", old),
        ("org/Name@v1", tag),
        ("org/Name@refs/pr/1", change),
        ("x/Bare@eee", one),
        ("x/Bare@fff", two),
        ("x/Lone", lone),
    ];
    let expected: Vec<_> = expected.into_iter().map(|(name, folder)| (name.to_owned(), folder)).collect();
    let listed = |library: &Library| library.list().into_iter().map(|e| (e.name, e.folder)).collect::<Vec<_>>();
    assert_eq!(listed(&home.library), expected);
    expected.iter().for_each(|(name, folder)| assert_eq!(home.found(name), *folder));
    // The same names in the user's own folder: each entry's name leads to that entry.
    let extra = home.folder.path().join("extra");
    snapshot(&extra.join("org/Name"));
    snapshot(&extra.join("models--x--Mine/snapshots/hhh"));
    snapshot(&extra.join("models--x--Mine/snapshots/iii"));
    home.library.folder = Some(extra.clone());
    let listed = listed(&home.library);
    let more = [
        ("x/Mine@hhh".to_owned(), extra.join("models--x--Mine/snapshots/hhh")),
        ("x/Mine@iii".to_owned(), extra.join("models--x--Mine/snapshots/iii")),
        (extra.join("org/Name").display().to_string(), extra.join("org/Name")),
    ];
    assert_eq!(listed[7..], more);
    listed.iter().for_each(|(name, folder)| assert_eq!(home.found(name), *folder));
}

#[test]
fn what_is_not_here_says_how_to_get_it() {
    let home = home();
    assert!(home.missing("org/Name").contains("hint: fetch it with: rmlx pull org/Name\n"));
    assert!(home.missing("org/Name@v1").contains("rmlx pull org/Name@v1\n"));
    for name in ["Name", "a/b/c", "/none/x", "org/Name@", "../x"] {
        assert!(!home.missing(name).contains("rmlx pull"), "{name}");
    }
    let repo = Cache { root: home.library.hugging_face.clone() }.repo("org/Name").unwrap();
    repo.write_record(&super::super::cache::Record {
        revision: "main".into(),
        commit: None,
        files: Vec::new(),
        paused: true,
        anyway: false,
    })
    .unwrap();
    assert!(home.missing("org/Name").contains("not finished; go on with: rmlx pull org/Name\n"));
}

#[test]
fn a_folder_that_cannot_be_read_is_told() {
    let mut home = home();
    assert!(home.library.trouble().is_none());
    let file = home.folder.path().join("file");
    fs::write(&file, "").unwrap();
    for (folder, wrong) in [(file, true), (home.folder.path().join("none"), true), (home.folder.path().into(), false)] {
        home.library.folder = Some(folder.clone());
        assert_eq!(home.library.trouble().map(|e| e.to_string().contains(folder.to_str().unwrap())), wrong.then_some(true));
        assert!(home.library.list().is_empty());
    }
}

#[test]
fn the_starter_s_absence_says_what_to_do() {
    let text = home().missing("starter");
    assert!(text.contains("make run") && text.contains("rmlx import") && text.contains("no models yet"), "{text}");
}

#[test]
fn references_do_not_lead_out() {
    let home = home();
    let outside = home.folder.path().join("outside");
    snapshot(&outside);
    let root = home.cache("models--org--Name", "aaa", None).parent().unwrap().parent().unwrap().to_path_buf();
    fs::create_dir_all(root.join("refs")).unwrap();
    home.cache("models--org--Name", "bbb", None);
    for commit in ["../../../outside", outside.to_str().unwrap(), "..", "", "link"] {
        let _ = fs::remove_file(root.join("snapshots/link"));
        symlink(&outside, root.join("snapshots/link")).unwrap();
        fs::write(root.join("refs/main"), commit).unwrap();
        home.missing("org/Name");
    }
}

#[test]
fn lists() {
    let home = home();
    let bytes = snapshot(&home.library.models.join("Own"));
    fs::create_dir_all(home.library.models.join(".Own.partial")).unwrap();
    fs::create_dir_all(home.library.models.join("Empty")).unwrap();
    fs::write(home.library.models.join("a file"), "").unwrap();
    let cached = home.cache("models--org--Name", "aaa", Some("main"));
    let blobs = cached.parent().unwrap().with_file_name("blobs");
    fs::create_dir_all(&blobs).unwrap();
    fs::rename(cached.join("model.safetensors"), blobs.join("1")).unwrap();
    symlink("../../blobs/1", cached.join("model.safetensors")).unwrap();
    home.cache("models--org--Half", "bbb", Some("main"));
    fs::remove_file(home.library.hugging_face.join("models--org--Half/snapshots/bbb/tokenizer.json")).unwrap();
    fs::create_dir_all(home.library.hugging_face.join("models--org--Nothing")).unwrap();

    let list = home.library.list();
    let brief: Vec<_> = list.iter().map(|e| (e.name.as_str(), e.place, e.bytes, e.problem.is_some())).collect();
    assert_eq!(
        brief,
        [
            ("Empty", Place::Models, 0, true),
            ("Own", Place::Models, bytes, false),
            ("org/Half", Place::HuggingFace, bytes - 2, true),
            ("org/Name", Place::HuggingFace, bytes, false),
        ]
    );
    assert!(list[0].problem.as_ref().unwrap().contains("has no config.json"));
    assert!(list[2].problem.as_ref().unwrap().contains("tokenizer.json"));
    let own = &list[1];
    assert_eq!(
        (own.architecture.as_deref(), own.quantization.as_deref()),
        (Some("LlamaForCausalLM"), Some("affine 4/8-bit, group 32"))
    );
    for entry in &list {
        assert_eq!(home.found(&entry.name), entry.folder);
    }
    assert!(Library { models: "/none".into(), hugging_face: "/none".into(), folder: None }.list().is_empty());
}

#[test]
fn the_users_own_folder() {
    let mut home = home();
    let extra = home.folder.path().join("extra");
    snapshot(&extra.join("Plain"));
    snapshot(&extra.join("org/Deep"));
    snapshot(&extra.join("models--hub--Layout/snapshots/aaa"));
    snapshot(&extra.join(".hidden"));
    snapshot(&home.library.models.join("Own"));
    fs::create_dir_all(extra.join("empty/also")).unwrap();
    assert_eq!(home.library.list().len(), 1);
    home.library.folder = Some(extra.clone());
    let found: Vec<_> = home.library.list().into_iter().map(|e| (e.name, e.place, e.problem)).collect();
    let names: Vec<_> = found.iter().map(|(n, p, _)| (n.as_str(), *p)).collect();
    let (own, other) = (Place::Models, Place::Folder);
    assert_eq!(names, [("Own", own), ("hub/Layout", other), ("Plain", other), ("org/Deep", other)]);
    assert!(found.iter().all(|(.., problem)| problem.is_none()), "{found:?}");
    for (name, folder) in [
        ("Plain", "Plain"),
        ("org/Deep", "org/Deep"),
        ("Deep", "org/Deep"),
        ("hub/Layout", "models--hub--Layout/snapshots/aaa"),
        ("hub/Layout@aaa", "models--hub--Layout/snapshots/aaa"),
    ] {
        assert_eq!(home.found(name), extra.join(folder), "{name}");
    }
    home.missing("hub/Layout@bbb");
    home.missing("empty");
    // One of rMLX's own comes first, and a folder that is the models folder shows nothing twice.
    snapshot(&home.library.models.join("Plain"));
    assert_eq!(home.found("Plain"), home.library.models.join("Plain"));
    home.library.folder = Some(home.library.models.clone());
    assert_eq!(home.library.list().len(), 2);
}

#[test]
fn the_settings_say_which() {
    let home = home();
    let extra = home.folder.path().join("extra");
    settings::change(home.folder.path(), &serde_json::json!({ "models": { "folder": extra } })).unwrap();
    assert_eq!(Library::of(home.folder.path()).folder, Some(extra));
    fs::write(settings::path(home.folder.path()), "nonsense").unwrap();
    let library = Library::of(home.folder.path());
    assert_eq!((library.folder, library.models), (None, home.folder.path().join("models")));
}
