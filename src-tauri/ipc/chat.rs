//! Conversations and answers.

use rmlx_engine::api::{ConversationEntry, Event, Thread, Turn};
use tauri::ipc::Channel;
use tauri::{AppHandle, Runtime};

use crate::app::tell;

use super::{Reply, Shared, stream, with_engine};

#[tauri::command]
pub async fn conversations_list(state: Shared<'_>, search: Option<String>) -> Reply<Vec<ConversationEntry>> {
    with_engine(&state, move |engine| engine.conversations(search.as_deref())).await
}

#[tauri::command]
pub async fn conversation_get(state: Shared<'_>, id: i64) -> Reply<Thread> {
    with_engine(&state, move |engine| engine.conversation(id)).await
}

#[tauri::command]
pub async fn conversation_rename<R: Runtime>(app: AppHandle<R>, state: Shared<'_>, id: i64, title: String) -> Reply<()> {
    with_engine(&state, move |engine| engine.rename_conversation(id, &title)).await?;
    tell(&app, "conversations", ());
    Ok(())
}

#[tauri::command]
pub async fn conversation_delete<R: Runtime>(app: AppHandle<R>, state: Shared<'_>, id: i64) -> Reply<()> {
    with_engine(&state, move |engine| engine.delete_conversation(id)).await?;
    tell(&app, "conversations", ());
    Ok(())
}

#[tauri::command]
pub async fn conversation_restore<R: Runtime>(app: AppHandle<R>, state: Shared<'_>, id: i64) -> Reply<()> {
    with_engine(&state, move |engine| engine.restore_conversation(id)).await?;
    tell(&app, "conversations", ());
    Ok(())
}

#[tauri::command]
pub async fn conversation_select(state: Shared<'_>, conversation: i64, message: i64) -> Reply<Thread> {
    with_engine(&state, move |engine| engine.select_version(conversation, message)).await
}

#[tauri::command]
pub async fn chat_send<R: Runtime>(app: AppHandle<R>, state: Shared<'_>, turn: Turn) -> Reply<Thread> {
    let thread = with_engine(&state, move |engine| engine.chat(turn)).await?;
    tell(&app, "conversations", ());
    Ok(thread)
}

/// The answer goes on when its window is gone: a channel that takes nothing more ends the following, not the answer.
#[tauri::command]
pub async fn chat_follow(state: Shared<'_>, conversation: i64, on_events: Channel<Vec<Event>>) -> Reply<bool> {
    with_engine(&state, move |engine| {
        let Some(reader) = engine.follow(conversation) else { return Ok(false) };
        // The pump lasts as long as the answer, which the app's end must not wait for.
        drop(engine);
        stream::pump(reader, &on_events);
        Ok(true)
    })
    .await
}

#[tauri::command]
pub async fn chat_stop(state: Shared<'_>, conversation: i64) -> Reply<bool> {
    with_engine(&state, move |engine| Ok(engine.stop(conversation))).await
}
