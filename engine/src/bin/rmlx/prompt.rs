//! The forms of a prompt that `run` and `logits` share.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use clap::Args;
use rmlx_engine::api::{Message, Prompt};
use rmlx_engine::error::Error;

use crate::failure::{Failure, Result};
use crate::files;

#[derive(Debug, Args)]
pub struct PromptArgs {
    /// The prompt, through the model's chat template. With `-`, or when no form of prompt is given
    /// and standard input is no terminal, it is read from there
    #[arg(value_name = "PROMPT", group = "form")]
    positional: Option<String>,
    /// As the positional PROMPT, also for a text that begins with a dash
    #[arg(long, value_name = "TEXT", group = "form", allow_hyphen_values = true)]
    prompt: Option<String>,
    /// A prompt that does not go through the chat template
    #[arg(long, value_name = "TEXT", group = "form", allow_hyphen_values = true)]
    raw_prompt: Option<String>,
    /// A prompt as token ids: a JSON array, or numbers between spaces; `-` is standard input
    #[arg(long, value_name = "FILE", group = "form")]
    prompt_ids: Option<PathBuf>,
    /// The system message before the prompt
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["raw_prompt", "prompt_ids"], allow_hyphen_values = true)]
    system: Option<String>,
}

impl PromptArgs {
    pub fn read(self) -> Result<Prompt> {
        if let Some(text) = self.raw_prompt {
            return Ok(Prompt::Text(text));
        }
        if let Some(path) = self.prompt_ids {
            let text = if path == Path::new("-") { stdin()? } else { file(&path)? };
            return Ok(Prompt::Tokens(ids(&text).map_err(|reason| Error::bad_file(path, reason))?));
        }
        let text = match (self.positional, self.prompt) {
            (Some(dash), _) if dash == "-" => stdin()?,
            (Some(text), _) | (None, Some(text)) => text,
            (None, None) if !io::stdin().is_terminal() => stdin()?,
            (None, None) => return Err(Failure::Usage("no prompt: give one, or pipe one into standard input".into())),
        };
        Ok(chat(self.system, text))
    }
}

fn chat(system: Option<String>, text: String) -> Prompt {
    let system = system.map(|text| Message::new("system", text));
    let messages = system.into_iter().chain([Message::new("user", text)]).collect();
    Prompt::Chat { messages, variables: serde_json::Map::new() }
}

/// Without the line end that `echo` and files have.
fn stdin() -> Result<String> {
    let text = files::text(io::stdin().lock(), "standard input")?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.is_empty() {
        return Err(Failure::Usage("no prompt: standard input is empty".into()));
    }
    Ok(text.to_owned())
}

fn file(path: &Path) -> Result<String> {
    files::text(File::open(path).map_err(|e| Error::io(path, e))?, path)
}

fn ids(text: &str) -> Result<Vec<u32>, String> {
    let text = text.trim();
    let ids: Vec<u32> = if text.starts_with('[') {
        serde_json::from_str(text).map_err(|e| format!("no array of token ids: {e}"))?
    } else {
        let one = |word: &str| word.parse().map_err(|_| format!("no token id: {word:.40}"));
        text.split_whitespace().map(one).collect::<Result<_, _>>()?
    };
    if ids.is_empty() { Err("it holds no token ids".into()) } else { Ok(ids) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        prompt: PromptArgs,
    }

    fn read(args: &[&str]) -> Result<Prompt, String> {
        let line = Line::try_parse_from(["x"].iter().chain(args)).map_err(|e| e.kind().to_string())?;
        line.prompt.read().map_err(|e| format!("{e:?}"))
    }

    #[test]
    fn forms() {
        let plain = chat(None, "hi".into());
        assert_eq!(read(&["hi"]).unwrap(), plain);
        assert_eq!(read(&["--prompt", "hi"]).unwrap(), plain);
        assert_eq!(read(&["--prompt", "-hi"]).unwrap(), chat(None, "-hi".into()));
        assert_eq!(read(&["--system", "be brief", "hi"]).unwrap(), chat(Some("be brief".into()), "hi".into()));
        assert_eq!(read(&["--raw-prompt", " hi"]).unwrap(), Prompt::Text(" hi".into()));
    }

    #[test]
    fn one_form_only() {
        for args in [
            &["hi", "--prompt", "x"][..],
            &["hi", "--raw-prompt", "x"],
            &["hi", "--prompt-ids", "x"],
            &["--prompt", "x", "--raw-prompt", "x"],
            &["--raw-prompt", "x", "--system", "x"],
            &["--prompt-ids", "x", "--system", "x"],
        ] {
            let error = read(args).unwrap_err();
            assert!(error.contains("cannot be used with"), "{args:?}: {error}");
        }
    }

    #[test]
    fn token_ids() {
        for text in ["[1, 2,3]", "1 2\n3\n", " 1\t2 3 "] {
            assert_eq!(ids(text).unwrap(), [1, 2, 3], "{text:?}");
        }
        for text in ["", "[]", "[1, -2]", "[1, 2", "1 x", "1,2", "4294967296", "[1.5]"] {
            assert!(ids(text).is_err(), "{text:?}");
        }
    }
}
