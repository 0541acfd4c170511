//! OpenAI's dialect.

mod chat;
mod logprobs;
mod messages;
mod models;
mod request;
mod write;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use super::App;

pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*id}", get(models::one))
        .route("/v1/chat/completions", post(chat::complete))
}
