//! Streams a GGUF file's tensors into a safetensors file, one at a time.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::Progress;
use super::gguf::{Gguf, Tensor, TensorType};
use super::model::{self, Mapping};
use super::repack::{self, GROUP, Parts};
use crate::error::{Error, Result};
use crate::hub::safetensors::Dtype;
use crate::hub::safetensors::write::{TensorSpec, Writer};

/// Writes every tensor; returns how many there are.
pub(super) fn write(source: &Source, gguf: &Gguf, mappings: &[Mapping], out: &Path, progress: Progress) -> Result<usize> {
    let bad = |name: &str, reason: String| Error::bad_file(source.path, format!("tensor {name}: {reason}"));
    let tensor = |m: &Mapping| gguf.tensors.get(&m.source).ok_or_else(|| bad(&m.source, "missing".into()));
    let total: u64 = mappings.iter().filter_map(|m| gguf.tensors.get(&m.source)).map(|t| t.bytes as u64).sum();

    // Whether an F32 tensor fits f16 is known only from its values, and the header comes first: those are read twice.
    let mut specs = Vec::new();
    for m in mappings {
        specs.extend(specs_of(m, tensor(m)?, source)?);
    }
    let mut writer = Writer::create(out, &specs, &[("format", "mlx")])?;
    let mut done = 0;
    for m in mappings {
        if progress(done, total).is_break() {
            return Err(Error::Cancelled);
        }
        let tensor = tensor(m)?;
        let data = unpaired(source.read(tensor)?, m);
        match repack::repack(tensor.kind, &data).map_err(|reason| bad(&m.source, reason))? {
            Parts::F16(bytes) | Parts::F32(bytes) => writer.tensor(&m.target, &bytes)?,
            Parts::Affine { weight, scales, biases, .. } => {
                let module = module(m);
                writer.tensor(&m.target, &weight)?;
                writer.tensor(&format!("{module}.scales"), &scales)?;
                writer.tensor(&format!("{module}.biases"), &biases)?;
            }
        }
        done += tensor.bytes as u64;
    }
    if progress(done, total).is_break() {
        return Err(Error::Cancelled);
    }
    writer.finish()?;
    Ok(specs.len())
}

fn module(m: &Mapping) -> &str {
    m.target.strip_suffix(".weight").unwrap_or(&m.target)
}

fn specs_of(m: &Mapping, tensor: &Tensor, source: &Source) -> Result<Vec<TensorSpec>> {
    let spec = |name: String, dtype, shape| TensorSpec { name, dtype, shape };
    let Some(bits) = model::bits(tensor.kind) else {
        let fits_half = tensor.kind == TensorType::F16 || repack::fits_half(&source.read(tensor)?);
        let dtype = if fits_half { Dtype::F16 } else { Dtype::F32 };
        return Ok(vec![spec(m.target.clone(), dtype, m.shape.clone())]);
    };
    let last = |n: usize| {
        let mut shape = m.shape.clone();
        if let Some(row) = shape.last_mut() {
            *row = n;
        }
        shape
    };
    let row = m.shape.last().copied().unwrap_or(0);
    let module = module(m);
    Ok(vec![
        spec(m.target.clone(), Dtype::U32, last(row * bits as usize / 32)),
        spec(format!("{module}.scales"), Dtype::F16, last(row / GROUP)),
        spec(format!("{module}.biases"), Dtype::F16, last(row / GROUP)),
    ])
}

/// Undoes the converter's order of rows: it keeps the rows of each head as rotary pairs (0, D/2, 1, D/2 + 1, ...).
fn unpaired(data: Vec<u8>, m: &Mapping) -> Vec<u8> {
    let (Some(heads), Some(&rows)) = (m.heads, m.shape.first()) else { return data };
    let (row, dim) = (data.len() / rows, rows / heads);
    let mut out = Vec::with_capacity(data.len());
    for head in 0..heads {
        for half in 0..2 {
            for i in 0..dim / 2 {
                let from = (head * dim + 2 * i + half) * row;
                out.extend_from_slice(&data[from..from + row]);
            }
        }
    }
    out
}

pub(super) fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

pub(super) struct Source<'a> {
    pub(super) path: &'a Path,
    pub(super) file: &'a File,
}

impl Source<'_> {
    /// Its place was checked against the file's length, so this allocates no more than the file has.
    pub(super) fn read(&self, tensor: &Tensor) -> Result<Vec<u8>> {
        let mut data = vec![0; tensor.bytes];
        self.file.read_exact_at(&mut data, tensor.offset).map_err(|e| Error::io(self.path, e))?;
        Ok(data)
    }
}
