//! Where rMLX keeps its state. Nothing is created here; whoever writes creates its folder.

use std::env;
use std::path::{Path, PathBuf};

/// The state folder: `RMLX_HOME`, else the platform's place for an application's data.
pub fn home() -> PathBuf {
    if let Some(home) = env::var_os("RMLX_HOME").filter(|h| !h.is_empty()) {
        return home.into();
    }
    // Services may run without HOME; the system knows the user's folder nevertheless. What others write to is no place for a state.
    let user = env::home_dir().unwrap_or_else(env::temp_dir);
    if cfg!(target_os = "macos") {
        user.join("Library/Application Support/rMLX")
    } else {
        env::var_os("XDG_DATA_HOME")
            .filter(|d| !d.is_empty())
            .map_or_else(|| user.join(".local/share"), PathBuf::from)
            .join("rmlx")
    }
}

/// Snapshots that rMLX itself wrote (`rmlx import`).
pub fn models() -> PathBuf {
    models_of(&home())
}

pub fn models_of(home: &Path) -> PathBuf {
    home.join("models")
}

pub fn logs() -> PathBuf {
    home().join("logs")
}
