//! `docs/cli.md`, made from the definitions that parse the command line.

use clap::{Arg, Command, CommandFactory};

use crate::args::{Cli, ENGINE, SAMPLING};

pub fn page() -> String {
    let mut rmlx = Cli::command();
    rmlx.build();
    let mut page = format!(
        "# The `rmlx` command\n\n{GENERATED}\n\n{}\n\n{}",
        rmlx.get_about().map(ToString::to_string).unwrap_or_default(),
        usage(&mut rmlx),
    );
    page.push_str("## Flags of every command\n\nValid before or after the command, with the same meaning everywhere.\n\n");
    for heading in [ENGINE, SAMPLING] {
        let args = rmlx.get_arguments().filter(|arg| arg.get_help_heading() == Some(heading));
        page.push_str(&format!("### {heading}\n\n{}", table(args)));
    }
    page.push_str("## Commands\n\n");
    for command in rmlx.get_subcommands_mut().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
        let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
        page.push_str(&format!("### rmlx {}\n\n{}\n\n", command.get_name(), sentence(&about)));
        page.push_str(&usage(command));
        page.push_str(&actions(command));
        // Those with a heading are the flags of every command.
        page.push_str(&table(command.get_arguments().filter(|arg| arg.get_help_heading().is_none() && arg.get_id() != "help")));
    }
    page.push_str(REST);
    page
}

const GENERATED: &str = "<!-- Generated: `RMLX_WRITE_DOCS=1 cargo test -p rmlx-engine --test cli_docs` writes this page. -->";

const REST: &str = "\
## Output

Answers go to standard output, everything else to standard error. Waits of more than a second show their progress when
standard error is a terminal.

## Exit codes

| code | meaning |
|---|---|
| 0 | done, also when the reader of standard output left early (`rmlx run ... \\| head -1`) |
| 1 | failed: the message says why |
| 2 | the command line does not fit together |
| 11 | another rMLX process holds the claim on this machine |
| 130 | ended by SIGINT (Ctrl-C) |
| 143 | ended by SIGTERM |

## Environment and files

| | |
|---|---|
| `RMLX_HOME` | the state folder; else `~/Library/Application Support/rMLX` on macOS, `$XDG_DATA_HOME/rmlx` or `~/.local/share/rmlx` on Linux |
| `HF_HUB_CACHE`, `HF_HOME` | the Hugging Face cache, where `rmlx pull` puts models; else `$XDG_CACHE_HOME/huggingface/hub` or `~/.cache/huggingface/hub` |
| `HF_ENDPOINT` | another hub; `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` count too |
| `HF_TOKEN`, `HF_TOKEN_PATH` | an access token for the hub, or the file that has it; `rmlx token` keeps one in the system's keyring instead |
| `RMLX_KEYRING` | `off` leaves the system's keyring alone |
| `RUST_LOG` | what is logged when `--log` does not say |
| `<state folder>/models` | what `rmlx import` writes |
| `<state folder>/conversations.db` | the conversations of the app and of `rmlx chat --keep` (SQLite), for this user's eyes only |
| `<state folder>/settings.toml` | the settings that differ from the defaults |
| `<state folder>/logs` | JSON lines, 100 MB at most, the oldest removed first; no prompts and no answers above level `debug` |
| `<state folder>/chat_history` | the lines typed into `rmlx chat` |
| `/var/tmp/rmlx.claim` | the lock of the process that uses the GPU; it ends with the process |
";

fn usage(command: &mut Command) -> String {
    format!("```\n{}\n```\n\n", command.render_usage().to_string().trim_start_matches("Usage: "))
}

/// What a command has below itself.
fn actions(command: &Command) -> String {
    let rows: Vec<String> = command.get_subcommands().filter(|c| c.get_name() != "help").map(action).collect();
    if rows.is_empty() { String::new() } else { format!("| | |\n|---|---|\n{}\n\n", rows.join("\n")) }
}

fn action(command: &Command) -> String {
    let values = command.get_positionals().flat_map(|arg| arg.get_value_names().unwrap_or_default());
    let name = std::iter::once(command.get_name()).chain(values.map(|v| v.as_str())).collect::<Vec<_>>().join(" ");
    format!("| `{name}` | {} |", command.get_about().map(ToString::to_string).unwrap_or_default().replace('|', "\\|"))
}

/// The first line of a doc comment has no full stop, as clap wants it.
fn sentence(about: &str) -> String {
    match about.split_once("\n\n") {
        Some((first, rest)) => format!("{first}.\n\n{rest}"),
        None => format!("{about}."),
    }
}

fn table<'a>(args: impl Iterator<Item = &'a Arg>) -> String {
    let rows: Vec<String> = args.filter(|arg| !arg.is_hide_set()).map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    format!("| | |\n|---|---|\n{}\n\n", rows.join("\n"))
}

fn row(arg: &Arg) -> String {
    let value = arg.get_value_names().map_or_else(String::new, |names| names.join(" "));
    let name = match arg.get_long() {
        None => value,
        Some(long) if arg.get_action().takes_values() => format!("--{long} {value}"),
        Some(long) => format!("--{long}"),
    };
    let mut meaning = arg.get_help().map(ToString::to_string).unwrap_or_default();
    if arg.get_action().takes_values() {
        let values: Vec<String> = arg.get_possible_values().iter().map(|v| format!("`{}`", v.get_name())).collect();
        if !values.is_empty() {
            meaning.push_str(&format!(": {}", values.join(", ")));
        }
        let defaults: Vec<String> = arg.get_default_values().iter().map(|v| v.to_string_lossy().into_owned()).collect();
        if !defaults.is_empty() {
            meaning.push_str(&format!(" [default: {}]", defaults.join(",")));
        }
    }
    format!("| `{name}` | {} |", meaning.replace('|', "\\|"))
}
