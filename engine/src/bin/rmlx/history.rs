//! `rmlx history`: the conversations that are kept.

use clap::{Args, Subcommand};
use rmlx_engine::api::{AnswerState, ConversationEntry, Thread, ThreadMessage};
use rmlx_engine::engine::Engine;
use serde_json::json;
use time::macros::format_description;
use time::{OffsetDateTime, UtcOffset};

use crate::args::Global;
use crate::failure::Result;
use crate::out;

/// Show, search and change the conversations that are kept
///
/// They are those of the app and of `rmlx chat --keep`.
#[derive(Debug, Args)]
pub struct History {
    #[command(subcommand)]
    action: Option<Action>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// All conversations, newest first (what is done without an action)
    List,
    /// One conversation, the branch that is selected
    Show { id: i64 },
    /// Conversations that have these words in their title or in a message
    Search {
        #[arg(required = true)]
        text: Vec<String>,
    },
    /// Give a conversation another title
    Rename { id: i64, title: String },
    /// Delete a conversation; `restore` brings it back within an hour
    Delete { id: i64 },
    /// Bring a deleted conversation back
    Restore { id: i64 },
}

pub fn run(args: History, global: &Global) -> Result<()> {
    let engine = Engine::start(global.options())?;
    let json = args.json;
    match args.action.unwrap_or(Action::List) {
        Action::List => list(&engine.conversations(None)?, json, "no conversations are kept"),
        Action::Search { text } => list(&engine.conversations(Some(&text.join(" ")))?, json, "nothing is found"),
        Action::Show { id } => show(&engine.conversation(id)?, json),
        Action::Rename { id, title } => {
            engine.rename_conversation(id, &title)?;
            done(id, json, "renamed")
        }
        Action::Delete { id } => {
            engine.delete_conversation(id)?;
            done(id, json, &format!("deleted; `rmlx history restore {id}` brings it back within an hour"))
        }
        Action::Restore { id } => {
            engine.restore_conversation(id)?;
            done(id, json, "restored")
        }
    }
}

fn list(entries: &[ConversationEntry], json: bool, none: &str) -> Result<()> {
    if json {
        return out::print_json(&out::json(entries)?);
    }
    if entries.is_empty() {
        out::complain(none);
        return Ok(());
    }
    let head = ["ID", "CHANGED", "TITLE", ""].map(String::from).to_vec();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(entries.iter().map(row)).collect();
    out::print(&out::table(&rows))
}

fn row(entry: &ConversationEntry) -> Vec<String> {
    let last = match &entry.found {
        // The title is there already.
        Some(found) if found.message.is_none() => String::new(),
        Some(found) => found.snippet.replace(['\u{2}', '\u{3}'], ""),
        None => entry.model.clone().unwrap_or_default(),
    };
    vec![entry.id.to_string(), when(entry.updated_ms), entry.title.clone(), last]
}

/// In the local time zone where that can be known.
fn when(ms: i64) -> String {
    let time = OffsetDateTime::from_unix_timestamp(ms / 1000).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let time = time.to_offset(UtcOffset::local_offset_at(time).unwrap_or(UtcOffset::UTC));
    time.format(format_description!("[year]-[month]-[day] [hour]:[minute]")).unwrap_or_default()
}

fn show(thread: &Thread, json: bool) -> Result<()> {
    if json {
        return out::print_json(&out::json(thread)?);
    }
    let mut page = format!("# {}\n", thread.conversation.title);
    for message in &thread.messages {
        page.push_str(&format!("\n{}\n\n{}\n", heading(message), message.content.trim_end()));
    }
    out::print(&out::printable(&page))
}

fn heading(message: &ThreadMessage) -> String {
    let Some(answer) = &message.answer else { return "## You".into() };
    let state = match (answer.state, &answer.error) {
        (AnswerState::Complete, _) => String::new(),
        (AnswerState::Unfinished, _) => " (unfinished)".into(),
        (AnswerState::Stopped, _) => " (stopped)".into(),
        (AnswerState::Failed, None) => " (failed)".into(),
        (AnswerState::Failed, Some(error)) => format!(" (failed: {})", error.message),
    };
    format!("## {}{state}", answer.model)
}

fn done(id: i64, json: bool, what: &str) -> Result<()> {
    if json {
        return out::print_json(&json!({ "id": id }));
    }
    out::complain(&format!("conversation {id} {what}"));
    Ok(())
}
