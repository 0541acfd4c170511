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

use std::thread;
use std::time::Duration;

use crate::claim::{Claim, Holder};
use crate::error::Result;

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
    let mut found = look()?;
    for _ in 1..LOOKS {
        if !matches!(found, Found::Closed { .. }) {
            break;
        }
        thread::sleep(PAUSE);
        found = look()?;
    }
    Ok(found)
}

fn look() -> Result<Found> {
    Ok(match Claim::holder()? {
        None => Found::Nobody,
        Some(Holder { pid, socket: None }) => Found::Closed { pid, why: None },
        Some(Holder { pid, socket: Some(socket) }) => match Client::connect(&socket) {
            Ok(client) => Found::Engine(client),
            Err(why) => Found::Closed { pid, why: Some(why.to_string()) },
        },
    })
}
