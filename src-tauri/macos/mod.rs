//! What macOS does in its own way.

use tauri::{ActivationPolicy, AppHandle, Runtime};

pub fn display() -> Result<(), String> {
    Ok(())
}

pub fn start<R: Runtime>(app: &AppHandle<R>) {
    set_policy(app, ActivationPolicy::Accessory);
}

/// With a window the app has a Dock icon and a menu bar; without one it is in the menu bar's right part alone.
pub fn window_shown<R: Runtime>(app: &AppHandle<R>) {
    set_policy(app, ActivationPolicy::Regular);
}

pub fn window_hidden<R: Runtime>(app: &AppHandle<R>) {
    set_policy(app, ActivationPolicy::Accessory);
}

fn set_policy<R: Runtime>(app: &AppHandle<R>, policy: ActivationPolicy) {
    if let Err(error) = app.set_activation_policy(policy) {
        tracing::warn!("the Dock icon could not be shown or hidden: {error}");
    }
}

pub fn watch_tray_host(there: impl Fn(bool) + Send + 'static) {
    there(true);
}

pub fn no_global_keys() -> Option<&'static str> {
    None
}
