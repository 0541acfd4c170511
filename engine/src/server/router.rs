//! Paths to handlers, and what happens to the rest.

use std::any::Any;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Router, middleware};
use serde_json::json;
use tower_http::catch_panic::CatchPanicLayer;

use super::errors::{ApiError, json_response};
use super::{App, guard, openai};
use crate::api::ActivityState;

/// `more`: what a test adds.
pub fn build(app: Arc<App>, more: Router<Arc<App>>) -> Router {
    Router::new()
        .route("/health", get(health))
        .merge(openai::routes())
        .merge(more)
        .fallback(not_found)
        .method_not_allowed_fallback(not_allowed)
        .layer(CatchPanicLayer::custom(panicked))
        .layer(middleware::from_fn_with_state(app.clone(), guard::guard))
        .with_state(app)
}

/// Says what is so now, and waits for nobody.
async fn health(State(app): State<Arc<App>>) -> Response {
    let activity = app.engine.activity();
    let state = match activity.state {
        ActivityState::Idle => "idle",
        ActivityState::Loading => "loading",
        ActivityState::Busy => "busy",
        ActivityState::Error => "error",
    };
    json_response(
        StatusCode::OK,
        &json!({
            "status": "ok",
            "version": env!("CARGO_PKG_VERSION"),
            "engine": state,
            "model": activity.model,
            "loading": activity.loading,
            "running": activity.running,
        }),
    )
}

async fn not_found(method: Method, uri: Uri) -> ApiError {
    let message = format!("{method} {} is not part of this server; see GET /v1/models, POST /v1/chat/completions", uri.path());
    ApiError::new(StatusCode::NOT_FOUND, "unknown_url", message)
}

async fn not_allowed(method: Method, uri: Uri) -> ApiError {
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", format!("{} does not take {method}", uri.path()))
}

/// The panic's text is in the log, or on standard error: it may hold anything.
fn panicked(_: Box<dyn Any + Send + 'static>) -> Response {
    tracing::error!("a request panicked");
    ApiError::internal().into_response()
}
