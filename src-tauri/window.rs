//! The main window. Closing it hides it; a hidden one is destroyed after a while, which gives its memory back, and rebuilt when it
//! is shown again. What the page kept (`page_state_set`) and where the window was outlive it.

use std::env;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rmlx_engine::api;
use tauri::webview::{Color, NewWindowResponse};
use tauri::{
    AppHandle, Manager, PhysicalPosition, PhysicalSize, Runtime, Theme, Url, WebviewUrl, WebviewWindow, WebviewWindowBuilder,
    Window, WindowEvent,
};

use crate::app::{self, lock, state};
use crate::platform;

pub const MAIN: &str = "main";
/// The argument that starts the app without showing a window.
pub const HIDDEN: &str = "--hidden";

const SIZE: (f64, f64) = (900.0, 640.0);
const MIN_SIZE: (f64, f64) = (480.0, 400.0);

/// How long a hidden window keeps its page ready. For tests only, `RMLX_TEST_RELEASE_MS` sets another number of milliseconds.
const RELEASE: Duration = Duration::from_secs(60);

/// While the shortcut's keys are down some desktops take the focus from the window that has it; on a busy machine the shortcut
/// itself is heard of a good while later.
const FOCUS_LAG: Duration = Duration::from_millis(800);

#[derive(Default)]
pub struct Memory {
    place: Mutex<Option<Place>>,
    /// Counts showing and hiding, so that a release knows whether it is still wanted.
    turn: AtomicU64,
    /// The window is being destroyed, which the event loop does later.
    releasing: AtomicBool,
    show_again: AtomicBool,
    focus_lost: Mutex<Option<Instant>>,
    /// Closed where nothing but the window could bring it back: the app ends when its work does.
    closed: AtomicBool,
}

#[derive(Clone, Copy)]
struct Place {
    position: PhysicalPosition<i32>,
    size: PhysicalSize<u32>,
    maximized: bool,
}

/// Shows the window, from any thread, making it if need be.
pub fn show<R: Runtime>(app: &AppHandle<R>) {
    on_main_thread(app, "shown", show_now);
}

/// Hides the window if it has the focus, else shows it.
pub fn toggle<R: Runtime>(app: &AppHandle<R>) {
    on_main_thread(app, "shown or hidden", |app| match app.get_webview_window(MAIN) {
        Some(window) if window.is_visible()? && has_focus(&window)? => hide_now(app),
        _ => show_now(app),
    });
}

fn on_main_thread<R: Runtime>(app: &AppHandle<R>, what: &'static str, work: fn(&AppHandle<R>) -> tauri::Result<()>) {
    let handle = app.clone();
    let posted = app.run_on_main_thread(move || {
        if let Err(error) = work(&handle) {
            tracing::error!("the window could not be {what}: {error}");
        }
    });
    if let Err(error) = posted {
        tracing::error!("the window could not be {what}: {error}");
    }
}

fn show_now<R: Runtime>(app: &AppHandle<R>) -> tauri::Result<()> {
    let memory = &state(app).window;
    memory.turn.fetch_add(1, Ordering::SeqCst);
    memory.closed.store(false, Ordering::SeqCst);
    if memory.releasing.load(Ordering::SeqCst) {
        memory.show_again.store(true, Ordering::SeqCst);
        return Ok(());
    }
    let window = match app.get_webview_window(MAIN) {
        Some(window) => window,
        None => build(app)?,
    };
    platform::window_shown(app);
    window.unminimize()?;
    window.show()?;
    window.set_focus()
}

fn build<R: Runtime>(app: &AppHandle<R>) -> tauri::Result<WebviewWindow<R>> {
    let place = *lock(&state(app).window.place);
    let theme = theme(&state(app));
    // The page reads the settings after it has drawn for the first time.
    let chosen = theme.map_or_else(String::new, |theme| format!("document.documentElement.dataset.theme = '{theme}'"));
    let window = WebviewWindowBuilder::new(app, MAIN, WebviewUrl::default())
        .initialization_script(chosen)
        .title("rMLX")
        .inner_size(SIZE.0, SIZE.1)
        .min_inner_size(MIN_SIZE.0, MIN_SIZE.1)
        .maximized(place.is_some_and(|place| place.maximized))
        .visible(false)
        .theme(theme)
        .zoom_hotkeys_enabled(true)
        .on_navigation(is_own)
        .on_new_window(|_, _| NewWindowResponse::Deny)
        .build()?;
    // Until its page has drawn, the window is of one colour: the page's own (`--bg` in ui/src/shared/base.css).
    if theme.map_or_else(|| window.theme(), Ok)? == Theme::Dark {
        window.set_background_color(Some(Color(0x1d, 0x1d, 0x1f, 0xff)))?;
    }
    if let Some(place) = place.filter(|place| !place.maximized) {
        window.set_size(place.size)?;
        window.set_position(place.position)?;
    }
    Ok(window)
}

/// `None`: as the system has it. The page and the title bar follow.
fn theme(state: &app::State) -> Option<Theme> {
    match state.engine().and_then(|engine| engine.settings()).map(|settings| settings.theme) {
        Ok(api::Theme::Light) => Some(Theme::Light),
        Ok(api::Theme::Dark) => Some(Theme::Dark),
        // Settings that cannot be read are told of by whoever needs more of them.
        Ok(api::Theme::System) | Err(_) => None,
    }
}

pub fn follow_settings<R: Runtime>(app: &AppHandle<R>) {
    on_main_thread(app, "given its theme", |app| match app.get_webview_window(MAIN) {
        Some(window) => window.set_theme(theme(&state(app))),
        None => Ok(()),
    });
}

/// The page never leaves the app: links open in the user's browser, through `link_open`.
fn is_own(url: &Url) -> bool {
    let own = url.scheme() == "tauri" && url.host_str() == Some("localhost");
    if !own {
        tracing::warn!(scheme = url.scheme(), "the page tried to leave the app");
    }
    own
}

fn has_focus<R: Runtime>(window: &WebviewWindow<R>) -> tauri::Result<bool> {
    let lost = *lock(&state(window.app_handle()).window.focus_lost);
    Ok(window.is_focused()? || lost.is_some_and(|lost| lost.elapsed() < FOCUS_LAG))
}

fn hide_now<R: Runtime>(app: &AppHandle<R>) -> tauri::Result<()> {
    let Some(window) = app.get_webview_window(MAIN) else { return Ok(()) };
    let memory = &state(app).window;
    // A window that is minimized says nothing about where it belongs.
    if !window.is_minimized()? {
        let place = Place { position: window.outer_position()?, size: window.inner_size()?, maximized: window.is_maximized()? };
        *lock(&memory.place) = Some(place);
    }
    window.hide()?;
    platform::window_hidden(app);
    let turn = memory.turn.fetch_add(1, Ordering::SeqCst) + 1;
    let app = app.clone();
    thread::spawn(move || {
        thread::sleep(release_after());
        if state(&app).window.turn.load(Ordering::SeqCst) == turn {
            on_main_thread(&app, "released", release);
        }
    });
    Ok(())
}

fn release_after() -> Duration {
    let asked = env::var("RMLX_TEST_RELEASE_MS").ok().and_then(|ms| ms.parse().ok());
    asked.map_or(RELEASE, Duration::from_millis)
}

fn release<R: Runtime>(app: &AppHandle<R>) -> tauri::Result<()> {
    let Some(window) = app.get_webview_window(MAIN) else { return Ok(()) };
    // It may have been shown since this was asked for.
    if !window.is_visible()? {
        state(app).window.releasing.store(true, Ordering::SeqCst);
        window.destroy()?;
    }
    Ok(())
}

/// Closing hides where the menu-bar icon, or the Dock, brings the window back. Where nothing does (a Linux desktop without a place
/// for icons) it ends the app, unless an answer, a load, a download or the endpoint is at work: then it hides, a second start or the shortcut
/// shows it again, and the app ends by itself once that work is done.
fn close<R: Runtime>(app: &AppHandle<R>) {
    let state = state(app);
    if !can_come_back(&state) {
        if !state.in_use() {
            return app::quit(app);
        }
        state.window.closed.store(true, Ordering::SeqCst);
    }
    on_main_thread(app, "hidden", hide_now);
}

fn can_come_back(state: &app::State) -> bool {
    cfg!(target_os = "macos") || state.tray.load(Ordering::SeqCst)
}

/// The work for which a closed window's app went on may be over.
pub fn after_work<R: Runtime>(app: &AppHandle<R>) {
    let state = state(app);
    if state.window.closed.load(Ordering::SeqCst) && !can_come_back(&state) && !state.in_use() {
        app::quit(app);
    }
}

pub fn on_event<R: Runtime>(window: &Window<R>, event: &WindowEvent) {
    let app = window.app_handle();
    match event {
        WindowEvent::CloseRequested { api, .. } => {
            api.prevent_close();
            close(app);
        }
        WindowEvent::Focused(true) => {
            *lock(&state(app).window.focus_lost) = None;
            app::look_at_conversations(app);
        }
        WindowEvent::Focused(false) => *lock(&state(app).window.focus_lost) = Some(Instant::now()),
        WindowEvent::Destroyed => {
            let memory = &state(app).window;
            memory.releasing.store(false, Ordering::SeqCst);
            if memory.show_again.swap(false, Ordering::SeqCst) {
                show(app);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_apps_own_pages_are_gone_to() {
        assert!(is_own(&"tauri://localhost/index.html".parse().unwrap()));
        for other in
            ["https://example.org", "http://tauri.localhost", "tauri://elsewhere/", "file:///etc/passwd", "data:text/html,x"]
        {
            assert!(!is_own(&other.parse().unwrap()), "{other}");
        }
    }
}
