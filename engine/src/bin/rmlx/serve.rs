//! `rmlx serve`: the localhost endpoint.

use std::net::{IpAddr, Ipv4Addr};
use std::task::Poll;
use std::time::Duration;

use clap::Args;
use rmlx_engine::api::Event;
use rmlx_engine::engine::{Engine, Reader};
use rmlx_engine::server::{self, Limits, ServeOptions};

use crate::args::Global;
use crate::failure::{Failure, Result};
use crate::out;
use crate::signals::Signals;

/// Answer other programs over HTTP, as OpenAI's API does
///
/// Runs until it is ended: the first Ctrl-C (or SIGTERM) lets answers in flight finish, for at most ten seconds; the second
/// ends it at once.
#[derive(Debug, Args)]
pub struct Serve {
    /// Where to listen; 0 is any free port [default: the setting endpoint.port, 8080 unless changed]
    #[arg(long)]
    port: Option<u16>,
    /// An address of this machine alone
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
    /// Load this model at once; otherwise the first request loads the one that it names
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
}

/// For answers in flight, once the end is asked for.
const GRACE: Duration = Duration::from_secs(10);

pub fn run(args: Serve, global: &Global, signals: &Signals) -> Result<()> {
    let engine = Engine::start(global.options())?;
    engine.share()?;
    // A wrong name is told before anybody can connect.
    let load = args.model.as_deref().map(|model| engine.load(model)).transpose()?;
    let port = match args.port {
        Some(port) => port,
        None => engine.settings()?.endpoint.port,
    };
    let options = ServeOptions { host: args.host, port };
    // Before anybody can connect, and until the end: whoever has had an answer may ask for the end.
    let _polite = signals.polite();
    let serving = server::start_with(engine, &options, Limits::default(), args.model.iter().cloned().collect())?;
    let url = serving.url();
    out::print(&format!("rMLX listens on {url}\n\n{}", advice(&url, args.model.as_deref())))?;
    if let Some(load) = load {
        finish_load(load, signals)?;
    }
    let signal = signals.wait();
    tracing::info!(signal, "the end is asked for");
    serving.stop(GRACE);
    // What was asked for has been done: service managers read anything but 0 as a failure.
    Ok(())
}

/// Reads a load to its end, or to a signal.
fn finish_load(mut load: Reader, signals: &Signals) -> Result<()> {
    const TICK: Duration = Duration::from_millis(50);
    while signals.caught().is_none() {
        match load.next_timeout(TICK) {
            Poll::Ready(Some(Event::Failed(error))) => return Err(Failure::Engine(error)),
            Poll::Ready(Some(Event::Loaded) | None) => return Ok(()),
            Poll::Ready(Some(_)) | Poll::Pending => {}
        }
    }
    Ok(())
}

fn advice(url: &str, model: Option<&str>) -> String {
    let model = model.unwrap_or("starter");
    let body = serde_json::json!({ "model": model, "messages": [{ "role": "user", "content": "Hello" }], "stream": true });
    format!(
        "Programs that speak OpenAI's API take this base URL, with any key:\n  {url}/v1\nTry it:\n  curl -N {url}/v1/chat/completions \
         -H 'Content-Type: application/json' -d '{body}'\nThe end: Ctrl-C\n"
    )
}
