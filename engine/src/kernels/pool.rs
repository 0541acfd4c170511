//! Threads that share one loop. The caller takes part; helpers sleep between loops.

use std::any::Any;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, TryLockError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// How long a thread looks for what it expects soon before it sleeps. A decode step is hundreds of loops a few tens of microseconds
/// apart, and waking a thread takes as long as such a loop.
const PATIENCE: Duration = Duration::from_micros(50);
/// Below this, looking is not worth a clock.
const LEAST: Duration = Duration::from_micros(2);

/// A number of threads, the caller of [`Pool::run`] among them.
pub struct Pool {
    shared: Arc<Shared>,
    helpers: Vec<Thread>,
    /// Held by whoever runs a loop on the helpers; how long they wait for the last of it.
    busy: Mutex<Duration>,
}

struct Shared {
    /// Counts the loops, so that a helper sees that there is a new one.
    epoch: AtomicU32,
    job: Mutex<Option<Arc<Job>>>,
    closed: AtomicBool,
}

/// One loop.
struct Job {
    /// Points to the caller's closure. Called only for indices that are taken from `next` and below `count`: the caller waits for
    /// these, so the closure lives.
    work: *const (dyn Fn(usize) + Sync),
    next: AtomicUsize,
    count: usize,
    done: AtomicUsize,
    caller: Thread,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: `work` points to a Sync closure, and see there for why it lives long enough; the rest is Send and Sync.
unsafe impl Send for Job {}
// SAFETY: as above.
unsafe impl Sync for Job {}

impl Job {
    /// Takes indices until none is left.
    fn work_off(&self) {
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= self.count {
                return;
            }
            // SAFETY: this index is not done yet, so the caller is still in `run`, and with it the closure.
            let work = unsafe { &*self.work };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(index))) {
                self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
            }
            // Releases what the index wrote to the caller.
            if self.done.fetch_add(1, Ordering::AcqRel) + 1 == self.count {
                self.caller.unpark();
            }
        }
    }

    fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire) == self.count
    }
}

/// Waits until `arrived`: looks for a while, then sleeps until unparked. The while adapts: it grows when looking was worth it and
/// shrinks when not, so that on a crowded machine, or with long pauses between loops, a thread goes to sleep at once.
fn wait_for(arrived: impl Fn() -> bool, patience: &mut Duration) {
    if arrived() {
        return;
    }
    if *patience >= LEAST {
        let start = Instant::now();
        while start.elapsed() < *patience {
            for _ in 0..32 {
                std::hint::spin_loop();
            }
            if arrived() {
                *patience = (*patience * 2).min(PATIENCE);
                return;
            }
        }
    }
    *patience /= 2;
    let start = Instant::now();
    while !arrived() {
        thread::park();
    }
    // It came soon after all.
    if start.elapsed() < PATIENCE {
        *patience = (*patience * 2).clamp(LEAST, PATIENCE);
    }
}

impl Pool {
    /// `threads` is at least 1: the caller alone.
    pub fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared { epoch: AtomicU32::new(0), job: Mutex::default(), closed: AtomicBool::new(false) });
        let helper = |i: usize| {
            let shared = shared.clone();
            let spawned = thread::Builder::new().name(format!("kernel-{i}")).spawn(move || help(&shared));
            // Fewer threads are slower, not wrong.
            spawned.ok().map(|handle| handle.thread().clone())
        };
        let helpers = (1..threads).map_while(helper).collect();
        Self { shared, helpers, busy: Mutex::new(PATIENCE) }
    }

    pub fn threads(&self) -> usize {
        self.helpers.len() + 1
    }

    /// Calls `work` with every index below `count`, in any order and on any of the threads, and returns when all are done. Where
    /// another loop has the helpers (also one that this is called from), the caller does all of it. Panics like `work`, after the
    /// other indices are done.
    pub fn run(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        let mut patience = match self.busy.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return (0..count).for_each(work),
        };
        if count <= 1 || self.helpers.is_empty() {
            return (0..count).for_each(work);
        }
        // SAFETY: only the lifetime changes; `Job::work` says why the closure is not called after this function.
        let work = unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(work) };
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let job = Arc::new(Job { work, next, count, done, caller: thread::current(), panic: Mutex::default() });
        *self.shared.job.lock().unwrap_or_else(PoisonError::into_inner) = Some(job.clone());
        self.shared.epoch.fetch_add(1, Ordering::Release);
        self.helpers.iter().take(count - 1).for_each(Thread::unpark);
        job.work_off();
        // The helpers have at most one index each left.
        wait_for(|| job.is_done(), &mut patience);
        *self.shared.job.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let panic = job.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(panic) = panic {
            drop(patience);
            resume_unwind(panic);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.helpers.iter().for_each(Thread::unpark);
    }
}

/// What a helper does all its life.
fn help(shared: &Shared) {
    let (mut seen, mut patience) = (0, PATIENCE);
    loop {
        wait_for(|| shared.epoch.load(Ordering::Acquire) != seen || shared.closed.load(Ordering::Acquire), &mut patience);
        if shared.closed.load(Ordering::Acquire) {
            return;
        }
        seen = shared.epoch.load(Ordering::Acquire);
        // Already over when this thread came late.
        let job = shared.job.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(job) = job {
            job.work_off();
        }
    }
}

static POOL: OnceLock<RwLock<Arc<Pool>>> = OnceLock::new();

fn pool() -> &'static RwLock<Arc<Pool>> {
    // Where the system does not say, one. On Linux this obeys affinity and cgroups.
    POOL.get_or_init(|| RwLock::new(Arc::new(Pool::new(thread::available_parallelism().map_or(1, NonZero::get)))))
}

/// The pool that all kernels of the process use.
pub fn current() -> Arc<Pool> {
    pool().read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// How many threads kernels use from now on; `None`: as many as the process may run at once.
pub fn set_threads(threads: Option<usize>) {
    let wanted = threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, NonZero::get)).clamp(1, 1024);
    // Not `pool`, which would start as many as the machine has, only to end them.
    let pool = POOL.get_or_init(|| RwLock::new(Arc::new(Pool::new(wanted))));
    let mut pool = pool.write().unwrap_or_else(PoisonError::into_inner);
    if pool.threads() != wanted {
        *pool = Arc::new(Pool::new(wanted));
    }
}

#[cfg(test)]
mod tests;
