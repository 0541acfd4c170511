//! `docs/cli.md` and the help texts are what the command line says of itself.
//!
//! The page: `RMLX_WRITE_DOCS=1 cargo test -p rmlx-engine --test cli_docs` writes it.
//! The help: `INSTA_UPDATE=always cargo test -p rmlx-engine --test cli_docs` writes the snapshots.

mod common;

use std::env;
use std::fs;
use std::path::Path;

use common::Rmlx;

#[test]
fn the_page_is_what_the_command_says() {
    let said = Rmlx::new().run(&["markdown"]).ok().stdout;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cli.md");
    if env::var_os("RMLX_WRITE_DOCS").is_some() {
        fs::write(&path, &said).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(written == said, "docs/cli.md is out of date: RMLX_WRITE_DOCS=1 cargo test -p rmlx-engine --test cli_docs writes it");
}

#[test]
fn help() {
    let rmlx = Rmlx::new();
    let root = rmlx.run(&["--help"]).ok().stdout;
    let everywhere = &root[root.find("\nEverywhere:").unwrap()..];
    let commands = [
        "run", "chat", "serve", "history", "info", "import", "list", "pull", "rm", "verify", "search", "token", "settings",
        "doctor", "bench", "logits",
    ];
    for command in commands {
        let help = rmlx.run(&[command, "--help"]).ok().stdout;
        let own = help.strip_suffix(everywhere).unwrap_or_else(|| panic!("{command} explains the common flags otherwise"));
        insta::assert_snapshot!(command, own);
    }
    insta::assert_snapshot!("rmlx", root);
    insta::assert_snapshot!("short", rmlx.run(&["run", "-h"]).ok().stdout);
}
