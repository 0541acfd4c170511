//! What snapshots are, from their files alone.

use crate::api::{ModelEntry, ModelInfo, ModelSource, Quantization};
use crate::arch;
use crate::config::ModelConfig;
use crate::error::Result;
use crate::hub::{self, Library, Place, Snapshot, Weights};
use crate::text::{ChatTemplate, Tokenizer, stop_ids};

pub fn info(model: &str) -> Result<ModelInfo> {
    let folder = hub::resolve(model)?;
    let snapshot = Snapshot::open(&folder)?;
    let config = snapshot.model_config()?;
    let architecture = arch::find(&config)?.name;
    let weights = snapshot.weights()?;
    let tokenizer = Tokenizer::load(&folder)?;
    Ok(ModelInfo {
        name: if model == "starter" { hub::STARTER } else { model }.into(),
        architecture: architecture.into(),
        parameters: parameters(&config, &weights),
        bytes: weights.total_bytes(),
        quantization: quantization(&config),
        weights_dtype: weights_dtype(&weights),
        context_length: Some(config.context_capacity()),
        hidden: config.hidden_size,
        layers: config.num_layers,
        heads: config.num_heads,
        kv_heads: config.num_kv_heads,
        head_dim: config.head_dim,
        vocab: config.vocab_size,
        tied_embeddings: config.tie_word_embeddings.unwrap_or(false),
        has_chat_template: !ChatTemplate::load(&folder)?.is_none(),
        stop_ids: stop_ids(&folder, &tokenizer)?.into_iter().collect(),
        kv_bytes_per_token: 2 * 2 * (config.num_layers * config.num_kv_heads * config.head_dim) as u64,
        folder,
    })
}

/// Whether this version has an architecture for a class of `config.json`.
///
/// # Errors
/// [`crate::error::Error::Unsupported`] names those that it has.
pub fn knows(class: &str) -> Result<()> {
    arch::named(class).map(|_| ())
}

/// Whether this version would build a model of this configuration.
///
/// # Errors
/// [`crate::error::Error::Unsupported`] says what it lacks.
pub fn runs(config: &ModelConfig) -> Result<()> {
    arch::find(config).map(|_| ())
}

/// Weights before packing: a packed matrix stands for as many as its groups have scales times their size.
fn parameters(config: &ModelConfig, weights: &Weights) -> u64 {
    let count = |shape: &[usize]| shape.iter().map(|d| *d as u64).product::<u64>();
    let one = |(name, info): (&str, &hub::safetensors::TensorInfo)| {
        if name.ends_with(".scales") || name.ends_with(".biases") {
            return 0;
        }
        let module = name.strip_suffix(".weight").unwrap_or(name);
        let packed = weights.get(&format!("{module}.scales")).zip(config.quantization.as_ref().and_then(|q| q.of(module)));
        match packed {
            Some((scales, quant)) => count(&scales.shape) * quant.group_size as u64,
            None => count(&info.shape),
        }
    };
    weights.iter().map(one).sum()
}

fn quantization(config: &ModelConfig) -> Option<Quantization> {
    let q = config.quantization.as_ref()?;
    let main = q.default.or_else(|| q.overrides.values().flatten().next().copied())?;
    Some(Quantization {
        mode: main.mode.name().into(),
        bits: main.bits,
        group_size: main.group_size as u32,
        mixed: q.overrides.values().any(|o| *o != Some(main)),
    })
}

/// The type of most tensors that are not packed.
fn weights_dtype(weights: &Weights) -> String {
    use hub::safetensors::Dtype;
    let count = |d| weights.iter().filter(|(_, info)| info.dtype == d).count();
    let floats = [Dtype::F32, Dtype::F16, Dtype::Bf16];
    floats.into_iter().max_by_key(|d| count(*d)).map_or_else(String::new, |d| d.name().to_lowercase())
}

pub fn list(library: &Library) -> Result<Vec<ModelEntry>> {
    let entry = |e: hub::Entry| {
        let unknown = e.architecture.as_deref().and_then(|class| knows(class).err());
        ModelEntry {
            // A template that cannot be read is a problem of its own, which the first question names.
            has_chat_template: ChatTemplate::load(&e.folder).map_or(true, |template| !template.is_none()),
            name: e.name,
            folder: e.folder,
            bytes: e.bytes,
            architecture: e.architecture,
            quantization: e.quantization,
            source: match e.place {
                Place::Models => ModelSource::Own,
                Place::HuggingFace => ModelSource::HuggingFace,
                Place::Folder => ModelSource::Folder,
            },
            // What is whole on the disk still cannot run without its architecture.
            problem: e.problem.or_else(|| unknown.map(|e| e.to_string())),
        }
    };
    Ok(library.list().into_iter().map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_of_an_unknown_architecture_is_listed_with_the_reason() {
        let home = tempfile::tempdir().unwrap();
        let library = Library { models: home.path().to_owned(), hugging_face: home.path().join("none"), folder: None };
        for class in ["LlamaForCausalLM", "Mamba2ForCausalLM"] {
            let folder = home.path().join(class);
            std::fs::create_dir(&folder).unwrap();
            let header = r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#;
            let weights = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &[0; 4]].concat();
            std::fs::write(folder.join("config.json"), format!(r#"{{"architectures": ["{class}"]}}"#)).unwrap();
            std::fs::write(folder.join("model.safetensors"), weights).unwrap();
            std::fs::write(folder.join("tokenizer.json"), "{}").unwrap();
        }
        let problems: Vec<_> = list(&library).unwrap().into_iter().map(|model| model.problem).collect();
        let [known, unknown] = &problems[..] else { panic!("{problems:?}") };
        assert_eq!(known, &None);
        assert!(unknown.as_ref().is_some_and(|why| why.contains("Mamba2ForCausalLM")), "{unknown:?}");
    }
}
