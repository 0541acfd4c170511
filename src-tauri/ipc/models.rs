//! Models on this machine.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rmlx_engine::api::{ErrorInfo, Event, FileCheck, ModelEntry};
use tauri::ipc::Channel;

use crate::app::lock;

use super::{Reply, Shared, stream, with_engine, with_models};

#[tauri::command]
pub async fn models_list(state: Shared<'_>) -> Reply<Vec<ModelEntry>> {
    with_models(&state, |models| models.list()).await
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

#[tauri::command]
pub async fn model_unload(state: Shared<'_>) -> Reply<()> {
    with_engine(&state, |engine| engine.unload()).await
}

/// Bytes. `Progress` in `ui/src/ipc.ts`.
#[derive(Clone, Copy, serde::Serialize)]
pub struct Progress {
    done: u64,
    total: u64,
}

/// Hashes a model's files. A page that goes away ends it, and so do [`model_verify_stop`] and the next one.
#[tauri::command]
pub async fn model_verify(state: Shared<'_>, model: String, on_events: Channel<Progress>) -> Reply<Vec<FileCheck>> {
    let stopped = Arc::new(AtomicBool::new(false));
    if let Some(before) = lock(&state.verify).replace(stopped.clone()) {
        before.store(true, Ordering::Relaxed);
    }
    with_models(&state, move |models| {
        let mut next = Instant::now();
        models.verify(&model, &mut |done, total| {
            let mut heard = true;
            if Instant::now() >= next || done == total {
                heard = on_events.send(Progress { done, total }).is_ok();
                next = Instant::now() + stream::PACE;
            }
            if heard && !stopped.load(Ordering::Relaxed) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
    })
    .await
}

/// Its `model_verify` fails with the code `cancelled`. Nothing where none is going on.
#[tauri::command]
pub fn model_verify_stop(state: Shared<'_>) {
    if let Some(verify) = lock(&state.verify).take() {
        verify.store(true, Ordering::Relaxed);
    }
}

/// Says how many bytes that made free.
#[tauri::command]
pub async fn model_remove(state: Shared<'_>, model: String) -> Reply<u64> {
    with_models(&state, move |models| models.remove(&model)).await
}
