//! What the local hub answers.

use std::io;
use std::net::TcpListener;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::Response;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::repo::{File, Repository};
use super::{STRANGER, Seen, State, TOKEN, What, lock};

/// Bytes that are sent at once.
const BLOCK: u64 = 256 << 10;

pub async fn serve(listener: TcpListener, state: Arc<State>, other: bool) {
    let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
    let router = Router::new().fallback(move |request: Request| {
        let state = state.clone();
        let head = request.into_parts().0;
        async move { answer(&state, &head, other).await }
    });
    let _ = axum::serve(listener, router).await;
}

async fn answer(state: &Arc<State>, request: &Parts, other: bool) -> Response {
    let path = decoded(&request.uri);
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let seen = |file: Option<&str>| {
        let seen = Seen {
            method: request.method.to_string(),
            path: request.uri.to_string(),
            file: file.map(String::from),
            headers: request.headers.clone(),
            other,
            range: range(&request.headers),
            sent: Arc::new(AtomicU64::new(0)),
        };
        lock(&state.seen).push(seen.clone());
        seen
    };
    match parts[..] {
        ["api", "models"] => {
            seen(None);
            json_answer(search(state, request.uri.query().unwrap_or_default()))
        }
        ["api", "models", org, name] => {
            seen(None);
            listing(state, &format!("{org}/{name}"), "main", request).await
        }
        ["api", "models", org, name, "revision", ref revision @ ..] => {
            seen(None);
            listing(state, &format!("{org}/{name}"), &revision.join("/"), request).await
        }
        ["api", "models", org, name, "tree", ref revision @ ..] => {
            seen(None);
            match find(state, &format!("{org}/{name}"), &revision.join("/")) {
                Ok(repository) => json_answer(repository.tree()),
                Err(answer) => *answer,
            }
        }
        [org, name, "resolve", ref rest @ ..] => {
            let seen = seen(Some(&rest[1..].join("/")));
            resolve(state, &format!("{org}/{name}"), rest[0], &seen, request).await
        }
        _ => plain(404, "not here"),
    }
}

async fn listing(state: &Arc<State>, repo: &str, revision: &str, request: &Parts) -> Response {
    match fault(state, "listing") {
        Some(What::Status(status, headers)) => return with_headers(plain(status, "as told"), headers),
        Some(What::Delay(time)) => sleep(time).await,
        Some(What::Redirect(to)) => return redirect(&to),
        _ => {}
    }
    if token(&request.headers).is_some_and(|t| t != TOKEN && t != STRANGER) {
        return refusal(401, None, "Invalid credentials in Authorization header");
    }
    let blobs = request.uri.query().is_some_and(|q| q.contains("blobs=true"));
    match find(state, repo, revision) {
        Ok(repository) => json_answer(repository.info(blobs)),
        // Of what it does not have it says that one must log in.
        Err(_) if !lock(&state.repos).contains_key(repo) && token(&request.headers).is_none() => {
            refusal(401, Some("RepoNotFound"), "Invalid username or password.")
        }
        Err(answer) => *answer,
    }
}

async fn resolve(state: &Arc<State>, repo: &str, revision: &str, seen: &Seen, request: &Parts) -> Response {
    let repository = match find(state, repo, revision) {
        Ok(repository) => repository,
        Err(answer) => return *answer,
    };
    let name = seen.file.as_deref().unwrap_or_default();
    // The other address is open to whoever knows it.
    if !seen.other {
        match token(&request.headers) {
            Some(t) if t != TOKEN && t != STRANGER => return refusal(401, None, "Invalid credentials in Authorization header"),
            None if repository.gated => return refusal(401, Some("GatedRepo"), "Access to this model is restricted."),
            Some(STRANGER) if repository.gated => return refusal(403, Some("GatedRepo"), "You are not in the authorized list."),
            _ => {}
        }
    } else if !seen.path.contains("Signature=secret") {
        return plain(403, "no signature");
    }
    let Some(file) = repository.files.iter().find(|f| f.name == name) else {
        return refusal(404, Some("EntryNotFound"), "Entry not found");
    };
    let headers = |builder: axum::http::response::Builder| {
        let builder = builder.header("X-Repo-Commit", &repository.commit).header("ETag", format!("\"{}\"", file.etag()));
        let builder = builder.header("X-Linked-Etag", format!("\"{}\"", file.etag())).header("X-Linked-Size", file.size);
        builder.header(header::ACCEPT_RANGES, "bytes")
    };
    if !seen.other && file.size >= state.redirect_from.load(Ordering::Relaxed) {
        let address = lock(&state.other).expect("it listens");
        let to = format!("http://{address}{}?X-Amz-Signature=secret", request.uri.path());
        return headers(Response::builder().status(302)).header(header::LOCATION, to).body(Body::empty()).expect("a response");
    }
    let builder = headers(Response::builder());
    if seen.method == "HEAD" {
        return builder.header(header::CONTENT_LENGTH, file.size).body(Body::empty()).expect("a response");
    }
    let what = fault_of(state, |file| file == name || file.strip_prefix(repo).is_some_and(|f| f.strip_prefix('/') == Some(name)));
    send(state, file, seen, what, builder).await
}

async fn send(
    state: &Arc<State>,
    file: &File,
    seen: &Seen,
    what: Option<What>,
    builder: axum::http::response::Builder,
) -> Response {
    let asked = seen.range.clone().map(|r| r.start..r.end.min(file.size));
    let mut range = asked.clone().unwrap_or(0..file.size);
    let mut partial = asked.is_some();
    let (mut break_at, mut corrupt, mut stall) = (None, false, None);
    let (mut total, mut shown) = (file.size, range.clone());
    match what {
        Some(What::Status(status, headers)) => return with_headers(plain(status, "as told"), headers),
        Some(What::NotSatisfiable) => return not_satisfiable(file.size),
        Some(What::Redirect(to)) => return redirect(&to),
        Some(What::Delay(time)) => sleep(time).await,
        Some(What::Drop(after)) => break_at = Some(after),
        Some(What::Short(less)) => {
            range.end = range.end.saturating_sub(less).max(range.start);
            shown = range.clone();
        }
        Some(What::Corrupt) => corrupt = true,
        Some(What::IgnoreRange) => (partial, range) = (false, 0..file.size),
        Some(What::Stall(after, time)) => stall = Some((after, time)),
        Some(What::WrongRange) => shown = range.start + 1..range.end + 1,
        Some(What::WrongTotal) => total += 1,
        None => {}
    }
    if partial && range.start >= file.size {
        return not_satisfiable(file.size);
    }
    let mut builder = builder.header(header::CONTENT_LENGTH, range.end - range.start);
    if partial {
        let range = format!("bytes {}-{}/{total}", shown.start, shown.end.saturating_sub(1));
        builder = builder.status(StatusCode::PARTIAL_CONTENT).header(header::CONTENT_RANGE, range);
    }
    let sending = Sending {
        state: state.clone(),
        file: file.clone(),
        begin: Instant::now(),
        start: range.start,
        at: range.start,
        end: range.end,
        break_at: break_at.map(|after| range.start + after),
        stall: stall.map(|(after, time)| (range.start + after, time)),
        corrupt,
        sent: seen.sent.clone(),
        _count: Count::new(state),
    };
    let stream = futures_util::stream::unfold(sending, |mut sending| async move {
        let block = sending.next().await?;
        Some((block, sending))
    });
    builder.body(Body::from_stream(stream)).expect("a response")
}

/// A body under way.
struct Sending {
    state: Arc<State>,
    file: File,
    begin: Instant,
    start: u64,
    at: u64,
    end: u64,
    break_at: Option<u64>,
    stall: Option<(u64, Duration)>,
    corrupt: bool,
    sent: Arc<AtomicU64>,
    _count: Count,
}

impl Sending {
    /// How many of the bytes the gate lets through: waits until it is one at least.
    async fn admitted(&self, wanted: u64) -> u64 {
        let gate = &self.state.gate;
        loop {
            let less = |left: u64| (left != u64::MAX).then(|| left - left.min(wanted));
            let admitted = gate.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).map_or(wanted, |left| left.min(wanted));
            if admitted > 0 {
                return admitted;
            }
            sleep(Duration::from_millis(2)).await;
        }
    }

    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        if self.at >= self.end {
            return None;
        }
        let pace = self.state.pace.load(Ordering::Relaxed);
        let mut end = self.end.min(self.at + if pace > 0 { (pace / 20).clamp(1, BLOCK) } else { BLOCK });
        if let Some(place) = self.break_at {
            if self.at >= place {
                return Some(Err(io::Error::other("as told")));
            }
            end = end.min(place);
        }
        if let Some((place, time)) = self.stall {
            if self.at >= place {
                self.stall = None;
                sleep(time).await;
            } else {
                end = end.min(place);
            }
        }
        end = self.at + self.admitted(end - self.at).await;
        let mut block = match self.file.contents.read(self.at, (end - self.at) as usize) {
            Ok(block) => block,
            Err(e) => return Some(Err(e)),
        };
        if self.corrupt && self.at == self.start {
            block[0] ^= 1;
        }
        self.at = end;
        self.sent.fetch_add(block.len() as u64, Ordering::Relaxed);
        if pace > 0 {
            let due = Duration::from_secs_f64((self.at - self.start) as f64 / pace as f64);
            sleep(due.saturating_sub(self.begin.elapsed())).await;
        }
        Some(Ok(block.into()))
    }
}

struct Count(Arc<State>);

impl Count {
    fn new(state: &Arc<State>) -> Self {
        let now = state.sending.fetch_add(1, Ordering::Relaxed) + 1;
        state.most_sending.fetch_max(now, Ordering::Relaxed);
        Self(state.clone())
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        self.0.sending.fetch_sub(1, Ordering::Relaxed);
    }
}

fn find(state: &State, repo: &str, revision: &str) -> Result<Repository, Box<Response>> {
    let repos = lock(&state.repos);
    let Some(commits) = repos.get(repo) else {
        return Err(refusal(404, Some("RepoNotFound"), "Repository not found").into());
    };
    let fits = |r: &&Repository| r.commit == revision || r.branches.iter().any(|b| b == revision);
    commits.iter().rev().find(fits).cloned().ok_or_else(|| refusal(404, Some("RevisionNotFound"), "Invalid rev id").into())
}

fn search(state: &State, query: &str) -> Value {
    let get = |key: &str| query.split('&').find_map(|p| p.strip_prefix(key)?.strip_prefix('=')).map(percent_decoded);
    let words = get("search").unwrap_or_default().to_lowercase();
    let limit = get("limit").and_then(|l| l.parse().ok()).unwrap_or(1000);
    let repos = lock(&state.repos);
    let mut found: Vec<&Repository> = repos.values().filter_map(|commits| commits.last()).collect();
    found.retain(|r| words.split_whitespace().all(|w| r.name.to_lowercase().contains(w)));
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found.into_iter().take(limit).map(|r| r.info(false)).collect()
}

/// The first that fits and is not used up.
fn fault(state: &State, file: &str) -> Option<What> {
    fault_of(state, |of| of == file)
}

fn fault_of(state: &State, fits: impl Fn(&str) -> bool) -> Option<What> {
    let mut faults = lock(&state.faults);
    let fault = faults.iter_mut().find(|f| f.times > 0 && (f.file == "*" || fits(&f.file)))?;
    fault.times -= 1;
    Some(fault.what.clone())
}

fn token(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}

fn range(headers: &HeaderMap) -> Option<Range<u64>> {
    let (start, last) = headers.get(header::RANGE)?.to_str().ok()?.strip_prefix("bytes=")?.split_once('-')?;
    let last: u64 = if last.is_empty() { u64::MAX - 1 } else { last.parse().ok()? };
    Some(start.parse().ok()?..last + 1)
}

fn json_answer(value: Value) -> Response {
    let body = Body::from(value.to_string());
    Response::builder().header(header::CONTENT_TYPE, "application/json").body(body).expect("a response")
}

fn plain(status: u16, text: &'static str) -> Response {
    Response::builder().status(status).body(Body::from(text)).expect("a response")
}

fn refusal(status: u16, code: Option<&str>, message: &str) -> Response {
    let mut builder = Response::builder().status(status).header("X-Error-Message", message);
    if let Some(code) = code {
        builder = builder.header("X-Error-Code", code);
    }
    builder.body(Body::from(json!({"error": message}).to_string())).expect("a response")
}

fn redirect(to: &str) -> Response {
    Response::builder().status(302).header(header::LOCATION, to).body(Body::empty()).expect("a response")
}

fn not_satisfiable(size: u64) -> Response {
    let builder = Response::builder().status(StatusCode::RANGE_NOT_SATISFIABLE);
    builder.header(header::CONTENT_RANGE, format!("bytes */{size}")).body(Body::empty()).expect("a response")
}

fn with_headers(mut answer: Response, headers: Vec<(&'static str, String)>) -> Response {
    for (name, value) in headers {
        answer.headers_mut().insert(name, value.parse().expect("a header"));
    }
    answer
}

fn decoded(uri: &Uri) -> String {
    percent_decoded(uri.path())
}

fn percent_decoded(text: &str) -> String {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        let hex = |b: Option<u8>| (b? as char).to_digit(16);
        match b {
            b'%' => {
                let mut ahead = bytes.clone();
                match (hex(ahead.next()), hex(ahead.next())) {
                    (Some(high), Some(low)) => {
                        out.push((high * 16 + low) as u8);
                        bytes = ahead;
                    }
                    _ => out.push(b),
                }
            }
            b'+' => out.push(b' '),
            b => out.push(b),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
