//! The body of a request, within bounds of type, size and time.

use std::time::Duration;

use axum::body::{Bytes, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use futures_util::StreamExt;
use tokio::time::timeout;

use super::Limits;
use super::errors::{ApiError, ApiResult};

/// A client that is told to stop hears it only when it has nothing left to send.
const DISCARD: Duration = Duration::from_secs(2);

pub async fn read(request: Request, limits: &Limits) -> ApiResult<Bytes> {
    let (head, body) = request.into_parts();
    check_type(&head.headers)?;
    let mut collected = Vec::new();
    let too_large = body.size_hint().lower() > limits.body_bytes as u64;
    let mut chunks = body.into_data_stream();
    let reading = async {
        if too_large {
            return Ok(false);
        }
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|e| {
                ApiError::new(StatusCode::BAD_REQUEST, "broken_body", format!("the body did not arrive whole: {e}"))
            })?;
            if collected.len() + chunk.len() > limits.body_bytes {
                return Ok(false);
            }
            collected.extend_from_slice(&chunk);
        }
        Ok(true)
    };
    match timeout(limits.body, reading).await {
        Ok(Ok(true)) => Ok(collected.into()),
        Ok(Ok(false)) => {
            if !head.headers.contains_key(header::EXPECT) {
                let _ = timeout(DISCARD, async { while let Some(Ok(_)) = chunks.next().await {} }).await;
            }
            let message = format!("the body has more than {} bytes", limits.body_bytes);
            Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message))
        }
        Ok(Err(broken)) => Err(broken),
        Err(_) => {
            let message = format!("the body took longer than {:?}", limits.body);
            Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", message))
        }
    }
}

/// JSON only: a form that a web page posts without asking has another type.
fn check_type(headers: &HeaderMap) -> ApiResult<()> {
    let refused = |message: &str| Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message));
    let kind = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        return refused("the body must be JSON: set the header Content-Type: application/json");
    }
    match headers.get(header::CONTENT_ENCODING) {
        Some(encoding) if !encoding.as_bytes().eq_ignore_ascii_case(b"identity") => refused("the body must not be compressed"),
        _ => Ok(()),
    }
}
