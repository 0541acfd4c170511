//! Token ids to text, one at a time.
//!
//! * The pieces put together are what [`Tokenizer::decode`] makes of all ids at once, special tokens skipped.
//! * A character is given when it is whole: U+FFFD comes out only where the model wrote bytes that are no text, or at the end.
//! * A token costs the same at the end of a long answer as at its start.

use std::sync::Arc;

use super::tokenizer::{Decoding, Tokenizer};
use crate::error::Result;

/// Tokens of already given text that are decoded again, so that a decoder sees what came before (it drops the space of a first
/// token, say).
const CONTEXT: usize = 4;
/// Tokens in the window before it is cut to [`CONTEXT`].
const WINDOW: usize = 16;

/// The text of one answer, as its tokens arrive.
#[derive(Debug, Clone)]
pub struct Detokenizer {
    tokenizer: Arc<Tokenizer>,
    state: State,
}

#[derive(Debug, Clone)]
enum State {
    /// The last bytes, which may still become a character.
    Bytes(Vec<u8>),
    Window {
        /// The last tokens as the decoder takes them.
        pieces: Vec<String>,
        /// Bytes of the window's text that were given.
        given: usize,
        byte_runs: bool,
    },
}

impl Detokenizer {
    pub fn new(tokenizer: Arc<Tokenizer>) -> Self {
        let state = match tokenizer.decoding() {
            Decoding::Bytes => State::Bytes(Vec::new()),
            Decoding::Text { byte_runs } => State::Window { pieces: Vec::new(), given: 0, byte_runs },
        };
        Self { tokenizer, state }
    }

    /// The text that `id` completes; often none.
    ///
    /// # Errors
    /// [`crate::error::Error::Tokenizer`] where the tokenizer's decoder fails.
    pub fn push(&mut self, id: u32) -> Result<String> {
        let Some(piece) = self.tokenizer.piece(id, true) else { return Ok(String::new()) };
        match &mut self.state {
            State::Bytes(tail) => {
                push_bytes(&piece, tail);
                Ok(take_text(tail))
            }
            State::Window { pieces, given, byte_runs } => {
                // A byte that spoils a run takes the whole run with it, so none of it is text before the run ends.
                let open = *byte_runs && is_byte(&piece);
                pieces.push(piece);
                if open {
                    return Ok(String::new());
                }
                let text = take_new(&self.tokenizer, pieces, given)?;
                if pieces.len() > WINDOW {
                    pieces.drain(..pieces.len() - CONTEXT);
                    *given = self.tokenizer.join(pieces.clone())?.len();
                }
                Ok(text)
            }
        }
    }

    /// The answer is over: what was held back, with U+FFFD for what never became a character.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn finish(&mut self) -> Result<String> {
        match &mut self.state {
            State::Bytes(tail) => Ok(String::from_utf8_lossy(&std::mem::take(tail)).into_owned()),
            State::Window { pieces, given, .. } => take_new(&self.tokenizer, pieces, given),
        }
    }
}

/// The bytes that a token adds to a text: none for special tokens and unknown ids.
pub fn token_bytes(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    let Some(piece) = tokenizer.piece(id, true) else { return Vec::new() };
    if is_byte(&piece) && tokenizer.decoding() == (Decoding::Text { byte_runs: true }) {
        return u8::from_str_radix(&piece[3..5], 16).into_iter().collect();
    }
    if tokenizer.decoding() == Decoding::Bytes {
        let mut bytes = Vec::new();
        push_bytes(&piece, &mut bytes);
        return bytes;
    }
    // Some decoders change the first token, so it is what a second one adds.
    let once = tokenizer.join(vec![piece.clone()]).unwrap_or_default();
    let twice = tokenizer.join(vec![piece.clone(), piece]).unwrap_or_default();
    twice.as_bytes().get(once.len()..).unwrap_or_default().to_vec()
}

/// The window's text that was not given yet.
fn take_new(tokenizer: &Tokenizer, pieces: &[String], given: &mut usize) -> Result<String> {
    let text = tokenizer.join(pieces.to_vec())?;
    let new = text.get(*given..).unwrap_or_default().to_string();
    *given += new.len();
    Ok(new)
}

/// Takes the text from the front of `tail`; leaves the start of a character that is not whole.
fn take_text(tail: &mut Vec<u8>) -> String {
    let mut text = String::new();
    let mut rest = tail.as_slice();
    while !rest.is_empty() {
        match std::str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                rest = &[];
            }
            Err(e) => {
                let (valid, broken) = rest.split_at(e.valid_up_to());
                text.push_str(std::str::from_utf8(valid).unwrap_or_default());
                rest = broken;
                match e.error_len() {
                    None => break,
                    Some(len) => {
                        text.push(char::REPLACEMENT_CHARACTER);
                        rest = &broken[len..];
                    }
                }
            }
        }
    }
    *tail = rest.to_vec();
    text
}

/// A token of a byte-fallback vocabulary that is one byte, by the decoder's own test.
fn is_byte(piece: &str) -> bool {
    piece.len() == 6 && piece.starts_with("<0x") && piece.ends_with('>') && u8::from_str_radix(&piece[3..5], 16).is_ok()
}

/// The bytes of a token in GPT-2's alphabet. A token with any other character is its own UTF-8, as for the decoder.
fn push_bytes(piece: &str, out: &mut Vec<u8>) {
    let start = out.len();
    for c in piece.chars() {
        match byte_of(c) {
            Some(byte) => out.push(byte),
            None => {
                out.truncate(start);
                out.extend_from_slice(piece.as_bytes());
                return;
            }
        }
    }
}

/// GPT-2 writes the bytes that Latin-1 can print as that character, and the other 68, in order, as U+0100 and on.
fn byte_of(c: char) -> Option<u8> {
    let code = u32::from(c);
    match code {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => Some(code as u8),
        0x100..=0x120 => Some((code - 0x100) as u8),
        0x121..=0x142 => Some((code - 0x121 + 0x7f) as u8),
        0x143 => Some(0xad),
        _ => None,
    }
}
