//! Models on this disk and on the hub. Needs no worker: the command line uses it without an engine.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::pulls::{Asked, Pulls, Setup};
use crate::api::{CatalogueEntry, FileCheck, FileState, HubModel, ModelEntry, Pull, PullOptions, PullPlan, TokenState};
use crate::error::{Error, Result};
use crate::fit::{self, Room, Target};
use crate::hub::cache::{Cache, Lock, disk_full};
use crate::hub::fetch::{Tuning, have};
use crate::hub::plan::{self, Judged, Machine, Runs};
use crate::hub::remote::{Remote, check_revision};
use crate::hub::remove::Removable;
use crate::hub::{Library, catalogue, check, search};
use crate::registry;
use crate::secrets::{Secret, Secrets};
use crate::settings;

/// Of one search.
const MOST_FOUND: usize = 30;

/// A handle that any thread may clone. Its methods may wait for the network or the disk. Downloads go on while a handle is there.
#[derive(Clone)]
pub struct Models {
    pulls: Arc<Pulls>,
    secrets: Secrets,
    /// Whether a model of this folder is in memory.
    in_use: Arc<dyn Fn(&Path) -> bool + Send + Sync>,
}

impl Models {
    /// `home` has the settings. Starts nothing.
    pub fn open(home: PathBuf) -> Result<Self> {
        let secrets = Secrets::from_env();
        let token = secrets.clone();
        let remote = Arc::new(move || Remote::from_env(token.token()?.map(|t| t.expose().to_owned())));
        let check = Arc::new(|asked| -> BoxFuture<'static, Result<()>> { Box::pin(check_pull(asked)) });
        let setup = Setup { home, cache: Cache::from_env(), remote, check, tuning: Tuning::default() };
        Ok(Self::of(setup, secrets))
    }

    /// With another hub, another cache or other times.
    pub fn with(setup: Setup) -> Self {
        Self::of(setup, Secrets::from_env())
    }

    fn of(setup: Setup, secrets: Secrets) -> Self {
        Self { pulls: Arc::new(Pulls::new(setup)), secrets, in_use: Arc::new(|_| false) }
    }

    /// Refuses to remove what this says is in use.
    pub(super) fn guarded(self, in_use: impl Fn(&Path) -> bool + Send + Sync + 'static) -> Self {
        Self { in_use: Arc::new(in_use), ..self }
    }

    /// Every snapshot on this machine, whole or not.
    pub fn list(&self) -> Result<Vec<ModelEntry>> {
        registry::list(&self.library())
    }

    /// What of the settings does not work as it is written, and so is not done: the file, or the folder of the user's choice.
    pub fn trouble(&self) -> Option<Error> {
        settings::read(&self.pulls.setup().home).err().or_else(|| self.library().trouble())
    }

    /// Asks the hub about `REPO[@REVISION]`, and this machine whether it fits.
    ///
    /// # Errors
    /// [`Error::BadRequest`]: that is no name; [`Error::Hub`]: nothing can be said. What speaks against fetching it is no error but
    /// in the plan.
    pub fn plan(&self, model: &str) -> Result<PullPlan> {
        let (name, revision) = model.split_once('@').unwrap_or((model, "main"));
        check_revision(revision)?;
        let setup = self.pulls.setup();
        let repo = setup.cache.repo(name)?;
        repo.check()?;
        let remote = (setup.remote)()?;
        let (asked, wanted) = (name.to_owned(), revision.to_owned());
        let looked = self.pulls.wait(async move {
            let listing = remote.listing(&asked, &wanted).await?;
            plan::look(&remote, listing, &wanted).await
        })??;
        let machine = machine((setup.tuning.free)(&repo.folder)?, setup.tuning.reserve);
        let Judged { mut plan, .. } = plan::judge(&looked, runs(), &|file| have(&repo, file), machine);
        if !plan.disk.fits {
            let needed = plan.to_fetch.saturating_add(plan.disk.reserve);
            plan.problems.push((&disk_full(&setup.cache.root, needed, plan.disk.free)).into());
        }
        Ok(plan)
    }

    /// Whether a download of what this plan is about was begun in spite of its problems, and so goes on in spite of them.
    pub fn begun_anyway(&self, plan: &PullPlan) -> bool {
        let repo = self.pulls.setup().cache.repo(&plan.repo);
        let record = repo.ok().and_then(|repo| repo.record(&plan.revision));
        record.is_some_and(|record| record.agreed(&plan.commit))
    }

    /// Begins to fetch, goes on with, or joins the download of `REPO[@REVISION]`. Returns at once; the plan is made in the
    /// background (phase `Listing`), and its problems end the download as `Failed`, unless somebody who asked for it wants it
    /// anyway: that is remembered for as long as the revision means the same commit.
    pub fn pull(&self, model: &str, options: PullOptions) -> Result<Pull> {
        self.pulls.pull(model, options)
    }

    /// All downloads: those of this process, also when they have ended, until they are begun again, cancelled or removed; then those
    /// of which parts lie on the disk, which another process may be fetching.
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
    ///
    /// # Errors
    /// [`Error::ModelNotFound`]; [`Error::Cancelled`]; [`Error::Io`] where a file cannot be read.
    pub fn verify(&self, model: &str, progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> Result<Vec<FileCheck>> {
        check::check(&self.library().resolve(model)?, progress)
    }

    /// Removes the files that [`Self::verify`] has found to be wrong, so that they are fetched again: says what to `pull` for it.
    ///
    /// # Errors
    /// [`Error::BadRequest`]: it did not come from the hub, or is being fetched.
    pub fn discard_wrong(&self, model: &str, checks: &[FileCheck]) -> Result<String> {
        let found = Removable::find(&self.library(), model)?;
        let Removable::Cached { commit, .. } = &found else {
            return Err(Error::BadRequest(format!("{model} did not come from the hub\nhint: import or copy it again")));
        };
        let (name, _lock) = self.lock(model, &found)?;
        let wrong = checks.iter().filter(|c| c.state == FileState::Wrong);
        wrong.into_iter().try_for_each(|c| found.remove_blob(&c.name))?;
        Ok(format!("{name}@{commit}"))
    }

    /// Removes a snapshot, and the bytes that no other one shares; says how many. Not the models of [`crate::api::ModelSettings::folder`].
    ///
    /// # Errors
    /// [`Error::BadRequest`]: it is being fetched, is in memory, or is not in a folder of ours.
    pub fn remove(&self, model: &str) -> Result<u64> {
        let found = Removable::find(&self.library(), model)?;
        if (self.in_use)(&found.folder()) {
            return Err(Error::BadRequest(format!(
                "{model} is in memory\nhint: unload it first, or end the program that uses it"
            )));
        }
        if found.repository().is_none() {
            return found.remove();
        }
        let (name, _lock) = self.lock(model, &found)?;
        let freed = found.remove()?;
        self.pulls.forget(&name);
        Ok(freed)
    }

    /// What rMLX suggests, the recommended first.
    pub fn catalogue(&self) -> Result<Vec<CatalogueEntry>> {
        let here = self.whole()?;
        catalogue::entries(fit::room().map(|room| room.most), &|repo| here.contains(repo))
    }

    /// Models on the hub with these words in their names, the most used first.
    ///
    /// # Errors
    /// [`Error::BadRequest`] without a word; [`Error::Hub`].
    pub fn search(&self, words: &str) -> Result<Vec<HubModel>> {
        let remote = (self.pulls.setup().remote)()?;
        let words = words.to_owned();
        let mut found = self.pulls.wait(async move { search::search(&remote, &words, MOST_FOUND, registry::knows).await })??;
        let here = self.whole()?;
        found.iter_mut().for_each(|model| model.here = here.contains(&model.repo));
        Ok(found)
    }

    /// Whether there is an access token for the hub, and where.
    pub fn token(&self) -> Result<TokenState> {
        Ok(self.secrets.show())
    }

    /// `None` forgets it. In the keyring, or where there is none for this session.
    ///
    /// # Errors
    /// [`Error::BadRequest`]: that is no token. The message does not repeat it.
    pub fn set_token(&self, token: Option<&str>) -> Result<TokenState> {
        let token = token.map(Secret::new).transpose()?;
        Ok(self.secrets.set(token))
    }

    /// The folder of a model on this machine.
    ///
    /// # Errors
    /// [`Error::ModelNotFound`].
    pub fn folder(&self, model: &str) -> Result<PathBuf> {
        self.library().resolve(model)
    }

    /// The right to change what the cache has of a repository.
    fn lock(&self, model: &str, found: &Removable) -> Result<(String, Lock)> {
        let name = found.repository().ok_or_else(|| Error::Internal(format!("{model} is of no repository")))?;
        let busy = || Error::BadRequest(format!("{model} is being fetched\nhint: pause or cancel that first"));
        let lock = self.pulls.setup().cache.repo(&name)?.lock()?.ok_or_else(busy)?;
        Ok((name, lock))
    }

    fn library(&self) -> Library {
        let setup = self.pulls.setup();
        Library { hugging_face: setup.cache.root.clone(), ..Library::of(&setup.home) }
    }

    /// Names of the snapshots that could be run.
    fn whole(&self) -> Result<BTreeSet<String>> {
        Ok(self.list()?.into_iter().filter(|m| m.problem.is_none()).map(|m| m.name).collect())
    }
}

/// Before the first byte of a download: what its plan would say, as an error.
async fn check_pull(asked: Asked) -> Result<()> {
    let looked = plan::look(&asked.remote, (*asked.listing).clone(), "").await?;
    let machine = machine(asked.disk.free, asked.disk.reserve);
    let Judged { errors, .. } = plan::judge(&looked, runs(), &|file| have(&asked.repo, file), machine);
    match errors.into_iter().find(|e| !asked.options.anyway || plan::is_closed(e)) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

fn runs() -> Runs<'static> {
    Runs { class: &registry::knows, model: &registry::runs }
}

fn machine(free: u64, reserve: u64) -> Machine {
    let gpu = mlx::gpu_available();
    let room: Option<Room> = fit::room().map(|room| room.within(mlx::gpu_budget().map(|bytes| bytes as u64)));
    Machine { free, reserve, room, target: if gpu { Target::GPU } else { Target::CPU } }
}
