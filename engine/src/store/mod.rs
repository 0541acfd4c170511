//! What rMLX keeps in SQLite: one file, which the app and the command line may use at the same time.
//!
//! * Write-ahead log: readers never wait for a writer. Writers begin with `BEGIN IMMEDIATE`, so that the wait for another writer
//!   happens where SQLite can wait, at the start.
//! * `synchronous = NORMAL`: a commit is in the system's cache when it returns, so a killed process loses nothing committed. Only
//!   a power cut may take the last commits with it, never the file.
//! * What is erased is overwritten (`secure_delete`), in the search index too.

mod conversations;
mod search;

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};

use crate::error::{Error, Result};

pub use conversations::{Ending, Place, Saved};

/// Applied in this order; `user_version` counts them. One that was released is never changed.
const MIGRATIONS: &[&str] = &[conversations::CREATE];

/// How long one process waits for the other's write.
const PATIENCE: Duration = Duration::from_secs(10);

/// Any thread may use it; its work is done one after the other.
pub struct Store {
    path: PathBuf,
    /// What was at the path when it was opened.
    file: Option<FileId>,
    db: Mutex<Connection>,
    tidied: Mutex<Instant>,
}

/// Which file it is, whatever it is called.
#[derive(PartialEq)]
struct FileId(u64, u64);

impl FileId {
    fn of(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|meta| Self(meta.dev(), meta.ino()))
    }
}

/// Inside the module errors do not know their file yet.
enum Fault {
    Sql(rusqlite::Error),
    Other(Error),
}

impl From<rusqlite::Error> for Fault {
    fn from(e: rusqlite::Error) -> Self {
        Self::Sql(e)
    }
}

impl From<Error> for Fault {
    fn from(e: Error) -> Self {
        Self::Other(e)
    }
}

impl Store {
    pub fn path(home: &Path) -> PathBuf {
        home.join("conversations.db")
    }

    /// Opens the database in this folder; makes both where they are missing, for this user's eyes only.
    ///
    /// # Errors
    /// [`Error::Store`] for a file that is no database, is damaged or was written by a newer rMLX: it stays as it is.
    pub fn open(home: &Path) -> Result<Self> {
        Self::open_with(home, MIGRATIONS)
    }

    fn open_with(home: &Path, migrations: &[&str]) -> Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(home).map_err(|e| Error::io(home, e))?;
        let path = Self::path(home);
        create(&path)?;
        let db = connect(&path, migrations).map_err(|fault| told(&path, fault))?;
        let store = Self { file: FileId::of(&path), path, db: Mutex::new(db), tidied: Mutex::new(Instant::now()) };
        store.erase()?;
        Ok(store)
    }

    fn read<T>(&self, work: impl FnOnce(&Transaction) -> Result<T, Fault>) -> Result<T> {
        self.within(TransactionBehavior::Deferred, work)
    }

    /// All of it happens, or nothing.
    fn write<T>(&self, work: impl FnOnce(&Transaction) -> Result<T, Fault>) -> Result<T> {
        // SQLite would go on writing into a file that nobody finds again.
        if FileId::of(&self.path) != self.file {
            let reason = "the file was removed or replaced while it was open\nhint: nothing more can be kept; start rMLX again";
            return Err(Error::Store { path: self.path.clone(), reason: reason.into() });
        }
        self.within(TransactionBehavior::Immediate, work)
    }

    fn within<T>(&self, behavior: TransactionBehavior, work: impl FnOnce(&Transaction) -> Result<T, Fault>) -> Result<T> {
        let mut db = self.db();
        let attempt = || {
            let transaction = db.transaction_with_behavior(behavior)?;
            let done = work(&transaction)?;
            transaction.commit()?;
            Ok(done)
        };
        attempt().map_err(|fault| told(&self.path, fault))
    }

    fn db(&self) -> MutexGuard<'_, Connection> {
        // A panic in a transaction rolls it back.
        self.db.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number that is another one after every change of the database, by this process or another.
    pub fn stamp(&self) -> Result<u64> {
        let db = self.db();
        let others: i64 =
            db.pragma_query_value(None, "data_version", |row| row.get(0)).map_err(|e| told(&self.path, e.into()))?;
        Ok(((others as u64) << 40).wrapping_add(db.total_changes()))
    }
}

/// SQLite would make it with the umask's mode, and would wait at a pipe.
fn create(path: &Path) -> Result<()> {
    match fs::metadata(path) {
        Ok(meta) if meta.is_file() => Ok(()),
        Ok(_) => Err(Error::Store { path: path.into(), reason: "not a file".into() }),
        Err(e) if e.kind() == ErrorKind::NotFound => {
            // Another process may be quicker. Where a link leads, too.
            let made = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
            made.map(drop).map_err(|e| Error::io(path, e))
        }
        Err(e) => Err(Error::io(path, e)),
    }
}

fn connect(path: &Path, migrations: &[&str]) -> Result<Connection, Fault> {
    let mut db = Connection::open(path)?;
    db.busy_timeout(PATIENCE)?;
    write_ahead(&db)?;
    db.pragma_update(None, "synchronous", "NORMAL")?;
    db.pragma_update(None, "foreign_keys", true)?;
    db.pragma_update(None, "secure_delete", true)?;
    migrate(&mut db, migrations)?;
    Ok(db)
}

/// Two processes that switch a new file at once refuse each other without waiting.
fn write_ahead(db: &Connection) -> Result<(), Fault> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match db.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0)) {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(mode) => {
                let reason =
                    format!("no write-ahead log is possible here (journal mode {mode})\nhint: is this a network folder?");
                return Err(Error::Store { path: PathBuf::new(), reason }.into());
            }
            Err(e) if e.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(10));
            }
            Err(e) => return Err(e.into()),
        }
    }
}

fn migrate(db: &mut Connection, migrations: &[&str]) -> Result<(), Fault> {
    if version(db, migrations)? == migrations.len() {
        return Ok(());
    }
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Again: another process may have done it meanwhile.
    for sql in &migrations[version(&transaction, migrations)?..] {
        transaction.execute_batch(sql)?;
    }
    transaction.pragma_update(None, "user_version", migrations.len() as i64)?;
    transaction.commit()?;
    Ok(())
}

/// How many migrations the file has.
fn version(db: &Connection, migrations: &[&str]) -> Result<usize, Fault> {
    let version: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
    match usize::try_from(version) {
        Ok(version) if version <= migrations.len() => Ok(version),
        _ => {
            let reason =
                format!("version {version} of the database, and this rMLX knows {} at most\nhint: update rMLX", migrations.len());
            Err(Error::Store { path: PathBuf::new(), reason }.into())
        }
    }
}

/// With the file that it happened to, and what to do.
fn told(path: &Path, fault: Fault) -> Error {
    let e = match fault {
        Fault::Other(Error::Store { reason, .. }) => return Error::Store { path: path.into(), reason },
        Fault::Other(e) => return e,
        Fault::Sql(e) => e,
    };
    let hint = match e.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            "\nhint: nothing was changed; move the file away to begin with an empty one, or put a copy back"
        }
        Some(ErrorCode::DiskFull) => "\nhint: make room on the disk; what was saved before is safe",
        Some(ErrorCode::SystemIoFailure) => "\nhint: is the disk full, or a drive gone? What was saved before is safe",
        Some(ErrorCode::DatabaseBusy) => "\nhint: another program keeps the file locked; end it",
        _ => "",
    };
    Error::Store { path: path.into(), reason: format!("{e}{hint}") }
}

/// Milliseconds since 1970.
fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_millis() as i64)
}

#[cfg(test)]
mod tests;
