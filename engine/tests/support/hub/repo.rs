//! Repositories of the local hub, with hashes as git and the hub compute them.

use std::fs;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use sha1::Sha1;
use sha2::{Digest, Sha256};

/// One commit of a repository.
#[derive(Debug, Clone)]
pub struct Repository {
    /// `ORG/NAME`
    pub name: String,
    pub commit: String,
    /// `main` and what else leads here.
    pub branches: Vec<String>,
    pub files: Vec<File>,
    pub gated: bool,
    pub license: Option<String>,
    pub task: Option<String>,
    /// The listing, where a test wants another than the true one.
    pub listing: Option<Value>,
}

#[derive(Debug, Clone)]
pub struct File {
    pub name: String,
    pub contents: Contents,
    pub size: u64,
    /// Of git's blob; for a large file the hub's pointer has another, which nobody needs.
    pub git: String,
    /// Large files have it.
    pub sha256: Option<String>,
}

#[derive(Debug, Clone)]
pub enum Contents {
    Memory(Arc<Vec<u8>>),
    Disk(PathBuf),
}

/// From so many bytes on a file is a large one, as weights always are.
const LARGE: u64 = 10 << 20;

impl Contents {
    pub fn read(&self, at: u64, length: usize) -> std::io::Result<Vec<u8>> {
        match self {
            Self::Memory(bytes) => Ok(bytes[at as usize..at as usize + length].to_vec()),
            Self::Disk(path) => {
                let mut bytes = vec![0; length];
                fs::File::open(path)?.read_exact_at(&mut bytes, at)?;
                Ok(bytes)
            }
        }
    }
}

impl Repository {
    /// `files`: names and contents.
    pub fn new(name: &str, files: &[(&str, Vec<u8>)]) -> Self {
        let files = files.iter().map(|(name, bytes)| File::new(name, Contents::Memory(Arc::new(bytes.clone())))).collect();
        Self::of(name, files)
    }

    /// The files of a folder, hashed.
    pub fn from_folder(name: &str, folder: &Path) -> std::io::Result<Self> {
        let mut files = Vec::new();
        collect(folder, "", &mut files)?;
        Ok(Self::of(name, files))
    }

    fn of(name: &str, mut files: Vec<File>) -> Self {
        files.sort_by(|a, b| a.name.cmp(&b.name));
        let mut all = Sha1::new_with_prefix(name);
        files.iter().for_each(|f| all.update(format!("{} {} {:?}\n", f.name, f.git, f.sha256)));
        let readme = files.iter().find(|f| f.name == "README.md").and_then(|f| f.contents.read(0, f.size as usize).ok());
        let readme = readme.and_then(|r| String::from_utf8(r).ok()).unwrap_or_default();
        let front = |key: &str| readme.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(": ").map(String::from));
        Self {
            name: name.into(),
            commit: hex(&all.finalize()),
            branches: vec!["main".into()],
            gated: false,
            license: front("license"),
            task: front("pipeline_tag"),
            listing: None,
            files,
        }
    }

    pub fn file(&self, name: &str) -> &File {
        self.files.iter().find(|f| f.name == name).unwrap_or_else(|| panic!("{name} is in {}", self.name))
    }

    /// As `/api/models/ORG/NAME/revision/REVISION` has it.
    pub fn info(&self, blobs: bool) -> Value {
        if let Some(listing) = &self.listing {
            return listing.clone();
        }
        let sibling = |file: &File| {
            let mut sibling = json!({"rfilename": file.name});
            if blobs {
                sibling["size"] = file.size.into();
                sibling["blobId"] = file.git.clone().into();
                if let Some(sha256) = &file.sha256 {
                    sibling["lfs"] = json!({"sha256": sha256, "size": file.size, "pointerSize": 135});
                }
            }
            sibling
        };
        json!({
            "_id": "5f0000000000000000000000", "id": self.name, "modelId": self.name,
            "author": self.name.split('/').next(), "sha": self.commit, "private": false, "disabled": false,
            "gated": if self.gated { json!("manual") } else { json!(false) },
            "lastModified": "2026-11-20T10:00:00.000Z", "createdAt": "2026-11-01T10:00:00.000Z",
            "downloads": 1000, "likes": 10, "library_name": "transformers", "tags": ["transformers", "safetensors"],
            "pipeline_tag": self.task,
            "cardData": self.license.as_ref().map(|license| json!({"license": license})),
            "siblings": self.files.iter().map(sibling).collect::<Vec<_>>(),
        })
    }

    /// As `/api/models/ORG/NAME/tree/REVISION?recursive=true` has it.
    pub fn tree(&self) -> Value {
        let entry = |file: &File| {
            let mut entry = json!({"type": "file", "oid": file.git, "size": file.size, "path": file.name});
            if let Some(sha256) = &file.sha256 {
                entry["lfs"] = json!({"oid": sha256, "size": file.size, "pointerSize": 135});
            }
            entry
        };
        self.files.iter().map(entry).collect()
    }
}

impl File {
    pub fn new(name: &str, contents: Contents) -> Self {
        let size = match &contents {
            Contents::Memory(bytes) => bytes.len() as u64,
            Contents::Disk(path) => fs::metadata(path).map_or(0, |m| m.len()),
        };
        let mut git = Sha1::new_with_prefix(format!("blob {size}\0"));
        let mut sha256 = Sha256::new();
        match &contents {
            Contents::Memory(bytes) => {
                git.update(bytes.as_slice());
                sha256.update(bytes.as_slice());
            }
            Contents::Disk(path) => {
                let mut file = fs::File::open(path).expect("a file of a repository");
                let mut block = vec![0; 1 << 20];
                loop {
                    let n = file.read(&mut block).expect("a file of a repository");
                    if n == 0 {
                        break;
                    }
                    git.update(&block[..n]);
                    sha256.update(&block[..n]);
                }
            }
        }
        let large = size >= LARGE || name.ends_with(".safetensors");
        Self { name: name.into(), contents, size, git: hex(&git.finalize()), sha256: large.then(|| hex(&sha256.finalize())) }
    }

    /// What the hub calls its contents.
    pub fn etag(&self) -> &str {
        self.sha256.as_deref().unwrap_or(&self.git)
    }
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|b| format!("{b:02x}")).collect()
}

fn collect(folder: &Path, prefix: &str, files: &mut Vec<File>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let path = entry.path();
        // Through links: a snapshot of a cache is a folder as well.
        if path.is_dir() {
            collect(&path, &format!("{name}/"), files)?;
        } else {
            files.push(File::new(&name, Contents::Disk(path)));
        }
    }
    Ok(())
}
