//! Tokenizers, streamed text and chats against what the reference gives (`tests/fixtures/tokenizers`).
//!
//! `RMLX_TOKENIZERS=<folder>` adds the snapshots in that folder (whole tokenizers, say) to those of the repository.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use proptest::prelude::*;
use rmlx_engine::error::Error;
use rmlx_engine::text::{ChatTemplate, Conversation, Detokenizer, End, SpecialTokens, Tokenizer, stop_ids};
use serde_json::{Map, Value as Json, json};
use time::macros::datetime;

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/tokenizers").join(name)
}

/// Snapshot folders with vectors.json.
fn folders() -> Vec<PathBuf> {
    let more = std::env::var_os("RMLX_TOKENIZERS").map(PathBuf::from);
    let listed = [Some(folder("")), more].into_iter().flatten().flat_map(|f| std::fs::read_dir(f).unwrap());
    let mut folders: Vec<PathBuf> = listed.map(|e| e.unwrap().path()).filter(|p| p.join("vectors.json").exists()).collect();
    folders.sort();
    folders
}

fn vectors(folder: &std::path::Path) -> Json {
    serde_json::from_slice(&std::fs::read(folder.join("vectors.json")).unwrap()).unwrap()
}

fn list<'a>(vectors: &'a Json, name: &str) -> &'a [Json] {
    vectors.get(name).map_or(&[], |v| v.as_array().unwrap())
}

fn ids(json: &Json) -> Vec<u32> {
    json.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn stream(tokenizer: &Arc<Tokenizer>, ids: &[u32]) -> Vec<String> {
    let mut detokenizer = Detokenizer::new(tokenizer.clone());
    let mut pieces: Vec<String> = ids.iter().map(|id| detokenizer.push(*id).unwrap()).collect();
    pieces.push(detokenizer.finish().unwrap());
    pieces
}

#[test]
fn texts_have_the_ids_of_the_reference_and_the_way_back() {
    for folder in folders() {
        let tokenizer = Arc::new(Tokenizer::load(&folder).unwrap());
        let vectors = vectors(&folder);
        for case in list(&vectors, "tokenizer_vectors") {
            let text = case["text"].as_str().unwrap();
            let expected = ids(&case["ids"]);
            assert_eq!(tokenizer.encode(text, false).unwrap(), expected, "{} {text:?}", folder.display());
            if let Some(with_special) = case.get("ids_with_special") {
                assert_eq!(tokenizer.encode(text, true).unwrap(), ids(with_special), "{} {text:?}", folder.display());
            }
            assert_eq!(tokenizer.decode(&expected, false).unwrap(), case["decoded"].as_str().unwrap(), "{}", folder.display());
            let plain = case["decoded_skip_special"].as_str().unwrap();
            assert_eq!(tokenizer.decode(&expected, true).unwrap(), plain, "{} {text:?}", folder.display());
            assert_eq!(stream(&tokenizer, &expected).concat(), plain, "{} {text:?}", folder.display());
        }
        for case in list(&vectors, "special_token_vectors") {
            let text = case["text"].as_str().unwrap();
            assert_eq!(tokenizer.encode(text, false).unwrap(), ids(&case["ids"]), "{} {text:?}", folder.display());
        }
    }
}

#[test]
fn chats_have_the_text_and_the_ids_of_the_reference() {
    let mut chats = 0;
    for folder in folders() {
        let tokenizer = Tokenizer::load(&folder).unwrap();
        let template = ChatTemplate::load(&folder).unwrap();
        for case in list(&vectors(&folder), "chat_vectors") {
            let name = format!("{}: {}", folder.display(), case["name"]);
            let variables = case.get("variables").unwrap_or_else(|| &case["kwargs"]).as_object().unwrap();
            let end = if case["add_generation_prompt"] == json!(true) { End::NextMessage } else { End::Closed };
            let now = datetime!(2026-12-01 0:00 UTC);
            let text = template.render(&Conversation { messages: case["messages"].as_array().unwrap(), variables, end, now });
            match case.get("text") {
                Some(expected) => {
                    let text = text.unwrap_or_else(|e| panic!("{name}: {e}"));
                    assert_eq!(text, expected.as_str().unwrap(), "{name}");
                    assert_eq!(tokenizer.encode(&text, false).unwrap(), ids(&case["ids"]), "{name}");
                }
                None => assert!(matches!(text, Err(Error::Template(_))), "{name}: {text:?}"),
            }
            chats += 1;
        }
    }
    assert!(chats >= 47, "only {chats} chats");
}

#[test]
fn a_bos_is_not_doubled() {
    let tokenizer = Tokenizer::load(&folder("tiny-gemma")).unwrap();
    let bos = tokenizer.bos().unwrap();
    let plain = tokenizer.encode("Hello", false).unwrap();
    let with = [&[bos], plain.as_slice()].concat();
    assert_eq!(tokenizer.encode("Hello", true).unwrap(), with);
    assert_eq!(tokenizer.encode("<bos>Hello", true).unwrap(), with);
    assert_eq!(tokenizer.encode("<bos>Hello", false).unwrap(), with);
    // What somebody wrote twice stays.
    assert_eq!(tokenizer.encode("<bos><bos>Hello", true).unwrap(), [&[bos, bos], plain.as_slice()].concat());
    assert_eq!(tokenizer.encode("<bos>", true).unwrap(), [bos]);
    assert_eq!(tokenizer.encode("", true).unwrap(), [bos]);
    assert_eq!(Tokenizer::load(&folder("qwen3")).unwrap().bos(), None);
}

#[test]
fn every_file_that_names_a_stop_counts() {
    let tokenizer = Tokenizer::load(&folder("tiny-gemma")).unwrap();
    let eos = tokenizer.eos().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let stops = |generation: Json, config: Json| {
        std::fs::write(dir.path().join("generation_config.json"), generation.to_string()).unwrap();
        std::fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
        stop_ids(dir.path(), &tokenizer).map(|ids| ids.into_iter().collect::<Vec<_>>())
    };
    assert_eq!(stops(json!({"eos_token_id": [16, 9]}), json!({"eos_token_id": 30})).unwrap(), [eos, 9, 16, 30]);
    assert_eq!(stops(json!({}), json!({"text_config": {"eos_token_id": [7]}})).unwrap(), [eos, 7]);
    assert_eq!(stops(json!({"eos_token_id": null}), json!({})).unwrap(), [eos]);
    assert!(matches!(stops(json!({"eos_token_id": "x"}), json!({})), Err(Error::BadFile { .. })));
    assert_eq!(stop_ids(&folder("tiny-gemma"), &tokenizer).unwrap().into_iter().collect::<Vec<_>>(), [1, 9, 16]);
}

#[test]
fn the_vocabulary_can_be_asked() {
    let tokenizer = Tokenizer::load(&folder("qwen3")).unwrap();
    let end = tokenizer.id("<|im_end|>").unwrap();
    assert_eq!((end, tokenizer.token(end).as_deref(), tokenizer.eos()), (151645, Some("<|im_end|>"), Some(151645)));
    assert!(tokenizer.is_special(end));
    // Text that a reader sees, although it is one token.
    let think = tokenizer.id("<think>").unwrap();
    assert!(!tokenizer.is_special(think));
    assert_eq!(tokenizer.decode(&[think, end, 999_999], true).unwrap(), "<think>");
    assert_eq!(tokenizer.id("no such token"), None);
    assert_eq!(tokenizer.token(999_999), None);
    assert_eq!(tokenizer.id_bound(), 151669);
    assert!(tokenizer.vocabulary_size() < 3000);
}

#[test]
fn broken_tokenizers_are_errors() {
    let good: Json = serde_json::from_slice(&std::fs::read(folder("tiny-gemma").join("tokenizer.json")).unwrap()).unwrap();
    let with = |pointer: &str, value: Json| {
        let mut broken = good.clone();
        *broken.pointer_mut(pointer).unwrap() = value;
        broken.to_string().into_bytes()
    };
    let regex = json!({"type": "Split", "pattern": {"Regex": "(("}, "behavior": "Isolated", "invert": false});
    let cases = [
        b"".to_vec(),
        b"{}".to_vec(),
        b"[1]".to_vec(),
        b"\xff\xfe{".to_vec(),
        "[".repeat(100_000).into_bytes(),
        with("/model", json!({"type": "Nothing"})),
        with("/model/merges", json!([["not in", "the vocabulary"]])),
        with("/model/merges", json!(7)),
        with("/model/vocab", json!({"a": -1})),
        with("/model/vocab", json!({"a": 5_000_000_000u64})),
        with("/model/vocab", json!({})),
        with("/pre_tokenizer", regex),
        with("/decoder", json!({"type": "Sequence", "decoders": 1})),
        with("/version", json!("9")),
        with("/added_tokens/0/id", json!(77)),
        with("/model/continuing_subword_prefix", json!("é")),
    ];
    for (i, json) in cases.iter().enumerate() {
        let result = Tokenizer::from_bytes(json, SpecialTokens::default());
        assert!(matches!(result, Err(Error::Tokenizer(_))), "case {i}: {result:?}");
    }
    let padding = json!({"strategy": {"Fixed": 1u64 << 40}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
                         "pad_type_id": 0, "pad_token": "<pad>"});
    let truncation = json!({"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0});
    for settings in [with("/padding", padding), with("/truncation", truncation)] {
        let tokenizer = Tokenizer::from_bytes(&settings, SpecialTokens::default()).unwrap();
        assert_eq!(tokenizer.encode("Hello", false).unwrap().len(), 5);
    }
    // What the crate does not notice when it reads the file.
    let lacking = Tokenizer::from_bytes(&with("/post_processor/special_tokens", json!({})), SpecialTokens::default()).unwrap();
    assert!(matches!(lacking.encode("Hello", true), Err(Error::Tokenizer(_))));
    let error = Tokenizer::load(&folder("nowhere")).unwrap_err();
    assert!(error.to_string().contains("tokenizer.json"), "{error}");
}

#[test]
fn a_character_is_given_when_it_is_whole() {
    for name in ["qwen3", "smollm2", "tiny-gemma", "tiny-qwen"] {
        let tokenizer = Arc::new(Tokenizer::load(&folder(name)).unwrap());
        let text = "a 🏳️‍🌈 👩🏽‍🚀 🇳🇴 ďábelské 漢字 e\u{301} ไทย end";
        let ids = tokenizer.encode(text, false).unwrap();
        let pieces = stream(&tokenizer, &ids);
        assert!(pieces.iter().all(|p| !p.contains('\u{fffd}')), "{name}: {pieces:?}");
        assert_eq!(pieces.concat(), tokenizer.decode(&ids, true).unwrap(), "{name}");
        // Cut inside the first flag: only the end shows that something is missing.
        let cut = stream(&tokenizer, &ids[..ids.len().min(3)]);
        assert!(cut[..cut.len() - 1].iter().all(|p| !p.contains('\u{fffd}')), "{name}: {cut:?}");
        // A space belongs to the token that has it, and is not waited for.
        let words = tokenizer.encode("one two three", false).unwrap();
        assert!(stream(&tokenizer, &words)[..words.len()].iter().all(|p| !p.is_empty()), "{name}");
    }
}

#[test]
fn a_long_answer_streams_at_the_speed_of_a_short_one() {
    for name in ["qwen3", "tiny-gemma", "tiny-bert"] {
        let tokenizer = Arc::new(Tokenizer::load(&folder(name)).unwrap());
        let ids = tokenizer.encode("some words for a long answer ", false).unwrap();
        let mut detokenizer = Detokenizer::new(tokenizer.clone());
        let mut time = || {
            let start = std::time::Instant::now();
            for id in ids.iter().cycle().take(20_000) {
                detokenizer.push(*id).unwrap();
            }
            start.elapsed().as_secs_f64()
        };
        let (first, last) = (time(), (0..4).map(|_| time()).fold(f64::MAX, f64::min));
        assert!(last < 5.0 * first, "{name}: {first} s for the first 20000 tokens, then {last} s");
    }
}

/// A tokenizer, its vocabulary's ids, and those of its byte tokens.
type Named = (String, Arc<Tokenizer>, Vec<u32>);

/// The fixtures, and tiny-gemma with the decoders of other families.
fn tokenizers() -> &'static [Named] {
    static ALL: OnceLock<Vec<Named>> = OnceLock::new();
    ALL.get_or_init(|| {
        let named = |name: String, tokenizer: Tokenizer| {
            let mut ids: Vec<u32> = tokenizer.vocabulary().into_values().collect();
            ids.sort();
            (name, Arc::new(tokenizer), ids)
        };
        let mut all: Vec<Named> = folders().iter().map(|f| named(f.display().to_string(), Tokenizer::load(f).unwrap())).collect();
        let gemma: Json = serde_json::from_slice(&std::fs::read(folder("tiny-gemma").join("tokenizer.json")).unwrap()).unwrap();
        let replace = json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "});
        let strip = json!({"type": "Strip", "content": " ", "start": 1, "stop": 0});
        let (bytes, fuse) = (json!({"type": "ByteFallback"}), json!({"type": "Fuse"}));
        let metaspace = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": true});
        let decoders = [
            ("Llama 2", json!({"type": "Sequence", "decoders": [replace, bytes, fuse, strip]})),
            ("Metaspace", metaspace.clone()),
            ("ByteFallback and Metaspace", json!({"type": "Sequence", "decoders": [bytes, metaspace]})),
            ("WordPiece", json!({"type": "WordPiece", "prefix": "##", "cleanup": true})),
            ("suffixes", json!({"type": "BPEDecoder", "suffix": "</w>"})),
            (
                "bytes in a sequence",
                json!({"type": "Sequence", "decoders": [
                {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}]}),
            ),
            ("none", Json::Null),
        ];
        for (name, decoder) in decoders {
            let mut json = gemma.clone();
            json["decoder"] = decoder;
            all.push(named(name.into(), Tokenizer::from_bytes(json.to_string().as_bytes(), SpecialTokens::default()).unwrap()));
        }
        all
    })
}

fn check_stream(name: &str, tokenizer: &Arc<Tokenizer>, ids: &[u32]) -> Result<(), TestCaseError> {
    let pieces = stream(tokenizer, ids);
    let whole = tokenizer.decode(ids, true).unwrap();
    prop_assert_eq!(pieces.concat(), whole, "{} {:?} {:?}", name, ids, pieces);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_ids_stream_to_the_text_of_all(picks in prop::collection::vec(any::<prop::sample::Index>(), 0..60)) {
        for (name, tokenizer, vocabulary) in tokenizers() {
            let ids: Vec<u32> = picks.iter().map(|pick| *pick.get(vocabulary)).collect();
            check_stream(name, tokenizer, &ids)?;
        }
    }

    /// Low ids are bytes and special tokens in most vocabularies: runs of them are the hard case.
    #[test]
    fn any_low_ids_stream_to_the_text_of_all(picks in prop::collection::vec(0u32..290, 0..80)) {
        for (name, tokenizer, _) in tokenizers() {
            check_stream(name, tokenizer, &picks)?;
        }
    }

    #[test]
    fn any_text_streams_to_itself(
        parts in prop::collection::vec(prop_oneof![
            "\\PC{0,8}", "[ \\t\\n]{1,3}", "[a-z]{1,6}( [a-z]{1,6})?", "[一-龥ぁ-ん]{1,4}", "[\u{300}-\u{36f}]{1,2}", "[ก-๛]{1,5}",
            Just("👩🏽‍🚀".to_string()), Just("🏳️‍🌈".to_string()), Just("🇳🇴🇩🇪".to_string()), Just("👨‍👩‍👧‍👦".to_string()),
            Just("<|im_end|>".to_string()), Just("<think>".to_string()), Just("\u{fffd}".to_string()), Just("\u{200b}".to_string()),
        ], 0..12),
    ) {
        let text = parts.concat();
        for (name, tokenizer, _) in tokenizers() {
            let ids = tokenizer.encode(&text, false).unwrap();
            check_stream(name, tokenizer, &ids)?;
            let pieces = stream(tokenizer, &ids);
            let replaced = text.contains('\u{fffd}') || tokenizer.decode(&ids, true).unwrap().contains('\u{fffd}');
            prop_assert!(replaced || pieces.iter().all(|p| !p.contains('\u{fffd}')), "{} {:?}", name, pieces);
        }
    }
}

#[test]
fn a_snapshot_without_a_template_is_a_base_model() {
    let template = ChatTemplate::load(&folder("tiny-bert")).unwrap();
    assert!(template.is_none());
    let variables = Map::new();
    let messages = [json!({"role": "user", "content": "Hi"})];
    let now = datetime!(2026-12-01 0:00 UTC);
    let error = template.render(&Conversation { messages: &messages, variables: &variables, end: End::NextMessage, now });
    assert!(matches!(error, Err(Error::BadRequest(_))), "{error:?}");
}
