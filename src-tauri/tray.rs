//! The menu-bar icon and its menu. They are changed in place and only where something changed: an open menu stays open.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::thread;

use rmlx_engine::api::{Activity, ActivityState, EndpointState};
use tauri::image::Image;
use tauri::menu::{CheckMenuItem, Menu, MenuEvent, MenuItem, PredefinedMenuItem};
use tauri::tray::{TrayIcon, TrayIconBuilder};
use tauri::{AppHandle, Manager, Runtime};

use crate::app::{self, lock, state};
use crate::{endpoint, platform, window};

const SHOW: &str = "show";
const ENDPOINT: &str = "endpoint";
const QUIT: &str = "quit";

/// Longer lines would make the menu as wide as the screen.
const LINE: usize = 60;

struct Tray<R: Runtime> {
    icon: TrayIcon<R>,
    model: MenuItem<R>,
    running: MenuItem<R>,
    endpoint: CheckMenuItem<R>,
    shown: Mutex<View>,
}

/// What the icon and the menu say.
#[derive(Debug, Clone, PartialEq, Eq)]
struct View {
    icon: ActivityState,
    model: String,
    running: String,
    endpoint: String,
    /// `None`: not known, a click has changed it.
    endpoint_on: Option<bool>,
}

impl View {
    fn new(activity: &Activity, endpoint: &EndpointState) -> Self {
        let model = match (&activity.loading, &activity.model) {
            (Some(loading), _) => format!("Loading {loading}"),
            (None, Some(model)) => model.clone(),
            (None, None) => "No model".into(),
        };
        let running = match activity.running {
            0 => "No answers running".into(),
            1 => "1 answer running".into(),
            n => format!("{n} answers running"),
        };
        let endpoint_text = match endpoint {
            EndpointState::Off => "Endpoint".into(),
            EndpointState::On { url } => format!("Endpoint: {url}"),
            EndpointState::Failed { error, .. } => format!("Endpoint: {}", error.message.lines().next().unwrap_or_default()),
        };
        Self {
            icon: activity.state,
            model: line(&model),
            running,
            endpoint: line(&endpoint_text),
            endpoint_on: Some(matches!(endpoint, EndpointState::On { .. })),
        }
    }

    fn now(state: &app::State) -> Self {
        Self::new(&lock(&state.activity), &state.endpoint.state())
    }
}

/// Menus read `&` before a letter as a keyboard mark; doubled it is itself.
fn line(text: &str) -> String {
    let short = match text.char_indices().nth(LINE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into(),
    };
    short.replace('&', "&&")
}

fn image(state: ActivityState) -> Image<'static> {
    #[cfg(target_os = "macos")]
    return match state {
        ActivityState::Idle => tauri::include_image!("icons/tray/template-idle.png"),
        ActivityState::Loading => tauri::include_image!("icons/tray/template-loading.png"),
        ActivityState::Busy => tauri::include_image!("icons/tray/template-busy.png"),
        ActivityState::Error => tauri::include_image!("icons/tray/template-error.png"),
    };
    #[cfg(not(target_os = "macos"))]
    match state {
        ActivityState::Idle => tauri::include_image!("icons/tray/color-idle.png"),
        ActivityState::Loading => tauri::include_image!("icons/tray/color-loading.png"),
        ActivityState::Busy => tauri::include_image!("icons/tray/color-busy.png"),
        ActivityState::Error => tauri::include_image!("icons/tray/color-error.png"),
    }
}

/// Makes the icon as soon as there is a place that shows it: at once on macOS; on Linux there may never be one.
pub fn start<R: Runtime>(app: &AppHandle<R>) {
    let app = app.clone();
    platform::watch_tray_host(move |there| {
        let handle = app.clone();
        let posted = app.run_on_main_thread(move || {
            let shown = there && (handle.try_state::<Tray<R>>().is_some() || make(&handle));
            if state(&handle).tray.swap(shown, Ordering::SeqCst) && !shown {
                tracing::info!("the place for the menu-bar icon is gone");
            }
            refresh(&handle);
        });
        if let Err(error) = posted {
            tracing::error!("no menu-bar icon: {error}");
        }
    });
}

fn make<R: Runtime>(app: &AppHandle<R>) -> bool {
    // Where the Linux library for icons is not installed, the crate that loads it panics.
    match catch_unwind(AssertUnwindSafe(|| build(app))) {
        Ok(Ok(tray)) => app.manage(tray),
        Ok(Err(error)) => {
            tracing::error!("no menu-bar icon: {error}");
            false
        }
        Err(_) => {
            tracing::error!("no menu-bar icon: the library for it (libayatana-appindicator3) could not be loaded");
            false
        }
    }
}

fn build<R: Runtime>(app: &AppHandle<R>) -> tauri::Result<Tray<R>> {
    let view = View::now(&state(app));
    let show = MenuItem::with_id(app, SHOW, "Show rMLX", true, None::<&str>)?;
    let model = MenuItem::new(app, &view.model, false, None::<&str>)?;
    let running = MenuItem::new(app, &view.running, false, None::<&str>)?;
    let endpoint = CheckMenuItem::with_id(app, ENDPOINT, &view.endpoint, true, view.endpoint_on == Some(true), None::<&str>)?;
    let quit = MenuItem::with_id(app, QUIT, "Quit rMLX", true, None::<&str>)?;
    let separator = || PredefinedMenuItem::separator(app);
    let menu = Menu::with_items(app, &[&show, &separator()?, &model, &running, &separator()?, &endpoint, &separator()?, &quit])?;
    let icon = TrayIconBuilder::with_id("main")
        .icon(image(view.icon))
        .icon_as_template(true)
        .tooltip("rMLX")
        .menu(&menu)
        .show_menu_on_left_click(true)
        .on_menu_event(on_menu)
        .build(app)?;
    Ok(Tray { icon, model, running, endpoint, shown: Mutex::new(view) })
}

fn on_menu<R: Runtime>(app: &AppHandle<R>, event: MenuEvent) {
    match event.id().as_ref() {
        SHOW => window::show(app),
        QUIT => app::quit(app),
        ENDPOINT => {
            // The click changed the item's own mark, which is to show what the endpoint really is.
            if let Some(tray) = app.try_state::<Tray<R>>() {
                lock(&tray.shown).endpoint_on = None;
            }
            let app = app.clone();
            thread::spawn(move || {
                let on = !state(&app).endpoint.is_on();
                if let Err(error) = endpoint::set(&app, on, None) {
                    tracing::error!(code = error.code(), "the endpoint could not be switched: {error}");
                }
                refresh(&app);
            });
        }
        _ => {}
    }
}

/// Makes the icon and the menu say what is true now. From any thread; nothing where there is no icon.
pub fn refresh<R: Runtime>(app: &AppHandle<R>) {
    let handle = app.clone();
    let posted = app.run_on_main_thread(move || {
        let Some(tray) = handle.try_state::<Tray<R>>() else { return };
        if let Err(error) = tray.set(View::now(&state(&handle))) {
            tracing::error!("the menu could not be changed: {error}");
        }
    });
    if let Err(error) = posted {
        tracing::error!("the menu could not be changed: {error}");
    }
}

impl<R: Runtime> Tray<R> {
    fn set(&self, view: View) -> tauri::Result<()> {
        let mut shown = lock(&self.shown);
        if shown.icon != view.icon {
            self.icon.set_icon_with_as_template(Some(image(view.icon)), true)?;
        }
        if shown.model != view.model {
            self.model.set_text(&view.model)?;
        }
        if shown.running != view.running {
            self.running.set_text(&view.running)?;
        }
        if shown.endpoint != view.endpoint {
            self.endpoint.set_text(&view.endpoint)?;
        }
        if shown.endpoint_on != view.endpoint_on {
            self.endpoint.set_checked(view.endpoint_on == Some(true))?;
        }
        *shown = view;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rmlx_engine::api::ErrorInfo;

    use super::*;

    #[test]
    fn the_menu_says_what_the_engine_does() {
        let mut activity = Activity::default();
        let view = View::new(&activity, &EndpointState::Off);
        assert_eq!((view.model.as_str(), view.running.as_str()), ("No model", "No answers running"));
        assert_eq!((view.endpoint.as_str(), view.endpoint_on), ("Endpoint", Some(false)));

        activity.model = Some("a & b".into());
        activity.running = 2;
        activity.state = ActivityState::Busy;
        let view = View::new(&activity, &EndpointState::On { url: "http://127.0.0.1:8080".into() });
        assert_eq!((view.model.as_str(), view.running.as_str()), ("a && b", "2 answers running"));
        assert_eq!((view.endpoint.as_str(), view.endpoint_on), ("Endpoint: http://127.0.0.1:8080", Some(true)));
        assert_eq!(view.icon, ActivityState::Busy);

        activity.loading = Some("m".repeat(100));
        let error = ErrorInfo { code: "port_taken".into(), message: "port 8080 is taken by x\nhint: try 8081".into() };
        let view = View::new(&activity, &EndpointState::Failed { error, next_port: Some(8081) });
        assert_eq!(view.model.chars().count(), LINE + 1);
        assert_eq!((view.endpoint.as_str(), view.endpoint_on), ("Endpoint: port 8080 is taken by x", Some(false)));
    }

    #[test]
    fn every_state_has_an_icon_of_its_own() {
        use ActivityState::{Busy, Error, Idle, Loading};
        let images: Vec<_> = [Idle, Loading, Busy, Error].map(|state| image(state).rgba().to_vec()).into();
        for (i, image) in images.iter().enumerate() {
            assert_eq!(image.len(), 44 * 44 * 4);
            assert!(images[..i].iter().all(|other| other != image), "{i}");
        }
    }
}
