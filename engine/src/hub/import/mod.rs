//! Makes MLX snapshots from other formats. A snapshot appears under its name only when it is whole: it is written into a folder
//! beside its place, `.NAME.partial`, and renamed.

pub mod gguf;
pub mod model;
mod place;
pub mod repack;
pub mod tokenizer;
mod weights;

use std::io::BufReader;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use self::gguf::Gguf;
use self::model::{Mapping, Model};
use self::place::Place;
use self::tokenizer::Rebuilt;
use self::weights::Source;
use super::snapshot::is_plain;
use crate::config::{ModelConfig, printable};
use crate::contained;
use crate::error::{Error, Result};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportOptions {
    /// The snapshot's folder; its parent is made where it is missing.
    pub out: PathBuf,
    /// Replace a snapshot that is there.
    pub force: bool,
}

/// A snapshot that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    pub folder: PathBuf,
    /// Of all its files.
    pub bytes: u64,
    pub tensors: usize,
    /// `architectures[0]` of its `config.json`.
    pub architecture: String,
}

/// Called with the bytes done and their total; `Break` cancels.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64) -> ControlFlow<()>;

/// The snapshot's name where the user gives none: the file's, without its suffix and the quantization's.
pub fn default_name(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let quantization = |s: &str| {
        let s = s.to_ascii_uppercase();
        let digits = s.strip_prefix('Q').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        digits || matches!(s.as_str(), "F16" | "F32" | "FP16" | "FP32")
    };
    match stem.rsplit_once(['.', '-']) {
        Some((name, last)) if !name.is_empty() && quantization(last) => name.into(),
        _ => stem.into_owned(),
    }
}

/// A model's folder in the models folder. It has to be one that the name alone finds again: see [`crate::hub::find`].
///
/// # Errors
/// [`Error::BadRequest`].
pub fn named(models: &Path, name: &str) -> Result<PathBuf> {
    let fits = is_plain(name) && !name.starts_with('.') && !name.trim().is_empty() && !name.contains(char::is_control);
    if !fits || name == "starter" {
        return Err(Error::BadRequest(format!(
            "{} cannot be a model's name\n--name gives another, --out a folder anywhere",
            printable(&format!("{name:?}"))
        )));
    }
    Ok(models.join(name))
}

/// Imports a GGUF file, without loss: see [`repack`].
///
/// # Errors
/// [`Error::BadFile`] where the file is broken or holds what cannot be imported, [`Error::BadRequest`] where the place is taken,
/// [`Error::Cancelled`], [`Error::Io`]. No half snapshot is left under the name by any of them.
pub fn gguf(path: &Path, options: &ImportOptions, progress: Progress) -> Result<Imported> {
    let bad = |reason: String| Error::bad_file(path, printable(&reason));
    let file = contained::open_regular(path)?;
    let meta = file.metadata().map_err(|e| Error::io(path, e))?;
    let gguf = Gguf::read(BufReader::with_capacity(1 << 20, &file), meta.len()).map_err(bad)?;
    let source = Source { path, file: &file };
    let rope_factors = match Model::rope_factors(&gguf).map_err(bad)? {
        Some(tensor) => Some(weights::floats(&source.read(tensor)?)),
        None => None,
    };
    let plan = Plan::new(&gguf, rope_factors.as_deref()).map_err(bad)?;

    let place = Place::claim(options)?;
    place.json("config.json", &Value::Object(plan.config))?;
    place.json("generation_config.json", &Value::Object(plan.generation))?;
    place.json("tokenizer.json", &plan.tokenizer.tokenizer)?;
    place.json("tokenizer_config.json", &plan.tokenizer.tokenizer_config)?;
    if let Some(template) = &plan.tokenizer.chat_template {
        place.write("chat_template.jinja", template.as_bytes())?;
    }
    let tensors = weights::write(&source, &gguf, &plan.mappings, &place.file("model.safetensors"), progress)?;
    let (folder, bytes) = place.finish()?;
    Ok(Imported { folder, bytes, tensors, architecture: plan.architecture })
}

/// Everything that is decided before anything is written.
pub struct Plan {
    /// `architectures[0]`.
    pub architecture: String,
    /// `config.json`.
    pub config: Map<String, Value>,
    /// `generation_config.json`.
    pub generation: Map<String, Value>,
    pub tokenizer: Rebuilt,
    pub mappings: Vec<Mapping>,
}

impl Plan {
    /// `rope_factors`: see [`Model::read`].
    ///
    /// # Errors
    /// The key or tensor, and the reason.
    pub fn new(gguf: &Gguf, rope_factors: Option<&[f32]>) -> Result<Self, String> {
        let model = Model::read(gguf, rope_factors)?;
        let mappings = model.mappings(gguf)?;
        let tokenizer = tokenizer::rebuild(gguf, model.vocabulary, model.context)?;
        let mut config = model.config(gguf, &mappings);
        let mut generation = Map::new();
        let eos = match &tokenizer.stops[..] {
            [] => Value::Null,
            [one] => json!(one),
            many => json!(many),
        };
        let ids = [("bos_token_id", json!(tokenizer.bos)), ("eos_token_id", eos), ("pad_token_id", json!(tokenizer.pad))];
        for (key, value) in ids.into_iter().filter(|(_, v)| !v.is_null()) {
            config.insert(key.into(), value.clone());
            generation.insert(key.into(), value);
        }
        // What this program could not run again is not written.
        let parsed = ModelConfig::parse(&Value::Object(config.clone())).map_err(|e| e.to_string())?;
        Ok(Self { architecture: parsed.architecture, config, generation, tokenizer, mappings })
    }
}

#[cfg(test)]
mod tests;
