//! The hub over the network: what a repository holds, small files of it, searches. Source: the hub's API (`/api/models`) and its
//! `resolve` addresses.

use crate::api::HubModel;
use crate::error::Result;

/// Where the hub is and how it is reached. Cheap to clone.
#[derive(Clone)]
pub struct Remote {
    /// Without a slash at the end.
    pub endpoint: String,
    pub client: reqwest::Client,
    /// Sent to `endpoint` only, never to where it redirects.
    pub token: Option<String>,
}

/// A revision of a repository, as the hub lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// `ORG/NAME` as the hub spells it.
    pub repo: String,
    pub commit: String,
    pub gated: bool,
    pub license: Option<String>,
    /// As the hub calls it (`text-generation`).
    pub task: Option<String>,
    pub files: Vec<RemoteFile>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteFile {
    /// Its path in the repository.
    pub name: String,
    pub bytes: u64,
    pub hash: Hash,
}

/// What a file's contents must hash to; also the name of its blob in the cache.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hash {
    /// Of the contents (large files).
    Sha256(String),
    /// Of git's blob: `blob LENGTH\0` and the contents.
    Git(String),
}

impl Remote {
    /// From HF_ENDPOINT and the system's proxies.
    pub fn from_env(token: Option<String>) -> Result<Self> {
        let _ = token;
        todo!("transfer")
    }

    /// What a repository holds at a revision (a branch, tag or commit).
    ///
    /// # Errors
    /// [`crate::error::Error::Hub`], by cause: no such repository or revision, gated (without a token, with a wrong one, terms not
    /// accepted), too many requests, not reachable.
    pub async fn listing(&self, repo: &str, revision: &str) -> Result<Listing> {
        let _ = (repo, revision);
        todo!("transfer")
    }

    /// A small file, checked against its hash; at most `most` bytes.
    pub async fn small_file(&self, listing: &Listing, name: &str, most: u64) -> Result<Option<Vec<u8>>> {
        let _ = (listing, name, most);
        todo!("transfer")
    }

    /// Models by words of their names, the most used first.
    pub async fn search(&self, words: &str, limit: usize) -> Result<Vec<HubModel>> {
        let _ = (words, limit);
        todo!("before")
    }
}
