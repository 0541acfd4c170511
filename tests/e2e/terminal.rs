//! One engine per machine: a terminal uses the app's.

use std::str::from_utf8;

use crate::app::App;
use crate::desk::{Desk, model};
use crate::page::Page;
use crate::wait::{ANSWER, until_true};

#[test]
fn a_terminal_uses_the_engine_of_the_app() {
    let desk = Desk::new("terminal");
    let mut app = App::start(&desk, &[]);
    let page = Page::open(&desk, &mut app);
    page.ask("What is the capital of France?");
    page.wait_for_end();

    let model = model();
    let question = ["run", &model, "What is the capital of France?", "--temperature", "0", "--max-tokens", "12"];
    let attached = desk.run(desk.rmlx(&question));
    let (text, said) = (from_utf8(&attached.stdout).unwrap(), from_utf8(&attached.stderr).unwrap());
    assert!(attached.status.success(), "{said}");
    assert!(text.contains("Paris"), "{text}");
    assert!(said.contains("the rMLX that is running"), "{said}");
    assert!(said.contains(&format!("process {}", app.pid())), "{said}");

    let refused = desk.run(desk.rmlx(&[&question[..], &["--no-attach"]].concat()));
    assert_eq!(refused.status.code(), Some(11), "{}", from_utf8(&refused.stderr).unwrap());
    assert!(from_utf8(&refused.stderr).unwrap().contains("hint:"));

    // The window goes on as if nothing had happened.
    page.ask("And of Italy?");
    until_true("the window's next answer", ANSWER, || page.answers().len() == 2 && !page.all("button", "Send").is_empty());
    drop(page);
    app.quit(&desk);

    // The control: with nobody else there, the same command computes for itself and says nothing of another.
    let alone = desk.run(desk.rmlx(&[&question[..], &["--no-attach"]].concat()));
    assert!(alone.status.success(), "{alone:?}");
    assert!(!from_utf8(&alone.stderr).unwrap().contains("is running"));
}
