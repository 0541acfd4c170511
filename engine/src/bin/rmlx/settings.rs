//! `rmlx settings`: what is set.

use clap::Args;
use rmlx_engine::engine::Engine;
use rmlx_engine::error::Error;

use crate::args::Global;
use crate::failure::Result;
use crate::out;

/// Show the settings and the file that they are in
///
/// The file holds what differs from the defaults, in the form that is printed here (TOML).
#[derive(Debug, Args)]
pub struct SettingsArgs {}

pub fn run(global: &Global) -> Result<()> {
    let engine = Engine::start(global.options())?;
    let settings = toml::to_string(&engine.settings()?).map_err(|e| Error::Internal(format!("settings as TOML: {e}")))?;
    out::print(&out::printable(&format!("# {}\n{settings}", engine.settings_path().display())))
}
