//! Progress on standard error, when that is a terminal and the wait exceeds a second.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Bytes,
    Tokens,
    /// Bytes whose rate and rest come from elsewhere: [`Progress::tell`].
    Given,
    /// Nothing to count: a spinner.
    Nothing,
}

/// A bar per stage; the last update counts.
pub struct Progress {
    terminal: bool,
    began: Instant,
    stage: Option<Stage>,
    bar: Option<ProgressBar>,
}

struct Stage {
    name: &'static str,
    unit: Unit,
    done: u64,
    total: u64,
}

impl Progress {
    pub fn new() -> Self {
        Self { terminal: io::stderr().is_terminal(), began: Instant::now(), stage: None, bar: None }
    }

    pub fn update(&mut self, name: &'static str, unit: Unit, done: u64, total: u64) {
        let unit = if total == 0 { Unit::Nothing } else { unit };
        if self.stage.as_ref().is_none_or(|s| (s.name, s.unit) != (name, unit)) {
            self.clear_bar();
        }
        self.stage = Some(Stage { name, unit, done, total });
        self.tick();
    }

    /// What stands behind the bar.
    pub fn tell(&mut self, text: String) {
        if let Some(bar) = &self.bar {
            bar.set_prefix(text);
        }
    }

    /// To be called now and then, also when nothing has come.
    pub fn tick(&mut self) {
        let Some(stage) = self.stage.as_ref().filter(|_| self.terminal && self.began.elapsed() >= PATIENCE) else { return };
        let bar = self.bar.get_or_insert_with(|| bar(stage));
        bar.set_length(stage.total);
        bar.set_position(stage.done);
        if stage.unit == Unit::Nothing {
            bar.tick();
        }
    }

    /// Before anything else is written to the terminal. The next wait has its own second.
    pub fn clear(&mut self) {
        self.clear_bar();
        self.stage = None;
        self.began = Instant::now();
    }

    fn clear_bar(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear_bar();
    }
}

fn bar(stage: &Stage) -> ProgressBar {
    let template = match stage.unit {
        Unit::Bytes => "{msg} {wide_bar} {bytes}/{total_bytes} {eta}",
        Unit::Given => "{msg} {wide_bar} {bytes}/{total_bytes} {prefix}",
        Unit::Tokens => "{msg} {wide_bar} {human_pos}/{human_len} tokens {eta}",
        Unit::Nothing => "{spinner} {msg} {elapsed}",
    };
    let bar = ProgressBar::with_draw_target(Some(stage.total), ProgressDrawTarget::stderr());
    // The templates above are constants; a wrong one shows the default bar.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_message(stage.name);
    bar
}

/// For a call that tells nothing until it returns.
pub struct Spinner {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Spinner {
    pub fn new(name: &'static str) -> Self {
        let (stop, stopped) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut progress = Progress::new();
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(Duration::from_millis(100)) {
                progress.update(name, Unit::Nothing, 0, 0);
            }
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
