//! One part of a file over one connection after another.

use std::ops::Range;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use reqwest::StatusCode;
use tokio::time::sleep;

use super::super::remote::{Answer, Retry, Trouble};
use super::{Fetch, Halt, Meter, Target, blocking};
use crate::error::{Error, HubCause, Result};

/// Bytes that are written at once.
const WRITE: usize = 1 << 20;
/// On a slow line what has come is written after this long, so that little is lost and the user sees it.
const WRITE_AFTER: Duration = Duration::from_secs(1);

/// Why a part is not here.
#[derive(Debug)]
pub enum Stopped {
    Trouble(Trouble),
    /// The server has the file as a whole only.
    NoRanges,
}

impl Stopped {
    pub fn trouble(self) -> Trouble {
        match self {
            Self::Trouble(trouble) => trouble,
            Self::NoRanges => bad_answer("a file as a whole was refused as if it were a part"),
        }
    }

    /// Another connection may do better. When the server asks for patience, or says no, it will not.
    fn is_passing(&self) -> bool {
        let Self::Trouble(trouble) = self else { return false };
        let cause = |wanted| matches!(&trouble.error, Error::Hub { cause, .. } if *cause == wanted);
        matches!(trouble.retry, Retry::Later) && (cause(HubCause::Offline) || cause(HubCause::BadAnswer))
    }
}

impl From<Trouble> for Stopped {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Self::Trouble(error.into())
    }
}

/// Another try is worth it, and the download ends when tries do not help.
fn bad_answer(what: &str) -> Trouble {
    Trouble::later(Error::Hub { cause: HubCause::BadAnswer, message: format!("the hub does not answer as it should: {what}") })
}

/// A range of a file. Whole files are asked for without one, and what is here already is then passed over.
pub struct Part {
    pub fetch: Fetch,
    pub target: Arc<Target>,
    pub range: Range<u64>,
    pub ranged: bool,
    /// Ends it, as the download's own does.
    pub halt: Halt,
}

impl Part {
    /// Where a connection breaks, the next goes on behind what came. Only tries that bring nothing count.
    pub async fn run(self) -> Result<(), Stopped> {
        let tuning = &self.fetch.tuning;
        let mut at = self.range.start;
        let mut tries = 0;
        loop {
            let before = at;
            let Err(stopped) = self.once(&mut at).await else { return Ok(()) };
            tries = if at > before { 1 } else { tries + 1 };
            if !stopped.is_passing() {
                return Err(stopped);
            }
            if tries >= tuning.tries {
                // What contradicts the listing again and again will not stop doing so.
                return Err(match stopped {
                    Stopped::Trouble(t) if t.error.code() == "hub_bad_answer" => Trouble::never(t.error).into(),
                    other => other,
                });
            }
            tokio::select! {
                () = self.halted() => return Err(Error::Cancelled.into()),
                () = sleep(tuning.pause * 2_u32.pow(tries - 1)) => {}
            }
        }
    }

    async fn halted(&self) {
        tokio::select! { () = self.fetch.halt.wait() => {} () = self.halt.wait() => {} }
    }

    /// One connection. `at` is where the part goes on, before and after.
    async fn once(&self, at: &mut u64) -> Result<(), Stopped> {
        let Self { fetch, target, .. } = self;
        let wanted = self.ranged.then_some(*at..self.range.end);
        let mut answer = tokio::select! {
            () = self.halted() => return Err(Error::Cancelled.into()),
            answer = ask(fetch, target, wanted.as_ref()) => answer?,
        };
        check(&answer, wanted.as_ref(), target.file.bytes)?;
        let mut sink =
            Sink { target: target.clone(), meter: fetch.meter.clone(), buffer: Vec::new(), at: *at, written: Instant::now() };
        let received = self.receive(&mut answer, &mut sink, if self.ranged { *at } else { 0 }).await;
        // What came is kept, whatever ended it.
        let written = sink.flush().await;
        *at = sink.at;
        written?;
        received
    }

    /// The body's bytes, which begin at `position` of the file.
    async fn receive(&self, answer: &mut Answer, sink: &mut Sink, mut position: u64) -> Result<(), Stopped> {
        let (tuning, end) = (&self.fetch.tuning, self.range.end);
        while position < end {
            let chunk = tokio::select! {
                () = self.halted() => return Err(Error::Cancelled.into()),
                chunk = answer.chunk(tuning.stall) => chunk?,
            };
            let Some(chunk) = chunk else {
                let message = format!("a file ended {} bytes too early", end - position);
                return Err(Trouble::later(Error::Hub { cause: HubCause::Offline, message }).into());
            };
            let chunk = chunk.as_ref();
            let length = chunk.len() as u64;
            if length > end - position {
                return Err(bad_answer("more bytes than it announced").into());
            }
            self.fetch.meter.add_received(length);
            let known = sink.next().saturating_sub(position).min(length);
            sink.push(&chunk[known as usize..]).await?;
            position += length;
            tokio::select! {
                () = self.halted() => return Err(Error::Cancelled.into()),
                () = self.fetch.limit.take(length) => {}
            }
        }
        Ok(())
    }
}

/// At the place where the last part came from. When that fails, the next try begins at the hub.
async fn ask(fetch: &Fetch, target: &Target, range: Option<&Range<u64>>) -> Result<Answer, Stopped> {
    let located = || target.located.lock().unwrap_or_else(PoisonError::into_inner);
    let known = located().clone();
    let url = match known {
        Some(url) => url,
        None => fetch.remote.file_address(&fetch.listing, &target.file)?,
    };
    let answer = fetch.remote.get(url, range, fetch.tuning.stall, &fetch.listing.repo).await;
    *located() = answer.as_ref().ok().map(|a| a.url.clone());
    Ok(answer?)
}

/// Whether the head of an answer fits what was asked for and what is listed.
fn check(answer: &Answer, range: Option<&Range<u64>>, size: u64) -> Result<(), Stopped> {
    match (answer.status(), range) {
        (StatusCode::OK, None) => match answer.length() {
            Some(length) if length != size => Err(bad_answer(&format!("a file of {length} bytes, and {size} are listed")).into()),
            _ => Ok(()),
        },
        (StatusCode::PARTIAL_CONTENT, Some(range)) => match answer.range() {
            Some((got, total)) if got.start == range.start && got.end <= range.end && total.is_none_or(|t| t == size) => Ok(()),
            _ => Err(bad_answer("a part that was not asked for, or of a file of another size").into()),
        },
        (StatusCode::OK | StatusCode::RANGE_NOT_SATISFIABLE, Some(_)) => Err(Stopped::NoRanges),
        (other, _) => Err(bad_answer(&format!("status {other}")).into()),
    }
}

/// Bytes on their way to the disk.
struct Sink {
    target: Arc<Target>,
    meter: Arc<Meter>,
    buffer: Vec<u8>,
    /// Where the buffer's bytes belong.
    at: u64,
    written: Instant,
}

impl Sink {
    fn next(&self) -> u64 {
        self.at + self.buffer.len() as u64
    }

    async fn push(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(bytes);
        let due = self.buffer.len() >= WRITE || self.written.elapsed() >= WRITE_AFTER;
        if due { self.flush().await } else { Ok(()) }
    }

    async fn flush(&mut self) -> Result<()> {
        self.written = Instant::now();
        if self.buffer.is_empty() {
            return Ok(());
        }
        let (partial, at, buffer) = (self.target.partial.clone(), self.at, std::mem::take(&mut self.buffer));
        let (mut buffer, prefix) = blocking(move || partial.write(&buffer, at).map(|prefix| (buffer, prefix))).await?;
        self.target.hashing.advance(prefix);
        self.at += buffer.len() as u64;
        self.meter.add_done(buffer.len() as u64);
        buffer.clear();
        self.buffer = buffer;
        Ok(())
    }
}
