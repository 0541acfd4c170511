//! Reading a snapshot's small files, which may be missing, broken or hostile.

use std::io::{ErrorKind, Read};
use std::path::Path;

use serde_json::Value as Json;

use crate::contained;
use crate::error::{Error, Result};

/// Bytes of a configuration file. Gemma's tokenizer_config.json, the largest known, has 1.2 MB.
const MAX_JSON: u64 = 32 << 20;

/// The bytes of a file of a snapshot; `None` where there is none.
///
/// # Errors
/// As [`contained::open`], and [`Error::BadFile`] for more than `limit` bytes.
pub fn read_bytes(folder: &Path, name: &str, limit: u64) -> Result<Option<Vec<u8>>> {
    let root = match contained::root(folder) {
        Ok(root) => root,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io(folder, e)),
    };
    let Some(file) = contained::open(folder, &root, name)? else { return Ok(None) };
    let path = folder.join(name);
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(|e| Error::io(&path, e))?;
    if bytes.len() as u64 > limit {
        return Err(Error::bad_file(path, format!("more than {limit} bytes")));
    }
    Ok(Some(bytes))
}

/// # Errors
/// As [`read_bytes`], and [`Error::BadFile`] for what is not UTF-8.
pub fn read_text(folder: &Path, name: &str, limit: u64) -> Result<Option<String>> {
    let Some(bytes) = read_bytes(folder, name, limit)? else { return Ok(None) };
    String::from_utf8(bytes).map(Some).map_err(|e| Error::bad_file(folder.join(name), e))
}

/// # Errors
/// As [`read_bytes`], and [`Error::BadFile`] for what is not JSON.
pub fn read_json(folder: &Path, name: &str) -> Result<Option<Json>> {
    let Some(bytes) = read_bytes(folder, name, MAX_JSON)? else { return Ok(None) };
    serde_json::from_slice(&bytes).map(Some).map_err(|e| Error::bad_file(folder.join(name), e))
}
