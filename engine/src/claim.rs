//! The claim: one process per machine owns the GPU, or is the engine that the others use.
//!
//! It is a lock that the kernel holds on one file, so it ends with its process, however that ends: nothing is left to clean
//! up. The file is never removed, because a lock on a removed file would exclude nobody. It binds only programs that ask for it.
//!
//! Inside the file are the process id and, where the holder lets others use its engine, the path of its socket, a line each. Every
//! user of the machine may write there, so neither is more than a hint: the id is for messages, the path is checked by `attach`.

use std::env;
use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Seek};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use rustix::fs::OFlags;

use crate::error::{Error, Result};

/// Held until dropped.
#[derive(Debug)]
pub struct Claim {
    file: File,
}

/// The process that holds the claim, by what the file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// `unknown` when it could not write its id.
    pub pid: String,
    /// Where it says that it listens. Anybody may have written it.
    pub socket: Option<PathBuf>,
}

/// One engine's claim, which several of its parts may need: taken by the first, given back with the last. Every clone is the same.
#[derive(Debug, Clone, Default)]
pub struct Slot {
    /// `None`: [`path`].
    path: Option<PathBuf>,
    claim: Arc<Mutex<Weak<Claim>>>,
}

impl Slot {
    pub fn at(path: PathBuf) -> Self {
        Self { path: Some(path), ..Self::default() }
    }

    /// # Errors
    /// [`Error::ClaimHeld`].
    pub fn take(&self) -> Result<Arc<Claim>> {
        let mut held = self.claim.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(claim) = held.upgrade() {
            return Ok(claim);
        }
        let claim = Arc::new(Claim::take_at(&self.path.clone().unwrap_or_else(path))?);
        *held = Arc::downgrade(&claim);
        Ok(claim)
    }
}

/// The same for every user, and kept over a restart: not `TMPDIR`, which each user has an own one of. `RMLX_CLAIM` names another
/// file; all programs that share a GPU must agree on it (over the borders of containers, say).
pub fn path() -> PathBuf {
    env::var_os("RMLX_CLAIM").filter(|p| !p.is_empty()).map_or_else(|| "/var/tmp/rmlx.claim".into(), PathBuf::from)
}

/// What to do about a holder.
pub const HINT: &str = "\nhint: end it, or compute beside it with --device cpu";

/// [`Claim::holder`] locks for a moment to find out, so one refusal is no proof yet.
const ATTEMPTS: usize = 10;
const PAUSE: Duration = Duration::from_millis(20);

impl Claim {
    pub fn take() -> Result<Self> {
        Self::take_at(&path())
    }

    pub fn take_at(path: &Path) -> Result<Self> {
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                thread::sleep(PAUSE);
            }
            let file = open(path)?;
            match file.try_lock() {
                Ok(()) if is_at(&file, path) => {
                    let claim = Self { file };
                    // Fails on another user's file that we may only read. Then the message names no process.
                    let _ = claim.announce(None);
                    return Ok(claim);
                }
                // Somebody removed the file between our opening and locking it.
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(e)) => return Err(Error::io(path, e)),
            }
        }
        let pid = open(path).map_or_else(|_| UNKNOWN.into(), |file| read_holder(file).pid);
        Err(Error::ClaimHeld { pid, hint: HINT.into() })
    }

    /// Who holds the claim now, without taking it.
    pub fn holder() -> Result<Option<Holder>> {
        Self::holder_at(&path())
    }

    pub fn holder_at(path: &Path) -> Result<Option<Holder>> {
        if !path.try_exists().map_err(|e| Error::io(path, e))? {
            return Ok(None);
        }
        let file = open(path)?;
        match file.try_lock_shared() {
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => Ok(Some(read_holder(file))),
            Err(TryLockError::Error(e)) => Err(Error::io(path, e)),
        }
    }

    /// Writes this process's id, and where others can use its engine.
    pub fn announce(&self, socket: Option<&Path>) -> io::Result<()> {
        let socket = socket.map_or_else(String::new, |s| format!("{}\n", s.display()));
        let text = format!("{}\n{socket}", std::process::id());
        self.file.set_len(0)?;
        self.file.write_all_at(text.as_bytes(), 0)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let _ = self.file.set_len(0);
        // Closing the file unlocks it as well.
        let _ = self.file.unlock();
    }
}

/// The folder is writable for all, so what lies there may be a trap: links and special files are refused.
fn open(path: &Path) -> Result<File> {
    let file = open_or_create(path).map_err(|e| match e.raw_os_error() {
        Some(code) if code == rustix::io::Errno::LOOP.raw_os_error() => refused(path, "a symbolic link"),
        Some(code) if code == rustix::io::Errno::ISDIR.raw_os_error() => refused(path, "a folder"),
        _ => Error::io(path, e),
    })?;
    let meta = file.metadata().map_err(|e| Error::io(path, e))?;
    if !meta.is_file() {
        return Err(refused(path, "no regular file"));
    }
    if meta.nlink() > 1 {
        return Err(refused(path, "a hard link"));
    }
    Ok(file)
}

fn open_or_create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // NONBLOCK: opening a named pipe would wait for its other end.
    options.read(true).custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32);
    // Linux refuses O_CREAT on another user's file in such a folder, so creating comes second.
    let existing = match options.clone().write(true).open(path) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => options.open(path),
        other => other,
    };
    match existing {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        other => return other,
    }
    match options.clone().write(true).create_new(true).mode(0o666).open(path) {
        Ok(file) => {
            // Past the umask, for the other users of this machine.
            let _ = file.set_permissions(Permissions::from_mode(0o666));
            Ok(file)
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => options.write(true).open(path),
        Err(e) => Err(e),
    }
}

fn refused(path: &Path, what: &str) -> Error {
    Error::bad_file(path, format!("this is {what}, not the lock file of rMLX\nhint: remove it"))
}

fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), path.symlink_metadata()) {
        (Ok(ours), Ok(there)) => (ours.dev(), ours.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

const UNKNOWN: &str = "unknown";

/// Anybody may have written the file, and this ends up on a terminal: digits only, and a path without anything odd.
fn read_holder(mut file: File) -> Holder {
    let mut text = Vec::new();
    let _ = file.rewind().and_then(|()| file.take(1024).read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text);
    let mut lines = text.lines();
    let pid = lines.next().map(str::trim).filter(|p| !p.is_empty() && p.len() <= 10 && p.bytes().all(|b| b.is_ascii_digit()));
    let socket = lines.next().filter(|s| s.starts_with('/') && !s.contains(|c: char| c.is_control() || c == '\u{fffd}'));
    Holder { pid: pid.unwrap_or(UNKNOWN).into(), socket: socket.map(PathBuf::from) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{BufRead, BufReader};
    use std::os::unix::fs::symlink;
    use std::process::{Child, Command, Stdio};
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use tempfile::{TempDir, tempdir};

    use super::*;

    fn lock_file() -> (TempDir, PathBuf) {
        let folder = tempdir().unwrap();
        let path = folder.path().join("claim");
        (folder, path)
    }

    fn holder(path: &Path) -> Option<String> {
        Claim::holder_at(path).unwrap().map(|h| h.pid)
    }

    fn pid_of(result: Result<Claim>) -> String {
        match result {
            Err(Error::ClaimHeld { pid, .. }) => pid,
            other => panic!("{other:?}"),
        }
    }

    /// Not a test: what [`holding_child`] runs.
    #[test]
    #[ignore = "a helper process of the tests below"]
    fn child() {
        let Some(path) = env::var_os("RMLX_TEST_CLAIM") else { return };
        let _claim = Claim::take_at(Path::new(&path)).unwrap();
        println!("held");
        let _ = io::stdin().read_line(&mut String::new());
    }

    fn holding_child(path: &Path) -> Child {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "claim::tests::child", "--ignored", "--nocapture"])
            .env("RMLX_TEST_CLAIM", path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("held") {
            line.clear();
            assert_ne!(out.read_line(&mut line).unwrap(), 0, "the child ended early");
        }
        child.stdout = Some(out.into_inner());
        child
    }

    #[test]
    fn one_holder_at_a_time() {
        let (_folder, path) = lock_file();
        assert_eq!(holder(&path), None);
        assert!(!path.exists(), "looking creates nothing");
        let claim = Claim::take_at(&path).unwrap();
        let own = std::process::id().to_string();
        assert_eq!(pid_of(Claim::take_at(&path)), own);
        assert_eq!(holder(&path), Some(own));
        drop(claim);
        assert_eq!(holder(&path), None);
        drop(Claim::take_at(&path).unwrap());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o666);
    }

    #[test]
    fn another_process_holds_it_until_it_ends() {
        let (_folder, path) = lock_file();
        let mut child = holding_child(&path);
        assert_eq!(pid_of(Claim::take_at(&path)), child.id().to_string());
        assert_eq!(holder(&path), Some(child.id().to_string()));
        drop(child.stdin.take());
        child.wait().unwrap();
        drop(Claim::take_at(&path).unwrap());
    }

    #[test]
    fn it_heals_after_sigkill() {
        let (_folder, path) = lock_file();
        let mut child = holding_child(&path);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_ne!(fs::read_to_string(&path).unwrap(), "", "the dead process left its id behind");
        assert_eq!(holder(&path), None);
        let claim = Claim::take_at(&path).unwrap();
        assert_eq!(holder(&path), Some(std::process::id().to_string()));
        drop(claim);
    }

    #[test]
    fn traps_are_refused() {
        let (folder, path) = lock_file();
        let victim = folder.path().join("victim");
        fs::write(&victim, "precious").unwrap();

        symlink(&victim, &path).unwrap();
        let message = Claim::take_at(&path).unwrap_err().to_string();
        assert!(message.contains("symbolic link"), "{message}");
        assert!(Claim::holder_at(&path).is_err());
        fs::remove_file(&path).unwrap();

        symlink(folder.path().join("nothing"), &path).unwrap();
        assert!(Claim::take_at(&path).is_err());
        assert!(!folder.path().join("nothing").exists());
        fs::remove_file(&path).unwrap();

        fs::hard_link(&victim, &path).unwrap();
        let message = Claim::take_at(&path).unwrap_err().to_string();
        assert!(message.contains("hard link"), "{message}");
        fs::remove_file(&path).unwrap();

        fs::create_dir(&path).unwrap();
        let message = Claim::take_at(&path).unwrap_err().to_string();
        assert!(message.contains("folder"), "{message}");
        fs::remove_dir(&path).unwrap();

        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let message = Claim::take_at(&path).unwrap_err().to_string();
        assert!(message.contains("no regular file"), "{message}");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    }

    #[test]
    fn what_others_wrote_into_it_is_not_repeated() {
        let (_folder, path) = lock_file();
        fs::write(&path, "\x1b[31m666").unwrap();
        let file = File::open(&path).unwrap();
        file.lock().unwrap();
        assert_eq!(holder(&path), Some("unknown".into()));
        assert_eq!(pid_of(Claim::take_at(&path)), "unknown");
    }

    #[test]
    fn a_removed_file_excludes_nobody_for_long() {
        let (_folder, path) = lock_file();
        let first = Claim::take_at(&path).unwrap();
        fs::remove_file(&path).unwrap();
        // The claim was cut loose, but whoever comes now agrees on the new file.
        let second = Claim::take_at(&path).unwrap();
        assert!(is_at(&second.file, &path) && !is_at(&first.file, &path));
        pid_of(Claim::take_at(&path));
    }

    #[test]
    fn of_many_threads_one_wins() {
        let (_folder, path) = lock_file();
        let (start, held) = (Barrier::new(8), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    let claim = Claim::take_at(&path);
                    if claim.is_ok() {
                        held.fetch_add(1, Ordering::SeqCst);
                    }
                    // Nobody lets go before all have tried.
                    start.wait();
                });
            }
        });
        assert_eq!(held.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn looking_does_not_stand_in_the_way() {
        let (_folder, path) = lock_file();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    Claim::holder_at(&path).unwrap();
                    thread::sleep(Duration::from_millis(1));
                }
            });
            for _ in 0..200 {
                drop(Claim::take_at(&path).unwrap());
            }
            done.store(true, Ordering::SeqCst);
        });
    }
}
