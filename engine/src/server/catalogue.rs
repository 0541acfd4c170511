//! Which names clients may use. Not paths: whoever can reach the port should not choose files.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::errors::{ApiError, ApiResult};
use super::ids;
use crate::api::{ModelEntry, ModelSource};
use crate::engine::{Engine, STARTER};

/// How many names an error lists.
const NAMES: usize = 20;

pub struct Catalogue {
    engine: Engine,
    /// Names beside those that the engine lists.
    more: Vec<String>,
    /// The names of the last look; a name that is not among them makes another.
    known: Mutex<Vec<String>>,
}

/// A model as clients see it.
pub struct Model {
    pub id: String,
    /// When its files were written; seconds since 1970.
    pub created: u64,
    pub owner: &'static str,
    /// Tokens of prompt and answer together.
    pub context: Option<usize>,
}

impl Catalogue {
    pub fn new(engine: Engine, more: Vec<String>) -> Self {
        Self { engine, more, known: Mutex::default() }
    }

    /// Every model that can be run. Reads files.
    pub fn models(&self) -> ApiResult<Vec<Model>> {
        let entries = self.look()?;
        let whole = entries.iter().filter(|e| e.problem.is_none());
        let listed = whole.map(|e| {
            let owner = match e.source {
                ModelSource::Own => "rmlx",
                ModelSource::HuggingFace => "huggingface",
                ModelSource::Folder => "local",
            };
            self.model(&e.name, &e.folder, owner)
        });
        let mut models: Vec<Model> = listed.collect();
        for name in self.more() {
            if models.iter().all(|m| m.id != name) {
                models.push(self.model(&name, Path::new(&name), "rmlx"));
            }
        }
        Ok(models)
    }

    fn model(&self, name: &str, folder: &Path, owner: &'static str) -> Model {
        let written = std::fs::metadata(folder.join("config.json")).and_then(|m| m.modified());
        Model { id: name.into(), created: written.map_or(0, ids::seconds), owner, context: self.engine.context_length(name).ok() }
    }

    /// The id that the list has for a name. May read files.
    ///
    /// # Errors
    /// 404 with the names that there are.
    pub fn id(&self, name: &str) -> ApiResult<String> {
        let id = if name == "starter" { STARTER } else { name };
        let known = |this: &Self| this.known().iter().any(|k| k == id);
        if known(self) || self.more().iter().any(|m| m == id) {
            return Ok(id.into());
        }
        self.look()?;
        if known(self) {
            return Ok(id.into());
        }
        let mut names = self.known().clone();
        for name in self.more() {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let there_are = match names.len() {
            0 => "there are no models yet; bring one: rmlx pull ORG/NAME".into(),
            n if n > NAMES => format!("there are: {} and {} more", names[..NAMES].join(", "), n - NAMES),
            _ => format!("there are: {}", names.join(", ")),
        };
        Err(ApiError::model_not_found(format!("no model is called {name}; {there_are}")))
    }

    fn look(&self) -> ApiResult<Vec<ModelEntry>> {
        let mut entries = self.engine.list()?;
        // What only its folder names: where users keep things is not for other programs.
        entries.retain(|e| !e.name.starts_with('/'));
        *self.known() = entries.iter().map(|e| e.name.clone()).collect();
        Ok(entries)
    }

    /// The user's own, and the model that is there now.
    fn more(&self) -> Vec<String> {
        self.more.iter().cloned().chain(self.engine.activity().model).collect()
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
