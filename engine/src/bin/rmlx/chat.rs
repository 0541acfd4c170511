//! `rmlx chat`: a conversation, at a terminal or line by line through a pipe.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use clap::Args;
use rmlx_engine::api::{Message, Prompt};
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
    or_exit(follow_load(engine.load(&args.model)?, signals))?;
    let human = io::stdin().is_terminal() && io::stdout().is_terminal();
    let mut lines = Lines::open(human, signals)?;
    let mut session = Session { engine, global, signals, human, model: args.model, system: args.system, messages: Vec::new() };
    if human {
        out::complain(&format!("{} is ready. /help lists the commands.", session.model));
    }
    loop {
        let command = match lines.next()? {
            Line::Text(text) if text.trim().is_empty() => continue,
            Line::Text(text) => Command::parse(&text),
            Line::End => return Ok(()),
        };
        match session.act(command) {
            Ok(Go::On) => {}
            Ok(Go::Quit) => return Ok(()),
            // A human reads it and goes on; a script must not take the next line's answer for this one's.
            Err(Failure::Engine(error)) if human => out::complain(&format!("error: {}", error.message)),
            Err(failure) => return Err(failure),
        }
    }
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
    /// Without the system message.
    messages: Vec<Message>,
}

impl Session<'_> {
    fn act(&mut self, command: Command) -> Result<Go> {
        match command {
            Command::Say(text) => self.say(text)?,
            Command::Reset => self.messages.clear(),
            Command::System(text) => self.system = text,
            Command::Save(path) => {
                save(&path, &self.model, &self.conversation())?;
                self.note(&format!("saved: {}", path.display()));
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
        let prompt = Prompt::Chat { messages: self.conversation(), variables: serde_json::Map::new() };
        let mut answer = Answer::default();
        let ended = self.engine.generate(&self.model, self.global.request(prompt)).map_err(Failure::from);
        let ended = ended.and_then(|reader| follow(reader, self.signals, &mut answer, &mut out::print));
        if !answer.text.ends_with('\n') && !answer.text.is_empty() {
            out::print("\n")?;
        }
        // What the model has not answered at all is as if it had not been said.
        if answer.text.is_empty() && ended.is_err() {
            self.messages.pop();
        } else {
            self.messages.push(Message::new("assistant", answer.text));
        }
        match ended {
            Err(Failure::Signal(INTERRUPT)) => {
                self.note("stopped");
                Ok(())
            }
            other => or_exit(other),
        }
    }

    fn conversation(&self) -> Vec<Message> {
        let system = self.system.as_ref().map(|text| Message::new("system", text.as_str()));
        system.into_iter().chain(self.messages.iter().cloned()).collect()
    }

    fn note(&self, text: &str) {
        if self.human {
            out::complain(&format!("({text})"));
        }
    }
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
