//! What a snapshot says about generating: the ids that end an answer, and the publisher's sampling.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value as Json;

use super::files::read_json;
use super::tokenizer::Tokenizer;
use crate::api::Sampling;
use crate::error::{Error, Result};

/// The ids that end an answer: `eos_token_id` of generation_config.json and of config.json (its `text_config` too), and the
/// tokenizer's `eos_token`. Publishers forget one or the other, so all of them count.
///
/// # Errors
/// [`Error::BadFile`] for a file that is not JSON, or an id that is not one.
pub fn stop_ids(folder: &Path, tokenizer: &Tokenizer) -> Result<BTreeSet<u32>> {
    let mut ids: BTreeSet<u32> = tokenizer.eos().into_iter().collect();
    for name in ["generation_config.json", "config.json"] {
        let path = folder.join(name);
        let Some(config) = read_json(folder, name)? else { continue };
        for holder in [Some(&config), config.get("text_config")].into_iter().flatten() {
            match holder.get("eos_token_id") {
                None | Some(Json::Null) => {}
                Some(value) => {
                    ids.extend(read_ids(value).ok_or_else(|| Error::bad_file(&path, format!("eos_token_id is {value}")))?)
                }
            }
        }
    }
    Ok(ids)
}

/// One id or a list of ids. -1 stands for none.
fn read_ids(value: &Json) -> Option<Vec<u32>> {
    let list = match value {
        Json::Array(list) => list.as_slice(),
        one => std::slice::from_ref(one),
    };
    let ids = list.iter().filter(|id| id.as_i64() != Some(-1));
    ids.map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok())).collect()
}

/// The publisher's sampling, from generation_config.json. A field is `None` where the file does not set it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GenerationDefaults {
    /// `Some(false)`: the publisher means greedy decoding.
    pub do_sample: Option<bool>,
    pub temperature: Option<f32>,
    pub top_p: Option<f32>,
    /// `None` also where the file turns it off with 0 or -1.
    pub top_k: Option<u32>,
    pub min_p: Option<f32>,
    pub repetition_penalty: Option<f32>,
}

impl GenerationDefaults {
    /// # Errors
    /// [`Error::BadFile`] for a value that is no number or outside its range. No file means no defaults.
    pub fn load(folder: &Path) -> Result<Self> {
        const NAME: &str = "generation_config.json";
        match read_json(folder, NAME)? {
            Some(config) => Self::from_config(&config).map_err(|reason| Error::bad_file(folder.join(NAME), reason)),
            None => Ok(Self::default()),
        }
    }

    fn from_config(config: &Json) -> Result<Self, String> {
        let value = |name: &str| config.get(name).filter(|v| !v.is_null());
        let number = |name: &str, allowed: fn(f64) -> bool| match value(name) {
            None => Ok(None),
            Some(v) => match v.as_f64().filter(|n| allowed(*n)) {
                Some(n) => Ok(Some(n)),
                None => Err(format!("{name} is {v}")),
            },
        };
        let single = |n: Option<f64>| n.map(|n| n as f32);
        Ok(Self {
            do_sample: value("do_sample").and_then(Json::as_bool),
            temperature: single(number("temperature", |n| (0.0..1e4).contains(&n))?),
            top_p: single(number("top_p", |n| n > 0.0 && n <= 1.0)?),
            top_k: number("top_k", |n| n.fract() == 0.0 && (-1.0..4e9).contains(&n))?.filter(|n| *n > 0.0).map(|n| n as u32),
            min_p: single(number("min_p", |n| (0.0..=1.0).contains(&n))?),
            repetition_penalty: single(number("repetition_penalty", |n| n > 0.0 && n < 1e4)?),
        })
    }

    /// Fills what the request left open. The temperature is 0 where the publisher means greedy decoding (`do_sample: false`), else
    /// the file's; where the file names none it stays open, and the sampler takes 1.
    pub fn fill(&self, sampling: &mut Sampling) {
        let temperature = if self.do_sample == Some(false) { Some(0.0) } else { self.temperature };
        sampling.temperature = sampling.temperature.or(temperature);
        sampling.top_p = sampling.top_p.or(self.top_p);
        sampling.top_k = sampling.top_k.or(self.top_k);
        sampling.min_p = sampling.min_p.or(self.min_p);
        sampling.repetition_penalty = sampling.repetition_penalty.or(self.repetition_penalty);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_request_comes_before_the_file() {
        let file = json!({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "eos_token_id": [1, 2]});
        let defaults = GenerationDefaults::from_config(&file).unwrap();
        let mut sampling = Sampling { top_p: Some(0.5), ..Sampling::default() };
        defaults.fill(&mut sampling);
        assert_eq!(sampling, Sampling { temperature: Some(0.6), top_p: Some(0.5), top_k: Some(20), ..Sampling::default() });
    }

    #[test]
    fn greedy_is_a_temperature_of_zero_and_an_absent_one_stays_open() {
        for (file, expected) in [
            (json!({"do_sample": false, "temperature": 0.7}), Some(0.0)),
            (json!({"do_sample": false}), Some(0.0)),
            (json!({"do_sample": true}), None),
            (json!({"temperature": null}), None),
            (json!({}), None),
        ] {
            let mut sampling = Sampling::default();
            GenerationDefaults::from_config(&file).unwrap().fill(&mut sampling);
            assert_eq!(sampling.temperature, expected, "{file}");
        }
    }

    #[test]
    fn values_outside_their_range_are_errors() {
        for file in [
            json!({"temperature": -1}),
            json!({"temperature": "warm"}),
            json!({"top_p": 0}),
            json!({"top_p": 1.5}),
            json!({"top_k": 1.5}),
            json!({"top_k": -2}),
            json!({"min_p": 2}),
            json!({"repetition_penalty": 0}),
        ] {
            assert!(GenerationDefaults::from_config(&file).is_err(), "{file}");
        }
        for off in [json!({"top_k": 0}), json!({"top_k": -1}), json!({"top_k": 0.0})] {
            assert_eq!(GenerationDefaults::from_config(&off).unwrap().top_k, None);
        }
    }

    #[test]
    fn ids_are_one_or_many() {
        assert_eq!(read_ids(&json!(7)), Some(vec![7]));
        assert_eq!(read_ids(&json!([7, 9])), Some(vec![7, 9]));
        assert_eq!(read_ids(&json!(-1)), Some(vec![]));
        assert_eq!(read_ids(&json!("7")), None);
        assert_eq!(read_ids(&json!([7, 1u64 << 40])), None);
    }
}
