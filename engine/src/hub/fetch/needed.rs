//! Which of a repository's files a model needs here.

use super::super::remote::{Listing, RemoteFile};
use super::super::snapshot::{INDEX, SINGLE};

/// Bytes of a text at most: the largest tokenizers have about 35 MB.
const MAX_TEXT: u64 = 256 << 20;
/// What training left behind.
const TRAINING: [&str; 6] =
    ["trainer_state.json", "all_results.json", "train_results.json", "eval_results.json", "training_args.json", "params.json"];
/// What a tokenizer is made of, apart from JSON.
const VOCABULARY: [&str; 3] = ["merges.txt", "vocab.txt", "vocab.bpe"];

/// Configuration, tokenizer, templates, terms, and the weights once: no pickles, no GGUF, no second copy in another format.
pub fn needed(listing: &Listing) -> Vec<&RemoteFile> {
    let has = |name: &str| listing.files.iter().any(|f| f.name == name);
    let sharded = listing.files.iter().any(|f| is_shard(&f.name)) && has(INDEX);
    let single = has(SINGLE);
    let tokenizer = has("tokenizer.json");
    let wanted = |file: &&RemoteFile| {
        let name = file.name.as_str();
        if name.ends_with(".safetensors") {
            return match (sharded, single) {
                (true, _) => is_shard(name),
                (_, true) => name == SINGLE,
                // Of another naming: what is no copy and no addition to another model.
                _ => !name.contains('/') && !name.starts_with("consolidated") && !name.starts_with("adapter"),
            };
        }
        if name.split_once('/').is_some_and(|(folder, rest)| folder != "additional_chat_templates" || rest.contains('/')) {
            return false;
        }
        if name.ends_with(".jinja") {
            return file.bytes <= MAX_TEXT;
        }
        !name.contains('/') && file.bytes <= MAX_TEXT && is_text(name, tokenizer)
    };
    listing.files.iter().filter(wanted).collect()
}

fn is_text(name: &str, has_tokenizer: bool) -> bool {
    if name.ends_with(".json") {
        let other_index = name.ends_with(".index.json") && name != INDEX;
        // Another form of a tokenizer that is there.
        let copy = name == "tekken.json" && has_tokenizer;
        return !other_index && !copy && !TRAINING.contains(&name);
    }
    let terms = ["LICENSE", "LICENCE", "NOTICE", "USE_POLICY"].iter().any(|t| name.to_uppercase().starts_with(t));
    let vocabulary = name.ends_with(".model") || name.ends_with(".tiktoken") || VOCABULARY.contains(&name);
    vocabulary
        || name == "README.md"
        || (terms && [".txt", ".md"].iter().any(|e| name.ends_with(e)))
        || (terms && !name.contains('.'))
}

/// `model-00001-of-00003.safetensors`
fn is_shard(name: &str) -> bool {
    let number = |n: &str| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit());
    let middle = name.strip_prefix("model-").and_then(|n| n.strip_suffix(".safetensors"));
    middle.and_then(|m| m.split_once("-of-")).is_some_and(|(one, all)| number(one) && number(all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::remote::Hash;

    fn of(names: &[&str]) -> Vec<String> {
        let file = |name: &&str| RemoteFile { name: (*name).into(), bytes: 10, hash: Hash::Git("0".repeat(40)) };
        let files = names.iter().map(file).collect();
        let listing = Listing { repo: "a/b".into(), commit: "0".repeat(40), gated: false, license: None, task: None, files };
        needed(&listing).into_iter().map(|f| f.name.clone()).collect()
    }

    #[test]
    fn what_is_needed_and_what_is_not() {
        let texts = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"];
        // Only these, in that order; then what is not.
        for (needed, not) in [
            (
                &["model.safetensors"][..],
                &["pytorch_model.bin", "model.gguf", "tf_model.h5", "onnx/model.onnx", "flax_model.msgpack"][..],
            ),
            (
                &[INDEX, "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"],
                &[
                    "model.safetensors",
                    "consolidated.safetensors",
                    "original/consolidated.00.pth",
                    "original/params.json",
                    "params.json",
                ],
            ),
            // A quantized repository has an index of a single file.
            (&[INDEX, "model.safetensors"], &["pytorch_model.bin.index.json", "model.fp16.safetensors"]),
            (&["weights.00.safetensors", "weights.01.safetensors"], &["consolidated.safetensors", "adapter_model.safetensors"]),
            (
                &["vocab.json", "merges.txt", "added_tokens.json", "special_tokens_map.json", "spiece.model", "qwen.tiktoken"],
                &[".gitattributes", "notes.txt", "requirements.txt", "modeling_x.py", "trainer_state.json", "tekken.json"],
            ),
            (
                &["chat_template.json", "additional_chat_templates/tool_use.jinja"],
                &["examples/a.jinja", "checkpoint-1/config.json"],
            ),
            (&["preprocessor_config.json", "video_preprocessor_config.json", "processor_config.json"], &["image.png"]),
            (&["LICENSE", "LICENSE.txt", "README.md", "USE_POLICY.md", "Notice"], &["license.py", "README_zh.md"]),
        ] {
            let all: Vec<&str> = texts.iter().chain(needed).chain(not).copied().collect();
            let want: Vec<&str> = texts.iter().chain(needed).copied().collect();
            assert_eq!(of(&all), want, "not needed: {not:?}");
        }
        assert_eq!(of(&["tekken.json"]), ["tekken.json"], "where it is the only tokenizer");
    }
}
