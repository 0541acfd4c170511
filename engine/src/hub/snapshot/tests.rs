use std::os::unix::fs::symlink;

use serde_json::json;

use super::*;
use crate::hub::made;

const CONFIG: &str = r#"{"architectures": ["LlamaForCausalLM"]}"#;

/// A folder with these files, and the folder around it.
fn folder(files: &[(&str, &[u8])]) -> (tempfile::TempDir, PathBuf) {
    let outer = tempfile::tempdir().unwrap();
    let inner = outer.path().join("snapshot");
    fs::create_dir(&inner).unwrap();
    for (name, bytes) in files {
        fs::write(inner.join(name), bytes).unwrap();
    }
    (outer, inner)
}

fn one(tensor: &str) -> Vec<u8> {
    made::safetensors(&format!(r#"{{"{tensor}":{{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}}}"#), 4)
}

fn index(map: Value) -> Vec<u8> {
    json!({"metadata": {}, "weight_map": map}).to_string().into_bytes()
}

#[test]
fn one_file() {
    let (_outer, path) = folder(&[("config.json", CONFIG.as_bytes()), (SINGLE, &one("a")), ("stray.safetensors", b"never read")]);
    let snapshot = Snapshot::open(&path).unwrap();
    assert_eq!(snapshot.architecture(), Some("LlamaForCausalLM"));
    let w = snapshot.weights().unwrap();
    assert_eq!((w.len(), w.bytes("a").unwrap(), w.total_bytes()), (1, &[0, 1, 2, 3][..], 4));
    assert_eq!(w.bytes("b").unwrap_err().code(), "bad_weights");
    assert_eq!(snapshot.text("config.json").unwrap().unwrap(), CONFIG);
    assert_eq!(snapshot.text("tokenizer.json").unwrap(), None);
}

#[test]
fn shards() {
    let files = |map: Value| {
        folder(&[
            ("config.json", CONFIG.as_bytes()),
            (INDEX, &index(map)),
            ("1.safetensors", &one("a")),
            ("2.safetensors", &one("b")),
            (SINGLE, b"not in the index, not read"),
        ])
    };
    let (_outer, path) = files(json!({"a": "1.safetensors", "b": "2.safetensors"}));
    let w = Snapshot::open(&path).unwrap().weights().unwrap();
    assert_eq!(w.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(w.file("b").unwrap().path(), path.join("2.safetensors"));

    let cases = [
        (json!({"a": "1.safetensors"}), None),
        (json!({"a": "1.safetensors", "b": "2.safetensors", "c": "2.safetensors"}), Some("lacks tensor c")),
        (json!({"a": "2.safetensors", "b": "2.safetensors"}), Some("lacks tensor a")),
        (json!({"c": "1.safetensors", "b": "2.safetensors"}), Some("lacks tensor c")),
        (json!({"a": "1.safetensors", "b": "3.safetensors"}), Some("lacks 3.safetensors")),
        (
            json!({"a": "4.safetensors", "b": "3.safetensors", "c": "1.safetensors"}),
            Some("lacks 2 of 3 weight files, 3.safetensors"),
        ),
        (json!({"a": "../1.safetensors"}), Some("not in a safetensors file of this folder")),
        (json!({"a": "/etc/1.safetensors"}), Some("not in a safetensors file of this folder")),
        (json!({"a": "./1.safetensors"}), Some("not in a safetensors file of this folder")),
        (json!({"a": "sub/1.safetensors"}), Some("not in a safetensors file of this folder")),
        (json!({"a": "1.safetensors/"}), Some("not in a safetensors file of this folder")),
        (json!({"a": "pytorch_model.bin"}), Some("not in a safetensors file of this folder")),
        (json!({"a": 1}), Some("not in a safetensors file of this folder")),
        (json!({}), Some("no tensors")),
        (json!([]), Some("no weight_map")),
    ];
    for (map, reason) in cases {
        let (_outer, path) = files(map.clone());
        let result = Snapshot::open(&path).and_then(|s| s.weights());
        match reason {
            None => assert_eq!(result.unwrap().len(), 1),
            Some(reason) => {
                let e = result.expect_err(reason);
                assert!(e.code() == "bad_file" && e.to_string().contains(reason), "{map}: {e}");
            }
        }
    }

    let two = made::safetensors(
        r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}}"#,
        4,
    );
    let map = json!({"a": "1.safetensors"});
    let (_outer, path) = folder(&[("config.json", CONFIG.as_bytes()), (INDEX, &index(map)), ("1.safetensors", &two)]);
    let e = Snapshot::open(&path).unwrap().weights().unwrap_err();
    assert!(e.to_string().contains("has tensor b"), "{e}");
}

#[test]
fn refuses() {
    let remote = br#"{"architectures": ["X"], "auto_map": {"AutoModelForCausalLM": "modeling_x.X"}}"#;
    let weights = one("a");
    // Files, the error's code, what it says.
    type Case<'a> = (&'a [(&'a str, &'a [u8])], &'a str, &'a str);
    let cases: &[Case] = &[
        (&[(SINGLE, &weights)], "bad_file", "has no config.json"),
        (&[("config.json", b"{"), (SINGLE, &weights)], "bad_file", "not valid JSON"),
        (&[("config.json", br#"{"eps": NaN}"#), (SINGLE, &weights)], "bad_file", "not valid JSON"),
        (&[("config.json", b"[]"), (SINGLE, &weights)], "bad_file", "not an object"),
        (&[("config.json", b"\"\xff\""), (SINGLE, &weights)], "bad_file", "not UTF-8"),
        (&[("config.json", remote), (SINGLE, &weights)], "unsupported_model", "brings its own code"),
        (&[("config.json", CONFIG.as_bytes())], "bad_file", "has neither"),
        (&[("config.json", CONFIG.as_bytes()), ("pytorch_model.bin", b"")], "unsupported_model", "pickle (pytorch_model.bin)"),
        (&[("config.json", CONFIG.as_bytes()), ("model.pt", b"")], "unsupported_model", "pickle (model.pt)"),
        (&[("x.gguf", b"")], "bad_file", "rmlx import"),
        (&[("config.json", CONFIG.as_bytes()), (INDEX, b"{}")], "bad_file", "no weight_map"),
    ];
    for (files, code, reason) in cases {
        let (_outer, path) = folder(files);
        let e = Snapshot::open(&path).expect_err(reason);
        assert!(e.code() == *code && e.to_string().contains(reason), "{e}");
    }
    let (_outer, path) = folder(&[("x.gguf", b"")]);
    assert!(Snapshot::open(&path.join("x.gguf")).unwrap_err().to_string().contains("rmlx import"));
    assert_eq!(Snapshot::open(&path.join("none")).unwrap_err().code(), "io");
}

#[test]
fn links_stay_inside() {
    let (outer, path) = folder(&[("config.json", CONFIG.as_bytes()), ("real.safetensors", &one("a"))]);
    let weights = path.join(SINGLE);
    let relink = |target: &Path| {
        let _ = fs::remove_file(&weights);
        symlink(target, &weights).unwrap();
        Snapshot::open(&path)
    };
    assert_eq!(relink(Path::new("real.safetensors")).unwrap().weights().unwrap().len(), 1);
    assert!(relink(&path.join("real.safetensors")).is_ok());
    let outside = outer.path().join("outside.safetensors");
    fs::write(&outside, one("a")).unwrap();
    for target in [Path::new("../outside.safetensors"), &outside] {
        assert!(relink(target).unwrap_err().to_string().contains("out of the snapshot"));
    }
    assert!(relink(Path::new("gone")).unwrap_err().to_string().contains("leads nowhere"));
    assert!(relink(&path).unwrap_err().to_string().contains("not a file"));
    // Two links that lead to each other.
    symlink(SINGLE, path.join("loop")).unwrap();
    assert_eq!(relink(Path::new("loop")).unwrap_err().code(), "io");
    // The snapshot itself may be a link.
    let _ = fs::remove_file(&weights);
    fs::write(&weights, one("a")).unwrap();
    symlink(&path, outer.path().join("link")).unwrap();
    assert!(Snapshot::open(&outer.path().join("link")).is_ok());
    for name in ["../outside.safetensors", "/etc/passwd", "", ".", "..", "a/b", "a\0"] {
        assert_eq!(Snapshot::open(&path).unwrap().file(name).unwrap_err().code(), "bad_file", "{name:?}");
    }
}

#[test]
fn hugging_face_links_reach_their_repository_only() {
    let outer = tempfile::tempdir().unwrap();
    let repository = outer.path().join("models--org--name");
    let snapshot = repository.join("snapshots/abc");
    fs::create_dir_all(&snapshot).unwrap();
    for folder in ["models--org--name/blobs", "models--other--name/blobs"] {
        let blobs = outer.path().join(folder);
        fs::create_dir_all(&blobs).unwrap();
        fs::write(blobs.join("1"), CONFIG).unwrap();
        fs::write(blobs.join("2"), one("a")).unwrap();
    }
    symlink("../../blobs/1", snapshot.join("config.json")).unwrap();
    symlink("../../blobs/2", snapshot.join(SINGLE)).unwrap();
    assert_eq!(Snapshot::open(&snapshot).unwrap().weights().unwrap().len(), 1);
    fs::remove_file(snapshot.join(SINGLE)).unwrap();
    symlink("../../../models--other--name/blobs/2", snapshot.join(SINGLE)).unwrap();
    assert!(Snapshot::open(&snapshot).unwrap_err().to_string().contains("out of the snapshot"));
}
