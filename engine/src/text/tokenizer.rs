//! Text to token ids and back, as tokenizer.json says.
//!
//! The crate `tokenizers` does the work and may panic on files that nobody made by accident; a panic ends as an error here.

use std::collections::HashMap;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::OnceLock;

use serde::Deserialize;
use serde::de::IgnoredAny;
use tokenizers::{Decoder, DecoderWrapper, Model};

use super::files::{read_bytes, read_json};
use super::special::SpecialTokens;
use crate::error::{Error, Result};

/// Bytes of a tokenizer.json. Gemma's, the largest known, has 33 MB.
const MAX_FILE: u64 = 256 << 20;

/// The tokenizer of a snapshot. Immutable: threads share it in an `Arc`.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    special: SpecialTokens,
    bos: Option<u32>,
    eos: Option<u32>,
    decoding: Decoding,
    id_bound: OnceLock<u32>,
}

/// How tokens become text, as far as a reader of a stream has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decoding {
    /// Every token is bytes in GPT-2's alphabet.
    Bytes,
    /// Tokens are text that the decoder changes.
    Text {
        /// Tokens `<0xE2>` are bytes. A run of them is text only as a whole.
        byte_runs: bool,
    },
}

impl Tokenizer {
    /// Reads tokenizer.json, and the names of special tokens from the files beside it.
    ///
    /// # Errors
    /// [`Error::BadFile`] or [`Error::Io`] for a file that is missing, broken or too large.
    pub fn load(folder: &Path) -> Result<Self> {
        const NAME: &str = "tokenizer.json";
        let path = folder.join(NAME);
        let Some(bytes) = read_bytes(folder, NAME, MAX_FILE)? else {
            return Err(Error::bad_file(folder, "has no tokenizer.json"));
        };
        let mut tokenizer = Self::parse(&bytes, SpecialTokens::load(folder)?).map_err(|reason| Error::bad_file(&path, reason))?;
        if tokenizer.bos.is_none()
            && let Some(config) = read_json(folder, "config.json")?
        {
            let id =
                [Some(&config), config.get("text_config")].into_iter().flatten().find_map(|c| c.get("bos_token_id")?.as_u64());
            tokenizer.bos = id.and_then(|id| u32::try_from(id).ok()).filter(|id| tokenizer.token(*id).is_some());
        }
        Ok(tokenizer)
    }

    /// From the content of a tokenizer.json.
    ///
    /// # Errors
    /// [`Error::Tokenizer`].
    pub fn from_bytes(json: &[u8], special: SpecialTokens) -> Result<Self> {
        Self::parse(json, special).map_err(Error::Tokenizer)
    }

    fn parse(json: &[u8], special: SpecialTokens) -> Result<Self, String> {
        let file: File = serde_json::from_slice(json).map_err(|e| e.to_string())?;
        file.check()?;
        let mut inner = guard(|| tokenizers::Tokenizer::from_bytes(json).map_err(|e| e.to_string()))?;
        // A file can ask for any amount of padding, and neither belongs to a prompt.
        inner.with_padding(None);
        inner.with_truncation(None).map_err(|e| e.to_string())?;
        for token in &file.added_tokens {
            match inner.token_to_id(&token.content) {
                Some(id) if id == token.id => {}
                // The crate numbers by its own count, and the model would read another token.
                given => {
                    let counted = given.map_or_else(|| "none".into(), |id| id.to_string());
                    return Err(format!("the added token {} has id {} where the count gives {counted}", token.content, token.id));
                }
            }
        }
        let id = |name: &str| special.get(name).and_then(|text| inner.token_to_id(text));
        let (bos, eos) = (id("bos_token"), id("eos_token"));
        let decoding = inner.get_decoder().map_or(Decoding::Text { byte_runs: false }, decoding_of);
        Ok(Self { inner, special, bos, eos, decoding, id_bound: OnceLock::new() })
    }

    /// The ids of `text`. With `add_special`, also what the tokenizer itself puts around a text (a BOS, say); a BOS that the text
    /// already begins with is not doubled. Text rendered by a chat template is encoded without.
    ///
    /// # Errors
    /// [`Error::Tokenizer`].
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>> {
        let encode = || self.inner.encode_fast(text, add_special).map_err(|e| e.to_string());
        let encoding = guard(encode).map_err(Error::Tokenizer)?;
        let ids = encoding.get_ids();
        Ok(match (ids, self.bos) {
            ([first, second, ..], Some(bos)) if add_special && *first == bos && *second == bos => ids[1..].to_vec(),
            _ => ids.to_vec(),
        })
    }

    /// The text of `ids`; ids that the vocabulary lacks have none. With `skip_special`, special tokens have none either.
    ///
    /// # Errors
    /// [`Error::Tokenizer`].
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        self.join(ids.iter().filter_map(|id| self.piece(*id, skip_special)).collect())
    }

    /// A token as the decoder takes it.
    pub(super) fn piece(&self, id: u32, skip_special: bool) -> Option<String> {
        let added = self.inner.get_added_vocabulary();
        let piece = added.simple_id_to_token(id).or_else(|| self.inner.get_model().id_to_token(id))?;
        (!skip_special || !added.is_special_token(&piece)).then_some(piece)
    }

    /// The text of the tokens `pieces`.
    pub(super) fn join(&self, pieces: Vec<String>) -> Result<String> {
        match self.inner.get_decoder() {
            // Some decoders cannot do without a last token.
            _ if pieces.is_empty() => Ok(String::new()),
            None => Ok(pieces.join(" ")),
            Some(decoder) => guard(|| decoder.decode(pieces).map_err(|e| e.to_string())).map_err(Error::Tokenizer),
        }
    }

    pub(super) fn decoding(&self) -> Decoding {
        self.decoding
    }

    /// The token as the vocabulary writes it.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// Whether `decode` skips this token.
    pub fn is_special(&self, id: u32) -> bool {
        self.piece(id, false).is_some() && self.piece(id, true).is_none()
    }

    /// How many tokens there are. A model may have more rows of logits than that.
    pub fn vocabulary_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// One more than the greatest id.
    pub fn id_bound(&self) -> u32 {
        let count = || self.inner.get_vocab(true).values().max().map_or(0, |id| id.saturating_add(1));
        *self.id_bound.get_or_init(count)
    }

    /// All tokens with their ids, in the vocabulary's own writing.
    pub fn vocabulary(&self) -> HashMap<String, u32> {
        self.inner.get_vocab(true)
    }

    pub fn special(&self) -> &SpecialTokens {
        &self.special
    }

    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    pub fn eos(&self) -> Option<u32> {
        self.eos
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("special", &self.special).field("decoding", &self.decoding).finish_non_exhaustive()
    }
}

/// Runs another's code on anyone's data: a panic is an error.
fn guard<T, E: Display>(run: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result.map_err(|e| e.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
            Err(format!("the file does not suit its own rules: {}", text.unwrap_or("no reason given")))
        }
    }
}

/// What has to be known of a tokenizer.json before the crate reads it.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    model: ModelHead,
}

#[derive(Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
}

#[derive(Deserialize)]
struct ModelHead {
    continuing_subword_prefix: Option<String>,
    merges: Option<IgnoredAny>,
}

impl File {
    /// The crate cuts the second half of each merge at the length of this prefix without looking, which can make text that is not
    /// UTF-8. No known language model has both.
    fn check(&self) -> Result<(), String> {
        match &self.model.continuing_subword_prefix {
            Some(prefix) if self.model.merges.is_some() && !prefix.is_empty() => {
                Err("merges with a continuing_subword_prefix are not supported".into())
            }
            _ => Ok(()),
        }
    }
}

fn decoding_of(decoder: &DecoderWrapper) -> Decoding {
    match decoder {
        DecoderWrapper::ByteLevel(_) => Decoding::Bytes,
        DecoderWrapper::Sequence(sequence) if sequence.get_decoders().len() == 1 => decoding_of(&sequence.get_decoders()[0]),
        other => Decoding::Text { byte_runs: has_byte_runs(other) },
    }
}

fn has_byte_runs(decoder: &DecoderWrapper) -> bool {
    match decoder {
        DecoderWrapper::ByteFallback(_) => true,
        DecoderWrapper::Sequence(sequence) => sequence.get_decoders().iter().any(has_byte_runs),
        _ => false,
    }
}
