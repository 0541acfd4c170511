//! Models on this disk and on the hub. Needs no worker: the command line uses it without an engine.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::pulls::{Pulls, Setup};
use crate::api::{CatalogueEntry, FileCheck, HubModel, ModelEntry, Pull, PullOptions, PullPlan, TokenState};
use crate::error::Result;
use crate::hub::cache::Cache;
use crate::hub::fetch::Tuning;
use crate::hub::remote::Remote;

/// A handle that any thread may clone. Its methods may wait for the network or the disk. Downloads go on while a handle is there.
#[derive(Clone)]
pub struct Models {
    pulls: Arc<Pulls>,
}

impl Models {
    /// `home` has the settings. Starts nothing.
    pub fn open(home: PathBuf) -> Result<Self> {
        let remote = Arc::new(|| Remote::from_env(None));
        let check = Arc::new(|_| -> BoxFuture<'static, Result<()>> { Box::pin(async { Ok(()) }) });
        Ok(Self::with(Setup { home, cache: Cache::from_env(), remote, check, tuning: Tuning::default() }))
    }

    /// With another hub, another cache or other times.
    pub fn with(setup: Setup) -> Self {
        Self { pulls: Arc::new(Pulls::new(setup)) }
    }

    /// Every snapshot on this machine, whole or not.
    pub fn list(&self) -> Result<Vec<ModelEntry>> {
        todo!("before")
    }

    /// Asks the hub about `REPO[@REVISION]`, and this machine whether it fits.
    pub fn plan(&self, model: &str) -> Result<PullPlan> {
        let _ = model;
        todo!("before")
    }

    /// Begins to fetch, goes on with, or joins the download of `REPO[@REVISION]`. Returns at once; the plan is made in the
    /// background (phase `Listing`), and its problems end the download as `Failed`.
    pub fn pull(&self, model: &str, options: PullOptions) -> Result<Pull> {
        self.pulls.pull(model, options)
    }

    /// All downloads: those that run, and those of which parts lie on the disk.
    pub fn pulls(&self) -> Vec<Pull> {
        self.pulls.all()
    }

    /// `on_change` gets them all, from a thread of its own, at most every 100 ms while something changes. Until the last handle goes.
    pub fn watch_pulls(&self, on_change: impl Fn(&[Pull]) + Send + Sync + 'static) {
        if let Err(e) = self.pulls.watch(on_change) {
            tracing::warn!("downloads go on unwatched: {e}");
        }
    }

    /// Stops sockets and writes within two seconds; what is here stays, and `pull` goes on from it.
    pub fn pause(&self, model: &str) -> Result<()> {
        self.pulls.pause(model)
    }

    /// As `pause`, and removes what is here of it, unless a whole snapshot shares it.
    pub fn cancel(&self, model: &str) -> Result<()> {
        self.pulls.cancel(model)
    }

    /// Hashes a snapshot's files. `progress` gets bytes done and in all.
    pub fn verify(&self, model: &str, progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> Result<Vec<FileCheck>> {
        let _ = (model, progress);
        todo!("before")
    }

    /// Removes a snapshot, and the bytes that no other one shares; says how many. Not the models of [`crate::api::ModelSettings::folder`].
    ///
    /// # Errors
    /// [`crate::error::Error::BadRequest`]: it is being fetched, or not in a folder of ours.
    pub fn remove(&self, model: &str) -> Result<u64> {
        let _ = model;
        todo!("before")
    }

    /// What rMLX suggests, the recommended first.
    pub fn catalogue(&self) -> Result<Vec<CatalogueEntry>> {
        todo!("before")
    }

    pub fn search(&self, words: &str) -> Result<Vec<HubModel>> {
        let _ = words;
        todo!("before")
    }

    pub fn token(&self) -> Result<TokenState> {
        todo!("before")
    }

    /// `None` forgets it. In the keyring, or where there is none for this session.
    pub fn set_token(&self, token: Option<&str>) -> Result<TokenState> {
        let _ = token;
        todo!("before")
    }
}
