//! Models on the hub, and downloads. How they go on is told by the change `pulls`.

use rmlx_engine::api::{CatalogueEntry, HubModel, Pull, PullOptions, PullPlan, TokenState};

use super::{Reply, Shared, with_models};

#[tauri::command]
pub async fn catalogue_list(state: Shared<'_>) -> Reply<Vec<CatalogueEntry>> {
    with_models(&state, |models| models.catalogue()).await
}

#[tauri::command]
pub async fn hub_search(state: Shared<'_>, words: String) -> Reply<Vec<HubModel>> {
    with_models(&state, move |models| models.search(&words)).await
}

#[tauri::command]
pub async fn pull_plan(state: Shared<'_>, model: String) -> Reply<PullPlan> {
    with_models(&state, move |models| models.plan(&model)).await
}

#[tauri::command]
pub async fn pull_start(state: Shared<'_>, model: String, options: PullOptions) -> Reply<Pull> {
    with_models(&state, move |models| models.pull(&model, options)).await
}

#[tauri::command]
pub async fn pulls_list(state: Shared<'_>) -> Reply<Vec<Pull>> {
    with_models(&state, |models| Ok(models.pulls())).await
}

#[tauri::command]
pub async fn pull_pause(state: Shared<'_>, model: String) -> Reply<()> {
    with_models(&state, move |models| models.pause(&model)).await
}

#[tauri::command]
pub async fn pull_cancel(state: Shared<'_>, model: String) -> Reply<()> {
    with_models(&state, move |models| models.cancel(&model)).await
}

#[tauri::command]
pub async fn token_get(state: Shared<'_>) -> Reply<TokenState> {
    with_models(&state, |models| models.token()).await
}

/// The token goes this way only.
#[tauri::command]
pub async fn token_set(state: Shared<'_>, token: Option<String>) -> Reply<TokenState> {
    with_models(&state, move |models| models.set_token(token.as_deref())).await
}
