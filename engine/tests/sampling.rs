//! The sampler on the device against the same rules written a second time, on the host in f64. `RMLX_TEST_DEVICE=gpu` runs it on
//! the GPU.

use std::collections::BTreeSet;

use mlx::{Array, Dtype};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use rmlx_engine::api::Sampling;
use rmlx_engine::decode::{Resolved, Sampler};
use rmlx_engine::error::Error;

/// Numbers that are the same in every run: splitmix64.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Within -size..size.
    fn number(&mut self, size: f32) -> f32 {
        ((self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0) * size
    }

    fn numbers(&mut self, n: usize, size: f32) -> Vec<f32> {
        (0..n).map(|_| self.number(size)).collect()
    }
}

/// The rules.
#[derive(Clone)]
struct Host {
    s: Sampling,
    generated: Vec<u32>,
    /// Generated tokens that the repetition penalty sees.
    window: usize,
}

impl Host {
    fn new(s: &Sampling) -> Self {
        Self { s: s.clone(), generated: Vec::new(), window: 20 }
    }

    /// The logits after bias and penalties.
    fn adjusted(&self, logits: &[f32]) -> Vec<f64> {
        let mut x: Vec<f64> = logits.iter().map(|&l| f64::from(l)).collect();
        for &(id, bias) in &self.s.logit_bias {
            x[id as usize] += f64::from(bias);
        }
        let recent: BTreeSet<u32> = self.generated.iter().rev().take(self.window).copied().collect();
        let repetition = f64::from(self.s.repetition_penalty.unwrap_or(1.0));
        for &id in &recent {
            let v = &mut x[id as usize];
            *v = if *v < 0.0 { *v * repetition } else { *v / repetition };
        }
        for id in self.generated.iter().collect::<BTreeSet<_>>() {
            let count = self.generated.iter().filter(|g| *g == id).count() as f64;
            x[*id as usize] -= f64::from(self.s.presence_penalty.unwrap_or(0.0));
            x[*id as usize] -= f64::from(self.s.frequency_penalty.unwrap_or(0.0)) * count;
        }
        x
    }

    /// The probability of each token; 0 where top-p, top-k or min-p forbids it.
    fn probabilities(&self, logits: &[f32]) -> Vec<f64> {
        let temperature = f64::from(self.s.temperature.unwrap_or(1.0));
        let p = softmax(&self.adjusted(logits).iter().map(|x| x / temperature).collect::<Vec<_>>());
        let order = downwards(&p);
        let top_k = self.s.top_k.filter(|k| *k > 0).map_or(p.len(), |k| k as usize);
        let (top_p, min_p) = (f64::from(self.s.top_p.unwrap_or(1.0)), f64::from(self.s.min_p.unwrap_or(0.0)));
        let (mut kept, mut before) = (vec![0.0; p.len()], 0.0);
        for (rank, &id) in order.iter().enumerate() {
            let allowed = rank < top_k && (before < top_p || top_p == 1.0) && p[id] >= min_p * p[order[0]];
            if rank == 0 || allowed {
                kept[id] = p[id];
            }
            before += p[id];
        }
        let sum: f64 = kept.iter().sum();
        kept.iter().map(|p| p / sum).collect()
    }
}

fn softmax(x: &[f64]) -> Vec<f64> {
    let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let e: Vec<f64> = x.iter().map(|x| (x - max).exp()).collect();
    let sum: f64 = e.iter().sum();
    e.iter().map(|e| e / sum).collect()
}

/// Indices from the largest value down, the lower index first among equals.
fn downwards(x: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..x.len()).collect();
    order.sort_by(|&a, &b| x[b].total_cmp(&x[a]).then(a.cmp(&b)));
    order
}

fn greedy() -> Sampling {
    Sampling { temperature: Some(0.0), ..Sampling::default() }
}

fn resolved(s: &Sampling, vocabulary: usize) -> Resolved {
    Resolved::new(s, None, vocabulary).expect("settings within their ranges")
}

fn row(logits: &[f32]) -> Array {
    if std::env::var("RMLX_TEST_DEVICE").is_ok_and(|d| d == "gpu") && mlx::current_device() == mlx::Device::Cpu {
        // This thread's first.
        mlx::use_device(mlx::Device::Gpu).unwrap();
    }
    Array::from_slice(logits, &[1, logits.len()]).unwrap()
}

fn draw(sampler: &mut Sampler, logits: &[f32]) -> u32 {
    let drawn = sampler.draw(&row(logits)).unwrap();
    let id = drawn.outcome.item::<u32>().unwrap();
    assert_eq!(id, drawn.token.item::<u32>().unwrap());
    id
}

/// One draw with these settings and no history.
fn once(s: &Sampling, logits: &[f32]) -> u32 {
    draw(&mut Sampler::new(resolved(s, logits.len())), logits)
}

#[test]
fn greedy_takes_the_lowest_of_equals() {
    let mut noise = Noise(1);
    for n in [1, 2, 3, 7, 8, 9, 16, 17, 100, 511, 512, 513, 49_152, 151_936] {
        for _ in 0..6 {
            // Few values, so that the largest occurs often.
            let logits: Vec<f32> = (0..n).map(|_| (noise.next() % 4) as f32 - 1.5).collect();
            let expected = downwards(&logits.iter().map(|&l| f64::from(l)).collect::<Vec<_>>())[0] as u32;
            // All of these ask for the best token.
            for s in [
                greedy(),
                Sampling { temperature: Some(1e-9), ..greedy() },
                Sampling { temperature: Some(f32::MIN_POSITIVE / 4.0), ..greedy() },
                Sampling { top_p: Some(0.0), ..Sampling::default() },
                Sampling { top_k: Some(1), seed: Some(noise.next()), ..Sampling::default() },
                Sampling { top_k: Some(1), top_p: Some(0.5), min_p: Some(0.1), seed: Some(noise.next()), ..Sampling::default() },
            ] {
                assert_eq!(once(&s, &logits), expected, "{n} {s:?}");
            }
        }
    }
    // The control: a sampler that has the choice takes others.
    let equal = vec![0.0; 8];
    assert!((0..20).any(|seed| once(&Sampling { seed: Some(seed), ..Sampling::default() }, &equal) != 0));
}

/// A bias as large as floats are decides, and a small temperature does not turn it into what is no number.
#[test]
fn extreme_settings_have_their_plain_meaning() {
    let logits = [1.0, 5.0, 3.0, -2.0];
    for temperature in [0.0, 1e-5, 1e-3, 1.0, 1e3] {
        for (top_p, top_k, min_p) in [(1.0, 0, 0.0), (0.9, 0, 0.0), (1.0, 2, 0.0), (1.0, 0, 0.1)] {
            let s = |bias: Vec<(u32, f32)>| Sampling {
                temperature: Some(temperature),
                top_p: Some(top_p),
                top_k: Some(top_k),
                min_p: Some(min_p),
                logit_bias: bias,
                ..Sampling::default()
            };
            assert_eq!(once(&s(vec![(3, f32::MAX)]), &logits), 3, "{temperature}");
            assert_eq!(once(&s(vec![(0, f32::MIN), (1, f32::MIN), (3, f32::MIN)]), &logits), 2, "{temperature}");
        }
    }
    // 5 against 3 at a temperature of 1e-5 is no choice.
    let cold = |seed| once(&Sampling { temperature: Some(1e-5), seed: Some(seed), ..Sampling::default() }, &logits);
    assert!((0..50).all(|seed| cold(seed) == 1));
}

/// Random logits at every step, greedy: each choice is the host's. Returns how many steps agree, of how many that are clear.
fn follow(s: &Sampling, host: &mut Host, vocabulary: usize, steps: usize, seed: u64) -> (usize, usize) {
    let mut noise = Noise(seed);
    let mut sampler = Sampler::new(resolved(s, vocabulary));
    let (mut agree, mut clear) = (0, 0);
    for _ in 0..steps {
        let logits = noise.numbers(vocabulary, 2.0);
        let x = host.adjusted(&logits);
        let order = downwards(&x);
        let got = draw(&mut sampler, &logits);
        if vocabulary < 2 || x[order[0]] - x[order[1]] > 1e-4 {
            clear += 1;
            agree += usize::from(order[0] == got as usize);
        }
        // Both go on from what was drawn.
        host.generated.push(got);
    }
    (agree, clear)
}

fn penalized() -> Sampling {
    Sampling {
        repetition_penalty: Some(1.7),
        presence_penalty: Some(0.4),
        frequency_penalty: Some(0.15),
        logit_bias: vec![(3, 1.0), (0, -2.0), (3, 0.5)],
        ..greedy()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]
    #[test]
    fn bias_and_penalties_are_the_hosts(
        vocabulary in 1usize..40,
        repetition in prop_oneof![Just(None), (0.2f32..4.0).prop_map(Some)],
        presence in prop_oneof![Just(None), (-2f32..2.0).prop_map(Some)],
        frequency in prop_oneof![Just(None), (-0.5f32..0.5).prop_map(Some)],
        bias in prop::collection::vec((0u32..40, -3f32..3.0), 0..6),
        seed in any::<u64>(),
    ) {
        let s = Sampling {
            repetition_penalty: repetition,
            presence_penalty: presence,
            frequency_penalty: frequency,
            logit_bias: bias.into_iter().filter(|(id, _)| (*id as usize) < vocabulary).collect(),
            ..greedy()
        };
        let (agree, clear) = follow(&s, &mut Host::new(&s), vocabulary, 45, seed);
        prop_assert_eq!(agree, clear);
        prop_assert!(clear > 30);
    }
}

/// The control of the comparison above: hosts with rules that are a little different are found out.
#[test]
fn other_rules_are_noticed() {
    let s = penalized();
    let agrees = |change: fn(&mut Host)| {
        let mut host = Host::new(&s);
        change(&mut host);
        let (agree, clear) = follow(&s, &mut host, 30, 200, 7);
        assert!(clear > 150);
        agree == clear
    };
    assert!(agrees(|_| {}));
    assert!(!agrees(|h| h.window = 19));
    assert!(!agrees(|h| h.window = 21));
    assert!(!agrees(|h| h.s.presence_penalty = Some(0.0)));
    assert!(!agrees(|h| h.s.frequency_penalty = Some(0.14)));
    assert!(!agrees(|h| h.s.repetition_penalty = Some(1.6)));
    assert!(!agrees(|h| h.s.logit_bias.truncate(2)));
}

/// What the draws of many seeds must look like.
struct Tally {
    counts: Vec<usize>,
    total: usize,
}

impl Tally {
    /// `prefix` is generated first, then one draw from `logits` is counted.
    fn new(s: &Sampling, prefix: &[u32], logits: &[f32], seeds: std::ops::Range<u64>) -> Self {
        let mut counts = vec![0; logits.len()];
        let total = (seeds.end - seeds.start) as usize;
        for seed in seeds {
            let mut sampler = Sampler::new(resolved(&Sampling { seed: Some(seed), ..s.clone() }, logits.len()));
            for &id in prefix {
                // Certain, whatever the settings.
                let mut forced = vec![-500.0; logits.len()];
                forced[id as usize] = 500.0;
                assert_eq!(draw(&mut sampler, &forced), id);
            }
            counts[draw(&mut sampler, logits) as usize] += 1;
        }
        Self { counts, total }
    }

    /// Pearson's statistic and its degrees of freedom; `None` when a token was drawn that has no chance.
    fn chi_square(&self, p: &[f64]) -> Option<(f64, f64)> {
        if self.counts.iter().zip(p).any(|(&n, &p)| n > 0 && p == 0.0) {
            return None;
        }
        // Tokens too rare to count are taken together.
        let n = self.total as f64;
        let (mut statistic, mut cells, mut rare) = (0.0, 0, (0.0, 0.0));
        for (&seen, &p) in self.counts.iter().zip(p) {
            if p * n >= 8.0 {
                statistic += (seen as f64 - p * n).powi(2) / (p * n);
                cells += 1;
            } else {
                rare = (rare.0 + seen as f64, rare.1 + p * n);
            }
        }
        if rare.1 > 0.0 {
            statistic += (rare.0 - rare.1).powi(2) / rare.1.max(1.0);
            cells += 1;
        }
        Some((statistic, f64::from(cells - 1)))
    }

    /// Five standard deviations: the seeds are fixed, so this passes always or never.
    fn fits(&self, p: &[f64]) -> bool {
        self.chi_square(p).is_some_and(|(statistic, freedom)| statistic <= freedom + 5.0 * (2.0 * freedom).sqrt() + 3.0)
    }
}

/// Settings, and the tokens generated before the draw.
fn mixtures() -> Vec<(Sampling, Vec<u32>)> {
    let s = Sampling::default;
    let plain = vec![
        s(),
        Sampling { temperature: Some(0.5), ..s() },
        Sampling { temperature: Some(2.5), ..s() },
        Sampling { top_k: Some(3), ..s() },
        Sampling { top_k: Some(1000), ..s() },
        Sampling { top_p: Some(0.7), ..s() },
        Sampling { top_p: Some(0.02), ..s() },
        Sampling { min_p: Some(0.2), ..s() },
        Sampling { min_p: Some(1.0), ..s() },
        Sampling { top_p: Some(0.8), top_k: Some(4), ..s() },
        Sampling { top_p: Some(0.5), top_k: Some(9), ..s() },
        Sampling { top_p: Some(0.95), min_p: Some(0.3), ..s() },
        Sampling { top_p: Some(0.9), top_k: Some(5), min_p: Some(0.05), temperature: Some(1.6), ..s() },
        Sampling { temperature: Some(0.6), top_k: Some(20), top_p: Some(0.95), ..s() },
        Sampling { logit_bias: vec![(2, 4.0), (9, -30.0)], top_p: Some(0.97), ..s() },
    ];
    let mut all: Vec<_> = plain.into_iter().map(|s| (s, Vec::new())).collect();
    let prefix = vec![4, 7, 4, 1];
    all.push((Sampling { repetition_penalty: Some(1.5), ..s() }, prefix.clone()));
    all.push((Sampling { presence_penalty: Some(0.8), frequency_penalty: Some(0.5), ..s() }, prefix.clone()));
    all.push((Sampling { temperature: Some(0.8), top_p: Some(0.85), top_k: Some(6), ..penalized() }, prefix));
    all
}

#[test]
fn frequencies_are_the_hosts() {
    let logits = Noise(11).numbers(12, 2.5);
    for (i, (s, prefix)) in mixtures().into_iter().enumerate() {
        let host = Host { generated: prefix.clone(), ..Host::new(&s) };
        let p = host.probabilities(&logits);
        let seeds = i as u64 * 1_000_000..i as u64 * 1_000_000 + 1200;
        let tally = Tally::new(&s, &prefix, &logits, seeds);
        assert!(tally.fits(&p), "{s:?} after {prefix:?}: {:?} of {p:?}", tally.counts);
        // All that can come, came, unless it is rare.
        for (id, (&n, &p)) in tally.counts.iter().zip(&p).enumerate() {
            assert!(n > 0 || p * tally.total as f64 <= 15.0, "{s:?}: token {id} never came; its probability is {p}");
        }
    }
}

/// The control: the test must tell a distribution from its neighbours.
#[test]
fn wrong_frequencies_are_noticed() {
    let logits = Noise(11).numbers(12, 2.5);
    let s = Sampling { temperature: Some(1.0), ..Sampling::default() };
    let tally = Tally::new(&s, &[], &logits, 0..6000);
    assert!(tally.fits(&Host::new(&s).probabilities(&logits)));
    for other in [
        Sampling { temperature: Some(1.15), ..s.clone() },
        Sampling { temperature: Some(0.85), ..s.clone() },
        Sampling { top_k: Some(11), ..s.clone() },
        Sampling { top_p: Some(0.99), ..s.clone() },
        Sampling { logit_bias: vec![(downwards(&Host::new(&s).adjusted(&logits))[0] as u32, 0.25)], ..s.clone() },
    ] {
        assert!(!tally.fits(&Host::new(&other).probabilities(&logits)), "{other:?}");
    }
}

/// The draws of one sequence are as independent as those of many seeds.
#[test]
fn the_steps_of_one_seed_are_a_fair_sample() {
    let logits = Noise(12).numbers(10, 2.0);
    let s = Sampling { seed: Some(5), ..Sampling::default() };
    let mut sampler = Sampler::new(resolved(&s, logits.len()));
    let drawn: Vec<u32> = (0..3000).map(|_| draw(&mut sampler, &logits)).collect();
    let p = Host::new(&s).probabilities(&logits);
    let mut tally = Tally { counts: vec![0; 10], total: drawn.len() };
    drawn.iter().for_each(|id| tally.counts[*id as usize] += 1);
    assert!(tally.fits(&p), "{:?}", tally.counts);
    // Pairs of neighbours, too.
    let mut pairs = Tally { counts: vec![0; 100], total: drawn.len() / 2 };
    drawn.chunks_exact(2).for_each(|pair| pairs.counts[(pair[0] * 10 + pair[1]) as usize] += 1);
    let joint: Vec<f64> = p.iter().flat_map(|a| p.iter().map(move |b| a * b)).collect();
    assert!(pairs.fits(&joint), "{:?}", pairs.counts);
}

#[test]
fn a_seed_is_an_answer() {
    let steps: Vec<Vec<f32>> = (0..40).map(|i| Noise(i).numbers(50, 2.0)).collect();
    let run = |seed: Option<u64>| -> Vec<u32> {
        let s = Sampling { seed, top_p: Some(0.95), ..Sampling::default() };
        let mut sampler = Sampler::new(resolved(&s, 50));
        steps.iter().map(|logits| draw(&mut sampler, logits)).collect()
    };
    for seed in [Some(0), Some(1), Some(u64::MAX), None] {
        assert_eq!(run(seed), run(seed));
    }
    let all: BTreeSet<Vec<u32>> = [Some(0), Some(1), Some(2), Some(1 << 32), Some(u64::MAX), None].map(run).into();
    assert_eq!(all.len(), 6, "two seeds gave one answer");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]
    /// Whatever the settings, only tokens that the host allows are drawn.
    #[test]
    fn only_allowed_tokens_are_drawn(
        vocabulary in 1usize..60,
        temperature in 0.05f32..3.0,
        top_p in prop_oneof![Just(None), (0f32..=1.0).prop_map(Some)],
        top_k in prop_oneof![Just(None), (0u32..70).prop_map(Some)],
        min_p in prop_oneof![Just(None), (0f32..=1.0).prop_map(Some)],
        seed in any::<u64>(),
    ) {
        let s = Sampling { temperature: Some(temperature), top_p, top_k, min_p, ..Sampling::default() };
        let logits = Noise(seed).numbers(vocabulary, 3.0);
        // At a bound, f32 may decide otherwise: the host is asked with a little room.
        let wider = Sampling { top_p: top_p.map(|p| (p + 1e-5).min(1.0)), min_p: min_p.map(|p| p - 1e-5), ..s.clone() };
        let p = Host::new(&wider).probabilities(&logits);
        for seed in 0..12 {
            let id = once(&Sampling { seed: Some(seed), ..s.clone() }, &logits);
            prop_assert!(p[id as usize] > 0.0, "{:?} drew {} of {:?}", s, id, p);
        }
    }
}

#[test]
fn logprobs_are_those_of_the_unmodified_distribution() {
    let mut noise = Noise(21);
    for n in [1, 2, 5, 33, 5000] {
        for asked in [0, 1, 4, 20] {
            let mut logits = noise.numbers(n, 6.0);
            if n >= 5 {
                // Equals at the top and below.
                (logits[4], logits[1], logits[3], logits[2]) = (9.0, 9.0, 7.5, 7.5);
            }
            let exact: Vec<f64> = logits.iter().map(|&l| f64::from(l)).collect();
            let log_sum = exact.iter().map(|x| x.exp()).sum::<f64>().ln();
            // None of these settings may show in the numbers.
            let s = Sampling { temperature: Some(1.7), top_p: Some(0.9), logit_bias: vec![(0, 3.0)], ..penalized() };
            let mut sampler = Sampler::new(Resolved::new(&bounded(s, n), Some(asked), n).unwrap());
            for _ in 0..3 {
                let drawn = sampler.draw(&row(&logits)).unwrap();
                let id = drawn.outcome.item::<u32>().unwrap();
                let logprobs = drawn.logprobs.unwrap();
                let chosen = f64::from(logprobs.chosen.item::<f32>().unwrap());
                assert!((chosen - (exact[id as usize] - log_sum)).abs() < 1e-4);
                let Some((ids, values)) = logprobs.top else {
                    assert_eq!(asked, 0);
                    continue;
                };
                let expected: Vec<u32> = downwards(&exact).into_iter().take(asked).map(|id| id as u32).collect();
                assert_eq!(ids.to_vec::<u32>().unwrap(), expected);
                for (id, value) in expected.iter().zip(values.to_vec::<f32>().unwrap()) {
                    assert!((f64::from(value) - (exact[*id as usize] - log_sum)).abs() < 1e-4);
                }
            }
        }
    }
}

/// Without the bias of tokens that a small vocabulary lacks.
fn bounded(mut s: Sampling, vocabulary: usize) -> Sampling {
    s.logit_bias.retain(|(id, _)| (*id as usize) < vocabulary);
    s
}

/// NaN or infinity anywhere in a row is reported, and nothing is looked up with it: the step after is sound.
#[test]
fn what_is_not_finite_is_reported_and_harmless() {
    let settings = [
        greedy(),
        penalized(),
        Sampling::default(),
        Sampling { top_p: Some(0.9), top_k: Some(5), min_p: Some(0.01), ..Sampling::default() },
        Sampling { temperature: Some(0.7), ..penalized() },
    ];
    for n in [4, 1000] {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for at in [0, n / 2, n - 1] {
                for s in &settings {
                    for logprobs in [None, Some(3)] {
                        let mut sampler = Sampler::new(Resolved::new(s, logprobs, n).unwrap());
                        let mut logits = Noise(3).numbers(n, 3.0);
                        assert_ne!(draw(&mut sampler, &logits), u32::MAX);
                        let sound = logits.clone();
                        logits[at] = bad;
                        let drawn = sampler.draw(&row(&logits)).unwrap();
                        assert_eq!(drawn.outcome.item::<u32>().unwrap(), u32::MAX, "{bad} at {at} of {n}");
                        assert!((drawn.token.item::<u32>().unwrap() as usize) < n, "the next step would look up nothing");
                        mlx::eval(drawn.arrays()).unwrap();
                        assert!((draw(&mut sampler, &sound) as usize) < n);
                    }
                }
            }
        }
    }
    // Opposite infinities do not cancel, and large numbers are numbers.
    let mut sampler = Sampler::new(resolved(&greedy(), 3));
    let drawn = sampler.draw(&row(&[f32::INFINITY, f32::NEG_INFINITY, 0.0])).unwrap();
    assert_eq!(drawn.outcome.item::<u32>().unwrap(), u32::MAX);
    assert_eq!(draw(&mut sampler, &[1e30, -1e30, 2e30]), 2);
}

/// Logits of a half-precision model are sampled in f32.
#[test]
fn logits_of_other_types_are_widened() {
    let logits = [1.0f32, 2.0, 4.0, -3.0];
    for dtype in [Dtype::F16, Dtype::Bf16, Dtype::F32] {
        let mut sampler = Sampler::new(Resolved::new(&greedy(), Some(4), 4).unwrap());
        let drawn = sampler.draw(&row(&logits).astype(dtype).unwrap()).unwrap();
        assert_eq!(drawn.outcome.item::<u32>().unwrap(), 2);
        let (_, values) = drawn.logprobs.unwrap().top.unwrap();
        assert_eq!(values.dtype(), Dtype::F32);
    }
}

#[test]
fn settings_outside_their_range_are_named() {
    let refused = |s: Sampling, logprobs: Option<usize>| match Resolved::new(&s, logprobs, 100) {
        Err(Error::BadRequest(text)) => text,
        other => panic!("{s:?} gave {other:?}"),
    };
    let s = Sampling::default;
    let cases: Vec<(Sampling, &[&str])> = vec![
        (Sampling { temperature: Some(-0.1), ..s() }, &["temperature", "-0.1", "0"]),
        (Sampling { temperature: Some(f32::NAN), ..s() }, &["temperature", "NaN"]),
        (Sampling { temperature: Some(f32::INFINITY), ..s() }, &["temperature", "inf"]),
        (Sampling { top_p: Some(1.01), ..s() }, &["top_p", "1.01", "1"]),
        (Sampling { top_p: Some(-0.5), ..s() }, &["top_p", "-0.5"]),
        (Sampling { min_p: Some(2.0), ..s() }, &["min_p", "2"]),
        (Sampling { min_p: Some(f32::NAN), ..s() }, &["min_p", "NaN"]),
        (Sampling { repetition_penalty: Some(0.0), ..s() }, &["repetition_penalty", "0"]),
        (Sampling { repetition_penalty: Some(1e-40), ..s() }, &["repetition_penalty"]),
        (Sampling { repetition_penalty: Some(-1.0), ..s() }, &["repetition_penalty", "-1"]),
        (Sampling { presence_penalty: Some(101.0), ..s() }, &["presence_penalty", "101", "100"]),
        (Sampling { frequency_penalty: Some(f32::NEG_INFINITY), ..s() }, &["frequency_penalty", "-inf"]),
        (Sampling { logit_bias: vec![(5, 1.0), (100, 1.0)], ..s() }, &["logit_bias", "100"]),
        (Sampling { logit_bias: vec![(5, f32::NAN)], ..s() }, &["logit_bias", "5", "NaN"]),
    ];
    for (settings, words) in cases {
        let text = refused(settings, None);
        assert!(words.iter().all(|w| text.contains(w)), "{text}: {words:?}");
    }
    let text = refused(s(), Some(21));
    assert!(text.contains("logprobs") && text.contains("20"), "{text}");
    // The bounds themselves are allowed.
    for s in [
        Sampling { temperature: Some(0.0), top_p: Some(0.0), min_p: Some(1.0), ..s() },
        Sampling { top_p: Some(1.0), min_p: Some(0.0), top_k: Some(u32::MAX), ..s() },
        Sampling { logit_bias: vec![(99, f32::MAX)], presence_penalty: Some(-100.0), ..s() },
    ] {
        Resolved::new(&s, Some(20), 100).unwrap();
        once(&s, &Noise(4).numbers(100, 3.0));
    }
}
