//! Conversations: trees of messages. A question's versions are children of the answer before it (or roots), an answer's versions
//! are children of their question; the selected leaf says which branch is shown. Nothing is changed or removed by asking again.

use std::collections::HashMap;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use rusqlite::{OptionalExtension, Row, Transaction, named_params, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Fault, Store, now};
use crate::api::{
    AnswerInfo, AnswerState, Ask, ConversationEntry, ErrorInfo, Finished, Message, Role, Thread, ThreadMessage, Turn,
};
use crate::error::{Error, Result};

/// The keys between messages are checked at the end of a transaction and delete nothing: a chain of deletions is limited to a
/// thousand links. An unfinished answer is not indexed: it changes every second.
pub const CREATE: &str = "
CREATE TABLE conversations (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    title TEXT NOT NULL,
    named INTEGER NOT NULL DEFAULT 0,
    model TEXT NOT NULL,
    leaf INTEGER REFERENCES messages (id) DEFERRABLE INITIALLY DEFERRED,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    deleted_ms INTEGER
) STRICT;
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation INTEGER NOT NULL REFERENCES conversations (id) DEFERRABLE INITIALLY DEFERRED,
    parent INTEGER REFERENCES messages (id) DEFERRABLE INITIALLY DEFERRED,
    role TEXT NOT NULL CHECK (role IN ('user', 'assistant')),
    content TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    model TEXT,
    state TEXT,
    finished TEXT,
    error TEXT,
    CHECK ((role = 'assistant') = (state IS NOT NULL AND model IS NOT NULL))
) STRICT;
CREATE INDEX conversations_leaf ON conversations (leaf);
CREATE INDEX messages_conversation ON messages (conversation, parent);
CREATE INDEX messages_parent ON messages (parent);
CREATE INDEX messages_unfinished ON messages (id) WHERE state = 'unfinished';

CREATE VIRTUAL TABLE title_text USING fts5 (
    title, content = 'conversations', content_rowid = 'id', tokenize = 'trigram remove_diacritics 1'
);
CREATE VIRTUAL TABLE message_text USING fts5 (
    content, content = 'messages', content_rowid = 'id', tokenize = 'trigram remove_diacritics 1'
);
INSERT INTO title_text (title_text, rank) VALUES ('secure-delete', 1);
INSERT INTO message_text (message_text, rank) VALUES ('secure-delete', 1);

CREATE TRIGGER title_made AFTER INSERT ON conversations BEGIN
    INSERT INTO title_text (rowid, title) VALUES (new.id, new.title);
END;
CREATE TRIGGER title_changed AFTER UPDATE OF title ON conversations BEGIN
    INSERT INTO title_text (title_text, rowid, title) VALUES ('delete', old.id, old.title);
    INSERT INTO title_text (rowid, title) VALUES (new.id, new.title);
END;
CREATE TRIGGER title_erased AFTER DELETE ON conversations BEGIN
    INSERT INTO title_text (title_text, rowid, title) VALUES ('delete', old.id, old.title);
END;
CREATE TRIGGER message_made AFTER INSERT ON messages WHEN new.state IS NOT 'unfinished' BEGIN
    INSERT INTO message_text (rowid, content) VALUES (new.id, new.content);
END;
CREATE TRIGGER message_left AFTER UPDATE OF content, state ON messages WHEN old.state IS NOT 'unfinished' BEGIN
    INSERT INTO message_text (message_text, rowid, content) VALUES ('delete', old.id, old.content);
END;
CREATE TRIGGER message_ended AFTER UPDATE OF content, state ON messages WHEN new.state IS NOT 'unfinished' BEGIN
    INSERT INTO message_text (rowid, content) VALUES (new.id, new.content);
END;
CREATE TRIGGER message_erased AFTER DELETE ON messages WHEN old.state IS NOT 'unfinished' BEGIN
    INSERT INTO message_text (message_text, rowid, content) VALUES ('delete', old.id, old.content);
END;
";

/// How long a deleted conversation can be had back.
const KEPT_MS: i64 = 60 * 60 * 1000;
/// How often that is looked at, at most.
const TIDY: Duration = Duration::from_secs(10 * 60);
/// Characters of a title that is taken from the question.
const TITLE: usize = 60;
/// Characters of a title that the user gives.
const LONGEST_TITLE: usize = 200;

/// Where a turn's messages go, and what the model is to read.
#[derive(Debug)]
pub struct Place {
    conversation: Option<i64>,
    /// What the new messages follow.
    parent: Option<i64>,
    /// `None`: the parent is the question.
    question: Option<String>,
    /// The branch up to and with the question. Roles alternate: answers without text are left out, and their questions with them.
    pub messages: Vec<Message>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Saved {
    pub conversation: i64,
    pub answer: i64,
}

/// How an answer ended.
#[derive(Debug)]
pub struct Ending {
    pub state: AnswerState,
    pub finished: Option<Finished>,
    pub error: Option<ErrorInfo>,
}

const ENTRY: &str = "SELECT id, title, model, created_ms, updated_ms FROM conversations WHERE deleted_ms IS NULL";

impl Store {
    /// All conversations, newest first.
    pub fn list(&self) -> Result<Vec<ConversationEntry>> {
        self.tidy()?;
        self.read(|db| entries(db))
    }

    /// The selected branch.
    pub fn thread(&self, id: i64) -> Result<Thread> {
        self.read(|db| thread(db, id))
    }

    pub fn rename(&self, id: i64, title: &str) -> Result<()> {
        let title = line(title);
        if title.is_empty() {
            return Err(Error::BadRequest("the title is empty".into()));
        }
        if title.chars().count() > LONGEST_TITLE {
            return Err(Error::BadRequest(format!("the title has more than {LONGEST_TITLE} characters")));
        }
        self.write(|db| {
            let sql = "UPDATE conversations SET title = ?2, named = 1 WHERE id = ?1 AND deleted_ms IS NULL";
            found(db.execute(sql, params![id, title])?, id)
        })
    }

    /// Erased for good in an hour.
    pub fn delete(&self, id: i64) -> Result<()> {
        self.tidy()?;
        self.write(|db| {
            let sql = "UPDATE conversations SET deleted_ms = ?2 WHERE id = ?1 AND deleted_ms IS NULL";
            found(db.execute(sql, params![id, now()])?, id)
        })
    }

    pub fn restore(&self, id: i64) -> Result<()> {
        self.write(|db| found(db.execute("UPDATE conversations SET deleted_ms = NULL WHERE id = ?1", [id])?, id))
    }

    /// The branch with this message becomes the selected one; below it, the newest versions.
    pub fn select(&self, conversation: i64, message: i64) -> Result<Thread> {
        self.write(|db| {
            message_of(db, conversation, message)?;
            let branch = branch(db, leaf(db, conversation)?)?;
            if !branch.iter().any(|m| m.id == message) {
                let mut newest = db.prepare_cached("SELECT max(id) FROM messages WHERE parent = ?1")?;
                let mut leaf = message;
                while let Some(child) = newest.query_row([leaf], |row| row.get::<_, Option<i64>>(0))? {
                    leaf = child;
                }
                db.execute("UPDATE conversations SET leaf = ?2 WHERE id = ?1", [conversation, leaf])?;
            }
            thread(db, conversation)
        })
    }

    /// Checks what is asked for; nothing is saved yet.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::BadRequest`] for an ask that its message does not suit.
    pub fn place(&self, turn: &Turn) -> Result<Place> {
        if let Ask::New { text } | Ask::Edit { text, .. } = &turn.ask
            && text.trim().is_empty()
        {
            return Err(Error::BadRequest("the question is empty".into()));
        }
        let Some(conversation) = turn.conversation else {
            let Ask::New { text } = &turn.ask else {
                return Err(Error::BadRequest("a new conversation begins with a new question".into()));
            };
            let messages = vec![Message::new("user", text.as_str())];
            return Ok(Place { conversation: None, parent: None, question: Some(text.clone()), messages });
        };
        let (parent, branch, question) = self.read(|db| {
            let leaf = leaf(db, conversation)?;
            let (parent, question) = match &turn.ask {
                Ask::New { text } => (leaf, Some(text.clone())),
                Ask::Edit { message, text } => match message_of(db, conversation, *message)? {
                    (Role::User, parent) => (parent, Some(text.clone())),
                    (Role::Assistant, _) => return Err(Error::BadRequest("only a question can be edited".into()).into()),
                },
                Ask::Retry { message } => match message_of(db, conversation, *message)? {
                    (Role::Assistant, parent) => (parent, None),
                    (Role::User, _) => return Err(Error::BadRequest("only an answer can be made again".into()).into()),
                },
            };
            Ok((parent, branch(db, parent)?, question))
        })?;
        Ok(Place { conversation: Some(conversation), parent, messages: history(branch, question.as_deref()), question })
    }

    /// Saves the question and an unfinished answer, and selects their branch.
    pub fn begin(&self, place: &Place, model: &str) -> Result<Saved> {
        let now = now();
        self.write(|db| {
            let title = place.question.as_deref().map(title);
            let conversation = match place.conversation {
                Some(id) => id,
                None => {
                    let sql = "INSERT INTO conversations (title, model, created_ms, updated_ms) VALUES (?1, ?2, ?3, ?3)";
                    db.execute(sql, params![title, model, now])?;
                    db.last_insert_rowid()
                }
            };
            let mut parent = place.parent;
            if let Some(question) = &place.question {
                let sql =
                    "INSERT INTO messages (conversation, parent, role, content, created_ms) VALUES (?1, ?2, 'user', ?3, ?4)";
                db.execute(sql, params![conversation, parent, question, now])?;
                parent = Some(db.last_insert_rowid());
            }
            let sql = "INSERT INTO messages (conversation, parent, role, content, created_ms, model, state)
                VALUES (?1, ?2, 'assistant', '', ?3, ?4, 'unfinished')";
            db.execute(sql, params![conversation, parent, now, model])?;
            let answer = db.last_insert_rowid();
            let sql = "UPDATE conversations SET leaf = ?2, model = ?3, updated_ms = ?4 WHERE id = ?1 AND deleted_ms IS NULL";
            found(db.execute(sql, params![conversation, answer, model, now])?, conversation)?;
            // Another first question is another title, unless the user has given one.
            if place.conversation.is_some() && place.parent.is_none() {
                db.execute("UPDATE conversations SET title = ?2 WHERE id = ?1 AND NOT named", params![conversation, title])?;
            }
            Ok(Saved { conversation, answer })
        })
    }

    /// The text of an unfinished answer so far.
    pub fn grow(&self, saved: Saved, text: &str) -> Result<()> {
        self.write(|db| {
            let sql = "UPDATE messages SET content = ?2 WHERE id = ?1 AND state = 'unfinished'";
            found(db.execute(sql, params![saved.answer, text])?, saved.conversation)
        })
    }

    pub fn end(&self, saved: Saved, text: &str, ending: &Ending) -> Result<()> {
        self.write(|db| {
            let sql = "UPDATE messages SET content = :text, state = :state, finished = :finished, error = :error
                WHERE id = :id AND state = 'unfinished'";
            let changed = db.execute(
                sql,
                named_params! {
                    ":id": saved.answer,
                    ":text": text,
                    ":state": plain(&ending.state)?,
                    ":finished": ending.finished.as_ref().map(json).transpose()?,
                    ":error": ending.error.as_ref().map(json).transpose()?,
                },
            )?;
            found(changed, saved.conversation)?;
            db.execute("UPDATE conversations SET updated_ms = ?2 WHERE id = ?1", params![saved.conversation, now()])?;
            Ok(())
        })
    }

    /// Now and then, what was deleted long ago is erased.
    fn tidy(&self) -> Result<()> {
        {
            let mut tidied = self.tidied.lock().unwrap_or_else(PoisonError::into_inner);
            if tidied.elapsed() < TIDY {
                return Ok(());
            }
            *tidied = Instant::now();
        }
        self.erase()
    }

    pub(super) fn erase(&self) -> Result<()> {
        let sql = "SELECT count(*) FROM conversations WHERE deleted_ms < ?1";
        let before = now() - KEPT_MS;
        if self.read(|db| Ok(db.query_row(sql, [before], |row| row.get::<_, i64>(0))?))? == 0 {
            return Ok(());
        }
        self.write(|db| {
            let sql = "DELETE FROM messages WHERE conversation IN (SELECT id FROM conversations WHERE deleted_ms < ?1)";
            db.execute(sql, [before])?;
            db.execute("DELETE FROM conversations WHERE deleted_ms < ?1", [before])?;
            Ok(())
        })?;
        // The log still has what was erased. Where a reader holds it, a later one does this.
        let _ = self.db().query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        Ok(())
    }
}

pub(super) fn entries(db: &Transaction) -> Result<Vec<ConversationEntry>, Fault> {
    let mut statement = db.prepare_cached(&format!("{ENTRY} ORDER BY updated_ms DESC, id DESC"))?;
    Ok(statement.query_map([], entry)?.collect::<Result<_, _>>()?)
}

fn entry(row: &Row) -> rusqlite::Result<ConversationEntry> {
    Ok(ConversationEntry {
        id: row.get(0)?,
        title: row.get(1)?,
        model: row.get(2)?,
        created_ms: row.get(3)?,
        updated_ms: row.get(4)?,
        found: None,
    })
}

fn missing(id: i64) -> Fault {
    Error::NotFound(format!("no conversation has the number {id}")).into()
}

fn found(changed: usize, id: i64) -> Result<(), Fault> {
    if changed == 0 { Err(missing(id)) } else { Ok(()) }
}

fn leaf(db: &Transaction, conversation: i64) -> Result<Option<i64>, Fault> {
    let sql = "SELECT leaf FROM conversations WHERE id = ?1 AND deleted_ms IS NULL";
    db.query_row(sql, [conversation], |row| row.get(0)).optional()?.ok_or_else(|| missing(conversation))
}

/// Its role and parent.
fn message_of(db: &Transaction, conversation: i64, message: i64) -> Result<(Role, Option<i64>), Fault> {
    leaf(db, conversation)?;
    let sql = "SELECT role, parent FROM messages WHERE id = ?1 AND conversation = ?2";
    let found = db.query_row(sql, [message, conversation], |row| Ok((row.get::<_, String>(0)?, row.get(1)?))).optional()?;
    let Some((role, parent)) = found else {
        return Err(Error::NotFound(format!("conversation {conversation} has no message {message}")).into());
    };
    Ok((parsed(&role)?, parent))
}

fn thread(db: &Transaction, id: i64) -> Result<Thread, Fault> {
    let conversation = db.query_row(&format!("{ENTRY} AND id = ?1"), [id], entry).optional()?.ok_or_else(|| missing(id))?;
    let mut children: HashMap<Option<i64>, Vec<i64>> = HashMap::new();
    let mut parents: HashMap<i64, Option<i64>> = HashMap::new();
    let mut statement = db.prepare_cached("SELECT id, parent FROM messages WHERE conversation = ?1 ORDER BY id")?;
    for pair in statement.query_map([id], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Option<i64>>(1)?)))? {
        let (message, parent) = pair?;
        parents.insert(message, parent);
        children.entry(parent).or_default().push(message);
    }
    let mut messages = branch(db, leaf(db, id)?)?;
    for message in &mut messages {
        message.versions = parents.get(&message.id).and_then(|parent| children.get(parent)).cloned().unwrap_or_default();
    }
    Ok(Thread { conversation, messages, running: false })
}

/// From the first message to this one; versions are left empty. A message's id is greater than its parent's.
fn branch(db: &Transaction, leaf: Option<i64>) -> Result<Vec<ThreadMessage>, Fault> {
    let sql = "WITH RECURSIVE branch (id, parent) AS (
            SELECT id, parent FROM messages WHERE id = ?1
            UNION ALL SELECT m.id, m.parent FROM branch JOIN messages m ON m.id = branch.parent
        )
        SELECT m.id, m.role, m.content, m.created_ms, m.model, m.state, m.finished, m.error
        FROM branch JOIN messages m USING (id) ORDER BY m.id";
    let mut messages = Vec::new();
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query([leaf])?;
    while let Some(row) = rows.next()? {
        messages.push(message(row)?);
    }
    Ok(messages)
}

fn message(row: &Row) -> Result<ThreadMessage, Fault> {
    let text = |column: usize| row.get::<_, Option<String>>(column);
    let answer = match (text(4)?, text(5)?) {
        (Some(model), Some(state)) => Some(AnswerInfo {
            model,
            state: parsed(&state)?,
            finished: text(6)?.as_deref().map(read_json).transpose()?,
            error: text(7)?.as_deref().map(read_json).transpose()?,
        }),
        _ => None,
    };
    Ok(ThreadMessage {
        id: row.get(0)?,
        role: parsed(&row.get::<_, String>(1)?)?,
        content: row.get(2)?,
        created_ms: row.get(3)?,
        versions: Vec::new(),
        answer,
    })
}

/// What the model reads: pairs whose answer has text, then the question (the branch's last message where it is `None`).
fn history(branch: Vec<ThreadMessage>, question: Option<&str>) -> Vec<Message> {
    let mut messages: Vec<Message> = Vec::new();
    for message in branch {
        match message.role {
            Role::User => messages.push(Message::new("user", message.content)),
            Role::Assistant if message.content.is_empty() => drop(messages.pop()),
            Role::Assistant => messages.push(Message::new("assistant", message.content)),
        }
    }
    messages.extend(question.map(|text| Message::new("user", text)));
    messages
}

fn line(text: &str) -> String {
    text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// The question's first line, cut at a word.
fn title(question: &str) -> String {
    let first = question.lines().map(line).find(|line| !line.is_empty()).unwrap_or_default();
    let Some((end, _)) = first.char_indices().nth(TITLE) else { return first };
    let cut = &first[..end];
    // A word that alone is too long is cut where it stands.
    let cut = if first[end..].starts_with(' ') { cut } else { cut.rsplit_once(' ').map_or(cut, |(words, _)| words) };
    format!("{cut}…")
}

fn json(value: &impl Serialize) -> Result<String, Fault> {
    serde_json::to_string(value).map_err(|e| Error::Internal(e.to_string()).into())
}

fn read_json<T: DeserializeOwned>(text: &str) -> Result<T, Fault> {
    serde_json::from_str(text).map_err(|e| broken(e.to_string()))
}

/// The name that an enum's value has on the border.
fn plain(value: &impl Serialize) -> Result<String, Fault> {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => Ok(name),
        other => Err(Error::Internal(format!("no plain name: {other:?}")).into()),
    }
}

fn parsed<T: DeserializeOwned>(name: &str) -> Result<T, Fault> {
    serde_json::from_value(name.into()).map_err(|e| broken(e.to_string()))
}

/// Somebody else wrote into the file.
fn broken(reason: String) -> Fault {
    Error::Store { path: Default::default(), reason }.into()
}
