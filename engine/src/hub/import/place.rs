//! Puts a folder under its name at once: it is built beside its place and renamed.

use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::ImportOptions;
use crate::error::{Error, Result};

/// The folder under construction. Dropped before [`Place::finish`], it is removed; a killed process leaves it, and the next import
/// to the same place removes it.
pub(super) struct Place {
    out: PathBuf,
    partial: PathBuf,
    /// Held by the process that writes. Another one that finds it free knows that the folder is a leftover.
    _lock: File,
    lock_path: PathBuf,
    finished: bool,
}

impl Place {
    pub(super) fn claim(options: &ImportOptions) -> Result<Self> {
        let out = options.out.clone();
        let name = out.file_name().ok_or_else(|| Error::BadRequest(format!("{} is not a folder's name", out.display())))?;
        let name = name.to_string_lossy().into_owned();
        let parent = match out.parent() {
            Some(p) if !p.as_os_str().is_empty() => p.to_path_buf(),
            _ => PathBuf::from("."),
        };
        may_replace(&out, options.force)?;
        fs::create_dir_all(&parent).map_err(|e| Error::io(&parent, e))?;

        let lock_path = parent.join(format!(".{name}.lock"));
        let lock = File::options().write(true).create(true).truncate(false).open(&lock_path);
        let lock = lock.map_err(|e| Error::io(&lock_path, e))?;
        let running = || Err(Error::BadRequest(format!("another import to {} is running", out.display())));
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return running(),
            Err(TryLockError::Error(e)) => return Err(Error::io(&lock_path, e)),
        }
        // The one who held it before may have removed the file since it was opened here.
        let inode = |m: std::io::Result<fs::Metadata>| m.ok().map(|m| m.ino());
        if inode(lock.metadata()) != inode(fs::symlink_metadata(&lock_path)) {
            return running();
        }
        let partial = parent.join(format!(".{name}.partial"));
        remove(&partial)?;
        fs::create_dir(&partial).map_err(|e| Error::io(&partial, e))?;
        Ok(Self { out, partial, _lock: lock, lock_path, finished: false })
    }

    pub(super) fn json(&self, name: &str, value: &Value) -> Result<()> {
        let text = serde_json::to_string_pretty(value).map_err(|e| Error::Internal(format!("{name}: {e}")))?;
        self.write(name, text.as_bytes())
    }

    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.file(name);
        let io = |e| Error::io(&path, e);
        let mut file = File::create(&path).map_err(io)?;
        file.write_all(bytes).map_err(io)?;
        file.sync_all().map_err(io)
    }

    /// Where a file of the folder is while it is built.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.partial.join(name)
    }

    /// Puts the folder in its place, and what was there away.
    pub(super) fn finish(mut self) -> Result<(PathBuf, u64)> {
        let mut bytes = 0;
        for entry in fs::read_dir(&self.partial).map_err(|e| Error::io(&self.partial, e))? {
            let meta = entry.and_then(|e| e.metadata()).map_err(|e| Error::io(&self.partial, e))?;
            bytes += meta.len();
        }
        let mut old = self.partial.clone().into_os_string();
        old.push(".old");
        let old = PathBuf::from(old);
        remove(&old)?;
        let io = |e| Error::io(&self.out, e);
        let replaces = fs::symlink_metadata(&self.out).is_ok();
        if replaces {
            fs::rename(&self.out, &old).map_err(io)?;
        }
        if let Err(e) = fs::rename(&self.partial, &self.out) {
            if replaces {
                // The first error is the one to report.
                let _ = fs::rename(&old, &self.out);
            }
            return Err(io(e));
        }
        self.finished = true;
        if let Some(parent) = self.out.parent().filter(|p| !p.as_os_str().is_empty()) {
            File::open(parent).and_then(|d| d.sync_all()).map_err(|e| Error::io(parent, e))?;
        }
        remove(&old)?;
        Ok((self.out.clone(), bytes))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Nobody is left to hear of a failure.
        if !self.finished {
            let _ = fs::remove_dir_all(&self.partial);
        }
        let _ = fs::remove_file(&self.lock_path);
    }
}

/// A folder that is a snapshot, or empty, may be replaced with `force`; nothing else ever is.
fn may_replace(out: &Path, force: bool) -> Result<()> {
    let meta = match fs::symlink_metadata(out) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(Error::io(out, e)),
        Ok(meta) => meta,
    };
    let taken = |why: &str| Err(Error::BadRequest(format!("{} {why}", out.display())));
    if !meta.is_dir() {
        return taken("is there and is not a folder");
    }
    let mut entries = fs::read_dir(out).map_err(|e| Error::io(out, e))?;
    if entries.next().is_none() {
        return Ok(());
    }
    match (out.join("config.json").is_file(), force) {
        (true, true) => Ok(()),
        (true, false) => taken("is there already\n--force replaces it"),
        (false, _) => taken("is there and is not a snapshot"),
    }
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io(folder, e)),
        _ => Ok(()),
    }
}
