//! Reads a safetensors file through a mapping. The header is read and checked whole before the mapping is used: known element
//! types, sizes that agree with shapes, tensors that lie one after the other and fill the file. What passes needs no checks later.

pub mod write;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::{Mmap, MmapOptions};
use serde::Deserialize;
use serde::de::{Error as _, MapAccess, Visitor};

use crate::config::printable;
use crate::contained;
use crate::error::{Error, Result};

/// Bytes. The format's own limit.
const MAX_HEADER: u64 = 100_000_000;
const MAX_DIMENSIONS: usize = 16;

/// Element types of the format that fill whole bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dtype {
    Bool,
    U8,
    I8,
    F8E4M3,
    F8E5M2,
    F8E8M0,
    U16,
    I16,
    F16,
    Bf16,
    U32,
    I32,
    F32,
    U64,
    I64,
    F64,
}

const DTYPES: &[(Dtype, &str, usize)] = &[
    (Dtype::Bool, "BOOL", 1),
    (Dtype::U8, "U8", 1),
    (Dtype::I8, "I8", 1),
    (Dtype::F8E4M3, "F8_E4M3", 1),
    (Dtype::F8E5M2, "F8_E5M2", 1),
    (Dtype::F8E8M0, "F8_E8M0", 1),
    (Dtype::U16, "U16", 2),
    (Dtype::I16, "I16", 2),
    (Dtype::F16, "F16", 2),
    (Dtype::Bf16, "BF16", 2),
    (Dtype::U32, "U32", 4),
    (Dtype::I32, "I32", 4),
    (Dtype::F32, "F32", 4),
    (Dtype::U64, "U64", 8),
    (Dtype::I64, "I64", 8),
    (Dtype::F64, "F64", 8),
];

impl Dtype {
    /// As a header spells it.
    pub fn name(self) -> &'static str {
        DTYPES[self as usize].1
    }

    /// Bytes of one element.
    pub fn size(self) -> usize {
        DTYPES[self as usize].2
    }

    fn from_name(name: &str) -> Option<Self> {
        DTYPES.iter().find(|(_, n, _)| *n == name).map(|(d, ..)| *d)
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    pub dtype: Dtype,
    /// Row-major; empty for a scalar.
    pub shape: Vec<usize>,
    /// Bytes from the start of the file. They need not be aligned to the element.
    pub range: Range<usize>,
}

/// What a header says, checked against the length of the data behind it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Header {
    pub tensors: BTreeMap<String, TensorInfo>,
    /// `__metadata__`, often `{"format": "mlx"}`.
    pub metadata: BTreeMap<String, String>,
}

impl Header {
    /// Checks the JSON of a header. `data_start` and `file_len` are bytes from the start of the file.
    ///
    /// # Errors
    /// The reason, with the tensor's name where one is at fault.
    pub fn parse(json: &[u8], data_start: usize, file_len: usize) -> Result<Self, String> {
        if json.first() != Some(&b'{') {
            return Err("the header is not a JSON object".into());
        }
        let raw: RawHeader = serde_json::from_slice(json).map_err(|e| format!("the header is not valid: {e}"))?;
        let data_len = file_len.checked_sub(data_start).ok_or("the header is longer than the file")?;
        let mut header = Self { tensors: BTreeMap::new(), metadata: raw.metadata };
        let mut spans = Vec::with_capacity(raw.tensors.len());
        for (name, t) in raw.tensors {
            let (start, end) = t.data_offsets;
            let info = tensor_info(&t, data_start, data_len).map_err(|reason| format!("tensor {name}: {reason}"))?;
            spans.push((start, end, name.clone()));
            header.tensors.insert(name, info);
        }
        spans.sort_unstable();
        let mut filled = 0;
        for (start, end, name) in spans {
            if start != filled {
                let relation = if start < filled { "overlaps the tensor before it" } else { "leaves a gap before it" };
                return Err(format!("tensor {name}: its data {relation}"));
            }
            filled = end;
        }
        if filled != data_len as u64 {
            return Err(format!("its tensors have {filled} bytes and the file has {data_len} for them"));
        }
        Ok(header)
    }
}

fn tensor_info(t: &RawTensor, data_start: usize, data_len: usize) -> Result<TensorInfo, String> {
    let dtype = Dtype::from_name(&t.dtype).ok_or_else(|| format!("unknown element type {:.40}", t.dtype))?;
    if t.shape.len() > MAX_DIMENSIONS {
        return Err(format!("{} dimensions", t.shape.len()));
    }
    let shape: Option<Vec<usize>> = t.shape.iter().map(|&n| usize::try_from(n).ok()).collect();
    let shape = shape.ok_or_else(|| format!("its shape {:?} is too large", t.shape))?;
    let bytes = shape.iter().try_fold(dtype.size(), |n, &d| n.checked_mul(d));
    let bytes = bytes.ok_or_else(|| format!("its shape {shape:?} is too large"))?;
    let (start, end) = t.data_offsets;
    if start > end || end > data_len as u64 {
        return Err(format!("its data, bytes {start} to {end}, lies outside the file's {data_len}: is the file truncated?"));
    }
    if end - start != bytes as u64 {
        return Err(format!("{dtype} of shape {shape:?} takes {bytes} bytes and it has {}", end - start));
    }
    // Both are at most the file's length now.
    let range = data_start + start as usize..data_start + end as usize;
    Ok(TensorInfo { dtype, shape, range })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTensor {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

struct RawHeader {
    tensors: BTreeMap<String, RawTensor>,
    metadata: BTreeMap<String, String>,
}

/// By hand, because a derived map would let a second tensor of the same name replace the first.
impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct HeaderVisitor;
        impl<'de> Visitor<'de> for HeaderVisitor {
            type Value = RawHeader;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a map of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawHeader, A::Error> {
                let mut header = RawHeader { tensors: BTreeMap::new(), metadata: BTreeMap::new() };
                let mut has_metadata = false;
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        if std::mem::replace(&mut has_metadata, true) {
                            return Err(A::Error::custom("two __metadata__"));
                        }
                        header.metadata = map.next_value()?;
                    } else {
                        match header.tensors.entry(name) {
                            Entry::Occupied(e) => {
                                return Err(A::Error::custom(format_args!("two tensors are called {}", e.key())));
                            }
                            Entry::Vacant(e) => e.insert(map.next_value()?),
                        };
                    }
                }
                Ok(header)
            }
        }
        d.deserialize_map(HeaderVisitor)
    }
}

/// An open file. Clone the `Arc` it is kept in to keep its bytes.
pub struct SafeTensors {
    path: PathBuf,
    file: File,
    map: Mmap,
    header: Header,
}

impl SafeTensors {
    /// # Errors
    /// [`Error::Io`], or [`Error::BadFile`] with the tensor and the reason.
    pub fn open(path: &Path) -> Result<Self> {
        let io = |e| Error::io(path, e);
        let bad = |reason: String| Error::bad_file(path, printable(&reason));
        let mut file = contained::open_regular(path)?;
        let meta = file.metadata().map_err(io)?;
        let file_len = usize::try_from(meta.len()).map_err(|_| bad("too large for this machine".into()))?;
        let mut length = [0; 8];
        if file_len < length.len() {
            return Err(bad(format!("{file_len} bytes are too few for a safetensors file")));
        }
        file.read_exact(&mut length).map_err(io)?;
        let header_len = u64::from_le_bytes(length);
        if header_len > MAX_HEADER || header_len > file_len as u64 - 8 {
            return Err(bad(format!("its header would have {header_len} bytes and the file has {file_len}")));
        }
        // Read, not mapped: what is parsed cannot change while it is parsed.
        let mut json = vec![0; header_len as usize];
        file.read_exact(&mut json).map_err(io)?;
        let header = Header::parse(&json, 8 + json.len(), file_len).map_err(bad)?;

        // SAFETY: the mapping is read-only, of a regular file, and private to this value. Nobody in this process writes to a
        // snapshot's files: the writer of this module makes a new file and renames it, and so do downloaders. Another process that
        // changed the file in place could change the bytes while they are copied; they are only ever numbers there, every value of
        // which is valid, and no length or offset is read from them. A file that was cut short would fault on access beyond its new
        // end; `bytes` therefore compares the length before it hands out a slice, which leaves the moment of one copy.
        let map = unsafe { MmapOptions::new().len(file_len).map(&file) }.map_err(io)?;
        Ok(Self { path: path.into(), file, map, header })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// In the order of their names.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = (&str, &TensorInfo)> {
        self.header.tensors.iter().map(|(name, info)| (name.as_str(), info))
    }

    pub fn get(&self, name: &str) -> Option<&TensorInfo> {
        self.header.tensors.get(name)
    }

    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.header.metadata
    }

    /// A tensor's elements, little-endian, row-major, not necessarily aligned. Copy them soon: see the mapping's safety argument.
    ///
    /// # Errors
    /// [`Error::Weights`] where there is no such tensor, [`Error::BadFile`] where the file has changed its length since it was opened.
    pub fn bytes(&self, name: &str) -> Result<&[u8]> {
        let info = self.get(name).ok_or_else(|| Error::Weights(format!("{} has no tensor {name}", self.path.display())))?;
        let now = self.file.metadata().map_err(|e| Error::io(&self.path, e))?.len();
        if now != self.map.len() as u64 {
            return Err(Error::bad_file(
                &self.path,
                format!("had {} bytes when it was opened and has {now} now", self.map.len()),
            ));
        }
        Ok(&self.map[info.range.clone()])
    }
}

impl fmt::Debug for SafeTensors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SafeTensors").field("path", &self.path).field("tensors", &self.header.tensors.len()).finish()
    }
}

#[cfg(test)]
mod tests;
