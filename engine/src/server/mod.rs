//! The localhost endpoint: OpenAI's dialect over HTTP. `docs/http.md` says what it speaks.
//!
//! It has one thread and a small runtime of its own, so that any program can start it. A dialect only translates: it makes an
//! [`crate::api::Request`] of a body ([`fields`]) and frames of the answer's events ([`answer`]).

mod answer;
mod body;
mod catalogue;
mod errors;
mod fields;
mod guard;
mod ids;
mod listen;
mod openai;
mod port;
mod router;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use tokio::sync::{Semaphore, watch};

use crate::engine::Engine;
use crate::error::{Error, Result};
use catalogue::Catalogue;

/// Where and how to listen.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Of this machine alone: other addresses need a key, which this version does not have.
    pub host: IpAddr,
    /// 0: any that is free.
    pub port: u16,
}

/// What bounds a client, and a few times. The defaults are what `docs/http.md` states.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Without anything to say for this long, a stream says a comment.
    pub keep_alive: Duration,
    /// A client that takes nothing for this long has its connection closed.
    pub stalled: Duration,
    /// For the head of a request; also how long a connection may wait for its next one.
    pub head: Duration,
    /// For the body of a request.
    pub body: Duration,
    /// Bytes of a request's body.
    pub body_bytes: usize,
    pub connections: usize,
    /// Requests that are being read and tokenized at once; others wait.
    pub preparing: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            keep_alive: Duration::from_secs(5),
            stalled: Duration::from_secs(60),
            head: Duration::from_secs(30),
            body: Duration::from_secs(60),
            body_bytes: 8 << 20,
            connections: 128,
            preparing: 2,
        }
    }
}

/// How far along the endpoint is on its way out.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    Serving,
    /// No more requests; answers in flight have this long.
    Finishing(Duration),
    /// At once.
    Ended,
}

/// What every request may use.
struct App {
    engine: Engine,
    catalogue: Catalogue,
    limits: Limits,
    preparing: Arc<Semaphore>,
    phase: watch::Receiver<Phase>,
    /// True: what is still in flight says so and ends.
    stopping: watch::Sender<bool>,
}

impl App {
    /// Runs what would hold up the server's thread. A client that goes away while it waits for its turn costs nothing more.
    async fn blocking<T: Send + 'static>(
        self: Arc<Self>,
        work: impl FnOnce() -> errors::ApiResult<T> + Send + 'static,
    ) -> errors::ApiResult<T> {
        let turn = self.preparing.clone().acquire_owned().await.map_err(|_| errors::ApiError::internal())?;
        let work = move || {
            let _turn = turn;
            work()
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(done) => done,
            Err(e) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
            Err(_) => Err(errors::ApiError::stopping()),
        }
    }
}

/// A running endpoint. Dropping it ends it at once.
pub struct Serving {
    address: SocketAddr,
    phase: watch::Sender<Phase>,
    thread: Option<JoinHandle<()>>,
}

/// Listens, on threads of its own; returns when connections are accepted.
///
/// # Errors
/// [`Error::PortTaken`], with the port's owner and a free port; [`Error::BadRequest`] for an address that others can reach.
pub fn start(engine: Engine, options: &ServeOptions) -> Result<Serving> {
    start_with(engine, options, Limits::default(), Vec::new())
}

/// [`start`] with other limits, and with models beside those that [`Engine::list`] names: paths that the user gave.
///
/// # Errors
/// As [`start`].
pub fn start_with(engine: Engine, options: &ServeOptions, limits: Limits, models: Vec<String>) -> Result<Serving> {
    start_router(engine, options, limits, models, Router::new())
}

fn start_router(
    engine: Engine,
    options: &ServeOptions,
    limits: Limits,
    models: Vec<String>,
    more: Router<Arc<App>>,
) -> Result<Serving> {
    if !options.host.is_loopback() {
        return Err(Error::BadRequest(format!(
            "{} can be reached from other machines, which needs a key, and this version has none\nhint: use 127.0.0.1",
            options.host
        )));
    }
    let listener = port::listen(SocketAddr::new(options.host, options.port))?;
    let failed = |e| Error::Internal(format!("the endpoint did not start: {e}"));
    let address = listener.local_addr().map_err(failed)?;
    // One thread is enough: what takes time runs on the threads for blocking work, and tokens come from the engine's.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(limits.preparing.max(1) + 1)
        .thread_name("server-work")
        .build()
        .map_err(failed)?;
    let (phase, phases) = watch::channel(Phase::Serving);
    let app = Arc::new(App {
        catalogue: Catalogue::new(engine.clone(), models),
        engine,
        preparing: Arc::new(Semaphore::new(limits.preparing.max(1))),
        limits,
        phase: phases,
        stopping: watch::Sender::new(false),
    });
    let listener = {
        let _context = runtime.enter();
        tokio::net::TcpListener::from_std(listener).map_err(failed)?
    };
    let run = move || {
        runtime.block_on(listen::run(listener, app, more));
        runtime.shutdown_background();
    };
    let thread = std::thread::Builder::new().name("server".into()).spawn(run).map_err(failed)?;
    tracing::info!(%address, "the endpoint listens");
    Ok(Serving { address, phase, thread: Some(thread) })
}

impl Serving {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:8080`
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Takes no more requests; answers in flight get this long to finish, then end with an error that says so.
    pub fn stop(mut self, grace: Duration) {
        let _ = self.phase.send(Phase::Finishing(grace));
        self.join();
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the endpoint's thread panicked");
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.phase.send(Phase::Ended);
        self.join();
    }
}

#[cfg(test)]
mod tests;
