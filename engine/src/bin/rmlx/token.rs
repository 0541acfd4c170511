//! `rmlx token`: the access token for the hub. It is read from a terminal or standard input, never from an argument, which other
//! programs could see; and it is never printed.

use std::io::{self, BufRead, IsTerminal, Read, Write};

use clap::{Args, Subcommand};
use rmlx_engine::api::{TokenKept, TokenState};
use rmlx_engine::engine::Models;
use rmlx_engine::error::Error;
use rmlx_engine::paths;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use crate::failure::Result;
use crate::out;
use crate::signals::Signals;

/// Say where the access token for the hub comes from, keep one, or forget it
///
/// Gated models need one. It is kept in the system's keyring and read in this order: HF_TOKEN, the keyring, the file of the hub's own
/// tools.
#[derive(Debug, Args)]
pub struct Token {
    #[command(subcommand)]
    action: Option<Action>,
    /// Print one JSON object; it says where the token is, not what it is
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Read a token from standard input, without showing it, and keep it
    Set,
    /// Forget the token that is kept
    Forget,
}

/// Bytes of a line.
const LONGEST: u64 = 4096;

pub fn run(args: &Token, signals: &Signals) -> Result<()> {
    let models = Models::open(paths::home())?;
    let setting = matches!(args.action, Some(Action::Set));
    let state = match args.action {
        None => models.token()?,
        Some(Action::Set) => models.set_token(Some(&read(signals)?))?,
        Some(Action::Forget) => models.set_token(None)?,
    };
    if args.json {
        out::print_json(&out::json(&state)?)?;
    } else {
        out::print_line(&out::printable(&sentence(&state)))?;
    }
    if setting && state.kept == TokenKept::Session {
        // This process is the session, and it ends here.
        return Err(Error::BadRequest(
            "the token was not kept\nhint: unlock the keyring, or set HF_TOKEN in the environment".into(),
        )
        .into());
    }
    Ok(())
}

fn sentence(state: &TokenState) -> String {
    let kept = match state.kept {
        TokenKept::None => "no access token",
        TokenKept::Keyring => "an access token is in the system's keyring",
        TokenKept::Session => "an access token is in memory",
        TokenKept::Environment => "an access token is in the environment",
        TokenKept::File => "an access token is in the file of the hub's own tools",
    };
    state.note.as_ref().map_or_else(|| kept.into(), |note| format!("{kept} ({note})"))
}

fn read(signals: &Signals) -> Result<String> {
    let stdin = io::stdin();
    let io = |e| Error::io("standard input", e);
    let mut line = String::new();
    if !stdin.is_terminal() {
        stdin.lock().take(LONGEST).read_line(&mut line).map_err(io)?;
        return Ok(line);
    }
    let before = tcgetattr(&stdin).map_err(|e| io(e.into()))?;
    // Ctrl-C at the prompt gives the terminal back as it was.
    signals.remember_terminal();
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Flush, &silent).map_err(|e| io(e.into()))?;
    let _ = write!(io::stderr(), "access token (it is not shown): ");
    let read = stdin.lock().take(LONGEST).read_line(&mut line);
    let restored = tcsetattr(&stdin, OptionalActions::Now, &before);
    let _ = writeln!(io::stderr());
    restored.map_err(|e| io(e.into()))?;
    read.map_err(io)?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told() {
        let state = |kept, note: Option<&str>| sentence(&TokenState { kept, note: note.map(Into::into) });
        assert_eq!(state(TokenKept::None, None), "no access token");
        assert_eq!(state(TokenKept::Keyring, Some("why")), "an access token is in the system's keyring (why)");
    }
}
