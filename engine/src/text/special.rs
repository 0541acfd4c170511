//! The named special tokens of a snapshot: `bos_token`, `eos_token`, ...

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value as Json;

use super::files::read_json;
use crate::error::Result;

/// Texts of special tokens by their names in tokenizer_config.json.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpecialTokens(BTreeMap<String, String>);

impl SpecialTokens {
    /// From tokenizer_config.json; what it lacks, from special_tokens_map.json. Neither has to exist.
    ///
    /// # Errors
    /// [`crate::error::Error::BadFile`] for a file that is not JSON.
    pub fn load(folder: &Path) -> Result<Self> {
        let mut tokens = BTreeMap::new();
        for name in ["special_tokens_map.json", "tokenizer_config.json"] {
            if let Some(config) = read_json(folder, name)? {
                tokens.extend(Self::from_config(&config).0);
            }
        }
        Ok(Self(tokens))
    }

    /// The keys `*_token` of a tokenizer_config.json: each a text, or an object that has it as `content`.
    pub fn from_config(config: &Json) -> Self {
        let tokens = config.as_object().into_iter().flatten().filter(|(name, _)| name.ends_with("_token"));
        let text = |value: &Json| value.as_str().or_else(|| value.get("content")?.as_str()).map(str::to_string);
        Self(tokens.filter_map(|(name, value)| Some((name.clone(), text(value)?))).collect())
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub fn named(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, text)| (name.as_str(), text.as_str()))
    }
}
