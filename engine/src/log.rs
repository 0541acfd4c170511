//! The log: JSON lines in [`paths::logs`], one set of files per process, the oldest removed to keep the folder small.
//!
//! * A folder that cannot be written costs one warning, never the program.
//! * Prompts, answers and secrets are not logged above `debug`. The folder and its files belong to the user alone.
//! * On standard error appear only warnings, without decoration, for the human there.

use std::collections::VecDeque;
use std::env;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use time::OffsetDateTime;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::paths;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Level {
    Error,
    Warn,
    #[default]
    Info,
    /// Every step.
    Debug,
    /// Every token and every call into MLX.
    Trace,
}

/// All log files together.
pub const DEFAULT_CAP: u64 = 100 << 20;

/// Once per process; a second call changes nothing. `None`: what `RUST_LOG` says, else [`Level::Info`].
pub fn start(level: Option<Level>) {
    let mut complaint = None;
    let filter = match (level, env::var("RUST_LOG")) {
        (Some(level), _) => Targets::new().with_default(level),
        (None, Ok(text)) if !text.is_empty() => text.parse().unwrap_or_else(|e| {
            complaint = Some(format!("RUST_LOG is ignored: {e}"));
            Targets::new().with_default(Level::Info)
        }),
        _ => Targets::new().with_default(Level::Info),
    };
    let files = Files::new(paths::logs(), DEFAULT_CAP);
    let lines = tracing_subscriber::fmt::layer().json().with_writer(files).with_filter(filter);
    let human = Warnings.with_filter(filter_fn(|meta: &Metadata| *meta.level() == tracing::Level::WARN && is_ours(meta)));
    let _ = tracing_subscriber::registry().with(lines).with(human).try_init();
    if let Some(complaint) = complaint {
        tracing::warn!("{complaint}");
    }
}

impl From<Level> for LevelFilter {
    fn from(level: Level) -> Self {
        match level {
            Level::Error => Self::ERROR,
            Level::Warn => Self::WARN,
            Level::Info => Self::INFO,
            Level::Debug => Self::DEBUG,
            Level::Trace => Self::TRACE,
        }
    }
}

fn is_ours(meta: &Metadata) -> bool {
    meta.target().starts_with("rmlx") || meta.target().starts_with("mlx")
}

/// Prints warnings for the human. Errors are values: whoever reports them prints them.
struct Warnings;

impl<S: Subscriber> Layer<S> for Warnings {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = String::new();
        event.record(&mut Plain(&mut text));
        eprint_line(&format!("warning:{text}"));
    }
}

/// `message key=value ...`
struct Plain<'a>(&'a mut String);

impl Visit for Plain<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

/// `eprintln` would panic where standard error is closed.
fn eprint_line(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// The files of this process; the first is made by the first line.
struct Files(Mutex<State>);

struct State {
    folder: PathBuf,
    cap: u64,
    /// `rmlx-<start>-<process>`
    stem: String,
    current: Option<File>,
    written: u64,
    parts: usize,
    gave_up: bool,
}

/// A file takes at most this share of the cap.
const SHARE: u64 = 8;
const MOST_FILES: usize = 200;

impl Files {
    fn new(folder: PathBuf, cap: u64) -> Self {
        let t = OffsetDateTime::now_utc();
        let (month, pid) = (u8::from(t.month()), std::process::id());
        let date = format!("{:04}{month:02}{:02}T{:02}{:02}{:02}Z", t.year(), t.day(), t.hour(), t.minute(), t.second());
        let stem = format!("rmlx-{date}-{pid}");
        Self(Mutex::new(State { folder, cap, stem, current: None, written: 0, parts: 0, gave_up: false }))
    }
}

impl<'a> MakeWriter<'a> for Files {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

/// A call gets a whole line. It always succeeds: a log that fails must not disturb what it logs.
impl Write for &Files {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.gave_up
            && let Err(e) = state.append(line)
        {
            state.gave_up = true;
            // Not through tracing, which would come back here.
            eprint_line(&format!("warning: no log is written: {}: {e}", state.folder.display()));
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl State {
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let length = line.len() as u64;
        let limit = self.cap / SHARE;
        if self.written + length > limit {
            self.current = None;
        }
        let mut file = match self.current.take() {
            Some(file) => file,
            None => self.next_file(limit)?,
        };
        file.write_all(line)?;
        self.written += length;
        self.current = Some(file);
        Ok(())
    }

    fn next_file(&mut self, limit: u64) -> io::Result<File> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        prune(&self.folder, self.cap.saturating_sub(limit), MOST_FILES - 1)?;
        let path = self.folder.join(format!("{}-{}.jsonl", self.stem, self.parts));
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        self.parts += 1;
        self.written = 0;
        Ok(file)
    }
}

/// Removes the oldest log files until the rest fits.
fn prune(folder: &Path, bytes: u64, files: usize) -> io::Result<()> {
    let mut logs: Vec<(SystemTime, PathBuf, u64)> = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        // Another process may remove it under our eyes.
        if let (true, true, Ok(meta)) = (name.starts_with("rmlx-"), name.ends_with(".jsonl"), entry.metadata()) {
            logs.push((meta.modified().unwrap_or(SystemTime::UNIX_EPOCH), entry.path(), meta.len()));
        }
    }
    logs.sort();
    let mut logs = VecDeque::from(logs);
    let mut total: u64 = logs.iter().map(|(_, _, size)| size).sum();
    while (total > bytes || logs.len() > files)
        && let Some((_, path, size)) = logs.pop_front()
    {
        let _ = fs::remove_file(path);
        total -= size;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Arc;

    use serde_json::Value;
    use tempfile::tempdir;
    use tracing::subscriber::with_default;

    use super::*;

    fn log_to(folder: &Path, cap: u64, work: impl FnOnce()) {
        let lines = tracing_subscriber::fmt::layer().json().with_writer(Files::new(folder.into(), cap));
        with_default(tracing_subscriber::registry().with(lines.with_filter(LevelFilter::INFO)), work);
    }

    fn files(folder: &Path) -> Vec<(PathBuf, u64)> {
        let all = fs::read_dir(folder).unwrap().map(|e| e.unwrap());
        let mut files: Vec<_> = all.map(|e| (e.path(), e.metadata().unwrap().len())).collect();
        files.sort();
        files
    }

    #[test]
    fn lines_are_json_and_the_folder_stays_bounded() {
        let home = tempdir().unwrap();
        let folder = home.path().join("deep/logs");
        log_to(&folder, 40_000, || {
            for number in 0..2000 {
                tracing::info!(number, "a line");
                tracing::debug!("left out");
            }
        });
        let files = files(&folder);
        let total: u64 = files.iter().map(|(_, size)| size).sum();
        assert!(total <= 40_000 && total > 20_000, "{total}");
        assert!(files.iter().all(|(_, size)| *size <= 5_000), "{files:?}");
        let mut numbers = Vec::new();
        for (path, _) in &files {
            for line in fs::read_to_string(path).unwrap().lines() {
                let line: Value = serde_json::from_str(line).unwrap();
                assert_eq!((&line["level"], &line["fields"]["message"]), (&"INFO".into(), &"a line".into()));
                numbers.push(line["fields"]["number"].as_u64().unwrap());
            }
        }
        numbers.sort();
        assert_eq!(numbers.last(), Some(&1999), "the newest stay");
        assert_eq!(numbers.len() as u64, 2000 - numbers[0], "and none between is lost");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&files[0].0)), (0o700, 0o600));
    }

    #[test]
    fn old_files_go_first_and_strangers_stay() {
        let home = tempdir().unwrap();
        for i in 0..MOST_FILES + 50 {
            let path = home.path().join(format!("rmlx-old-{i}.jsonl"));
            let file = File::create(&path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(i as u64)).unwrap();
        }
        fs::write(home.path().join("notes.jsonl"), "x".repeat(100_000)).unwrap();
        log_to(home.path(), 40_000, || tracing::info!("new"));
        let names: Vec<_> = files(home.path()).into_iter().map(|(path, _)| path.file_name().unwrap().to_owned()).collect();
        assert_eq!(names.len(), MOST_FILES + 1);
        assert!(names.contains(&"notes.jsonl".into()));
        assert!(!names.contains(&"rmlx-old-0.jsonl".into()) && names.contains(&"rmlx-old-249.jsonl".into()));
    }

    #[test]
    fn an_unwritable_folder_stops_nothing() {
        let home = tempdir().unwrap();
        let file = home.path().join("file");
        fs::write(&file, "").unwrap();
        let mut reached = 0;
        log_to(&file.join("logs"), 40_000, || {
            for _ in 0..3 {
                tracing::info!("into the void");
                reached += 1;
            }
        });
        assert_eq!(reached, 3);
    }

    #[test]
    fn warnings_read_as_one_line() {
        let capture = Capture(Arc::default());
        with_default(tracing_subscriber::registry().with(capture.clone()), || {
            tracing::warn!(layer = 3, kernel = "qmv", "slow path");
        });
        assert_eq!(*capture.0.lock().unwrap(), " slow path layer=3 kernel=qmv");
    }

    #[derive(Clone)]
    struct Capture(Arc<Mutex<String>>);

    impl<S: Subscriber> Layer<S> for Capture {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            event.record(&mut Plain(&mut self.0.lock().unwrap()));
        }
    }
}
