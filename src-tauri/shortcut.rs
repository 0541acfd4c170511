//! The global shortcut: shows and hides the window from any application.

use std::sync::Mutex;

use rmlx_engine::error::{Error, Result};
use tauri::{AppHandle, Manager, Runtime};
use tauri_plugin_global_shortcut::{GlobalShortcut, Shortcut as Keys, ShortcutEvent, ShortcutState};

use crate::app::{self, lock};
use crate::{platform, window};

#[derive(Default)]
pub struct Shortcut {
    /// What is registered now.
    keys: Mutex<Option<Keys>>,
    problem: Mutex<Option<String>>,
}

impl Shortcut {
    /// Why the shortcut of the settings does not work.
    pub fn problem(&self) -> Option<String> {
        lock(&self.problem).clone()
    }
}

/// Refuses what is no shortcut; whether it can be had shows only when it is registered. An empty one is none.
pub fn check(text: &str) -> Result<Option<Keys>> {
    if text.is_empty() {
        return Ok(None);
    }
    let keys: Keys = text.parse().map_err(|error| Error::BadRequest(format!("not a shortcut: {text}: {error}")))?;
    if keys.mods.is_empty() {
        return Err(Error::BadRequest(format!(
            "a shortcut without a modifier would take the key from every application: {text}\nhint: CmdOrCtrl+Shift+Space, for example"
        )));
    }
    // Copy, paste and their kind; on a Mac, Option with a letter is a character.
    let name = keys.key.to_string();
    if keys.mods.iter().count() < 2 && (name.starts_with("Key") || name.starts_with("Digit")) {
        return Err(Error::BadRequest(format!(
            "a letter or digit with one modifier would be lost to every application: {text}\nhint: add Shift, Alt or Ctrl"
        )));
    }
    Ok(Some(keys))
}

/// Registers what the settings say. What stands in the way is kept for [`Shortcut::problem`].
pub fn follow_settings<R: Runtime>(app: &AppHandle<R>) {
    // Without the plugin there is no event loop that keys could come from.
    let Some(plugin) = app.try_state::<GlobalShortcut<R>>() else { return };
    let state = app::state(app);
    let mut keys = lock(&state.shortcut.keys);
    if let Some(old) = keys.take()
        && let Err(error) = plugin.unregister(old)
    {
        tracing::warn!("the old shortcut could not be given back: {error}");
    }
    let registered = wanted(&state).and_then(|wanted| match wanted {
        Some((text, new)) => register(&plugin, new).map_err(|why| format!("{text} {why}")).map(|()| Some(new)),
        None => Ok(None),
    });
    let problem = match registered {
        Ok(new) => {
            *keys = new;
            None
        }
        Err(problem) => {
            tracing::warn!("the global shortcut does not work: {problem}");
            Some(problem)
        }
    };
    *lock(&state.shortcut.problem) = problem;
}

fn wanted(state: &app::State) -> std::result::Result<Option<(String, Keys)>, String> {
    let settings = state.engine().and_then(|engine| engine.settings()).map_err(|error| error.to_string())?;
    let keys = check(&settings.shortcut).map_err(|error| error.to_string())?;
    Ok(keys.map(|keys| (settings.shortcut, keys)))
}

fn register<R: Runtime>(plugin: &GlobalShortcut<R>, keys: Keys) -> std::result::Result<(), String> {
    if let Some(problem) = platform::no_global_keys() {
        return Err(format!("cannot work: {problem}"));
    }
    plugin.register(keys).map_err(|error| {
        tracing::warn!("the shortcut could not be registered: {error}");
        "could not be had, probably because another application has it\nhint: choose another one in the settings".into()
    })
}

pub fn on_press<R: Runtime>(app: &AppHandle<R>, _: &Keys, event: ShortcutEvent) {
    if event.state == ShortcutState::Pressed {
        window::toggle(app);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortcuts_are_read_and_nonsense_is_refused() {
        assert!(check("").unwrap().is_none());
        for right in ["CmdOrCtrl+Shift+Space", "Alt+Space", "Ctrl+Alt+K", "Super+F5"] {
            assert!(check(right).unwrap().is_some(), "{right}");
        }
        for wrong in ["Space", "Ctrl+", "Ctrl+Nonsense", "Ctrl+Shift", "ü", "CmdOrCtrl+C", "Alt+2"] {
            let error = check(wrong).unwrap_err();
            assert_eq!(error.code(), "invalid_request", "{wrong}");
            assert!(error.to_string().contains(wrong), "{error}");
        }
    }
}
