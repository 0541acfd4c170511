//! Which models are resident, how they got there, and the claim on the GPU that goes with them.

mod info;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use mlx::Dtype;

use crate::api;
use crate::arch::{self, Model};
use crate::claim::{self, Claim};
use crate::config::{ModelConfig, Quant, Quantization};
use crate::error::{Error, Result};
use crate::hub::{self, Snapshot, safetensors};
use crate::kernels::Precision;
use crate::nn::{Compute, Storage, TensorView, Tensors, Weights};

pub use info::{info, knows, list, runs};

/// A model that can be run now.
#[derive(Clone)]
pub struct Resident {
    pub name: String,
    pub folder: PathBuf,
    pub model: Rc<dyn Model>,
    pub vocabulary: usize,
    pub dtype: Dtype,
    /// Of a model on the GPU. Held until the last copy of this is gone, which may be a sequence's.
    pub claim: Option<Arc<Claim>>,
}

/// Told how many of how many bytes are read; breaking cancels the load.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64) -> ControlFlow<()>;

/// What makes a model of a snapshot: [`build`], unless a test puts another in its place.
pub type Loader = Box<dyn Fn(&str, &Snapshot, Placement, Progress<'_>) -> Result<Resident>>;

pub struct Registry {
    device: mlx::Device,
    dtype: api::Dtype,
    loader: Loader,
    resident: Option<Resident>,
    claim: claim::Slot,
}

impl Registry {
    pub fn new(device: mlx::Device, dtype: api::Dtype) -> Self {
        Self::with_loader(device, dtype, Box::new(build))
    }

    pub fn with_loader(device: mlx::Device, dtype: api::Dtype, loader: Loader) -> Self {
        Self { device, dtype, loader, resident: None, claim: claim::Slot::default() }
    }

    /// Where models on the GPU take their claim from, when others of this process may hold it too.
    pub fn claiming(self, claim: claim::Slot) -> Self {
        Self { claim, ..self }
    }

    pub fn resident(&self) -> Option<&Resident> {
        self.resident.as_ref()
    }

    pub fn get(&self, folder: &Path) -> Option<Resident> {
        self.resident.as_ref().filter(|r| r.folder == folder).cloned()
    }

    /// Loads a snapshot in place of what is resident. What is plain from its configuration is refused before that goes.
    pub fn load(&mut self, name: &str, snapshot: &Snapshot, progress: Progress<'_>) -> Result<Resident> {
        arch::find(&snapshot.model_config()?)?;
        let claim = self.claim()?;
        // What was resident goes first: two models at once may not fit.
        self.unload()?;
        let loaded = (self.loader)(name, snapshot, self.placement(), progress);
        if loaded.is_err() {
            // What was read before it failed.
            mlx::memory::clear_cache()?;
        }
        let resident = Resident { claim, ..loaded? };
        self.resident = Some(resident.clone());
        Ok(resident)
    }

    /// Forgets the resident model and gives its memory and the claim back, once no sequence uses it.
    pub fn unload(&mut self) -> Result<()> {
        let claim = self.resident.take().and_then(|r| r.claim);
        mlx::memory::clear_cache()?;
        drop(claim);
        Ok(())
    }

    /// On the GPU: the claim of whatever is there, else a new one.
    fn claim(&self) -> Result<Option<Arc<Claim>>> {
        if self.device == mlx::Device::Cpu { Ok(None) } else { self.claim.take().map(Some) }
    }

    fn placement(&self) -> Placement {
        let dtype = match self.dtype {
            api::Dtype::F32 => Some(Dtype::F32),
            api::Dtype::Bf16 => Some(Dtype::Bf16),
            api::Dtype::F16 => Some(Dtype::F16),
            api::Dtype::Auto if self.device == mlx::Device::Cpu => Some(Dtype::F32),
            api::Dtype::Auto => None,
        };
        Placement { dtype, compute: if self.device == mlx::Device::Cpu { Compute::Own(Precision::Exact) } else { Compute::Mlx } }
    }
}

/// Builds a model from a snapshot on this thread's device.
pub fn build(name: &str, snapshot: &Snapshot, placement: Placement, progress: Progress<'_>) -> Result<Resident> {
    let config = snapshot.model_config()?;
    let arch = arch::find(&config)?;
    let checkpoint = Checkpoint::open(snapshot, &config, arch.rename)?;
    let Placement { dtype, compute } = placement;
    let dtype = dtype.unwrap_or_else(|| checkpoint.stream_dtype());
    let total = checkpoint.bytes;
    let mut on_tensor = |read| progress(read, total);
    let model = Weights::build(&checkpoint, config.quantization.as_ref(), Storage { dtype, compute }, &mut on_tensor, |w| {
        (arch.build)(&config, w)
    })?;
    tracing::info!(model = name, arch = arch.name, %dtype, bytes = total, "loaded");
    let vocabulary = config.vocab_size;
    Ok(Resident { name: name.into(), folder: snapshot.folder().into(), model: model.into(), vocabulary, dtype, claim: None })
}

/// Where a model goes.
#[derive(Debug, Clone, Copy)]
pub struct Placement {
    /// `None`: the type that most of the snapshot's float tensors have.
    pub dtype: Option<Dtype>,
    pub compute: Compute,
}

/// A snapshot's tensors by the names of the architecture.
struct Checkpoint {
    weights: hub::Weights,
    /// The architecture's name -> the file's, and the type.
    tensors: BTreeMap<String, (String, Dtype)>,
    bytes: u64,
}

impl Checkpoint {
    fn open(snapshot: &Snapshot, config: &ModelConfig, rename: fn(&ModelConfig, &str) -> Option<String>) -> Result<Self> {
        let weights = snapshot.weights()?;
        let mut tensors = BTreeMap::new();
        let mut bytes = 0;
        for (name, info) in weights.iter() {
            let Some(renamed) = rename(config, name) else { continue };
            let dtype = mlx_dtype(info.dtype).ok_or_else(|| Error::Unsupported(format!("{name} has the type {}", info.dtype)))?;
            bytes += info.range.len() as u64;
            if let Some((other, _)) = tensors.insert(renamed, (name.to_string(), dtype)) {
                return Err(Error::Weights(format!("{name} and {other} are the same tensor")));
            }
        }
        Ok(Self { weights, tensors, bytes })
    }

    /// The float type that most tensors have.
    fn stream_dtype(&self) -> Dtype {
        let count = |d| self.tensors.values().filter(|(_, dtype)| *dtype == d).count();
        [Dtype::F32, Dtype::F16, Dtype::Bf16].into_iter().max_by_key(|d| count(*d)).unwrap_or(Dtype::Bf16)
    }
}

impl Tensors for Checkpoint {
    fn names(&self) -> Vec<String> {
        self.tensors.keys().cloned().collect()
    }

    fn meta(&self, name: &str) -> Option<(Dtype, &[usize])> {
        let (stored, dtype) = self.tensors.get(name)?;
        Some((*dtype, &self.weights.get(stored)?.shape))
    }

    fn read(&self, name: &str) -> Result<TensorView<'_>> {
        let missing = || Error::Weights(format!("missing: {name}"));
        let (stored, dtype) = self.tensors.get(name).ok_or_else(missing)?;
        let info = self.weights.get(stored).ok_or_else(missing)?;
        Ok(TensorView { dtype: *dtype, shape: &info.shape, bytes: self.weights.bytes(stored)? })
    }

    fn quant_of(&self, quantization: &Quantization, module: &str) -> Option<Quant> {
        // The configuration speaks of modules by the names of the file.
        let (stored, _) = self.tensors.get(&format!("{module}.weight"))?;
        quantization.of(stored.strip_suffix(".weight")?)
    }
}

fn mlx_dtype(d: safetensors::Dtype) -> Option<Dtype> {
    use safetensors::Dtype as S;
    Some(match d {
        S::Bool => Dtype::Bool,
        S::U8 => Dtype::U8,
        S::I8 => Dtype::I8,
        S::U16 => Dtype::U16,
        S::I16 => Dtype::I16,
        S::F16 => Dtype::F16,
        S::Bf16 => Dtype::Bf16,
        S::U32 => Dtype::U32,
        S::I32 => Dtype::I32,
        S::F32 => Dtype::F32,
        S::U64 => Dtype::U64,
        S::I64 => Dtype::I64,
        S::F64 => Dtype::F64,
        S::F8E4M3 | S::F8E5M2 | S::F8E8M0 => return None,
    })
}
