//! One model's folder, in the Hugging Face layout: `config.json`, safetensors, a tokenizer. Opening it settles which files are its
//! weights; nothing outside the folder (for a Hugging Face cache: outside the repository's part of it) is ever read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::safetensors::{SafeTensors, TensorInfo};
use crate::config::{self, ModelConfig, printable};
use crate::contained;
use crate::error::{Error, Result};

/// Bytes.
const MAX_CONFIG: u64 = 16 << 20;
/// Bytes of any other text: the largest tokenizers have about 35 MB.
const MAX_TEXT: u64 = 256 << 20;

pub(super) const SINGLE: &str = "model.safetensors";
pub(super) const INDEX: &str = "model.safetensors.index.json";

#[derive(Debug, Clone)]
pub struct Snapshot {
    folder: PathBuf,
    /// Where links may lead, without links itself.
    root: PathBuf,
    config: Map<String, Value>,
    weights: Shards,
}

/// File names, each with the tensors that the index puts there; `None` without an index.
type Shards = BTreeMap<String, Option<BTreeSet<String>>>;

impl Snapshot {
    /// Reads `config.json` and finds the weights; their headers are read by [`Self::weights`].
    ///
    /// # Errors
    /// [`Error::BadFile`] where something is missing, broken or leads out of the snapshot; [`Error::Unsupported`] for pickled weights
    /// and for models that bring their own code.
    pub fn open(folder: &Path) -> Result<Self> {
        let real = fs::canonicalize(folder).map_err(|e| Error::io(folder, e))?;
        if !real.is_dir() {
            let hint =
                if is_gguf(folder) { "not a folder\na GGUF file is imported first: rmlx import FILE" } else { "not a folder" };
            return Err(Error::bad_file(folder, hint));
        }
        let root = contained::root(folder).map_err(|e| Error::io(folder, e))?;
        let mut snapshot = Self { folder: folder.into(), root, config: Map::new(), weights: BTreeMap::new() };
        snapshot.config = match snapshot.json("config.json", MAX_CONFIG)? {
            Some(Value::Object(config)) => config,
            Some(_) => return Err(Error::bad_file(folder.join("config.json"), "not an object")),
            None => return Err(Error::bad_file(folder, format!("has no config.json{}", gguf_hint(folder)))),
        };
        if snapshot.config.get("auto_map").is_some_and(|m| m.as_object().is_none_or(|m| !m.is_empty())) {
            return Err(Error::Unsupported("it brings its own code (auto_map in config.json), which is never run here".into()));
        }
        snapshot.weights = snapshot.find_weights()?;
        Ok(snapshot)
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// `config.json`.
    pub fn config(&self) -> &Map<String, Value> {
        &self.config
    }

    pub fn architecture(&self) -> Option<&str> {
        config::architecture(&self.config)
    }

    /// # Errors
    /// As [`ModelConfig::parse`].
    pub fn model_config(&self) -> Result<ModelConfig> {
        ModelConfig::parse(&Value::Object(self.config.clone()))
    }

    /// A file of the snapshot, `None` where it is not there.
    ///
    /// # Errors
    /// [`Error::BadFile`]: it is no file, or a link that leads nowhere or out of the snapshot.
    pub fn file(&self, name: &str) -> Result<Option<PathBuf>> {
        if !is_plain(name) {
            return Err(Error::bad_file(&self.folder, format!("{name:?} is not a file's name")));
        }
        Ok(contained::open(&self.folder, &self.root, name)?.map(|_| self.folder.join(name)))
    }

    /// A file's text, `None` where it is not there.
    ///
    /// # Errors
    /// As [`Self::file`]; not UTF-8, or over 256 MiB.
    pub fn text(&self, name: &str) -> Result<Option<String>> {
        self.read(name, MAX_TEXT)
    }

    /// Maps every weight file, and compares the headers with the index.
    ///
    /// # Errors
    /// [`Error::BadFile`] with the file and the tensor.
    pub fn weights(&self) -> Result<Weights> {
        let mut weights = Weights { files: Vec::new(), tensors: BTreeMap::new() };
        for (name, indexed) in &self.weights {
            let path = self.folder.join(name);
            let bad = |reason: String| Error::bad_file(&path, printable(&reason));
            let file = SafeTensors::open(&path)?;
            if let Some(missing) = indexed.iter().flatten().find(|t| file.get(t).is_none()) {
                return Err(bad(format!("lacks tensor {missing}, which {INDEX} puts there")));
            }
            for (tensor, _) in file.tensors() {
                if indexed.as_ref().is_some_and(|names| !names.contains(tensor)) {
                    return Err(bad(format!("has tensor {tensor}, which {INDEX} does not put there")));
                }
                weights.tensors.insert(tensor.into(), weights.files.len());
            }
            weights.files.push(Arc::new(file));
        }
        Ok(weights)
    }

    /// Files that the index of a folder's weights names, whether they are there or not; empty without a readable index.
    pub(super) fn indexed(folder: &Path) -> BTreeSet<String> {
        let names = || {
            let root = contained::root(folder).ok()?;
            let file = contained::open(folder, &root, INDEX).ok()??;
            let index: Value = serde_json::from_reader(std::io::BufReader::new(file.take(MAX_TEXT))).ok()?;
            Some(index.get("weight_map")?.as_object()?.values().filter_map(Value::as_str).map(Into::into).collect())
        };
        names().unwrap_or_default()
    }

    fn find_weights(&self) -> Result<Shards> {
        if let Some(index) = self.json(INDEX, MAX_TEXT)? {
            return self.shards(&index);
        }
        if self.file(SINGLE)?.is_some() {
            return Ok([(SINGLE.into(), None)].into());
        }
        let names = names(&self.folder);
        let pickle = names.iter().find(|n| [".bin", ".pt", ".pth", ".ckpt", ".pkl"].iter().any(|suffix| n.ends_with(suffix)));
        if let Some(pickle) = pickle {
            return Err(Error::Unsupported(format!(
                "its weights are a Python pickle ({pickle}), which can run code when it is read; only safetensors are read here"
            )));
        }
        Err(Error::bad_file(&self.folder, format!("has neither {SINGLE} nor {INDEX}{}", gguf_hint(&self.folder))))
    }

    fn shards(&self, index: &Value) -> Result<Shards> {
        let bad = |reason: String| Error::bad_file(self.folder.join(INDEX), printable(&reason));
        let map = index.get("weight_map").and_then(Value::as_object).ok_or_else(|| bad("has no weight_map".into()))?;
        let mut shards = Shards::new();
        for (tensor, file) in map {
            let file = file.as_str().filter(|f| is_plain(f) && f.ends_with(".safetensors"));
            let file = file.ok_or_else(|| bad(format!("tensor {tensor} is not in a safetensors file of this folder")))?;
            shards.entry(file.into()).or_default().get_or_insert_default().insert(tensor.clone());
        }
        if shards.is_empty() {
            return Err(bad("lists no tensors".into()));
        }
        let mut missing = Vec::new();
        for name in shards.keys() {
            if self.file(name)?.is_none() {
                missing.push(name.as_str());
            }
        }
        match missing[..] {
            [] => Ok(shards),
            [one] => Err(Error::bad_file(&self.folder, format!("lacks {one}"))),
            [first, ..] => Err(Error::bad_file(
                &self.folder,
                format!("lacks {} of {} weight files, {first} first", missing.len(), shards.len()),
            )),
        }
    }

    fn json(&self, name: &str, limit: u64) -> Result<Option<Value>> {
        let Some(text) = self.read(name, limit)? else { return Ok(None) };
        let value =
            serde_json::from_str(&text).map_err(|e| Error::bad_file(self.folder.join(name), format!("not valid JSON: {e}")))?;
        Ok(Some(value))
    }

    fn read(&self, name: &str, limit: u64) -> Result<Option<String>> {
        if !is_plain(name) {
            return Err(Error::bad_file(&self.folder, format!("{name:?} is not a file's name")));
        }
        let Some(file) = contained::open(&self.folder, &self.root, name)? else { return Ok(None) };
        let path = self.folder.join(name);
        let mut text = String::new();
        let read = file.take(limit + 1).read_to_string(&mut text);
        // A character may lie across the limit, so the length comes before the encoding.
        let len = fs::metadata(&path).map_or(0, |m| m.len());
        if text.len() as u64 > limit || len > limit {
            return Err(Error::bad_file(path, format!("{len} bytes, and {limit} are the most that is read")));
        }
        match read {
            Err(e) if e.kind() == ErrorKind::InvalidData => Err(Error::bad_file(path, "not UTF-8")),
            Err(e) => Err(Error::io(path, e)),
            Ok(_) => Ok(Some(text)),
        }
    }
}

/// A snapshot's tensors, mapped.
#[derive(Debug, Clone)]
pub struct Weights {
    files: Vec<Arc<SafeTensors>>,
    /// Name to index in `files`.
    tensors: BTreeMap<String, usize>,
}

impl Weights {
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// In the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &TensorInfo)> {
        self.tensors.keys().filter_map(|name| Some((name.as_str(), self.get(name)?)))
    }

    pub fn get(&self, name: &str) -> Option<&TensorInfo> {
        self.file(name)?.get(name)
    }

    /// The file that holds a tensor; a clone of it keeps the mapping.
    pub fn file(&self, name: &str) -> Option<&Arc<SafeTensors>> {
        self.tensors.get(name).and_then(|i| self.files.get(*i))
    }

    /// # Errors
    /// As [`SafeTensors::bytes`].
    pub fn bytes(&self, name: &str) -> Result<&[u8]> {
        self.file(name).ok_or_else(|| Error::Weights(format!("there is no tensor {name}")))?.bytes(name)
    }

    pub fn files(&self) -> &[Arc<SafeTensors>] {
        &self.files
    }

    /// Bytes of all tensors.
    pub fn total_bytes(&self) -> u64 {
        self.iter().map(|(_, info)| info.range.len() as u64).sum()
    }
}

/// One name, and not a way to another folder.
pub(super) fn is_plain(name: &str) -> bool {
    let mut components = Path::new(name).components();
    matches!((components.next(), components.next()), (Some(Component::Normal(n)), None) if n == name) && !name.contains('\0')
}

/// Names in a folder, sorted; empty where it cannot be read.
pub(super) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|e| e.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn is_gguf(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf"))
}

fn gguf_hint(folder: &Path) -> String {
    let file = names(folder).into_iter().find(|n| is_gguf(Path::new(n)));
    file.map_or_else(String::new, |f| format!("\na GGUF file is imported first: rmlx import {}", folder.join(f).display()))
}

#[cfg(test)]
mod tests;
