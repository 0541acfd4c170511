//! The `rmlx` command: one file per subcommand, `args` for what they share, `failure` for how it ends.

mod answer;
mod args;
mod bench;
mod chat;
mod doctor;
mod failure;
mod files;
mod history;
mod import;
mod info;
mod line;
mod list;
mod logits;
mod markdown;
mod out;
mod progress;
mod prompt;
mod pull;
mod rm;
mod run;
mod search;
mod serve;
mod settings;
mod signals;
mod token;
mod verify;

use std::process::ExitCode;

use clap::Parser;
use rmlx_engine::log;

use args::{Cli, Command};
use failure::{Failure, Result};
use signals::Signals;

fn main() -> ExitCode {
    let Cli { global, command } = Cli::parse();
    if let Command::Markdown = command {
        return finish(out::print(&markdown::page()));
    }
    log::start(global.log.map(Into::into));
    let name = command.name();
    tracing::info!(command = name, version = env!("CARGO_PKG_VERSION"), "started");
    for flag in global.without_effect_on(&command) {
        tracing::warn!("{flag} has no effect on `rmlx {name}`");
    }
    let ended = Signals::watch().and_then(|signals| match command {
        Command::Run(args) => run::run(args, &global, &signals),
        Command::Chat(args) => chat::run(args, &global, &signals),
        Command::History(args) => history::run(args, &global),
        Command::Serve(args) => serve::run(args, &global, &signals),
        Command::Info(args) => info::run(&args, &global),
        Command::Import(args) => import::run(args, &global, &signals),
        Command::List(args) => list::run(&args, &global),
        Command::Pull(args) => pull::run(&args, &signals),
        Command::Rm(args) => rm::run(&args, &global),
        Command::Verify(args) => verify::run(&args, &signals),
        Command::Search(args) => search::run(&args),
        Command::Token(args) => token::run(&args, &signals),
        Command::Settings(_) => settings::run(&global),
        Command::Doctor(args) => doctor::run(&args, &global),
        Command::Bench(args) => bench::run(args, &global),
        Command::Logits(args) => logits::run(args, &global),
        Command::Markdown => Ok(()),
    });
    finish(ended)
}

fn finish(ended: Result<()>) -> ExitCode {
    let Err(failure) = signals::or_exit(ended) else { return ExitCode::SUCCESS };
    match &failure {
        Failure::StdoutClosed | Failure::Told | Failure::Signal(_) => {}
        Failure::Usage(message) => out::complain(&format!("error: {message}\n\nFor more information, try '--help'.")),
        Failure::Engine(error) => {
            tracing::error!(code = error.code, "failed");
            out::complain(&format!("error: {}", error.message));
        }
    }
    failure.exit_code().into()
}
