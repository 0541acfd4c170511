//! Opening files that somebody else chose: of a snapshot, nothing outside it is ever read (for a Hugging Face cache: outside the
//! repository's part of it), and nothing but regular files, so that no opening waits for another program.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::error::{Error, Result};

/// Where the links of a snapshot's folder may lead, without links itself.
///
/// # Errors
/// The folder cannot be followed to its end.
pub fn root(folder: &Path) -> io::Result<PathBuf> {
    let real = fs::canonicalize(folder)?;
    Ok(repository(&real).map(Path::to_path_buf).unwrap_or(real))
}

/// A file below a snapshot's folder, `None` where it is not there. `root` is the folder's [`root`].
///
/// # Errors
/// [`Error::BadFile`]: it is no file, or a link that leads nowhere or out of the snapshot; [`Error::Io`].
pub fn open(folder: &Path, root: &Path, name: &str) -> Result<Option<File>> {
    let path = folder.join(name);
    match fs::symlink_metadata(&path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io(path, e)),
        Ok(_) => {}
    }
    let real = match fs::canonicalize(&path) {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            return Err(Error::bad_file(path, "a link that leads nowhere: is the download complete?"));
        }
        real => real.map_err(|e| Error::io(&path, e))?,
    };
    if !real.starts_with(root) {
        return Err(Error::bad_file(path, "a link that leads out of the snapshot"));
    }
    // Errors name the path that the user knows.
    regular(&real, &path).map(Some)
}

/// Opens a regular file and nothing else: opening a pipe would wait for its writer.
///
/// # Errors
/// [`Error::BadFile`] where it is no file, [`Error::Io`].
pub fn open_regular(path: &Path) -> Result<File> {
    regular(path, path)
}

fn regular(real: &Path, path: &Path) -> Result<File> {
    let io = |e| Error::io(path, e);
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(real).map_err(io)?;
    if !file.metadata().map_err(io)?.is_file() {
        return Err(Error::bad_file(path, "not a file"));
    }
    Ok(file)
}

/// `.../models--ORG--NAME`, where the folder is a snapshot in a Hugging Face cache. Its files are links to that repository's blobs.
fn repository(snapshot: &Path) -> Option<&Path> {
    let snapshots = snapshot.parent().filter(|p| p.file_name().is_some_and(|n| n == "snapshots"))?;
    snapshots.parent().filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("models--")))
}
