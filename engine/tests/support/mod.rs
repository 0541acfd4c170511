//! What the integration tests share: fixtures, snapshots made from them, models loaded as the worker loads them.
#![allow(dead_code, reason = "each test binary uses a part")]

pub mod fake;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use mlx::{Array, Dtype};
use rmlx_engine::api;
use rmlx_engine::hub::Snapshot;
use rmlx_engine::hub::safetensors::SafeTensors;
use rmlx_engine::registry::{Registry, Resident};
use serde_json::Value;

pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").canonicalize().expect("tests/fixtures exists")
}

/// The starter model, where set-up puts it. The same rule as in scripts/lib.sh.
pub fn starter_gguf() -> PathBuf {
    let var = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let home = || var("HOME").expect("HOME is set");
    let cache = var("RMLX_BUILD_CACHE").unwrap_or_else(|| {
        if cfg!(target_os = "macos") {
            home().join("Library/Caches/rmlx-build")
        } else {
            var("XDG_CACHE_HOME").unwrap_or_else(|| home().join(".cache")).join("rmlx-build")
        }
    });
    let file = cache.join("starter/SmolLM2-135M-Instruct.Q4_1.gguf");
    assert!(file.is_file(), "the starter model is not at {}: `scripts/setup test` brings it", file.display());
    file
}

pub fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))).expect("JSON")
}

/// A tensor of a reference file as f32, with its shape.
pub fn floats(path: &Path, name: &str) -> (Vec<f32>, Vec<usize>) {
    let file = SafeTensors::open(path).expect("a reference file");
    let info = file.get(name).unwrap_or_else(|| panic!("{name} is in {}", path.display())).clone();
    let bytes = file.bytes(name).expect("its bytes");
    (bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("four bytes"))).collect(), info.shape)
}

/// An i64 tensor of a reference file: token ids.
pub fn integers(path: &Path, name: &str) -> Vec<u32> {
    let file = SafeTensors::open(path).expect("a reference file");
    let bytes = file.bytes(name).unwrap_or_else(|e| panic!("{name} in {}: {e}", path.display()));
    bytes.chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().expect("eight bytes")) as u32).collect()
}

pub fn ids(value: &Value) -> Vec<u32> {
    value.as_array().expect("a list of ids").iter().map(|v| v.as_u64().expect("an id") as u32).collect()
}

/// As the worker loads it with `exact`, which is what references are compared with.
pub fn load_as(folder: &Path, dtype: api::Dtype) -> rmlx_engine::error::Result<Resident> {
    let snapshot = Snapshot::open(folder)?;
    let registry = Registry::new(mlx::Device::Cpu, dtype);
    registry.computing(rmlx_engine::kernels::Precision::Exact).load("test", &snapshot, &mut |_, _| ControlFlow::Continue(()))
}

pub fn load(folder: &Path) -> Resident {
    load_as(folder, api::Dtype::F32).unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
}

/// The logits after every token [tokens, vocabulary], the prompt fed in pieces of `chunk`.
pub fn logits(resident: &Resident, tokens: &[u32], chunk: usize) -> Vec<f32> {
    let mut states = resident.model.states();
    let mut all = Vec::new();
    for piece in tokens.chunks(chunk) {
        let piece = Array::from_slice(piece, &[1, piece.len()]).unwrap();
        let hidden = resident.model.forward(&piece, &mut states).unwrap();
        all.extend(resident.model.logits(&hidden).unwrap().to_f32().unwrap());
    }
    all
}

/// Greedy continuation.
pub fn greedy(resident: &Resident, prompt: &[u32], steps: usize) -> Vec<u32> {
    use rmlx_engine::decode::{Resolved, Sequence};
    let sampling = api::Sampling { temperature: Some(0.0), ..api::Sampling::default() };
    let sampling = Resolved::new(&sampling, None, resident.vocabulary).unwrap();
    let mut sequence = Sequence::new(resident.model.clone(), prompt.to_vec(), sampling, steps);
    while !sequence.ready() {
        sequence.prefill(16).unwrap();
    }
    let mut out = Vec::new();
    for _ in 0..steps {
        sequence.submit().unwrap();
        out.push(sequence.collect().unwrap().expect("a token was pending").0);
    }
    out
}

pub fn max_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(x, y)| if x.is_finite() { (x - y).abs() } else { f32::INFINITY }).fold(0.0, f32::max)
}

/// A copy of a fixture's files in a folder of its own, without its weights.
pub fn copy_without_weights(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).expect("a fixture") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if path.is_file() && !name.ends_with(".safetensors") && !name.starts_with("expected") {
            std::fs::copy(&path, to.join(&name)).expect("a copy");
        }
    }
}

/// Little-endian bytes of an evaluated array.
pub fn bytes(a: &Array) -> Vec<u8> {
    match a.dtype() {
        Dtype::U32 => bytemuck::cast_slice(&a.to_vec::<u32>().unwrap()).to_vec(),
        Dtype::F32 => bytemuck::cast_slice(&a.to_vec::<f32>().unwrap()).to_vec(),
        Dtype::Bf16 => bytemuck::cast_slice(&a.to_vec::<half::bf16>().unwrap()).to_vec(),
        Dtype::F16 => bytemuck::cast_slice(&a.to_vec::<half::f16>().unwrap()).to_vec(),
        other => panic!("no bytes of {other}"),
    }
}

/// Writes named arrays as one safetensors file.
pub fn write(path: &Path, tensors: &[(String, Array)]) {
    let data: Vec<(String, safetensors::Dtype, Vec<usize>, Vec<u8>)> = tensors
        .iter()
        .map(|(name, a)| {
            let dtype = match a.dtype() {
                Dtype::U32 => safetensors::Dtype::U32,
                Dtype::F32 => safetensors::Dtype::F32,
                Dtype::Bf16 => safetensors::Dtype::BF16,
                Dtype::F16 => safetensors::Dtype::F16,
                other => panic!("no file type for {other}"),
            };
            (name.clone(), dtype, a.shape().iter().map(|d| *d as usize).collect(), bytes(a))
        })
        .collect();
    let views = data.iter().map(|(n, d, s, b)| (n.clone(), safetensors::tensor::TensorView::new(*d, s.clone(), b).unwrap()));
    safetensors::serialize_to_file(views, None, path).unwrap();
}

/// All tensors of a safetensors file as arrays.
pub fn read(path: &Path) -> Vec<(String, Array)> {
    let raw = std::fs::read(path).unwrap();
    let file = safetensors::SafeTensors::deserialize(&raw).unwrap();
    file.tensors()
        .into_iter()
        .map(|(name, t)| {
            let dtype = match t.dtype() {
                safetensors::Dtype::U32 => Dtype::U32,
                safetensors::Dtype::F32 => Dtype::F32,
                safetensors::Dtype::BF16 => Dtype::Bf16,
                safetensors::Dtype::F16 => Dtype::F16,
                other => panic!("no array type for {other:?}"),
            };
            (name, Array::from_bytes(t.data(), t.shape(), dtype).unwrap())
        })
        .collect()
}

/// A model whose placement the test decides.
pub fn load_placed(folder: &Path, placement: rmlx_engine::registry::Placement) -> Resident {
    let snapshot = Snapshot::open(folder).unwrap();
    rmlx_engine::registry::build("test", &snapshot, placement, &mut |_, _| ControlFlow::Continue(())).unwrap()
}

/// An answer as its reader saw it.
#[derive(Debug, Default)]
pub struct Answer {
    pub text: String,
    pub ids: Vec<u32>,
    pub logprobs: Vec<api::TokenLogprob>,
    pub finished: Option<api::Finished>,
    pub failed: Option<api::ErrorInfo>,
    pub loaded: bool,
}

impl Answer {
    /// Reads to the end. Nothing may come after the last event.
    pub fn read(reader: rmlx_engine::engine::Reader) -> Self {
        let mut answer = Self::default();
        for event in reader {
            assert!(answer.finished.is_none() && answer.failed.is_none(), "{event:?} after {answer:?}");
            match event {
                api::Event::Text { delta } => answer.text.push_str(&delta),
                api::Event::Token { id, logprob } => {
                    answer.ids.push(id);
                    answer.logprobs.extend(logprob);
                }
                api::Event::Finished(finished) => answer.finished = Some(finished),
                api::Event::Failed(error) => answer.failed = Some(error),
                api::Event::Loaded => answer.loaded = true,
                api::Event::Loading { .. } | api::Event::Prefill { .. } => {}
            }
        }
        answer
    }

    #[track_caller]
    pub fn finished(&self) -> &api::Finished {
        self.finished.as_ref().unwrap_or_else(|| panic!("it did not finish: {self:?}"))
    }

    #[track_caller]
    pub fn code(&self) -> &str {
        self.failed.as_ref().map_or_else(|| panic!("it did not fail: {self:?}"), |e| &e.code)
    }
}

/// The engine on the CPU in f32 throughout.
pub fn engine(max_ctx: Option<usize>) -> rmlx_engine::engine::Engine {
    let options = api::Options { device: api::Device::Cpu, exact: true, max_ctx, ..api::Options::default() };
    rmlx_engine::engine::Engine::start(options).expect("an engine")
}

/// A request for ids after ids: greedy unless changed.
pub fn request(prompt: Vec<u32>) -> api::Request {
    let mut request = api::Request::new(api::Prompt::Tokens(prompt));
    request.sampling.temperature = Some(0.0);
    request.token_ids = true;
    request
}
