//! `rmlx list`: the models on this machine.

use clap::Args;
use rmlx_engine::api::{ModelEntry, ModelSource};
use rmlx_engine::engine::Engine;
use rmlx_engine::paths;

use crate::args::Global;
use crate::failure::Result;
use crate::out;

/// List the models on this machine
#[derive(Debug, Args)]
pub struct List {
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

pub fn run(args: &List, global: &Global) -> Result<()> {
    let models = Engine::start(global.options())?.list()?;
    if args.json {
        return out::print_json(&out::json(&models)?);
    }
    if models.is_empty() {
        out::complain(&format!("no models: neither in {} nor in the Hugging Face cache", paths::models().display()));
        return Ok(());
    }
    let head = ["NAME", "SIZE", "ARCHITECTURE", "WHERE", ""].map(String::from).to_vec();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(models.into_iter().map(row)).collect();
    out::print(&out::table(&rows))
}

fn row(model: ModelEntry) -> Vec<String> {
    let source = match model.source {
        ModelSource::Own => "rmlx",
        ModelSource::HuggingFace => "Hugging Face cache",
        ModelSource::Folder => "your folder",
    };
    let problem = model.problem.map_or_else(String::new, |problem| format!("cannot run: {problem}"));
    vec![model.name, out::bytes(model.bytes), model.architecture.unwrap_or_else(|| "unknown".into()), source.into(), problem]
}
