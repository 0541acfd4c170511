//! What the engine is doing, as others may see it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::api::{Activity, ActivityState, ErrorInfo};
use crate::error::Error;

/// The newest activity and who wants to know of it; every clone is the same board.
#[derive(Clone, Default)]
pub struct Board(Arc<Inner>);

#[derive(Default)]
struct Inner {
    now: Mutex<Activity>,
    watchers: Mutex<Vec<Watcher>>,
}

type Watcher = Arc<dyn Fn(&Activity) + Send + Sync>;

impl Board {
    pub fn now(&self) -> Activity {
        lock(&self.0.now).clone()
    }

    pub fn watch(&self, on_change: impl Fn(&Activity) + Send + Sync + 'static) {
        lock(&self.0.watchers).push(Arc::new(on_change));
    }

    /// No lock is held while watchers are called: they may look at the board, and add others.
    fn publish(&self, activity: &Activity) {
        activity.clone_into(&mut lock(&self.0.now));
        let watchers = lock(&self.0.watchers).clone();
        for watcher in watchers {
            // A watcher's panic must not end the engine's thread. What panicked is not called again.
            if catch_unwind(AssertUnwindSafe(|| watcher(activity))).is_err() {
                lock(&self.0.watchers).retain(|other| !Arc::ptr_eq(other, &watcher));
            }
        }
    }
}

/// The worker's side: keeps the account and publishes what changed.
pub struct Account {
    board: Board,
    activity: Activity,
}

impl Account {
    pub fn new(board: Board) -> Self {
        Self { board, activity: Activity::default() }
    }

    pub fn load_begins(&mut self, name: &str) {
        self.change(|a| {
            a.loading = Some(name.into());
            a.error = None;
        });
    }

    /// What was resident went to make room.
    pub fn unloaded(&mut self) {
        if self.activity.model.is_some() {
            self.change(|a| a.model = None);
        }
    }

    pub fn load_ended(&mut self, resident: Option<&str>, error: Option<&Error>) {
        self.change(|a| {
            a.loading = None;
            a.model = resident.map(Into::into);
            note(a, error.map(ErrorInfo::from));
        });
    }

    pub fn answer_begins(&mut self, running: usize) {
        self.change(|a| {
            a.running = running;
            a.error = None;
        });
    }

    /// After every turn: how many answers are left, and the error of one that failed in it.
    pub fn turned(&mut self, running: usize, failed: Option<ErrorInfo>) {
        if running != self.activity.running || failed.is_some() {
            self.change(|a| {
                a.running = running;
                note(a, failed);
            });
        }
    }

    fn change(&mut self, change: impl FnOnce(&mut Activity)) {
        let mut next = self.activity.clone();
        change(&mut next);
        next.state = if next.loading.is_some() {
            ActivityState::Loading
        } else if next.running > 0 {
            ActivityState::Busy
        } else if next.error.is_some() {
            ActivityState::Error
        } else {
            ActivityState::Idle
        };
        if next != self.activity {
            self.activity = next;
            self.board.publish(&self.activity);
        }
    }
}

/// What was stopped is no fault.
fn note(activity: &mut Activity, error: Option<ErrorInfo>) {
    if let Some(error) = error.filter(|e| e.code != Error::Cancelled.code()) {
        activity.error = Some(error);
    }
}

/// No code that panics runs under these locks, so a poisoned one still guards whole data.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
