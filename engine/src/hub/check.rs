//! Comparing the files of a snapshot with the hashes that they are stored under.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use super::remote::Hash;
use super::snapshot::Snapshot;
use crate::api::{FileCheck, FileState};
use crate::contained;
use crate::error::{Error, Result};

/// Bytes that are hashed between two looks at whether somebody wants to stop.
const STEP: usize = 1 << 20;
/// Folders below the snapshot's: deeper than any repository of a model.
const DEPTH: usize = 8;

/// Told bytes done and in all; breaking cancels.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64) -> ControlFlow<()>;

/// Hashes every file of a snapshot. In a Hugging Face cache a file is a link to a blob that is called by its hash; elsewhere nothing
/// says what the hash should be, and files are [`FileState::Unknown`]. Weight files that the snapshot's index names and that are not
/// there are [`FileState::Missing`].
///
/// # Errors
/// [`Error::Cancelled`]; [`Error::Io`] where the folder or a file cannot be read.
pub fn check(folder: &Path, progress: Progress<'_>) -> Result<Vec<FileCheck>> {
    let root = contained::root(folder).map_err(|e| Error::io(folder, e))?;
    let mut files = Vec::new();
    collect(folder, "", DEPTH, &mut files)?;
    files.sort();
    let found: Vec<(String, Option<Blob>)> =
        files.into_iter().map(|name| blob(folder, &root, &name).map(|b| (name, b))).collect::<Result<_>>()?;
    let total = found.iter().filter_map(|(_, b)| b.as_ref()).filter(|b| b.hash.is_some()).map(|b| b.bytes).sum();
    let mut done = 0;
    let mut checks = Vec::new();
    for (name, blob) in found {
        let Some(blob) = blob else {
            checks.push(FileCheck { name, bytes: 0, state: FileState::Missing });
            continue;
        };
        let state = match &blob.hash {
            None => FileState::Unknown,
            Some(hash) => {
                let right = matches(&blob.path, blob.bytes, hash, &mut |read| {
                    done += read;
                    progress(done, total)
                })?;
                if right { FileState::Right } else { FileState::Wrong }
            }
        };
        checks.push(FileCheck { name, bytes: blob.bytes, state });
    }
    checks.extend(absent(folder, &checks));
    Ok(checks)
}

/// Whether a file hashes to what it should. `on_step` gets the bytes of each step.
///
/// # Errors
/// [`Error::Cancelled`], [`Error::Io`].
pub fn matches(path: &Path, bytes: u64, hash: &Hash, on_step: &mut dyn FnMut(u64) -> ControlFlow<()>) -> Result<bool> {
    let mut file = File::open(path).map_err(|e| Error::io(path, e))?;
    let mut hasher = hash.hasher(bytes);
    let mut buffer = vec![0; STEP];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hasher.hex() == hash.hex()),
            Ok(n) => {
                hasher.update(&buffer[..n]);
                if on_step(n as u64).is_break() {
                    return Err(Error::Cancelled);
                }
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(Error::io(path, e)),
        }
    }
}

struct Blob {
    path: PathBuf,
    bytes: u64,
    /// By its name, where it has one.
    hash: Option<Hash>,
}

/// What a name of the snapshot leads to; `None`: nowhere.
fn blob(folder: &Path, root: &Path, name: &str) -> Result<Option<Blob>> {
    let link = folder.join(name);
    let path = match fs::canonicalize(&link) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        path => path.map_err(|e| Error::io(&link, e))?,
    };
    if !path.starts_with(root) {
        return Err(Error::bad_file(link, "a link that leads out of the snapshot"));
    }
    let meta = fs::metadata(&path).map_err(|e| Error::io(&path, e))?;
    if !meta.is_file() {
        return Err(Error::bad_file(link, "not a file"));
    }
    let stored = path.parent().is_some_and(|p| p == root.join("blobs"));
    let hash = stored.then(|| path.file_name()?.to_str()).flatten().and_then(Hash::parse);
    Ok(Some(Blob { bytes: meta.len(), path, hash }))
}

/// Names of the files below a folder, links among them.
fn collect(folder: &Path, inside: &str, depth: usize, names: &mut Vec<String>) -> Result<()> {
    let here = folder.join(inside);
    for entry in fs::read_dir(&here).map_err(|e| Error::io(&here, e))? {
        let entry = entry.map_err(|e| Error::io(&here, e))?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let name = if inside.is_empty() { name } else { format!("{inside}/{name}") };
        // Of the entry itself: a link to a folder is not followed.
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            if depth > 0 {
                collect(folder, &name, depth - 1, names)?;
            }
        } else {
            names.push(name);
        }
    }
    Ok(())
}

/// Weight files that the index names, and what no model runs without.
fn absent(folder: &Path, checks: &[FileCheck]) -> Vec<FileCheck> {
    let mut wanted = vec!["config.json".to_owned(), "tokenizer.json".into()];
    wanted.extend(Snapshot::indexed(folder));
    wanted.retain(|name| checks.iter().all(|c| c.name != *name));
    wanted.into_iter().map(|name| FileCheck { name, bytes: 0, state: FileState::Missing }).collect()
}

#[cfg(test)]
mod tests;
