//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::Value;

use super::logprobs::Logprobs;
use super::messages;
use super::request::ChatRequest;
use super::write::Completion;
use crate::api;
use crate::engine::Reader;
use crate::error::Error;
use crate::server::answer::{Events, streamed};
use crate::server::errors::{ApiError, ApiResult, json_response};
use crate::server::{App, body};

pub async fn complete(State(app): State<Arc<App>>, request: Request) -> ApiResult<Response> {
    let bytes = body::read(request, &app.limits).await?;
    let prepared = app.clone().blocking({
        let app = app.clone();
        move || Prepared::new(&app, &bytes)
    });
    let Prepared { reader, mut completion, stream, resident } = prepared.await?;
    let mut events = Events::new(reader, &app);
    if stream {
        if !resident {
            events.begin().await?;
        }
        return Ok(streamed(events, completion, app.limits.keep_alive));
    }
    let (mut text, mut logprobs) = (String::new(), Vec::new());
    let finished = events.all(|event| {
        if let Some((delta, told)) = completion.take(event) {
            text.push_str(&delta);
            logprobs.extend(told);
        }
    });
    let finished = finished.await?;
    Ok(json_response(StatusCode::OK, &completion.whole(&text, logprobs, &finished)))
}

/// An answer that the engine is making.
struct Prepared {
    reader: Reader,
    completion: Completion,
    stream: bool,
    /// Nothing has to be loaded for it.
    resident: bool,
}

impl Prepared {
    /// Takes its time: parsing, rendering and tokenizing.
    fn new(app: &App, body: &Bytes) -> ApiResult<Self> {
        let body: Value = serde_json::from_slice(body)
            .map_err(|e| ApiError::new(StatusCode::BAD_REQUEST, "invalid_json", format!("the body is not JSON: {e}")))?;
        let mut request = ChatRequest::read(&body)?;
        drop(body);
        let model = app.catalogue.id(&request.model)?;
        let resident = app.engine.activity().model.as_deref() == Some(model.as_str());
        let messages = std::mem::take(&mut request.messages);
        let engine_request = api::Request {
            sampling: request.sampling.clone(),
            max_tokens: request.max_tokens,
            stop: request.stop.clone(),
            logprobs: request.logprobs,
            ..api::Request::new(api::Prompt::Tokens(Vec::new()))
        };
        let generate = |messages: Vec<api::Message>| {
            let prompt = api::Prompt::Chat { messages, variables: request.variables.clone() };
            app.engine.generate(&model, api::Request { prompt, ..engine_request.clone() })
        };
        let mut answer = generate(messages.clone());
        for plainer in messages::plainer(&messages) {
            if !matches!(answer, Err(Error::Template(_))) {
                break;
            }
            answer = generate(plainer).or(answer);
        }
        let logprobs = match request.logprobs {
            Some(_) => Some(Logprobs::new(app.engine.token_bytes(&model)?)),
            None => None,
        };
        let completion = Completion::new(model.clone(), logprobs, request.include_usage);
        Ok(Self { reader: answer?, completion, stream: request.stream, resident })
    }
}
