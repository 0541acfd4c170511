//! Asking, the answer as it is made, stopping, another version.

use std::collections::BTreeSet;

use crate::app::App;
use crate::desk::Desk;
use crate::page::Page;
use crate::screen::shot;
use crate::wait::{ANSWER, SOON, until, until_true};

#[test]
fn a_question_is_answered_before_the_users_eyes() {
    let desk = Desk::new("answer");
    let mut app = App::start(&desk, &[]);
    let page = Page::open(&desk, &mut app);
    shot("empty");
    page.watch();
    page.ask("What is the capital of France?");
    page.wait_for_end();

    let seen = page.seen();
    for stage in ["Loading Demo: offline, very small", "Loading weights:"] {
        assert!(seen.iter().any(|now| now.text.contains(stage)), "never seen: {stage}");
    }
    // The answer grew, and what stood there stayed: 24 tokens take about a second.
    let lengths: BTreeSet<_> = seen.iter().map(|now| now.answer.len()).filter(|length| *length > 0).collect();
    assert!(lengths.len() >= 4, "the answer came in {} pieces", lengths.len());
    let answers = page.answers();
    assert_eq!(answers.len(), 1);
    assert!(answers[0].contains("Paris"), "{answers:?}");
    assert_eq!(page.questions(), ["What is the capital of France?"]);
    let text = page.text();
    assert!(text.contains(" tokens/s"), "{text}");
    assert!(text.contains(" tokens"), "{text}");
    shot("answer");

    // The engine that answered is the one that other programs see: nothing of it was made up by the page.
    page.ask("And of Germany?");
    until_true("the second answer is complete", ANSWER, || page.answers().len() == 2 && !page.all("button", "Send").is_empty());
    assert_eq!(page.answers()[0], answers[0]);
    drop(page);
    app.quit(&desk);
}

#[test]
fn a_stopped_answer_stays_and_retry_makes_another_version() {
    let desk = Desk::new("stop");
    desk.settings("[chat]\ntemperature = 0.0\nmax_tokens = 400\n");
    let mut app = App::start(&desk, &[]);
    let page = Page::open(&desk, &mut app);
    let begun = |more_than: usize| {
        until("the answer begins", ANSWER, || page.answers().pop().filter(|text| text.len() > more_than));
    };
    page.ask("Write a long story about the sea.");
    begun(60);
    page.click("button", "Stop");
    page.wait_for_text("You stopped this answer.");
    let stopped = page.answers();
    assert_eq!(stopped.len(), 1);
    assert!(stopped[0].len() > 60, "{stopped:?}");
    shot("stopped");

    page.click("button", "Retry");
    until_true("the old version is out of the way", SOON, || page.answers() != stopped);
    begun(20);
    // Esc in the field stops as well.
    page.write("\u{E00C}");
    page.wait_for_text("2 of 2");
    assert!(page.says("You stopped this answer."));
    let second = page.answers();
    assert_eq!(second.len(), 1);
    assert!(!second[0].is_empty());

    page.click("button", "Previous version");
    page.wait_for_text("1 of 2");
    assert_eq!(page.answers(), stopped);
    page.click("button", "Next version");
    page.wait_for_text("2 of 2");
    assert_eq!(page.answers(), second);
    drop(page);
    app.quit(&desk);
}
