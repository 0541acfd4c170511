//! The models that rMLX names by itself: a list by hand, and what the hub was read to say of them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::remote::Hash;
use crate::api::{CatalogueEntry, Task};
use crate::error::{Error, Result};

const LIST: &str = include_str!("catalogue.toml");
const READ: &str = include_str!("catalogue.read.json");

/// As everywhere where a user reads GB. A machine that is sold as one of 16 GB has a little more.
const GB: u64 = 1_000_000_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    model: Vec<Model>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Model {
    repo: String,
    title: String,
    task: Task,
    memory_gb: u32,
    why: String,
    verified: bool,
}

/// What was read of a repository, and where and when: a number without an origin cannot be written down here.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    /// The address.
    origin: String,
    /// `YYYY-MM-DD`
    date: String,
    commit: String,
    license: Option<String>,
    files: Vec<ReadFile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadFile {
    name: String,
    bytes: u64,
    sha256: Option<String>,
    git: Option<String>,
}

/// The catalogue, the recommended models first.
///
/// * `memory`: bytes of this machine; `None`: not known, and the smallest are recommended.
/// * `here`: whether a whole snapshot of a repository is on this machine.
///
/// # Errors
/// [`Error::Internal`]: it was built with a broken list.
pub fn entries(memory: Option<u64>, here: &dyn Fn(&str) -> bool) -> Result<Vec<CatalogueEntry>> {
    parse(LIST, READ, memory, here).map_err(|e| Error::Internal(format!("the catalogue: {e}")))
}

fn parse(list: &str, read: &str, memory: Option<u64>, here: &dyn Fn(&str) -> bool) -> Result<Vec<CatalogueEntry>, String> {
    let list: List = toml::from_str(list).map_err(|e| e.to_string())?;
    let read: BTreeMap<String, Read> = serde_json::from_str(read).map_err(|e| e.to_string())?;
    check(&list, &read)?;
    let one = |model: Model| {
        let read = read.get(&model.repo);
        CatalogueEntry {
            here: here(&model.repo),
            commit: read.map(|r| r.commit.clone()),
            bytes: read.map(|r| r.files.iter().map(|f| f.bytes).sum()),
            license: read.and_then(|r| r.license.clone()),
            repo: model.repo,
            title: model.title,
            task: model.task,
            memory_gb: model.memory_gb,
            why: model.why,
            verified: model.verified,
            recommended: false,
        }
    };
    let mut entries: Vec<CatalogueEntry> = list.model.into_iter().map(one).collect();
    recommend(&mut entries, memory);
    entries.sort_by_key(|e| !e.recommended);
    Ok(entries)
}

/// For each task the one for the largest memory that this machine has; where it has less than any wants, the smallest.
fn recommend(entries: &mut [CatalogueEntry], memory: Option<u64>) {
    for task in [Task::Chat, Task::Vision, Task::Speech, Task::Embedding] {
        let of_task = |e: &&mut CatalogueEntry| e.task == task;
        let fits = |gb: u32| memory.is_some_and(|bytes| u64::from(gb) * GB <= bytes);
        let sizes = || entries.iter().filter(|e| e.task == task).map(|e| e.memory_gb);
        let Some(size) = sizes().filter(|gb| fits(*gb)).max().or_else(|| sizes().min()) else { continue };
        if let Some(first) = entries.iter_mut().filter(of_task).find(|e| e.memory_gb == size) {
            first.recommended = true;
        }
    }
}

fn check(list: &List, read: &BTreeMap<String, Read>) -> Result<(), String> {
    let mut repos = BTreeSet::new();
    for model in &list.model {
        if !repos.insert(model.repo.as_str()) {
            return Err(format!("{} is there twice", model.repo));
        }
        if model.repo.split('/').filter(|part| !part.is_empty()).count() != 2 || model.title.is_empty() || model.why.is_empty() {
            return Err(format!("{} needs ORG/NAME, a title and a reason", model.repo));
        }
    }
    for (repo, read) in read {
        let wrong = |what: &str| Err(format!("catalogue.read.json: {repo}: {what}"));
        if !repos.contains(repo.as_str()) {
            return wrong("not in catalogue.toml");
        }
        // The address names the repository that it is about, and the day is one.
        if !read.origin.starts_with("http") || !read.origin.contains(repo.as_str()) {
            return wrong("no origin");
        }
        let digits = |text: &str, n: usize| text.len() == n && text.bytes().all(|b| b.is_ascii_digit());
        let date: Vec<&str> = read.date.split('-').collect();
        if !matches!(date[..], [y, m, d] if digits(y, 4) && digits(m, 2) && digits(d, 2)) {
            return wrong("no date");
        }
        if !hex(&read.commit, 40) {
            return wrong("no commit");
        }
        let mut names = BTreeSet::new();
        for file in &read.files {
            if !names.insert(file.name.as_str()) || file.hash().is_none() {
                return wrong(&format!("{}: twice, or without its hash", file.name));
            }
        }
        if read.files.is_empty() {
            return wrong("no files");
        }
    }
    Ok(())
}

impl ReadFile {
    fn hash(&self) -> Option<Hash> {
        match (&self.sha256, &self.git) {
            (Some(sha256), None) if hex(sha256, 64) => Some(Hash::Sha256(sha256.clone())),
            (None, Some(git)) if hex(git, 40) => Some(Hash::Git(git.clone())),
            _ => None,
        }
    }
}

fn hex(text: &str, len: usize) -> bool {
    text.len() == len && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests;
