//! Rebuilds a tokenizer's files from GGUF metadata. GGUF names the way text is split into words (`tokenizer.ggml.pre`) instead of
//! giving it; a name that is not in [`SPLITS`] is refused, because another split gives other ids without any error.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::gguf::Gguf;

/// What becomes `tokenizer.json`, `tokenizer_config.json`, `chat_template.jinja` and parts of the configurations.
#[derive(Debug, Clone, PartialEq)]
pub struct Rebuilt {
    pub tokenizer: Value,
    pub tokenizer_config: Value,
    pub chat_template: Option<String>,
    pub bos: Option<u32>,
    pub pad: Option<u32>,
    /// Tokens that end an answer, the file's own first.
    pub stops: Vec<u32>,
}

struct Split {
    names: &'static [&'static str],
    normalizer: Option<&'static str>,
    words: Words,
    /// A word that is a token is that token, whatever the merges make of it.
    ignore_merges: bool,
    /// Where the file does not say.
    adds_bos: bool,
    /// Control tokens that end an answer besides those that the file names.
    stops: &'static [&'static str],
}

enum Words {
    /// The pattern that is built into byte-level pre-tokenizers, GPT-2's.
    ByteLevel,
    /// The same, after every digit is set apart.
    DigitsThenByteLevel,
    Pattern(&'static str),
}

const SPLITS: &[Split] = &[
    Split { names: &["gpt-2"], normalizer: None, words: Words::ByteLevel, ignore_merges: false, adds_bos: false, stops: &[] },
    Split {
        names: &["smollm"],
        normalizer: None,
        words: Words::DigitsThenByteLevel,
        ignore_merges: false,
        adds_bos: false,
        stops: &[],
    },
    Split {
        names: &["llama-bpe", "llama3", "llama-v3"],
        normalizer: None,
        words: Words::Pattern(concat!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|",
            r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )),
        ignore_merges: true,
        adds_bos: true,
        stops: &["<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"],
    },
    Split {
        names: &["qwen2"],
        normalizer: Some("NFC"),
        words: Words::Pattern(concat!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|",
            r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )),
        ignore_merges: false,
        adds_bos: false,
        stops: &["<|im_end|>", "<|endoftext|>"],
    },
];

/// `tokenizer.ggml.token_type`.
const NORMAL: i64 = 1;
const UNKNOWN: i64 = 2;
const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;
/// Fills the vocabulary up to the embedding's rows; no text has it.
const UNUSED: i64 = 5;

/// `vocabulary` is the embedding's number of rows, `context` the number of positions.
///
/// # Errors
/// The key and the reason.
pub fn rebuild(gguf: &Gguf, vocabulary: usize, context: usize) -> Result<Rebuilt, String> {
    match gguf.opt_text("tokenizer.ggml.model")? {
        Some("gpt2") => {}
        Some(other) => return Err(format!("tokenizer {other} cannot be rebuilt; gpt2 (byte-level BPE) can")),
        None => return Err("tokenizer.ggml.model is missing".into()),
    }
    let pre = gguf.opt_text("tokenizer.ggml.pre")?.ok_or("tokenizer.ggml.pre is missing: how words are split is unknown")?;
    let split = SPLITS.iter().find(|s| s.names.contains(&pre)).ok_or_else(|| {
        let known: Vec<&str> = SPLITS.iter().flat_map(|s| s.names).copied().collect();
        format!("tokenizer.ggml.pre {pre} is not understood; {} are", known.join(", "))
    })?;
    if gguf.opt_bool("tokenizer.ggml.add_space_prefix")? == Some(true) {
        return Err("tokenizer.ggml.add_space_prefix is not understood for a byte-level tokenizer".into());
    }

    let tokens = Tokens::read(gguf, vocabulary)?;
    let id = |key: &str| tokens.id(gguf, key);
    let (bos, eos, pad) = (id("bos")?, id("eos")?, id("padding")?);
    let mut stops: Vec<u32> = Vec::new();
    let named = split.stops.iter().filter_map(|text| tokens.control(text));
    for stop in [eos, id("eot")?, id("eom")?].into_iter().flatten().chain(named) {
        if !stops.contains(&stop) {
            stops.push(stop);
        }
    }
    let adds_bos = gguf.opt_bool("tokenizer.ggml.add_bos_token")?.unwrap_or(split.adds_bos);
    let adds_eos = gguf.opt_bool("tokenizer.ggml.add_eos_token")?.unwrap_or(false);
    let around = |adds: bool, id: Option<u32>, key: &str| match (adds, id) {
        (false, _) => Ok(None),
        (true, Some(id)) => Ok(Some((id, tokens.text(id)))),
        (true, None) => Err(format!("the tokenizer adds a token that tokenizer.ggml.{key}_token_id does not name")),
    };
    let post_processor = template(around(adds_bos, bos, "bos")?, around(adds_eos, eos, "eos")?);

    let added = tokens.added();
    let tokenizer = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": split.normalizer.map(|n| json!({"type": n})),
        "pre_tokenizer": pre_tokenizer(&split.words),
        "post_processor": post_processor,
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": null,
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": false,
            "byte_fallback": false,
            "ignore_merges": split.ignore_merges,
            "vocab": tokens.vocabulary(),
            "merges": merges(gguf, &tokens)?,
        },
    });
    let text = |id: Option<u32>| id.map(|id| tokens.text(id));
    let tokenizer_config = json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": adds_bos,
        "add_eos_token": adds_eos,
        "bos_token": text(bos),
        "eos_token": text(eos),
        "pad_token": text(pad),
        "unk_token": text(id("unknown")?),
        "clean_up_tokenization_spaces": false,
        "model_max_length": context,
        "added_tokens_decoder": decoder_entries(&added),
    });
    let chat_template = gguf.opt_text("tokenizer.chat_template")?.map(Into::into);
    Ok(Rebuilt { tokenizer, tokenizer_config, chat_template, bos, pad, stops })
}

struct Tokens<'a> {
    texts: &'a [String],
    kinds: &'a [i64],
}

impl<'a> Tokens<'a> {
    fn read(gguf: &'a Gguf, vocabulary: usize) -> Result<Self, String> {
        let texts = gguf.texts("tokenizer.ggml.tokens")?;
        let kinds = gguf.ints("tokenizer.ggml.token_type")?;
        if texts.is_empty() || texts.len() != kinds.len() || texts.len() > vocabulary {
            return Err(format!("{} tokens, {} token types and {vocabulary} embeddings", texts.len(), kinds.len()));
        }
        if let Some(i) = kinds.iter().position(|k| ![NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED].contains(k)) {
            return Err(format!("token {i} has type {}, which a byte-level tokenizer has not", kinds[i]));
        }
        let mut seen = BTreeSet::new();
        let tokens = Self { texts, kinds };
        match tokens.used().find(|(_, text, _)| text.is_empty() || !seen.insert(*text)) {
            Some((id, text, _)) => Err(format!("token {id}, {text:?}, is empty or there twice")),
            None => Ok(tokens),
        }
    }

    fn used(&self) -> impl Iterator<Item = (u32, &'a str, i64)> + use<'a> {
        (0..).zip(self.texts).zip(self.kinds).map(|((id, text), kind)| (id, text.as_str(), *kind)).filter(|(.., k)| *k != UNUSED)
    }

    fn text(&self, id: u32) -> &'a str {
        self.texts.get(id as usize).map_or("", String::as_str)
    }

    /// `tokenizer.ggml.{key}_token_id`.
    fn id(&self, gguf: &Gguf, key: &str) -> Result<Option<u32>, String> {
        let key = format!("tokenizer.ggml.{key}_token_id");
        match gguf.opt_int(&key, u32::MAX)? {
            Some(id) if (id as usize) >= self.texts.len() => {
                Err(format!("{key} is {id}, and there are {} tokens", self.texts.len()))
            }
            id => Ok(id),
        }
    }

    fn control(&self, text: &str) -> Option<u32> {
        self.used().find(|(_, t, kind)| *kind == CONTROL && *t == text).map(|(id, ..)| id)
    }

    fn vocabulary(&self) -> Map<String, Value> {
        self.used().map(|(id, text, _)| (text.to_owned(), json!(id))).collect()
    }

    /// Tokens that are found in text before it is split.
    fn added(&self) -> Vec<Value> {
        let added = self.used().filter(|(.., kind)| *kind != NORMAL);
        added
            .map(|(id, text, kind)| {
                json!({"id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
                    "special": kind != USER_DEFINED})
            })
            .collect()
    }
}

/// By id, as `tokenizer_config.json` has them.
fn decoder_entries(added: &[Value]) -> Map<String, Value> {
    let entry = |token: &Value| {
        let mut token = token.as_object()?.clone();
        let id = token.shift_remove("id")?;
        Some((id.to_string(), Value::Object(token)))
    };
    added.iter().filter_map(entry).collect()
}

fn merges(gguf: &Gguf, tokens: &Tokens) -> Result<Vec<Value>, String> {
    let known: BTreeSet<&str> = tokens.used().map(|(_, text, _)| text).collect();
    let mut joined = String::new();
    let pair = |(i, merge): (usize, &String)| {
        let (left, right) = merge.split_once(' ').ok_or_else(|| format!("merge {i}, {merge:?}, is not two tokens"))?;
        joined.clear();
        joined.extend([left, right]);
        match [left, right, &joined].into_iter().find(|t| !known.contains(t)) {
            Some(missing) => Err(format!("merge {i}, {merge:?}, needs token {missing:?}, which is not there")),
            None => Ok(json!([left, right])),
        }
    };
    gguf.texts("tokenizer.ggml.merges")?.iter().enumerate().map(pair).collect()
}

fn pre_tokenizer(words: &Words) -> Value {
    let bytes =
        |use_regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex});
    let first = match words {
        Words::ByteLevel => return bytes(true),
        Words::DigitsThenByteLevel => {
            return json!({"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true}, bytes(true)]});
        }
        Words::Pattern(regex) => json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false}),
    };
    json!({"type": "Sequence", "pretokenizers": [first, bytes(false)]})
}

/// Puts tokens around a text, or `null` where there are none.
fn template(bos: Option<(u32, &str)>, eos: Option<(u32, &str)>) -> Value {
    if bos.is_none() && eos.is_none() {
        return Value::Null;
    }
    let special = |(_, text): (u32, &str), type_id: u32| json!({"SpecialToken": {"id": text, "type_id": type_id}});
    let sequence = |name: &str, type_id: u32| {
        let before = bos.map(|t| special(t, type_id));
        let after = eos.map(|t| special(t, type_id));
        before.into_iter().chain([json!({"Sequence": {"id": name, "type_id": type_id}})]).chain(after).collect::<Vec<_>>()
    };
    let single = sequence("A", 0);
    let pair: Vec<Value> = single.iter().cloned().chain(sequence("B", 1)).collect();
    let tokens: Map<String, Value> = [bos, eos]
        .into_iter()
        .flatten()
        .map(|(id, text)| (text.to_owned(), json!({"id": text, "ids": [id], "tokens": [text]})))
        .collect();
    json!({"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": tokens})
}
