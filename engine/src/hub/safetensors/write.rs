//! Writes a safetensors file: the header first, then one tensor at a time, so that memory holds one tensor. The file appears under
//! its name only when it is whole and on the disk.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::Dtype;
use crate::error::{Error, Result};

/// A tensor to come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSpec {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
}

impl TensorSpec {
    /// Bytes; `None` where they do not fit a `usize`.
    pub fn bytes(&self) -> Option<usize> {
        self.shape.iter().try_fold(self.dtype.size(), |n, &d| n.checked_mul(d))
    }
}

/// Takes the tensors in the order of the specs. Dropped before [`Writer::finish`], it leaves nothing.
pub struct Writer {
    path: PathBuf,
    partial: PathBuf,
    /// `None` once finished.
    out: Option<BufWriter<File>>,
    /// Name and bytes of what is to come, last first.
    remaining: Vec<(String, usize)>,
}

impl Writer {
    /// # Errors
    /// [`Error::Io`]; [`Error::Internal`] where two specs have the same name or one is too large.
    pub fn create(path: &Path, specs: &[TensorSpec], metadata: &[(&str, &str)]) -> Result<Self> {
        let mut header = Map::new();
        let metadata: BTreeMap<&str, &str> = metadata.iter().copied().collect();
        header.insert("__metadata__".into(), json!(metadata));
        let mut end = 0_usize;
        let mut remaining = Vec::with_capacity(specs.len());
        for spec in specs {
            let start = end;
            let bytes = spec.bytes().filter(|b| start.checked_add(*b).is_some());
            let bytes = bytes.ok_or_else(|| Error::Internal(format!("tensor {} is too large", spec.name)))?;
            end += bytes;
            let entry = json!({"dtype": spec.dtype.name(), "shape": spec.shape, "data_offsets": [start, end]});
            if header.insert(spec.name.clone(), entry).is_some() {
                return Err(Error::Internal(format!("two tensors are called {}", spec.name)));
            }
            remaining.push((spec.name.clone(), bytes));
        }
        remaining.reverse();
        let mut text = Value::Object(header).to_string();
        // Readers that map the file want the data at a multiple of 8.
        text.extend(std::iter::repeat_n(' ', text.len().next_multiple_of(8) - text.len()));

        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let file = File::create(&partial).map_err(|e| Error::io(&partial, e))?;
        let mut writer = Self { path: path.into(), partial, out: Some(BufWriter::with_capacity(1 << 20, file)), remaining };
        writer.write(&(text.len() as u64).to_le_bytes())?;
        writer.write(text.as_bytes())?;
        Ok(writer)
    }

    /// The next tensor's elements, little-endian.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Internal`] where another tensor, or another length, was announced.
    pub fn tensor(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        match self.remaining.pop() {
            Some((n, len)) if n == name && len == bytes.len() => self.write(bytes),
            Some((n, len)) => Err(Error::Internal(format!("{len} bytes of {n} were to come, not {} of {name}", bytes.len()))),
            None => Err(Error::Internal(format!("{name} was not announced"))),
        }
    }

    /// Brings the file to the disk and under its name.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Internal`] where an announced tensor did not come.
    pub fn finish(mut self) -> Result<()> {
        if let Some((name, _)) = self.remaining.last() {
            return Err(Error::Internal(format!("{name} was announced and did not come")));
        }
        let io = |e| Error::io(&self.partial, e);
        if let Some(out) = &mut self.out {
            out.flush().map_err(io)?;
            out.get_ref().sync_all().map_err(io)?;
        }
        fs::rename(&self.partial, &self.path).map_err(|e| Error::io(&self.path, e))?;
        self.out = None;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match &mut self.out {
            Some(out) => out.write_all(bytes).map_err(|e| Error::io(&self.partial, e)),
            None => Err(Error::Internal("the file is finished".into())),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.out.take().is_some() {
            // Nobody is left to hear of a failure.
            let _ = fs::remove_file(&self.partial);
        }
    }
}
