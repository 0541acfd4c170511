//! Searching the hub for models.

use serde::Deserialize;

use super::plan;
use super::remote::{Remote, check_repo};
use super::snapshot::{INDEX, SINGLE};
use crate::api::HubModel;
use crate::config::printable;
use crate::error::{Error, HubCause, Result};

/// Bytes of an answer: the listing of a model has some 10 KB.
const MOST: u64 = 32 << 20;
/// Characters of what is searched for.
const LONGEST: usize = 200;

/// What the hub says of one model. Everything but its name may be missing.
#[derive(Debug, Deserialize)]
struct Hit {
    id: String,
    downloads: Option<u64>,
    likes: Option<u64>,
    pipeline_tag: Option<String>,
    /// `false`, or how access is given.
    #[serde(default)]
    gated: serde_json::Value,
    #[serde(rename = "lastModified")]
    last_modified: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    siblings: Option<Vec<Sibling>>,
    config: Option<Config>,
}

#[derive(Debug, Deserialize)]
struct Sibling {
    rfilename: String,
}

#[derive(Debug, Default, Deserialize)]
struct Config {
    #[serde(default)]
    architectures: Vec<String>,
    quantization_config: Option<Quantization>,
    auto_map: Option<serde_json::Value>,
}

#[derive(Debug, Deserialize)]
struct Quantization {
    quant_method: Option<String>,
}

/// Models whose names have these words and that have safetensors, the most used first. `here` of the result is always false.
///
/// # Errors
/// [`Error::BadRequest`] for no words; [`Error::Hub`].
pub async fn search(remote: &Remote, words: &str, limit: usize, known: fn(&str) -> Result<()>) -> Result<Vec<HubModel>> {
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    if words.is_empty() || words.chars().count() > LONGEST {
        return Err(Error::BadRequest(format!("a search needs words of the model's name, at most {LONGEST} characters")));
    }
    let limit = limit.to_string();
    let query = [
        ("search", words.as_str()),
        ("filter", "safetensors"),
        ("sort", "downloads"),
        ("direction", "-1"),
        ("limit", &limit),
        ("full", "true"),
        ("config", "true"),
    ];
    let bytes = remote.api("models", &query, "a search", MOST).await?;
    read(&bytes, known)
}

fn read(bytes: &[u8], known: fn(&str) -> Result<()>) -> Result<Vec<HubModel>> {
    let hits: Vec<serde_json::Value> = serde_json::from_slice(bytes).map_err(|e| Error::Hub {
        cause: HubCause::BadAnswer,
        message: printable(&format!("the hub's answer to a search was not a list of models: {e}")),
    })?;
    // One entry that is not as the others must not hide them.
    Ok(hits.into_iter().filter_map(|hit| serde_json::from_value(hit).ok()).filter_map(|hit| model(hit, known)).collect())
}

/// `None`: its name is none that anything could be fetched by.
fn model(hit: Hit, known: fn(&str) -> Result<()>) -> Option<HubModel> {
    check_repo(&hit.id).ok()?;
    let problem = problem(&hit, known).map(|e| e.to_string());
    Some(HubModel {
        downloads: hit.downloads,
        likes: hit.likes,
        task: hit.pipeline_tag.as_deref().map(printable),
        license: hit.tags.iter().find_map(|tag| tag.strip_prefix("license:")).map(printable),
        gated: !matches!(hit.gated, serde_json::Value::Bool(false) | serde_json::Value::Null),
        updated: hit.last_modified.as_deref().map(printable),
        problem,
        here: false,
        repo: hit.id,
    })
}

/// Why it would not run, as far as the listing shows that; the plan of a download looks closer.
fn problem(hit: &Hit, known: fn(&str) -> Result<()>) -> Option<Error> {
    if let Some(files) = &hit.siblings {
        let names = || files.iter().map(|f| f.rfilename.as_str());
        let readable = names().any(|n| n == SINGLE || n == INDEX);
        if !readable {
            return Some(plan::no_weights(names()));
        }
    }
    let config = hit.config.as_ref()?;
    if let Some(error) = plan::own_code(config.auto_map.as_ref()) {
        return Some(error);
    }
    if let Some(method) = config.quantization_config.as_ref().and_then(|q| q.quant_method.as_ref()) {
        return Some(Error::Unsupported(printable(&format!(
            "weights quantized with {method} are not supported\nhint: look for an MLX conversion of it (mlx-community)"
        ))));
    }
    known(config.architectures.first()?).err()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn known(class: &str) -> Result<()> {
        if class == "LlamaForCausalLM" { Ok(()) } else { Err(Error::Unsupported(format!("{class} is not known"))) }
    }

    #[test]
    fn hits_are_read_as_far_as_they_go() {
        let page = json!([
            {
                "_id": "1", "id": "mlx-community/Llama-4bit", "modelId": "mlx-community/Llama-4bit", "downloads": 12, "likes": 3,
                "pipeline_tag": "text-generation", "gated": "manual", "lastModified": "2025-01-02T03:04:05.000Z", "private": false,
                "tags": ["mlx", "safetensors", "license:llama3.2", "region:us"],
                "siblings": [{ "rfilename": "config.json" }, { "rfilename": "model.safetensors" }],
                "config": { "architectures": ["LlamaForCausalLM"], "model_type": "llama", "quantization_config": { "bits": 4 } },
            },
            { "id": "bare/one" },
            { "no": "id" },
            { "id": "../../etc" },
            { "id": "a/b\u{1b}[2J" },
            { "id": "odd/one", "pipeline_tag": "a\u{1b}b", "lastModified": "a\u{7}b" },
            5,
        ]);
        let found = read(page.to_string().as_bytes(), known).unwrap();
        let expected = HubModel {
            repo: "mlx-community/Llama-4bit".into(),
            downloads: Some(12),
            likes: Some(3),
            task: Some("text-generation".into()),
            license: Some("llama3.2".into()),
            gated: true,
            updated: Some("2025-01-02T03:04:05.000Z".into()),
            problem: None,
            here: false,
        };
        assert_eq!(found[0], expected);
        assert!(
            found[2]
                .task
                .as_ref()
                .zip(found[2].updated.as_ref())
                .is_some_and(|(t, u)| !format!("{t}{u}").contains(char::is_control))
        );
        assert_eq!((found.len(), found[1].repo.as_str(), found[1].gated, &found[1].problem), (3, "bare/one", false, &None));
    }

    #[test]
    fn what_cannot_run_says_why() {
        let files = |names: &[&str]| json!({ "siblings": names.iter().map(|n| json!({ "rfilename": n })).collect::<Vec<_>>() });
        for (hit, text) in [
            (files(&["a.gguf"]), "this is a GGUF repository"),
            (files(&["pytorch_model.bin", "config.json"]), "Python pickle"),
            (files(&["adapter_model.safetensors"]), "it is an adapter"),
            (json!({ "config": { "architectures": ["OtherForCausalLM"] } }), "OtherForCausalLM is not known"),
            (json!({ "config": { "quantization_config": { "quant_method": "gptq" } } }), "gptq"),
            (json!({ "config": { "architectures": ["LlamaForCausalLM"], "auto_map": { "AutoModel": "x" } } }), "its own code"),
        ] {
            let mut hit = hit;
            hit["id"] = json!("o/n");
            let found = read(json!([hit]).to_string().as_bytes(), known).unwrap();
            assert!(found[0].problem.as_ref().is_some_and(|p| p.contains(text)), "{text}: {found:?}");
        }
        let good =
            json!([{ "id": "o/n", "siblings": [{ "rfilename": "model.safetensors.index.json" }, { "rfilename": "a.gguf" }] }]);
        assert_eq!(read(good.to_string().as_bytes(), known).unwrap()[0].problem, None);
    }

    #[test]
    fn another_answer_is_an_error() {
        for text in ["", "{}", "<html>", "{\"error\": \"x\"}"] {
            assert_eq!(read(text.as_bytes(), known).unwrap_err().code(), "hub_bad_answer", "{text}");
        }
    }
}
