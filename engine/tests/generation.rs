//! One answer: how it starts, which tokens and texts it has, and how it ends.

mod support;

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use rmlx_engine::api::{FinishReason, Message, Prompt, Request, Sampling};
use rmlx_engine::arch::Model;
use rmlx_engine::decode::{End, Generation, Plan, Resolved, Sequence};
use rmlx_engine::error::{Error, Result};
use rmlx_engine::kv::LayerState;
use rmlx_engine::text::Tokenizer;
use serde_json::json;
use support::fake::{Fake, Seen, Visit, one_hot};
use support::*;

/// The ids of the fixtures' tokenizer, and more than it has.
const VOCABULARY: usize = 512;

fn oracle(name: &str) -> PathBuf {
    fixtures().join("oracles").join(name)
}

fn name_of(folder: &Path) -> &str {
    folder.to_str().expect("a path in UTF-8")
}

fn tokenizer() -> Arc<Tokenizer> {
    Arc::new(Tokenizer::load(&oracle("qwen3")).unwrap())
}

fn prompt() -> Vec<u32> {
    integers(&oracle("qwen3").join("expected.safetensors"), "input_ids")
}

fn resolved(s: &Sampling) -> Resolved {
    Resolved::new(s, None, VOCABULARY).unwrap()
}

fn greedy() -> Resolved {
    resolved(&Sampling { temperature: Some(0.0), ..Sampling::default() })
}

// ---- sequences ----

fn lengths(sequence: &Sequence) -> Vec<usize> {
    sequence.states().iter().map(LayerState::len).collect()
}

fn collected(sequence: &mut Sequence, n: usize) -> Vec<u32> {
    let one = |s: &mut Sequence| {
        s.submit().unwrap();
        s.collect().unwrap().expect("a token").0
    };
    (0..n).map(|_| one(sequence)).collect()
}

/// Scores that depend on everything the cache holds.
fn mean_scores(seen: Seen) -> Vec<f32> {
    one_hot(VOCABULARY, (seen.mean * 7.0) as u32 % 400 + seen.position as u32 % 3)
}

fn sequence(model: Fake, max_new: usize) -> Sequence {
    Sequence::new(Rc::new(model), (0..25).map(|i| i * 13 % 90).collect(), greedy(), max_new)
}

/// A failure at any layer of any chunk leaves every layer as it was, and the same sequence goes on to the same answer.
#[test]
fn a_failed_chunk_leaves_nothing_behind() {
    let mut whole = sequence(Fake::new(mean_scores), 12);
    whole.prefill(25).unwrap();
    let expected = collected(&mut whole, 12);
    for chunk in [1, 4, 10, 25] {
        for layer in 0..3 {
            let fail = Rc::new(Cell::new(true));
            let failing = fail.clone();
            let model = Fake::new(mean_scores).visited(move |v: Visit| {
                let now = v.layer == layer && failing.replace(true);
                if now { Err(Error::Internal(format!("layer {layer}"))) } else { Ok(()) }
            });
            let mut sequence = sequence(model, 12);
            while !sequence.ready() {
                let before = sequence.prefilled();
                fail.set(true);
                let e = sequence.prefill(chunk).unwrap_err();
                assert_eq!(e.to_string(), format!("internal error: layer {layer}"));
                assert_eq!(lengths(&sequence), [before; 3]);
                assert_eq!((sequence.prefilled(), sequence.ready()), (before, false));
                fail.set(false);
                sequence.prefill(chunk).unwrap();
                assert_eq!(lengths(&sequence), [sequence.prefilled(); 3]);
            }
            // Steps as well.
            let mut got = Vec::new();
            for i in 0..12 {
                // The first token was submitted with the prompt, the last step has nothing to submit.
                if i < 11 {
                    fail.set(true);
                    let before = lengths(&sequence);
                    sequence.submit().unwrap_err();
                    assert_eq!(lengths(&sequence), before);
                }
                fail.set(false);
                sequence.submit().unwrap();
                got.push(sequence.collect().unwrap().expect("a token").0);
            }
            assert_eq!(got, expected, "chunks of {chunk}, layer {layer}");
        }
    }
}

/// The same where the scores fail: then the layers were all done.
#[test]
fn failed_scores_leave_nothing_behind() {
    let mut whole = sequence(Fake::new(mean_scores), 6);
    whole.prefill(25).unwrap();
    let expected = collected(&mut whole, 6);
    let fail = Rc::new(Cell::new(true));
    let failing = fail.clone();
    let mut model = Fake::new(mean_scores);
    model.scores =
        Box::new(move |seen| if failing.get() { Err(Error::Internal("scores".into())) } else { Ok(mean_scores(seen)) });
    let mut sequence = sequence(model, 6);
    sequence.prefill(20).unwrap();
    sequence.prefill(20).unwrap_err();
    assert_eq!((lengths(&sequence), sequence.ready()), (vec![20; 3], false));
    fail.set(false);
    sequence.prefill(20).unwrap();
    fail.set(true);
    sequence.submit().unwrap_err();
    assert_eq!(lengths(&sequence), [25; 3]);
    fail.set(false);
    assert_eq!(collected(&mut sequence, 6), expected);
    assert!(sequence.collect().unwrap().is_none());
}

/// The step after a token is built before that token is read, and no more steps than the answer may have.
#[test]
fn steps_are_one_ahead_and_end_with_the_answer() {
    let visits = Rc::new(RefCell::new(Vec::new()));
    let seen = visits.clone();
    let model = Fake::new(mean_scores).visited(move |v: Visit| {
        seen.borrow_mut().push((v.position, v.tokens));
        Ok(())
    });
    let mut sequence = sequence(Fake { layers: 1, ..model }, 3);
    sequence.prefill(25).unwrap();
    let submitted = || visits.borrow().len() - 1;
    for (i, ahead) in [1, 2, 2].into_iter().enumerate() {
        sequence.submit().unwrap();
        assert_eq!(submitted(), ahead, "before token {i} is read");
        assert!(sequence.collect().unwrap().is_some());
    }
    sequence.submit().unwrap();
    assert!(sequence.collect().unwrap().is_none());
    assert_eq!(*visits.borrow(), [(0, 25), (25, 1), (26, 1)]);
}

#[test]
fn a_seed_does_not_depend_on_chunks() {
    let model = load(&oracle("qwen3"));
    let answer = |chunk, seed| {
        let s = Sampling { temperature: Some(1.0), top_p: Some(0.95), seed: Some(seed), ..Sampling::default() };
        let mut sequence = Sequence::new(model.model.clone(), prompt(), resolved(&s), 24);
        while !sequence.ready() {
            sequence.prefill(chunk).unwrap();
        }
        collected(&mut sequence, 24)
    };
    for seed in 0..4 {
        let whole = answer(100, seed);
        for chunk in [1, 7, 32, 71] {
            assert_eq!(answer(chunk, seed), whole, "chunks of {chunk}");
        }
        assert_ne!(answer(100, seed + 100), whole);
    }
}

/// A model that goes wrong at some step, over the real one: what is drawn from that step must not be looked up in the embedding.
struct Broken {
    inner: Rc<dyn Model>,
    step: Cell<usize>,
    wrong_at: usize,
    value: f32,
}

impl Model for Broken {
    fn forward(&self, tokens: &mlx::Array, states: &mut [LayerState]) -> Result<mlx::Array> {
        self.inner.forward(tokens, states)
    }

    fn logits(&self, hidden: &mlx::Array) -> Result<mlx::Array> {
        let logits = self.inner.logits(hidden)?;
        let wrong = self.step.replace(self.step.get() + 1) == self.wrong_at;
        Ok(if wrong { logits.add_scalar(self.value)? } else { logits })
    }

    fn states(&self) -> Vec<LayerState> {
        self.inner.states()
    }
}

#[test]
fn scores_that_are_no_numbers_end_the_answer() {
    let real = load(&oracle("qwen3"));
    for sampling in [
        Sampling { temperature: Some(0.0), ..Sampling::default() },
        Sampling { frequency_penalty: Some(0.1), repetition_penalty: Some(1.1), top_p: Some(0.9), ..Sampling::default() },
    ] {
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for wrong_at in [0, 1, 5] {
                let model = Broken { inner: real.model.clone(), step: Cell::new(0), wrong_at, value };
                let sampling = Resolved::new(&sampling, Some(3), VOCABULARY).unwrap();
                let mut sequence = Sequence::new(Rc::new(model), prompt(), sampling, 20);
                sequence.prefill(100).unwrap();
                for i in 0..=wrong_at {
                    sequence.submit().unwrap();
                    let got = sequence.collect();
                    match got {
                        Ok(Some(_)) => assert!(i < wrong_at),
                        Err(Error::NonFinite) => assert_eq!(i, wrong_at),
                        other => panic!("step {i} gave {other:?}"),
                    }
                }
            }
        }
    }
}

// ---- texts and ends ----

/// Everything that one answer of `ids` gives: text, number of tokens, end.
fn write(tokenizer: &Arc<Tokenizer>, ids: &[u32], max_new: usize, stop_ids: &[u32], stop: &[&str]) -> (String, usize, End) {
    let model = Fake { layers: 1, ..Fake::writing(VOCABULARY, 2, ids.to_vec()) };
    let plan = Plan {
        prompt: vec![1, 2],
        sampling: greedy(),
        max_new,
        stop_ids: stop_ids.iter().copied().collect(),
        stop: stop.iter().map(|s| s.to_string()).collect(),
    };
    let mut generation = Generation::new(Rc::new(model), tokenizer.clone(), plan);
    generation.sequence.prefill(8).unwrap();
    let mut text = String::new();
    loop {
        generation.sequence.submit().unwrap();
        let token = generation.collect().unwrap().expect("an answer has an end");
        assert_eq!(token.id, ids[(generation.collected() - 1).min(ids.len() - 1)]);
        text.push_str(&token.text);
        if let Some(end) = token.end {
            return (text, generation.collected(), end);
        }
    }
}

#[test]
fn texts_and_ends() {
    let t = tokenizer();
    let ids = |text: &str| t.encode(text, false).unwrap();
    let check = |text: &str, max: usize, stop: &[&str], expected: &str, tokens: Option<usize>, end: Option<&str>| {
        let all = ids(text);
        let got = write(&t, &[all.clone(), vec![476]].concat(), max, &[476], stop);
        let reason = if got.1 == max && end.is_none() && max <= all.len() { FinishReason::Length } else { FinishReason::Stop };
        assert_eq!(got.0, expected, "{text}");
        assert_eq!(got.2, End { reason, stop: end.map(str::to_string) }, "{text}");
        if let Some(tokens) = tokens {
            assert_eq!(got.1, tokens, "{text}");
        }
    };
    let text = "The capital of France is Paris.";
    let n = ids(text).len();
    check(text, 100, &[], text, Some(n + 1), None);
    check(text, n, &[], text, Some(n), None);
    check(text, n + 1, &[], text, Some(n + 1), None);
    check(text, 1, &[], &t.decode(&ids(text)[..1], true).unwrap(), Some(1), None);
    // Across tokens, not in the text, the earliest first.
    check(text, 100, &["al of Fr"], "The capit", None, Some("al of Fr"));
    check(text, 100, &["Paris", "France"], "The capital of ", None, Some("France"));
    check(text, 100, &["of France is", "France"], "The capital ", None, Some("of France is"));
    check(text, 100, &["of France was", "is"], "The capital of France ", None, Some("is"));
    check(text, 100, &["."], "The capital of France is Paris", Some(n), Some("."));
    // Held back to the end and given then, whichever way it ends.
    check(text, 100, &["Paris. But"], text, Some(n + 1), None);
    check(text, n, &["Paris. But"], text, Some(n), None);
    check("日本語", 100, &["本"], "日", None, Some("本"));
    check("日本語", 100, &["語!"], "日本語", None, None);
}

/// A character that is cut off by the end comes as U+FFFD, and only then.
#[test]
fn an_end_within_a_character_shows_it() {
    let t = tokenizer();
    let all = t.encode("a語", false).unwrap();
    assert!(all.len() >= 3);
    let (text, _, end) = write(&t, &all, all.len() - 1, &[], &[]);
    assert_eq!((text.as_str(), end.reason), ("a\u{FFFD}", FinishReason::Length));
    let (text, ..) = write(&t, &[&all[..all.len() - 1], &[476]].concat(), 50, &[476], &[]);
    assert_eq!(text, "a\u{FFFD}");
    // A stop text may be that character.
    let (text, _, end) = write(&t, &all, all.len() - 1, &[], &["\u{FFFD}"]);
    assert_eq!((text.as_str(), end.stop.as_deref(), end.reason), ("a", Some("\u{FFFD}"), FinishReason::Stop));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]
    /// The deltas are the one-shot decode, cut where the first stop begins.
    #[test]
    fn an_answer_is_the_decoded_ids_up_to_the_first_stop(
        ids in prop::collection::vec(prop_oneof![4 => 0u32..256, 4 => 256u32..474, 1 => 474u32..512], 1..30),
        max_new in 1usize..40,
        stop_ids in prop::collection::vec(0u32..512, 0..20),
        cuts in prop::collection::vec((0usize..60, 1usize..6), 0..3),
    ) {
        let t = tokenizer();
        // Some stops that do occur.
        let all: Vec<char> = t.decode(&ids, true).unwrap().chars().collect();
        let stops: Vec<String> = cuts
            .iter()
            .map(|&(at, n)| all.iter().skip(at % all.len().max(1)).take(n).collect())
            .filter(|s: &String| !s.is_empty())
            .collect();
        let written: Vec<u32> = (0..max_new).map(|i| ids[i.min(ids.len() - 1)]).collect();
        let length = written.iter().position(|id| stop_ids.contains(id));
        let text = t.decode(&written[..length.unwrap_or(max_new)], true).unwrap();
        // The stop that begins first; of those the first listed.
        let first = stops.iter().enumerate().filter_map(|(i, s)| Some((text.find(s.as_str())?, i))).min();

        let refs: Vec<&str> = stops.iter().map(String::as_str).collect();
        let (got, tokens, end) = write(&t, &ids, max_new, &stop_ids, &refs);
        match first {
            Some((at, i)) => {
                prop_assert_eq!(&got, &text[..at]);
                prop_assert_eq!(end, End { reason: FinishReason::Stop, stop: Some(stops[i].clone()) });
            }
            None => {
                prop_assert_eq!(&got, &text);
                let reason = if length.is_some() { FinishReason::Stop } else { FinishReason::Length };
                prop_assert_eq!(end, End { reason, stop: None });
                prop_assert_eq!(tokens, length.map_or(max_new, |n| n + 1));
            }
        }
    }
}

// ---- the engine ----

/// The reference's own answer comes out of the front door.
#[test]
fn the_engine_gives_the_references_answer() {
    let folder = oracle("qwen3");
    let expected = ids(&json(&folder.join("expected.json"))["greedy_ids"]);
    let engine = engine(None);
    let answer = Answer::read(engine.generate(name_of(&folder), Request { max_tokens: Some(20), ..request(prompt()) }).unwrap());
    assert_eq!(answer.ids, expected[..20]);
    assert!(answer.loaded, "a load is announced when it is over");
    assert_eq!(answer.text, tokenizer().decode(&expected[..20], true).unwrap());
    let finished = answer.finished();
    assert_eq!((finished.reason, finished.usage.prompt_tokens, finished.usage.completion_tokens), (FinishReason::Length, 71, 20));
    // Three layers, keys and values, two heads of 32, f32, grown by 256.
    assert_eq!(finished.kv_bytes, 3 * 2 * 2 * 32 * 4 * 256);
    let t = finished.timings;
    assert!(
        t.queued_ms >= 0.0 && t.prefill_ms > 0.0 && t.first_token_ms >= t.prefill_ms && t.total_ms >= t.first_token_ms,
        "{t:?}"
    );

    // The rendered chat is what the ids encode.
    let chat = Prompt::Text(json(&folder.join("expected.json"))["prompt_text"].as_str().unwrap().into());
    let answer = Answer::read(
        engine.generate(name_of(&folder), Request { prompt: chat, max_tokens: Some(20), ..request(vec![]) }).unwrap(),
    );
    assert_eq!(answer.ids, expected[..20]);
    assert!(!answer.loaded, "it was resident");
}

/// Long random answers, with half characters and special tokens in them: the deltas are the one-shot decode.
#[test]
fn deltas_are_the_one_shot_decode() {
    let (engine, t) = (engine(None), tokenizer());
    for seed in 0..6 {
        let sampling =
            Sampling { temperature: Some(3.0), top_p: Some(1.0), top_k: Some(0), seed: Some(seed), ..Sampling::default() };
        let asked = Request { sampling, max_tokens: Some(150), ignore_eos: true, ..request(prompt()) };
        let answer = Answer::read(engine.generate(name_of(&oracle("qwen3")), asked).unwrap());
        assert_eq!(answer.ids.len(), 150);
        assert_eq!(answer.text, t.decode(&answer.ids, true).unwrap());
        assert!(answer.text.contains('\u{FFFD}'), "the test is too tame");
    }
}

#[test]
fn requests_with_a_seed_repeat_whatever_runs_beside_them() {
    let (engine, folder) = (engine(None), oracle("qwen3"));
    let asked = |seed| {
        let sampling = Sampling { temperature: Some(1.2), seed: Some(seed), presence_penalty: Some(0.3), ..Sampling::default() };
        Request { sampling, max_tokens: Some(40), ignore_eos: true, ..request(prompt()) }
    };
    let alone: Vec<Vec<u32>> =
        (0..4).map(|seed| Answer::read(engine.generate(name_of(&folder), asked(seed)).unwrap()).ids).collect();
    let readers: Vec<_> = (0..4).map(|seed| engine.generate(name_of(&folder), asked(seed)).unwrap()).collect();
    let beside: Vec<Vec<u32>> = readers.into_iter().map(|r| Answer::read(r).ids).collect();
    assert_eq!(alone, beside);
    assert!(alone.iter().enumerate().all(|(i, a)| alone[..i].iter().all(|b| a != b)), "two seeds gave one answer");
}

/// A copy of a fixture whose files are changed.
fn changed(name: &str, change: impl Fn(&Path)) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    copy_without_weights(&oracle(name), folder.path());
    std::fs::copy(oracle(name).join("model.safetensors"), folder.path().join("model.safetensors")).unwrap();
    change(folder.path());
    folder
}

fn edit(file: &Path, change: impl Fn(&mut serde_json::Value)) {
    let mut value = json(file);
    change(&mut value);
    std::fs::write(file, value.to_string()).unwrap();
}

/// Stop ids are the union of three files; each ends an answer, unless the request goes on past them.
#[test]
fn every_stop_id_of_every_file_ends_an_answer() {
    let folder = changed("qwen3", |f| {
        edit(&f.join("generation_config.json"), |v| v["eos_token_id"] = json!([475]));
        edit(&f.join("config.json"), |v| v["eos_token_id"] = json!(477));
    });
    let engine = engine(None);
    assert_eq!(engine.info(name_of(folder.path())).unwrap().stop_ids, [475, 476, 477]);
    let ask = |id: u32, ignore_eos: bool| {
        // Two ids take turns: 300, then the one in question.
        let sampling = Sampling {
            logit_bias: vec![(300, 101.0), (id, 100.0)],
            presence_penalty: Some(50.0),
            frequency_penalty: Some(0.0),
            ..request(vec![]).sampling
        };
        let asked = Request { sampling, max_tokens: Some(6), ignore_eos, ..request(prompt()) };
        Answer::read(engine.generate(name_of(folder.path()), asked).unwrap())
    };
    for id in [475, 476, 477] {
        let answer = ask(id, false);
        assert_eq!((answer.finished().reason, &answer.finished().stop), (FinishReason::Stop, &None));
        assert_eq!(answer.ids, [300, id]);
        assert_eq!(answer.text, tokenizer().decode(&[300], true).unwrap());
        let past = ask(id, true);
        assert_eq!((past.finished().reason, past.ids.len()), (FinishReason::Length, 6));
        assert_eq!(past.ids[..2], [300, id]);
    }
    // The control: any other token does not end it.
    assert_eq!(ask(474, false).finished().reason, FinishReason::Length);
}

#[test]
fn a_prompt_over_the_context_is_refused_with_both_numbers() {
    let folder = oracle("qwen3");
    let many = |n: usize| -> Vec<u32> { (0..n as u32).map(|i| i % 400).collect() };
    let engine = engine(Some(80));
    let ask = |n: usize, max_tokens: Option<usize>| {
        engine.generate(name_of(&folder), Request { max_tokens, ignore_eos: true, ..request(many(n)) })
    };
    let e = ask(81, None).expect_err("one token too many");
    assert_eq!(e.code(), "context_length_exceeded");
    assert!(e.to_string().contains("81") && e.to_string().contains("80") && e.to_string().contains("--max-ctx"), "{e}");
    for prompt in [80, 79, 71] {
        // Whatever more is asked for, the answer ends with the context.
        for max_tokens in [None, Some(1000)] {
            let answer = Answer::read(ask(prompt, max_tokens).unwrap());
            assert_eq!((answer.finished().reason, answer.ids.len()), (FinishReason::Length, 80 - prompt));
            assert_eq!(answer.finished().usage.completion_tokens, 80 - prompt);
        }
    }
    let answer = Answer::read(ask(71, Some(4)).unwrap());
    assert_eq!(answer.ids.len(), 4);
    let answer = Answer::read(ask(71, Some(0)).unwrap());
    assert_eq!((answer.finished().reason, answer.ids.len(), answer.text.as_str()), (FinishReason::Length, 0, ""));
    let e = engine.logits(name_of(&folder), Prompt::Tokens(many(81))).expect_err("one token too many");
    assert_eq!(e.code(), "context_length_exceeded");

    // Without --max-ctx the model's own number holds; more than that cannot be asked for.
    let e = support::engine(None).generate(name_of(&folder), request(many(4097))).expect_err("more than the model has");
    assert!(e.to_string().contains("4097") && e.to_string().contains("4096"), "{e}");
    let e = support::engine(Some(4097)).generate(name_of(&folder), request(many(5))).expect_err("more than the model has");
    assert!(e.to_string().contains("4097") && e.to_string().contains("4096"), "{e}");
}

#[test]
fn wrong_requests_are_refused_before_anything_is_loaded() {
    let engine = engine(None);
    let folder = oracle("qwen3");
    let refused = |request: Request| engine.generate(name_of(&folder), request).expect_err("a refusal");
    let text = refused(request(vec![])).to_string();
    assert!(text.contains("empty"), "{text}");
    let text = refused(Request { prompt: Prompt::Text(String::new()), ..request(vec![]) }).to_string();
    assert!(text.contains("empty"), "{text}");
    for id in [512, 100_000, u32::MAX] {
        let e = refused(request(vec![1, id, 2]));
        assert!(e.code() == "invalid_request" && e.to_string().contains(&id.to_string()) && e.to_string().contains("512"), "{e}");
        let e = engine.logits(name_of(&folder), Prompt::Tokens(vec![id])).expect_err("a refusal");
        assert_eq!(e.code(), "invalid_request");
    }
    let e = refused(Request { sampling: Sampling { top_p: Some(3.0), ..Sampling::default() }, ..request(vec![1]) });
    assert!(e.code() == "invalid_request" && e.to_string().contains("top_p"), "{e}");
    let e = refused(Request { logprobs: Some(21), ..request(vec![1]) });
    assert!(e.to_string().contains("logprobs"), "{e}");
    let e = engine.generate("/no/such/model", request(vec![1])).expect_err("a refusal");
    assert_eq!(e.code(), "model_not_found");
    assert_eq!(engine.load("no-such-model").expect_err("a refusal").code(), "model_not_found");
    assert!(engine.status().resident.is_empty());

    // The last row of the vocabulary is a token like any other.
    let answer = Answer::read(engine.generate(name_of(&folder), Request { max_tokens: Some(2), ..request(vec![511]) }).unwrap());
    assert_eq!(answer.ids.len(), 2);
}

/// A base model continues text; asked as for a chat it says what it is.
#[test]
fn a_base_model_takes_raw_prompts_only() {
    let folder = changed("qwen3", |f| std::fs::remove_file(f.join("chat_template.jinja")).unwrap());
    let engine = engine(None);
    let chat = Prompt::Chat { messages: vec![Message::new("user", "Hello")], variables: Default::default() };
    let e = engine.generate(name_of(folder.path()), Request { prompt: chat, ..request(vec![]) }).expect_err("a refusal");
    assert!(e.code() == "base_model" && e.to_string().contains("base model"), "{e}");
    assert!(!engine.info(name_of(folder.path())).unwrap().has_chat_template);
    let raw = Request { prompt: Prompt::Text("Hello".into()), max_tokens: Some(3), ..request(vec![]) };
    Answer::read(engine.generate(name_of(folder.path()), raw).unwrap()).finished();
}

#[test]
fn logprobs_come_with_every_token() {
    let (engine, folder) = (engine(None), oracle("qwen3"));
    let asked = Request { logprobs: Some(3), token_ids: false, max_tokens: Some(5), ..request(prompt()) };
    let answer = Answer::read(engine.generate(name_of(&folder), asked).unwrap());
    assert_eq!((answer.ids.len(), answer.logprobs.len()), (5, 5));
    let all = [prompt(), answer.ids.clone()].concat();
    let logits = engine.logits(name_of(&folder), Prompt::Tokens(all)).unwrap();
    assert_eq!((logits.tokens.len(), logits.vocab, logits.data.len()), (76, 512, 76 * 512));
    for (i, l) in answer.logprobs.iter().enumerate() {
        let row = &logits.data[(70 + i) * 512..(71 + i) * 512];
        let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
        let exact = f64::from(row[l.id as usize]) - sum.ln();
        assert!((f64::from(l.logprob) - exact).abs() < 1e-3, "{l:?}, exactly {exact}");
        // Greedy: the chosen is the best.
        assert_eq!((l.top.len(), l.top[0]), (3, (l.id, l.logprob)));
        assert!(l.top[0].1 >= l.top[1].1 && l.top[1].1 >= l.top[2].1);
    }
}

/// Without logprobs or ids asked for there is nothing but text.
#[test]
fn token_events_are_only_for_those_who_ask() {
    let (engine, folder) = (engine(None), oracle("qwen3"));
    let asked = Request { token_ids: false, max_tokens: Some(5), ..request(prompt()) };
    let answer = Answer::read(engine.generate(name_of(&folder), asked).unwrap());
    assert!(answer.ids.is_empty() && !answer.text.is_empty());
}

/// What a snapshot says about sampling holds unless the request says otherwise.
#[test]
fn the_snapshots_sampling_is_the_default() {
    let greedy_file = changed("qwen3", |f| edit(&f.join("generation_config.json"), |v| v["do_sample"] = json!(false)));
    let engine = engine(None);
    let answer = |folder: &Path, temperature| {
        let mut asked = Request { max_tokens: Some(12), ..request(prompt()) };
        asked.sampling = Sampling { temperature, seed: Some(3), ..Sampling::default() };
        Answer::read(engine.generate(name_of(folder), asked).unwrap()).ids
    };
    let expected = ids(&json(&oracle("qwen3").join("expected.json"))["greedy_ids"]);
    assert_eq!(answer(greedy_file.path(), None), expected[..12]);
    assert_ne!(answer(greedy_file.path(), Some(1.5)), expected[..12]);
    assert_ne!(answer(&oracle("qwen3"), None), expected[..12]);
}
