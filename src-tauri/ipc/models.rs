//! Models on this machine.

use rmlx_engine::api::{ErrorInfo, Event, ModelEntry};
use tauri::ipc::Channel;

use crate::app::lock;

use super::{Reply, Shared, stream, with_engine};

#[tauri::command]
pub async fn models_list(state: Shared<'_>) -> Reply<Vec<ModelEntry>> {
    with_engine(&state, |engine| engine.list()).await
}

/// Resolves when the model is resident. A page that goes away cancels the load, and so does [`model_load_stop`].
#[tauri::command]
pub async fn model_load(state: Shared<'_>, model: String, on_events: Channel<Vec<Event>>) -> Reply<()> {
    let shared = state.inner().clone();
    let failed: Option<ErrorInfo> = with_engine(&state, move |engine| {
        let reader = engine.load(&model)?;
        *lock(&shared.load) = Some(reader.canceller());
        drop(engine);
        Ok(stream::pump(reader, &on_events))
    })
    .await?;
    failed.map_or(Ok(()), Err)
}

/// Ends the load that was asked for last; its `model_load` fails with the code `cancelled`. Nothing where none is going on.
#[tauri::command]
pub fn model_load_stop(state: Shared<'_>) {
    if let Some(load) = lock(&state.load).take() {
        load.cancel();
    }
}
