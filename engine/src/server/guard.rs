//! What comes before every route: a web page must not use the model, not even through a name that it made point here.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::errors::ApiError;
use super::{App, ids};

const REQUEST_ID: &str = "x-request-id";

pub async fn guard(State(_): State<Arc<App>>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let id = request_id(request.headers());
    // Only what the path says; never a query, a header or a body.
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let mut response = if method == Method::OPTIONS {
        // Before everything else; without the headers that would let a page go on.
        (StatusCode::NO_CONTENT, [(header::ALLOW, "GET, POST, OPTIONS")]).into_response()
    } else if let Err(refused) = check(request.uri(), request.headers()) {
        refused.into_response()
    } else {
        next.run(request).await
    };
    let milliseconds = began.elapsed().as_millis() as u64;
    tracing::info!(%method, path, status = response.status().as_u16(), milliseconds, %id, "request");
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// The client's own, when it is one that a log can hold.
fn request_id(headers: &HeaderMap) -> String {
    let sensible = |id: &&str| (1..=128).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic());
    let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).filter(sensible);
    given.map_or_else(|| ids::fresh("req_"), Into::into)
}

fn check(uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
    let refused = |code, message: &str| ApiError::new(StatusCode::FORBIDDEN, code, message);
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next().and_then(|h| h.to_str().ok());
    let named =
        host.is_some_and(is_loopback) && hosts.next().is_none() && uri.authority().is_none_or(|a| is_loopback(a.as_str()));
    if !named {
        return Err(refused("host_not_allowed", "the Host header must name this machine: localhost, 127.0.0.1 or [::1]"));
    }
    let local = |origin: &HeaderValue| {
        let origin = origin.to_str().unwrap_or_default();
        ["http://", "https://"].iter().find_map(|scheme| origin.strip_prefix(scheme)).is_some_and(is_loopback)
    };
    if !headers.get_all(header::ORIGIN).iter().all(local) {
        return Err(refused("origin_not_allowed", "web pages may not use this server"));
    }
    Ok(())
}

/// A name of this machine, with or without a port.
fn is_loopback(authority: &str) -> bool {
    let name = match authority.rsplit_once(':') {
        // The colons of an IPv6 address stand before its bracket.
        Some((name, port)) if !port.contains(']') => match port.parse::<u16>() {
            Ok(_) => name,
            Err(_) => return false,
        },
        _ => authority,
    };
    let address = match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(v6) => v6.parse().map(IpAddr::V6),
        None => name.parse().map(IpAddr::V4),
    };
    // All that can be listened on; an address is no name that somebody could point here.
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_machine() {
        for own in ["localhost", "LOCALHOST:8080", "127.0.0.1", "127.0.0.1:1", "127.0.0.2:80", "[::1]", "[::1]:65535"] {
            assert!(is_loopback(own), "{own}");
        }
        for other in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "localhost:",
            "localhost:x",
            "localhost:65536",
            "::1",
            "evil.example:80",
            "user@localhost",
            "127.1",
            "2130706433",
            "0x7f.0.0.1",
            "0.0.0.0",
            "[::ffff:127.0.0.1]",
            "[127.0.0.1]",
            "[::1",
            "localhost:80:80",
            "[::1]:",
            "localhost/",
        ] {
            assert!(!is_loopback(other), "{other}");
        }
    }
}
