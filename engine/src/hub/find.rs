//! From the name that a user writes to a folder, and what folders there are.
//!
//! A name is, in this order: a path (absolute, or with `./` or `../` in front), `starter`, a folder in rMLX's models folder, a
//! repository `ORG/NAME[@REVISION]` or a lone `NAME` in the Hugging Face cache, the same in the user's own folder, a relative path.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::cache::{Cache, repository_of};
use super::remote::check_revision;
use super::snapshot::{Snapshot, is_plain, names};
use crate::config::{Quantization, architecture};
use crate::error::{Error, Result};
use crate::paths;
use crate::settings;

/// What `starter` stands for in the models folder.
pub const STARTER: &str = "SmolLM2-135M-Instruct";

/// How many names a hint lists.
const MAX_HINTS: usize = 12;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// rMLX's own models folder.
    Models,
    /// The Hugging Face cache.
    HuggingFace,
    /// The folder of the user's choice, only ever read.
    Folder,
}

/// One snapshot that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What [`Library::resolve`] takes.
    pub name: String,
    pub folder: PathBuf,
    pub place: Place,
    /// Bytes of its files, measured.
    pub bytes: u64,
    /// `architectures[0]`, where `config.json` can be read.
    pub architecture: Option<String>,
    /// Such as `affine 4/8-bit, group 32`; `None` where it is not quantized or not readable.
    pub quantization: Option<String>,
    /// What is missing or broken; `None` is a whole snapshot.
    pub problem: Option<String>,
}

/// The folders that are searched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Library {
    pub models: PathBuf,
    pub hugging_face: PathBuf,
    /// Another one, of the user's choice: laid out as the Hugging Face cache, or a folder for each `NAME` or `ORG/NAME`.
    pub folder: Option<PathBuf>,
}

impl Library {
    /// From the environment: `RMLX_HOME`; `HF_HUB_CACHE`, `HUGGINGFACE_HUB_CACHE`, `HF_HOME`, `XDG_CACHE_HOME`; and from the settings of that home.
    pub fn from_env() -> Self {
        Self::of(&paths::home())
    }

    /// As [`Self::from_env`], with the settings and the models folder of this home.
    pub fn of(home: &Path) -> Self {
        // The second is the older name of the first, and still read by the hub's own tools.
        let named = paths::named("HF_HUB_CACHE").or_else(|| paths::named("HUGGINGFACE_HUB_CACHE"));
        let hugging_face = named.unwrap_or_else(|| paths::hugging_face().join("hub"));
        // Settings that cannot be read are told where they are asked for; models are found nevertheless.
        let folder = settings::read(home).map_err(|e| tracing::info!("settings: {e}")).ok().and_then(|s| s.models.folder);
        Self { models: paths::models_of(home), hugging_face, folder }
    }

    /// The folder of a model.
    ///
    /// # Errors
    /// [`Error::ModelNotFound`] with what there is instead; [`Error::BadRequest`] where a lone name fits several repositories.
    pub fn resolve(&self, model: &str) -> Result<PathBuf> {
        let path = Path::new(model);
        let explicit = path.is_absolute() || ["./", "../"].iter().any(|p| model.starts_with(p)) || matches!(model, "." | "..");
        if explicit {
            return if path.exists() { Ok(path.into()) } else { Err(self.not_found(model)) };
        }
        let own = self.models.join(if model == "starter" { STARTER } else { model });
        if is_plain(model) && !model.starts_with('.') && own.is_dir() {
            return Ok(own);
        }
        if model == "starter" {
            return Err(self.not_found(model));
        }
        if let Some(folder) = self.cached(model)? {
            return Ok(folder);
        }
        if let Some(folder) = self.in_folder(model) {
            return Ok(folder);
        }
        if path.is_dir() || path.is_file() { Ok(path.into()) } else { Err(self.not_found(model)) }
    }

    /// Everything there is, the models folder first. Reads every snapshot's headers.
    pub fn list(&self) -> Vec<Entry> {
        self.known().into_iter().map(|(name, folder, place)| entry(name, folder, place)).collect()
    }

    fn known(&self) -> Vec<(String, PathBuf, Place)> {
        let own = names(&self.models).into_iter().filter(|n| !n.starts_with('.'));
        let own = own.map(|n| (n.clone(), self.models.join(n), Place::Models));
        let cached = self.repositories().into_iter().flat_map(|(name, folder)| snapshots(&name, &folder));
        let cached = cached.map(|(name, folder)| (name, folder, Place::HuggingFace));
        let more = self.more().into_iter().map(|(name, folder)| (name, folder, Place::Folder));
        let mut seen = BTreeSet::new();
        let there = own.chain(cached).chain(more).filter(|(_, folder, _)| folder.is_dir());
        // By its name the first one is found, so the second is called by its folder.
        let named = |(name, folder, place): (String, PathBuf, Place)| {
            let name = if seen.insert(name.clone()) { name } else { folder.display().to_string() };
            (name, folder, place)
        };
        there.map(named).collect()
    }

    /// Why the folder of the user's choice shows no models, where it cannot be read.
    pub fn trouble(&self) -> Option<Error> {
        let folder = self.folder.as_ref()?;
        fs::read_dir(folder).err().map(|e| Error::io(folder, e))
    }

    /// Names and folders of the Hugging Face cache's repositories.
    fn repositories(&self) -> Vec<(String, PathBuf)> {
        repositories(&self.hugging_face)
    }

    /// Names and folders of the snapshots in the user's own folder.
    fn more(&self) -> Vec<(String, PathBuf)> {
        let Some(root) = &self.folder else { return Vec::new() };
        // The same folder by two names would show every model twice.
        let same =
            |other: &Path| fs::canonicalize(other).is_ok_and(|other| fs::canonicalize(root).is_ok_and(|root| root == other));
        if same(&self.models) || same(&self.hugging_face) {
            return Vec::new();
        }
        let mut found: Vec<_> = repositories(root).into_iter().flat_map(|(name, folder)| snapshots(&name, &folder)).collect();
        let plain = |folder: &Path| {
            let named = |n: &String| !n.starts_with('.') && !n.starts_with("models--") && folder.join(n).is_dir();
            names(folder).into_iter().filter(named).collect::<Vec<_>>()
        };
        for name in plain(root) {
            let folder = root.join(&name);
            if folder.join("config.json").exists() {
                found.push((name, folder));
            } else {
                let models = plain(&folder).into_iter().filter(|n| folder.join(n).join("config.json").exists());
                found.extend(models.map(|n| (format!("{name}/{n}"), folder.join(n))));
            }
        }
        found
    }

    fn in_folder(&self, model: &str) -> Option<PathBuf> {
        let (name, wanted) = model.split_once('@').map_or((model, None), |(name, r)| (name, Some(r)));
        if let Some(wanted) = wanted {
            let (_, folder) = repositories(self.folder.as_ref()?).into_iter().find(|(n, _)| n == name)?;
            return revision(&folder, Some(wanted));
        }
        let found = self.more();
        let whole = found.iter().find(|(n, _)| n == name);
        let mut last = found.iter().filter(|(n, _)| n.rsplit_once('/').is_some_and(|(_, last)| last == name));
        whole.or_else(|| last.next().filter(|_| last.next().is_none())).map(|(_, folder)| folder.clone())
    }

    fn cached(&self, model: &str) -> Result<Option<PathBuf>> {
        let (name, wanted) = model.split_once('@').map_or((model, None), |(name, r)| (name, Some(r)));
        let fits = |(full, _): &(String, PathBuf)| full == name || full.rsplit_once('/').is_some_and(|(_, last)| last == name);
        let mut found: Vec<(String, PathBuf)> = self.repositories().into_iter().filter(fits).collect();
        if let Some(exact) = found.iter().position(|(full, _)| full == name) {
            found = vec![found.swap_remove(exact)];
        }
        match &found[..] {
            [] => Ok(None),
            [(_, folder)] => Ok(revision(folder, wanted)),
            several => {
                let names: Vec<&str> = several.iter().map(|(full, _)| full.as_str()).collect();
                Err(Error::BadRequest(format!("{name} may be any of: {}", names.join(", "))))
            }
        }
    }

    fn not_found(&self, model: &str) -> Error {
        let (name, wanted) = model.split_once('@').unwrap_or((model, "main"));
        let cache = Cache { root: self.hugging_face.clone() };
        let repo = cache.repo(name).ok().filter(|_| name.contains('/'));
        let mut hint = match repo {
            _ if model == "starter" => "\nhint: bring it: make run, or: rmlx import FILE.gguf".to_owned(),
            Some(repo) if repo.record(wanted).is_some() => {
                format!("\nhint: its download is not finished; go on with: rmlx pull {model}")
            }
            Some(_) if check_revision(wanted).is_ok() => format!("\nhint: fetch it with: rmlx pull {model}"),
            _ => String::new(),
        };
        let mut known: Vec<String> = self.known().into_iter().map(|(name, ..)| name).collect();
        let more = known.len().saturating_sub(MAX_HINTS);
        known.truncate(MAX_HINTS);
        match (known.is_empty(), more) {
            (true, _) => hint.push_str("\nhint: there are no models yet"),
            (false, 0) => hint.push_str(&format!("\nhint: there are: {}", known.join(", "))),
            (false, more) => hint.push_str(&format!("\nhint: there are: {} and {more} more", known.join(", "))),
        }
        Error::ModelNotFound { name: model.into(), hint }
    }
}

fn repositories(root: &Path) -> Vec<(String, PathBuf)> {
    let name = |folder: String| Some((repository_of(&folder)?, root.join(&folder)));
    names(root).into_iter().filter_map(name).collect()
}

/// The snapshots of a repository and what finds them: its own name the one that [`revision`] gives without more, and a branch, a tag
/// or the commit the others. Those use the disk, too.
fn snapshots(name: &str, repository: &Path) -> Vec<(String, PathBuf)> {
    let first = revision(repository, None);
    let references = references(&repository.join("refs"), "", 4);
    let others = names(&repository.join("snapshots")).into_iter().filter_map(|commit| {
        let folder = revision(repository, Some(&commit)).filter(|folder| Some(folder) != first.as_ref())?;
        let named = references.iter().find(|r| revision(repository, Some(r)).as_ref() == Some(&folder));
        Some((format!("{name}@{}", named.unwrap_or(&commit)), folder))
    });
    let others: Vec<_> = others.collect();
    first.map(|folder| (name.to_owned(), folder)).into_iter().chain(others).collect()
}

/// Branches and tags, which may have slashes.
fn references(folder: &Path, inside: &str, depth: usize) -> Vec<String> {
    let below = |name: String| {
        let full = format!("{inside}{name}");
        let path = folder.join(name);
        if path.is_dir() && depth > 0 { references(&path, &format!("{full}/"), depth - 1) } else { vec![full] }
    };
    names(folder).into_iter().flat_map(below).collect()
}

/// A snapshot of a repository in the Hugging Face cache: of a branch or tag through `refs`, or by its commit. Without a name it is
/// `main`, or the only one there.
fn revision(repository: &Path, wanted: Option<&str>) -> Option<PathBuf> {
    let snapshots = repository.join("snapshots");
    let inside = |commit: &str| {
        let folder = snapshots.join(commit);
        let real = fs::canonicalize(&folder).ok()?;
        (is_plain(commit) && real.is_dir() && real.starts_with(fs::canonicalize(repository).ok()?)).then_some(folder)
    };
    let reference = |name: &str| {
        // A reference may have slashes (refs/pr/1), never a way out.
        let file = name.split('/').all(is_plain).then(|| repository.join("refs").join(name))?;
        let small = fs::metadata(&file).is_ok_and(|m| m.is_file() && m.len() < 256);
        inside(small.then(|| fs::read_to_string(file).ok())??.trim())
    };
    match wanted {
        Some(name) => reference(name).or_else(|| inside(name)),
        None => reference("main").or_else(|| match &names(&snapshots)[..] {
            [only] => inside(only),
            _ => None,
        }),
    }
}

fn entry(name: String, folder: PathBuf, place: Place) -> Entry {
    let mut entry = Entry { name, bytes: size(&folder, 4), folder, place, architecture: None, quantization: None, problem: None };
    let checked = Snapshot::open(&entry.folder).and_then(|snapshot| {
        entry.architecture = architecture(snapshot.config()).map(Into::into);
        entry.quantization = Quantization::parse(snapshot.config())?.as_ref().map(Quantization::summary);
        snapshot.weights()?;
        match snapshot.file("tokenizer.json")? {
            Some(_) => Ok(()),
            None => Err(Error::bad_file(&entry.folder, "has no tokenizer.json")),
        }
    });
    entry.problem = checked.err().map(|e| e.to_string());
    entry
}

/// Bytes of the files below a folder, through links to files but not to folders.
fn size(folder: &Path, depth: usize) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let one = |entry: fs::DirEntry| match entry.file_type() {
        Ok(t) if t.is_dir() => {
            if depth > 0 {
                size(&entry.path(), depth - 1)
            } else {
                0
            }
        }
        _ => fs::metadata(entry.path()).ok().filter(|m| m.is_file()).map_or(0, |m| m.len()),
    };
    entries.map(one).sum()
}

#[cfg(test)]
mod tests;
