//! Finding conversations by text, in titles and in messages of every branch.
//!
//! The index has every run of three characters (without case and diacritics), so a text is found anywhere, also inside words and
//! in scripts without spaces. Shorter words, and answers that are not in the index yet, are looked for one by one, where only
//! ASCII letters may differ in case.

use std::collections::HashMap;

use rusqlite::types::ToSql;
use rusqlite::{Transaction, params, params_from_iter};

use super::conversations::entries;
use super::{Fault, Store};
use crate::api::{ConversationEntry, Found};
use crate::error::{Error, Result};

/// Conversations that a search gives at most.
const MOST: usize = 200;
/// Characters of a search at most.
const LONGEST: usize = 1000;
/// Characters that a snippet has before and after a match.
const BEFORE: usize = 24;
const AFTER: usize = 64;

struct Query {
    /// The words of three characters and more, each as a string of the index's language.
    indexed: Option<String>,
    /// All other words.
    short: Vec<String>,
    words: Vec<String>,
}

impl Store {
    /// The conversations that have all words of the text in their title or in one message, best first.
    pub fn search(&self, text: &str) -> Result<Vec<ConversationEntry>> {
        if text.chars().count() > LONGEST {
            return Err(Error::BadRequest(format!("the search has more than {LONGEST} characters")));
        }
        let query = Query::new(text);
        if query.words.is_empty() {
            return self.list();
        }
        self.read(|db| {
            let mut hits = Hits::default();
            if query.indexed.is_some() {
                hits.titles(db, &query)?;
                hits.messages(db, &query)?;
                hits.scan_messages(db, &query, true)?;
            } else {
                hits.scan_titles(db, &query)?;
                hits.scan_messages(db, &query, false)?;
            }
            let mut all: HashMap<i64, ConversationEntry> = entries(db)?.into_iter().map(|entry| (entry.id, entry)).collect();
            let found =
                hits.0.into_iter().filter_map(|(id, found)| Some(ConversationEntry { found: Some(found), ..all.remove(&id)? }));
            Ok(found.collect())
        })
    }
}

impl Query {
    fn new(text: &str) -> Self {
        let words: Vec<String> = text
            .split(|c: char| c.is_whitespace() || c.is_control())
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect();
        let (long, short): (Vec<String>, _) = words.iter().cloned().partition(|word| in_index(word));
        let indexed = long.iter().map(|word| format!("\"{}\"", word.replace('"', "\"\""))).collect::<Vec<_>>().join(" ");
        Self { indexed: Some(indexed).filter(|i| !i.is_empty()), short, words }
    }

    /// `AND column LIKE ?n` for each word.
    fn likes(words: &[String], column: &str, first: usize) -> (String, Vec<String>) {
        let sql = (first..).take(words.len()).map(|n| format!(" AND {column} LIKE ?{n} ESCAPE '\\'")).collect();
        let escaped = |word: &String| word.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
        (sql, words.iter().map(|word| format!("%{}%", escaped(word))).collect())
    }
}

/// Whether the word has the three characters that the index needs; it drops combining marks.
fn in_index(word: &str) -> bool {
    word.chars().filter(|c| !('\u{300}'..='\u{36f}').contains(c)).count() >= 3
}

/// The best place of each conversation, in the order of finding.
#[derive(Default)]
struct Hits(Vec<(i64, Found)>);

impl Hits {
    fn add(&mut self, conversation: i64, message: Option<i64>, snippet: String) {
        if self.wants(conversation) {
            let snippet = snippet.replace(|c: char| c.is_control() && c != '\u{2}' && c != '\u{3}', " ");
            self.0.push((conversation, Found { message, snippet }));
        }
    }

    fn wants(&self, conversation: i64) -> bool {
        self.0.len() < MOST && self.0.iter().all(|(id, _)| *id != conversation)
    }

    fn titles(&mut self, db: &Transaction, query: &Query) -> Result<(), Fault> {
        let (likes, values) = Query::likes(&query.short, "c.title", 2);
        let sql = format!(
            "SELECT c.id, snippet(title_text, 0, char(2), char(3), '…', 64)
            FROM title_text JOIN conversations c ON c.id = title_text.rowid
            WHERE title_text MATCH ?1 AND c.deleted_ms IS NULL{likes} ORDER BY title_text.rank LIMIT {MOST}"
        );
        let mut statement = db.prepare(&sql)?;
        let mut rows = statement.query(params_from_iter(query.indexed.iter().chain(&values)))?;
        while let Some(row) = rows.next()? {
            self.add(row.get(0)?, None, row.get(1)?);
        }
        Ok(())
    }

    fn messages(&mut self, db: &Transaction, query: &Query) -> Result<(), Fault> {
        let (likes, values) = Query::likes(&query.short, "m.content", 2);
        // The best message of each conversation first, then its snippet: making one means reading the whole message.
        let sql = format!(
            "WITH hits AS MATERIALIZED (
                SELECT m.conversation, m.id, bm25(message_text) AS score
                FROM message_text JOIN messages m ON m.id = message_text.rowid JOIN conversations c ON c.id = m.conversation
                WHERE message_text MATCH ?1 AND c.deleted_ms IS NULL{likes}
            )
            SELECT conversation, id, min(score) AS best FROM hits GROUP BY conversation ORDER BY best LIMIT {MOST}"
        );
        let mut statement = db.prepare(&sql)?;
        let best = statement.query_map(params_from_iter(query.indexed.iter().chain(&values)), |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
        })?;
        let sql = "SELECT snippet(message_text, 0, char(2), char(3), '…', 64) FROM message_text
            WHERE message_text MATCH ?1 AND rowid = ?2";
        let mut snippet = db.prepare_cached(sql)?;
        for pair in best {
            let (conversation, message) = pair?;
            if self.wants(conversation) {
                let snippet = snippet.query_row(params![query.indexed, message], |row| row.get(0))?;
                self.add(conversation, Some(message), snippet);
            }
        }
        Ok(())
    }

    fn scan_titles(&mut self, db: &Transaction, query: &Query) -> Result<(), Fault> {
        let (likes, values) = Query::likes(&query.words, "title", 1);
        let sql = format!(
            "SELECT id, title FROM conversations WHERE deleted_ms IS NULL{likes} ORDER BY updated_ms DESC, id DESC LIMIT {MOST}"
        );
        let mut statement = db.prepare(&sql)?;
        let mut rows = statement.query(params_from_iter(&values))?;
        while let Some(row) = rows.next()? {
            self.add(row.get(0)?, None, excerpt(&row.get::<_, String>(1)?, &query.words));
        }
        Ok(())
    }

    fn scan_messages(&mut self, db: &Transaction, query: &Query, unfinished: bool) -> Result<(), Fault> {
        let (likes, values) = Query::likes(&query.words, "m.content", 1);
        let only = if unfinished { " AND m.state = 'unfinished'" } else { "" };
        let sql = format!(
            "SELECT m.conversation, max(m.id) FROM messages m JOIN conversations c ON c.id = m.conversation
            WHERE c.deleted_ms IS NULL{only}{likes} GROUP BY m.conversation ORDER BY c.updated_ms DESC, c.id DESC LIMIT {MOST}"
        );
        let mut statement = db.prepare(&sql)?;
        let values: Vec<&dyn ToSql> = values.iter().map(|v| v as &dyn ToSql).collect();
        let newest = statement.query_map(&*values, |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))?;
        let mut content = db.prepare_cached("SELECT content FROM messages WHERE id = ?1")?;
        for pair in newest {
            let (conversation, message) = pair?;
            if self.wants(conversation) {
                let text: String = content.query_row([message], |row| row.get(0))?;
                self.add(conversation, Some(message), excerpt(&text, &query.words));
            }
        }
        Ok(())
    }
}

/// The text around the first of the words, as the index's snippets.
fn excerpt(text: &str, words: &[String]) -> String {
    // ASCII letters only: every byte stays where it is.
    let lower = text.to_ascii_lowercase();
    let first = words.iter().filter_map(|word| Some((lower.find(&word.to_ascii_lowercase())?, word.len()))).min();
    let Some((start, length)) = first else { return text.chars().take(AFTER).collect() };
    let (before, rest) = text.split_at(start);
    let (matched, after) = rest.split_at(length);
    let begin = before.char_indices().rev().nth(BEFORE - 1).map_or(0, |(at, _)| at);
    let end = after.char_indices().nth(AFTER).map_or(after.len(), |(at, _)| at);
    let cut = |cut: bool| if cut { "…" } else { "" };
    format!("{}{}\u{2}{matched}\u{3}{}{}", cut(begin > 0), &before[begin..], &after[..end], cut(end < after.len()))
}
