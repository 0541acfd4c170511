//! `rmlx chat`: a conversation, at a terminal or line by line through a pipe.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use clap::Args;
use rmlx_engine::api::{AnswerState, Ask, ChatSettings, ErrorInfo, Message, Prompt, Request, Role, Turn};
use rmlx_engine::engine::Engine;
use rmlx_engine::error::Error;
use serde_json::{Value, json};

use crate::answer::{Answer, follow, follow_load};
use crate::args::{Global, Sharing};
use crate::failure::{Failure, Result};
use crate::files;
use crate::line::{Line, Lines};
use crate::out;
use crate::signals::{INTERRUPT, Signals, or_exit};

/// Talk with a model
///
/// Ctrl-C stops an answer and keeps the conversation; Ctrl-D, or Ctrl-C twice at an empty prompt, ends it. Without a
/// terminal, every line of standard input is one turn, and only the answers are printed.
#[derive(Debug, Args)]
pub struct Chat {
    /// A folder, a name in the Hugging Face cache, or `starter`
    model: String,
    /// The system message
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    system: Option<String>,
    #[command(flatten)]
    sharing: Sharing,
    /// Keep the conversation, for `rmlx history` and the app, whose settings then count where no flag says otherwise
    #[arg(long)]
    keep: bool,
    /// Go on with a kept conversation
    #[arg(long, value_name = "ID")]
    resume: Option<i64>,
}

const HELP: &str = "\
/reset        forget the conversation, keep the system message
/system TEXT  set the system message; without TEXT, remove it
/save FILE    write the conversation to a JSON file
/load FILE    go on with a conversation from such a file
/help         this list
/quit         end";

pub fn run(args: Chat, global: &Global, signals: &Signals) -> Result<()> {
    let engine = args.sharing.engine(global)?;
    let keep = args.keep || args.resume.is_some();
    let settings = if keep { engine.settings()?.chat } else { ChatSettings::default() };
    if let Some(id) = args.resume {
        let count = engine.conversation(id)?.messages.len();
        out::complain(&format!("({count} messages)"));
    }
    or_exit(follow_load(engine.load(&args.model)?, signals))?;
    let human = io::stdin().is_terminal() && io::stdout().is_terminal();
    let mut lines = Lines::open(human, signals)?;
    let mut session = Session {
        engine,
        global,
        signals,
        human,
        model: args.model,
        system: args.system.or_else(|| Some(settings.system.clone()).filter(|s| !s.is_empty())),
        settings,
        keep,
        conversation: args.resume,
        messages: Vec::new(),
    };
    if human {
        out::complain(&format!("{} is ready. /help lists the commands.", session.model));
    }
    let ended = session.talk(&mut lines);
    if let Some(id) = session.conversation {
        out::complain(&format!("(kept as conversation {id}; --resume {id} goes on with it)"));
    }
    or_exit(ended)
}

#[derive(Debug, PartialEq)]
enum Command {
    Say(String),
    Reset,
    System(Option<String>),
    Save(PathBuf),
    Load(PathBuf),
    Help,
    Quit,
    /// With what to tell about it.
    Wrong(String),
}

enum Go {
    On,
    Quit,
}

impl Command {
    fn parse(line: &str) -> Self {
        let Some(command) = line.trim_start().strip_prefix('/') else { return Self::Say(line.to_owned()) };
        let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        match (name, rest.trim()) {
            ("reset", "") => Self::Reset,
            ("system", "") => Self::System(None),
            ("system", text) => Self::System(Some(text.to_owned())),
            ("save", "") | ("load", "") => Self::Wrong(format!("/{name} needs a file")),
            ("save", file) => Self::Save(file.into()),
            ("load", file) => Self::Load(file.into()),
            ("help", "") => Self::Help,
            ("quit" | "exit", "") => Self::Quit,
            ("reset" | "help" | "quit" | "exit", _) => Self::Wrong(format!("/{name} stands alone")),
            _ => Self::Wrong(format!("/{name:.40}: no such command; /help lists them")),
        }
    }
}

struct Session<'a> {
    engine: Engine,
    global: &'a Global,
    signals: &'a Signals,
    human: bool,
    model: String,
    system: Option<String>,
    settings: ChatSettings,
    /// Conversations are the store's, and `messages` stays empty.
    keep: bool,
    /// The kept one, once it has begun.
    conversation: Option<i64>,
    /// Without the system message.
    messages: Vec<Message>,
}

impl Session<'_> {
    fn talk(&mut self, lines: &mut Lines) -> Result<()> {
        loop {
            let command = match lines.next()? {
                Line::Text(text) if text.trim().is_empty() => continue,
                Line::Text(text) => Command::parse(&text),
                Line::End => return Ok(()),
            };
            match self.act(command) {
                Ok(Go::On) => {}
                Ok(Go::Quit) => return Ok(()),
                // A human reads it and goes on; a script must not take the next line's answer for this one's.
                Err(Failure::Engine(error)) if self.human => out::complain(&format!("error: {}", error.message)),
                Err(failure) => return Err(failure),
            }
        }
    }

    fn act(&mut self, command: Command) -> Result<Go> {
        match command {
            Command::Say(text) if self.keep => self.say_kept(text)?,
            Command::Say(text) => self.say(text)?,
            Command::Reset => {
                self.messages.clear();
                self.conversation = None;
            }
            Command::System(text) => self.system = text,
            Command::Save(path) => {
                save(&path, &self.model, &self.messages()?)?;
                self.note(&format!("saved: {}", path.display()));
            }
            Command::Load(_) if self.keep => {
                return Err(
                    Error::BadRequest("/load and --keep do not go together: --resume goes on with a kept one".into()).into()
                );
            }
            Command::Load(path) => {
                (self.system, self.messages) = load(&path)?;
                self.note(&format!("{} messages", self.messages.len()));
            }
            Command::Help => out::complain(HELP),
            Command::Quit => return Ok(Go::Quit),
            Command::Wrong(complaint) => return Err(Error::BadRequest(complaint).into()),
        }
        Ok(Go::On)
    }

    fn say(&mut self, text: String) -> Result<()> {
        self.messages.push(Message::new("user", text));
        let prompt = Prompt::Chat { messages: self.messages()?, variables: serde_json::Map::new() };
        let mut answer = Answer::default();
        let ended = self.engine.generate(&self.model, self.global.request(prompt)).map_err(Failure::from);
        let ended = ended.and_then(|reader| follow(reader, self.signals, &mut answer, &mut out::print));
        end_line(&answer.text)?;
        // What the model has not answered at all is as if it had not been said.
        if answer.text.is_empty() && ended.is_err() {
            self.messages.pop();
        } else {
            self.messages.push(Message::new("assistant", answer.text));
        }
        self.stopped_or(ended)
    }

    /// The store keeps the question and the answer, however this ends.
    fn say_kept(&mut self, text: String) -> Result<()> {
        let turn = Turn { conversation: self.conversation, model: self.model.clone(), ask: Ask::New { text } };
        let (global, settings) = (self.global, &self.settings);
        let request = |prompt| with_settings(global.request(prompt), settings);
        let begun = self.engine.chat_with(turn, self.system.as_deref().unwrap_or_default(), request)?;
        let id = begun.conversation.id;
        self.conversation = Some(id);
        let mut answer = Answer::default();
        let ended = match self.engine.follow(id) {
            Some(reader) => follow(reader, self.signals, &mut answer, &mut out::print),
            None => self.over_already(id, &mut answer),
        };
        if ended.is_err() {
            self.engine.stop(id);
        }
        end_line(&answer.text)?;
        self.stopped_or(ended)
    }

    /// A short answer may have ended before anybody could follow it.
    fn over_already(&self, id: i64, answer: &mut Answer) -> Result<()> {
        let Some(last) = self.engine.conversation(id)?.messages.pop() else { return Ok(()) };
        out::print(&last.content)?;
        answer.text = last.content;
        match last.answer {
            Some(info) if info.state != AnswerState::Complete => {
                let lost = || ErrorInfo::from(&Error::Internal("the answer ended before its end".into()));
                Err(Failure::Engine(info.error.unwrap_or_else(lost)))
            }
            _ => Ok(()),
        }
    }

    fn stopped_or(&self, ended: Result<()>) -> Result<()> {
        match ended {
            Err(Failure::Signal(INTERRUPT)) => {
                self.note("stopped");
                Ok(())
            }
            other => other,
        }
    }

    /// All of the conversation, with the system message.
    fn messages(&self) -> Result<Vec<Message>> {
        let system = self.system.as_ref().map(|text| Message::new("system", text.as_str()));
        let kept = match self.conversation {
            Some(id) => self.engine.conversation(id)?.messages,
            None => Vec::new(),
        };
        let kept = kept.into_iter().map(|m| match m.role {
            Role::User => Message::new("user", m.content),
            Role::Assistant => Message::new("assistant", m.content),
        });
        Ok(system.into_iter().chain(kept).chain(self.messages.iter().cloned()).collect())
    }

    fn note(&self, text: &str) {
        if self.human {
            out::complain(&format!("({text})"));
        }
    }
}

/// Flags come before settings.
fn with_settings(mut request: Request, settings: &ChatSettings) -> Request {
    request.sampling.temperature = request.sampling.temperature.or(settings.temperature);
    request.max_tokens = request.max_tokens.or(settings.max_tokens);
    request
}

fn end_line(text: &str) -> Result<()> {
    if text.is_empty() || text.ends_with('\n') { Ok(()) } else { out::print("\n") }
}

fn save(path: &Path, model: &str, messages: &[Message]) -> Result<()> {
    let page = json!({ "model": model, "messages": out::json(messages)? });
    files::write(path, |file| writeln!(file, "{page:#}"))
}

/// The system message, if the conversation begins with one, and the others.
fn load(path: &Path) -> Result<(Option<String>, Vec<Message>)> {
    let text = files::text(File::open(path).map_err(|e| Error::io(path, e))?, path)?;
    let mut page: Value = serde_json::from_str(&text).map_err(|e| Error::bad_file(path, e))?;
    let messages = page.get_mut("messages").map(Value::take).ok_or_else(|| Error::bad_file(path, "no conversation"))?;
    let mut messages: Vec<Message> = serde_json::from_value(messages).map_err(|e| Error::bad_file(path, e))?;
    let system = messages.first().is_some_and(|first| first.role == "system").then(|| messages.remove(0).content);
    Ok((system, messages))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn lines_are_text_or_commands() {
        for (line, command) in [
            ("hello", Command::Say("hello".into())),
            ("  two words ", Command::Say("  two words ".into())),
            ("/reset", Command::Reset),
            ("/reset ", Command::Reset),
            ("/system be brief ", Command::System(Some("be brief".into()))),
            ("/system", Command::System(None)),
            ("/save a b.json", Command::Save("a b.json".into())),
            ("/load\tx", Command::Load("x".into())),
            ("/help", Command::Help),
            (" /quit", Command::Quit),
            ("/exit", Command::Quit),
            ("/save", Command::Wrong("/save needs a file".into())),
            ("/reset all", Command::Wrong("/reset stands alone".into())),
            ("/etc/passwd?", Command::Wrong("/etc/passwd?: no such command; /help lists them".into())),
        ] {
            assert_eq!(Command::parse(line), command, "{line:?}");
        }
    }

    #[test]
    fn conversations_come_back_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("talk.json");
        let messages = [("system", "be brief"), ("user", "é\n\"x\""), ("assistant", "")].map(|(r, c)| Message::new(r, c));
        save(&path, "m", &messages).unwrap();
        assert_eq!(load(&path).unwrap(), (Some("be brief".into()), messages[1..].to_vec()));
        save(&path, "m", &messages[1..]).unwrap();
        assert_eq!(load(&path).unwrap(), (None, messages[1..].to_vec()));
        for broken in ["", "[]", "{}", r#"{"messages": [{"role": "user"}]}"#] {
            fs::write(&path, broken).unwrap();
            assert!(matches!(load(&path), Err(Failure::Engine(e)) if e.code == "bad_file"), "{broken}");
        }
    }
}
