//! The endpoint's switch.

use rmlx_engine::api::EndpointState;
use tauri::{AppHandle, Runtime};

use crate::endpoint;

use super::{Reply, Shared, blocking};

#[tauri::command]
pub async fn endpoint_get(state: Shared<'_>) -> Reply<EndpointState> {
    Ok(state.endpoint.state())
}

#[tauri::command]
pub async fn endpoint_set<R: Runtime>(app: AppHandle<R>, on: bool, port: Option<u16>) -> Reply<EndpointState> {
    blocking(move || endpoint::set(&app, on, port)).await
}
