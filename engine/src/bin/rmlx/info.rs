//! `rmlx info`: what a model's files say.

use clap::Args;
use rmlx_engine::api::ModelInfo;
use rmlx_engine::engine::Engine;

use crate::args::Global;
use crate::failure::Result;
use crate::out;

/// Show what a model's files say, without loading it
#[derive(Debug, Args)]
pub struct Info {
    /// A folder, a name in the Hugging Face cache, or `starter`
    model: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Info, global: &Global) -> Result<()> {
    let info = Engine::start(global.options())?.info(&args.model)?;
    if args.json {
        return out::print_json(&out::json(&info)?);
    }
    let rows: Vec<Vec<String>> = rows(&info).into_iter().map(|(name, value)| vec![name.into(), value]).collect();
    out::print(&out::table(&rows))
}

fn rows(info: &ModelInfo) -> Vec<(&'static str, String)> {
    let weights = match &info.quantization {
        Some(q) if q.mixed => format!("{} {} bits, groups of {}, some modules differ", q.mode, q.bits, q.group_size),
        Some(q) => format!("{} {} bits, groups of {}", q.mode, q.bits, q.group_size),
        None => info.weights_dtype.clone(),
    };
    let stop_ids: Vec<String> = info.stop_ids.iter().map(u32::to_string).collect();
    vec![
        ("name", info.name.clone()),
        ("folder", info.folder.display().to_string()),
        ("architecture", info.architecture.clone()),
        ("kind", if info.has_chat_template { "chat" } else { "base: it continues text (no chat template)" }.into()),
        ("parameters", out::count(info.parameters)),
        ("weights", format!("{weights}, {}", out::bytes(info.bytes))),
        ("context", info.context_length.map_or("not stated".into(), |n| format!("{n} tokens"))),
        ("KV cache", format!("{} per token in 16 bits", out::bytes(info.kv_bytes_per_token))),
        ("layers", info.layers.to_string()),
        ("hidden size", info.hidden.to_string()),
        ("heads", format!("{} of {}, {} for keys and values", info.heads, info.head_dim, info.kv_heads)),
        ("vocabulary", format!("{}{}", info.vocab, if info.tied_embeddings { ", tied" } else { "" })),
        ("stop ids", stop_ids.join(" ")),
    ]
}
