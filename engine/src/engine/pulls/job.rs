//! One download from its beginning to its end: listing, check, transfer, snapshot; and the waiting between tries.

use std::collections::hash_map::RandomState;
use std::future::Future;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::{Asked, Job, Shared, State, on_disk};
use crate::api::{DiskRoom, ErrorInfo, PullOptions, PullPhase};
use crate::error::{Error, Result};
use crate::hub::cache::{Lock, Record, Repo, disk_full};
use crate::hub::fetch::{Fetch, have, needed};
use crate::hub::plan::no_weights;
use crate::hub::remote::{Listing, Remote, RemoteFile, Retry, Trouble};
use crate::settings;

/// How often the files of another process's download are looked at.
const FOLLOW: Duration = Duration::from_millis(500);
/// How often the settings are read.
const SETTINGS: Duration = Duration::from_secs(1);

/// What a listing said, and which of its files are fetched.
struct Wanted {
    listing: Arc<Listing>,
    files: Vec<RemoteFile>,
}

/// Runs a job and notes how it ended, whatever that was.
pub(super) async fn run(shared: Arc<Shared>, job: Arc<Job>) {
    let work = {
        let (shared, job) = (shared.clone(), job.clone());
        async move {
            tokio::select! {
                ended = alone(&shared, &job) => ended,
                never = follow_settings(&shared) => match never {},
            }
        }
    };
    let ended = tokio::spawn(work).await.unwrap_or_else(|e| {
        tracing::error!(repo = job.repo.name, "a download panicked");
        Err(Error::Internal(format!(
            "the download ended unexpectedly: {}",
            if e.is_panic() { "a panic" } else { "it was dropped" }
        )))
    });
    let paused = matches!(ended, Err(Error::Cancelled));
    {
        let mut jobs = super::lock(&shared.jobs);
        let mut state = job.state();
        state.ended = true;
        state.elsewhere = false;
        match &ended {
            Ok(()) => (state.phase, state.error) = (PullPhase::Done, None),
            Err(Error::Cancelled) => (state.phase, state.error) = (PullPhase::Paused, None),
            Err(error) => (state.phase, state.error) = (PullPhase::Failed, Some(ErrorInfo::from(error))),
        }
        if paused {
            // What is on the disk tells the rest.
            jobs.retain(|j| !Arc::ptr_eq(j, &job));
        }
    }
    match ended {
        Ok(()) => tracing::info!(repo = job.repo.name, revision = job.revision, "fetched"),
        Err(Error::Cancelled) => tracing::info!(repo = job.repo.name, revision = job.revision, "download stopped"),
        Err(error) => tracing::info!(repo = job.repo.name, revision = job.revision, code = error.code(), "download failed"),
    }
    shared.touch();
}

enum Never {}

async fn follow_settings(shared: &Shared) -> Never {
    loop {
        let home = shared.setup.home.clone();
        // A file that cannot be read now leaves the limit as it is.
        if let Ok(settings) = blocking(move || settings::read(&home)).await {
            shared.limit.set(settings.models.rate_limit);
        }
        sleep(SETTINGS).await;
    }
}

/// Alone with the repository, in this process and among all.
async fn alone(shared: &Shared, job: &Job) -> Result<()> {
    let in_process = shared.repo(&job.repo.name);
    let _turn = match in_process.try_lock() {
        Ok(turn) => turn,
        Err(_) => {
            set(shared, job, |s| s.phase = PullPhase::Queued);
            until_halted(job, in_process.lock()).await?
        }
    };
    let Some(lock) = lock(shared, job).await? else { return Ok(()) };
    let ended = tries(shared, job).await;
    let by_user = job.by_user.load(Ordering::Relaxed);
    let (repo, revision, failed) = (job.repo.clone(), job.revision.clone(), ended.is_err());
    let anyway = job.anyway();
    let stopped = matches!(ended, Err(Error::Cancelled));
    let tidied = blocking(move || {
        let _lock = lock;
        match repo.record(&revision).filter(|_| failed) {
            // Who joined it may have wanted it anyway.
            Some(record) if stopped => {
                repo.write_record(&Record { paused: by_user || record.paused, anyway: anyway || record.anyway, ..record })
            }
            // Of what failed before there was anything, nothing stays.
            Some(record) if record.files.iter().all(|f| have(&repo, f) == 0) => repo.discard(&record),
            _ => Ok(()),
        }
    });
    if let Err(e) = tidied.await {
        // How the download ended matters more.
        tracing::warn!(repo = job.repo.name, "the note on a download was not kept: {e}");
    }
    ended
}

/// The repository's lock; `None`: another process had it, and finished the download.
async fn lock(shared: &Shared, job: &Job) -> Result<Option<Lock>> {
    // While another had the lock.
    let mut seen: Option<Record> = None;
    let mut ran = false;
    loop {
        let (repo, revision) = (job.repo.clone(), job.revision.clone());
        let (lock, record) = blocking(move || Ok((repo.lock()?, repo.record(&revision)))).await?;
        match (lock, record, &seen) {
            // It was paused there meanwhile. What was paused before is what this job was asked to go on with.
            (Some(_), Some(record), _) if record.paused && ran => return Err(Error::Cancelled),
            (Some(_), None, Some(seen)) => {
                let done = seen.commit.as_ref().is_some_and(|commit| job.repo.snapshot(commit).is_dir());
                if done && seen.files.iter().all(|f| job.repo.has(f)) {
                    let bytes = seen.files.iter().map(|f| f.bytes).sum();
                    job.meter.set(bytes, bytes);
                    return Ok(None);
                }
                // It was cancelled there.
                return Err(Error::Cancelled);
            }
            (Some(lock), ..) => {
                set(shared, job, |s| s.elsewhere = false);
                return Ok(Some(lock));
            }
            (None, record, _) => {
                ran |= record.as_ref().is_some_and(|record| !record.paused);
                seen = record.or(seen);
                if let Some(record) = &seen {
                    let pull = on_disk(&job.repo, record, true);
                    job.meter.add_received(pull.done.saturating_sub(job.meter.done()));
                    job.meter.set(pull.done, pull.verified);
                    set(shared, job, |s| (s.commit, s.total) = (pull.commit, pull.total));
                }
                set(shared, job, |s| (s.phase, s.elsewhere) = (PullPhase::Fetching, true));
                until_halted(job, sleep(FOLLOW)).await?;
            }
        }
    }
}

/// Tries until it is done or cannot be.
async fn tries(shared: &Shared, job: &Job) -> Result<()> {
    let (repo, revision, anyway) = (job.repo.clone(), job.revision.clone(), job.anyway());
    blocking(move || {
        repo.check()?;
        let new = Record { revision, commit: None, files: Vec::new(), paused: false, anyway };
        let record = repo.record(&new.revision).unwrap_or(new);
        repo.write_record(&Record { paused: false, ..record })
    })
    .await?;
    let mut wanted = None;
    let mut failures = 0;
    loop {
        let before = job.meter.received();
        let Err(trouble) = attempt(shared, job, &mut wanted).await else { return Ok(()) };
        failures = if job.meter.received() > before { 0 } else { failures + 1 };
        let pause = match trouble.retry {
            Retry::Never => return Err(trouble.error),
            Retry::After(time) => time,
            Retry::Later => back_off(shared.tuning.back_off, failures),
        };
        tracing::info!(repo = job.repo.name, code = trouble.error.code(), ?pause, "download waits");
        set(shared, job, |s| (s.phase, s.error) = (PullPhase::Waiting, Some(ErrorInfo::from(&trouble.error))));
        tokio::select! {
            () = job.halt.wait() => return Err(Error::Cancelled),
            () = job.wake.notified() => {}
            () = sleep(pause) => {}
        }
    }
}

/// Twice as long each time, and between that and half of it, so that many clients do not come back at once.
fn back_off((first, most): (Duration, Duration), failures: u32) -> Duration {
    let time = first.saturating_mul(2_u32.saturating_pow(failures.min(20))).min(most);
    let chance = RandomState::new().hash_one(0) as f64 / u64::MAX as f64;
    time.mul_f64(0.5 + chance / 2.0)
}

async fn attempt(shared: &Shared, job: &Job, wanted: &mut Option<Wanted>) -> Result<(), Trouble> {
    // It asks for the token, which may take the keyring's time.
    let remote = shared.setup.remote.clone();
    let remote = until_halted(job, blocking(move || remote())).await??;
    let wanted = match wanted {
        Some(wanted) => wanted,
        None => {
            set(shared, job, |s| s.phase = PullPhase::Listing);
            wanted.insert(until_halted(job, list(shared, job, &remote)).await??)
        }
    };
    let _turn = match shared.turn.try_acquire() {
        Ok(turn) => turn,
        Err(_) => {
            set(shared, job, |s| (s.phase, s.error) = (PullPhase::Queued, None));
            until_halted(job, shared.turn.acquire()).await?.map_err(|e| Error::Internal(e.to_string()))?
        }
    };
    let (repo, files, tuning) = (job.repo.clone(), wanted.files.clone(), shared.tuning.clone());
    let disk = blocking(move || Ok((count(&repo, &files), (tuning.free)(&repo.folder)?))).await?;
    let ((done, verified), free) = disk;
    let total: u64 = wanted.files.iter().map(|f| f.bytes).sum();
    let need = (total - done).saturating_add(shared.tuning.reserve);
    if total > done && need > free {
        return Err(disk_full(&shared.setup.cache.root, need, free).into());
    }
    job.meter.set(done, verified);
    set(shared, job, |s| (s.phase, s.error) = (PullPhase::Fetching, None));
    let fetch = Fetch {
        remote,
        repo: job.repo.clone(),
        listing: wanted.listing.clone(),
        tuning: shared.tuning.clone(),
        meter: job.meter.clone(),
        limit: shared.limit.clone(),
        connections: shared.connections.clone(),
        halt: job.halt.clone(),
    };
    fetch.run(&wanted.files).await?;
    set(shared, job, |s| s.phase = PullPhase::Verifying);
    let (repo, revision, listing, files) = (job.repo.clone(), job.revision.clone(), wanted.listing.clone(), wanted.files.clone());
    blocking(move || {
        repo.publish(&listing, &revision, &files)?;
        repo.remove_record(&revision)
    })
    .await?;
    Ok(())
}

/// Asks what there is, whether it makes sense, and notes it on the disk. A branch that moved since an earlier run is followed:
/// files that are the same go on where they were, those that are gone are removed.
async fn list(shared: &Shared, job: &Job, remote: &Remote) -> Result<Wanted, Trouble> {
    let listing = Arc::new(remote.list(&job.repo.name, &job.revision, shared.tuning.stall).await?);
    let files: Vec<RemoteFile> = needed(&listing).into_iter().cloned().collect();
    if !files.iter().any(|f| f.name.ends_with(".safetensors")) {
        return Err(no_weights(listing.files.iter().map(|f| f.name.as_str())).into());
    }
    let (repo, reserve, free, all) = (job.repo.clone(), shared.tuning.reserve, shared.tuning.free, files.clone());
    let (revision, commit) = (job.revision.clone(), listing.commit.clone());
    let looked = blocking(move || {
        let to_fetch = all.iter().map(|f| f.bytes).sum::<u64>() - count(&repo, &all).0;
        let free = free(&repo.folder)?;
        let agreed = repo.record(&revision).is_some_and(|record| record.agreed(&commit));
        Ok((DiskRoom { free, reserve, fits: to_fetch.saturating_add(reserve) <= free }, agreed))
    });
    let (disk, agreed) = looked.await?;
    job.anyway.fetch_or(agreed, Ordering::Relaxed);
    let asked = Asked {
        remote: remote.clone(),
        listing: listing.clone(),
        files: files.clone(),
        repo: job.repo.clone(),
        disk,
        options: PullOptions { anyway: job.anyway() },
    };
    (shared.setup.check)(asked).await?;
    let (repo, revision, all, commit) = (job.repo.clone(), job.revision.clone(), files.clone(), listing.commit.clone());
    let anyway = job.anyway();
    let (done, verified) = blocking(move || {
        let before = repo.record(&revision).map_or_else(Vec::new, |r| r.files);
        let gone: Vec<RemoteFile> = before.into_iter().filter(|f| !all.iter().any(|new| new.hash == f.hash)).collect();
        repo.write_record(&Record { revision, commit: Some(commit), files: all.clone(), paused: false, anyway })?;
        repo.discard_files(&gone)?;
        Ok(count(&repo, &all))
    })
    .await?;
    job.meter.set(done, verified);
    let total = files.iter().map(|f| f.bytes).sum();
    set(shared, job, |s| (s.commit, s.total, s.error) = (Some(listing.commit.clone()), Some(total), None));
    Ok(Wanted { listing, files })
}

/// Bytes of the files that are on the disk, and those of whole ones.
fn count(repo: &Repo, files: &[RemoteFile]) -> (u64, u64) {
    let whole = files.iter().filter(|f| repo.has(f)).map(|f| f.bytes).sum();
    (files.iter().map(|f| have(repo, f)).sum(), whole)
}

fn set(shared: &Shared, job: &Job, change: impl FnOnce(&mut State)) {
    change(&mut job.state());
    shared.touch();
}

async fn until_halted<T>(job: &Job, work: impl Future<Output = T>) -> Result<T> {
    tokio::select! {
        () = job.halt.wait() => Err(Error::Cancelled),
        done = work => Ok(done),
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = spawn_blocking(work).await;
    done.unwrap_or_else(|e| {
        Err(Error::Internal(format!("work on the disk ended: {}", if e.is_panic() { "a panic" } else { "dropped" })))
    })
}
