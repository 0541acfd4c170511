//! `rmlx search`: models on the hub.

use clap::Args;
use rmlx_engine::api::HubModel;
use rmlx_engine::engine::Models;
use rmlx_engine::paths;

use crate::failure::Result;
use crate::out;
use crate::progress::Spinner;

/// Search the Hugging Face hub for models, the most used first
///
/// Only repositories with safetensors are looked for, since nothing else runs here.
#[derive(Debug, Args)]
pub struct Search {
    /// Words of the model's name
    #[arg(required = true)]
    words: Vec<String>,
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Search) -> Result<()> {
    let models = Models::open(paths::home())?;
    let asking = (!args.json).then(|| Spinner::new("asking the hub"));
    let found = models.search(&args.words.join(" "));
    drop(asking);
    let found = found?;
    if args.json {
        return out::print_json(&out::json(&found)?);
    }
    if found.is_empty() {
        out::complain("nothing is found");
        return Ok(());
    }
    let head = ["NAME", "DOWNLOADS", "LICENCE", ""].map(String::from).to_vec();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(found.iter().map(row)).collect();
    out::print(&out::table(&rows))
}

fn row(model: &HubModel) -> Vec<String> {
    // The first line of a reason is the reason, the others say what to do.
    let problem = model.problem.as_deref().and_then(|p| p.lines().next());
    let notes = [model.here.then_some("here"), model.gated.then_some("gated"), problem];
    let notes: Vec<&str> = notes.into_iter().flatten().collect();
    vec![
        model.repo.clone(),
        model.downloads.map_or_else(String::new, out::count),
        model.license.clone().unwrap_or_default(),
        notes.join(", "),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_what_matters() {
        let model = HubModel {
            repo: "org/Name".into(),
            downloads: Some(12_345),
            likes: None,
            task: None,
            license: Some("mit".into()),
            gated: true,
            updated: None,
            problem: Some("it cannot run\nhint: another".into()),
            here: true,
        };
        assert_eq!(row(&model), ["org/Name", "12.3K", "mit", "here, gated, it cannot run"]);
    }
}
