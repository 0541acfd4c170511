//! The handle to the engine: the one door for the command line, the server and the app.
//!
//! What needs no array (names, files, templates, tokenizing) happens on the caller's thread; the rest is sent to the worker.

mod conversations;
mod models;
mod pulls;
mod sharing;
mod tokens;
mod turns;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use time::OffsetDateTime;

pub use crate::api::Options;
use crate::api::{Activity, BenchPlan, BenchReport, Check, Logits, ModelEntry, ModelInfo, Prompt, Request, Status};
use crate::attach::{self, Client, Host};
use crate::claim;
use crate::config::ModelConfig;
use crate::decode::{Plan, Resolved};
use crate::doctor;
use crate::error::{Error, Result};
use crate::fit;
pub use crate::hub::STARTER;
use crate::hub::{self, Snapshot, import};
use crate::paths;
use crate::pipe::pipe;
pub use crate::pipe::{Canceller, Reader};
use crate::registry;
use crate::text::{ChatTemplate, Conversation, End, GenerationDefaults, Tokenizer, stop_ids};
use crate::worker::{self, Command, Job, Wanted};
pub use models::Models;
pub use pulls::{Asked, PullCheck, Setup};
pub use tokens::TokenBytes;

/// The MLX that this program was compiled against.
pub use crate::doctor::MLX_VERSION;

/// Cheap to clone; every clone speaks to the same engine. When the last goes, the worker ends its answers and
/// stops; answers of another process's engine go on until their readers are dropped.
#[derive(Clone)]
pub struct Engine(Arc<Shared>);

struct Shared {
    options: Options,
    backend: Backend,
    /// While it is shared. After the worker, whose last words its clients still get.
    host: Mutex<Option<Host>>,
    texts: Mutex<HashMap<PathBuf, Arc<ModelText>>>,
    /// After the worker, so that answers it ends are saved.
    conversations: conversations::Conversations,
    models: Mutex<Option<Models>>,
}

/// Where answers are made.
enum Backend {
    Own { worker: worker::Handle, claim: claim::Slot },
    Attached(Client),
}

/// The part of a snapshot that turns conversations into ids and ids into text.
struct ModelText {
    config: ModelConfig,
    tokenizer: Arc<Tokenizer>,
    template: ChatTemplate,
    stop_ids: std::collections::BTreeSet<u32>,
    defaults: GenerationDefaults,
}

impl Engine {
    /// Starts the worker; nothing is loaded and no claim taken yet.
    ///
    /// # Errors
    /// [`Error::BadRequest`] for a GPU that is not there.
    pub fn start(options: Options) -> Result<Self> {
        let claim = claim::Slot::default();
        let worker = worker::start(&options, claim.clone())?;
        Ok(Self::with(options, Backend::Own { worker, claim }))
    }

    fn with(options: Options, backend: Backend) -> Self {
        let conversations = conversations::Conversations::new(&options);
        Self(Arc::new(Shared {
            options,
            backend,
            host: Mutex::default(),
            texts: Mutex::default(),
            conversations,
            models: Mutex::default(),
        }))
    }

    fn send(&self, command: Command) -> Result<()> {
        match &self.0.backend {
            Backend::Own { worker, .. } => worker.send(command),
            Backend::Attached(client) => Err(Error::BadRequest(format!(
                "the engine of process {} answers here, and it does this for its own process only",
                client.pid()
            ))),
        }
    }

    /// Resolves the name and loads: `Loading` events, then `Loaded` or `Failed`. Dropping the reader cancels the load.
    pub fn load(&self, model: &str) -> Result<Reader> {
        match &self.0.backend {
            Backend::Own { .. } => self.load_here(wanted(model)?),
            Backend::Attached(client) => client.load(elsewhere(model)?),
        }
    }

    fn load_here(&self, wanted: Wanted) -> Result<Reader> {
        let (writer, reader) = pipe();
        self.send(Command::Load(wanted, writer))?;
        Ok(reader)
    }

    /// Gives the resident model's memory back; nothing where there is none.
    ///
    /// # Errors
    /// [`Error::BadRequest`] while it answers or another one is being loaded.
    pub fn unload(&self) -> Result<()> {
        let (reply, answer) = mpsc::channel();
        self.send(Command::Unload(reply))?;
        worker::answer(&answer)?
    }

    /// Answers; a model that is not resident is loaded first, with its events in the same reader.
    ///
    /// # Errors
    /// What is wrong with the request itself: unknown model, prompt over the context, settings out of range.
    pub fn generate(&self, model: &str, request: Request) -> Result<Reader> {
        match &self.0.backend {
            Backend::Own { .. } => self.generate_here(wanted(model)?, request),
            Backend::Attached(client) => client.generate(elsewhere(model)?, request),
        }
    }

    fn generate_here(&self, wanted: Wanted, request: Request) -> Result<Reader> {
        let asked = Instant::now();
        let text = self.text(&wanted.snapshot)?;
        let vocabulary = text.config.vocab_size;
        let mut sampling = request.sampling;
        text.defaults.fill(&mut sampling);
        // Who names no seed wants another answer each time, and may want to know afterwards how to get it again.
        let seed = *sampling.seed.get_or_insert_with(random_seed);
        tracing::info!(seed, "sampling");
        let sampling = Resolved::new(&sampling, request.logprobs, vocabulary)?;
        let prompt = text.tokens(request.prompt)?;
        let limit = self.context_limit(&text.config)?;
        check_prompt(&prompt, vocabulary, limit, self.0.options.max_ctx.is_some())?;
        let room = limit - prompt.len();
        let plan = Plan {
            max_new: request.max_tokens.unwrap_or(room).min(room),
            prompt,
            sampling,
            stop_ids: if request.ignore_eos { Default::default() } else { text.stop_ids.clone() },
            stop: request.stop,
        };
        let (writer, reader) = pipe();
        let emit_tokens = request.token_ids || request.logprobs.is_some();
        let job = Job { wanted, plan, tokenizer: text.tokenizer.clone(), emit_tokens, asked };
        self.send(Command::Generate(Box::new(job), writer))?;
        Ok(reader)
    }

    /// The scores after every token of a prompt.
    pub fn logits(&self, model: &str, prompt: Prompt) -> Result<Logits> {
        let wanted = wanted(model)?;
        let text = self.text(&wanted.snapshot)?;
        let tokens = text.tokens(prompt)?;
        let limit = self.context_limit(&text.config)?;
        check_prompt(&tokens, text.config.vocab_size, limit, self.0.options.max_ctx.is_some())?;
        let (reply, answer) = mpsc::channel();
        self.send(Command::Logits(wanted, tokens, reply))?;
        worker::answer(&answer)?
    }

    /// From the snapshot's files; nothing is loaded.
    pub fn info(&self, model: &str) -> Result<ModelInfo> {
        registry::info(model)
    }

    pub fn list(&self) -> Result<Vec<ModelEntry>> {
        registry::list(&hub::Library::from_env())
    }

    /// Models on this disk and on the hub; every call gives the same downloads. Those that this engine has in memory are not removed.
    pub fn models(&self) -> Result<Models> {
        let mut models = self.0.models.lock().unwrap_or_else(PoisonError::into_inner);
        if models.is_none() {
            let home = self.0.options.home.clone().unwrap_or_else(paths::home);
            let engine = Arc::downgrade(&self.0);
            let named = hub::Library::of(&home);
            *models = Some(Models::open(home)?.guarded(move |folder| {
                let Some(engine) = engine.upgrade().map(Self) else { return false };
                let Ok(folder) = folder.canonicalize() else { return false };
                // A name means what it meant when it was loaded; in another home it may mean another folder, which is then safe, too.
                let means = |found: Result<PathBuf>| found.and_then(|f| f.canonicalize().map_err(|e| Error::io(&f, e)));
                let is = |found| means(found).is_ok_and(|loaded| loaded == folder);
                engine.status().resident.iter().any(|name| is(named.resolve(name)) || is(hub::resolve(name)))
            }));
        }
        models.clone().ok_or_else(|| Error::Internal("the models did not open".into()))
    }

    /// Writes a snapshot from a foreign file and returns its folder. `progress` gets bytes done and in all.
    pub fn import(
        &self,
        file: &Path,
        out: Option<PathBuf>,
        name: Option<String>,
        force: bool,
        progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<PathBuf> {
        let out = match out {
            Some(out) => out,
            None => import::named(&paths::models(), &name.unwrap_or_else(|| import::default_name(file)))?,
        };
        Ok(import::gguf(file, &import::ImportOptions { out, force }, progress)?.folder)
    }

    /// Of this machine, in bytes; `None` where the system does not say.
    pub fn memory() -> Option<u64> {
        fit::room().map(|room| room.most)
    }

    pub fn status(&self) -> Status {
        let (asked, device) = match &self.0.backend {
            Backend::Own { worker, .. } => {
                let (reply, answer) = mpsc::channel();
                (worker.send(Command::Status(reply)).and_then(|()| worker::answer(&answer)), worker.device())
            }
            Backend::Attached(client) => (client.status(), client.device()),
        };
        asked.unwrap_or_else(|_| Status { device: device.into(), ..Status::default() })
    }

    pub fn bench(&self, model: &str, plan: BenchPlan) -> Result<BenchReport> {
        let wanted = wanted(model)?;
        let config = wanted.snapshot.model_config()?;
        let limit = self.context_limit(&config)?;
        if let Some(&ctx) = plan.contexts.iter().find(|c| c.saturating_add(plan.tokens) > limit) {
            let hint = format!(" (measuring {} tokens after the prompt)", plan.tokens);
            return Err(Error::ContextLength { prompt: ctx, limit, hint });
        }
        let (reply, answer) = mpsc::channel();
        self.send(Command::Bench(wanted, plan, reply))?;
        worker::answer(&answer)?
    }

    /// What the engine is doing now. Of an engine that is attached to another process's: nothing.
    pub fn activity(&self) -> Activity {
        match &self.0.backend {
            Backend::Own { worker, .. } => worker.activity(),
            Backend::Attached(_) => Activity::default(),
        }
    }

    /// Calls `on_change` with every change from now on, for as long as the engine lives, from the engine's thread: it must be quick,
    /// since all answers wait for it. One that panics is not called again. It must not own the engine, which would then never end.
    pub fn watch(&self, on_change: impl Fn(&Activity) + Send + Sync + 'static) {
        if let Backend::Own { worker, .. } = &self.0.backend {
            worker.watch(on_change);
        }
    }

    /// What is installed and what is wrong with it.
    pub fn doctor(&self) -> Vec<Check> {
        doctor::checks(&self.0.options)
    }

    /// The tokenizer, template and defaults of a snapshot, read once.
    fn text(&self, snapshot: &Snapshot) -> Result<Arc<ModelText>> {
        let texts = || self.0.texts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = texts().get(snapshot.folder()) {
            return Ok(text.clone());
        }
        let text = Arc::new(ModelText::load(snapshot)?);
        texts().insert(snapshot.folder().into(), text.clone());
        Ok(text)
    }

    /// Tokens that one sequence may have, prompt and answer together.
    fn context_limit(&self, config: &ModelConfig) -> Result<usize> {
        let capacity = config.context_capacity();
        match self.0.options.max_ctx {
            None => Ok(capacity),
            Some(asked) if asked > capacity => Err(Error::BadRequest(format!(
                "--max-ctx {asked} is more than the {capacity} tokens that this model was made for"
            ))),
            Some(asked) => Ok(asked),
        }
    }
}

fn check_prompt(prompt: &[u32], vocabulary: usize, limit: usize, limited: bool) -> Result<()> {
    if prompt.is_empty() {
        return Err(Error::BadRequest("the prompt is empty".into()));
    }
    if let Some(id) = prompt.iter().find(|id| **id as usize >= vocabulary) {
        return Err(Error::BadRequest(format!("the prompt has token {id}; the model's vocabulary has {vocabulary}")));
    }
    if prompt.len() > limit {
        let hint = if limited { "; --max-ctx sets the limit" } else { "; shorten it" };
        return Err(Error::ContextLength { prompt: prompt.len(), limit, hint: hint.into() });
    }
    Ok(())
}

/// Below 2^32, so that it survives JSON readers that know floats only.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    // Every RandomState has keys of its own, from the system's random numbers.
    RandomState::new().hash_one(0) >> 32
}

fn wanted(model: &str) -> Result<Wanted> {
    open(model.into(), &hub::resolve(model)?)
}

fn open(name: String, folder: &Path) -> Result<Wanted> {
    // One name for one folder, whoever asks for it and from where; what cannot be found is told by the name that was given.
    let real = folder.canonicalize();
    let snapshot = Snapshot::open(real.as_deref().unwrap_or(folder))?;
    Ok(Wanted { name, snapshot: Arc::new(snapshot) })
}

/// For another process, which has another current folder and perhaps another home.
fn elsewhere(model: &str) -> Result<attach::Model> {
    let folder = hub::resolve(model)?;
    let folder = folder.canonicalize().map_err(|e| Error::io(&folder, e))?;
    if folder.to_str().is_none() {
        return Err(Error::bad_file(folder, "its name is not UTF-8, and so cannot be told to the process that answers"));
    }
    Ok(attach::Model { name: model.into(), folder })
}

impl ModelText {
    fn load(snapshot: &Snapshot) -> Result<Self> {
        let folder = snapshot.folder();
        let tokenizer = Arc::new(Tokenizer::load(folder)?);
        Ok(Self {
            config: snapshot.model_config()?,
            stop_ids: stop_ids(folder, &tokenizer)?,
            template: ChatTemplate::load(folder)?,
            defaults: GenerationDefaults::load(folder)?,
            tokenizer,
        })
    }

    fn tokens(&self, prompt: Prompt) -> Result<Vec<u32>> {
        match prompt {
            Prompt::Tokens(ids) => Ok(ids),
            Prompt::Text(text) => self.tokenizer.encode(&text, true),
            Prompt::Chat { messages, variables } => {
                if self.template.is_none() {
                    return Err(Error::BaseModel);
                }
                let messages: Vec<_> = messages
                    .iter()
                    .map(serde_json::to_value)
                    .collect::<Result<_, _>>()
                    .map_err(|e| Error::Internal(format!("a message did not become JSON: {e}")))?;
                let now = OffsetDateTime::now_local().unwrap_or_else(|_| OffsetDateTime::now_utc());
                let conversation = Conversation { messages: &messages, variables: &variables, end: End::NextMessage, now };
                // The template writes every special token itself.
                self.tokenizer.encode(&self.template.render(&conversation)?, false)
            }
        }
    }
}
