//! Connections: taking them, bounding them, and letting them end.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep, timeout};

use super::errors::ApiError;
use super::{App, Limits, Phase, router};

/// For last words, once the grace is over.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// A head, and what is buffered of an answer that its client does not take.
const BUFFER: usize = 64 << 10;

/// Serves until told to end.
pub async fn run(listener: TcpListener, app: Arc<App>, more: Router<Arc<App>>) {
    let mut phase = app.phase.clone();
    let router = router::build(app.clone(), more);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            changed = phase.changed() => {
                if changed.is_err() || *phase.borrow() != Phase::Serving {
                    break;
                }
            }
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if connections.len() >= app.limits.connections => {
                    // One more task, but a short one.
                    tokio::spawn(refuse(stream));
                }
                Ok((stream, _)) => {
                    connections.spawn(serve(stream, router.clone(), app.clone()));
                }
                Err(e) => {
                    // Out of file descriptors, say: it goes on when some are free.
                    tracing::warn!("a connection was not accepted: {e}");
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
    drop(listener);
    let grace = match *phase.borrow() {
        Phase::Finishing(grace) => grace,
        _ => return,
    };
    let ended = tokio::select! {
        ended = timeout(grace, drain(&mut connections)) => ended.is_ok(),
        _ = phase.changed() => return,
    };
    if !ended {
        tracing::info!(connections = connections.len(), "answers are cut off: the server stops");
        app.stopping.send_replace(true);
        let _ = timeout(LAST_WORDS, drain(&mut connections)).await;
    }
}

async fn drain(connections: &mut JoinSet<()>) {
    while connections.join_next().await.is_some() {}
}

async fn serve(stream: TcpStream, router: Router, app: Arc<App>) {
    // A token goes out when it is there.
    let _ = stream.set_nodelay(true);
    let io = TokioIo::new(Impatient::new(stream, &app.limits));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(app.limits.head)
        .max_buf_size(BUFFER)
        .serve_connection(io, TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    let mut phase = app.phase.clone();
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = left(&mut phase) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(e) = ended {
        tracing::debug!("a connection ended: {e}");
    }
}

/// Waits for the end of [`Phase::Serving`].
async fn left(phase: &mut watch::Receiver<Phase>) {
    let _ = phase.wait_for(|phase| *phase != Phase::Serving).await;
}

async fn refuse(stream: TcpStream) {
    let error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_connections", "too many connections are open");
    let body = error.body().to_string();
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: {}\r\nretry-after: 1\r\n\
         connection: close\r\n\r\n{body}",
        body.len()
    );
    let said = async {
        stream.writable().await?;
        // So little fits into the socket's buffer at once.
        stream.try_write(answer.as_bytes())?;
        // Closing before the request is read would take the answer back.
        let mut request = [0; 1024];
        loop {
            stream.readable().await?;
            match stream.try_read(&mut request) {
                Ok(0) => return Ok(()),
                Err(e) if e.kind() != io::ErrorKind::WouldBlock => return Err(e),
                _ => {}
            }
        }
    };
    let _ = timeout(LAST_WORDS, said).await;
}

/// A connection whose writes fail when the other side takes nothing for too long.
struct Impatient {
    stream: TcpStream,
    patience: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Impatient {
    fn new(stream: TcpStream, limits: &Limits) -> Self {
        Self { stream, patience: limits.stalled, stalled: None }
    }

    fn watch(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let patience = self.patience;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(patience)));
        match stalled.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Impatient {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Impatient {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, data);
        self.watch(cx, written)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, data);
        self.watch(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
