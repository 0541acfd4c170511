//! The process with the engine: listens, and gives every connection a thread that makes its answer.

use std::collections::HashMap;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::thread::{self, JoinHandle, ThreadId};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use super::place::{self, Listening};
use super::wire::{self, Asked, CANCEL, Call, Line, Lines, Model, Opening, Reply, VERSION, Version};
use crate::api::{ErrorInfo, Request, Status};
use crate::claim::{self, Claim};
use crate::error::{Error, Result};
use crate::pipe::Reader;

/// What a client wants of the engine.
#[derive(Debug)]
pub enum Ask {
    Status,
    Load(Model),
    Generate(Model, Box<Request>),
}

/// What it gets.
#[derive(Debug)]
pub enum Answered {
    Status(Status),
    Events(Reader),
}

/// Connections at a time; each may have an answer in flight.
const MAX_CONNECTIONS: usize = 32;
/// For the one line of a request to arrive.
const REQUEST_TIME: Duration = Duration::from_secs(30);
/// For a client to make room for more. The answer is given up then.
const WRITE_TIME: Duration = Duration::from_secs(30);
/// For the last lines to go out when the engine ends.
const GRACE: Duration = Duration::from_secs(1);

/// Holds the claim and listens until dropped.
pub struct Host {
    claim: Arc<Claim>,
    shared: Arc<Shared>,
    /// Its other end is watched by the thread that accepts.
    wake: UnixStream,
    accepting: Option<JoinHandle<()>>,
}

struct Shared {
    answer: Box<Answer>,
    device: String,
    ending: AtomicBool,
    connections: Mutex<HashMap<ThreadId, UnixStream>>,
    closed: Condvar,
}

type Answer = dyn Fn(Ask) -> Result<Answered> + Send + Sync;

impl Host {
    /// Takes the claim, listens, and says so in the claim's file. `answer` is called on threads of the host's.
    ///
    /// # Errors
    /// [`Error::ClaimHeld`]; no place to listen at.
    pub fn start(
        slot: &claim::Slot,
        device: &str,
        answer: impl Fn(Ask) -> Result<Answered> + Send + Sync + 'static,
    ) -> Result<Self> {
        // First, so that from the moment on that others see the claim they can use it.
        let listening = place::listen()?;
        let claim = slot.take()?;
        let at = |e| Error::io(&listening.path, e);
        listening.listener.set_nonblocking(true).map_err(at)?;
        let (wake, woken) = UnixStream::pair().map_err(at)?;
        let shared = Arc::new(Shared {
            answer: Box::new(answer),
            device: device.into(),
            ending: AtomicBool::new(false),
            connections: Mutex::default(),
            closed: Condvar::new(),
        });
        if let Err(e) = claim.announce(Some(&listening.path)) {
            tracing::warn!("other processes cannot use this engine: the claim's file cannot be written: {e}");
        }
        let for_thread = shared.clone();
        let accepting = thread::Builder::new()
            .name("attach".into())
            .spawn(move || accept(&listening, &woken, &for_thread))
            .map_err(|e| Error::Internal(format!("the thread that listens did not start: {e}")))?;
        Ok(Self { claim, shared, wake, accepting: Some(accepting) })
    }
}

impl Drop for Host {
    /// Whoever drops this has ended the answers before, so that the clients get their last lines.
    fn drop(&mut self) {
        let _ = self.claim.announce(None);
        self.shared.ending.store(true, Ordering::Release);
        let _ = self.wake.shutdown(Shutdown::Both);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        // The last handle of an engine may go on a connection's thread, which cannot wait for itself.
        let own = thread::current().id();
        let others = |all: &mut HashMap<ThreadId, UnixStream>| all.keys().any(|id| *id != own);
        let mut left = self.shared.connections();
        for stream in left.values() {
            let _ = stream.shutdown(Shutdown::Read);
        }
        left = self.shared.closed.wait_timeout_while(left, GRACE, others).unwrap_or_else(PoisonError::into_inner).0;
        for stream in left.values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn connections(&self) -> MutexGuard<'_, HashMap<ThreadId, UnixStream>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn accept(listening: &Listening, woken: &UnixStream, shared: &Arc<Shared>) {
    while !shared.ending.load(Ordering::Acquire) {
        let mut ready = [PollFd::new(&listening.listener, PollFlags::IN), PollFd::new(woken, PollFlags::IN)];
        if let Err(e) = poll(&mut ready, None)
            && e != rustix::io::Errno::INTR
        {
            tracing::error!("nobody can attach any more: {e}");
            return;
        }
        match listening.listener.accept() {
            Ok((stream, _)) => serve_apart(stream, shared),
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            // Out of file descriptors, say: the connection stays in the queue, and asking again at once would only burn the CPU.
            Err(e) => {
                tracing::warn!("a connection was not accepted: {e}");
                thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

fn serve_apart(stream: UnixStream, shared: &Arc<Shared>) {
    let prepared = place::check_peer(&stream).and_then(|()| {
        // On macOS a connection inherits this from its listener.
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(WRITE_TIME))?;
        stream.try_clone()
    });
    let handle = match prepared {
        Ok(handle) => handle,
        Err(e) => return tracing::warn!("a connection was refused: {e}"),
    };
    // Held until the thread is in the list, so that it cannot take itself out before.
    let mut connections = shared.connections();
    if connections.len() >= MAX_CONNECTIONS {
        drop(connections);
        let why = format!("{MAX_CONNECTIONS} requests of other processes are being answered\nhint: try again later");
        let _ = open(&stream, refused(&Error::BadRequest(why)));
        return;
    }
    let for_thread = shared.clone();
    let spawned = thread::Builder::new().name("attached".into()).spawn(move || {
        let ended = catch_unwind(AssertUnwindSafe(|| serve(&stream, &for_thread)));
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(e)) => tracing::info!("an attached process went away: {e}"),
            Err(_) => {
                let _ = open(&stream, refused(&Error::Internal("a panic while answering".into())));
            }
        }
        let _ = stream.shutdown(Shutdown::Both);
        for_thread.connections().remove(&thread::current().id());
        for_thread.closed.notify_all();
    });
    match spawned {
        Ok(thread) => drop(connections.insert(thread.thread().id(), handle)),
        Err(e) => tracing::warn!("a connection got no thread: {e}"),
    }
}

/// One connection from its request to its end.
fn serve(stream: &UnixStream, shared: &Shared) -> io::Result<()> {
    let mut lines = Lines::new(stream.try_clone()?);
    let line = match lines.next(Some(REQUEST_TIME)) {
        Ok(Poll::Ready(Some(line))) => line,
        // Somebody looked whether anybody is here.
        Ok(Poll::Ready(None)) => return Ok(()),
        Ok(Poll::Pending) => return open(stream, refused(&Error::BadRequest("the request did not arrive in time".into()))),
        Err(e) if e.kind() == io::ErrorKind::InvalidData => return open(stream, refused(&Error::BadRequest(e.to_string()))),
        Err(e) => return Err(e),
    };
    let ask = match parse(&line) {
        Ok(Asked::Hello) => return open(stream, Reply::Hello { pid: std::process::id(), device: shared.device.clone() }),
        Ok(Asked::Status) => Ask::Status,
        Ok(Asked::Load { model }) => Ask::Load(model),
        Ok(Asked::Generate { model, request }) => Ask::Generate(model, request),
        Err(e) => return open(stream, refused(&e)),
    };
    drop(line);
    match (shared.answer)(ask) {
        Ok(Answered::Status(status)) => open(stream, Reply::Status { status }),
        Ok(Answered::Events(reader)) => {
            open(stream, Reply::Accepted)?;
            pass_on(stream, lines, reader)
        }
        Err(e) => open(stream, refused(&e)),
    }
}

fn parse(line: &[u8]) -> Result<Asked> {
    let wrong = |e: serde_json::Error| Error::BadRequest(format!("not a request: {e}"));
    let version = serde_json::from_slice::<Version>(line).map_err(wrong)?.version;
    if version != VERSION {
        return Err(Error::BadRequest(format!("this rMLX speaks version {VERSION} of the protocol, and not {version}")));
    }
    Ok(serde_json::from_slice::<Call>(line).map_err(wrong)?.ask)
}

/// Sends the events on while another thread listens for the client's wish to stop.
fn pass_on(stream: &UnixStream, lines: Lines, reader: Reader) -> io::Result<()> {
    let cancel = reader.canceller();
    thread::scope(|scope| {
        let listening = thread::Builder::new().name("attached-cancel".into()).spawn_scoped(scope, move || {
            until_cancelled(lines);
            cancel.cancel();
        });
        let sent = listening.and_then(|_| {
            for event in reader {
                wire::send(stream, &Line::Event(event))?;
            }
            wire::send(stream, &Line::End)
        });
        // The reader is gone either way; this ends the other thread.
        let _ = stream.shutdown(if sent.is_ok() { Shutdown::Read } else { Shutdown::Both });
        sent
    })
}

/// Returns when the client asks to stop, says something that makes no sense, or is gone.
fn until_cancelled(mut lines: Lines) {
    match lines.next(None) {
        Ok(Poll::Ready(Some(line))) if line != CANCEL => tracing::warn!("an attached process said something odd"),
        _ => {}
    }
}

fn refused(error: &Error) -> Reply {
    Reply::Refused { error: ErrorInfo::from(error) }
}

fn open(stream: &UnixStream, reply: Reply) -> io::Result<()> {
    wire::send(stream, &Opening { version: VERSION, reply })
}
