//! The X display: windows, keys, pictures.

use std::env;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use crate::wait::{SOON, until};

fn xdotool(arguments: &[&str]) -> Output {
    Command::new("xdotool").args(arguments).output().expect("xdotool runs")
}

/// The app's windows that can be seen.
pub fn windows() -> Vec<String> {
    let found = xdotool(&["search", "--onlyvisible", "--name", "^rMLX$"]);
    String::from_utf8_lossy(&found.stdout).split_whitespace().map(Into::into).collect()
}

/// The app's one window, once it can be seen.
pub fn window() -> String {
    until("the window appears", SOON, || {
        let mut all = windows();
        (all.len() == 1).then(|| all.remove(0))
    })
}

/// Brings the window to the front, with the keyboard.
pub fn focus(window: &str) {
    xdotool(&["windowactivate", "--sync", window]);
}

/// As its close button does.
pub fn close(window: &str) {
    // `windowclose` would destroy it from outside; a window manager asks.
    let active = xdotool(&["windowactivate", "--sync", window, "key", "--clearmodifiers", "alt+F4"]);
    assert!(active.status.success(), "{active:?}");
}

/// To whatever has the keyboard, through the X server, as real keys come.
pub fn key(keys: &str) {
    let pressed = xdotool(&["key", "--clearmodifiers", keys]);
    assert!(pressed.status.success(), "{pressed:?}");
}

/// Turns the wheel over the middle of a window.
pub fn wheel(window: &str, notches: u32, up: bool) {
    let button = if up { "4" } else { "5" };
    let place = xdotool(&["mousemove", "--window", window, "560", "300"]);
    assert!(place.status.success(), "{place:?}");
    let turned = xdotool(&["click", "--repeat", &notches.to_string(), "--delay", "10", button]);
    assert!(turned.status.success(), "{turned:?}");
}

pub fn write(text: &str) {
    let typed = xdotool(&["type", "--delay", "15", text]);
    assert!(typed.status.success(), "{typed:?}");
}

/// A picture of the whole screen. WebDriver's own command for it hangs here.
pub fn keep(path: &Path) {
    import(path, &[]);
}

fn import(path: &Path, more: &[&str]) {
    let _ = Command::new("import").args(["-window", "root"]).args(more).arg(path).output();
}

/// The same without the empty rest of the screen, into the folder of `RMLX_E2E_SHOTS`, if there is one.
pub fn shot(name: &str) {
    if let Some(folder) = env::var_os("RMLX_E2E_SHOTS") {
        // Only for the eye: what the page has is on its way to the screen.
        thread::sleep(Duration::from_millis(400));
        import(&Path::new(&folder).join(name).with_extension("png"), &["-trim", "+repage"]);
    }
}

/// The decoded picture of a file, to compare two by; `None` for a file that is not there (any more).
pub fn pixels(path: &Path) -> Option<Vec<u8>> {
    let out = Command::new("convert").arg(path).args(["-depth", "8", "rgba:-"]).output().expect("convert runs");
    out.status.success().then_some(out.stdout)
}
