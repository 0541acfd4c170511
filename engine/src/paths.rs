//! Where rMLX keeps its state. Nothing is created here; whoever writes creates its folder.

use std::env;
use std::path::{Path, PathBuf};

/// The state folder: `RMLX_HOME`, else the platform's place for an application's data.
pub fn home() -> PathBuf {
    if let Some(home) = named("RMLX_HOME") {
        return home;
    }
    // Services may run without HOME; the system knows the user's folder nevertheless. What others write to is no place for a state.
    let user = env::home_dir().unwrap_or_else(env::temp_dir);
    if cfg!(target_os = "macos") {
        user.join("Library/Application Support/rMLX")
    } else {
        named("XDG_DATA_HOME").unwrap_or_else(|| user.join(".local/share")).join("rmlx")
    }
}

/// The folder of the hub's own tools: `HF_HOME`, else theirs among the user's caches.
pub fn hugging_face() -> PathBuf {
    let caches = || named("XDG_CACHE_HOME").unwrap_or_else(|| env::home_dir().unwrap_or_else(env::temp_dir).join(".cache"));
    named("HF_HOME").unwrap_or_else(|| caches().join("huggingface"))
}

/// A path that the environment names. Where no shell replaced the `~` in front it is done here, as the hub's own tools do; else a
/// folder of that name would appear wherever a program happens to run.
pub fn named(key: &str) -> Option<PathBuf> {
    let path = PathBuf::from(env::var_os(key).filter(|value| !value.is_empty())?);
    Some(without_tilde(path, env::home_dir()))
}

fn without_tilde(path: PathBuf, home: Option<PathBuf>) -> PathBuf {
    match (path.strip_prefix("~"), home) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_s_own_folder_is_meant_by_a_tilde() {
        let of = |path: &str| without_tilde(path.into(), Some("/home/me".into()));
        assert_eq!((of("~/hf/hub"), of("~")), ("/home/me/hf/hub".into(), "/home/me".into()));
        // Somebody else's folder, and names that only begin alike.
        for path in ["~you/hf", "~hf", "/a/~/b", "a/~", ""] {
            assert_eq!(of(path), Path::new(path));
        }
        assert_eq!(without_tilde("~/hf".into(), None), Path::new("~/hf"));
    }
}
