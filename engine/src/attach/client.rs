//! A process that uses another's engine.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use super::place;
use super::wire::{self, Asked, CANCEL, Call, Line, Lines, Model, Opening, Reply, VERSION, Version};
use crate::api::{Event, Request, Status};
use crate::error::{Error, Result};
use crate::pipe::{Reader, Writer, pipe};

/// An engine of another process, by where it listens.
#[derive(Debug)]
pub struct Client {
    socket: PathBuf,
    pid: u32,
    device: String,
}

/// For the host to say hello, which needs nothing of its engine.
const HELLO_TIME: Duration = Duration::from_secs(5);
/// How soon a reader's wish to stop is passed on while no events come.
const TICK: Duration = Duration::from_millis(50);
/// For the host to take in a request.
const WRITE_TIME: Duration = Duration::from_secs(30);

impl Client {
    /// # Errors
    /// Why there is no engine to use: nobody listens, another user does, or a program of another version.
    pub fn connect(socket: &Path) -> Result<Self> {
        let stranger = Self { socket: socket.into(), pid: 0, device: String::new() };
        match stranger.call(Asked::Hello, Some(HELLO_TIME))?.1 {
            Reply::Hello { pid, device } => Ok(Self { pid, device, ..stranger }),
            other => Err(stranger.odd(&other)),
        }
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// `cpu` or `gpu`.
    pub fn device(&self) -> &str {
        &self.device
    }

    pub fn status(&self) -> Result<Status> {
        match self.call(Asked::Status, None)?.1 {
            Reply::Status { status } => Ok(status),
            other => Err(self.odd(&other)),
        }
    }

    pub fn load(&self, model: Model) -> Result<Reader> {
        self.events(Asked::Load { model })
    }

    /// # Errors
    /// As the engine's own `generate`.
    pub fn generate(&self, model: Model, request: Request) -> Result<Reader> {
        self.events(Asked::Generate { model, request: Box::new(request) })
    }

    fn events(&self, ask: Asked) -> Result<Reader> {
        let (lines, reply) = self.call(ask, None)?;
        let Reply::Accepted = reply else { return Err(self.odd(&reply)) };
        let stream = lines.stream.try_clone().map_err(|e| self.io(e))?;
        let (writer, reader) = pipe();
        let gone = self.gone();
        thread::Builder::new()
            .name("attached".into())
            .spawn(move || {
                follow(&stream, lines, writer, &gone);
                let _ = stream.shutdown(Shutdown::Both);
            })
            .map_err(|e| Error::Internal(format!("the thread that reads the answer did not start: {e}")))?;
        Ok(reader)
    }

    /// Sends a request and reads the reply's first line.
    fn call(&self, ask: Asked, timeout: Option<Duration>) -> Result<(Lines, Reply)> {
        let stream = place::connect(&self.socket).map_err(|e| self.io(e))?;
        // Fails where the other end has closed already, and then no write waits.
        let _ = stream.set_write_timeout(Some(WRITE_TIME));
        let mut lines = Lines::new(stream.try_clone().map_err(|e| self.io(e))?);
        // A host that refuses may not read to the end, and then says why.
        let sent = wire::send(&stream, &Call { version: VERSION, ask });
        let line = match lines.next(timeout) {
            Ok(Poll::Ready(Some(line))) => line,
            Ok(Poll::Ready(None)) => return Err(sent.map_or_else(|e| self.io(e), |()| self.gone())),
            Ok(Poll::Pending) => return Err(self.io(io::Error::new(io::ErrorKind::TimedOut, "it does not answer"))),
            Err(e) => return Err(self.io(e)),
        };
        let odd = |e: serde_json::Error| self.io(io::Error::new(io::ErrorKind::InvalidData, e));
        let version = serde_json::from_slice::<Version>(&line).map_err(odd)?.version;
        if version != VERSION {
            let why = format!("it speaks version {version} of the protocol, and this rMLX version {VERSION}");
            return Err(self.io(io::Error::other(why)));
        }
        match serde_json::from_slice::<Opening>(&line).map_err(odd)?.reply {
            Reply::Refused { error } => Err(Error::Attached { code: Error::known_code(&error.code), message: error.message }),
            reply => Ok((lines, reply)),
        }
    }

    fn io(&self, e: io::Error) -> Error {
        Error::io(&self.socket, e)
    }

    fn odd(&self, reply: &Reply) -> Error {
        self.io(io::Error::new(io::ErrorKind::InvalidData, format!("a reply that was not asked for: {reply:.100?}")))
    }

    fn gone(&self) -> Error {
        let why = "the rMLX that was answering here has ended\nhint: ask again";
        self.io(io::Error::new(io::ErrorKind::UnexpectedEof, why))
    }
}

/// Fills the pipe with what comes, and passes the reader's wish to stop on.
fn follow(stream: &UnixStream, mut lines: Lines, writer: Writer, gone: &Error) {
    let mut told = false;
    loop {
        if writer.is_abandoned() {
            return;
        }
        if writer.is_cancelled() && !told {
            told = true;
            // Where it cannot be told it is gone, which shows below.
            let _ = io::Write::write_all(&mut { stream }, &[CANCEL, b"\n"].concat());
        }
        let line = match lines.next(Some(TICK)) {
            Ok(Poll::Pending) => continue,
            Ok(Poll::Ready(Some(line))) => line,
            Ok(Poll::Ready(None)) | Err(_) => return writer.fail(gone),
        };
        match serde_json::from_slice(&line) {
            Ok(Line::Event(event @ (Event::Finished(_) | Event::Failed(_)))) => return writer.push(event),
            Ok(Line::Event(event)) => writer.push(event),
            Ok(Line::End) => return writer.end(),
            Err(e) => return writer.fail(&Error::Internal(format!("an event of the other rMLX cannot be read: {e}"))),
        }
    }
}
