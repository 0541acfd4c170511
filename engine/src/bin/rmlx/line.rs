//! Where `chat` gets its lines: an editor with a history at a terminal, else plain standard input.

use std::fs::DirBuilder;
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use rmlx_engine::error::Error;
use rmlx_engine::paths;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config, Editor};

use crate::failure::Result;
use crate::files;
use crate::out;
use crate::signals::Signals;

pub enum Line {
    Text(String),
    End,
}

pub enum Lines {
    Terminal { editor: Box<Editor<(), FileHistory>>, history: Option<PathBuf> },
    Pipe,
}

const HISTORY_LINES: usize = 1000;

impl Lines {
    pub fn open(human: bool, signals: &Signals) -> Result<Self> {
        if !human {
            return Ok(Self::Pipe);
        }
        let config = Config::builder().max_history_size(HISTORY_LINES).map(|config| config.build()).map_err(lost)?;
        let mut editor = Editor::with_config(config).map_err(lost)?;
        let history = paths::home().join("chat_history");
        // The first time there is none.
        let _ = editor.load_history(&history);
        signals.remember_terminal();
        Ok(Self::Terminal { editor: Box::new(editor), history: Some(history) })
    }

    pub fn next(&mut self) -> Result<Line> {
        match self {
            Self::Pipe => {
                let line = files::line(io::stdin().lock(), "standard input")?;
                Ok(if line.is_empty() { Line::End } else { Line::Text(line.trim_end_matches(['\r', '\n']).to_owned()) })
            }
            Self::Terminal { editor, history } => {
                let mut interrupted = false;
                loop {
                    match editor.readline("> ") {
                        Ok(line) => {
                            remember(editor, history, &line);
                            return Ok(Line::Text(line));
                        }
                        Err(ReadlineError::Eof) => return Ok(Line::End),
                        Err(ReadlineError::Interrupted) if interrupted => return Ok(Line::End),
                        Err(ReadlineError::Interrupted) => {
                            interrupted = true;
                            out::complain("(Ctrl-C again, or Ctrl-D, ends the chat)");
                        }
                        // A byte from a paste or a terminal of another encoding is no reason to lose the conversation.
                        Err(ReadlineError::Io(e)) if e.kind() == ErrorKind::InvalidData => {
                            out::complain("(that line is not UTF-8: type it again)");
                        }
                        Err(e) => return Err(lost(e)),
                    }
                }
            }
        }
    }
}

/// After every line, so that no way of ending loses one. What was typed belongs to the user alone.
fn remember(editor: &mut Editor<(), FileHistory>, history: &mut Option<PathBuf>, line: &str) {
    let Some(path) = history else { return };
    let added = editor.add_history_entry(line).and_then(|_| {
        DirBuilder::new().recursive(true).mode(0o700).create(paths::home())?;
        editor.append_history(path)
    });
    if let Err(e) = added {
        tracing::warn!("the chat history is not kept: {}: {e}", path.display());
        *history = None;
    }
}

fn lost(error: ReadlineError) -> crate::failure::Failure {
    Error::io("the terminal", io::Error::other(error)).into()
}
