//! The long tier, `make proof`: what only shows after minutes. Not part of `make test`. Linux only: memory is read from /proc.
#![cfg(target_os = "linux")]

mod support;

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rmlx_engine::api::{Request, Sampling};
use rmlx_engine::engine::Engine;
use support::*;

const CLIENTS: u64 = 4;
const SOAK: Duration = Duration::from_secs(180);

/// Resident memory of this process in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// The request of a seed: prompts, lengths and settings vary, the answer is fixed by the seed.
fn asked(seed: u64) -> Request {
    let prompt = (0..1 + seed * 37 % 300).map(|i| ((i * 31 + seed) % 470) as u32).collect();
    let sampling = Sampling {
        seed: Some(seed),
        temperature: Some([0.0, 0.7, 1.3][(seed % 3) as usize]),
        top_p: seed.is_multiple_of(2).then_some(0.9),
        top_k: seed.is_multiple_of(5).then_some(20),
        repetition_penalty: seed.is_multiple_of(7).then_some(1.2),
        frequency_penalty: seed.is_multiple_of(4).then_some(0.3),
        ..Sampling::default()
    };
    let max_tokens = Some(1 + (seed * 13 % 60) as usize);
    Request { sampling, max_tokens, ignore_eos: seed.is_multiple_of(2), ..request(prompt) }
}

/// Clients that ask, drop and cancel for minutes: every answer that ends is the one its seed had before, whatever ran beside it, and
/// nothing grows.
#[test]
#[ignore = "minutes: make proof"]
fn proof_soak() {
    let engine: Engine = engine(None);
    let folder = fixtures().join("oracles/qwen3");
    let model = folder.to_str().unwrap();
    let answers: Mutex<HashMap<u64, Vec<u32>>> = Mutex::default();
    let (asked_for, compared, dropped) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let run = |for_: Duration| {
        let end = Instant::now() + for_;
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (engine, answers, asked_for, compared, dropped) = (engine.clone(), &answers, &asked_for, &compared, &dropped);
                scope.spawn(move || {
                    let mut n = client;
                    while Instant::now() < end {
                        n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        let seed = (n >> 33) % 97;
                        let mut reader = engine.generate(model, asked(seed)).unwrap();
                        asked_for.fetch_add(1, Ordering::Relaxed);
                        match n >> 60 {
                            0..3 => drop(reader),
                            3..5 => {
                                reader.next();
                                reader.cancel();
                                dropped.fetch_add(1, Ordering::Relaxed);
                            }
                            _ => {
                                let answer = Answer::read(reader);
                                answer.finished();
                                let mut known = answers.lock().unwrap();
                                if let Some(before) = known.get(&seed) {
                                    assert_eq!(before, &answer.ids, "seed {seed}");
                                    compared.fetch_add(1, Ordering::Relaxed);
                                } else {
                                    known.insert(seed, answer.ids);
                                }
                            }
                        }
                    }
                });
            }
        });
        engine.status();
        (engine.status().active_bytes, resident())
    };
    let warm = run(SOAK / 6);
    let after = run(SOAK);
    let numbers = [&asked_for, &compared, &dropped].map(|n| n.load(Ordering::Relaxed));
    println!("asked, compared, cancelled: {numbers:?}; active and resident bytes {warm:?} -> {after:?}");
    assert_eq!(warm.0, after.0, "live arrays");
    assert!(after.1 < warm.1 + (64 << 20), "resident memory grew from {} to {}", warm.1, after.1);
    assert!(numbers[1] > 100, "too few answers were compared: {numbers:?}");
}
