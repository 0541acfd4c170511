//! Path-scoped access to a checkpoint while a model is built from it.
//!
//! A model's constructor runs twice over the same checkpoint: once as a rehearsal that reads nothing, so that every missing,
//! unexpected or mis-shaped tensor is known before anything is allocated, then for real. See [`Weights::build`].

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::rc::Rc;

use mlx::quant::{self, Affine, Quantized};
use mlx::{Array, Dtype};

use crate::config::{Quant, Quantization};
use crate::error::{Error, Result};
use crate::kernels::{Precision, affine};

/// One tensor as it lies in a file.
#[derive(Debug, Clone, Copy)]
pub struct TensorView<'a> {
    pub dtype: Dtype,
    pub shape: &'a [usize],
    /// Little-endian, row-major.
    pub bytes: &'a [u8],
}

/// A checkpoint: tensors by the names that the architecture uses (renaming has been done).
pub trait Tensors {
    fn names(&self) -> Vec<String>;
    /// Header facts alone: type and shape.
    fn meta(&self, name: &str) -> Option<(Dtype, &[usize])>;
    fn read(&self, name: &str) -> Result<TensorView<'_>>;
    /// How the file's quantization table calls `module`.
    fn quant_of(&self, quantization: &Quantization, module: &str) -> Option<Quant>;
}

/// In what form the weights will compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Storage {
    /// The type of activations, norms and of matrices that MLX computes with and that are not packed.
    pub dtype: Dtype,
    pub compute: Compute,
}

/// Who computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compute {
    /// MLX, with matrices as they are stored: made for GPUs. On its CPU backend a sentence takes minutes.
    Mlx,
    /// Our kernels, on the CPU, with matrices as they are stored.
    Own(Precision),
    /// MLX, with matrices that are unpacked at load: the slow twin of both.
    Plain,
}

/// Told after every tensor how many of the checkpoint's bytes are in; breaking cancels the load.
pub type Progress<'a> = &'a mut dyn FnMut(u64) -> ControlFlow<()>;

struct Context<'a> {
    tensors: &'a dyn Tensors,
    quantization: Option<&'a Quantization>,
    storage: Storage,
    /// `None` while rehearsing.
    progress: Option<RefCell<Progress<'a>>>,
    read: RefCell<u64>,
    used: RefCell<BTreeSet<String>>,
    problems: RefCell<Vec<String>>,
}

/// A place in the tree of a checkpoint's names.
#[derive(Clone)]
pub struct Weights<'a> {
    context: Rc<Context<'a>>,
    prefix: String,
}

const FLOATS: [Dtype; 3] = [Dtype::Bf16, Dtype::F16, Dtype::F32];
/// The most problems that an error lists.
const SHOWN: usize = 8;

impl<'a> Weights<'a> {
    /// Builds a model with `construct`, after a rehearsal that must find every tensor of the checkpoint used and well-shaped.
    pub fn build<M>(
        tensors: &'a dyn Tensors,
        quantization: Option<&'a Quantization>,
        storage: Storage,
        progress: Progress<'a>,
        construct: impl Fn(&Weights<'a>) -> Result<M>,
    ) -> Result<M> {
        let root = |progress| {
            let context = Context {
                tensors,
                quantization,
                storage,
                progress,
                read: RefCell::new(0),
                used: RefCell::default(),
                problems: RefCell::default(),
            };
            Weights { context: Rc::new(context), prefix: String::new() }
        };
        let rehearsal = root(None);
        construct(&rehearsal)?;
        rehearsal.report()?;
        construct(&root(Some(RefCell::new(progress))))
    }

    fn report(&self) -> Result<()> {
        let mut problems = self.context.problems.borrow().clone();
        let used = self.context.used.borrow();
        let mut names = self.context.tensors.names();
        names.sort();
        problems.extend(names.iter().filter(|n| !used.contains(*n)).map(|n| format!("unexpected: {n}")));
        if problems.is_empty() {
            return Ok(());
        }
        let more = problems.len().saturating_sub(SHOWN);
        problems.truncate(SHOWN);
        let tail = if more == 0 { String::new() } else { format!("; and {more} more") };
        Err(Error::Weights(problems.join("; ") + &tail))
    }

    /// The place one level down.
    pub fn at(&self, name: impl std::fmt::Display) -> Self {
        let prefix = if self.prefix.is_empty() { name.to_string() } else { format!("{}.{name}", self.prefix) };
        Self { context: self.context.clone(), prefix }
    }

    pub fn storage(&self) -> Storage {
        self.context.storage
    }

    /// Whether the checkpoint has this tensor.
    pub fn has(&self, name: &str) -> bool {
        self.context.tensors.meta(&self.at(name).prefix).is_some()
    }

    fn problem(&self, text: String) {
        self.context.problems.borrow_mut().push(text);
    }

    /// The tensor `name` in its stored type. While rehearsing: a stand-in without memory.
    fn raw(&self, name: &str, shape: &[usize], accepted: &[Dtype]) -> Result<Array> {
        let path = self.at(name).prefix;
        let context = &self.context;
        let Some(progress) = &context.progress else {
            let dtype = match context.tensors.meta(&path) {
                None => {
                    self.problem(format!("missing: {path}"));
                    accepted[0]
                }
                Some((dtype, found)) => {
                    if found != shape {
                        self.problem(format!("{path} has shape {found:?}, not {shape:?}"));
                    }
                    if !accepted.contains(&dtype) {
                        self.problem(format!("{path} has type {dtype}"));
                    }
                    dtype
                }
            };
            context.used.borrow_mut().insert(path);
            let dims: Vec<i32> = shape.iter().map(|&d| i32::try_from(d).unwrap_or(i32::MAX)).collect();
            return Ok(Array::zeros(&dims, dtype)?);
        };
        let view = context.tensors.read(&path)?;
        if view.shape != shape || !accepted.contains(&view.dtype) {
            return Err(Error::Weights(format!("{path} changed while it was read")));
        }
        let array = Array::from_bytes(view.bytes, view.shape, view.dtype)?;
        let mut read = context.read.borrow_mut();
        *read += view.bytes.len() as u64;
        if (progress.borrow_mut())(*read).is_break() {
            return Err(Error::Cancelled);
        }
        Ok(array)
    }

    /// An array made from this checkpoint's tensors, evaluated so that those can go. While rehearsing: left alone.
    pub fn settled(&self, array: Array) -> Result<Array> {
        if self.context.progress.is_some() {
            // Evaluated one by one, so that the stored form can be given back before the next is read.
            array.eval()?;
        }
        Ok(array)
    }

    pub(super) fn settled_matrix(&self, matrix: Matrix) -> Result<Matrix> {
        Ok(match matrix {
            Matrix::Dense(w) => Matrix::Dense(self.settled(w)?),
            Matrix::Stored(w) => Matrix::Stored(self.settled(w)?),
            Matrix::Packed(packed) => {
                let Quantized { weight, scales, biases } = packed.q;
                let q = Quantized { weight: self.settled(weight)?, scales: self.settled(scales)?, biases: self.settled(biases)? };
                Matrix::Packed(Packed { q, ..packed })
            }
        })
    }

    /// A float tensor in the stream's type.
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<Array> {
        let stored = self.raw(name, shape, &FLOATS)?;
        self.settled(stored.astype(self.context.storage.dtype)?)
    }

    /// How this module is stored: `None` where it is not quantized.
    fn quant(&self) -> Option<Affine> {
        if !self.has("scales") {
            return None;
        }
        let quant = self.context.quantization.and_then(|q| self.context.tensors.quant_of(q, &self.prefix));
        match quant {
            Some(q) => Some(Affine { bits: q.bits as i32, group_size: q.group_size as i32 }),
            None => {
                self.problem(format!(
                    "{}.scales belongs to a quantized matrix, but config.json does not say of what kind",
                    self.prefix
                ));
                None
            }
        }
    }

    /// This module's matrix [rows, columns].
    pub fn matrix(&self, rows: usize, columns: usize) -> Result<Matrix> {
        let compute = self.context.storage.compute;
        let Some(format) = self.quant() else {
            return Ok(match compute {
                Compute::Own(_) => Matrix::Stored(self.settled(self.raw("weight", &[rows, columns], &FLOATS)?)?),
                Compute::Mlx | Compute::Plain => Matrix::Dense(self.tensor("weight", &[rows, columns])?),
            });
        };
        let (bits, group) = (format.bits as usize, format.group_size as usize);
        if !columns.is_multiple_of(group) || !(columns * bits).is_multiple_of(32) {
            self.problem(format!("{}: {columns} columns do not divide into groups of {group} at {bits} bits", self.prefix));
        }
        let dtype = self.context.storage.dtype;
        let weight = self.raw("weight", &[rows, columns * bits / 32], &[Dtype::U32])?;
        let scales = self.raw("scales", &[rows, columns / group], &FLOATS)?;
        let biases = self.raw("biases", &[rows, columns / group], &FLOATS)?;
        if compute == Compute::Plain {
            let wide = |a: &Array| a.astype(Dtype::F32);
            let packed = Quantized { weight, scales: wide(&scales)?, biases: wide(&biases)? };
            let dense = match self.context.progress {
                Some(_) => quant::dequantize(&packed, format, Dtype::F32)?.astype(dtype)?,
                None => Array::zeros(&[rows as i32, columns as i32], dtype)?,
            };
            return Ok(Matrix::Dense(self.settled(dense)?));
        }
        // Our kernels take scales of any type; MLX's want that of what they meet.
        let cast = |a: Array| if compute == Compute::Mlx { a.astype(dtype) } else { Ok(a) };
        let (scales, biases) = (self.settled(cast(scales)?)?, self.settled(cast(biases)?)?);
        Ok(Matrix::Packed(Packed { q: Quantized { weight, scales, biases }, format, compute }))
    }
}

/// A matrix as it computes.
#[derive(Debug, Clone)]
pub enum Matrix {
    /// In the stream's type, for MLX.
    Dense(Array),
    /// Floats in the type that they are stored in, for our kernels: [outputs, inputs].
    Stored(Array),
    Packed(Packed),
}

/// A matrix that stays as it is stored.
#[derive(Debug, Clone)]
pub struct Packed {
    pub q: Quantized,
    pub format: Affine,
    /// Not [`Compute::Plain`].
    pub compute: Compute,
}

impl Packed {
    /// x [.., columns] -> [.., rows]
    pub fn product(&self, x: &Array) -> mlx::Result<Array> {
        match self.compute {
            Compute::Own(precision) => affine::matmul(x, &self.q, self.format, precision),
            Compute::Mlx | Compute::Plain => quant::matmul(x, &self.q, self.format),
        }
    }

    /// ids [..] -> [.., columns] in `dtype`
    pub fn take(&self, ids: &Array, dtype: Dtype) -> mlx::Result<Array> {
        if let Compute::Own(_) = self.compute {
            return affine::take(&self.q, self.format, ids, dtype);
        }
        // The rows are unpacked after the look-up, so that only they are.
        let q = &self.q;
        let rows = Quantized { weight: q.weight.take(ids, 0)?, scales: q.scales.take(ids, 0)?, biases: q.biases.take(ids, 0)? };
        quant::dequantize(&rows, self.format, dtype)
    }
}

#[cfg(test)]
mod tests;
