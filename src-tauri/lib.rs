//! The app: a thin shell around the engine. Windows, the menu-bar icon, the page's commands; nothing that the command line lacks.

mod app;
mod endpoint;
mod ipc;
#[cfg_attr(target_os = "macos", path = "macos/mod.rs")]
#[cfg_attr(not(target_os = "macos"), path = "linux/mod.rs")]
mod platform;
mod shortcut;
mod tray;
mod window;

pub use app::{configure, run, start};
