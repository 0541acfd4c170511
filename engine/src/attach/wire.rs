//! What is said over the socket.
//!
//! The client sends one [`Call`]. The host's first line is an [`Opening`]; where an answer or a load was accepted, a [`Line`] for
//! every event follows, and [`Line::End`]. Meanwhile the client may send [`CANCEL`]; its end of the connection means that nobody reads
//! the rest.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::task::Poll;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

use crate::api::{ErrorInfo, Event, Request, Status};

/// Raised with every change that an older program would misread.
pub const VERSION: u32 = 1;

pub const CANCEL: &[u8] = b"\"cancel\"";

/// Bytes of one line: a prompt may be long.
pub const MAX_LINE: usize = 64 << 20;

#[derive(Debug, Serialize, Deserialize)]
pub struct Call {
    pub version: u32,
    pub ask: Asked,
}

/// Of any version.
#[derive(Debug, Deserialize)]
pub struct Version {
    pub version: u32,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Asked {
    Hello,
    Status,
    Load { model: Model },
    Generate { model: Model, request: Box<Request> },
}

/// A model by the name that the user gave and the folder that it stood for where it was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    pub name: String,
    /// Absolute.
    pub folder: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Opening {
    pub version: u32,
    pub reply: Reply,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Reply {
    Hello {
        pid: u32,
        /// `cpu` or `gpu`.
        device: String,
    },
    Status {
        status: Status,
    },
    /// Events follow.
    Accepted,
    Refused {
        error: ErrorInfo,
    },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    Event(Event),
    End,
}

pub fn send(mut stream: &UnixStream, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Something can be read, the end included.
fn readable(stream: &UnixStream, timeout: Option<Duration>) -> io::Result<bool> {
    let timeout = timeout.map(|t| Timespec { tv_sec: t.as_secs() as i64, tv_nsec: i64::from(t.subsec_nanos()) });
    match poll(&mut [PollFd::new(stream, PollFlags::IN)], timeout.as_ref()) {
        Ok(n) => Ok(n > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Reads lines, however they are cut into pieces.
pub struct Lines {
    pub(super) stream: UnixStream,
    bytes: Vec<u8>,
    /// Of `bytes`, how many have no line's end among them.
    searched: usize,
}

impl Lines {
    pub fn new(stream: UnixStream) -> Self {
        Self { stream, bytes: Vec::new(), searched: 0 }
    }

    /// The next line without its end, or `None` at the end of the connection (what is left of a line then is thrown away). Pending
    /// after `timeout`; without one it waits for ever.
    ///
    /// # Errors
    /// As the connection; and `InvalidData` for a line over [`MAX_LINE`].
    pub fn next(&mut self, timeout: Option<Duration>) -> io::Result<Poll<Option<Vec<u8>>>> {
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        loop {
            if let Some(end) = self.bytes[self.searched..].iter().position(|b| *b == b'\n') {
                let end = self.searched + end;
                let rest = self.bytes.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.bytes, rest);
                line.truncate(end);
                self.searched = 0;
                return Ok(Poll::Ready(Some(line)));
            }
            self.searched = self.bytes.len();
            if self.bytes.len() > MAX_LINE {
                return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a line of more than {MAX_LINE} bytes")));
            }
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            if left.is_some_and(|l| l.is_zero()) {
                return Ok(Poll::Pending);
            }
            // Asked before reading, since macOS sets no timeouts on a socket whose other end has closed.
            if !readable(&self.stream, left)? {
                continue;
            }
            let mut piece = [0; 16 << 10];
            match self.stream.read(&mut piece) {
                Ok(0) => return Ok(Poll::Ready(None)),
                Ok(n) => self.bytes.extend_from_slice(&piece[..n]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}
