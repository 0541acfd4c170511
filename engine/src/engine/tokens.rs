//! What others need to know of a model's tokens and context, without its arrays.

use std::sync::Arc;

use super::{Engine, wanted};
use crate::error::Result;
use crate::text::{Tokenizer, token_bytes};

/// The bytes of a model's tokens.
#[derive(Clone)]
pub struct TokenBytes(Arc<Tokenizer>);

impl TokenBytes {
    /// What the token adds to a text; a part of a character is possible. Empty for special tokens and unknown ids.
    pub fn of(&self, id: u32) -> Vec<u8> {
        token_bytes(&self.0, id)
    }
}

impl Engine {
    /// # Errors
    /// Of finding and reading the snapshot.
    pub fn token_bytes(&self, model: &str) -> Result<TokenBytes> {
        Ok(TokenBytes(self.text(&wanted(model)?.snapshot)?.tokenizer.clone()))
    }

    /// Tokens that a prompt and its answer may have together. Reads the configuration only.
    ///
    /// # Errors
    /// Of finding and reading the snapshot.
    pub fn context_length(&self, model: &str) -> Result<usize> {
        self.context_limit(&wanted(model)?.snapshot.model_config()?)
    }
}
