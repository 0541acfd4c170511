//! SIGINT and SIGTERM.
//!
//! A thread waits for them. While somebody holds [`Polite`], the first one is only noted, and the holder stops at its next
//! look; otherwise, and for a second one, the process ends at once. The claim on the GPU ends with the process either way.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};

use rmlx_engine::error::Error;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::failure::{Failure, Result};

pub use signal_hook::consts::SIGINT as INTERRUPT;

#[derive(Clone)]
pub struct Signals(Arc<State>);

#[derive(Default)]
struct State {
    /// 0: none.
    caught: AtomicI32,
    polite: AtomicBool,
    terminal: Mutex<Option<Termios>>,
    /// In [`Signals::wait`].
    waiting: Mutex<Option<Thread>>,
}

impl Signals {
    pub fn watch() -> Result<Self> {
        let state = Arc::new(State::default());
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM]).map_err(|e| Error::io("signal handlers", e))?;
        let watched = state.clone();
        thread::spawn(move || {
            for signal in signals.forever() {
                let first = watched.caught.swap(signal, Ordering::SeqCst) == 0;
                if !(first && watched.polite.load(Ordering::SeqCst)) {
                    watched.restore_terminal();
                    end_line();
                    exit(signal);
                }
                if let Some(waiting) = &*watched.waiting.lock().unwrap_or_else(PoisonError::into_inner) {
                    waiting.unpark();
                }
            }
        });
        Ok(Self(state))
    }

    /// While the guard lives, the caller looks at [`Self::caught`] several times a second.
    pub fn polite(&self) -> Polite<'_> {
        self.0.caught.store(0, Ordering::SeqCst);
        self.0.polite.store(true, Ordering::SeqCst);
        Polite(&self.0)
    }

    pub fn caught(&self) -> Option<i32> {
        Some(self.0.caught.load(Ordering::SeqCst)).filter(|signal| *signal != 0)
    }

    /// Waits for the first signal; for a holder of [`Polite`] with nothing else to do.
    pub fn wait(&self) -> i32 {
        *self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread::current());
        loop {
            if let Some(signal) = self.caught() {
                return signal;
            }
            thread::park();
        }
    }

    /// The line editor changes the terminal's mode; ending at once must not leave it so.
    pub fn remember_terminal(&self) {
        *self.0.terminal.lock().unwrap_or_else(PoisonError::into_inner) = tcgetattr(io::stdin()).ok();
    }
}

pub struct Polite<'a>(&'a State);

impl Drop for Polite<'_> {
    fn drop(&mut self) {
        self.0.polite.store(false, Ordering::SeqCst);
        self.0.caught.store(0, Ordering::SeqCst);
    }
}

impl State {
    fn restore_terminal(&self) {
        if let Some(mode) = &*self.terminal.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, mode);
            // The editor also asks the terminal to mark pasted text.
            let _ = rustix::io::write(io::stdout(), b"\x1b[?2004l");
        }
    }
}

/// The shell's next prompt belongs on a line of its own. Past the locks of `std`, which another thread may hold.
pub fn end_line() {
    if io::stderr().is_terminal() {
        let _ = rustix::io::write(io::stderr(), b"\n");
    }
}

/// Ends the process where a signal ended the work: dropping the engine would wait for the step that it is in.
pub fn or_exit<T>(result: Result<T>) -> Result<T> {
    if let Err(Failure::Signal(signal)) = &result {
        tracing::info!(signal, "ended by a signal");
        exit(*signal);
    }
    result
}

/// Without running destructors: another thread may be inside MLX.
pub fn exit(signal: i32) -> ! {
    signal_hook::low_level::exit(128 + signal)
}
