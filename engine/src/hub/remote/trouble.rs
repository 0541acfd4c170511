//! Why a request gave nothing, in words that say what to do, and whether another one may help. No message has an address with a
//! query: those that redirects lead to are as good as passwords.

use std::env;
use std::error::Error as _;
use std::time::Duration;

use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{StatusCode, Url};

use super::{PUBLIC, Remote};
use crate::error::{Error, HubCause};

/// A failed request.
#[derive(Debug)]
pub struct Trouble {
    pub error: Error,
    pub retry: Retry,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// It would fail again.
    Never,
    /// Later, and ever later.
    Later,
    /// The server says when.
    After(Duration),
}

/// No server's wish is waited for longer.
const LONGEST: Duration = Duration::from_secs(3600);

impl Trouble {
    pub fn never(error: Error) -> Self {
        Self { error, retry: Retry::Never }
    }

    pub fn later(error: Error) -> Self {
        Self { error, retry: Retry::Later }
    }
}

/// Networks and servers recover; what happens on this machine happens again.
impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        match error {
            Error::Hub { cause: HubCause::Offline | HubCause::Busy, .. } => Self::later(error),
            other => Self::never(other),
        }
    }
}

impl From<Trouble> for Error {
    fn from(trouble: Trouble) -> Self {
        trouble.error
    }
}

impl Remote {
    /// The server could not be reached, or fell silent.
    pub(super) fn unreachable(&self, url: &Url, why: &str) -> Trouble {
        let host = url.host_str().unwrap_or("the hub");
        let hint = self.road(url);
        Trouble::later(Error::Hub { cause: HubCause::Offline, message: format!("{host} cannot be reached: {why}\nhint: {hint}") })
    }

    /// What may be wrong on the way there. Variables by their names: the address of a proxy may have a password in it.
    fn road(&self, url: &Url) -> String {
        let proxies = ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
        let set: Vec<&str> = proxies.into_iter().filter(|key| env::var_os(key).is_some_and(|v| !v.is_empty())).collect();
        match (set.is_empty(), self.is_hub(url) && self.endpoint != PUBLIC) {
            (false, _) => format!("look at the network, and at what is set: {}", set.join(", ")),
            (true, true) => format!("look at the network, and at HF_ENDPOINT, which is {}", self.endpoint),
            (true, false) => "look at the network".into(),
        }
    }

    /// An answer of the hub, or of a server that it redirected to, that is not a success.
    pub(super) fn refused(&self, repo: &str, url: &Url, status: StatusCode, headers: &HeaderMap) -> Trouble {
        let hub = |cause, message| Error::Hub { cause, message };
        let host = url.host_str().unwrap_or("the hub");
        if status == StatusCode::TOO_MANY_REQUESTS || status == StatusCode::SERVICE_UNAVAILABLE {
            let error =
                hub(HubCause::Busy, format!("{host} has too much to do, or says that we ask too often ({})", status.as_u16()));
            return Trouble { error, retry: retry_after(headers).map_or(Retry::Later, Retry::After) };
        }
        if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT {
            return Trouble::later(hub(HubCause::Offline, format!("{host} fails: status {}", status.as_u16())));
        }
        if !self.is_hub(url) {
            // An address that was given for a while, and is no longer right: the hub will give another.
            return Trouble::later(hub(
                HubCause::BadAnswer,
                format!("{host} refuses a file of {repo}: status {}", status.as_u16()),
            ));
        }
        let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let (code, said) = (text("x-error-code"), text("x-error-message"));
        let page = format!("{}/{repo}", self.endpoint);
        let tokens = format!("{}/settings/tokens", self.endpoint);
        Trouble::never(match (status.as_u16(), code) {
            (401, _) if said == "Invalid credentials in Authorization header" => wrong_token(&tokens),
            (401 | 403, "GatedRepo") if self.token.is_none() => hub(
                HubCause::Gated,
                format!(
                    "{repo} is gated: its publisher wants terms to be accepted\nhint: accept them at {page}, then give rMLX an access token from {tokens}"
                ),
            ),
            (401 | 403, "GatedRepo") => hub(
                HubCause::Gated,
                format!(
                    "{repo} is gated, and the access token's account may not read it yet\nhint: accept the terms at {page} with that account"
                ),
            ),
            (401, _) if self.token.is_some() => wrong_token(&tokens),
            (403, _) if self.token.is_some() => hub(
                HubCause::Token,
                format!("the access token may not read {repo}\nhint: give it the right to read repositories at {tokens}"),
            ),
            (404, "RevisionNotFound") => {
                hub(HubCause::NotFound, format!("{repo} has no such revision\nhint: branches and tags are listed at {page}/refs"))
            }
            (404, "EntryNotFound") => {
                hub(HubCause::NotFound, format!("{repo} no longer has a file that was listed\nhint: try again"))
            }
            (404, _) | (401 | 403, _) => {
                let private = if self.token.is_none() { ", or it is private and needs an access token" } else { "" };
                hub(HubCause::NotFound, format!("there is no repository {repo} on the hub{private}\nhint: look at {page}"))
            }
            (other, _) => self.bad_answer(&format!("status {other}")),
        })
    }
}

fn wrong_token(tokens: &str) -> Error {
    let message = format!("the hub does not know the access token\nhint: give rMLX another one, from {tokens}");
    Error::Hub { cause: HubCause::Token, message }
}

/// Seconds. A date is not worth its parsing: back-off does.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u64 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST))
}

/// The innermost cause says most (`Connection refused`), and has no address in it.
pub(super) fn reason(error: &reqwest::Error) -> String {
    let mut cause = error.source();
    let mut text = if error.is_timeout() { "no answer in time".to_owned() } else { "the connection broke".to_owned() };
    while let Some(e) = cause {
        text = e.to_string();
        cause = e.source();
    }
    crate::config::printable(&text)
}
