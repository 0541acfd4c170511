//! `rmlx verify`: whether a model's files are what they should be.

use std::ops::ControlFlow;

use clap::Args;
use rmlx_engine::api::{FileCheck, FileState, PullOptions};
use rmlx_engine::engine::Models;
use rmlx_engine::error::Error;
use rmlx_engine::paths;

use crate::failure::{Failure, Result};
use crate::progress::{Progress, Unit};
use crate::signals::{Signals, end_line};
use crate::{out, pull};

/// Compare a model's files with their hashes; exit code 1 when one is wrong or missing
///
/// Only files of the Hugging Face cache have a hash to be compared with.
#[derive(Debug, Args)]
pub struct Verify {
    /// A name of `rmlx list`
    model: String,
    /// Remove the files that are wrong, and fetch what is missing
    #[arg(long)]
    repair: bool,
    /// Print one JSON array
    #[arg(long, conflicts_with = "repair")]
    json: bool,
}

pub fn run(args: &Verify, signals: &Signals) -> Result<()> {
    let models = Models::open(paths::home())?;
    let polite = signals.polite();
    let mut progress = Progress::new();
    let checked = models.verify(&args.model, &mut |done, total| {
        progress.update("checking", Unit::Bytes, done, total);
        if signals.caught().is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    progress.clear();
    let signal = signals.caught();
    drop(polite);
    let checks = match (checked, signal) {
        (Err(Error::Cancelled), Some(signal)) => {
            end_line();
            return Err(Failure::Signal(signal));
        }
        (checks, _) => checks?,
    };
    if args.json {
        out::print_json(&out::json(&checks)?)?;
    } else {
        out::print(&page(&checks))?;
    }
    if !checks.iter().any(is_bad) {
        return Ok(());
    }
    if !args.repair {
        out::complain(&format!("hint: fetch them again: rmlx verify --repair {}", args.model));
        return Err(Failure::Told);
    }
    let wanted = models.discard_wrong(&args.model, &checks)?;
    pull::fetch(&models, &wanted, PullOptions { anyway: true }, false, signals)
}

fn is_bad(check: &FileCheck) -> bool {
    matches!(check.state, FileState::Wrong | FileState::Missing)
}

fn page(checks: &[FileCheck]) -> String {
    let row = |check: &FileCheck| {
        let state = match check.state {
            FileState::Right => "right",
            FileState::Wrong => "WRONG",
            FileState::Missing => "MISSING",
            FileState::Unknown => "nothing to compare with",
        };
        vec![check.name.clone(), out::bytes(check.bytes), state.into()]
    };
    out::table(&checks.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_has_its_line() {
        let check = |name: &str, state| FileCheck { name: name.into(), bytes: 1024, state };
        let checks = [check("a", FileState::Right), check("long", FileState::Wrong), check("c", FileState::Unknown)];
        assert_eq!(page(&checks), "a     1.02 kB  right\nlong  1.02 kB  WRONG\nc     1.02 kB  nothing to compare with\n");
        assert_eq!(checks.iter().filter(|c| is_bad(c)).count(), 1);
    }
}
