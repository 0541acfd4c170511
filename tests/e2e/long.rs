//! A conversation that is longer than what is rendered of it.

use rusqlite::{Connection, params};

use crate::app::App;
use crate::desk::Desk;
use crate::page::Page;
use crate::screen;
use crate::wait::{SOON, until_true};

/// Puts one there, of questions and answers in turns, as another process would.
fn write_conversation(desk: &Desk, title: &str, messages: i64) {
    assert!(desk.run(desk.rmlx(&["history", "list"])).status.success());
    let mut database = Connection::open(desk.dir.join("rmlx/conversations.db")).unwrap();
    let all = database.transaction().unwrap();
    let insert = "INSERT INTO conversations (title, named, model, created_ms, updated_ms) VALUES (?1, 1, 'm', 1, 1)";
    all.execute(insert, [title]).unwrap();
    let conversation = all.last_insert_rowid();
    let mut parent = None;
    for n in 0..messages {
        let answers = n % 2 == 1;
        let text = format!("Number {n}: *words* and $x^{n}$.\n\n- one\n- two\n\n{}", "Some more words. ".repeat(20));
        all.execute(
            "INSERT INTO messages (conversation, parent, role, content, created_ms, model, state) VALUES (?1, ?2, ?3, ?4, 1, ?5, ?6)",
            params![
                conversation,
                parent,
                if answers { "assistant" } else { "user" },
                text,
                answers.then_some("m"),
                answers.then_some("complete")
            ],
        )
        .unwrap();
        parent = Some(all.last_insert_rowid());
    }
    all.execute("UPDATE conversations SET leaf = ?1 WHERE id = ?2", params![parent, conversation]).unwrap();
    all.commit().unwrap();
}

#[test]
fn a_long_conversation_opens_at_its_end_and_goes_where_the_wheel_turns() {
    let desk = Desk::new("long");
    write_conversation(&desk, "Long", 2000);
    let mut app = App::start(&desk, &[]);
    let page = Page::open(&desk, &mut app);
    screen::focus(&screen::window());
    page.click("button", "Long");
    page.wait_for_text("Number 1999");
    let number = |what: &str| page.eval(&format!("const s = document.querySelector('section[tabindex]'); return {what}"), &[]);
    // The number of the first message that can be seen.
    let first = || {
        let text = number(
            "[...s.querySelectorAll('[data-message]')].find((m) => m.getBoundingClientRect().bottom > s.getBoundingClientRect().top).innerText",
        );
        let text = text.as_str().unwrap();
        let digits = text.split("Number ").nth(1).unwrap();
        digits[..digits.find(':').unwrap()].parse::<i64>().unwrap()
    };
    let whole = "s.clientHeight < innerHeight && s.clientHeight > innerHeight / 2";
    let at_end = "s.scrollTop + s.clientHeight >= s.scrollHeight - 2";
    until_true("it is shown from its end", SOON, || number(at_end) == true);
    assert!(first() > 1990, "{}", first());
    assert_eq!(number(whole), true);

    let mut above = first();
    // Past the messages that were rendered at first.
    while above > 1940 {
        screen::wheel(&screen::window(), 8, true);
        until_true("it moves up", SOON, || first() < above);
        assert!(first() > above - 20, "from {above} to {}", first());
        assert_eq!(number(whole), true);
        above = first();
    }
    // More than once: what the wheel was turned up may still be going on.
    until_true("it moves down", SOON, || {
        screen::wheel(&screen::window(), 8, false);
        first() > above
    });
    assert!(first() < above + 20);
    drop(page);
    app.quit(&desk);
}
