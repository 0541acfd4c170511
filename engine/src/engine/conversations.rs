//! The handle's conversations and settings.

use crate::api::{ConversationEntry, Settings, Thread, Turn};
use crate::error::Result;
use crate::pipe::Reader;

use super::Engine;

/// Interface of this step; bodies to come.
#[allow(unused_variables, clippy::todo)]
impl Engine {
    /// All conversations, newest first; with `search`, those that have the text, best first.
    pub fn conversations(&self, search: Option<&str>) -> Result<Vec<ConversationEntry>> {
        todo!()
    }

    pub fn conversation(&self, id: i64) -> Result<Thread> {
        todo!()
    }

    pub fn rename_conversation(&self, id: i64, title: &str) -> Result<()> {
        todo!()
    }

    /// Can be undone with [`Self::restore_conversation`] for an hour; an answer that is being made is stopped.
    pub fn delete_conversation(&self, id: i64) -> Result<()> {
        todo!()
    }

    pub fn restore_conversation(&self, id: i64) -> Result<()> {
        todo!()
    }

    /// Selects the branch that has this version of a message.
    pub fn select_version(&self, conversation: i64, message: i64) -> Result<Thread> {
        todo!()
    }

    /// Saves the question and begins the answer, which goes on whether or not somebody follows it. The thread's last message is
    /// the unfinished answer.
    pub fn chat(&self, turn: Turn) -> Result<Thread> {
        todo!()
    }

    /// The events of the conversation's running answer: first the text so far as one delta, then what comes. `None`: none is running.
    /// Dropping the reader stops nothing.
    pub fn follow(&self, conversation: i64) -> Option<Reader> {
        todo!()
    }

    /// Ends the running answer and keeps what there is of it. `false`: none was running.
    pub fn stop(&self, conversation: i64) -> bool {
        todo!()
    }

    pub fn settings(&self) -> Result<Settings> {
        todo!()
    }

    /// Changes the fields that `patch` (an object of the shape of [`Settings`]) names, and returns all of them.
    pub fn set_settings(&self, patch: &serde_json::Value) -> Result<Settings> {
        todo!()
    }
}
