//! Where the socket lies, and who may be at its other end.

use std::env;
use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, geteuid, test_kill_process};

use crate::error::{Error, Result};
use crate::paths;

/// Bytes that the path of a socket may have.
const MAX_PATH: usize = if cfg!(target_os = "macos") { 104 } else { 108 } - 1;

/// A socket that listens. Its file goes with it.
#[derive(Debug)]
pub struct Listening {
    pub listener: UnixListener,
    pub path: PathBuf,
    /// The folder was made for this socket alone.
    own_folder: bool,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        if let Some(folder) = self.path.parent().filter(|_| self.own_folder) {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Listens at a place that only this user reaches, after clearing away what dead processes left there.
pub fn listen() -> Result<Listening> {
    let name = format!("{}.sock", std::process::id());
    for folder in folders() {
        let path = folder.join(&name);
        if path.as_os_str().len() > MAX_PATH {
            continue;
        }
        // Not every file system has sockets.
        let listening = own(&folder).map_err(|e| Error::io(&folder, e)).and_then(|()| bind(path, false));
        match listening {
            Ok(listening) => return Ok(listening),
            Err(e) => tracing::debug!("no place for the socket: {e}"),
        }
    }
    bind(fresh_folder()?.join(name), true)
}

/// The usual places, best first.
fn folders() -> Vec<PathBuf> {
    let runtime = if cfg!(target_os = "macos") {
        Some(env::temp_dir())
    } else {
        env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|d| d.is_absolute())
    };
    // What others may write to is no place for a folder that is expected there.
    let runtime = runtime.filter(|d| fs::metadata(d).is_ok_and(|meta| private(&meta)));
    let home = std::path::absolute(paths::home()).ok();
    runtime.map(|d| d.join("rmlx")).into_iter().chain(home.map(|d| d.join("run"))).collect()
}

/// Makes the folder this user's alone, or finds that it is.
fn own(folder: &Path) -> io::Result<()> {
    if let Some(parent) = folder.parent() {
        fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    let meta = folder.symlink_metadata()?;
    if !meta.is_dir() || meta.uid() != geteuid().as_raw() {
        return Err(io::Error::other("not a folder of this user"));
    }
    fs::set_permissions(folder, Permissions::from_mode(0o700))
}

/// For when the usual places have long names: in `/tmp`, where a name that is known beforehand may be taken by somebody else.
fn fresh_folder() -> Result<PathBuf> {
    use std::hash::{BuildHasher, RandomState};
    let tmp = Path::new("/tmp");
    let prefix = format!("rmlx-{}-", geteuid().as_raw());
    for entry in fs::read_dir(tmp).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_str().is_some_and(|n| n.starts_with(&prefix));
        if ours && entry.path().symlink_metadata().is_ok_and(|meta| meta.is_dir() && private(&meta)) {
            sweep(&entry.path());
            let _ = fs::remove_dir(entry.path());
        }
    }
    let folder = tmp.join(format!("{prefix}{:016x}", RandomState::new().hash_one(0)));
    DirBuilder::new().mode(0o700).create(&folder).map_err(|e| Error::io(&folder, e))?;
    Ok(folder)
}

fn bind(path: PathBuf, own_folder: bool) -> Result<Listening> {
    if let Some(folder) = path.parent() {
        sweep(folder);
    }
    // Nobody who lives has this process's id.
    let _ = fs::remove_file(&path);
    let listener = UnixListener::bind(&path).map_err(|e| Error::io(&path, e))?;
    let listening = Listening { listener, path, own_folder };
    fs::set_permissions(&listening.path, Permissions::from_mode(0o600)).map_err(|e| Error::io(&listening.path, e))?;
    Ok(listening)
}

/// Removes the sockets of processes that are gone.
fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        let pid = name.to_str().and_then(|n| n.strip_suffix(".sock")).and_then(|n| n.parse().ok()).and_then(Pid::from_raw);
        let Some(pid) = pid.filter(|_| path.symlink_metadata().is_ok_and(|meta| meta.file_type().is_socket())) else { continue };
        // In another container a process may live that cannot be seen from here, so the socket is asked too.
        let gone = test_kill_process(pid) == Err(rustix::io::Errno::SRCH);
        if gone && UnixStream::connect(&path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused) {
            let _ = fs::remove_file(path);
        }
    }
}

/// Connects to a socket that is this user's and nobody else's.
pub fn connect(socket: &Path) -> io::Result<UnixStream> {
    let meta = socket.symlink_metadata()?;
    if !meta.file_type().is_socket() {
        return Err(refused("not a socket"));
    }
    let folder = socket.parent().map(Path::symlink_metadata).transpose()?;
    if !private(&meta) || !folder.is_some_and(|meta| meta.is_dir() && private(&meta)) {
        return Err(refused("open to other users, so it may be anybody's"));
    }
    let stream = UnixStream::connect(socket)?;
    check_peer(&stream)?;
    Ok(stream)
}

/// This user's, and closed to all others.
fn private(meta: &Metadata) -> bool {
    meta.uid() == geteuid().as_raw() && meta.mode() & 0o077 == 0
}

/// # Errors
/// The process at the other end is another user's.
pub fn check_peer(stream: &UnixStream) -> io::Result<()> {
    if peer(stream)? == geteuid().as_raw() { Ok(()) } else { Err(refused("another user is at the other end")) }
}

#[cfg(not(target_os = "macos"))]
fn peer(stream: &UnixStream) -> io::Result<u32> {
    Ok(rustix::net::sockopt::socket_peercred(stream)?.uid.as_raw())
}

#[cfg(target_os = "macos")]
fn peer(stream: &UnixStream) -> io::Result<u32> {
    Ok(nix::unistd::getpeereid(stream)?.0.as_raw())
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}
