//! Makes MLX snapshots from other formats. A snapshot appears under its name only when it is whole: it is written into a folder
//! beside its place, `.NAME.partial`, and renamed.

pub mod gguf;
pub mod model;
pub mod repack;
pub mod tokenizer;

use std::fs::{self, File, TryLockError};
use std::io::{BufReader, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use self::gguf::{Gguf, Tensor};
use self::model::{Mapping, Model};
use self::repack::{GROUP, Parts};
use super::safetensors::Dtype;
use super::safetensors::write::{TensorSpec, Writer};
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

/// Imports a GGUF file, without loss: see [`repack`].
///
/// # Errors
/// [`Error::BadFile`] where the file is broken or holds what cannot be imported, [`Error::BadRequest`] where the place is taken,
/// [`Error::Cancelled`], [`Error::Io`]. No half snapshot is left under the name by any of them.
pub fn gguf(path: &Path, options: &ImportOptions, progress: Progress) -> Result<Imported> {
    let bad = |reason: String| Error::bad_file(path, reason);
    let file = File::open(path).map_err(|e| Error::io(path, e))?;
    let meta = file.metadata().map_err(|e| Error::io(path, e))?;
    if !meta.is_file() {
        return Err(bad("not a file".into()));
    }
    let gguf = Gguf::read(BufReader::with_capacity(1 << 20, &file), meta.len()).map_err(bad)?;
    let source = Source { path, file: &file };
    let rope_factors = match Model::rope_factors(&gguf).map_err(bad)? {
        Some(tensor) => Some(floats(&source.read(tensor)?)),
        None => None,
    };
    let model = Model::read(&gguf, rope_factors.as_deref()).map_err(bad)?;
    let mappings = model.mappings(&gguf).map_err(bad)?;
    let tokenizer = tokenizer::rebuild(&gguf, model.vocabulary, model.context).map_err(bad)?;

    let mut config = model.config(&gguf, &mappings);
    let architecture = crate::config::architecture(&config).unwrap_or_default().to_owned();
    let mut generation = Map::new();
    let ids =
        [("bos_token_id", json!(tokenizer.bos)), ("pad_token_id", json!(tokenizer.pad)), ("eos_token_id", eos(&tokenizer.stops))];
    for (key, value) in ids.into_iter().filter(|(_, v)| !v.is_null()) {
        config.insert(key.into(), value.clone());
        generation.insert(key.into(), value);
    }
    // What this program could not run again is not written.
    crate::config::ModelConfig::parse(&Value::Object(config.clone()))?;

    let place = Place::claim(options)?;
    place.json("config.json", &Value::Object(config))?;
    place.json("generation_config.json", &Value::Object(generation))?;
    place.json("tokenizer.json", &tokenizer.tokenizer)?;
    place.json("tokenizer_config.json", &tokenizer.tokenizer_config)?;
    if let Some(template) = &tokenizer.chat_template {
        place.write("chat_template.jinja", template.as_bytes())?;
    }
    let tensors = weights(&source, &gguf, &mappings, &place.partial.join("model.safetensors"), progress)?;
    let (folder, bytes) = place.finish()?;
    Ok(Imported { folder, bytes, tensors, architecture })
}

fn eos(stops: &[u32]) -> Value {
    match stops {
        [] => Value::Null,
        [one] => json!(one),
        many => json!(many),
    }
}

/// Writes every tensor; returns how many there are.
fn weights(source: &Source, gguf: &Gguf, mappings: &[Mapping], out: &Path, progress: Progress) -> Result<usize> {
    let bad = |name: &str, reason: String| Error::bad_file(source.path, format!("tensor {name}: {reason}"));
    let tensor = |m: &Mapping| gguf.tensors.get(&m.source).ok_or_else(|| bad(&m.source, "missing".into()));
    let total: u64 = mappings.iter().filter_map(|m| gguf.tensors.get(&m.source)).map(|t| t.bytes as u64).sum();

    // Whether an F32 tensor fits f16 is known only from its values, and the header comes first: those are read twice.
    let mut specs = Vec::new();
    for m in mappings {
        specs.extend(specs_of(m, tensor(m)?, source)?);
    }
    let mut writer = Writer::create(out, &specs, &[("format", "mlx")])?;
    let mut done = 0;
    for m in mappings {
        if progress(done, total).is_break() {
            return Err(Error::Cancelled);
        }
        let tensor = tensor(m)?;
        let data = unpaired(source.read(tensor)?, m);
        match repack::repack(tensor.kind, &data).map_err(|reason| bad(&m.source, reason))? {
            Parts::F16(bytes) | Parts::F32(bytes) => writer.tensor(&m.target, &bytes)?,
            Parts::Affine { weight, scales, biases, .. } => {
                let module = module(m);
                writer.tensor(&m.target, &weight)?;
                writer.tensor(&format!("{module}.scales"), &scales)?;
                writer.tensor(&format!("{module}.biases"), &biases)?;
            }
        }
        done += tensor.bytes as u64;
    }
    if progress(done, total).is_break() {
        return Err(Error::Cancelled);
    }
    writer.finish()?;
    Ok(specs.len())
}

fn module(m: &Mapping) -> &str {
    m.target.strip_suffix(".weight").unwrap_or(&m.target)
}

fn specs_of(m: &Mapping, tensor: &Tensor, source: &Source) -> Result<Vec<TensorSpec>> {
    let spec = |name: String, dtype, shape| TensorSpec { name, dtype, shape };
    let Some(bits) = model::bits(tensor.kind) else {
        let fits_half = tensor.kind == gguf::TensorType::F16 || repack::fits_half(&source.read(tensor)?);
        let dtype = if fits_half { Dtype::F16 } else { Dtype::F32 };
        return Ok(vec![spec(m.target.clone(), dtype, m.shape.clone())]);
    };
    let last = |n: usize| {
        let mut shape = m.shape.clone();
        if let Some(row) = shape.last_mut() {
            *row = n;
        }
        shape
    };
    let row = m.shape.last().copied().unwrap_or(0);
    let module = module(m);
    Ok(vec![
        spec(m.target.clone(), Dtype::U32, last(row * bits as usize / 32)),
        spec(format!("{module}.scales"), Dtype::F16, last(row / GROUP)),
        spec(format!("{module}.biases"), Dtype::F16, last(row / GROUP)),
    ])
}

/// Undoes the converter's order of rows: it keeps the rows of each head as rotary pairs (0, D/2, 1, D/2 + 1, ...).
fn unpaired(data: Vec<u8>, m: &Mapping) -> Vec<u8> {
    let (Some(heads), Some(&rows)) = (m.heads, m.shape.first()) else { return data };
    let (row, dim) = (data.len() / rows, rows / heads);
    let mut out = Vec::with_capacity(data.len());
    for head in 0..heads {
        for half in 0..2 {
            for i in 0..dim / 2 {
                let from = (head * dim + 2 * i + half) * row;
                out.extend_from_slice(&data[from..from + row]);
            }
        }
    }
    out
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

struct Source<'a> {
    path: &'a Path,
    file: &'a File,
}

impl Source<'_> {
    /// Its place was checked against the file's length, so this allocates no more than the file has.
    fn read(&self, tensor: &Tensor) -> Result<Vec<u8>> {
        let mut data = vec![0; tensor.bytes];
        self.file.read_exact_at(&mut data, tensor.offset).map_err(|e| Error::io(self.path, e))?;
        Ok(data)
    }
}

/// The folder under construction. Dropped before [`Place::finish`], it is removed; a killed process leaves it, and the next import
/// to the same place removes it.
struct Place {
    out: PathBuf,
    partial: PathBuf,
    /// Held by the process that writes. Another one that finds it free knows that the folder is a leftover.
    _lock: File,
    lock_path: PathBuf,
    finished: bool,
}

impl Place {
    fn claim(options: &ImportOptions) -> Result<Self> {
        let out = options.out.clone();
        let name = out.file_name().ok_or_else(|| Error::BadRequest(format!("{} is not a folder's name", out.display())))?;
        let name = name.to_string_lossy().into_owned();
        let parent = match out.parent() {
            Some(p) if !p.as_os_str().is_empty() => p.to_path_buf(),
            _ => PathBuf::from("."),
        };
        may_replace(&out, options.force)?;
        fs::create_dir_all(&parent).map_err(|e| Error::io(&parent, e))?;

        let lock_path = parent.join(format!(".{name}.lock"));
        let lock = File::create(&lock_path).map_err(|e| Error::io(&lock_path, e))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::BadRequest(format!("another import to {} is running", out.display())));
            }
            Err(TryLockError::Error(e)) => return Err(Error::io(&lock_path, e)),
        }
        let partial = parent.join(format!(".{name}.partial"));
        remove(&partial)?;
        fs::create_dir(&partial).map_err(|e| Error::io(&partial, e))?;
        Ok(Self { out, partial, _lock: lock, lock_path, finished: false })
    }

    fn json(&self, name: &str, value: &Value) -> Result<()> {
        let text = serde_json::to_string_pretty(value).map_err(|e| Error::Internal(format!("{name}: {e}")))?;
        self.write(name, text.as_bytes())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.partial.join(name);
        let io = |e| Error::io(&path, e);
        let mut file = File::create(&path).map_err(io)?;
        file.write_all(bytes).map_err(io)?;
        file.sync_all().map_err(io)
    }

    /// Puts the folder in its place, and what was there away.
    fn finish(mut self) -> Result<(PathBuf, u64)> {
        let mut bytes = 0;
        for entry in fs::read_dir(&self.partial).map_err(|e| Error::io(&self.partial, e))? {
            let meta = entry.and_then(|e| e.metadata()).map_err(|e| Error::io(&self.partial, e))?;
            bytes += meta.len();
        }
        let mut old = self.partial.clone().into_os_string();
        old.push(".old");
        let old = PathBuf::from(old);
        remove(&old)?;
        let io = |e| Error::io(&self.out, e);
        if fs::symlink_metadata(&self.out).is_ok() {
            fs::rename(&self.out, &old).map_err(io)?;
        }
        fs::rename(&self.partial, &self.out).map_err(io)?;
        self.finished = true;
        if let Some(parent) = self.out.parent().filter(|p| !p.as_os_str().is_empty()) {
            File::open(parent).and_then(|d| d.sync_all()).map_err(|e| Error::io(parent, e))?;
        }
        remove(&old)?;
        Ok((self.out.clone(), bytes))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Nobody is left to hear of a failure.
        if !self.finished {
            let _ = fs::remove_dir_all(&self.partial);
        }
        let _ = fs::remove_file(&self.lock_path);
    }
}

/// A folder that is a snapshot, or empty, may be replaced with `force`; nothing else ever is.
fn may_replace(out: &Path, force: bool) -> Result<()> {
    let meta = match fs::symlink_metadata(out) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(Error::io(out, e)),
        Ok(meta) => meta,
    };
    let taken = |why: &str| Err(Error::BadRequest(format!("{} {why}", out.display())));
    if !meta.is_dir() {
        return taken("is there and is not a folder");
    }
    let mut entries = fs::read_dir(out).map_err(|e| Error::io(out, e))?;
    if entries.next().is_none() {
        return Ok(());
    }
    match (out.join("config.json").is_file(), force) {
        (true, true) => Ok(()),
        (true, false) => taken("is there already\n--force replaces it"),
        (false, _) => taken("is there and is not a snapshot"),
    }
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io(folder, e)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
