//! One request, through redirects. The token goes to the hub itself and nowhere else; nothing that began encrypted goes on in the
//! clear.

use std::ops::Range;
use std::time::Duration;

use reqwest::header::{ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, LOCATION, RANGE};
use reqwest::{Response, StatusCode, Url};
use tokio::time::timeout;

use super::trouble::reason;
use super::{Remote, Trouble};
use crate::error::{Error, HubCause};

/// The hub renames repositories, and has the files elsewhere: two or three are usual.
const MOST_REDIRECTS: usize = 6;

/// A success, of which the body has not been read.
pub struct Answer {
    response: Response,
    /// Where it came from in the end.
    pub url: Url,
}

impl Remote {
    /// Asks for `url`, or for a range of it. `repo` is for the message.
    ///
    /// # Errors
    /// Anything but a success, with 416 and a 200 for a range among the successes.
    pub async fn get(&self, url: Url, range: Option<&Range<u64>>, stall: Duration, repo: &str) -> Result<Answer, Trouble> {
        let mut url = url;
        for _ in 0..=MOST_REDIRECTS {
            // Packed bytes would have another length than the file.
            let mut request = self.client.get(url.clone()).header(ACCEPT_ENCODING, "identity");
            if let Some(range) = range {
                request = request.header(RANGE, format!("bytes={}-{}", range.start, range.end.saturating_sub(1)));
            }
            if let Some(token) = self.token.as_ref().filter(|_| self.is_hub(&url)) {
                request = request.bearer_auth(token);
            }
            let response = match timeout(stall, request.send()).await {
                Err(_) => return Err(self.unreachable(&url, "no answer in time")),
                Ok(Err(e)) => return Err(self.unreachable(&url, &reason(&e))),
                Ok(Ok(response)) => response,
            };
            let status = response.status();
            if status.is_success() || (range.is_some() && status == StatusCode::RANGE_NOT_SATISFIABLE) {
                return Ok(Answer { response, url });
            }
            if !status.is_redirection() {
                return Err(self.refused(repo, &url, status, response.headers()));
            }
            let location = response.headers().get(LOCATION).and_then(|l| l.to_str().ok());
            url = self.next(&url, location)?;
        }
        Err(Trouble::never(self.bad_answer(&format!("more than {MOST_REDIRECTS} redirects for a file of {repo}"))))
    }

    pub(super) fn next(&self, url: &Url, location: Option<&str>) -> Result<Url, Trouble> {
        let bad = |what: &str| Trouble::never(self.bad_answer(what));
        let next = url.join(location.ok_or_else(|| bad("a redirect to nowhere"))?).map_err(|_| bad("a redirect to nowhere"))?;
        match (url.scheme(), next.scheme()) {
            (_, "https") | ("http", "http") => Ok(next),
            ("https", "http") => Err(bad("a redirect from https to http, which is not followed")),
            _ => Err(bad("a redirect to something that is not http")),
        }
    }

    /// Whether this address is of the hub itself: scheme, host and port.
    pub(super) fn is_hub(&self, url: &Url) -> bool {
        Url::parse(&self.endpoint).is_ok_and(|hub| hub.origin() == url.origin())
    }
}

impl Answer {
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    pub fn length(&self) -> Option<u64> {
        self.header(CONTENT_LENGTH)?.parse().ok()
    }

    /// Of `Content-Range: bytes FIRST-LAST/TOTAL`: the range, and the total where it is told.
    pub fn range(&self) -> Option<(Range<u64>, Option<u64>)> {
        let (range, total) = self.header(CONTENT_RANGE)?.strip_prefix("bytes ")?.split_once('/')?;
        let (first, last) = range.split_once('-')?;
        let (first, last): (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        let total = if total.trim() == "*" { None } else { Some(total.trim().parse().ok()?) };
        Some((first..last.checked_add(1)?, total))
    }

    fn header(&self, name: reqwest::header::HeaderName) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// The next bytes; `None` at the end.
    ///
    /// # Errors
    /// [`HubCause::Offline`]: the connection broke, or nothing came for `stall`.
    pub async fn chunk(&mut self, stall: Duration) -> Result<Option<impl AsRef<[u8]> + use<>>, Trouble> {
        let host = self.url.host_str().unwrap_or("the hub");
        let broken = |why: &str| {
            Trouble::later(Error::Hub { cause: HubCause::Offline, message: format!("the connection to {host} broke: {why}") })
        };
        match timeout(stall, self.response.chunk()).await {
            Err(_) => Err(broken(&format!("nothing came for {} s", stall.as_secs_f32()))),
            Ok(Err(e)) => Err(broken(&reason(&e))),
            Ok(Ok(chunk)) => Ok(chunk),
        }
    }

    /// All of it, at most `most` bytes.
    pub(super) async fn body(&mut self, most: u64, stall: Duration) -> Result<Vec<u8>, Trouble> {
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk(stall).await? {
            body.extend_from_slice(chunk.as_ref());
            if body.len() as u64 > most {
                let message = format!("{} sends more than {most} bytes", self.url.host_str().unwrap_or("the hub"));
                return Err(Trouble::never(Error::Hub { cause: HubCause::BadAnswer, message }));
            }
        }
        Ok(body)
    }
}
