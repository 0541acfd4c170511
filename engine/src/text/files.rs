//! Reading a snapshot's small files, which may be missing, broken or hostile.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use serde_json::Value as Json;

use crate::error::{Error, Result};

/// Bytes of a configuration file. Gemma's tokenizer_config.json, the largest known, has 1.2 MB.
const MAX_JSON: u64 = 32 << 20;

/// The bytes of a file; `None` where there is none.
///
/// # Errors
/// [`Error::Io`], and [`Error::BadFile`] for more than `limit` bytes.
pub fn read_bytes(path: &Path, limit: u64) -> Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io(path, e)),
    };
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(|e| Error::io(path, e))?;
    if bytes.len() as u64 > limit {
        return Err(Error::bad_file(path, format!("more than {limit} bytes")));
    }
    Ok(Some(bytes))
}

/// # Errors
/// As [`read_bytes`], and [`Error::BadFile`] for what is not UTF-8.
pub fn read_text(path: &Path, limit: u64) -> Result<Option<String>> {
    let Some(bytes) = read_bytes(path, limit)? else { return Ok(None) };
    String::from_utf8(bytes).map(Some).map_err(|e| Error::bad_file(path, e))
}

/// # Errors
/// As [`read_bytes`], and [`Error::BadFile`] for what is not JSON.
pub fn read_json(path: &Path) -> Result<Option<Json>> {
    let Some(bytes) = read_bytes(path, MAX_JSON)? else { return Ok(None) };
    serde_json::from_slice(&bytes).map(Some).map_err(|e| Error::bad_file(path, e))
}
