//! The Hugging Face cache as other tools lay it out, and what rMLX adds while it fetches:
//!
//! ```text
//! models--ORG--NAME/blobs/HASH                    a whole file
//!                   snapshots/COMMIT/PATH         links to blobs
//!                   refs/REVISION                 the commit of a branch or tag
//!                   blobs/HASH.rmlx-partial       what is here of a file, and
//!                   blobs/HASH.rmlx-parts         which ranges of it are
//!                   .rmlx-pull-REVISION.json      a download that is not at its end
//! .locks/models--ORG--NAME/rmlx.lock              held by the process that fetches
//! ```
//!
//! Only the names with `rmlx` in them are of our making, so that no other tool takes a part for a whole or for a beginning. A blob
//! gets its name when its hash was right, a snapshot its place when all its files are there.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::find::Library;
use super::remote::{Hash, Listing, MOST_BYTES, RemoteFile, check_repo, check_revision, is_commit, is_path};
use super::snapshot::{INDEX, names};
use crate::error::{Error, Result};

/// Bytes of a record at most.
const MAX_RECORD: u64 = 16 << 20;
const RECORD: &str = ".rmlx-pull-";
/// What becomes something else when it is whole.
const NEW: &str = ".rmlx-new-";
/// Whoever looks at a lock holds it for a moment, so one refusal is no proof yet.
const LOCK_TRIES: usize = 5;

/// The folder of all repositories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    pub root: PathBuf,
}

/// One repository's folder, which need not be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repo {
    /// `ORG/NAME`
    pub name: String,
    pub folder: PathBuf,
    lock: PathBuf,
}

/// The right to write to a repository's folder, until it is dropped or its process ends.
pub struct Lock {
    _file: File,
}

/// A download that is not at its end. Its files are what it needs, not all that the repository has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub revision: String,
    /// `None` until the hub has said it.
    pub commit: Option<String>,
    pub files: Vec<RemoteFile>,
    /// By the user: nobody goes on with it unasked.
    pub paused: bool,
    /// The user wants this commit in spite of what its plan says against it.
    pub anyway: bool,
}

impl Record {
    /// Whether what was begun in spite of a problem is this commit. Until the hub has named one, it is what was asked for.
    pub fn agreed(&self, commit: &str) -> bool {
        self.anyway && self.commit.as_deref().is_none_or(|own| own == commit)
    }
}

impl Cache {
    /// HF_HUB_CACHE, HF_HOME, or where it always is.
    pub fn from_env() -> Self {
        Self { root: Library::from_env().hugging_face }
    }

    /// # Errors
    /// [`Error::BadRequest`]: that is no repository's name.
    pub fn repo(&self, name: &str) -> Result<Repo> {
        check_repo(name)?;
        let folder = format!("models--{}", name.replace('/', "--"));
        let lock = self.root.join(".locks").join(&folder).join("rmlx.lock");
        Ok(Repo { name: name.into(), folder: self.root.join(folder), lock })
    }

    /// All downloads that are not at their end.
    pub fn unfinished(&self) -> Vec<(Repo, Record)> {
        let repos = names(&self.root).into_iter().filter_map(|n| self.repo(&repository_of(&n)?).ok());
        repos.flat_map(|repo| repo.records().into_iter().map(move |record| (repo.clone(), record))).collect()
    }
}

impl Repo {
    pub fn blob(&self, hash: &Hash) -> PathBuf {
        self.folder.join("blobs").join(hash.hex())
    }

    pub fn partial(&self, hash: &Hash) -> PathBuf {
        self.folder.join("blobs").join(format!("{}.rmlx-partial", hash.hex()))
    }

    pub fn parts(&self, hash: &Hash) -> PathBuf {
        self.folder.join("blobs").join(format!("{}.rmlx-parts", hash.hex()))
    }

    pub fn snapshot(&self, commit: &str) -> PathBuf {
        self.folder.join("snapshots").join(commit)
    }

    /// Whether the file is here as a whole. Its blob got its name when its hash was right.
    pub fn has(&self, file: &RemoteFile) -> bool {
        fs::metadata(self.blob(&file.hash)).is_ok_and(|m| m.is_file() && m.len() == file.bytes)
    }

    /// Whether what is put here can be loaded: files are only read where a repository's folder has its own name and its parts inside.
    ///
    /// # Errors
    /// [`Error::BadFile`] for a link that leads to anything else.
    pub fn check(&self) -> Result<()> {
        let Ok(real) = fs::canonicalize(&self.folder) else { return Ok(()) };
        let named = real.file_name().is_some_and(|n| n.to_string_lossy().starts_with("models--"));
        let inside = |part: &&str| {
            let path = self.folder.join(part);
            fs::symlink_metadata(&path).is_err() || fs::canonicalize(&path).is_ok_and(|p| p == real.join(part))
        };
        let hint = "models are not loaded from there\nhint: move the whole cache and let HF_HUB_CACHE say where it is";
        let wrong = |path: PathBuf, what: &str| Err(Error::bad_file(path, format!("{what}: {hint}")));
        match ["blobs", "snapshots", "refs"].into_iter().find(|part| !inside(part)) {
            Some(part) => wrong(self.folder.join(part), "a link that leads elsewhere"),
            None if !named => wrong(self.folder.clone(), "a link to a folder of another name"),
            None => Ok(()),
        }
    }

    /// `None`: another process is at it.
    pub fn lock(&self) -> Result<Option<Lock>> {
        let io = |e| Error::io(&self.lock, e);
        make_folder(self.lock.parent().unwrap_or(&self.lock))?;
        let file = File::options().write(true).create(true).truncate(false).open(&self.lock).map_err(io)?;
        for _ in 0..LOCK_TRIES {
            match file.try_lock() {
                Ok(()) => return Ok(Some(Lock { _file: file })),
                Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(10)),
                Err(TryLockError::Error(e)) => return Err(io(e)),
            }
        }
        Ok(None)
    }

    /// Whether somebody, this process or another, holds the lock.
    pub fn is_locked(&self) -> bool {
        let file = File::open(&self.lock);
        file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    /// Makes the snapshot from blobs that are all here, then the reference to it.
    ///
    /// A snapshot that is new appears with all its links at once. One that another tool has begun gets them one by one, and those
    /// last without which nobody takes it for whole.
    pub fn publish(&self, listing: &Listing, revision: &str, files: &[RemoteFile]) -> Result<()> {
        if let Some(missing) = files.iter().find(|f| !self.has(f)) {
            return Err(Error::bad_file(self.blob(&missing.hash), format!("is not there, or not whole: {}", missing.name)));
        }
        let mut files: Vec<&RemoteFile> = files.iter().collect();
        files.sort_by_key(|f| (f.name == "config.json", f.name == INDEX));
        let snapshot = self.snapshot(&listing.commit);
        if snapshot.is_dir() {
            link_all(&snapshot, &files)?;
        } else {
            let new = self.unlinked(&listing.commit);
            remove_folder(&new)?;
            link_all(&new, &files)?;
            make_folder(&self.folder.join("snapshots"))?;
            fs::rename(&new, &snapshot).map_err(|e| Error::io(&snapshot, e))?;
        }
        sync_folder(&self.folder.join("snapshots"))?;
        if !is_commit(revision) {
            let reference = self.folder.join("refs").join(revision);
            make_folder(reference.parent().unwrap_or(&reference))?;
            self.replace(&reference, listing.commit.as_bytes())?;
        }
        Ok(())
    }

    /// Names of blobs that a snapshot links to.
    pub fn linked(&self) -> BTreeSet<String> {
        let mut linked = BTreeSet::new();
        links(&self.folder.join("snapshots"), 8, &mut linked);
        linked
    }

    /// A snapshot in the making.
    fn unlinked(&self, commit: &str) -> PathBuf {
        self.folder.join(format!(".rmlx-snapshot-{commit}"))
    }

    fn record_path(&self, revision: &str) -> PathBuf {
        self.folder.join(format!("{RECORD}{}.json", revision.replace('%', "%25").replace('/', "%2F")))
    }

    pub fn record(&self, revision: &str) -> Option<Record> {
        read_record(&self.record_path(revision)).filter(|r| r.revision == revision)
    }

    pub fn records(&self) -> Vec<Record> {
        let files = names(&self.folder).into_iter().filter(|n| n.starts_with(RECORD) && n.ends_with(".json"));
        files.filter_map(|n| read_record(&self.folder.join(n))).collect()
    }

    /// Only with the lock.
    pub fn write_record(&self, record: &Record) -> Result<()> {
        make_folder(&self.folder)?;
        let files = record.files.iter().map(|f| (f.name.clone(), f.bytes, f.hash.hex().to_owned())).collect();
        let (revision, commit) = (record.revision.clone(), record.commit.clone());
        let stored = Stored { version: 1, revision, commit, paused: record.paused, anyway: record.anyway, files };
        let text = serde_json::to_vec(&stored).map_err(|e| Error::Internal(format!("a record did not become JSON: {e}")))?;
        self.replace(&self.record_path(&record.revision), &text)
    }

    /// Also what a crash left of one that was being written. Only with the lock.
    pub fn remove_record(&self, revision: &str) -> Result<()> {
        for name in names(&self.folder).into_iter().filter(|n| n.starts_with(NEW)) {
            remove(&self.folder.join(name))?;
        }
        remove(&self.record_path(revision))
    }

    /// Removes what is here of a download that shall not go on, but no file that a snapshot or another download uses; then the
    /// folders that are empty. Only with the lock.
    pub fn discard(&self, record: &Record) -> Result<()> {
        self.remove_record(&record.revision)?;
        if let Some(commit) = &record.commit {
            remove_folder(&self.unlinked(commit))?;
        }
        self.discard_files(&record.files)
    }

    /// As [`Self::discard`], of files that no record has any longer.
    pub fn discard_files(&self, files: &[RemoteFile]) -> Result<()> {
        let mut used = self.linked();
        used.extend(self.records().iter().flat_map(|r| &r.files).map(|f| f.hash.hex().to_owned()));
        for file in files.iter().filter(|f| !used.contains(f.hash.hex())) {
            for path in [self.partial(&file.hash), self.parts(&file.hash), self.blob(&file.hash)] {
                remove(&path)?;
            }
        }
        for folder in [self.folder.join("blobs"), self.folder.clone()] {
            // Those that are not empty stay.
            let _ = fs::remove_dir(folder);
        }
        Ok(())
    }

    /// Writes a file that is there as a whole or not at all.
    fn replace(&self, path: &Path, contents: &[u8]) -> Result<()> {
        let half = self.folder.join(format!("{NEW}{}", std::process::id()));
        let done = (|| {
            let mut file = File::create(&half)?;
            file.write_all(contents)?;
            file.sync_all()?;
            fs::rename(&half, path)
        })();
        done.map_err(|e| {
            // The first error is the one to report.
            let _ = fs::remove_file(&half);
            disk_error(path, contents.len() as u64, e)
        })?;
        sync_folder(path.parent().unwrap_or(path))
    }
}

#[derive(Serialize, Deserialize)]
struct Stored {
    version: u32,
    revision: String,
    commit: Option<String>,
    paused: bool,
    #[serde(default)]
    anyway: bool,
    /// Name, bytes, hash.
    files: Vec<(String, u64, String)>,
}

/// Anybody may have written the file: what is not as we write it is no record.
fn read_record(path: &Path) -> Option<Record> {
    fs::metadata(path).ok().filter(|m| m.is_file() && m.len() <= MAX_RECORD)?;
    let stored: Stored = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    let file = |(name, bytes, hash): (String, u64, String)| {
        Some(RemoteFile { hash: Hash::parse(&hash)?, name: is_path(&name).then_some(name)?, bytes })
    };
    let files = stored.files.into_iter().map(file).collect::<Option<Vec<_>>>()?;
    let right = stored.version == 1 && check_revision(&stored.revision).is_ok() && stored.commit.as_deref().is_none_or(is_commit);
    // Sums of sizes are taken in many places; no download comes near this one.
    files.iter().try_fold(0_u64, |all, f| all.checked_add(f.bytes).filter(|all| *all < MOST_BYTES))?;
    let Stored { revision, commit, paused, anyway, .. } = stored;
    right.then_some(Record { revision, commit, files, paused, anyway })
}

/// `ORG/NAME` of a repository's folder.
pub(super) fn repository_of(folder: &str) -> Option<String> {
    Some(folder.strip_prefix("models--")?.replacen("--", "/", 1))
}

/// A link in place of what is there, for each file.
fn link_all(snapshot: &Path, files: &[&RemoteFile]) -> Result<()> {
    for file in files {
        let link = snapshot.join(&file.name);
        make_folder(link.parent().unwrap_or(snapshot))?;
        // From `snapshots/COMMIT`, whatever this folder is called yet.
        let up = "../".repeat(2 + file.name.matches('/').count());
        let target = PathBuf::from(format!("{up}blobs/{}", file.hash.hex()));
        if fs::read_link(&link).is_ok_and(|there| there == target) {
            continue;
        }
        remove(&link)?;
        symlink(&target, &link).map_err(|e| disk_error(&link, 0, e))?;
    }
    sync_folder(snapshot)
}

fn links(folder: &Path, depth: usize, found: &mut BTreeSet<String>) {
    for name in names(folder) {
        let path = folder.join(name);
        match fs::symlink_metadata(&path).map(|m| m.file_type()) {
            Ok(t) if t.is_dir() && depth > 0 => links(&path, depth - 1, found),
            Ok(t) if t.is_symlink() => {
                let target = fs::read_link(&path).unwrap_or_default();
                found.extend(target.file_name().and_then(OsStr::to_str).map(String::from));
            }
            _ => {}
        }
    }
}

pub(super) fn make_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|e| disk_error(folder, 0, e))
}

/// New names outlive a power cut.
pub(super) fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder).and_then(|f| f.sync_all()).map_err(|e| Error::io(folder, e))
}

pub(super) fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io(path, e)),
        _ => Ok(()),
    }
}

fn remove_folder(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io(path, e)),
        _ => Ok(()),
    }
}

/// What a write said, with both numbers where the disk is full. `needed`: bytes that were to be written.
pub(super) fn disk_error(path: &Path, needed: u64, e: io::Error) -> Error {
    match e.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => disk_full(path, needed, free(path).unwrap_or(0)),
        _ => Error::io(path, e),
    }
}

pub fn disk_full(path: &Path, needed: u64, free: u64) -> Error {
    let hint = "\nhint: make room, then go on with the download: what is here stays".into();
    Error::DiskFull { path: path.into(), needed, free, hint }
}

/// Bytes that a user may still write where this path is, or will be.
pub fn free(path: &Path) -> Result<u64> {
    let there = path.ancestors().find(|p| p.exists()).unwrap_or(Path::new("/"));
    let stat = rustix::fs::statvfs(there).map_err(|e| Error::io(there, e.into()))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(test)]
mod tests;
