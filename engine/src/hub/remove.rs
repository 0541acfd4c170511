//! Removing a snapshot, and with it the bytes that nothing else uses.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::cache::repository_of;
use super::find::Library;
use super::snapshot::names;
use crate::error::{Error, Result};

/// What would go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removable {
    /// A folder of rMLX's own models folder.
    Own(PathBuf),
    /// A snapshot of a repository in a Hugging Face cache.
    Cached { repository: PathBuf, commit: String },
}

impl Removable {
    /// What a name stands for, if it is in a folder of ours.
    ///
    /// # Errors
    /// [`Error::ModelNotFound`]; [`Error::BadRequest`] for a folder anywhere else.
    pub fn find(library: &Library, model: &str) -> Result<Self> {
        let folder = library.resolve(model)?;
        let not_ours = || {
            Error::BadRequest(format!(
                "{} is neither in rMLX's models folder nor in the Hugging Face cache, so it is not rMLX's to remove\nhint: remove the folder by hand",
                folder.display()
            ))
        };
        let parent = folder.parent().ok_or_else(not_ours)?;
        if same(parent, &library.models) {
            return Ok(Self::Own(folder));
        }
        let repository = parent.parent().filter(|_| parent.file_name().is_some_and(|n| n == "snapshots")).ok_or_else(not_ours)?;
        let cached = repository.parent().is_some_and(|hub| same(hub, &library.hugging_face));
        match folder.file_name().and_then(|n| n.to_str()) {
            Some(commit) if cached => Ok(Self::Cached { repository: repository.into(), commit: commit.into() }),
            _ => Err(not_ours()),
        }
    }

    /// Where it is.
    pub fn folder(&self) -> PathBuf {
        match self {
            Self::Own(folder) => folder.clone(),
            Self::Cached { repository, commit } => repository.join("snapshots").join(commit),
        }
    }

    /// `ORG/NAME` of a snapshot in the cache.
    pub fn repository(&self) -> Option<String> {
        let Self::Cached { repository, .. } = self else { return None };
        repository_of(repository.file_name()?.to_str()?)
    }

    /// Removes what a file of a snapshot in the cache leads to, and leaves the link, so that the snapshot is seen not to be whole.
    ///
    /// # Errors
    /// [`Error::BadFile`]: it leads to no blob of the repository; [`Error::Io`].
    pub fn remove_blob(&self, name: &str) -> Result<()> {
        let link = self.folder().join(name);
        let no_blob = || Error::bad_file(&link, "is no link to a file of the cache");
        let Self::Cached { repository, .. } = self else { return Err(no_blob()) };
        let blobs = fs::canonicalize(repository.join("blobs")).map_err(|e| Error::io(repository, e))?;
        let blob = fs::canonicalize(&link).map_err(|e| Error::io(&link, e))?;
        if blob.parent() != Some(&blobs) {
            return Err(no_blob());
        }
        gone(fs::remove_file(&blob), &blob)
    }

    /// Removes it and says how many bytes of the disk that gave. Doing it again after it was ended half-way removes the rest.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn remove(&self) -> Result<u64> {
        match self {
            Self::Own(folder) => own(folder),
            Self::Cached { repository, commit } => cached(repository, commit),
        }
    }
}

fn same(a: &Path, b: &Path) -> bool {
    matches!((fs::canonicalize(a), fs::canonicalize(b)), (Ok(a), Ok(b)) if a == b)
}

fn own(folder: &Path) -> Result<u64> {
    let io = |e| Error::io(folder, e);
    // A link that somebody put here: what it leads to is not ours.
    if fs::symlink_metadata(folder).map_err(io)?.is_symlink() {
        return fs::remove_file(folder).map(|()| 0).map_err(io);
    }
    let bytes = freed(folder);
    // Links inside are removed, not followed.
    fs::remove_dir_all(folder).map_err(io)?;
    Ok(bytes)
}

fn cached(repository: &Path, commit: &str) -> Result<u64> {
    let snapshots = repository.join("snapshots");
    let folder = snapshots.join(commit);
    let blobs = repository.join("blobs");
    let mut used = BTreeSet::new();
    for other in names(&snapshots).iter().filter(|n| *n != commit) {
        links(&snapshots.join(other), &mut used);
    }
    let mut own = BTreeSet::new();
    links(&folder, &mut own);
    let mut bytes = freed(&folder);
    // The blobs first: a snapshot that lacks them can be removed again, and blobs without one would lie there for ever.
    for blob in own.difference(&used).filter(|blob| blob.parent() == fs::canonicalize(&blobs).ok().as_deref()) {
        let size = on_disk(blob);
        gone(fs::remove_file(blob), blob)?;
        bytes += size;
    }
    gone(fs::remove_dir_all(&folder), &folder)?;
    refs(&repository.join("refs"), commit)?;
    // A download of another revision may have begun, and have no bytes yet.
    let begun = names(repository).iter().any(|n| n.starts_with(".rmlx-"));
    if names(&snapshots).is_empty() && names(&blobs).is_empty() && !begun {
        gone(fs::remove_dir_all(repository), repository)?;
    }
    Ok(bytes)
}

/// What was gone already is as wanted.
fn gone(result: std::io::Result<()>, path: &Path) -> Result<()> {
    match result {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io(path, e)),
        _ => Ok(()),
    }
}

/// Branches and tags that lead to the commit.
fn refs(folder: &Path, commit: &str) -> Result<()> {
    for name in names(folder) {
        let path = folder.join(name);
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_dir() => refs(&path, commit)?,
            Ok(meta) if meta.is_file() && leads_to(&path, meta.len(), commit) => gone(fs::remove_file(&path), &path)?,
            _ => {}
        }
    }
    Ok(())
}

fn leads_to(reference: &Path, bytes: u64, commit: &str) -> bool {
    bytes < 256 && fs::read_to_string(reference).is_ok_and(|text| text.trim() == commit)
}

/// What the links below a snapshot's folder lead to.
fn links(folder: &Path, found: &mut BTreeSet<PathBuf>) {
    for name in names(folder) {
        let path = folder.join(name);
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_dir() => links(&path, found),
            Ok(meta) if meta.is_symlink() => found.extend(fs::canonicalize(&path)),
            _ => {}
        }
    }
}

/// Bytes of the disk that removing a folder gives: files with other names elsewhere stay.
fn freed(folder: &Path) -> u64 {
    let one = |name: String| {
        let path = folder.join(name);
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_dir() => freed(&path),
            Ok(meta) if meta.is_file() => on_disk(&path),
            _ => 0,
        }
    };
    names(folder).into_iter().map(one).sum()
}

fn on_disk(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::symlink_metadata(path).map_or(0, |meta| if meta.nlink() > 1 { 0 } else { meta.len() })
}

#[cfg(test)]
mod tests;
