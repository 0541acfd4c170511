//! What Linux desktops do in their own ways.

use std::env;
use std::thread;

use tauri::{AppHandle, Runtime};
use zbus::blocking::Connection;
use zbus::blocking::fdo::DBusProxy;
use zbus::names::BusName;

/// Whoever owns this name shows icons.
const TRAY_HOST: &str = "org.kde.StatusNotifierWatcher";

fn has(variable: &str) -> bool {
    env::var_os(variable).is_some_and(|value| !value.is_empty())
}

/// Where there is no display Tauri panics; this finds out before.
pub fn display() -> Result<(), String> {
    let hint = "hint: `rmlx chat` works in a terminal";
    if !has("DISPLAY") && !has("WAYLAND_DISPLAY") {
        return Err(format!("there is no display for a window\n{hint}"));
    }
    gtk::init().map_err(|_| format!("the display for a window cannot be used\n{hint}"))
}

pub fn start<R: Runtime>(_: &AppHandle<R>) {}

pub fn window_shown<R: Runtime>(_: &AppHandle<R>) {}

pub fn window_hidden<R: Runtime>(_: &AppHandle<R>) {}

/// Calls `there` whenever a place for icons comes or goes, from a thread of its own; first of all when there is one now.
pub fn watch_tray_host(there: impl Fn(bool) + Send + 'static) {
    thread::spawn(move || {
        if let Err(error) = watch(&there) {
            tracing::warn!("no menu-bar icon: the session bus cannot be used: {error}");
            there(false);
        }
    });
}

fn watch(there: &dyn Fn(bool)) -> zbus::Result<()> {
    let connection = Connection::session()?;
    let bus = DBusProxy::new(&connection)?;
    // Asked for before looking, so that no change falls between.
    let changes = bus.receive_name_owner_changed_with_args(&[(0, TRAY_HOST)])?;
    let now = bus.name_has_owner(BusName::try_from(TRAY_HOST)?)?;
    if now {
        there(true);
    } else {
        tracing::info!("no menu-bar icon: this desktop has no place for one");
    }
    for change in changes {
        there(change.args()?.new_owner().is_some());
    }
    Ok(())
}

/// Keys are caught through X11. Wayland has no such thing: its windows hear only the keys that are meant for them.
pub fn no_global_keys() -> Option<&'static str> {
    let wayland = has("WAYLAND_DISPLAY") || env::var_os("XDG_SESSION_TYPE").is_some_and(|kind| kind == "wayland");
    if wayland {
        Some("Wayland lets no application catch keys everywhere; bind a key to `rmlx-app` in the desktop's own settings")
    } else if !has("DISPLAY") {
        Some("there is no X11 display")
    } else {
        None
    }
}
