//! One engine per machine: a process that holds the claim answers for the user's other processes, over a private Unix socket.
//!
//! * `place`: where the socket lies, who may reach it, who is at its other end.
//! * `wire`: what is said. One request per connection; a JSON value a line, in both directions.
//! * `Host`: the process with the engine. `Client`: a process that uses it.
//!
//! The path of the socket comes out of the claim's file, which every user may write. So a client connects only to a socket of its own
//! user in a folder of its own user that nobody else may enter, and then both ends ask the kernel who the other is.

mod client;
mod host;
mod place;
mod wire;

pub use client::Client;
pub use host::{Answered, Ask, Host};
pub use wire::Model;

use std::io;
use std::thread;
use std::time::Duration;

use crate::claim::{Claim, Holder};
use crate::error::{Error, Result};

/// What became of looking for another engine.
#[derive(Debug)]
pub enum Found {
    /// Nobody holds the claim.
    Nobody,
    /// The holder answers others.
    Engine(Client),
    /// The holder cannot be used, and why; `None`: it does not offer it.
    Closed { pid: String, why: Option<String> },
}

/// A holder writes where it listens just after it took the claim, and may end just after it was seen: one look is no proof yet.
const LOOKS: usize = 3;
const PAUSE: Duration = Duration::from_millis(20);

/// Looks who holds the claim, and says hello where it can.
///
/// # Errors
/// The claim's file cannot be looked at.
pub fn find() -> Result<Found> {
    let mut looks = 0;
    loop {
        looks += 1;
        let Some(Holder { pid, socket }) = Claim::holder()? else { return Ok(Found::Nobody) };
        let why = match socket.map(|s| Client::connect(&s)) {
            Some(Ok(client)) => return Ok(Found::Engine(client)),
            Some(Err(e)) => Some(e),
            None => None,
        };
        if looks == LOOKS || why.as_ref().is_some_and(|e| !is_gone(e)) {
            return Ok(Found::Closed { pid, why: why.map(|e| e.to_string()) });
        }
        thread::sleep(PAUSE);
    }
}

/// Nobody listens there, any more or yet.
fn is_gone(error: &Error) -> bool {
    use io::ErrorKind as K;
    let gone = [K::NotFound, K::ConnectionRefused, K::ConnectionReset, K::BrokenPipe, K::UnexpectedEof];
    matches!(error, Error::Io { source, .. } if gone.contains(&source.kind()))
}
