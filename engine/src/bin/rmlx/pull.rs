//! `rmlx pull`: fetching a model.

use std::io::{self, IsTerminal};
use std::thread;
use std::time::Duration;

use clap::Args;
use rmlx_engine::api::{ErrorInfo, Pull, PullOptions, PullPhase, PullPlan};
use rmlx_engine::engine::Models;
use rmlx_engine::error::Error;
use rmlx_engine::paths;
use serde_json::json;

use crate::failure::{Failure, Result};
use crate::out;
use crate::progress::{Progress, Spinner, Unit};
use crate::signals::{Signals, end_line};

/// Fetch a model from the Hugging Face hub, and print its folder
///
/// What would be fetched is shown first. A download that was ended, by Ctrl-C or otherwise, goes on where it was when it is asked for
/// again. Models lie in the Hugging Face cache, where other programs find them too.
#[derive(Debug, Args)]
pub struct PullArgs {
    /// The repository; without a branch, tag or commit it is `main`
    #[arg(value_name = "ORG/NAME[@REVISION]")]
    model: String,
    /// Only show what would be fetched; exit code 1 when something speaks against it
    #[arg(long)]
    plan: bool,
    /// Fetch it although it would not run here, and ask nothing
    #[arg(long)]
    anyway: bool,
    /// Print JSON lines: the plan, what the download is at, and the folder
    #[arg(long)]
    json: bool,
}

/// How often the download is looked at.
const TICK: Duration = Duration::from_millis(100);

pub fn run(args: &PullArgs, signals: &Signals) -> Result<()> {
    let models = Models::open(paths::home())?;
    out::warn_of(models.trouble().as_ref());
    let asking = (!args.json).then(|| Spinner::new("asking the hub"));
    let plan = models.plan(&args.model);
    drop(asking);
    let plan = plan?;
    if args.json {
        out::print_json(&json!({ "plan": out::json(&plan)? }))?;
    } else if args.plan {
        out::print(&page(&plan))?;
    } else {
        out::complain(page(&plan).trim_end());
    }
    // What was begun with `--anyway` goes on without it.
    let anyway = args.anyway || models.begun_anyway(&plan);
    let refused = plan.problems.first().filter(|_| args.plan || !anyway);
    match refused {
        // The page shows them all.
        Some(_) if args.plan && !args.json => return Err(Failure::Told),
        Some(problem) => return Err(Failure::Engine(problem.clone())),
        None if args.plan => return Ok(()),
        None => {}
    }
    if !anyway && !args.json && doubtful(&plan) && !agreed("Fetch it? [y/N] ")? {
        out::complain("nothing was fetched");
        return Err(Failure::Told);
    }
    fetch(&models, &args.model, PullOptions { anyway: args.anyway }, args.json, signals)
}

/// Fetches, shows how far it is, and prints the folder.
pub fn fetch(models: &Models, model: &str, options: PullOptions, json: bool, signals: &Signals) -> Result<()> {
    let polite = signals.polite();
    let mut shown = Shown::new(json);
    let mut pull = models.pull(model, options)?;
    let (repo, revision) = (pull.repo.clone(), pull.revision.clone());
    loop {
        shown.show(&pull)?;
        match pull.phase {
            PullPhase::Done => break,
            PullPhase::Failed => {
                let lost = || ErrorInfo { code: "internal".into(), message: "the download failed and does not say why".into() };
                return Err(Failure::Engine(pull.error.unwrap_or_else(lost)));
            }
            // Somebody else's wish: the app's, say.
            PullPhase::Paused => {
                return Err(Failure::Engine(ErrorInfo { code: "cancelled".into(), message: how_to_go_on(&pull) }));
            }
            _ => {}
        }
        if let Some(signal) = signals.caught() {
            shown.clear();
            if models.pause(model).is_ok() {
                let now = models.pulls().into_iter().find(|p| p.repo == repo && p.revision == revision);
                end_line();
                out::complain(&how_to_go_on(&now.unwrap_or(pull)));
            }
            return Err(Failure::Signal(signal));
        }
        thread::sleep(TICK);
        let found = models.pulls().into_iter().find(|p| p.repo == repo && p.revision == revision);
        pull = found.ok_or(Error::Cancelled)?;
    }
    shown.clear();
    drop(polite);
    let folder = models.folder(model)?;
    if json {
        return out::print_json(&json!({ "model": model, "folder": folder }));
    }
    out::complain(&format!("it is here; try: rmlx run {model} \"Hello\""));
    out::print_line(&folder.display().to_string())
}

fn how_to_go_on(pull: &Pull) -> String {
    let name = named(&pull.repo, &pull.revision);
    let here = match pull.total {
        Some(total) => format!("{} of {} are here", out::bytes(pull.done), out::bytes(total)),
        None => format!("{} are here", out::bytes(pull.done)),
    };
    format!("paused: {here}; go on with: rmlx pull {name}")
}

pub fn named(repo: &str, revision: &str) -> String {
    if revision == "main" { repo.into() } else { format!("{repo}@{revision}") }
}

/// What the user should have agreed to.
fn doubtful(plan: &PullPlan) -> bool {
    plan.has_chat_template == Some(false) || plan.memory.is_some_and(|need| !need.fits)
}

/// Without a terminal nobody can be asked, and who wrote the command meant it.
fn agreed(question: &str) -> Result<bool> {
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return Ok(true);
    }
    out::ask(question)
}

/// What becomes visible of a download.
struct Shown {
    json: bool,
    progress: Progress,
    last: Option<Pull>,
}

impl Shown {
    fn new(json: bool) -> Self {
        Self { json, progress: Progress::new(), last: None }
    }

    fn show(&mut self, pull: &Pull) -> Result<()> {
        if self.json {
            if self.last.as_ref() != Some(pull) {
                out::print_json(&json!({ "pull": out::json(pull)? }))?;
            }
            self.last = Some(pull.clone());
            return Ok(());
        }
        let told =
            |pull: &Pull| (pull.phase == PullPhase::Waiting, pull.error.as_ref().map(|e| e.message.clone()), pull.elsewhere);
        if self.last.as_ref().map(told) != Some(told(pull)) {
            if pull.elsewhere {
                self.say("another rMLX process fetches it; this shows how far it is");
            } else if let (PullPhase::Waiting, Some(error)) = (pull.phase, &pull.error) {
                self.say(&format!("waiting, and trying again by itself: {}", error.message));
            }
        }
        self.progress.update(phase(pull.phase), Unit::Given, pull.done, pull.total.unwrap_or(0));
        self.progress.tell(tail(pull));
        self.last = Some(pull.clone());
        Ok(())
    }

    fn say(&mut self, text: &str) {
        self.progress.clear();
        out::complain(text);
    }

    fn clear(&mut self) {
        self.progress.clear();
    }
}

fn phase(phase: PullPhase) -> &'static str {
    match phase {
        PullPhase::Queued => "queued",
        PullPhase::Listing => "asking the hub",
        PullPhase::Fetching => "fetching",
        PullPhase::Waiting => "waiting for the network",
        PullPhase::Verifying => "checking",
        PullPhase::Paused => "paused",
        PullPhase::Done => "done",
        PullPhase::Failed => "failed",
    }
}

fn tail(pull: &Pull) -> String {
    let rate = if pull.rate > 0 { format!("{}/s", out::bytes(pull.rate)) } else { String::new() };
    let left = pull.seconds_left.map_or_else(String::new, |s| format!(" {}", duration(s)));
    format!("{rate}{left}")
}

/// Of a download's rest: nobody plans by its seconds once it takes minutes.
fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s left"),
        60..3600 => format!("{} min left", seconds.div_ceil(60)),
        _ => format!("{} h {} min left", seconds / 3600, seconds % 3600 / 60),
    }
}

/// The plan, for a human.
fn page(plan: &PullPlan) -> String {
    let mut rows: Vec<(&str, String)> =
        vec![("model", format!("{} at {}", named(&plan.repo, &plan.revision), short(&plan.commit)))];
    rows.push(("architecture", plan.architecture.clone().unwrap_or_else(|| "not known".into())));
    rows.push(("weights", plan.quantization.clone().unwrap_or_else(|| "not quantized".into())));
    let kind = match plan.has_chat_template {
        Some(true) => "chat",
        Some(false) => "base: it continues text (no chat template)",
        None => "not known yet",
    };
    rows.push(("kind", kind.into()));
    rows.push(("licence", plan.license.clone().unwrap_or_else(|| "none is named".into())));
    if plan.gated {
        rows.push(("access", "gated: its publisher's terms must have been accepted".into()));
    }
    let here = plan.bytes - plan.to_fetch;
    let here = if here == 0 { String::new() } else { format!(", of which {} are here", out::bytes(here)) };
    rows.push(("size", format!("{} in {} files{here}", out::bytes(plan.bytes), plan.files.len())));
    let disk = plan.disk;
    rows.push(("disk", format!("{} free, {} of it to stay free", out::bytes(disk.free), out::bytes(disk.reserve))));
    if let Some(m) = plan.memory {
        let all = m.weights.saturating_add(m.kv).saturating_add(m.workspace);
        let terms = format!(
            "about {} = {} weights + {} for {} tokens of context + {} workspace; {} are free now",
            out::bytes(all),
            out::bytes(m.weights),
            out::bytes(m.kv),
            m.context,
            out::bytes(m.workspace),
            out::bytes(m.headroom)
        );
        rows.push(("memory", terms));
    }
    let rows: Vec<Vec<String>> = rows.into_iter().map(|(name, value)| vec![name.into(), value]).collect();
    let mut text = out::table(&rows);
    for note in &plan.notes {
        text.push_str(&format!("note: {note}\n"));
    }
    for problem in &plan.problems {
        text.push_str(&format!("problem: {}\n", problem.message));
    }
    out::printable(&text)
}

fn short(commit: &str) -> &str {
    commit.get(..12).unwrap_or(commit)
}

#[cfg(test)]
mod tests {
    use rmlx_engine::api::{DiskRoom, MemoryNeed, PullFile};

    use super::*;

    fn plan() -> PullPlan {
        const MB: u64 = 1_000_000;
        PullPlan {
            repo: "org/Name".into(),
            revision: "main".into(),
            commit: "0123456789abcdef".repeat(2),
            architecture: Some("LlamaForCausalLM".into()),
            quantization: None,
            has_chat_template: Some(false),
            license: None,
            gated: true,
            files: vec![PullFile { name: "model.safetensors".into(), bytes: 3 * MB, have: MB }],
            bytes: 3 * MB,
            to_fetch: 2 * MB,
            disk: DiskRoom { free: 9 * MB, reserve: 4 * MB, fits: true },
            memory: Some(MemoryNeed { weights: 3 * MB, kv: 2 * MB, context: 8192, workspace: MB, headroom: 5 * MB, fits: false }),
            problems: vec![ErrorInfo { code: "x".into(), message: "no\u{1b}".into() }],
            notes: vec!["a base model".into()],
        }
    }

    #[test]
    fn the_plan_shows_its_terms() {
        let expected = "\
model         org/Name at 0123456789ab
architecture  LlamaForCausalLM
weights       not quantized
kind          base: it continues text (no chat template)
licence       none is named
access        gated: its publisher's terms must have been accepted
size          3.00 MB in 1 files, of which 1.00 MB are here
disk          9.00 MB free, 4.00 MB of it to stay free
memory        about 6.00 MB = 3.00 MB weights + 2.00 MB for 8192 tokens of context + 1.00 MB workspace; 5.00 MB are free now
note: a base model
problem: no\u{fffd}
";
        assert_eq!(page(&plan()), expected);
        assert!(doubtful(&plan()));
        let fine = PullPlan { has_chat_template: Some(true), memory: None, ..plan() };
        assert!(!doubtful(&fine));
    }

    #[test]
    fn the_rest_of_a_download() {
        for (seconds, text) in [(5, "5 s left"), (61, "2 min left"), (3600, "1 h 0 min left"), (7290, "2 h 1 min left")] {
            assert_eq!(duration(seconds), text);
        }
        assert_eq!((named("o/n", "main").as_str(), named("o/n", "v1").as_str()), ("o/n", "o/n@v1"));
    }
}
