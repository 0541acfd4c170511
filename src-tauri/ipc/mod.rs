//! What the page can call: the commands of `list.rs`, one file per topic. `ui/src/ipc.ts` is the other side.
//!
//! A command fails with `{code, message}` ([`ErrorInfo`]). Whatever waits (the engine, the database, the network) runs on a thread
//! for that; a panic there ends that call alone.

include!("list.rs");

mod app;
mod chat;
mod endpoint;
mod hub;
mod models;
mod settings;
mod stream;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use rmlx_engine::api::ErrorInfo;
use rmlx_engine::engine::{Engine, Models};
use rmlx_engine::error::{Error, Result};
use tauri::Runtime;
use tauri::ipc::Invoke;

use crate::app::State;

macro_rules! handlers {
    ($($topic:ident::$name:ident),* $(,)?) => { tauri::generate_handler![$($topic::$name),*] };
}

pub fn handler<R: Runtime>() -> impl Fn(Invoke<R>) -> bool + Send + Sync + 'static {
    commands!(handlers)
}

type Reply<T> = std::result::Result<T, ErrorInfo>;

type Shared<'a> = tauri::State<'a, Arc<State>>;

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Reply<T> {
    let done = tauri::async_runtime::spawn_blocking(work).await;
    let done = done.unwrap_or_else(|_| Err(Error::Internal("a panic; the log has more".into())));
    done.map_err(|error| ErrorInfo::from(&error))
}

async fn with_engine<T: Send + 'static>(state: &State, work: impl FnOnce(Engine) -> Result<T> + Send + 'static) -> Reply<T> {
    let engine = state.engine().map_err(|error| ErrorInfo::from(&error))?;
    blocking(move || work(engine)).await
}

/// For what may take long: the engine is not kept from ending meanwhile.
async fn with_models<T: Send + 'static>(state: &State, work: impl FnOnce(Models) -> Result<T> + Send + 'static) -> Reply<T> {
    let models = state.engine().and_then(|engine| engine.models()).map_err(|error| ErrorInfo::from(&error))?;
    blocking(move || work(models)).await
}
