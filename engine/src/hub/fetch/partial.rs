//! What is here of a file: its bytes, and a journal of the ranges that are safe. A line is added to the journal when its range's
//! bytes are on the disk, so that it never claims what a crash took away; a crash costs what came since the last line. Writers do
//! not wait for that: somebody calls [`Partial::save`] beside them.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::iter;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::super::cache::{self, Repo, disk_error, make_folder, sync_folder};
use super::super::remote::RemoteFile;
use crate::error::{Error, Result};

/// First line of a journal; the file's size follows.
const HEAD: &str = "rmlx-parts 1";
/// Lines of a journal at most: more than a download of a day writes.
const MOST_LINES: usize = 1_000_000;
/// Bytes of a line: two numbers.
const LONGEST_LINE: u64 = 64;
/// Ranges of a journal at most. A download has one for each connection, and some more after each crash.
const MOST_RANGES: usize = 10_000;

pub struct Partial {
    path: PathBuf,
    journal_path: PathBuf,
    file: File,
    size: u64,
    /// Held while it is saved.
    journal: Mutex<File>,
    written: Mutex<Written>,
    /// So many bytes are not safe that they should be.
    due: Notify,
    most_unsafe: u64,
}

#[derive(Default)]
struct Written {
    all: Ranges,
    /// Of these, what the journal does not have yet.
    new: Ranges,
}

/// Ranges that neither touch nor overlap, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ranges(Vec<Range<u64>>);

impl Ranges {
    pub fn add(&mut self, new: Range<u64>) {
        if new.is_empty() {
            return;
        }
        let first = self.0.partition_point(|r| r.end < new.start);
        let touching = self.0[first..].partition_point(|r| r.start <= new.end);
        let all = first..first + touching;
        let start = self.0[all.clone()].first().map_or(new.start, |r| r.start.min(new.start));
        let end = self.0[all.clone()].last().map_or(new.end, |r| r.end.max(new.end));
        self.0.splice(all, iter::once(start..end));
    }

    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|r| r.end - r.start).sum()
    }

    /// How far it goes from 0 without a gap.
    pub fn prefix(&self) -> u64 {
        self.0.first().filter(|r| r.start == 0).map_or(0, |r| r.end)
    }

    /// What lacks of `0..size`, in pieces of at most `most` bytes that end at multiples of it.
    pub fn missing(&self, size: u64, most: u64) -> Vec<Range<u64>> {
        let mut missing = Vec::new();
        let mut at = 0;
        for there in self.0.iter().cloned().chain(iter::once(size..size)) {
            while at < there.start {
                let end = (at / most + 1).saturating_mul(most).min(there.start);
                missing.push(at..end);
                at = end;
            }
            at = at.max(there.end);
        }
        missing
    }
}

impl Partial {
    /// Goes on with what is here, or begins. With `most_unsafe` new bytes [`Self::due`] says that it is time to save.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::DiskFull`].
    pub fn open(repo: &Repo, file: &RemoteFile, most_unsafe: u64) -> Result<Self> {
        let (path, journal_path) = (repo.partial(&file.hash), repo.parts(&file.hash));
        let blobs = repo.folder.join("blobs");
        make_folder(&blobs)?;
        let done = ranges(repo, file);
        let data = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let data = data.map_err(|e| disk_error(&path, file.bytes, e))?;
        // Whole lines only: nothing can be added to one that a crash tore.
        let new = journal_path.with_extension("rmlx-parts-new");
        let journal = (|| {
            let mut journal = File::create(&new)?;
            let mut text = format!("{HEAD} {}\n", file.bytes);
            text.extend(done.0.iter().map(line));
            journal.write_all(text.as_bytes())?;
            journal.sync_all()?;
            fs::rename(&new, &journal_path)?;
            Ok(journal)
        })();
        let journal = journal.map_err(|e| disk_error(&journal_path, file.bytes, e))?;
        sync_folder(&blobs)?;
        let written = Mutex::new(Written { all: done, new: Ranges::default() });
        let (size, journal) = (file.bytes, Mutex::new(journal));
        Ok(Self { path, journal_path, file: data, size, journal, written, due: Notify::new(), most_unsafe })
    }

    /// Says how far the file now goes from 0 without a gap. The bytes are not safe before [`Self::save`].
    pub fn write(&self, bytes: &[u8], at: u64) -> Result<u64> {
        self.file.write_all_at(bytes, at).map_err(|e| self.failed(&self.path, e))?;
        let range = at..at + bytes.len() as u64;
        let mut written = self.written();
        written.all.add(range.clone());
        written.new.add(range);
        if written.new.bytes() >= self.most_unsafe {
            self.due.notify_one();
        }
        Ok(written.all.prefix())
    }

    /// Waits until there is enough to save.
    pub async fn due(&self) {
        self.due.notified().await;
    }

    /// Makes safe what was written until now.
    pub fn save(&self) -> Result<()> {
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        let new = std::mem::take(&mut self.written().new);
        if new.0.is_empty() {
            return Ok(());
        }
        self.file.sync_data().map_err(|e| self.failed(&self.path, e))?;
        let lines: String = new.0.iter().map(line).collect();
        journal.write_all(lines.as_bytes()).map_err(|e| self.failed(&self.journal_path, e))
    }

    /// What was written, safe or not.
    pub fn done(&self) -> Ranges {
        self.written().all.clone()
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, path: &Path, e: std::io::Error) -> Error {
        disk_error(path, self.size - self.done().bytes(), e)
    }

    /// Forgets what is not in one piece with the beginning, and says how many bytes that is.
    pub fn keep_prefix(&self) -> u64 {
        let mut written = self.written();
        let (before, prefix) = (written.all.bytes(), written.all.prefix());
        written.all = Ranges::default();
        written.all.add(0..prefix);
        before - prefix
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its bytes are right: it becomes the blob.
    pub fn finish(&self, repo: &Repo, file: &RemoteFile) -> Result<()> {
        let blob = repo.blob(&file.hash);
        self.file.sync_all().map_err(|e| Error::io(&self.path, e))?;
        fs::rename(&self.path, &blob).map_err(|e| Error::io(&blob, e))?;
        cache::remove(&self.journal_path)?;
        sync_folder(&repo.folder.join("blobs"))
    }

    /// Its bytes are wrong: nothing of it stays.
    pub fn discard(&self) -> Result<()> {
        cache::remove(&self.journal_path)?;
        cache::remove(&self.path)
    }
}

fn line(range: &Range<u64>) -> String {
    format!("{} {}\n", range.start, range.end)
}

/// Bytes of a file on this disk, whole or not.
pub fn have(repo: &Repo, file: &RemoteFile) -> u64 {
    if repo.has(file) { file.bytes } else { ranges(repo, file).bytes() }
}

/// What the journal claims and the file is long enough for.
fn ranges(repo: &Repo, file: &RemoteFile) -> Ranges {
    let mut done = Ranges::default();
    let length = fs::metadata(repo.partial(&file.hash)).map_or(0, |m| if m.is_file() { m.len() } else { 0 });
    let Ok(journal) = File::open(repo.parts(&file.hash)) else { return done };
    let mut lines = BufReader::new(journal);
    let mut text = String::new();
    for number in 0..MOST_LINES {
        text.clear();
        // Without its end a line is torn; what is not text is not ours.
        let line = lines.by_ref().take(LONGEST_LINE).read_line(&mut text);
        if line.is_err() || !text.ends_with('\n') || done.0.len() >= MOST_RANGES {
            break;
        }
        let text = text.trim_end();
        if number == 0 {
            if text != format!("{HEAD} {}", file.bytes) {
                break;
            }
            continue;
        }
        let range = text.split_once(' ').and_then(|(start, end)| Some(start.parse().ok()?..end.parse().ok()?));
        match range {
            Some(range) if range.start < range.end && range.end <= file.bytes => {
                if range.end <= length {
                    done.add(range);
                }
            }
            _ => break,
        }
    }
    done
}

#[cfg(test)]
mod tests;
