//! `GET /v1/models` and `GET /v1/models/{id}`.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};

use crate::server::App;
use crate::server::catalogue::Model;
use crate::server::errors::{ApiError, ApiResult, json_response};

pub async fn list(State(app): State<Arc<App>>) -> ApiResult<Response> {
    let models = app.clone().blocking(move || app.catalogue.models()).await?;
    let data: Vec<Value> = models.iter().map(object).collect();
    Ok(json_response(StatusCode::OK, &json!({ "object": "list", "data": data })))
}

/// The id may have slashes, as they are or as `%2F`.
pub async fn one(State(app): State<Arc<App>>, id: Result<Path<String>, PathRejection>) -> ApiResult<Response> {
    let Path(id) = id.map_err(|_| ApiError::model_not_found("no model is called so: the id in the path is not UTF-8"))?;
    let found = app.clone().blocking(move || {
        let id = app.catalogue.id(&id)?;
        let models = app.catalogue.models()?;
        models.into_iter().find(|m| m.id == id).ok_or_else(|| ApiError::model_not_found(format!("{id} cannot be run")))
    });
    Ok(json_response(StatusCode::OK, &object(&found.await?)))
}

fn object(model: &Model) -> Value {
    let mut object = json!({ "id": model.id, "object": "model", "created": model.created, "owned_by": model.owner });
    if let Some(context) = model.context {
        // Two names, because clients look for either.
        object["context_window"] = context.into();
        object["max_model_len"] = context.into();
    }
    object
}
