//! How far a download is and how fast, and the limit on all of them together.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// A rate is that of the last seconds.
const WINDOW: Duration = Duration::from_secs(5);
const SLOT: Duration = Duration::from_millis(200);
/// A limit is kept over this time: what was not used before is lost, so that nothing comes in a flood after a sleep.
const BURST: f64 = 0.25;

/// Counts of one download, from any thread.
#[derive(Default)]
pub struct Meter {
    done: AtomicU64,
    verified: AtomicU64,
    received: AtomicU64,
    slots: Mutex<VecDeque<(Instant, u64)>>,
}

impl Meter {
    /// What lies on the disk at the beginning.
    pub fn set(&self, done: u64, verified: u64) {
        self.done.store(done, Ordering::Relaxed);
        self.verified.store(verified, Ordering::Relaxed);
    }

    /// Bytes on the disk.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    pub fn verified(&self) -> u64 {
        self.verified.load(Ordering::Relaxed)
    }

    /// Over the network so far, those among them that were no use.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    pub fn add_done(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// They were no use after all.
    pub fn take_done(&self, bytes: u64) {
        let _ = self.done.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |done| Some(done.saturating_sub(bytes)));
    }

    pub fn add_verified(&self, bytes: u64) {
        self.verified.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn add_received(&self, bytes: u64) {
        self.received.fetch_add(bytes, Ordering::Relaxed);
        let now = Instant::now();
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        match slots.back_mut().filter(|(start, _)| now - *start < SLOT) {
            Some((_, sum)) => *sum += bytes,
            None => slots.push_back((now, bytes)),
        }
        while slots.front().is_some_and(|(start, _)| now - *start > WINDOW) {
            slots.pop_front();
        }
    }

    /// Bytes a second.
    pub fn rate(&self) -> u64 {
        let now = Instant::now();
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = slots.iter().filter(|(start, _)| now - *start <= WINDOW);
        let (oldest, sum) = recent.fold((now, 0), |(oldest, sum), (start, bytes)| (oldest.min(*start), sum + bytes));
        (sum as f64 / (now - oldest).as_secs_f64().max(0.5)) as u64
    }
}

/// Bytes a second that all downloads of a process take together; 0: no limit.
pub struct Limit {
    rate: AtomicU64,
    /// Bytes that may come now, below zero where more came; and when that was.
    state: Mutex<(f64, Instant)>,
}

impl Default for Limit {
    fn default() -> Self {
        Self { rate: AtomicU64::new(0), state: Mutex::new((0.0, Instant::now())) }
    }
}

impl Limit {
    pub fn set(&self, rate: Option<u64>) {
        self.rate.store(rate.unwrap_or(0), Ordering::Relaxed);
    }

    /// Waits until the bytes that came were due.
    pub async fn take(&self, bytes: u64) {
        let mut bytes = bytes as f64;
        loop {
            let rate = self.rate.load(Ordering::Relaxed) as f64;
            if rate == 0.0 {
                return;
            }
            let due = {
                let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                let now = Instant::now();
                let fresh = (now - state.1).as_secs_f64() * rate;
                *state = ((state.0 + fresh).min(rate * BURST) - bytes, now);
                bytes = 0.0;
                -state.0 / rate
            };
            if due <= 0.0 {
                return;
            }
            // In short steps, as the limit may change meanwhile.
            sleep(Duration::from_secs_f64(due.min(BURST))).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_of_the_last_seconds() {
        let meter = Meter::default();
        assert_eq!(meter.rate(), 0);
        let now = Instant::now();
        let mut slots: VecDeque<_> = (0..10).map(|i| (now - Duration::from_secs(10 - i), 1000)).collect();
        // What came before the window does not count.
        slots[0].1 = 1_000_000;
        *meter.slots.lock().unwrap() = slots;
        assert!((900..1300).contains(&meter.rate()), "{}", meter.rate());
        meter.set(10, 5);
        meter.take_done(20);
        assert_eq!((meter.done(), meter.verified()), (0, 5));
    }

    #[test]
    fn nothing_comes_in_a_flood_after_a_sleep() {
        let limit = Limit::default();
        limit.set(Some(1_000_000));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        // As if it had slept for an hour, in which 3.6 GB would have been due.
        limit.state.lock().unwrap().1 = Instant::now() - Duration::from_secs(3600);
        let begin = Instant::now();
        runtime.block_on(async {
            for _ in 0..10 {
                limit.take(50_000).await;
            }
        });
        let time = begin.elapsed();
        assert!(time >= Duration::from_millis(200) && time < Duration::from_secs(5), "{time:?}");
        limit.set(None);
        let begin = Instant::now();
        runtime.block_on(limit.take(1 << 40));
        assert!(begin.elapsed() < Duration::from_secs(1));
    }
}
