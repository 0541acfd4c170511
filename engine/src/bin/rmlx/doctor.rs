//! `rmlx doctor`: what is installed, and what is wrong.

use clap::Args;
use rmlx_engine::api::{Check, CheckState};
use rmlx_engine::engine::Engine;

use crate::args::Global;
use crate::failure::{Failure, Result};
use crate::out;

/// Check what is installed and say what is wrong; exit code 1 when something is
#[derive(Debug, Args)]
pub struct Doctor {
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Doctor, global: &Global) -> Result<()> {
    let checks = match Engine::start(global.options()) {
        Ok(engine) => engine.doctor(),
        // The patient that cannot even start is the one to diagnose.
        Err(e) => {
            vec![Check { name: "engine".into(), state: CheckState::Fail, detail: e.to_string(), fix: None }]
        }
    };
    if args.json {
        out::print_json(&out::json(&checks)?)?;
    } else {
        out::print(&page(&checks))?;
    }
    if checks.iter().any(|check| check.state == CheckState::Fail) { Err(Failure::Told) } else { Ok(()) }
}

fn page(checks: &[Check]) -> String {
    let width = checks.iter().map(|check| check.name.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for check in checks {
        let state = match check.state {
            CheckState::Ok => "ok  ",
            CheckState::Warn => "warn",
            CheckState::Fail => "FAIL",
        };
        let indent = format!("\n{:6}{:width$}  ", "", "");
        text.push_str(&format!("{state}  {:width$}  {}\n", check.name, check.detail.replace('\n', &indent)));
        if let Some(fix) = check.fix.as_ref().filter(|_| check.state != CheckState::Ok) {
            text.push_str(&format!("{:6}{:width$}  fix: {fix}\n", "", ""));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fix_stands_below_what_it_mends() {
        let check = |name: &str, state, fix: Option<&str>| Check {
            name: name.into(),
            state,
            detail: "detail\nmore".into(),
            fix: fix.map(String::from),
        };
        let checks = [check("MLX", CheckState::Ok, Some("unseen")), check("models", CheckState::Warn, Some("get one"))];
        assert_eq!(
            page(&checks),
            "ok    MLX     detail\n              more\nwarn  models  detail\n              more\n              fix: get one\n"
        );
    }
}
