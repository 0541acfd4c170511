//! `rmlx run`: one answer.

use clap::Args;
use rmlx_engine::engine::Engine;
use serde_json::{Value, json};

use crate::answer::{Answer, follow};
use crate::args::{Global, Sharing};
use crate::failure::Result;
use crate::out;
use crate::prompt::PromptArgs;
use crate::signals::{Signals, or_exit};

/// Answer one prompt
///
/// The text appears as it is made.
#[derive(Debug, Args)]
pub struct Run {
    /// A folder, a name in the Hugging Face cache, or `starter`
    model: String,
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    sharing: Sharing,
    /// Print one JSON object at the end instead of the text
    #[arg(long)]
    json: bool,
    /// Go on past the model's own end of the answer
    #[arg(long)]
    ignore_eos: bool,
    /// Print a JSON object with `token_ids` as the last line
    #[arg(long)]
    emit_token_ids: bool,
    /// Put the log probability of every token and of its K best alternatives into the JSON object
    #[arg(long, value_name = "K", requires = "json", value_parser = clap::value_parser!(u8).range(..=20))]
    logprobs: Option<u8>,
}

pub fn run(args: Run, global: &Global, signals: &Signals) -> Result<()> {
    let mut request = global.request(args.prompt.read()?);
    request.ignore_eos = args.ignore_eos;
    request.token_ids = args.json || args.emit_token_ids;
    request.logprobs = args.logprobs.map(usize::from);
    let engine = args.sharing.engine(global)?;
    let reader = engine.generate(&args.model, request)?;

    let mut answer = Answer::default();
    let streamed = !args.json;
    let ended = follow(reader, signals, &mut answer, &mut |delta| if streamed { out::print(delta) } else { Ok(()) });
    if streamed && !answer.text.is_empty() && !answer.text.ends_with('\n') {
        out::print("\n")?;
    }
    or_exit(ended)?;
    if args.json {
        out::print_json(&report(&args.model, &answer, &engine)?)
    } else if args.emit_token_ids {
        out::print_json(&json!({ "token_ids": answer.token_ids }))
    } else {
        Ok(())
    }
}

fn report(model: &str, answer: &Answer, engine: &Engine) -> Result<Value> {
    let status = engine.status();
    let mut report = json!({
        "model": model,
        "device": status.device,
        "dtype": status.dtype,
        "text": answer.text,
        "token_ids": answer.token_ids,
    });
    if let Some(finished) = &answer.finished {
        report["finish_reason"] = out::json(finished.reason)?;
        report["stop"] = out::json(&finished.stop)?;
        report["usage"] = out::json(finished.usage)?;
        report["timings"] = out::json(finished.timings)?;
        report["kv_bytes"] = finished.kv_bytes.into();
    }
    if !answer.logprobs.is_empty() {
        report["logprobs"] = out::json(&answer.logprobs)?;
    }
    Ok(report)
}
