//! Downloads as jobs: one for each `REPO@REVISION`, on a small runtime of their own that starts with the first. What a job is at
//! stands in its state; what is on the disk, and what other processes do there, is read from the disk.

mod job;

use std::collections::HashMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use tokio::runtime::Runtime;
use tokio::sync::{Notify, Semaphore};

use crate::api::{DiskRoom, ErrorInfo, Pull, PullOptions, PullPhase};
use crate::error::{Error, Result};
use crate::hub::cache::{Cache, Record, Repo};
use crate::hub::fetch::{Halt, Limit, Meter, Tuning, have};
use crate::hub::remote::{Listing, Remote, RemoteFile, check_revision};

/// What comes before the first byte of a file: an error ends the download.
pub type PullCheck = Arc<dyn Fn(Asked) -> BoxFuture<'static, Result<()>> + Send + Sync>;

/// What [`PullCheck`] may look at.
pub struct Asked {
    pub remote: Remote,
    pub listing: Arc<Listing>,
    /// Those of the listing's files that are fetched.
    pub files: Vec<RemoteFile>,
    /// Where they will be; `fetch::have` says how much of each is there.
    pub repo: Repo,
    pub disk: DiskRoom,
    pub options: PullOptions,
}

/// What downloads depend on. Tests have another hub and other times.
pub struct Setup {
    /// Of the settings, which hold the limit.
    pub home: PathBuf,
    pub cache: Cache,
    /// Asked at every try, as the token may change.
    pub remote: Arc<dyn Fn() -> Result<Remote> + Send + Sync>,
    pub check: PullCheck,
    pub tuning: Tuning,
}

/// The jobs of this process. Dropped, they stop as if paused; other processes may go on with them.
pub struct Pulls {
    shared: Arc<Shared>,
    runtime: Mutex<Option<Runtime>>,
}

struct Shared {
    setup: Setup,
    tuning: Arc<Tuning>,
    jobs: Mutex<Vec<Arc<Job>>>,
    /// Changes so far, and a word when there is one.
    changes: Mutex<u64>,
    changed: Condvar,
    closed: AtomicBool,
    limit: Arc<Limit>,
    connections: Arc<Semaphore>,
    /// One download has the line; the others are queued. Who waits for the network lets the next one try.
    turn: Semaphore,
    /// Two revisions of a repository have files in common.
    repos: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

struct Job {
    repo: Repo,
    revision: String,
    /// Somebody who asked for it wants it in spite of its plan's problems.
    anyway: AtomicBool,
    halt: Halt,
    /// The user asked again: no more waiting.
    wake: Notify,
    /// It was the user who stopped it.
    by_user: AtomicBool,
    meter: Arc<Meter>,
    state: Mutex<State>,
}

struct State {
    phase: PullPhase,
    commit: Option<String>,
    total: Option<u64>,
    error: Option<ErrorInfo>,
    elsewhere: bool,
    ended: bool,
}

/// How often a watcher hears of progress.
const TICK: Duration = Duration::from_millis(100);
/// How long a handle that is dropped waits for its jobs.
const LAST_WAIT: Duration = Duration::from_secs(5);

impl Pulls {
    pub fn new(setup: Setup) -> Self {
        let tuning = Arc::new(setup.tuning.clone());
        let shared = Shared {
            connections: Arc::new(Semaphore::new(tuning.connections.max(1))),
            tuning,
            setup,
            jobs: Mutex::default(),
            changes: Mutex::default(),
            changed: Condvar::new(),
            closed: AtomicBool::new(false),
            limit: Arc::default(),
            turn: Semaphore::new(1),
            repos: Mutex::default(),
        };
        Self { shared: Arc::new(shared), runtime: Mutex::default() }
    }

    pub fn setup(&self) -> &Setup {
        &self.shared.setup
    }

    /// Waits for work on the downloads' runtime. Not from a task of a runtime.
    pub fn wait<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Result<T> {
        let handle = self.handle()?;
        handle.block_on(handle.spawn(work)).map_err(|e| Error::Internal(format!("a task ended: {e}")))
    }

    fn handle(&self) -> Result<tokio::runtime::Handle> {
        let mut runtime = lock(&self.runtime);
        if let Some(runtime) = &*runtime {
            return Ok(runtime.handle().clone());
        }
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let built = builder.worker_threads(2).thread_name("downloads").enable_io().enable_time().build();
        let built = built.map_err(|e| Error::Internal(format!("no runtime: {e}")))?;
        Ok(runtime.insert(built).handle().clone())
    }

    /// As [`super::Models::pull`].
    pub fn pull(&self, model: &str, options: PullOptions) -> Result<Pull> {
        let (repo, revision) = self.parse(model)?;
        let handle = self.handle()?;
        let mut jobs = lock(&self.shared.jobs);
        if let Some(job) = jobs.iter().find(|j| j.is(&repo, &revision) && !j.state().ended) {
            job.anyway.fetch_or(options.anyway, Ordering::Relaxed);
            job.wake.notify_one();
            return Ok(job.pull());
        }
        jobs.retain(|j| !j.is(&repo, &revision));
        let job = Arc::new(Job::new(repo, revision, options));
        jobs.push(job.clone());
        drop(jobs);
        let pull = job.pull();
        handle.spawn(job::run(self.shared.clone(), job));
        self.shared.touch();
        Ok(pull)
    }

    /// Those of this process in the order of their beginnings, the ended among them until they are begun again or forgotten; then
    /// what lies on the disk.
    pub fn all(&self) -> Vec<Pull> {
        self.shared.all()
    }

    /// A model that is removed was never fetched.
    pub fn forget(&self, repo: &str) {
        lock(&self.shared.jobs).retain(|j| j.repo.name != repo || !j.state().ended);
        self.shared.touch();
    }

    /// As [`super::Models::watch_pulls`].
    pub fn watch(&self, on_change: impl Fn(&[Pull]) + Send + Sync + 'static) -> Result<()> {
        let shared = self.shared.clone();
        let work = move || {
            let mut last = None;
            while !shared.closed.load(Ordering::Relaxed) {
                let seen = *lock(&shared.changes);
                let pulls = shared.all();
                if last.as_ref() != Some(&pulls) {
                    on_change(&pulls);
                }
                // What runs changes without a word.
                let busy = lock(&shared.jobs).iter().any(|j| !j.state().ended) || pulls.iter().any(|p| p.elsewhere);
                last = Some(pulls);
                thread::sleep(TICK);
                let changes = lock(&shared.changes);
                let quiet = |changes: &mut u64| *changes == seen && !busy && !shared.closed.load(Ordering::Relaxed);
                drop(shared.changed.wait_while(changes, quiet));
            }
        };
        let thread = thread::Builder::new().name("watch-downloads".into()).spawn(work);
        thread.map(drop).map_err(|e| Error::Internal(format!("no thread: {e}")))
    }

    /// As [`super::Models::pause`].
    pub fn pause(&self, model: &str) -> Result<()> {
        let (repo, revision) = self.parse(model)?;
        if self.stop(&repo, &revision) || repo.record(&revision).is_some() {
            return Ok(());
        }
        Err(no_download(model))
    }

    /// As [`super::Models::cancel`].
    pub fn cancel(&self, model: &str) -> Result<()> {
        let (repo, revision) = self.parse(model)?;
        let stopped = self.stop(&repo, &revision);
        let mut jobs = lock(&self.shared.jobs);
        let before = jobs.len();
        jobs.retain(|j| !j.is(&repo, &revision));
        let known = stopped || before != jobs.len();
        drop(jobs);
        self.shared.touch();
        let Some(record) = repo.record(&revision) else { return if known { Ok(()) } else { Err(no_download(model)) } };
        let elsewhere = "another rMLX process fetches it, or another revision of it is being fetched\nhint: stop that first";
        let _lock = repo.lock()?.ok_or_else(|| Error::BadRequest(format!("{model}: {elsewhere}")))?;
        repo.discard(&record)
    }

    /// Whether there was a job. It has ended.
    fn stop(&self, repo: &Repo, revision: &str) -> bool {
        let job = lock(&self.shared.jobs).iter().find(|j| j.is(repo, revision) && !j.state().ended).cloned();
        let Some(job) = job else { return false };
        job.by_user.store(true, Ordering::Relaxed);
        job.halt.set();
        self.shared.wait_for_end(&job, None);
        true
    }

    fn parse(&self, model: &str) -> Result<(Repo, String)> {
        let (name, revision) = model.split_once('@').unwrap_or((model, "main"));
        check_revision(revision)?;
        Ok((self.shared.setup.cache.repo(name)?, revision.into()))
    }
}

impl Drop for Pulls {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Relaxed);
        let jobs = lock(&self.shared.jobs).clone();
        jobs.iter().for_each(|job| job.halt.set());
        self.shared.touch();
        let until = Instant::now() + LAST_WAIT;
        jobs.iter().for_each(|job| self.shared.wait_for_end(job, Some(until)));
        if let Some(runtime) = lock(&self.runtime).take() {
            runtime.shutdown_background();
        }
    }
}

impl Shared {
    fn touch(&self) {
        *lock(&self.changes) += 1;
        self.changed.notify_all();
    }

    fn wait_for_end(&self, job: &Job, until: Option<Instant>) {
        let mut changes = lock(&self.changes);
        while !job.state().ended {
            let left = until.map_or(Duration::from_secs(1), |u| u.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return;
            }
            changes = self.changed.wait_timeout(changes, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn all(&self) -> Vec<Pull> {
        let jobs = lock(&self.jobs).clone();
        let mut pulls: Vec<Pull> = jobs.iter().map(|j| j.pull()).collect();
        let unfinished = self.setup.cache.unfinished().into_iter();
        let others = unfinished.filter(|(repo, record)| !jobs.iter().any(|j| j.is(repo, &record.revision)));
        pulls.extend(others.map(|(repo, record)| on_disk(&repo, &record, repo.is_locked())));
        pulls
    }

    /// What two downloads of one repository take in turns.
    fn repo(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        lock(&self.repos).entry(name.into()).or_default().clone()
    }
}

impl Job {
    fn new(repo: Repo, revision: String, options: PullOptions) -> Self {
        let record = repo.record(&revision);
        let meter = Arc::<Meter>::default();
        let mut state =
            State { phase: PullPhase::Listing, commit: None, total: None, error: None, elsewhere: false, ended: false };
        if let Some(record) = record {
            let pull = on_disk(&repo, &record, false);
            (state.commit, state.total) = (pull.commit, pull.total);
            meter.set(pull.done, pull.verified);
        }
        let (halt, wake, by_user) = (Halt::default(), Notify::new(), AtomicBool::new(false));
        Self { repo, revision, anyway: AtomicBool::new(options.anyway), halt, wake, by_user, meter, state: Mutex::new(state) }
    }

    fn is(&self, repo: &Repo, revision: &str) -> bool {
        self.repo == *repo && self.revision == revision
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn anyway(&self) -> bool {
        self.anyway.load(Ordering::Relaxed)
    }

    fn pull(&self) -> Pull {
        let state = self.state();
        let (done, verified) = (self.meter.done(), self.meter.verified());
        let rate = if state.phase == PullPhase::Fetching { self.meter.rate() } else { 0 };
        let left = state.total.map(|total| total.saturating_sub(done));
        let all_here = left == Some(0) && state.phase == PullPhase::Fetching;
        Pull {
            repo: self.repo.name.clone(),
            revision: self.revision.clone(),
            commit: state.commit.clone(),
            phase: if all_here { PullPhase::Verifying } else { state.phase },
            done,
            total: state.total,
            verified,
            rate,
            seconds_left: left.filter(|_| rate > 0).map(|left| left.div_ceil(rate)),
            error: state.error.clone(),
            elsewhere: state.elsewhere,
        }
    }
}

fn on_disk(repo: &Repo, record: &Record, elsewhere: bool) -> Pull {
    let known = record.commit.is_some();
    Pull {
        repo: repo.name.clone(),
        revision: record.revision.clone(),
        commit: record.commit.clone(),
        phase: if elsewhere { PullPhase::Fetching } else { PullPhase::Paused },
        done: record.files.iter().map(|f| have(repo, f)).sum(),
        total: known.then(|| record.files.iter().map(|f| f.bytes).sum()),
        verified: record.files.iter().filter(|f| repo.has(f)).map(|f| f.bytes).sum(),
        rate: 0,
        seconds_left: None,
        error: None,
        elsewhere,
    }
}

fn no_download(model: &str) -> Error {
    Error::NotFound(format!("{model} is not being fetched"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
