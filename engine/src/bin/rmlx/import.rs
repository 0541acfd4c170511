//! `rmlx import`: a foreign file becomes a model of ours.

use std::ops::ControlFlow;
use std::path::PathBuf;

use clap::Args;
use rmlx_engine::engine::Engine;
use rmlx_engine::error::Error;

use crate::args::Global;
use crate::failure::{Failure, Result};
use crate::out;
use crate::progress::{Progress, Unit};
use crate::signals::{Signals, end_line};

/// Make a model out of a GGUF file, and print its folder
#[derive(Debug, Args)]
pub struct Import {
    /// The GGUF file
    file: PathBuf,
    /// The folder to write [default: one of the model's name in rmlx's models folder]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// What the model is called [default: what the file says]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Replace a model that is there already
    #[arg(long)]
    force: bool,
}

pub fn run(args: Import, global: &Global, signals: &Signals) -> Result<()> {
    let engine = Engine::start(global.options())?;
    let polite = signals.polite();
    let mut progress = Progress::new();
    let imported = engine.import(&args.file, args.out, args.name, args.force, &mut |done, total| {
        progress.update("importing", Unit::Bytes, done, total);
        if signals.caught().is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    progress.clear();
    let signal = signals.caught();
    drop(polite);
    match (imported, signal) {
        (Err(Error::Cancelled), Some(signal)) => {
            end_line();
            Err(Failure::Signal(signal))
        }
        (folder, _) => out::print_line(&folder?.display().to_string()),
    }
}
