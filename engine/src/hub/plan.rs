//! What fetching a repository would bring, and what speaks against it: from its listing and its small files, before a byte of
//! weights is fetched.

use serde_json::{Map, Value};

use super::fetch::needed;
use super::remote::{Listing, Remote, RemoteFile};
use super::snapshot::{INDEX, SINGLE, is_plain};
use crate::api::{DiskRoom, ErrorInfo, PullFile, PullPlan};
use crate::config::{self, ModelConfig, Quantization, printable};
use crate::error::{Error, HubCause, Result};
use crate::fit::{self, Room, Target};

/// Bytes of a configuration.
const MOST_CONFIG: u64 = 16 << 20;
/// Bytes of an index of weight files: those of the largest models have some 10 MB.
const MOST_INDEX: u64 = 64 << 20;

/// What has been read of a repository.
#[derive(Debug)]
pub struct Looked {
    pub listing: Listing,
    /// As it was asked for.
    pub revision: String,
    /// `None`: it has none, or is closed.
    pub config: Option<Vec<u8>>,
    pub tokenizer_config: Option<Vec<u8>>,
    pub index: Option<Vec<u8>>,
    /// Why its files cannot be had, though they are listed: the publisher's gate.
    pub closed: Option<Error>,
}

/// What this program runs; told from outside, since architectures are not the hub's matter.
#[derive(Clone, Copy)]
pub struct Runs<'a> {
    /// Whether a class of `config.json` is known, or why not.
    pub class: &'a dyn Fn(&str) -> Result<()>,
    /// The same of a whole configuration.
    pub model: &'a dyn Fn(&ModelConfig) -> Result<()>,
}

/// What a plan must know of this machine.
#[derive(Debug, Clone, Copy)]
pub struct Machine {
    /// Of the volume that the model would lie on, in bytes.
    pub free: u64,
    pub reserve: u64,
    /// `None`: the system does not say.
    pub room: Option<Room>,
    pub target: Target,
}

/// Asks the hub for what the plan reads; nothing large.
///
/// # Errors
/// As [`Remote::small_file`]; a closed gate is no error here but [`Looked::closed`].
pub async fn look(remote: &Remote, listing: Listing, revision: &str) -> Result<Looked> {
    let mut looked =
        Looked { listing, revision: revision.into(), config: None, tokenizer_config: None, index: None, closed: None };
    match small_files(remote, &looked.listing).await {
        Ok([config, tokenizer_config, index]) => {
            (looked.config, looked.tokenizer_config, looked.index) = (config, tokenizer_config, index);
        }
        Err(e @ Error::Hub { cause: HubCause::Gated | HubCause::Token, .. }) => looked.closed = Some(e),
        Err(e) => return Err(e),
    }
    Ok(looked)
}

async fn small_files(remote: &Remote, listing: &Listing) -> Result<[Option<Vec<u8>>; 3]> {
    Ok([
        remote.small_file(listing, "config.json", MOST_CONFIG).await?,
        remote.small_file(listing, "tokenizer_config.json", MOST_CONFIG).await?,
        remote.small_file(listing, INDEX, MOST_INDEX).await?,
    ])
}

/// A plan, and its problems once more as the errors that they are.
#[derive(Debug)]
pub struct Judged {
    pub plan: PullPlan,
    pub errors: Vec<Error>,
}

/// The plan; whether the disk has room is in its numbers and not among its problems. `have` says how many bytes of a file lie on
/// this disk already.
pub fn judge(looked: &Looked, runs: Runs<'_>, have: &dyn Fn(&RemoteFile) -> u64, machine: Machine) -> Judged {
    let listing = &looked.listing;
    let mut problems: Vec<Error> = looked.closed.iter().map(again).collect();
    let weights = weights(looked).unwrap_or_else(|e| {
        problems.push(e);
        Vec::new()
    });
    let files: Vec<PullFile> = needed(listing).into_iter().map(|file| one(file, have)).collect();
    let bytes = sum(files.iter().map(|f| f.bytes));
    let to_fetch = sum(files.iter().map(|f| f.bytes - f.have));

    let about = about(looked, runs, &mut problems);
    let memory = about.config.as_ref().zip(machine.room).filter(|_| !weights.is_empty()).map(|(config, room)| {
        let need = fit::need(config, sum(weights.iter().map(|f| f.bytes)), machine.target, None, room);
        if fit::total(&need) > room.most {
            problems.push(too_large(fit::total(&need), room));
        }
        need
    });
    let disk =
        DiskRoom { free: machine.free, reserve: machine.reserve, fits: to_fetch.saturating_add(machine.reserve) <= machine.free };
    let mut plan = PullPlan {
        repo: listing.repo.clone(),
        revision: looked.revision.clone(),
        commit: listing.commit.clone(),
        architecture: about.architecture,
        quantization: about.quantization,
        has_chat_template: has_chat_template(looked),
        license: listing.license.clone(),
        gated: listing.gated,
        files,
        bytes,
        to_fetch,
        disk,
        memory,
        problems: problems.iter().map(ErrorInfo::from).collect(),
        notes: Vec::new(),
    };
    plan.notes = notes(&plan);
    Judged { plan, errors: problems }
}

/// Whether no wish to have the files anyway helps against an error: they are not given.
pub fn is_closed(error: &Error) -> bool {
    matches!(error, Error::Hub { .. })
}

/// A closed gate is told in the plan and kept in what was looked at.
fn again(error: &Error) -> Error {
    match error {
        Error::Hub { cause, message } => Error::Hub { cause: *cause, message: message.clone() },
        other => Error::Internal(other.to_string()),
    }
}

struct About {
    config: Option<ModelConfig>,
    architecture: Option<String>,
    quantization: Option<String>,
}

/// What `config.json` says, as far as it can be read.
fn about(looked: &Looked, runs: Runs<'_>, problems: &mut Vec<Error>) -> About {
    let mut about = About { config: None, architecture: None, quantization: None };
    let root = match &looked.config {
        Some(bytes) => match object(bytes) {
            Some(root) => root,
            None => {
                problems.push(unsupported("its config.json is not a JSON object: the repository is broken"));
                return about;
            }
        },
        // What is closed is told already; without weights that can be read, config.json is not what is missing.
        None if problems.is_empty() => {
            problems.push(unsupported("it has no config.json, so nothing says how its weights are to be used"));
            return about;
        }
        None => return about,
    };
    about.architecture = config::architecture(&root).map(printable);
    problems.extend(own_code(root.get("auto_map")));
    let known = about.architecture.as_deref().map_or(Ok(()), runs.class);
    match Quantization::parse(&root) {
        Ok(q) => about.quantization = q.as_ref().map(Quantization::summary),
        Err(e) => problems.push(e),
    }
    // The configuration of a class that is not known may be of another shape: that is no second fault.
    let parsed =
        known.and_then(|()| if problems.is_empty() { ModelConfig::parse(&Value::Object(root)).map(Some) } else { Ok(None) });
    match parsed {
        Ok(None) => {}
        Ok(Some(config)) => {
            problems.extend((runs.model)(&config).err());
            about.config = Some(config);
        }
        Err(e) => problems.push(e),
    }
    if looked.listing.files.iter().all(|f| f.name != "tokenizer.json") {
        problems.push(unsupported(
            "it has no tokenizer.json, the one form of tokenizer that is read here\nhint: look for a conversion of it that has one (mlx-community)",
        ));
    }
    about
}

/// Of `auto_map` in `config.json`: classes that come as Python files.
pub fn own_code(auto_map: Option<&Value>) -> Option<Error> {
    let some = auto_map.is_some_and(|m| m.as_object().is_none_or(|m| !m.is_empty()));
    some.then(|| unsupported("it brings its own code (auto_map in config.json), which is never run here"))
}

fn has_chat_template(looked: &Looked) -> Option<bool> {
    let beside = |name: &str| {
        matches!(name, "chat_template.jinja" | "chat_template.json") || (is_template_folder(name) && name.ends_with(".jinja"))
    };
    if looked.listing.files.iter().any(|f| beside(&f.name)) {
        return Some(true);
    }
    if looked.closed.is_some() {
        return None;
    }
    let Some(bytes) = &looked.tokenizer_config else { return Some(false) };
    Some(match object(bytes)?.get("chat_template") {
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(named)) => !named.is_empty(),
        Some(Value::Object(named)) => !named.is_empty(),
        _ => false,
    })
}

/// The files of the weights, or why there are none that can be read.
fn weights(looked: &Looked) -> Result<Vec<&RemoteFile>> {
    let files = &looked.listing.files;
    let find = |name: &str| files.iter().find(|f| f.name == name);
    if let Some(bytes) = &looked.index {
        let map = object(bytes).and_then(|root| root.get("weight_map")?.as_object().cloned());
        let map = map.ok_or_else(|| unsupported(format!("its {INDEX} lists no files: the repository is broken")))?;
        let mut names: Vec<&str> = map.values().filter_map(Value::as_str).collect();
        names.sort_unstable();
        names.dedup();
        if names.is_empty() || names.iter().any(|n| !is_plain(n) || !n.ends_with(".safetensors")) {
            return Err(unsupported(format!("its {INDEX} names files that are not safetensors of the repository")));
        }
        let missing = |name: &str| {
            unsupported(format!("it lacks {}, which its {INDEX} names: the upload is not complete", printable(name)))
        };
        let found: Vec<&RemoteFile> =
            names.into_iter().map(|name| find(name).ok_or_else(|| missing(name))).collect::<Result<_>>()?;
        let fetched = needed(&looked.listing);
        return match found.iter().find(|w| fetched.iter().all(|f| f.name != w.name)) {
            Some(odd) => Err(unsupported(format!("its weights have an unusual name ({})", printable(&odd.name)))),
            None => Ok(found),
        };
    }
    if let Some(single) = find(SINGLE) {
        return Ok(vec![single]);
    }
    if find(INDEX).is_some() {
        // Closed: their number and size are not known, but all that lie beside the index are a good guess.
        return Ok(files.iter().filter(|f| is_plain(&f.name) && f.name.ends_with(".safetensors")).collect());
    }
    Err(no_weights(files.iter().map(|f| f.name.as_str())))
}

/// Why a repository of these files has nothing to run.
pub fn no_weights<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Error {
    let any = |suffixes: &[&str]| names.clone().find(|n| suffixes.iter().any(|s| n.to_ascii_lowercase().ends_with(s)));
    if let Some(name) = names.clone().find(|n| n.rsplit('/').next() == Some("adapter_model.safetensors")) {
        return unsupported(format!(
            "it is an adapter ({name}), which changes another model and is none by itself\nhint: fetch the model that it was made for"
        ));
    }
    if let Some(name) = any(&[".gguf"]) {
        return unsupported(format!(
            "this is a GGUF repository ({}): rMLX runs safetensors\nhint: look for an MLX conversion (mlx-community), or download one GGUF file and: rmlx import FILE",
            printable(name)
        ));
    }
    if let Some(name) = any(&[".bin", ".pt", ".pth", ".ckpt", ".pkl"]) {
        return unsupported(format!(
            "its weights are a Python pickle ({}), which can run code when it is read; only safetensors are read here\nhint: look for a conversion of it (mlx-community)",
            printable(name)
        ));
    }
    let other =
        any(&[".onnx", ".npz", ".h5", ".msgpack", ".tflite", ".mlmodel", ".mlpackage"]).or_else(|| any(&[".safetensors"]));
    match other {
        None => unsupported("it has no weights"),
        Some(name) => unsupported(format!(
            "its weights are in a form that is not read here ({}); models have {SINGLE}, or {INDEX} and the files that it names",
            printable(name)
        )),
    }
}

fn is_template_folder(name: &str) -> bool {
    name.split_once('/')
        .is_some_and(|(folder, file)| matches!(folder, "additional_chat_templates" | "chat_templates") && is_plain(file))
}

fn one(file: &RemoteFile, have: &dyn Fn(&RemoteFile) -> u64) -> PullFile {
    PullFile { name: file.name.clone(), bytes: file.bytes, have: have(file).min(file.bytes) }
}

fn notes(plan: &PullPlan) -> Vec<String> {
    let mut notes = Vec::new();
    if plan.has_chat_template == Some(false) {
        notes.push(
            "a base model: it continues text and does not answer questions; for chat, look for its instruct or chat version"
                .into(),
        );
    }
    if plan.license.is_none() {
        notes.push("its publisher names no licence; look at its page before you build on it".into());
    }
    if let Some(need) = plan.memory.filter(|need| !need.fits) {
        notes.push(format!(
            "it needs about {} of memory, and {} are free at this moment: unload other models and close programs before you load it, or take a smaller model",
            size(fit::total(&need)),
            size(need.headroom)
        ));
    }
    notes
}

fn too_large(needs: u64, room: Room) -> Error {
    unsupported(format!(
        "it needs about {} of memory, and this machine has {} for a model\nhint: take a smaller model, or one with fewer bits",
        size(needs),
        size(room.most)
    ))
}

fn unsupported(reason: impl Into<String>) -> Error {
    Error::Unsupported(reason.into())
}

fn object(bytes: &[u8]) -> Option<Map<String, Value>> {
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(map)) => Some(map),
        _ => None,
    }
}

fn sum(bytes: impl Iterator<Item = u64>) -> u64 {
    bytes.fold(0, u64::saturating_add)
}

/// In units of 1000, as disks and shops count.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{:.0} kB", (bytes as f64 / 1e3).ceil()),
        1_000_000..1_000_000_000 => format!("{:.0} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests;
