//! From the engine's events to a response, in one piece or as a stream of server-sent events. The dialect says how it looks.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::App;
use super::errors::{ApiError, ApiResult};
use crate::api::{Event, Finished, LoadStage};
use crate::engine::Reader;

/// How long a stream's status waits for a model that has to be loaded: what its files' heads show to be wrong is told by then.
const FIRST_WORD: Duration = Duration::from_millis(250);

/// The engine's events, to wait for. Dropping it frees the answer's slot.
pub struct Events {
    reader: Reader,
    ready: Arc<Notify>,
    /// Read, but not yet handed out.
    seen: VecDeque<Event>,
    stopping: watch::Receiver<bool>,
}

impl Events {
    pub fn new(mut reader: Reader, app: &App) -> Self {
        let ready = Arc::new(Notify::new());
        let waker = ready.clone();
        reader.set_waker(Box::new(move || waker.notify_one()));
        Self { reader, ready, seen: VecDeque::new(), stopping: app.stopping.subscribe() }
    }

    /// The next event; an answer that the server's end cuts off fails like any other.
    async fn next(&mut self) -> ApiResult<Event> {
        match self.seen.pop_front() {
            Some(event) => Ok(event),
            None => self.read().await,
        }
    }

    async fn read(&mut self) -> ApiResult<Event> {
        loop {
            match self.reader.try_next() {
                Poll::Ready(Some(Event::Failed(info))) => return Err(info.into()),
                Poll::Ready(Some(event)) => return Ok(event),
                Poll::Ready(None) => return Err(ApiError::internal()),
                Poll::Pending => {}
            }
            tokio::select! {
                () = self.ready.notified() => {}
                _ = self.stopping.wait_for(|stopping| *stopping) => return Err(ApiError::stopping()),
            }
        }
    }

    /// Waits a moment for the first event that shows that there will be an answer.
    ///
    /// # Errors
    /// The model's, while it can still be a status.
    pub async fn begin(&mut self) -> ApiResult<()> {
        let begun = async {
            loop {
                let event = self.read().await?;
                let early = matches!(event, Event::Loading { stage: LoadStage::Inspect, .. });
                self.seen.push_back(event);
                if !early {
                    return Ok(());
                }
            }
        };
        timeout(FIRST_WORD, begun).await.unwrap_or(Ok(()))
    }

    /// Everything up to the end, in one piece.
    pub async fn all(&mut self, mut take: impl FnMut(Event)) -> ApiResult<Finished> {
        loop {
            match self.next().await? {
                Event::Finished(finished) => return Ok(finished),
                event => take(event),
            }
        }
    }
}

/// How a dialect writes a stream.
pub trait Frames: Send + 'static {
    /// Before the first event.
    fn begin(&mut self) -> String;
    /// Empty: nothing to say yet.
    fn event(&mut self, event: Event) -> String;
    fn end(&mut self, finished: &Finished) -> String;
    /// The last frame of an answer that failed.
    fn failed(&mut self, error: &ApiError) -> String;
}

/// One event of a stream.
pub fn frame(data: &serde_json::Value) -> String {
    format!("data: {data}\n\n")
}

struct Streaming<F> {
    events: Events,
    frames: F,
    keep_alive: Duration,
    stage: Stage,
}

#[derive(PartialEq)]
enum Stage {
    Begin,
    Going,
    Over,
}

/// A response that begins at once. A client that goes away drops it, and with it `events`.
pub fn streamed(events: Events, frames: impl Frames, keep_alive: Duration) -> Response {
    let streaming = Streaming { events, frames, keep_alive, stage: Stage::Begin };
    let body = stream::unfold(streaming, |mut streaming| async move {
        let text = streaming.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(text)), streaming))
    });
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    (StatusCode::OK, headers, Body::from_stream(body)).into_response()
}

impl<F: Frames> Streaming<F> {
    async fn next(&mut self) -> Option<String> {
        match self.stage {
            Stage::Begin => {
                self.stage = Stage::Going;
                return Some(self.write(Frames::begin));
            }
            Stage::Over => return None,
            Stage::Going => {}
        }
        let silent_until = Instant::now() + self.keep_alive;
        loop {
            let event = tokio::select! {
                event = self.events.next() => event,
                () = sleep_until(silent_until) => return Some(": keep-alive\n\n".into()),
            };
            let text = match event {
                Ok(Event::Finished(finished)) => {
                    self.stage = Stage::Over;
                    self.write(|frames| frames.end(&finished))
                }
                Ok(event) => self.write(|frames| frames.event(event)),
                Err(error) => {
                    self.stage = Stage::Over;
                    self.write(|frames| frames.failed(&error))
                }
            };
            if !text.is_empty() || self.stage == Stage::Over {
                return Some(text);
            }
        }
    }

    /// The status is out, so a panic has to end as a frame.
    fn write(&mut self, write: impl FnOnce(&mut F) -> String) -> String {
        catch_unwind(AssertUnwindSafe(|| write(&mut self.frames))).unwrap_or_else(|_| {
            tracing::error!("a request panicked");
            self.stage = Stage::Over;
            frame(&ApiError::internal().body())
        })
    }
}
