//! Models: on the hub and on this disk.

use serde::{Deserialize, Serialize};

use super::ErrorInfo;

/// What a model is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum Task {
    Chat,
    Vision,
    Speech,
    Embedding,
}

/// What would be fetched, and whether it makes sense; known before a byte of weights is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PullPlan {
    /// `ORG/NAME`
    pub repo: String,
    /// What was asked for: a branch, a tag, a commit.
    pub revision: String,
    /// What that is now.
    pub commit: String,
    /// `architectures[0]` of its configuration.
    pub architecture: Option<String>,
    /// Such as `affine 4-bit, group 64`; `None`: not quantized.
    pub quantization: Option<String>,
    /// Without a chat template it is a base model. `None`: not known before the template's file is there.
    pub has_chat_template: Option<bool>,
    /// As the hub calls it (`apache-2.0`); `None`: it says none.
    pub license: Option<String>,
    /// Its publisher wants terms to be accepted on the hub's site first.
    pub gated: bool,
    pub files: Vec<PullFile>,
    /// Of all files.
    pub bytes: u64,
    /// What is not here yet.
    pub to_fetch: u64,
    pub disk: DiskRoom,
    /// `None` where the configuration says too little.
    pub memory: Option<MemoryNeed>,
    /// Why it cannot be fetched or would not run; empty: go.
    pub problems: Vec<ErrorInfo>,
    /// What the user should know and may accept (a base model, no licence, little memory).
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PullFile {
    pub name: String,
    pub bytes: u64,
    /// Bytes of it that are here already.
    pub have: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct DiskRoom {
    pub free: u64,
    /// What is kept free for everything else.
    pub reserve: u64,
    /// `to_fetch + reserve <= free`
    pub fits: bool,
}

/// A first estimate, with its terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct MemoryNeed {
    pub weights: u64,
    /// KV cache of `context` tokens.
    pub kv: u64,
    pub context: usize,
    pub workspace: u64,
    /// What this machine could give at this moment.
    pub headroom: u64,
    pub fits: bool,
}

/// Where a download is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum PullPhase {
    /// Another one is before it.
    Queued,
    /// Asking the hub what there is.
    Listing,
    Fetching,
    /// The network or the server is away; it is tried again by itself.
    Waiting,
    /// Hashing what is here.
    Verifying,
    /// By the user, or since the program ended. What is here stays.
    Paused,
    Done,
    Failed,
}

/// One download, running or not; counted from what lies on the disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Pull {
    pub repo: String,
    pub revision: String,
    /// `None` until the hub has said it.
    pub commit: Option<String>,
    pub phase: PullPhase,
    /// Bytes on this disk, of `total`.
    pub done: u64,
    /// `None` until the hub has said it.
    pub total: Option<u64>,
    /// Of `done`, what has been hashed and is right.
    pub verified: u64,
    /// Bytes a second over the last seconds; 0 while nothing comes.
    pub rate: u64,
    pub seconds_left: Option<u64>,
    /// Why it waits or failed.
    pub error: Option<ErrorInfo>,
    /// Another rMLX process fetches it: this is what its files show.
    pub elsewhere: bool,
}

/// A model on the hub, as a search finds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct HubModel {
    pub repo: String,
    pub downloads: Option<u64>,
    pub likes: Option<u64>,
    /// As the hub calls it (`text-generation`).
    pub task: Option<String>,
    pub license: Option<String>,
    pub gated: bool,
    /// RFC 3339.
    pub updated: Option<String>,
    /// Why it cannot run here, where the listing alone shows that.
    pub problem: Option<String>,
    /// A whole snapshot of it is on this machine.
    pub here: bool,
}

/// A model that rMLX names by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct CatalogueEntry {
    pub repo: String,
    pub title: String,
    pub task: Task,
    /// Memory of the machine that it is meant for, in GB (10^9 bytes).
    pub memory_gb: u32,
    /// Why it is in the list.
    pub why: String,
    /// Of a revision that was looked at; `None`: not yet.
    pub commit: Option<String>,
    pub bytes: Option<u64>,
    pub license: Option<String>,
    /// It was fetched and answered with this version of rMLX.
    pub verified: bool,
    /// The one to suggest for its task on this machine.
    pub recommended: bool,
    pub here: bool,
}

/// A file of a snapshot against what the hub said of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct FileCheck {
    pub name: String,
    pub bytes: u64,
    pub state: FileState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum FileState {
    /// Its hash is the one it is stored under.
    Right,
    /// It is not; fetch it again.
    Wrong,
    Missing,
    /// Nothing here says what its hash should be.
    Unknown,
}

/// Whether there is an access token for the hub, never what it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct TokenState {
    pub kept: TokenKept,
    /// What the user should know: there is no secure store, say.
    pub note: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum TokenKept {
    None,
    /// In the system's keyring.
    Keyring,
    /// In this process's memory, until it ends.
    Session,
    /// HF_TOKEN.
    Environment,
    /// The token file of the hub's own tools, which rMLX reads and never writes.
    File,
}

/// Why a download begins or goes on although something speaks against it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(default, deny_unknown_fields)]
pub struct PullOptions {
    /// Also where [`PullPlan::problems`] say that it would not run here; never past a full disk or a closed gate.
    pub anyway: bool,
}
