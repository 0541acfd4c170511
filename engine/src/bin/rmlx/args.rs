//! The command line: subcommands, and the flags that mean the same for all of them.

use std::sync::LazyLock;

use clap::{Args, Parser, Subcommand, ValueEnum};
use rmlx_engine::api::{self, Options, Request, Sampling};
use rmlx_engine::engine::{Engine, MLX_VERSION};
use rmlx_engine::log;

use crate::failure;
use crate::{
    bench, chat, doctor, history, import, info, list, logits, out, pull, rm, run, search, serve, settings, token, verify,
};

/// Runs language models on this machine, on Apple's MLX.
#[derive(Debug, Parser)]
#[command(name = "rmlx", version = VERSION.as_str(), max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Run(run::Run),
    Chat(chat::Chat),
    History(history::History),
    Serve(serve::Serve),
    Info(info::Info),
    Import(import::Import),
    List(list::List),
    Pull(pull::PullArgs),
    Rm(rm::Rm),
    Verify(verify::Verify),
    Search(search::Search),
    Token(token::Token),
    Settings(settings::SettingsArgs),
    Doctor(doctor::Doctor),
    Bench(bench::Bench),
    Logits(logits::Logits),
    /// Prints docs/cli.md.
    #[command(hide = true)]
    Markdown,
}

static VERSION: LazyLock<String> = LazyLock::new(|| format!("{} (MLX {MLX_VERSION})", env!("CARGO_PKG_VERSION")));

impl Command {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Run(_) => "run",
            Self::Chat(_) => "chat",
            Self::History(_) => "history",
            Self::Serve(_) => "serve",
            Self::Info(_) => "info",
            Self::Import(_) => "import",
            Self::List(_) => "list",
            Self::Pull(_) => "pull",
            Self::Rm(_) => "rm",
            Self::Verify(_) => "verify",
            Self::Search(_) => "search",
            Self::Token(_) => "token",
            Self::Settings(_) => "settings",
            Self::Doctor(_) => "doctor",
            Self::Bench(_) => "bench",
            Self::Logits(_) => "logits",
            Self::Markdown => "markdown",
        }
    }
}

/// Valid before or after the subcommand.
#[derive(Debug, Args)]
pub struct Global {
    /// Where to compute; auto takes the GPU when there is one
    #[arg(long, global = true, value_enum, default_value_t, value_name = "DEVICE", help_heading = ENGINE)]
    device: Device,
    /// Arithmetic type; auto is the model's own on the GPU and f32 on the CPU
    #[arg(long, global = true, value_enum, default_value_t, value_name = "TYPE", help_heading = ENGINE)]
    dtype: Dtype,
    /// Threads of the CPU device [default: all cores]
    #[arg(long, global = true, value_parser = at_least_one, value_name = "N", help_heading = ENGINE)]
    threads: Option<usize>,
    /// Most tokens of prompt and answer together [default: what the model allows]
    #[arg(long, global = true, value_parser = at_least_one, value_name = "N", help_heading = ENGINE)]
    max_ctx: Option<usize>,
    /// Most tokens of an answer [default: until the model ends or the context is full]
    #[arg(long, global = true, value_parser = at_least_one, value_name = "N", help_heading = ENGINE)]
    max_tokens: Option<usize>,
    /// How much goes to the log files [default: what RUST_LOG says, else info]
    #[arg(long, global = true, value_enum, value_name = "LEVEL", help_heading = ENGINE)]
    pub log: Option<Level>,

    /// The same seed gives the same answer; without one, answers differ
    #[arg(long, global = true, value_name = "N", help_heading = SAMPLING, hide_short_help = true)]
    seed: Option<u64>,
    /// 0 always takes the most probable token
    #[arg(long, global = true, value_parser = zero_or_more, value_name = "T", help_heading = SAMPLING, hide_short_help = true)]
    temperature: Option<f32>,
    /// Choose among the most probable tokens that together have this probability
    #[arg(long, global = true, value_parser = share, value_name = "P", help_heading = SAMPLING, hide_short_help = true)]
    top_p: Option<f32>,
    /// Choose among this many of the most probable tokens; 0 is off
    #[arg(long, global = true, value_name = "N", help_heading = SAMPLING, hide_short_help = true)]
    top_k: Option<u32>,
    /// Drop tokens below this share of the most probable token's probability
    #[arg(long, global = true, value_parser = share, value_name = "P", help_heading = SAMPLING, hide_short_help = true)]
    min_p: Option<f32>,
    /// Makes tokens that were there already less likely; 1 is off
    #[arg(long, global = true, value_parser = more_than_zero, value_name = "X", help_heading = SAMPLING, hide_short_help = true)]
    repetition_penalty: Option<f32>,
    /// Subtracted once from the logits of tokens that the answer has
    #[arg(
        long,
        global = true,
        value_parser = finite,
        allow_negative_numbers = true,
        value_name = "X",
        help_heading = SAMPLING,
        hide_short_help = true
    )]
    presence_penalty: Option<f32>,
    /// Subtracted for every time that the answer has the token
    #[arg(
        long,
        global = true,
        value_parser = finite,
        allow_negative_numbers = true,
        value_name = "X",
        help_heading = SAMPLING,
        hide_short_help = true
    )]
    frequency_penalty: Option<f32>,
    /// Add V to the logit of token ID; may be repeated
    #[arg(long, global = true, value_parser = bias, value_name = "ID=V", help_heading = SAMPLING, hide_short_help = true)]
    logit_bias: Vec<(u32, f32)>,
    /// End the answer before this text; may be repeated
    #[arg(
        long,
        global = true,
        value_parser = clap::builder::NonEmptyStringValueParser::new(),
        value_name = "TEXT",
        help_heading = SAMPLING,
        hide_short_help = true
    )]
    stop: Vec<String>,
}

pub const ENGINE: &str = "Everywhere";
pub const SAMPLING: &str = "Choosing tokens";

impl Global {
    pub fn options(&self) -> Options {
        Options {
            device: self.device.into(),
            dtype: self.dtype.into(),
            threads: self.threads,
            max_ctx: self.max_ctx,
            home: None,
            no_attach: false,
        }
    }

    pub fn request(&self, prompt: api::Prompt) -> Request {
        Request {
            sampling: Sampling {
                temperature: self.temperature,
                top_p: self.top_p,
                top_k: self.top_k,
                min_p: self.min_p,
                repetition_penalty: self.repetition_penalty,
                presence_penalty: self.presence_penalty,
                frequency_penalty: self.frequency_penalty,
                logit_bias: self.logit_bias.clone(),
                seed: self.seed,
            },
            max_tokens: self.max_tokens,
            stop: self.stop.clone(),
            ..Request::new(prompt)
        }
    }

    /// Flags that were given to a command that makes no answer.
    pub fn without_effect_on(&self, command: &Command) -> Vec<&'static str> {
        if matches!(command, Command::Run(_) | Command::Chat(_)) {
            return Vec::new();
        }
        let given = [
            ("--max-tokens", self.max_tokens.is_some()),
            ("--seed", self.seed.is_some()),
            ("--temperature", self.temperature.is_some()),
            ("--top-p", self.top_p.is_some()),
            ("--top-k", self.top_k.is_some()),
            ("--min-p", self.min_p.is_some()),
            ("--repetition-penalty", self.repetition_penalty.is_some()),
            ("--presence-penalty", self.presence_penalty.is_some()),
            ("--frequency-penalty", self.frequency_penalty.is_some()),
            ("--logit-bias", !self.logit_bias.is_empty()),
            ("--stop", !self.stop.is_empty()),
        ];
        given.into_iter().filter(|(_, given)| *given).map(|(flag, _)| flag).collect()
    }
}

/// Of the commands that another rMLX's engine can do.
#[derive(Debug, Args)]
pub struct Sharing {
    /// Fail (exit code 11) when another rMLX runs on this machine, rather than let it answer
    #[arg(long)]
    no_attach: bool,
}

impl Sharing {
    /// This process's engine, or the one that is there; a human is told.
    pub fn engine(&self, global: &Global) -> failure::Result<Engine> {
        let engine = Engine::start_or_attach(Options { no_attach: self.no_attach, ..global.options() })?;
        if let Some(pid) = engine.attached_to() {
            out::complain(&format!(
                "using the rMLX that is running already (process {pid}); --no-attach refuses that, --device cpu computes here"
            ));
        }
        Ok(engine)
    }
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Device {
    #[default]
    Auto,
    Cpu,
    Gpu,
}

impl From<Device> for api::Device {
    fn from(device: Device) -> Self {
        match device {
            Device::Auto => Self::Auto,
            Device::Cpu => Self::Cpu,
            Device::Gpu => Self::Gpu,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Dtype {
    #[default]
    Auto,
    F32,
    Bf16,
    F16,
}

impl From<Dtype> for api::Dtype {
    fn from(dtype: Dtype) -> Self {
        match dtype {
            Dtype::Auto => Self::Auto,
            Dtype::F32 => Self::F32,
            Dtype::Bf16 => Self::Bf16,
            Dtype::F16 => Self::F16,
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl From<Level> for log::Level {
    fn from(level: Level) -> Self {
        match level {
            Level::Error => Self::Error,
            Level::Warn => Self::Warn,
            Level::Info => Self::Info,
            Level::Debug => Self::Debug,
            Level::Trace => Self::Trace,
        }
    }
}

pub fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".into()),
        Ok(n) => Ok(n),
        Err(_) => Err("must be a whole number".into()),
    }
}

fn finite(text: &str) -> Result<f32, String> {
    text.parse().ok().filter(|x: &f32| x.is_finite()).ok_or_else(|| "must be a number".into())
}

fn zero_or_more(text: &str) -> Result<f32, String> {
    finite(text)?.ok_if(|x| x >= 0.0, "must not be negative")
}

fn more_than_zero(text: &str) -> Result<f32, String> {
    finite(text)?.ok_if(|x| x > 0.0, "must be more than 0")
}

fn share(text: &str) -> Result<f32, String> {
    finite(text)?.ok_if(|x| (0.0..=1.0).contains(&x), "must be between 0 and 1")
}

fn bias(text: &str) -> Result<(u32, f32), String> {
    let (id, value) = text.split_once('=').ok_or("must look like 42=-1.5")?;
    let id = id.parse().map_err(|_| format!("{id}: no token id"))?;
    Ok((id, finite(value)?))
}

trait OkIf: Copy {
    fn ok_if(self, fits: impl Fn(Self) -> bool, complaint: &str) -> Result<Self, String> {
        if fits(self) { Ok(self) } else { Err(complaint.into()) }
    }
}

impl OkIf for f32 {}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Result<Cli, String> {
        Cli::try_parse_from(line.split(' ')).map_err(|e| e.to_string())
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_mean_the_same_before_and_after() {
        for line in [
            "rmlx --device cpu --max-ctx 64 --temperature 0.5 --presence-penalty -1 --logit-bias 5=-2 run m hi",
            "rmlx run m hi --device cpu --max-ctx 64 --temperature 0.5 --presence-penalty -1 --logit-bias 5=-2",
        ] {
            let cli = parse(line).unwrap();
            let options = Options { device: api::Device::Cpu, max_ctx: Some(64), ..Options::default() };
            assert_eq!(cli.global.options(), options);
            let request = cli.global.request(api::Prompt::Text(String::new()));
            assert_eq!((request.sampling.temperature, request.sampling.presence_penalty), (Some(0.5), Some(-1.0)));
            assert_eq!(request.sampling.logit_bias, [(5, -2.0)]);
            assert!(cli.global.without_effect_on(&cli.command).is_empty());
        }
        let cli = parse("rmlx list --seed 1 --stop x").unwrap();
        assert_eq!(cli.global.without_effect_on(&cli.command), ["--seed", "--stop"]);
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for (flag, value) in [
            ("--max-tokens", "0"),
            ("--max-ctx", "-1"),
            ("--threads", "x"),
            ("--temperature", "-1"),
            ("--temperature", "NaN"),
            ("--top-p", "1.5"),
            ("--min-p", "-0.1"),
            ("--repetition-penalty", "0"),
            ("--frequency-penalty", "inf"),
            ("--logit-bias", "5"),
            ("--logit-bias", "x=1"),
            ("--device", "tpu"),
            ("--dtype", "f64"),
        ] {
            let error = parse(&format!("rmlx run m hi {flag}={value}")).unwrap_err();
            assert!(error.contains(flag), "{error}");
        }
    }
}
