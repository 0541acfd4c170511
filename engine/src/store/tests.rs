use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use proptest::prelude::*;
use tempfile::{TempDir, tempdir};

use super::*;
use crate::api::{AnswerState, Ask, ErrorInfo, FinishReason, Finished, Role, Thread, Timings, Turn, Usage};

fn store() -> (TempDir, Store) {
    let folder = tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    (folder, store)
}

fn turn(conversation: Option<i64>, ask: Ask) -> Turn {
    Turn { conversation, model: "m".into(), ask }
}

fn new(text: &str) -> Ask {
    Ask::New { text: text.into() }
}

fn complete() -> Ending {
    let finished = Finished {
        reason: FinishReason::Stop,
        stop: None,
        usage: Usage { prompt_tokens: 3, completion_tokens: 2 },
        timings: Timings { total_ms: 0.1, ..Timings::default() },
        kv_bytes: 7,
    };
    Ending { state: AnswerState::Complete, finished: Some(finished), error: None }
}

fn began(store: &Store, conversation: Option<i64>, ask: Ask) -> Saved {
    let turn = turn(conversation, ask);
    store.begin(&store.place(&turn).unwrap(), &turn.model).unwrap()
}

fn answered(store: &Store, conversation: Option<i64>, ask: Ask, answer: &str) -> Saved {
    let saved = began(store, conversation, ask);
    store.end(saved, answer, &complete()).unwrap();
    saved
}

fn contents(thread: &Thread) -> Vec<&str> {
    thread.messages.iter().map(|m| m.content.as_str()).collect()
}

fn found(store: &Store, text: &str) -> Vec<(i64, String)> {
    store.search(text).unwrap().into_iter().map(|entry| (entry.id, entry.found.unwrap().snippet)).collect()
}

/// The ids alone.
fn finds(store: &Store, text: &str) -> Vec<i64> {
    found(store, text).into_iter().map(|(id, _)| id).collect()
}

#[test]
fn only_this_user_may_read_it() {
    let folder = tempdir().unwrap();
    let home = folder.path().join("a/b");
    let store = Store::open(&home).unwrap();
    answered(&store, None, new("x"), "y");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&home), mode(&Store::path(&home))), (0o700, 0o600));
    for entry in fs::read_dir(&home).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()), 0o600, "the log too");
    }
    let other = folder.path().join("other");
    fs::create_dir(&other).unwrap();
    std::os::unix::fs::symlink(folder.path().join("far.db"), Store::path(&other)).unwrap();
    Store::open(&other).unwrap();
    assert_eq!(mode(&folder.path().join("far.db")), 0o600, "where a link leads, too");
}

#[test]
fn nothing_is_saved_into_a_file_that_is_gone() {
    for replaced in [false, true] {
        let (folder, store) = store();
        let saved = answered(&store, None, new("q"), "a");
        let unfinished = began(&store, Some(saved.conversation), new("next"));
        fs::rename(Store::path(folder.path()), folder.path().join("moved.db")).unwrap();
        let other = replaced.then(|| Store::open(folder.path()).unwrap());
        for error in [
            store.rename(saved.conversation, "new").unwrap_err(),
            store.end(unfinished, "text", &complete()).unwrap_err(),
            store.begin(&store.place(&turn(None, new("x"))).unwrap(), "m").unwrap_err(),
        ] {
            assert!(error.code() == "store" && error.to_string().contains("start rMLX again"), "{error}");
        }
        assert!(other.is_none_or(|other| other.list().unwrap().is_empty()));
    }
}

#[test]
fn what_is_saved_comes_back() {
    let (folder, store) = store();
    let first = answered(&store, None, new("one"), "1");
    let second = began(&store, Some(first.conversation), new("two"));
    store.grow(second, "2, ").unwrap();
    assert_eq!(contents(&store.thread(first.conversation).unwrap()), ["one", "1", "two", "2, "]);
    let error = ErrorInfo { code: "mlx".into(), message: "no".into() };
    let ending = Ending { state: AnswerState::Failed, finished: None, error: Some(error.clone()) };
    store.end(second, "2, 3", &ending).unwrap();
    assert!(store.grow(second, "late").is_err() && store.end(second, "late", &complete()).is_err(), "an answer ends once");
    let thread = store.thread(first.conversation).unwrap();
    let answers: Vec<_> = thread.messages.iter().filter_map(|m| m.answer.clone()).collect();
    assert_eq!((answers[0].state, answers[0].finished.clone()), (AnswerState::Complete, complete().finished));
    assert_eq!((answers[1].state, answers[1].error.clone()), (AnswerState::Failed, Some(error)));
    drop(store);
    assert_eq!(Store::open(folder.path()).unwrap().thread(first.conversation).unwrap(), thread);
}

#[test]
fn titles_come_from_the_question_until_the_user_names_them() {
    let (_folder, store) = store();
    let long = "word ".repeat(30);
    for (question, title) in [
        ("Hello", "Hello".to_owned()),
        ("\n \n  Two\twords  \nmore", "Two words".into()),
        (long.as_str(), format!("{}…", "word ".repeat(12).trim_end())),
        (&"x".repeat(80), format!("{}…", "x".repeat(60))),
        (&"é".repeat(60), "é".repeat(60)),
        ("a\u{1b}[31mb", "a [31mb".into()),
    ] {
        let id = answered(&store, None, new(question), "a").conversation;
        assert_eq!(store.thread(id).unwrap().conversation.title, title, "{question:?}");
    }
    let saved = answered(&store, None, new("first"), "a");
    let question = store.thread(saved.conversation).unwrap().messages[0].id;
    let edit = |text: &str| Ask::Edit { message: question, text: text.into() };
    let title = || store.thread(saved.conversation).unwrap().conversation.title;
    answered(&store, Some(saved.conversation), edit("changed"), "a");
    assert_eq!(title(), "changed");
    answered(&store, Some(saved.conversation), new("later"), "a");
    assert_eq!(title(), "changed");
    store.rename(saved.conversation, " My\n title ").unwrap();
    answered(&store, Some(saved.conversation), edit("again"), "a");
    assert_eq!(title(), "My title");
    for wrong in ["", " \n", &"x".repeat(201)] {
        assert_eq!(store.rename(saved.conversation, wrong).unwrap_err().code(), "invalid_request");
    }
}

#[test]
fn the_list_is_newest_first() {
    let (_folder, store) = store();
    let ids: Vec<i64> = ["a", "b", "c"].iter().map(|text| answered(&store, None, new(text), "x").conversation).collect();
    let listed = || store.list().unwrap().iter().map(|entry| entry.id).collect::<Vec<_>>();
    assert_eq!(listed(), [ids[2], ids[1], ids[0]]);
    thread::sleep(Duration::from_millis(2));
    answered(&store, Some(ids[0]), new("again"), "x");
    store.rename(ids[1], "named").unwrap();
    assert_eq!(listed(), [ids[0], ids[2], ids[1]]);
}

#[test]
fn search_finds_words_parts_and_scripts_without_spaces() {
    let (_folder, store) = store();
    let cafe = answered(&store, None, new("Where is the Café?"), "On the corner of Straße 5.").conversation;
    let weather = answered(&store, None, new("今天天气怎么样"), "今天北京的天气很好。").conversation;
    let code = answered(&store, None, new("fix `let x = \"a\" OR b*`"), "100% of foo_bar(NEAR) is -fine- \\ok").conversation;
    let short = answered(&store, None, new("Go is ok"), "Цена: пять").conversation;
    for (text, ids) in [
        ("cafe", vec![cafe]),
        ("CAFÉ", vec![cafe]),
        ("cafe\u{301}", vec![cafe]),
        ("corn", vec![cafe]),
        ("orner", vec![cafe]),
        ("the corner", vec![cafe]),
        // Both words, but not in one message.
        ("cafe corner", vec![]),
        ("天气", vec![weather]),
        ("天", vec![weather]),
        ("天气很好", vec![weather]),
        ("北京的天气", vec![weather]),
        ("цена", vec![short]),
        ("GO", vec![short]),
        ("go is", vec![short]),
        ("is corner", vec![]),
        ("is cafe", vec![cafe]),
        // Of the index's own language, all of it plain text here.
        ("\"a\"", vec![code]),
        ("\"a\" OR", vec![code]),
        ("OR cafe", vec![]),
        ("foo*", vec![]),
        ("b*`", vec![code]),
        ("content:foo", vec![]),
        ("foo_bar(NEAR)", vec![code]),
        ("NEAR(", vec![]),
        ("-fine-", vec![code]),
        ("^fix", vec![]),
        ("100%", vec![code]),
        ("0%", vec![code]),
        ("%", vec![code]),
        ("_", vec![code]),
        ("\\", vec![code]),
        ("\"", vec![code]),
        ("'", vec![]),
        ("\"\"\"", vec![]),
        ("AND", vec![]),
        ("( ) \0 {", vec![]),
    ] {
        assert_eq!(finds(&store, text), ids, "{text:?}");
    }
    for everything in ["", "  ", "\0"] {
        assert_eq!(store.search(everything).unwrap(), store.list().unwrap());
    }
    assert_eq!(store.search(&"x".repeat(1001)).unwrap_err().code(), "invalid_request");
}

#[test]
fn snippets_mark_what_was_found() {
    let (_folder, store) = store();
    let long = format!("{} the needle\nis here {}", "before ".repeat(50), "after ".repeat(50));
    let id = answered(&store, None, new("q"), &long).conversation;
    for (text, marked) in [("needle", "\u{2}needle\u{3}"), ("NEEDLE", "\u{2}needle\u{3}"), ("he", "\u{2}he\u{3}"), ("天", "")] {
        match found(&store, text).as_slice() {
            [] => assert_eq!(marked, "", "{text}"),
            [(found, snippet)] => {
                assert_eq!(*found, id);
                assert!(snippet.contains(marked), "{text}: {snippet:?}");
                assert!(snippet.chars().count() < 200 && !snippet.contains('\n'), "{snippet:?}");
            }
            more => panic!("{more:?}"),
        }
    }
    let entry = &store.search("needle").unwrap()[0];
    let thread = store.thread(id).unwrap();
    assert_eq!(entry.found.as_ref().unwrap().message, Some(thread.messages[1].id));
    store.rename(id, "A needle in a title").unwrap();
    let entry = &store.search("needle").unwrap()[0];
    assert_eq!(
        (entry.found.as_ref().unwrap().message, entry.found.as_ref().unwrap().snippet.as_str()),
        (None, "A \u{2}needle\u{3} in a title")
    );
}

#[test]
fn search_follows_every_change() {
    let (_folder, store) = store();
    let saved = began(&store, None, new("question"));
    let id = saved.conversation;
    store.grow(saved, "half an answer").unwrap();
    assert_eq!(finds(&store, "half an"), [id], "also while it is made");
    store.end(saved, "whole answer", &complete()).unwrap();
    assert!(finds(&store, "half").is_empty());
    assert_eq!((finds(&store, "whole"), finds(&store, "wh")), (vec![id], vec![id]));
    // In a branch that is not selected.
    let question = store.thread(id).unwrap().messages[0].id;
    answered(&store, Some(id), Ask::Edit { message: question, text: "other".into() }, "another");
    assert_eq!(finds(&store, "whole"), [id]);
    store.rename(id, "Named").unwrap();
    assert_eq!(found(&store, "named")[0].1, "\u{2}Named\u{3}");
    store.delete(id).unwrap();
    for text in ["whole", "wh", "named", "na", "another"] {
        assert!(finds(&store, text).is_empty(), "{text}");
    }
    store.restore(id).unwrap();
    assert_eq!((finds(&store, "whole"), finds(&store, "wh")), (vec![id], vec![id]));
    store.db().execute_batch("INSERT INTO message_text (message_text, rank) VALUES ('integrity-check', 1)").unwrap();
}

#[test]
fn deleted_conversations_come_back_for_an_hour() {
    let (folder, store) = store();
    let kept = answered(&store, None, new("kept"), "kept answer").conversation;
    let gone = answered(&store, None, new("gone"), "a secret answer");
    for text in ["second", "third"] {
        answered(&store, Some(gone.conversation), new(text), "more");
    }
    store.delete(gone.conversation).unwrap();
    assert_eq!(store.delete(gone.conversation).unwrap_err().code(), "not_found");
    assert_eq!(store.rename(gone.conversation, "x").unwrap_err().code(), "not_found");
    assert_eq!(store.thread(gone.conversation).unwrap_err().code(), "not_found");
    assert_eq!(store.select(gone.conversation, gone.answer).unwrap_err().code(), "not_found");
    drop(store);
    let store = Store::open(folder.path()).unwrap();
    store.restore(gone.conversation).unwrap();
    assert_eq!(store.thread(gone.conversation).unwrap().messages.len(), 6);
    store.delete(gone.conversation).unwrap();
    let hour = 60 * 60 * 1000 + 1;
    store.db().execute("UPDATE conversations SET deleted_ms = deleted_ms - ?1", [hour]).unwrap();
    drop(store);
    let store = Store::open(folder.path()).unwrap();
    assert_eq!(store.restore(gone.conversation).unwrap_err().code(), "not_found");
    assert_eq!(store.list().unwrap().iter().map(|e| e.id).collect::<Vec<_>>(), [kept]);
    assert_eq!(contents(&store.thread(kept).unwrap()), ["kept", "kept answer"]);
    for name in ["conversations.db", "conversations.db-wal"] {
        let bytes = fs::read(folder.path().join(name)).unwrap_or_default();
        assert!(!bytes.windows(6).any(|w| w == b"secret"), "{name} still has it");
    }
    // A number is never given twice.
    assert!(answered(&store, None, new("x"), "y").conversation > gone.conversation);
}

#[test]
fn long_threads_open_quickly_and_can_be_erased() {
    let (_folder, store) = store();
    let id = answered(&store, None, new("question"), "answer").conversation;
    let last = store
        .write(|db| {
            let mut last = 2;
            for n in 1..1000 {
                let sql = "INSERT INTO messages (conversation, parent, role, content, created_ms) VALUES (?1, ?2, 'user', ?3, 0)";
                db.execute(sql, rusqlite::params![id, last, format!("question {n}")])?;
                let sql = "INSERT INTO messages (conversation, parent, role, content, created_ms, model, state)
                    VALUES (?1, last_insert_rowid(), 'assistant', ?2, 0, 'm', 'complete')";
                db.execute(sql, rusqlite::params![id, format!("answer {n} {}", "text ".repeat(100))])?;
                last = db.last_insert_rowid();
            }
            db.execute("UPDATE conversations SET leaf = ?1", [last])?;
            Ok(last)
        })
        .unwrap();
    let began = Instant::now();
    let thread = store.thread(id).unwrap();
    let took = began.elapsed();
    assert_eq!((thread.messages.len(), thread.messages[1999].id), (2000, last));
    // 50 ms is for the release build.
    let limit = if cfg!(debug_assertions) { 500 } else { 50 };
    assert!(took < Duration::from_millis(limit), "{took:?}");
    store.delete(id).unwrap();
    store.db().execute("UPDATE conversations SET deleted_ms = 1", []).unwrap();
    store.erase().unwrap();
    let left: i64 = store.db().query_row("SELECT count(*) FROM messages", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
}

#[test]
fn a_full_disk_is_an_error_that_loses_nothing() {
    let (folder, store) = store();
    let saved = answered(&store, None, new("before"), "the full disk");
    let unfinished = began(&store, Some(saved.conversation), new("next"));
    store.grow(unfinished, "some").unwrap();
    store.db().query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    let pages: i64 = store.db().pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    store.db().pragma_update_and_check(None, "max_page_count", pages, |_| Ok(())).unwrap();
    let big = "much text ".repeat(100_000);
    for error in [
        store.grow(unfinished, &big).unwrap_err(),
        store.end(unfinished, &big, &complete()).unwrap_err(),
        store.begin(&store.place(&turn(None, new(&big))).unwrap(), "m").unwrap_err(),
    ] {
        assert!(error.code() == "store" && error.to_string().contains("make room"), "{error}");
    }
    let kept = ["before", "the full disk", "next", "some"];
    assert_eq!(contents(&store.thread(saved.conversation).unwrap()), kept);
    assert_eq!(store.list().unwrap().len(), 1);
    drop(store);
    let store = Store::open(folder.path()).unwrap();
    assert_eq!(contents(&store.thread(saved.conversation).unwrap()), kept);
    store.end(unfinished, &big, &complete()).unwrap();
}

#[test]
fn what_is_no_database_stays_as_it_is() {
    let folder = tempdir().unwrap();
    let path = Store::path(folder.path());
    for garbage in [b"plain text, no database; ".repeat(100), b"SQLite format 3\0 but nothing else".repeat(200), vec![0xff; 5000]]
    {
        fs::write(&path, &garbage).unwrap();
        let error = Store::open(folder.path()).err().unwrap();
        let told = error.to_string();
        assert!(error.code() == "store" && told.contains("conversations.db") && told.contains("hint: "), "{told}");
        assert!(fs::read(&path).unwrap() == garbage);
    }
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(Store::open(folder.path()).err().unwrap().to_string().contains("not a file"));
    fs::remove_dir(&path).unwrap();
    // A truncated file, found when it is read.
    let store = Store::open(folder.path()).unwrap();
    let id = answered(&store, None, new("q"), &"long ".repeat(10_000)).conversation;
    drop(store);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let error = Store::open(folder.path()).and_then(|store| store.thread(id)).unwrap_err();
    assert!(error.code() == "store" && error.to_string().contains("hint: "), "{error}");
}

#[test]
fn a_newer_database_is_refused() {
    let (folder, store) = store();
    store.db().pragma_update(None, "user_version", 99).unwrap();
    drop(store);
    let error = Store::open(folder.path()).err().unwrap().to_string();
    assert!(error.contains("conversations.db") && error.contains("version 99") && error.contains("update rMLX"), "{error}");
}

#[test]
fn migrations_go_on_where_the_file_is() {
    let (folder, store) = store();
    answered(&store, None, new("kept"), "x");
    drop(store);
    let next = [MIGRATIONS, &["CREATE TABLE later (x INTEGER) STRICT"]].concat();
    let store = Store::open_with(folder.path(), &next).unwrap();
    assert_eq!(store.list().unwrap().len(), 1);
    store.db().execute("INSERT INTO later VALUES (1)", []).unwrap();
    drop(store);
    assert!(Store::open(folder.path()).is_err(), "this one is older now");
    let broken = [next.as_slice(), &["CREATE TABLE half (x); CREATE TABLE wrong ("]].concat();
    Store::open_with(folder.path(), &broken).err().unwrap();
    let store = Store::open_with(folder.path(), &next).unwrap();
    let half: i64 = store.db().query_row("SELECT count(*) FROM sqlite_master WHERE name = 'half'", [], |row| row.get(0)).unwrap();
    assert_eq!(half, 0, "all of a migration or nothing");
}

/// Every schema that was released, with data: `fixtures/N.sql` is what migrations 1 to N made.
#[test]
fn every_released_schema_comes_to_the_present_one() {
    let schema = |db: &Connection| -> Vec<(String, Option<String>)> {
        let mut statement = db.prepare("SELECT name, sql FROM sqlite_master ORDER BY name").unwrap();
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect()
    };
    let (_folder, fresh) = store();
    let present = schema(&fresh.db());
    for version in 1..=MIGRATIONS.len() {
        let text = fs::read_to_string(format!("{}/src/store/fixtures/{version}.sql", env!("CARGO_MANIFEST_DIR"))).unwrap();
        let folder = tempdir().unwrap();
        Connection::open(Store::path(folder.path())).unwrap().execute_batch(&text).unwrap();
        let store = Store::open(folder.path()).unwrap();
        assert_eq!(schema(&store.db()), present, "from version {version}: a released migration was changed");
        let thread = store.thread(1).unwrap();
        assert_eq!(
            (thread.conversation.title.as_str(), contents(&thread)),
            ("An old question", vec!["An old question", "An old answer"])
        );
        assert_eq!(thread.messages[1].answer.as_ref().unwrap().state, AnswerState::Complete);
        assert_eq!(finds(&store, "answer"), [1]);
    }
}

#[test]
fn many_writers_lose_nothing() {
    const WRITERS: usize = 4;
    const EACH: usize = 25;
    let folder = tempdir().unwrap();
    let home = Arc::new(folder.path().join("home"));
    let shared = OnceStore::default();
    // Each with a connection of its own, as processes have, and all of them open the new file at once.
    let threads: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (home, shared) = (home.clone(), shared.clone());
            thread::spawn(move || {
                let store = Store::open(&home).unwrap();
                let id = *shared.get_or_init(|| answered(&store, None, new("shared"), "x").conversation);
                for n in 0..EACH {
                    let own = answered(&store, None, new(&format!("writer {writer} turn {n}")), "answer");
                    store.thread(own.conversation).unwrap();
                    let saved = began(&store, Some(id), new(&format!("shared {writer} {n}")));
                    store.grow(saved, "grows").unwrap();
                    store.end(saved, "grown", &complete()).unwrap();
                    store.search("writer").unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let store = Store::open(&home).unwrap();
    assert_eq!(store.list().unwrap().len(), WRITERS * EACH + 1);
    let turns: i64 = store.db().query_row("SELECT count(*) FROM messages WHERE content = 'grown'", [], |row| row.get(0)).unwrap();
    assert_eq!(turns as usize, WRITERS * EACH);
    let checked: String = store.db().query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(checked, "ok");
}

type OnceStore = Arc<std::sync::OnceLock<i64>>;

#[test]
fn the_stamp_changes_with_every_change() {
    let (folder, store) = store();
    let other = Store::open(folder.path()).unwrap();
    let mut last = store.stamp().unwrap();
    assert_eq!(store.stamp().unwrap(), last);
    store.list().unwrap();
    assert_eq!(store.stamp().unwrap(), last, "reading is none");
    let mut changed = || {
        let stamp = store.stamp().unwrap();
        std::mem::replace(&mut last, stamp) != stamp
    };
    let id = answered(&other, None, new("x"), "y").conversation;
    assert!(changed());
    store.rename(id, "z").unwrap();
    assert!(changed());
    other.delete(id).unwrap();
    assert!(changed());
}

// ---- any sequence of changes, against a plain tree in memory -----------------------------------------------------------------

#[derive(Debug, Clone)]
enum Step {
    Start,
    /// Numbers choose among what is there.
    Say(usize),
    Edit(usize, usize),
    Retry(usize, usize),
    Select(usize, usize),
    Delete(usize),
    Restore(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let n = 0..100usize;
    let step = prop_oneof![
        1 => Just(Step::Start),
        4 => n.clone().prop_map(Step::Say),
        3 => (n.clone(), n.clone()).prop_map(|(c, m)| Step::Edit(c, m)),
        3 => (n.clone(), n.clone()).prop_map(|(c, m)| Step::Retry(c, m)),
        3 => (n.clone(), n.clone()).prop_map(|(c, m)| Step::Select(c, m)),
        1 => n.clone().prop_map(Step::Delete),
        1 => n.prop_map(Step::Restore),
    ];
    prop::collection::vec(step, 1..40)
}

#[derive(Default)]
struct Tree {
    /// Parent and text; questions and answers take turns on every path.
    messages: BTreeMap<i64, (Option<i64>, String)>,
    leaf: i64,
    deleted: bool,
}

impl Tree {
    fn path(&self) -> Vec<i64> {
        let mut path = vec![self.leaf];
        while let Some(parent) = self.messages[path.last().unwrap()].0 {
            path.push(parent);
        }
        path.reverse();
        path
    }

    fn versions(&self, message: i64) -> Vec<i64> {
        let parent = self.messages[&message].0;
        self.messages.iter().filter(|(_, (p, _))| *p == parent).map(|(id, _)| *id).collect()
    }

    fn select(&mut self, message: i64) {
        if self.path().contains(&message) {
            return;
        }
        self.leaf = message;
        while let Some((child, _)) = self.messages.iter().rfind(|(_, (parent, _))| *parent == Some(self.leaf)) {
            self.leaf = *child;
        }
    }
}

fn same(thread: &Thread, tree: &Tree) {
    let expected: Vec<_> = tree.path().iter().map(|id| (*id, tree.messages[id].1.clone(), tree.versions(*id))).collect();
    let got: Vec<_> = thread.messages.iter().map(|m| (m.id, m.content.clone(), m.versions.clone())).collect();
    assert_eq!(got, expected);
    for (n, message) in thread.messages.iter().enumerate() {
        assert_eq!(message.role, if n % 2 == 0 { Role::User } else { Role::Assistant });
        assert_eq!(message.answer.is_some(), n % 2 == 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_changes_keeps_every_branch(steps in steps()) {
        let (folder, store) = store();
        let mut trees: BTreeMap<i64, Tree> = BTreeMap::new();
        for (n, step) in steps.iter().enumerate() {
            let text = format!("text {n}");
            let pick = |c: usize| trees.keys().nth(c % trees.len().max(1)).copied();
            let (id, ask) = match step {
                Step::Start => (None, Ask::New { text: text.clone() }),
                Step::Say(c) => (pick(*c), Ask::New { text: text.clone() }),
                Step::Edit(c, m) | Step::Retry(c, m) | Step::Select(c, m) => {
                    let Some(id) = pick(*c) else { continue };
                    let message = *trees[&id].messages.keys().nth(m % trees[&id].messages.len()).unwrap();
                    match step {
                        Step::Edit(..) => (Some(id), Ask::Edit { message, text: text.clone() }),
                        Step::Retry(..) => (Some(id), Ask::Retry { message }),
                        _ => {
                            let tree = trees.get_mut(&id).unwrap();
                            let selected = store.select(id, message);
                            prop_assert_eq!(selected.is_err(), tree.deleted);
                            if !tree.deleted {
                                tree.select(message);
                            }
                            continue;
                        }
                    }
                }
                Step::Delete(c) => {
                    let Some(id) = pick(*c) else { continue };
                    let tree = trees.get_mut(&id).unwrap();
                    prop_assert_eq!(store.delete(id).is_err(), tree.deleted);
                    tree.deleted = true;
                    continue;
                }
                Step::Restore(c) => {
                    let Some(id) = pick(*c) else { continue };
                    store.restore(id).unwrap();
                    trees.get_mut(&id).unwrap().deleted = false;
                    continue;
                }
            };
            let turn = turn(id, ask.clone());
            let depth = |tree: &Tree, message: i64| {
                std::iter::successors(tree.messages[&message].0, |m| tree.messages[m].0).count()
            };
            let fits = id.is_none_or(|id| {
                let tree = &trees[&id];
                !tree.deleted && match ask {
                    Ask::New { .. } => true,
                    Ask::Edit { message, .. } => depth(tree, message) % 2 == 0,
                    Ask::Retry { message } => depth(tree, message) % 2 == 1,
                }
            });
            let place = store.place(&turn);
            prop_assert_eq!(place.is_ok(), fits, "{:?}", place);
            let Ok(place) = place else { continue };
            let saved = store.begin(&place, "m").unwrap();
            store.end(saved, &format!("answer {n}"), &complete()).unwrap();
            let tree = trees.entry(saved.conversation).or_default();
            let parent = match ask {
                Ask::New { .. } => (!tree.messages.is_empty()).then_some(tree.leaf),
                Ask::Edit { message, .. } | Ask::Retry { message } => tree.messages[&message].0,
            };
            let question = match ask {
                Ask::Retry { .. } => parent,
                _ => {
                    tree.messages.insert(saved.answer - 1, (parent, text));
                    Some(saved.answer - 1)
                }
            };
            tree.messages.insert(saved.answer, (question, format!("answer {n}")));
            tree.leaf = saved.answer;
        }
        drop(store);
        let store = Store::open(folder.path()).unwrap();
        for (id, tree) in &trees {
            if tree.deleted {
                store.restore(*id).unwrap();
            }
            same(&store.thread(*id).unwrap(), tree);
        }
        prop_assert_eq!(store.list().unwrap().len(), trees.len());
    }
}
