//! Waiting for a condition.

use std::thread;
use std::time::{Duration, Instant};

/// What needs no model. Generous: the machine may be busy.
pub const SOON: Duration = Duration::from_secs(30);
/// What the model has to do.
pub const ANSWER: Duration = Duration::from_secs(120);

const PAUSE: Duration = Duration::from_millis(40);

/// The first value that `look` gives; fails with `what` when there is none by the deadline.
pub fn until<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < limit, "not within {limit:?}: {what}");
        thread::sleep(PAUSE);
    }
}

pub fn until_true(what: &str, limit: Duration, mut look: impl FnMut() -> bool) {
    until(what, limit, || look().then_some(()));
}

/// Fails as soon as `look` is false within `time`: for what must *not* happen, which no condition can tell.
pub fn stays(what: &str, time: Duration, mut look: impl FnMut() -> bool) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        assert!(look(), "did not stay so: {what}");
        thread::sleep(PAUSE);
    }
}
