//! What is there again after the app ended, by itself or by force.

use crate::app::App;
use crate::desk::Desk;
use crate::page::Page;
use crate::screen::shot;
use crate::wait::{ANSWER, SOON, until, until_true};

#[test]
fn conversations_outlive_the_app() {
    let desk = Desk::new("restart");
    let mut app = App::start(&desk, &[]);
    let page = Page::open(&desk, &mut app);
    page.ask("What is the capital of France?");
    page.wait_for_end();
    let answers = page.answers();
    page.click("button", "New conversation");
    page.ask("Name one planet.");
    until_true("the second conversation", ANSWER, || page.titles().len() == 2);
    page.wait_for_end();
    let titles = page.titles();
    drop(page);
    app.quit(&desk);

    let mut app = App::start(&desk, &[]);
    let page = Page::open(&desk, &mut app);
    until_true("the list is as it was", SOON, || page.titles() == titles);
    let title = titles.iter().find(|title| title.contains("France")).expect("a title from the question").clone();
    page.click("button", &title);
    until_true("the answer is as it was", SOON, || page.answers() == answers);
    shot("restarted");

    // Search looks into what was said, not only at titles.
    page.keys("searchbox", "Search conversations", "Paris");
    until_true("only what has the word", SOON, || page.titles() == [title.clone()]);
    shot("search");
    page.keys("searchbox", "Search conversations", "\u{E00C}");
    until_true("all of them again", SOON, || page.titles().len() == 2);

    page.click("button", &format!("Rename “{title}”"));
    // What was there is selected.
    page.keys("textbox", "Title", "Capitals");
    page.enter("textbox", "Title");
    until_true("the new name", SOON, || page.titles().contains(&"Capitals".to_owned()));

    page.click("button", "Delete “Capitals”");
    until_true("it is gone", SOON, || page.titles().len() == 1);
    page.wait_for_text("“Capitals” was deleted.");
    page.click("button", "Undo");
    until_true("it is back", SOON, || page.titles().contains(&"Capitals".to_owned()));
    page.click("button", "Capitals");
    until_true("with all that was said", SOON, || page.answers() == answers);
    drop(page);
    app.quit(&desk);
}

#[test]
fn a_killed_app_loses_only_the_rest_of_the_answer() {
    let desk = Desk::new("killed");
    let mut app = App::start(&desk, &[]);
    let page = Page::open(&desk, &mut app);
    page.ask("What is the capital of France?");
    page.wait_for_end();
    let first = page.answers();
    desk.settings("[chat]\ntemperature = 0.0\nmax_tokens = 600\n");
    page.ask("Write a long story about the sea.");
    // What is kept is written now and then: wait until a good deal must have been.
    let shown = until("half an answer", ANSWER, || page.answers().get(1).filter(|text| text.len() > 300).cloned());
    drop(page);
    app.kill(&desk);

    desk.settings("[chat]\ntemperature = 0.0\nmax_tokens = 24\n");
    let mut app = App::start(&desk, &[]);
    let page = Page::open(&desk, &mut app);
    page.click("button", &until("the list", SOON, || page.titles().pop()));
    page.wait_for_text("This answer is unfinished");
    assert_eq!(page.questions(), ["What is the capital of France?", "Write a long story about the sea."]);
    let answers = page.answers();
    assert_eq!(answers.len(), 2);
    assert_eq!(answers[0], first[0]);
    let common = answers[1].chars().zip(shown.chars()).take_while(|(a, b)| a == b).count();
    assert!(common > 100, "saved: {:?}\nshown: {shown:?}", answers[1]);
    shot("cut-off");

    page.ask("What is the capital of Italy?");
    until_true("the next answer", ANSWER, || page.answers().len() == 3 && !page.all("button", "Send").is_empty());
    drop(page);
    app.quit(&desk);
}
