//! A model from a hub of our own: planned, fetched, paused, found again after the app ended, by itself and by force, and chatted with.

use std::path::Path;
use std::time::Duration;

use crate::app::App;
use crate::desk::{Desk, variable};
use crate::hub::{Hub, Repository};
use crate::page::Page;
use crate::screen::{close, shot, window, windows};
use crate::wait::{ANSWER, SOON, stays, until_true};

const REPO: &str = "local/Starter";
const WEIGHTS: &str = "model.safetensors";

/// The hub, and how many bytes of weights it has.
fn hub() -> (Hub, u64) {
    let hub = Hub::start();
    let repository = Repository::from_folder(REPO, Path::new(&variable("RMLX_E2E_MODEL"))).expect("the model's files");
    let weights = repository.file(WEIGHTS).size;
    hub.add(repository);
    (hub, weights)
}

fn start(desk: &Desk, hub: &Hub) -> (App, Page) {
    let mut app = App::start_with(desk, &[], &[("HF_ENDPOINT", &hub.endpoint)]);
    let page = Page::open(desk, &mut app);
    (app, page)
}

fn sent(hub: &Hub) -> u64 {
    hub.sent().get(WEIGHTS).copied().unwrap_or(0)
}

/// Waits until the hub has sent so many bytes of the weights, in all.
fn wait_for(hub: &Hub, bytes: u64) {
    until_true("the weights come", ANSWER, || sent(hub) >= bytes);
}

fn open_models(page: &Page) {
    page.click("button", "Models*");
    page.wait_for_text("Get a model");
}

/// Opens the plan.
fn look_at(page: &Page) {
    page.keys("searchbox", "Search Hugging Face, or name a repository", &format!("{REPO}\u{E007}"));
    page.wait_for_text("stay free");
}

fn named(action: &str) -> String {
    format!("{action}: {REPO}")
}

#[test]
fn a_model_is_fetched_across_restarts_and_answers() {
    let (hub, weights) = hub();
    // About ten seconds for all of it, over however many connections.
    hub.pace(weights / 40);
    let desk = Desk::new("download");
    let (app, page) = start(&desk, &hub);
    page.wait_for_text("You are talking to the demo");
    shot("first-run");
    open_models(&page);
    let before = sent(&hub);
    look_at(&page);
    shot("plan");
    assert_eq!(sent(&hub), before, "weights come before anybody wanted them");
    page.click("button", "Download");
    wait_for(&hub, weights / 8);
    page.wait_for_text("/s");
    shot("downloading");

    // The demo answers meanwhile.
    page.click("button", "Back to the conversation");
    page.ask("What is the capital of France?");
    page.wait_for_end();
    assert!(page.answers()[0].contains("Paris"));
    open_models(&page);
    page.click("button", &named("Pause"));
    page.wait_for_text("Paused at");
    let paused = sent(&hub);
    shot("paused");
    drop(page);
    app.quit(&desk);
    // What was in the sockets may have been counted a moment later.
    assert!(sent(&hub) <= paused + weights / 8, "it goes on while it is paused");
    assert!(paused < weights, "too quick for this test");

    let (app, page) = start(&desk, &hub);
    open_models(&page);
    page.wait_for_text("Paused at");
    let resumed = sent(&hub);
    page.click("button", &named("Resume"));
    wait_for(&hub, resumed + weights / 10);
    drop(page);
    app.kill(&desk);

    let (app, page) = start(&desk, &hub);
    open_models(&page);
    page.wait_for_text("Paused at");
    shot("after-kill");
    hub.pace(0);
    page.click("button", &named("Resume"));
    page.wait_for_text_within("Ready", ANSWER);
    shot("ready");
    // Each part begins again at most with the block that it was in.
    let all = sent(&hub);
    assert!(all < weights + weights / 4, "{all} bytes were sent of {weights}");

    page.click("button", &named("Use in chat"));
    page.get("button", &format!("Model: {REPO}"));
    page.click("button", "New conversation");
    page.ask("What is the capital of France?");
    page.wait_for_end();
    assert!(page.answers()[0].contains("Paris"), "{:?}", page.answers());
    until_true("the answer names its model", SOON, || page.says(REPO));
    shot("answered");
    let list = desk.run(desk.rmlx(&["list"]));
    assert!(String::from_utf8_lossy(&list.stdout).contains(REPO), "{list:?}");

    // Checked and removed, by the same names.
    open_models(&page);
    page.click("button", &named("Check files"));
    page.wait_for_text_within("files are right", ANSWER);
    page.click("button", &named("Remove"));
    page.wait_for_text(&format!("Remove {REPO}?"));
    page.click("button", "Remove");
    until_true("it is gone", SOON, || page.all("button", &named("Remove")).is_empty());
    let cache = desk.dir.join("home/.cache/huggingface/hub/models--local--Starter");
    until_true("its files too", SOON, || !cache.join("snapshots").exists());
    drop(page);
    app.quit(&desk);
}

#[test]
fn a_hub_that_is_away_is_waited_for() {
    let (hub, weights) = hub();
    hub.pace(weights / 40);
    let desk = Desk::new("offline");
    let (app, page) = start(&desk, &hub);
    open_models(&page);
    look_at(&page);
    page.click("button", "Download");
    wait_for(&hub, weights / 8);
    let port = hub.port();
    let state = hub.stop();
    page.wait_for_text("Waiting for the network; it goes on by itself");
    shot("waiting");
    let hub = Hub::with(state, port).expect("the same port");
    hub.pace(0);
    page.wait_for_text_within("Ready", ANSWER);
    drop(page);
    app.quit(&desk);
}

#[test]
fn a_closed_window_ends_no_download() {
    let (hub, weights) = hub();
    hub.pace(weights / 40);
    let desk = Desk::new("closed");
    let (mut app, page) = start(&desk, &hub);
    open_models(&page);
    look_at(&page);
    page.click("button", "Download");
    wait_for(&hub, weights / 8);
    drop(page);
    // Nothing could bring it back here, so without the download this would end the app.
    close(&window());
    until_true("the window is gone", SOON, || windows().is_empty());
    stays("the app goes on", Duration::from_secs(1), || app.ended().is_none());
    hub.pace(0);
    until_true("the app ends once the model is there", ANSWER, || app.ended().is_some());
    assert_eq!(app.end().code(), Some(0));
    let list = desk.run(desk.rmlx(&["list"]));
    assert!(String::from_utf8_lossy(&list.stdout).contains(REPO), "{list:?}");
}
