//! One engine for several processes: using another's, and letting others use this one.

use std::sync::{Arc, PoisonError, Weak};

use crate::api::{Device, Dtype, Options};
use crate::attach::{self, Answered, Ask, Client, Found, Host};
use crate::claim;
use crate::error::{Error, Result};
use crate::hub;
use crate::worker;

use super::{Backend, Engine, Shared, open};

impl Engine {
    /// As [`Self::start`]; but where another rMLX of this user holds the claim and shares its engine, answers come from there. With
    /// [`Device::Cpu`] nobody is asked: computing there stands in nobody's way.
    ///
    /// # Errors
    /// [`Error::ClaimHeld`] when there is a GPU and its holder cannot be used, or with [`Options::no_attach`] when there is a holder;
    /// [`Error::BadRequest`] for options that the other engine cannot honour. Where only the CPU is there, whatever is wrong with the
    /// holder or the claim's file is a warning, and this process computes.
    pub fn start_or_attach(options: Options) -> Result<Self> {
        if options.device == Device::Cpu {
            return Self::start(options);
        }
        let must = options.no_attach || options.device == Device::Gpu || worker::gpu_available();
        let (pid, why) = match attach::find() {
            Err(e) if must => return Err(e),
            Err(e) => {
                tracing::warn!("computing here, whoever else does: {e}");
                return Self::start(options);
            }
            Ok(Found::Nobody) => return Self::start(options),
            Ok(Found::Engine(client)) if !options.no_attach => {
                check_attached(&options, &client)?;
                tracing::info!(pid = client.pid(), "attached");
                return Ok(Self::with(options, Backend::Attached(client)));
            }
            Ok(Found::Engine(client)) => (client.pid().to_string(), None),
            Ok(Found::Closed { pid, why }) => (pid, why),
        };
        if must {
            let why = why.map_or_else(String::new, |why| format!("\nit cannot be used: {why}"));
            return Err(Error::ClaimHeld { pid, hint: format!("{why}{}", claim::HINT) });
        }
        if let Some(why) = why {
            tracing::warn!("computing here, since the engine of process {pid} cannot be used: {why}");
        }
        Self::start(options)
    }

    /// The process whose engine answers, when it is not this one.
    pub fn attached_to(&self) -> Option<u32> {
        match &self.0.backend {
            Backend::Own { .. } => None,
            Backend::Attached(client) => Some(client.pid()),
        }
    }

    /// Takes the claim, on any device, for as long as this engine lives and lets other rMLX processes of this user use it. Calling it
    /// again changes nothing, or tries again when it failed before.
    ///
    /// # Errors
    /// [`Error::ClaimHeld`] while another process holds the claim.
    pub fn share(&self) -> Result<()> {
        let Backend::Own { worker, claim } = &self.0.backend else {
            return Err(Error::BadRequest("this engine is another process's, which shares it already".into()));
        };
        let mut host = self.0.host.lock().unwrap_or_else(PoisonError::into_inner);
        if host.is_none() {
            let engine = Arc::downgrade(&self.0);
            let started = Host::start(claim, worker.device(), move |ask| answer(&engine, ask)).map_err(|e| match e {
                Error::ClaimHeld { pid, .. } => Error::ClaimHeld { pid, hint: BUSY_HINT.into() },
                other => other,
            })?;
            *host = Some(started);
        }
        Ok(())
    }
}

/// To whoever wanted to be the machine's engine.
const BUSY_HINT: &str = "\nhint: end it and try again, or use that one";

/// Answers another process.
fn answer(engine: &Weak<Shared>, ask: Ask) -> Result<Answered> {
    // Not kept over the answer: it is for its owner to end it.
    let engine = Engine(engine.upgrade().ok_or(Error::Cancelled)?);
    let here = |model: attach::Model| {
        if !model.folder.is_absolute() {
            return Err(Error::BadRequest(format!("not an absolute folder: {}", model.folder.display())));
        }
        // Others hear the name, and it has to mean the same model in this process, which has another current folder.
        let same = hub::resolve(&model.name).is_ok_and(|found| found.canonicalize().is_ok_and(|found| found == model.folder));
        open(if same { model.name } else { model.folder.display().to_string() }, &model.folder)
    };
    Ok(match ask {
        Ask::Status => Answered::Status(engine.status()),
        Ask::Load(model) => Answered::Events(engine.load_here(here(model)?)?),
        Ask::Generate(model, request) => Answered::Events(engine.generate_here(here(model)?, *request)?),
    })
}

/// What was asked of this process's engine and cannot be had of the other's.
fn check_attached(options: &Options, client: &Client) -> Result<()> {
    let given = [
        ("--dtype", options.dtype != Dtype::Auto),
        ("--threads", options.threads.is_some()),
        ("--exact", options.exact),
        ("--max-ctx", options.max_ctx.is_some()),
        ("--device gpu", options.device == Device::Gpu && client.device() != "gpu"),
    ];
    match given.iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((option, _)) => Err(Error::BadRequest(format!(
            "{option} cannot be had: the rMLX that runs on this machine (process {}) was started without it\n\
             hint: leave it out, or compute beside that one with --device cpu (--no-attach fails instead of using it)",
            client.pid()
        ))),
    }
}
