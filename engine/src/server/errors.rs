//! Errors as clients of OpenAI's API read them: an object with `message`, `type`, `param` and `code`.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::api::ErrorInfo;
use crate::error::Error;

#[derive(Debug, Clone, PartialEq)]
pub struct ApiError {
    pub status: StatusCode,
    pub code: String,
    pub message: String,
    /// The field that is wrong: `messages[1].content`.
    pub param: Option<String>,
}

pub type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    pub fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        Self { status, code: code.into(), message: message.into(), param: None }
    }

    /// A field with a value that it cannot have.
    pub fn value(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_value", message).with_param(param)
    }

    /// A field whose meaning this version cannot honour.
    pub fn unsupported(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "unsupported_parameter", message).with_param(param)
    }

    pub fn model_not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "model_not_found", message).with_param("model")
    }

    pub fn internal() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "internal error; the log has more")
    }

    pub fn stopping() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_stopping", "the server is stopping: the answer was not finished")
    }

    pub fn with_param(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    fn kind(&self) -> &'static str {
        match self.status.as_u16() {
            403 => "permission_error",
            400..500 => "invalid_request_error",
            _ => "server_error",
        }
    }

    pub fn body(&self) -> Value {
        json!({ "error": { "message": self.message, "type": self.kind(), "param": self.param, "code": self.code } })
    }
}

/// What the engine said, before or during an answer.
impl From<ErrorInfo> for ApiError {
    fn from(info: ErrorInfo) -> Self {
        let ErrorInfo { code, message } = info;
        let (status, param) = match code.as_str() {
            "model_not_found" => (StatusCode::NOT_FOUND, Some("model")),
            "context_length_exceeded" | "template" => (StatusCode::BAD_REQUEST, Some("messages")),
            "base_model" => (StatusCode::BAD_REQUEST, Some("model")),
            // Known only once the vocabulary is.
            "invalid_request" if message.starts_with("logit_bias") => (StatusCode::BAD_REQUEST, Some("logit_bias")),
            "invalid_request" => (StatusCode::BAD_REQUEST, None),
            // The model is there and cannot be had.
            "io" | "bad_file" | "unsupported_model" | "bad_weights" | "claim_held" => {
                (StatusCode::SERVICE_UNAVAILABLE, Some("model"))
            }
            "cancelled" => (StatusCode::SERVICE_UNAVAILABLE, None),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, None),
        };
        Self { status, code, message, param: param.map(Into::into) }
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        ErrorInfo::from(&error).into()
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = json_response(self.status, &self.body());
        if self.status.is_server_error() {
            // The official clients try such a request again by themselves; none of these failures goes away by that.
            response.headers_mut().insert("x-should-retry", HeaderValue::from_static("false"));
        }
        response
    }
}

pub fn json_response(status: StatusCode, body: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}
