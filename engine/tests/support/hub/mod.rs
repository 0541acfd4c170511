//! A hub of our own: repositories are folders, answers have the shape of the real one's, and it misbehaves where it is told to.
//! It has two addresses: the hub itself, and one that large files are redirected to.

#![allow(dead_code, reason = "each user takes a part")]

pub mod answers;
pub mod repo;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use axum::http::HeaderMap;
use tokio::sync::oneshot;

pub use repo::Repository;

/// A token that the hub knows, and one that it knows but that has accepted no terms.
pub const TOKEN: &str = "hf_known";
pub const STRANGER: &str = "hf_stranger";

pub struct Hub {
    pub state: Arc<State>,
    pub endpoint: String,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

#[derive(Default)]
pub struct State {
    /// By `ORG/NAME`; of several commits the last one is `main`.
    pub repos: Mutex<HashMap<String, Vec<Repository>>>,
    pub faults: Mutex<Vec<Fault>>,
    pub seen: Mutex<Vec<Seen>>,
    /// Files from so many bytes on are redirected to the other address; `u64::MAX`: none.
    pub redirect_from: AtomicU64,
    /// Bytes a second of every connection; 0: all there is.
    pub pace: AtomicU64,
    /// Bytes of files that may still go out, by all connections together; `u64::MAX`: all.
    pub gate: AtomicU64,
    /// Connections that send a body at this moment, and the most there were.
    pub sending: AtomicUsize,
    pub most_sending: AtomicUsize,
    pub closed: AtomicBool,
    pub other: Mutex<Option<SocketAddr>>,
}

/// One request, as it arrived, and how many bytes of a body went out for it.
#[derive(Debug, Clone)]
pub struct Seen {
    pub method: String,
    /// With its query.
    pub path: String,
    /// A file's name in its repository.
    pub file: Option<String>,
    pub headers: HeaderMap,
    /// At the address that large files are redirected to.
    pub other: bool,
    pub range: Option<Range<u64>>,
    pub sent: Arc<AtomicU64>,
}

/// What goes wrong with requests for a file, by its name or by `ORG/NAME/FILE` (or of the listing, `"listing"`; or for anything, `"*"`).
#[derive(Debug, Clone)]
pub struct Fault {
    pub file: String,
    /// So many requests, after which all is well.
    pub times: usize,
    pub what: What,
}

#[derive(Debug, Clone)]
pub enum What {
    /// A status, with headers.
    Status(u16, Vec<(&'static str, String)>),
    /// The connection breaks after so many bytes.
    Drop(u64),
    /// The body has so many bytes less than it should, and its length says so.
    Short(u64),
    /// The first byte is another.
    Corrupt,
    /// Answers with all of it.
    IgnoreRange,
    /// 416, whatever was asked for.
    NotSatisfiable,
    /// After so many bytes nothing comes for so long.
    Stall(u64, Duration),
    /// A range that was not asked for.
    WrongRange,
    /// `Content-Range` with another size.
    WrongTotal,
    /// Another address.
    Redirect(String),
    /// The answer comes later.
    Delay(Duration),
}

impl Hub {
    pub fn start() -> Self {
        Self::start_at(0).expect("free ports of this machine")
    }

    /// At a port of 127.0.0.1; 0: any that is free.
    pub fn start_at(port: u16) -> io::Result<Self> {
        let state =
            Arc::new(State { redirect_from: AtomicU64::new(u64::MAX), gate: AtomicU64::new(u64::MAX), ..State::default() });
        Self::with(state, port)
    }

    /// With what another one had: as if it had been away.
    pub fn with(state: Arc<State>, port: u16) -> io::Result<Self> {
        let listen = |port| {
            let listener = TcpListener::bind(("127.0.0.1", port))?;
            listener.set_nonblocking(true)?;
            io::Result::Ok(listener)
        };
        let (own, other) = (listen(port)?, listen(0)?);
        let endpoint = format!("http://{}", own.local_addr()?);
        *lock(&state.other) = Some(other.local_addr()?);
        state.closed.store(false, Ordering::Relaxed);
        let (stop, stopped) = oneshot::channel::<()>();
        let shared = state.clone();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
            runtime.block_on(async {
                tokio::spawn(answers::serve(own, shared.clone(), false));
                tokio::spawn(answers::serve(other, shared, true));
                let _ = stopped.await;
            });
            // Whoever is being served is cut off.
            runtime.shutdown_timeout(Duration::from_millis(100));
        });
        Ok(Self { state, endpoint, stop: Some(stop), thread: Some(thread) })
    }

    pub fn port(&self) -> u16 {
        self.endpoint.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).expect("an endpoint has a port")
    }

    pub fn add(&self, repository: Repository) {
        lock(&self.state.repos).entry(repository.name.clone()).or_default().push(repository);
    }

    pub fn fault(&self, file: &str, times: usize, what: What) {
        lock(&self.state.faults).push(Fault { file: file.into(), times, what });
    }

    pub fn clear_faults(&self) {
        lock(&self.state.faults).clear();
    }

    pub fn seen(&self) -> Vec<Seen> {
        lock(&self.state.seen).clone()
    }

    /// Bytes of files that went out, by file.
    pub fn sent(&self) -> BTreeMap<String, u64> {
        let mut sent = BTreeMap::new();
        for seen in self.seen() {
            if let Some(file) = seen.file {
                *sent.entry(file).or_default() += seen.sent.load(Ordering::Relaxed);
            }
        }
        sent
    }

    pub fn forget(&self) {
        lock(&self.state.seen).clear();
    }

    pub fn pace(&self, bytes_a_second: u64) {
        self.state.pace.store(bytes_a_second, Ordering::Relaxed);
    }

    /// After so many bytes of files nothing comes, on any connection, until [`Self::release`].
    pub fn hold_after(&self, bytes: u64) {
        self.state.gate.store(bytes, Ordering::Relaxed);
    }

    pub fn release(&self) {
        self.state.gate.store(u64::MAX, Ordering::Relaxed);
    }

    pub fn redirect_from(&self, bytes: u64) {
        self.state.redirect_from.store(bytes, Ordering::Relaxed);
    }

    /// Goes away; what it has can start again.
    pub fn stop(mut self) -> Arc<State> {
        self.end();
        self.state.clone()
    }

    fn end(&mut self) {
        self.state.closed.store(true, Ordering::Relaxed);
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.end();
    }
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
