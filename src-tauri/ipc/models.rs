//! Models on this machine.

use rmlx_engine::api::{ErrorInfo, Event, ModelEntry};
use tauri::ipc::Channel;

use super::{Reply, Shared, stream, with_engine};

#[tauri::command]
pub async fn models_list(state: Shared<'_>) -> Reply<Vec<ModelEntry>> {
    with_engine(&state, |engine| engine.list()).await
}

/// Resolves when the model is resident. A page that goes away cancels the load.
#[tauri::command]
pub async fn model_load(state: Shared<'_>, model: String, on_events: Channel<Vec<Event>>) -> Reply<()> {
    let failed: Option<ErrorInfo> = with_engine(&state, move |engine| {
        let reader = engine.load(&model)?;
        drop(engine);
        Ok(stream::pump(reader, &on_events))
    })
    .await?;
    failed.map_or(Ok(()), Err)
}
