//! Bringing a repository's files here: several connections at once, each with a part of a file. What is on the disk is never
//! asked for again; what is whole gets its name when its hash is right.

mod hash;
mod meter;
mod needed;
mod part;
mod partial;

pub use meter::{Limit, Meter};
pub use needed::needed;
pub use partial::have;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::Url;
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;

use self::hash::Following;
use self::part::{Part, Stopped};
use self::partial::Partial;
use super::cache::{Repo, free};
use super::remote::{Listing, Remote, RemoteFile, STALL, Trouble};
use crate::error::{Error, HubCause, Result};

/// Files that are fetched or hashed at the same time.
const FILES: usize = 4;
/// A file that came damaged comes once more.
const ROUNDS: usize = 2;

/// Sizes and times. Tests have others.
#[derive(Debug, Clone)]
pub struct Tuning {
    /// Bytes that one request asks for.
    pub part: u64,
    /// At the same time, of all downloads together.
    pub connections: usize,
    /// Without a byte for so long, a connection is given up.
    pub stall: Duration,
    /// What came is made safe so often: a crash costs no more.
    pub checkpoint: Duration,
    /// Of a part, without a byte that came, before the download waits.
    pub tries: u32,
    /// Before the second try; each is twice the one before.
    pub pause: Duration,
    /// Before a download that waits tries again, at first and at most.
    pub back_off: (Duration, Duration),
    /// Bytes of the disk that stay free.
    pub reserve: u64,
    /// Bytes that are free where a path is.
    pub free: fn(&Path) -> Result<u64>,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            part: 32 << 20,
            connections: 4,
            stall: STALL,
            checkpoint: Duration::from_secs(2),
            tries: 5,
            pause: Duration::from_millis(200),
            back_off: (Duration::from_secs(1), Duration::from_secs(60)),
            reserve: 2 << 30,
            free,
        }
    }
}

/// A flag that many wait for.
#[derive(Clone)]
pub struct Halt(watch::Sender<bool>);

impl Default for Halt {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Halt {
    pub fn set(&self) {
        self.0.send_replace(true);
    }

    pub fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    pub async fn wait(&self) {
        // Fails only without a sender, and `self` is one.
        let _ = self.0.subscribe().wait_for(|set| *set).await;
    }
}

/// What all parts of a download share.
#[derive(Clone)]
pub struct Fetch {
    pub remote: Remote,
    pub repo: Repo,
    pub listing: Arc<Listing>,
    pub tuning: Arc<Tuning>,
    pub meter: Arc<Meter>,
    pub limit: Arc<Limit>,
    pub connections: Arc<Semaphore>,
    /// What came is saved, then all ends.
    pub halt: Halt,
}

/// One file on its way.
struct Target {
    file: RemoteFile,
    partial: Arc<Partial>,
    hashing: Following,
    /// Where the hub redirected to, while that answers.
    located: Mutex<Option<Url>>,
    /// Ends this file's parts.
    halt: Halt,
    /// The disk failed: ends whatever writes.
    broken: Halt,
}

impl Fetch {
    /// Makes all the files' blobs whole. The caller holds the repository's lock.
    ///
    /// # Errors
    /// The first one; then everything has ended and what came is safe. [`Error::Cancelled`] after `halt`.
    pub async fn run(&self, files: &[RemoteFile]) -> Result<(), Trouble> {
        let mut files: Vec<RemoteFile> = files.to_vec();
        files.sort_by(|a, b| (a.bytes, &a.hash).cmp(&(b.bytes, &b.hash)));
        // Two names of the same contents are one blob.
        files.dedup_by(|a, b| a.hash == b.hash);
        let mut waiting = files.into_iter().filter(|f| !self.repo.has(f));
        let inner = Self { halt: Halt::default(), ..self.clone() };
        let mut tasks = JoinSet::new();
        let mut first = None;
        loop {
            while tasks.len() < FILES
                && !inner.halt.is_set()
                && let Some(file) = waiting.next()
            {
                let fetch = inner.clone();
                tasks.spawn(async move { fetch.file(file).await });
            }
            tokio::select! {
                () = self.halt.wait(), if !inner.halt.is_set() => {
                    first = first.or(Some(Trouble::never(Error::Cancelled)));
                    inner.halt.set();
                }
                ended = tasks.join_next() => match ended {
                    None => break,
                    Some(ended) => if let Err(trouble) = joined(ended) {
                        first = first.or(Some(trouble));
                        inner.halt.set();
                    },
                }
            }
        }
        first.map_or(Ok(()), Err)
    }

    async fn file(&self, file: RemoteFile) -> Result<(), Trouble> {
        for round in 1..=ROUNDS {
            let (repo, wanted) = (self.repo.clone(), file.clone());
            let most_unsafe = self.tuning.part;
            let partial = Arc::new(blocking(move || Partial::open(&repo, &wanted, most_unsafe)).await?);
            let hashing = Following::start(partial.path(), &file)?;
            hashing.advance(partial.done().prefix());
            let (halt, broken) = (Halt::default(), Halt::default());
            let target = Target { file: file.clone(), partial, hashing, located: Mutex::default(), halt, broken };
            if self.transfer(target).await? {
                self.meter.add_verified(file.bytes);
                return Ok(());
            }
            self.meter.take_done(file.bytes);
            tracing::warn!(repo = self.repo.name, file = file.name, round, "a file came damaged");
        }
        let message = format!(
            "{} of {} came damaged again and again: its bytes are not what the hub lists\nhint: try again later, or over another network",
            file.name, self.listing.repo
        );
        Err(Trouble::never(Error::Hub { cause: HubCause::BadDownload, message }))
    }

    /// Whether the file is right. Then it has its name; else it is gone.
    async fn transfer(&self, target: Target) -> Result<bool, Trouble> {
        let target = Arc::new(target);
        let ended = Halt::default();
        let bring = async {
            let brought = self.bring(&target).await;
            ended.set();
            brought
        };
        let (brought, saved) = tokio::join!(bring, self.keep_saving(&target, &ended));
        saved?;
        brought?;
        let target = Arc::into_inner(target).ok_or_else(|| Error::Internal("a part outlived its transfer".into()))?;
        let right = tokio::select! {
            () = self.halt.wait() => return Err(Trouble::never(Error::Cancelled)),
            right = target.hashing.end() => right?,
        };
        let (repo, file, partial) = (self.repo.clone(), target.file, target.partial);
        blocking(move || if right { partial.finish(&repo, &file) } else { partial.discard() }).await?;
        Ok(right)
    }

    /// All bytes of the file that are not here.
    async fn bring(&self, target: &Arc<Target>) -> Result<(), Trouble> {
        match self.parts(target).await {
            Err(Stopped::NoRanges) => {}
            other => return other.map_err(Stopped::trouble),
        }
        self.meter.take_done(target.partial.keep_prefix());
        let range = target.partial.done().prefix()..target.file.bytes;
        let _permit = self.connections.acquire().await.map_err(|e| Error::Internal(e.to_string()))?;
        let whole = Part { fetch: self.clone(), target: target.clone(), range, ranged: false, halt: target.broken.clone() };
        whole.run().await.map_err(Stopped::trouble)
    }

    /// Beside the transfer, until it has ended; all of it is safe then.
    async fn keep_saving(&self, target: &Target, ended: &Halt) -> Result<()> {
        loop {
            let last = tokio::select! {
                () = ended.wait() => true,
                () = sleep(self.tuning.checkpoint) => false,
                () = target.partial.due() => false,
            };
            let partial = target.partial.clone();
            if let Err(e) = blocking(move || partial.save()).await {
                target.halt.set();
                target.broken.set();
                ended.wait().await;
                return Err(e);
            }
            if last {
                return Ok(());
            }
        }
    }

    async fn parts(&self, target: &Arc<Target>) -> Result<(), Stopped> {
        let missing = target.partial.done().missing(target.file.bytes, self.tuning.part);
        // Servers that know no ranges have small files nevertheless.
        let ranged = missing.first() != Some(&(0..target.file.bytes));
        let mut missing = missing.into_iter().peekable();
        let mut tasks = JoinSet::new();
        let mut first = None;
        loop {
            tokio::select! {
                permit = self.connections.clone().acquire_owned(), if first.is_none() && missing.peek().is_some() => {
                    let permit = permit.map_err(|e| Error::Internal(e.to_string()))?;
                    let Some(range) = missing.next() else { continue };
                    let part = Part { fetch: self.clone(), target: target.clone(), range, ranged, halt: target.halt.clone() };
                    tasks.spawn(async move {
                        let _permit = permit;
                        part.run().await
                    });
                }
                Some(ended) = tasks.join_next() => {
                    let ended = ended.unwrap_or_else(|e| Err(internal(e).into()));
                    if let Err(stopped) = ended {
                        // That ranges are ignored explains what else goes wrong.
                        first = if matches!(stopped, Stopped::NoRanges) { Some(stopped) } else { first.or(Some(stopped)) };
                        target.halt.set();
                    }
                }
                else => break,
            }
        }
        first.map_or(Ok(()), Err)
    }
}

fn joined(ended: Result<Result<(), Trouble>, tokio::task::JoinError>) -> Result<(), Trouble> {
    ended.unwrap_or_else(|e| Err(internal(e)))
}

fn internal(e: tokio::task::JoinError) -> Trouble {
    Trouble::never(Error::Internal(format!("a download's task ended: {}", if e.is_panic() { "a panic" } else { "cancelled" })))
}

/// Work that waits for the disk.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    spawn_blocking(work).await.unwrap_or_else(|e| Err(internal(e).error))
}
