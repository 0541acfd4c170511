//! Text: what turns conversations into token ids and token ids back into text.
//!
//! Nothing here knows a model or an array. Every file of a snapshot that is read here may be missing, broken or hostile, and
//! ends as an error that names it.

mod detok;
mod files;
mod generation;
mod special;
mod template;
mod tokenizer;

pub use detok::{Detokenizer, token_bytes};
pub use generation::{GenerationDefaults, stop_ids};
pub use special::SpecialTokens;
pub use template::{ChatTemplate, Conversation, End, Jinja};
pub use tokenizer::Tokenizer;
