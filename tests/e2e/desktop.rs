//! The app among other programs: its icon, the shortcut, a second start, closing.

use std::time::Duration;

use crate::app::{App, all_gone, free_port};
use crate::desk::{Desk, model};
use crate::http::health;
use crate::page::Page;
use crate::screen::{close, focus, key, shot, window, windows};
use crate::tray::TrayHost;
use crate::wait::{ANSWER, SOON, stays, until_true};

const WEB: &str = "WebKitWebProcess";
/// Long enough for a window that should not come, to come.
const MOMENT: Duration = Duration::from_millis(1500);
const SHORTCUT: &str = "ctrl+shift+space";

fn gone() {
    until_true("the window is hidden", SOON, || windows().is_empty());
}

#[test]
fn the_icon_and_its_menu_show_and_control_the_app() {
    let desk = Desk::new("tray");
    let port = free_port();
    desk.settings(&format!("[chat]\ntemperature = 0.0\nmax_tokens = 400\n[endpoint]\nport = {port}\n"));
    let mut tray = TrayHost::start(&desk);
    let mut app = App::start(&desk, &["--hidden"]);
    tray.wait_for_item();
    tray.wait_for_state("idle", SOON);
    stays("no window, as it was asked to start hidden", MOMENT, || windows().is_empty());
    assert_eq!(desk.count(WEB), 0, "what is not shown takes no memory");
    assert!(!tray.item("No model").enabled, "a line to read, not to click");

    tray.click("Show");
    window();
    let page = Page::open(&desk, &mut app);
    page.ask("Write a long story about the sea.");
    tray.wait_for_state("busy", ANSWER);
    until_true("the menu says what is running", SOON, || tray.menu().iter().any(|item| item.label == "1 answer running"));
    assert_eq!(tray.item(&model()).label, model());
    page.click("button", "Stop");
    tray.wait_for_state("idle", SOON);
    tray.item("No answers running");

    assert_eq!(tray.item("Endpoint").checked, Some(false));
    tray.click("Endpoint");
    until_true("the endpoint answers", SOON, || health(port));
    let on = format!("Endpoint: http://127.0.0.1:{port}");
    until_true("the menu says where", SOON, || tray.menu().iter().any(|item| item.label == on && item.checked == Some(true)));
    tray.click("Endpoint");
    until_true("nobody listens", SOON, || !health(port));
    until_true("the menu says so", SOON, || tray.item("Endpoint").checked == Some(false));

    drop(page);
    tray.click("Quit");
    assert_eq!(app.end().code(), Some(0));
    all_gone(&desk);
}

#[test]
fn the_shortcut_and_a_second_start_show_the_window() {
    let desk = Desk::new("shortcut");
    let tray = TrayHost::start(&desk);
    let mut app = App::start(&desk, &["--hidden"]);
    tray.wait_for_item();
    stays("hidden", MOMENT, || windows().is_empty());

    key(SHORTCUT);
    focus(&window());
    shot("shortcut");
    key(SHORTCUT);
    gone();

    let mut second = App::start(&desk, &["--hidden"]);
    assert_eq!(second.end().code(), Some(0), "one app is enough");
    stays("a hidden second start shows nothing", MOMENT, || windows().is_empty());
    let mut third = App::start(&desk, &[]);
    assert_eq!(third.end().code(), Some(0));
    focus(&window());

    // Another one is recorded in Settings; it works at once and the old one does not any more.
    let page = Page::open(&desk, &mut app);
    page.click("button", "Settings");
    page.click("button", "Record a shortcut*");
    page.get("button", "Press keys…");
    key("ctrl+alt+k");
    page.get("button", "Record a shortcut; now: Ctrl+Alt+K");
    assert!(!page.says("The shortcut does not work"));
    drop(page);
    key(SHORTCUT);
    stays("the old shortcut is free", MOMENT, || !windows().is_empty());
    key("ctrl+alt+k");
    gone();
    key("ctrl+alt+k");
    window();
    app.quit(&desk);
}

#[test]
fn a_closed_window_gives_its_memory_back_and_returns_as_it_was() {
    let desk = Desk::new("release");
    let mut tray = TrayHost::start(&desk);
    let mut app = App::start_with(&desk, &[], &[("RMLX_TEST_RELEASE_MS", "1500")]);
    tray.wait_for_item();
    let page = Page::open(&desk, &mut app);
    page.write("half a thought");
    drop(page);
    close(&window());
    gone();
    assert!(desk.count(WEB) > 0, "at first it only hides");
    until_true("its page is released", SOON, || desk.count(WEB) == 0);
    assert!(app.ended().is_none(), "the app goes on");

    tray.click("Show");
    window();
    let page = Page::open(&desk, &mut app);
    until_true("what was typed is there", SOON, || page.draft() == "half a thought");
    shot("returned");

    // Shown again in time, it was never released.
    drop(page);
    close(&window());
    gone();
    let web: Vec<_> = desk.processes().into_iter().filter(|process| process.name == WEB).collect();
    tray.click("Show");
    window();
    stays("the same page as before", Duration::from_millis(2500), || {
        !windows().is_empty() && web.iter().all(|process| desk.processes().contains(process))
    });
    app.quit(&desk);
}

#[test]
fn without_a_place_for_icons_it_is_a_normal_window() {
    let desk = Desk::new("no-tray");
    let mut app = App::start(&desk, &[]);
    let page = Page::open(&desk, &mut app);
    page.click("button", "Settings");
    page.wait_for_text("This desktop has no place for a menu-bar icon");
    drop(page);
    close(&window());
    assert_eq!(app.end().code(), Some(0), "closing ends it");
    all_gone(&desk);

    // With an answer in the making, closing lets it end first.
    desk.settings("[chat]\ntemperature = 0.0\nmax_tokens = 60\n");
    let mut app = App::start(&desk, &[]);
    let page = Page::open(&desk, &mut app);
    page.ask("Write a long story about the sea.");
    until_true("the answer begins", ANSWER, || page.answers().pop().is_some_and(|text| text.len() > 20));
    drop(page);
    close(&window());
    gone();
    assert!(app.ended().is_none(), "not before the answer is there");
    until_true("the app ends by itself", ANSWER, || app.ended().is_some());
    assert_eq!(app.end().code(), Some(0));
    let mut app = App::start(&desk, &[]);
    let page = Page::open(&desk, &mut app);
    let title = page.titles().pop().expect("the conversation");
    page.click("button", &title);
    page.wait_for_text("reached the limit of tokens");
    drop(page);

    // A panel may start later than the app, and go before it.
    let mut tray = TrayHost::start(&desk);
    tray.wait_for_item();
    close(&window());
    gone();
    stays("now the icon can bring it back", MOMENT, || app.ended().is_none());
    tray.click("Show");
    let shown = window();
    tray.leave();
    until_true("the app knows", SOON, || desk.logged("the place for the menu-bar icon is gone"));
    close(&shown);
    assert_eq!(app.end().code(), Some(0));
    all_gone(&desk);
}
