//! The app itself: what it is, what it does, links, and the page's memory.

use std::sync::atomic::Ordering;

use rmlx_engine::api::{Activity, ErrorInfo};
use rmlx_engine::engine::{Engine, MLX_VERSION, STARTER};
use rmlx_engine::error::{Error, Result};
use tauri::Url;

use crate::app::lock;

use super::{Reply, Shared, blocking};

/// Bytes.
const PAGE_STATE_LIMIT: usize = 64 << 10;
const LINK_LIMIT: usize = 8 << 10;

/// `AppInfo` in `ui/src/ipc.ts`.
#[derive(serde::Serialize)]
pub struct AppInfo {
    version: &'static str,
    mlx_version: &'static str,
    platform: &'static str,
    tray: bool,
    shortcut_problem: Option<String>,
    demo: &'static str,
    memory: Option<u64>,
}

#[tauri::command]
pub async fn app_info(state: Shared<'_>) -> Reply<AppInfo> {
    // On a Mac the system's tools are asked.
    let memory = blocking(|| Ok(Engine::memory())).await?;
    Ok(AppInfo {
        version: env!("CARGO_PKG_VERSION"),
        mlx_version: MLX_VERSION,
        platform: std::env::consts::OS,
        tray: state.tray.load(Ordering::SeqCst),
        shortcut_problem: state.shortcut.problem(),
        demo: STARTER,
        memory,
    })
}

#[tauri::command]
pub async fn activity_get(state: Shared<'_>) -> Reply<Activity> {
    Ok(lock(&state.activity).clone())
}

#[tauri::command]
pub async fn link_open(url: String) -> Reply<()> {
    blocking(move || {
        let url = link(&url)?;
        tauri_plugin_opener::open_url(url.as_str(), None::<&str>)
            .map_err(|error| Error::Internal(format!("the link could not be opened: {error}")))
    })
    .await
}

/// The desktop would open files and start programs just as well: of all addresses only these kinds are let through.
fn link(text: &str) -> Result<Url> {
    let refused = |why: &str| Error::BadRequest(format!("this link is not opened: {why}"));
    if text.len() > LINK_LIMIT {
        return Err(refused("it is too long"));
    }
    let url = Url::parse(text).map_err(|_| refused("it is no address"))?;
    match url.scheme() {
        "http" | "https" if url.has_host() => Ok(url),
        "mailto" => Ok(url),
        _ => Err(refused("only http, https and mailto are")),
    }
}

#[tauri::command]
pub async fn page_state_get(state: Shared<'_>) -> Reply<String> {
    Ok(lock(&state.page).clone())
}

#[tauri::command]
pub async fn page_state_set(shared: Shared<'_>, state: String) -> Reply<()> {
    if state.len() > PAGE_STATE_LIMIT {
        let error = Error::BadRequest(format!("a page's state has at most {PAGE_STATE_LIMIT} bytes: {}", state.len()));
        return Err(ErrorInfo::from(&error));
    }
    *lock(&shared.page) = state;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_web_and_mail_links_are_opened() {
        for good in ["https://example.org/a?b=c#d", "HTTP://example.org", "mailto:a@example.org"] {
            assert!(link(good).is_ok(), "{good}");
        }
        let long = format!("https://example.org/{}", "a".repeat(LINK_LIMIT));
        let wrong = [
            "",
            "example.org",
            "/etc/passwd",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "data:text/html,x",
            "tauri://localhost",
            "smb://host/share",
            "vscode://x",
            "ssh://host",
            " file:///x",
            "-h",
            &long,
        ];
        for wrong in wrong {
            assert_eq!(link(wrong).unwrap_err().code(), "invalid_request", "{wrong}");
        }
    }
}
