//! The endpoint's switch in Settings.

use std::net::{Ipv4Addr, TcpListener};

use serde_json::{Value, json};

use crate::app::{App, free_port};
use crate::desk::{Desk, model};
use crate::http::{health, request};
use crate::page::Page;
use crate::screen::shot;
use crate::wait::{SOON, until, until_true};

const SWITCH: &str = "Answer other programs on this machine";

fn settings(port: u16) -> String {
    format!("[chat]\ntemperature = 0.0\nmax_tokens = 24\n[endpoint]\nport = {port}\n")
}

#[test]
fn the_switch_opens_and_closes_the_endpoint() {
    let desk = Desk::new("endpoint");
    let port = free_port();
    desk.settings(&settings(port));
    let mut app = App::start(&desk, &[]);
    let page = Page::open(&desk, &mut app);
    assert!(!health(port), "off is the default");
    page.click("button", "Settings");
    page.click("switch", SWITCH);
    page.wait_for_text(&format!("http://127.0.0.1:{port}/v1"));
    page.show("switch", SWITCH);
    shot("endpoint-on");

    let question = json!({
        "model": model(),
        "messages": [{ "role": "user", "content": "What is the capital of France?" }],
        "temperature": 0,
        "max_tokens": 12,
    });
    let (status, body) = request(port, "POST", "/v1/chat/completions", Some(&question)).expect("somebody listens");
    assert_eq!(status, 200, "{body}");
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert!(answer["choices"][0]["message"]["content"].as_str().unwrap().contains("Paris"), "{answer}");
    assert!(answer["usage"]["completion_tokens"].as_u64().unwrap() <= 12, "{answer}");

    // The choice is a setting.
    drop(page);
    app.quit(&desk);
    assert!(!health(port));
    let mut app = App::start(&desk, &[]);
    until_true("the endpoint is on again", SOON, || health(port));

    let page = Page::open(&desk, &mut app);
    page.click("button", "Settings");
    page.click("switch", SWITCH);
    until_true("nobody listens any more", SOON, || !health(port));
    drop(page);
    app.quit(&desk);
    let mut app = App::start(&desk, &[]);
    drop(Page::open(&desk, &mut app));
    assert!(!health(port), "off is kept too");
    app.quit(&desk);
}

#[test]
fn a_port_that_is_taken_is_named_with_its_owner() {
    let desk = Desk::new("port");
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    desk.settings(&settings(port));
    let mut app = App::start(&desk, &[]);
    let page = Page::open(&desk, &mut app);
    page.click("button", "Settings");
    page.click("switch", SWITCH);
    page.wait_for_text("The endpoint could not start");
    let text = page.text();
    assert!(text.contains(&port.to_string()), "{text}");
    assert!(text.contains(&std::process::id().to_string()), "names the owner, which is this test: {text}");
    page.show("switch", SWITCH);
    shot("port-taken");

    page.click("button", "Use port *");
    let other = until("another port", SOON, || {
        let text = page.text();
        let url = text.split("http://127.0.0.1:").nth(1)?;
        url.split('/').next()?.parse::<u16>().ok()
    });
    assert_ne!(other, port);
    assert!(health(other));
    drop(page);
    app.quit(&desk);
}
