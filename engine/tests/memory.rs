//! What answers and models take, they give back. Alone in its binary: MLX counts for the whole process.

mod support;

use rmlx_engine::api::{BenchPlan, Event, Prompt, Request, Sampling};
use rmlx_engine::engine::Engine;
use support::*;

fn model(name: &str) -> String {
    fixtures().join("oracles").join(name).to_str().expect("a path in UTF-8").into()
}

/// One of everything that an answer can come to.
fn use_all_ways(engine: &Engine, round: u64) {
    let qwen = model("qwen3");
    let sampling = Sampling { seed: Some(round), frequency_penalty: Some(0.2), top_p: Some(0.9), ..Sampling::default() };
    let asked = || Request { sampling: sampling.clone(), max_tokens: Some(200), ignore_eos: true, ..request(vec![1; 100]) };
    let ended = Answer::read(engine.generate(&qwen, Request { logprobs: Some(5), ..asked() }).unwrap());
    assert_eq!(ended.ids.len(), 200);
    // Dropped in the middle, before the first token, and asked to stop.
    let mut dropped = engine.generate(&qwen, asked()).unwrap();
    while !matches!(dropped.next(), Some(Event::Token { .. })) {}
    drop(engine.generate(&qwen, asked()).unwrap());
    let cancelled = engine.generate(&qwen, asked()).unwrap();
    cancelled.cancel();
    drop(dropped);
    assert_eq!(Answer::read(cancelled).code(), "cancelled");
    engine.logits(&qwen, Prompt::Tokens(vec![3; 300])).unwrap();
    engine.bench(&qwen, BenchPlan { contexts: vec![20], tokens: 3, prompt_chunk: None, runs: 1 }).unwrap();
}

/// A status is answered after what was asked before it, so dropped answers are gone by then.
fn active(engine: &Engine) -> u64 {
    engine.status();
    engine.status().active_bytes
}

#[test]
fn everything_is_given_back() {
    let engine = engine(None);
    let load = |name: &str| assert!(Answer::read(engine.load(&model(name)).unwrap()).loaded);
    load("qwen3");
    let bare = active(&engine);
    assert!(bare > 100_000, "{bare}");
    use_all_ways(&engine, 0);
    let used = active(&engine);
    for round in 1..6 {
        use_all_ways(&engine, round);
        assert_eq!(active(&engine), used, "an answer left something behind");
    }
    // What is left beside the model is less than the smallest cache.
    assert!(used - bare < 3 * 2 * 2 * 32 * 4 * 256, "{used} after use, {bare} before");

    // The control: an answer in flight is seen.
    let asked = Request { ignore_eos: true, max_tokens: Some(4000), ..request(vec![1; 50]) };
    let mut running = engine.generate(&model("qwen3"), asked).unwrap();
    while !matches!(running.next(), Some(Event::Token { .. })) {}
    assert!(active(&engine) > used);
    drop(running);

    // One model at a time, however often they change.
    load("llama");
    let other = active(&engine);
    for _ in 0..4 {
        load("qwen3");
        assert_eq!(active(&engine), bare);
        load("llama");
        assert_eq!(active(&engine), other);
    }
    drop(engine);

    // Engines come and go, also in the middle of their work.
    for i in 0..40 {
        let engine = support::engine(None);
        let mut reader = engine
            .generate(&model("llama"), Request { max_tokens: Some(500), ignore_eos: true, ..request(vec![1; 200]) })
            .unwrap();
        for _ in 0..i % 8 {
            reader.next();
        }
        drop(engine);
        let answer = Answer::read(reader);
        assert!(answer.failed.is_some_and(|e| e.code == "cancelled") || answer.finished.is_some());
    }
    let last = support::engine(None);
    assert!(active(&last) < 100_000, "{} bytes outlive their engines", active(&last));
}
