//! The handle's conversations and settings.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::turns::Turns;
use super::{Engine, Options};
use crate::api::{ChatSettings, ConversationEntry, Message, Prompt, Request, Sampling, Settings, Thread, Turn};
use crate::error::{Error, Result};
use crate::paths;
use crate::pipe::Reader;
use crate::settings;
use crate::store::Store;

/// What the handle needs for them. Nothing is opened before it is asked for.
pub(super) struct Conversations {
    home: PathBuf,
    store: Mutex<Option<Arc<Store>>>,
    turns: Turns,
    /// Turns begin one after the other: a conversation has one running answer.
    begin: Mutex<()>,
}

impl Conversations {
    pub(super) fn new(options: &Options) -> Self {
        let home = options.home.clone().unwrap_or_else(paths::home);
        Self { home, store: Mutex::default(), turns: Turns::default(), begin: Mutex::default() }
    }
}

impl Engine {
    fn store(&self) -> Result<Arc<Store>> {
        let mut store = self.0.conversations.store.lock().unwrap_or_else(PoisonError::into_inner);
        if store.is_none() {
            *store = Some(Arc::new(Store::open(&self.0.conversations.home)?));
        }
        store.clone().ok_or_else(|| Error::Internal("the store did not open".into()))
    }

    /// All conversations, newest first; with `search`, those that have all its words in the title or in one message, best first.
    ///
    /// # Errors
    /// Here and below [`Error::Store`], and [`Error::NotFound`] for a conversation or message that is not there (any more).
    pub fn conversations(&self, search: Option<&str>) -> Result<Vec<ConversationEntry>> {
        match search {
            Some(text) => self.store()?.search(text),
            None => self.store()?.list(),
        }
    }

    /// A number that is another one after every change of the conversations, by this process or another. Cheap.
    pub fn conversations_stamp(&self) -> Result<u64> {
        self.store()?.stamp()
    }

    pub fn conversation(&self, id: i64) -> Result<Thread> {
        let store = self.store()?;
        loop {
            let running = self.0.conversations.turns.running(id);
            let thread = store.thread(id)?;
            // What ended in between was read as unfinished.
            if running == self.0.conversations.turns.running(id) {
                let running = running.is_some() && running == thread.messages.last().map(|m| m.id);
                return Ok(Thread { running, ..thread });
            }
        }
    }

    pub fn rename_conversation(&self, id: i64, title: &str) -> Result<()> {
        self.store()?.rename(id, title)
    }

    /// Can be undone with [`Self::restore_conversation`] for an hour; an answer that is being made is stopped.
    pub fn delete_conversation(&self, id: i64) -> Result<()> {
        let _begin = self.0.conversations.begin.lock().unwrap_or_else(PoisonError::into_inner);
        self.stop(id);
        self.store()?.delete(id)
    }

    pub fn restore_conversation(&self, id: i64) -> Result<()> {
        self.store()?.restore(id)
    }

    /// Selects the branch that has this version of a message.
    pub fn select_version(&self, conversation: i64, message: i64) -> Result<Thread> {
        self.store()?.select(conversation, message)?;
        self.conversation(conversation)
    }

    /// Saves the question and begins the answer, which goes on whether or not somebody follows it. The thread's last message is
    /// the answer.
    ///
    /// # Errors
    /// As [`Self::generate`]; [`Error::BadRequest`] while the conversation has a running answer. Nothing is saved then.
    pub fn chat(&self, turn: Turn) -> Result<Thread> {
        let ChatSettings { system, temperature, max_tokens } = self.settings()?.chat;
        let sampling = Sampling { temperature, ..Sampling::default() };
        self.chat_with(turn, &system, |prompt| Request { sampling, max_tokens, ..Request::new(prompt) })
    }

    /// As [`Self::chat`], with another system message (empty: none) and request than the settings say.
    pub fn chat_with(&self, turn: Turn, system: &str, request: impl FnOnce(Prompt) -> Request) -> Result<Thread> {
        let store = self.store()?;
        let Conversations { turns, begin, .. } = &self.0.conversations;
        let begin = begin.lock().unwrap_or_else(PoisonError::into_inner);
        if turn.conversation.is_some_and(|id| turns.running(id).is_some()) {
            return Err(Error::BadRequest(
                "this conversation has an answer that is being made\nhint: wait for it, or stop it".into(),
            ));
        }
        let place = store.place(&turn)?;
        let system = (!system.is_empty()).then(|| Message::new("system", system));
        let messages = system.into_iter().chain(place.messages.iter().cloned()).collect();
        let prompt = Prompt::Chat { messages, variables: serde_json::Map::new() };
        let reader = self.generate(&turn.model, request(prompt))?;
        let saved = store.begin(&place, &turn.model)?;
        turns.start(store, saved, reader)?;
        drop(begin);
        self.conversation(saved.conversation)
    }

    /// The events of the conversation's running answer: first how far it is (a load's or the prompt's progress, else the text so far
    /// as one delta), then what comes. `None`: none is running. Dropping the reader stops nothing.
    pub fn follow(&self, conversation: i64) -> Option<Reader> {
        self.0.conversations.turns.follow(conversation)
    }

    /// Ends the running answer, keeps what there is of it, and returns when that is saved. `false`: none was running. Not for a
    /// reader's waker, which runs on the answer's own thread.
    pub fn stop(&self, conversation: i64) -> bool {
        self.0.conversations.turns.stop(conversation)
    }

    pub fn settings(&self) -> Result<Settings> {
        settings::read(&self.0.conversations.home)
    }

    /// Changes the fields that `patch` (an object of the shape of [`Settings`]) names, and returns all of them. `null` is the default.
    ///
    /// # Errors
    /// [`Error::BadRequest`] names a field that does not exist or has a wrong value, [`Error::BadFile`] the file where it is broken:
    /// it is never overwritten.
    pub fn set_settings(&self, patch: &Value) -> Result<Settings> {
        settings::change(&self.0.conversations.home, patch)
    }

    pub fn settings_path(&self) -> PathBuf {
        settings::path(&self.0.conversations.home)
    }
}
