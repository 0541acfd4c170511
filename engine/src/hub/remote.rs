//! The hub over the network: what a repository holds, small files of it, searches. Source: the hub's API (`/api/models`) and its
//! `resolve` addresses. Nothing that comes from there is trusted: names, sizes and hashes are checked before they are used.

mod ask;
mod trouble;

pub use ask::Answer;
pub use trouble::{Retry, Trouble};

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::sync::Once;
use std::time::Duration;

use reqwest::{Client, Url, redirect};
use serde::Deserialize;
use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::error::{Error, HubCause, Result};

const PUBLIC: &str = "https://huggingface.co";
/// Bytes of a listing at most: some thousands of files have about one MB.
const MAX_LISTING: u64 = 64 << 20;
/// Characters of a file's path at most.
const LONGEST_NAME: usize = 500;
/// Bytes of a repository are less than this.
pub(super) const MOST_BYTES: u64 = 1 << 60;
/// Bytes of one part of a path that file systems take.
const LONGEST_PART: usize = 200;
const CONNECT: Duration = Duration::from_secs(10);
/// Without a byte for so long, a connection is given up.
pub const STALL: Duration = Duration::from_secs(30);

/// Where the hub is and how it is reached. Cheap to clone.
#[derive(Clone)]
pub struct Remote {
    /// Without a slash at the end.
    pub endpoint: String,
    pub client: Client,
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

impl Hash {
    /// 64 digits are a SHA-256, 40 are git's.
    pub fn parse(hex: &str) -> Option<Self> {
        let plain = hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        match hex.len() {
            64 if plain => Some(Self::Sha256(hex.into())),
            40 if plain => Some(Self::Git(hex.into())),
            _ => None,
        }
    }

    pub fn hex(&self) -> &str {
        let (Self::Sha256(hex) | Self::Git(hex)) = self;
        hex
    }

    /// To hash contents of `bytes` bytes with.
    pub fn hasher(&self, bytes: u64) -> Hasher {
        match self {
            Self::Sha256(_) => Hasher::Sha256(Sha256::new()),
            Self::Git(_) => Hasher::Git(Sha1::new_with_prefix(format!("blob {bytes}\0"))),
        }
    }

    pub fn fits(&self, contents: &[u8]) -> bool {
        let mut hasher = self.hasher(contents.len() as u64);
        hasher.update(contents);
        hasher.hex() == self.hex()
    }
}

pub enum Hasher {
    Sha256(Sha256),
    Git(Sha1),
}

impl Hasher {
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(h) => h.update(bytes),
            Self::Git(h) => h.update(bytes),
        }
    }

    pub fn hex(self) -> String {
        let hex = |digest: &[u8]| digest.iter().map(|b| format!("{b:02x}")).collect();
        match self {
            Self::Sha256(h) => hex(&h.finalize()),
            Self::Git(h) => hex(&h.finalize()),
        }
    }
}

impl Remote {
    /// From HF_ENDPOINT and the system's proxies.
    ///
    /// # Errors
    /// [`Error::BadRequest`]: HF_ENDPOINT is no address.
    pub fn from_env(token: Option<String>) -> Result<Self> {
        let endpoint = env::var("HF_ENDPOINT").ok().filter(|e| !e.trim().is_empty());
        Self::at(endpoint.as_deref().unwrap_or(PUBLIC).trim(), token)
    }

    /// A hub at another address.
    ///
    /// # Errors
    /// [`Error::BadRequest`]: it is no address.
    pub fn at(endpoint: &str, token: Option<String>) -> Result<Self> {
        let endpoint = endpoint.trim_end_matches('/');
        let bad =
            || Error::BadRequest("HF_ENDPOINT: must be an address such as https://huggingface.co, without a password".into());
        let url = Url::parse(endpoint).map_err(|_| bad())?;
        let plain = url.username().is_empty() && url.password().is_none() && url.query().is_none() && url.fragment().is_none();
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() || !plain {
            return Err(bad());
        }
        Ok(Self { endpoint: endpoint.into(), client: client()?, token: token.filter(|t| !t.trim().is_empty()) })
    }

    /// What a repository holds at a revision (a branch, tag or commit).
    ///
    /// # Errors
    /// [`Error::Hub`], by cause: no such repository or revision, gated (without a token, with a wrong one, terms not accepted), too
    /// many requests, not reachable.
    pub async fn listing(&self, repo: &str, revision: &str) -> Result<Listing> {
        Ok(self.list(repo, revision, STALL).await?)
    }

    /// As [`Self::listing`], and says whether another try may help.
    pub async fn list(&self, repo: &str, revision: &str, stall: Duration) -> Result<Listing, Trouble> {
        check_repo(repo)?;
        check_revision(revision)?;
        let mut url = self.address(&["api", "models"], repo, &["revision", revision])?;
        url.set_query(Some("blobs=true"));
        let mut answer = self.get(url, None, stall, repo).await?;
        let body = answer.body(MAX_LISTING, stall).await?;
        parse(repo, &body).map_err(|reason| Trouble::never(self.bad_answer(&format!("its listing of {repo} {reason}"))))
    }

    /// A small file, checked against its hash; at most `most` bytes. `None`: the repository has none of this name.
    ///
    /// # Errors
    /// As [`Self::listing`]; it is larger, or not what its hash says.
    pub async fn small_file(&self, listing: &Listing, name: &str, most: u64) -> Result<Option<Vec<u8>>> {
        let Some(file) = listing.files.iter().find(|f| f.name == name) else { return Ok(None) };
        if file.bytes > most {
            return Err(self.bad_answer(&format!(
                "{name} of {} has {} bytes, and {most} are the most that is read",
                listing.repo, file.bytes
            )));
        }
        let mut answer = self.get(self.file_address(listing, file)?, None, STALL, &listing.repo).await?;
        let body = answer.body(file.bytes, STALL).await?;
        if !file.hash.fits(&body) {
            let message = format!("{name} of {} came damaged: its bytes are not what the hub lists", listing.repo);
            return Err(Error::Hub { cause: HubCause::BadDownload, message });
        }
        Ok(Some(body))
    }

    /// An answer of the hub's API, at most `most` bytes. `what` is for messages.
    pub(super) async fn api(&self, path: &str, query: &[(&str, &str)], what: &str, most: u64) -> Result<Vec<u8>> {
        let mut url = self.address(&["api"], path, &[])?;
        url.query_pairs_mut().extend_pairs(query);
        Ok(self.get(url, None, STALL, what).await?.body(most, STALL).await?)
    }

    /// Where a file's bytes are asked for.
    pub fn file_address(&self, listing: &Listing, file: &RemoteFile) -> Result<Url> {
        let path: Vec<&str> = ["resolve", &listing.commit].into_iter().chain(file.name.split('/')).collect();
        self.address(&[], &listing.repo, &path)
    }

    /// Parts are escaped, so that a branch may have slashes.
    fn address(&self, before: &[&str], repo: &str, after: &[&str]) -> Result<Url> {
        let no_address = || Error::Internal(format!("no address: {repo}"));
        let mut url = Url::parse(&self.endpoint).map_err(|_| no_address())?;
        let mut path = url.path_segments_mut().map_err(|()| no_address())?;
        path.pop_if_empty().extend(before).extend(repo.split('/')).extend(after);
        drop(path);
        Ok(url)
    }

    fn bad_answer(&self, what: &str) -> Error {
        let message = format!("{} does not answer as the hub does: {}", self.endpoint, crate::config::printable(what));
        Error::Hub { cause: HubCause::BadAnswer, message }
    }
}

/// Redirects are followed by `ask`, which knows where the token may go. Each part of a file has a connection of its own, which
/// HTTP/2 would put into one.
fn client() -> Result<Client> {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        // Fails where one is installed already, which then does.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
    let builder = Client::builder().user_agent(concat!("rmlx/", env!("CARGO_PKG_VERSION"))).redirect(redirect::Policy::none());
    builder
        .http1_only()
        .connect_timeout(CONNECT)
        .build()
        .map_err(|e| Error::Internal(format!("no HTTP client: {}", trouble::reason(&e))))
}

/// `ORG/NAME`, or a lone `NAME`, as the hub allows them.
///
/// # Errors
/// [`Error::BadRequest`].
pub fn check_repo(repo: &str) -> Result<()> {
    if is_repo(repo) {
        return Ok(());
    }
    let hint = meant(repo).map_or_else(|| "ORG/NAME or ORG/NAME@REVISION".into(), |name| format!("is {name} meant?"));
    Err(Error::BadRequest(format!("{:?} is not the name of a repository\nhint: {hint}", shortened(repo))))
}

/// The name in what a user may have pasted: the address of a page, a name with a slash too many.
fn meant(text: &str) -> Option<String> {
    let text = text.trim();
    let (path, host) = text.split_once("://").map_or((text, false), |(_, rest)| (rest, true));
    let mut parts = path.split(['/', '?', '#']).filter(|p| !p.is_empty()).peekable();
    if host || parts.peek().is_some_and(|first| matches!(*first, "huggingface.co" | "hf.co" | "www.huggingface.co")) {
        parts.next();
    } else if parts.clone().count() != 2 {
        return None;
    }
    let name = format!("{}/{}", parts.next()?, parts.next()?);
    Some(name).filter(|name| is_repo(name))
}

fn is_repo(repo: &str) -> bool {
    let part = |p: &str| {
        let plain = p.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
        plain && !p.is_empty() && !p.starts_with(['-', '.']) && !p.ends_with(['-', '.'])
    };
    let right = repo.len() <= 96 && repo.split('/').count() <= 2 && repo.split('/').all(part);
    right && !repo.contains("--") && !repo.contains("..") && !repo.ends_with(".git")
}

/// A branch, a tag or a commit.
///
/// # Errors
/// [`Error::BadRequest`].
pub fn check_revision(revision: &str) -> Result<()> {
    let odd = |c: char| c.is_control() || c.is_whitespace() || "\\~^:?*[".contains(c);
    if revision.len() <= LONGEST_PART && !revision.contains(odd) && !revision.starts_with('-') && is_path(revision) {
        return Ok(());
    }
    Err(Error::BadRequest(format!("{:?} is not a revision\nhint: a branch, a tag or a commit", shortened(revision))))
}

fn shortened(text: &str) -> String {
    text.chars().take(100).collect()
}

/// 40 digits: what git calls a commit, and no name of a branch.
pub fn is_commit(text: &str) -> bool {
    matches!(Hash::parse(text), Some(Hash::Git(_)))
}

/// A path of plain names that cannot lead out of a folder, and that file systems take.
pub fn is_path(name: &str) -> bool {
    let part = |p: &str| !p.is_empty() && p != "." && p != ".." && p.len() <= LONGEST_PART;
    name.len() <= LONGEST_NAME && !name.contains(|c: char| c == '\\' || c.is_control()) && name.split('/').all(part)
}

#[derive(Deserialize)]
struct Info {
    id: Option<String>,
    sha: String,
    #[serde(default)]
    gated: serde_json::Value,
    #[serde(rename = "cardData")]
    card: Option<serde_json::Value>,
    pipeline_tag: Option<String>,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    #[serde(rename = "blobId")]
    blob: Option<String>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    size: Option<u64>,
    sha256: Option<String>,
}

/// The answer as a listing, or what is wrong with it.
fn parse(asked: &str, body: &[u8]) -> Result<Listing, String> {
    let info: Info = serde_json::from_slice(body).map_err(|e| format!("cannot be read: {e}"))?;
    let repo = info.id.unwrap_or_else(|| asked.into());
    check_repo(&repo).map_err(|_| format!("is of {repo:?}, which is no name"))?;
    if !is_commit(&info.sha) {
        return Err(format!("has the commit {:?}", info.sha));
    }
    let mut names = BTreeSet::new();
    let mut sizes = BTreeMap::new();
    let mut files = Vec::with_capacity(info.siblings.len());
    let mut total = 0_u64;
    for sibling in info.siblings {
        let file = remote_file(sibling)?;
        total = total.checked_add(file.bytes).filter(|t| *t < MOST_BYTES).ok_or("has sizes that no disk has")?;
        if !names.insert(file.name.clone()) {
            return Err(format!("has {:?} twice", file.name));
        }
        // They would be one blob.
        if *sizes.entry(file.hash.clone()).or_insert(file.bytes) != file.bytes {
            return Err(format!("has two sizes for the contents of {:?}", file.name));
        }
        files.push(file);
    }
    let license = info.card.as_ref().and_then(|card| card.get("license"));
    let license = license.and_then(|l| l.as_str().or_else(|| l.get(0)?.as_str())).map(crate::config::printable);
    let gated = !matches!(info.gated, serde_json::Value::Null | serde_json::Value::Bool(false));
    Ok(Listing {
        repo,
        commit: info.sha,
        gated,
        license,
        task: info.pipeline_tag.as_deref().map(crate::config::printable),
        files,
    })
}

fn remote_file(sibling: Sibling) -> Result<RemoteFile, String> {
    let name = sibling.rfilename;
    if !is_path(&name) {
        return Err(format!("has a file of the name {:?}", shortened(&name)));
    }
    let (hash, bytes) = match sibling.lfs {
        Some(lfs) => (lfs.sha256, lfs.size.or(sibling.size)),
        None => (sibling.blob, sibling.size),
    };
    match (hash.as_deref().and_then(Hash::parse), bytes) {
        (Some(hash), Some(bytes)) => Ok(RemoteFile { name, bytes, hash }),
        _ => Err(format!("does not tell the size and hash of {name:?}")),
    }
}

#[cfg(test)]
mod tests;
