//! `rmlx bench`: how fast, with how much memory.

use clap::Args;
use rmlx_engine::api::{BenchPlan, BenchReport};
use rmlx_engine::engine::Engine;

use crate::args::{Global, at_least_one};
use crate::failure::Result;
use crate::out;
use crate::progress::Spinner;

/// Measure prefill, decode, time to the first token and memory
///
/// Every prompt length is run once without measuring, then measured; the numbers are medians.
#[derive(Debug, Args)]
pub struct Bench {
    /// A folder, a name in the Hugging Face cache, or `starter`
    model: String,
    /// Prompt lengths in tokens, between commas
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "128", value_parser = at_least_one)]
    ctx: Vec<usize>,
    /// Tokens to decode after each prompt
    #[arg(long, value_name = "N", default_value = "64", value_parser = at_least_one)]
    tokens: usize,
    /// Prompt tokens per step [default: the engine's own]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    prompt_chunk: Option<usize>,
    /// Measured runs of each length
    #[arg(long, value_name = "N", default_value = "3", value_parser = at_least_one)]
    runs: usize,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(args: Bench, global: &Global) -> Result<()> {
    let plan = BenchPlan { contexts: args.ctx, tokens: args.tokens, prompt_chunk: args.prompt_chunk, runs: args.runs };
    let engine = Engine::start(global.options())?;
    let spinner = Spinner::new("measuring");
    let report = engine.bench(&args.model, plan)?;
    drop(spinner);
    if args.json { out::print_json(&out::json(&report)?) } else { out::print(&page(&report)) }
}

fn page(report: &BenchReport) -> String {
    let head = ["CTX", "PREFILL tok/s", "TTFT ms", "DECODE tok/s", "KV", "PEAK", "HOST µs/token", "OPS/token"];
    let mut rows = vec![head.map(String::from).to_vec()];
    rows.extend(report.rows.iter().map(|row| {
        vec![
            row.ctx.to_string(),
            format!("{:.1}", row.prefill_tok_s),
            format!("{:.1}", row.ttft_ms),
            format!("{:.2}", row.decode_tok_s),
            out::bytes(row.kv_bytes),
            out::bytes(row.peak_bytes),
            format!("{:.0}", row.host_us_per_token),
            row.operations_per_token.to_string(),
        ]
    }));
    format!("{} on {}, {}, MLX {}\n{}", report.model, report.device, report.dtype, report.mlx_version, out::table(&rows))
}
