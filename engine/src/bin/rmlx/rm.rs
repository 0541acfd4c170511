//! `rmlx rm`: removing a model.

use std::io::{self, IsTerminal};

use clap::Args;
use rmlx_engine::engine::{Engine, Models};
use rmlx_engine::paths;

use crate::args::Global;
use crate::failure::{Failure, Result};
use crate::out;

/// Remove a model from this disk
///
/// Of the Hugging Face cache it removes the snapshot and the files that no other snapshot uses. Models anywhere else but there and in
/// rmlx's own models folder are left alone.
#[derive(Debug, Args)]
pub struct Rm {
    /// A name of `rmlx list`
    model: String,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

pub fn run(args: &Rm, global: &Global) -> Result<()> {
    // Whoever has the model in memory is asked, where it can be.
    let engine = Engine::start_or_attach(global.options()).ok();
    let models = match &engine {
        Some(engine) => engine.models()?,
        None => Models::open(paths::home())?,
    };
    let folder = models.folder(&args.model)?;
    if !args.yes {
        if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
            return Err(Failure::Usage("nobody can be asked here: --yes removes without asking".into()));
        }
        if !out::ask(&format!("Remove {} ({})? [y/N] ", args.model, folder.display()))? {
            out::complain("nothing was removed");
            return Err(Failure::Told);
        }
    }
    let freed = models.remove(&args.model)?;
    out::complain(&format!("removed {}: {} are free again", args.model, out::bytes(freed)));
    Ok(())
}
