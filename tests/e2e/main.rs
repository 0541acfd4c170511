//! The real window: the app's own binary, the real engine, the starter model, on a private X server and a private session bus.
//!
//! `scripts/e2e` runs all of it, `scripts/e2e NAME` the tests whose name has NAME. To look at the screen: `RMLX_E2E_SHOTS=folder`
//! takes pictures on the way, and with `RMLX_E2E_DISPLAY=:1` the windows appear on that display (of a nested server, say) instead
//! of a private one. What a failed test left, logs of every process among it, is in the folder that the last line names;
//! `RMLX_E2E_KEEP=1` keeps it of all tests.
//!
//! Each test has a [`desk::Desk`]: folders, a bus and processes of its own. The page is driven over WebDriver ([`page::Page`]), by
//! the names that a screen reader says; the desktop by [`tray::TrayHost`] and [`screen`]. Nothing is waited for by time alone:
//! [`wait::until`] has a condition and a deadline.
#![cfg(target_os = "linux")]

mod app;
mod desk;
mod http;
#[path = "../../engine/tests/support/hub/mod.rs"]
mod hub;
mod page;
mod screen;
mod tray;
mod wait;

mod chat;
mod content;
mod desktop;
mod download;
mod endpoint;
mod figures;
mod keyboard;
mod long;
mod restart;
mod terminal;
