//! `rmlx list`: the models on this machine.

use clap::Args;
use rmlx_engine::api::{ModelEntry, ModelSource, Pull};
use rmlx_engine::engine::{Engine, Models};
use rmlx_engine::paths;

use crate::args::Global;
use crate::failure::Result;
use crate::out;
use crate::pull::named;

/// List the models on this machine
#[derive(Debug, Args)]
pub struct List {
    /// Print one JSON array
    #[arg(long)]
    json: bool,
    /// List the downloads that are not finished instead
    #[arg(long)]
    unfinished: bool,
}

pub fn run(args: &List, global: &Global) -> Result<()> {
    let models = Models::open(paths::home())?;
    let pulls = models.pulls();
    out::warn_of(models.trouble().as_ref());
    if args.unfinished && args.json {
        return out::print_json(&out::json(&pulls)?);
    }
    if args.unfinished {
        return out::print(&unfinished(&pulls));
    }
    let models = Engine::start(global.options())?.list()?;
    if args.json {
        return out::print_json(&out::json(&models)?);
    }
    if models.is_empty() {
        out::complain(&format!("no models: neither in {} nor in the Hugging Face cache", paths::models().display()));
    }
    if models.is_empty() && pulls.is_empty() {
        return Ok(());
    }
    let head = ["NAME", "SIZE", "ARCHITECTURE", "WHERE", ""].map(String::from).to_vec();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(models.into_iter().map(row)).collect();
    let table = if rows.len() == 1 { String::new() } else { out::table(&rows) };
    let gap = if pulls.is_empty() || table.is_empty() { "" } else { "\n" };
    out::print(&format!("{table}{gap}{}", unfinished(&pulls)))
}

fn unfinished(pulls: &[Pull]) -> String {
    let row = |pull: &Pull| {
        let done = match pull.total {
            Some(total) => format!("{} of {}", out::bytes(pull.done), out::bytes(total)),
            None => "not begun".into(),
        };
        let name = named(&pull.repo, &pull.revision);
        let next = if pull.elsewhere { "another rMLX fetches it".into() } else { format!("go on with: rmlx pull {name}") };
        vec![name, done, next]
    };
    if pulls.is_empty() {
        return String::new();
    }
    let head = ["NOT FINISHED", "HERE", ""].map(String::from).to_vec();
    out::table(&std::iter::once(head).chain(pulls.iter().map(row)).collect::<Vec<_>>())
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
