//! The measurements behind `rmlx bench`: what a user's request costs, without the request.

use std::time::{Duration, Instant};

use crate::api::{BenchPlan, BenchRow, Sampling};
use crate::decode::{Resolved, Sequence};
use crate::error::{Error, Result};
use crate::kernels::attention::held_bytes;
use crate::registry::Resident;

/// One row per context: medians over the runs, after one that is thrown away.
pub fn run(resident: &Resident, plan: &BenchPlan, default_chunk: usize) -> Result<Vec<BenchRow>> {
    if plan.tokens < 2 || plan.runs == 0 || plan.contexts.contains(&0) {
        return Err(Error::BadRequest(
            "a measurement needs a context of at least one token, two tokens to decode and one run".into(),
        ));
    }
    let chunk = plan.prompt_chunk.unwrap_or(default_chunk);
    let mut rows = Vec::new();
    for &ctx in &plan.contexts {
        let mut runs = Vec::new();
        for i in 0..=plan.runs {
            let row = once(resident, ctx, plan.tokens, chunk)?;
            if i > 0 {
                runs.push(row);
            }
        }
        rows.push(median(ctx, &runs));
    }
    Ok(rows)
}

/// A short prompt and a step after it.
pub fn warm_up(resident: &Resident) -> Result<()> {
    let mut sequence = Sequence::new(resident.model.clone(), prompt(8, resident.vocabulary), greedy(resident)?, 2);
    sequence.prefill(8)?;
    sequence.submit()?;
    sequence.collect()?;
    sequence.collect()?;
    Ok(())
}

fn greedy(resident: &Resident) -> Result<Resolved> {
    Resolved::new(&Sampling { temperature: Some(0.0), ..Sampling::default() }, None, resident.vocabulary)
}

fn once(resident: &Resident, ctx: usize, tokens: usize, chunk: usize) -> Result<BenchRow> {
    let sampling = greedy(resident)?;
    mlx::memory::clear_cache()?;
    mlx::memory::reset_peak();
    let mut sequence = Sequence::new(resident.model.clone(), prompt(ctx, resident.vocabulary), sampling, tokens);
    let start = Instant::now();
    while !sequence.ready() {
        sequence.prefill(chunk)?;
    }
    // As when answering: the second step is submitted before the first token is read.
    let (submitted, operations) = mlx::record(|| sequence.submit());
    submitted?;
    sequence.collect()?;
    let first = Instant::now();
    let mut host = Vec::with_capacity(tokens);
    for _ in 1..tokens {
        let before = Instant::now();
        sequence.submit()?;
        host.push(before.elapsed());
        sequence.collect()?;
    }
    let decode = first.elapsed().as_secs_f64();
    let prefill = (first - start).as_secs_f64();
    // The last call finds nothing left to submit.
    host.pop();
    let host: Duration = host.iter().sum::<Duration>() / host.len().max(1) as u32;
    Ok(BenchRow {
        ctx,
        prefill_tok_s: ctx as f64 / prefill,
        ttft_ms: prefill * 1e3,
        decode_tok_s: (tokens - 1) as f64 / decode,
        kv_bytes: sequence.kv_bytes() as u64,
        // Caches of our own only grow while a sequence lives.
        peak_bytes: (mlx::memory::usage().peak + held_bytes()) as u64,
        host_us_per_token: host.as_secs_f64() * 1e6,
        operations_per_token: operations.len(),
    })
}

/// Token ids from a fixed linear congruential generator: the same for every model of the same vocabulary.
pub fn prompt(len: usize, vocabulary: usize) -> Vec<u32> {
    let mut state = 1u64;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) % vocabulary as u64) as u32
        })
        .collect()
}

fn median(ctx: usize, runs: &[BenchRow]) -> BenchRow {
    let middle = |f: fn(&BenchRow) -> f64| {
        let mut values: Vec<f64> = runs.iter().map(f).collect();
        values.sort_by(f64::total_cmp);
        let n = values.len();
        if n % 2 == 1 { values[n / 2] } else { (values[n / 2 - 1] + values[n / 2]) / 2.0 }
    };
    BenchRow {
        ctx,
        prefill_tok_s: middle(|r| r.prefill_tok_s),
        ttft_ms: middle(|r| r.ttft_ms),
        decode_tok_s: middle(|r| r.decode_tok_s),
        kv_bytes: middle(|r| r.kv_bytes as f64) as u64,
        peak_bytes: middle(|r| r.peak_bytes as f64) as u64,
        host_us_per_token: middle(|r| r.host_us_per_token),
        operations_per_token: middle(|r| r.operations_per_token as f64) as usize,
    }
}
