//! Settings. One command changes all of them.

use rmlx_engine::api::Settings;
use serde_json::Value;
use tauri::{AppHandle, Runtime};

use crate::app::tell;
use crate::{endpoint, shortcut, window};

use super::{Reply, Shared, blocking, with_engine};

#[tauri::command]
pub async fn settings_get(state: Shared<'_>) -> Reply<Settings> {
    with_engine(&state, |engine| engine.settings()).await
}

/// What depends on a setting (the shortcut, the endpoint) has changed with it when this returns.
#[tauri::command]
pub async fn settings_set<R: Runtime>(app: AppHandle<R>, state: Shared<'_>, patch: Value) -> Reply<Settings> {
    let names = |field: &str| patch.get(field).is_some();
    let (shortcut, endpoint, theme) = (names("shortcut"), names("endpoint"), names("theme"));
    let settings = with_engine(&state, move |engine| {
        if let Some(text) = patch.get("shortcut").and_then(Value::as_str) {
            shortcut::check(text)?;
        }
        engine.set_settings(&patch)
    })
    .await?;
    let handle = app.clone();
    blocking(move || {
        if shortcut {
            shortcut::follow_settings(&handle);
        }
        if endpoint {
            endpoint::follow_settings(&handle);
        }
        if theme {
            window::follow_settings(&handle);
        }
        Ok(())
    })
    .await?;
    tell(&app, "settings", &settings);
    Ok(settings)
}
