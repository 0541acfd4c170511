//! `rmlx rm`: removing a model.

use std::io::{self, IsTerminal};

use clap::Args;
use rmlx_engine::api::ErrorInfo;
use rmlx_engine::engine::{Engine, Models};
use rmlx_engine::error::Error;

use crate::args::Global;
use crate::failure::{Failure, Result};
use crate::out;

/// Remove a model from this disk
///
/// Of the Hugging Face cache it removes the snapshot and the files that no other snapshot uses. Models anywhere else but there and in
/// rmlx's own models folder are left alone. Of a download that is not finished it removes what is here.
#[derive(Debug, Args)]
pub struct Rm {
    /// A name of `rmlx list`
    model: String,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

pub fn run(args: &Rm, global: &Global) -> Result<()> {
    // Whoever may have the model in memory is asked; where that cannot be, nothing is removed.
    let engine = Engine::start_or_attach(global.options()).map_err(|e| {
        let ErrorInfo { code, message } = ErrorInfo::from(&e);
        let message = format!("nothing was removed, for it is not known whether the model is in memory: {message}");
        Failure::Engine(ErrorInfo { code, message })
    })?;
    let models = engine.models()?;
    let folder = match models.folder(&args.model) {
        Err(error @ Error::ModelNotFound { .. }) => return unfinished(args, &models).unwrap_or(Err(error.into())),
        folder => folder?,
    };
    agreed(args, &folder.display().to_string())?;
    let freed = models.remove(&args.model)?;
    removed(args, freed);
    Ok(())
}

/// What is here of a download that is not at its end; `None`: there is none of this name.
fn unfinished(args: &Rm, models: &Models) -> Option<Result<()>> {
    let (repo, revision) = args.model.split_once('@').unwrap_or((&args.model, "main"));
    let pull = models.pulls().into_iter().find(|p| p.repo == repo && p.revision == revision)?;
    let remove = || {
        agreed(args, &format!("{}, not finished", out::bytes(pull.done)))?;
        models.cancel(&args.model)?;
        removed(args, pull.done);
        Ok(())
    };
    Some(remove())
}

fn agreed(args: &Rm, what: &str) -> Result<()> {
    if args.yes {
        return Ok(());
    }
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return Err(Failure::Usage("nobody can be asked here: --yes removes without asking".into()));
    }
    if !out::ask(&format!("Remove {} ({what})? [y/N] ", args.model))? {
        out::complain("nothing was removed");
        return Err(Failure::Told);
    }
    Ok(())
}

fn removed(args: &Rm, freed: u64) {
    out::complain(&format!("removed {}: {} are free again", args.model, out::bytes(freed)));
}
