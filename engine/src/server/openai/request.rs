//! The body of a chat completion. `docs/http.md` lists the fields.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::messages;
use crate::api::{Message, Sampling};
use crate::server::errors::{ApiError, ApiResult};
use crate::server::fields::{Fields, wrong_type};

#[derive(Debug)]
pub struct ChatRequest {
    pub model: String,
    pub messages: Vec<Message>,
    /// For the chat template.
    pub variables: Map<String, Value>,
    pub sampling: Sampling,
    pub max_tokens: Option<usize>,
    pub stop: Vec<String>,
    pub logprobs: Option<usize>,
    pub stream: bool,
    pub include_usage: bool,
}

const MOST_STOPS: usize = 4;
const MOST_TOP_LOGPROBS: i64 = 20;
const EFFORTS: [&str; 6] = ["none", "minimal", "low", "medium", "high", "xhigh"];
const PENALTY: RangeInclusive<f64> = -2.0..=2.0;
const SHARE: RangeInclusive<f64> = 0.0..=1.0;

impl ChatRequest {
    pub fn read(body: &Value) -> ApiResult<Self> {
        let fields = Fields::of(body, "")?;
        refuse_what_cannot_be_honoured(fields)?;
        let list = fields.list("messages")?.ok_or_else(|| fields.missing("messages"))?;
        let options = fields.get("stream_options").map(|options| Fields::of(options, "stream_options")).transpose()?;
        let include_usage = options.map(|o| o.flag("include_usage")).transpose()?.flatten();
        let stream = fields.flag("stream")?.unwrap_or(false);
        if options.is_some() && !stream {
            return Err(ApiError::value("stream_options", "stream_options is for streams: set stream to true"));
        }
        Ok(Self {
            model: fields.text("model")?.ok_or_else(|| fields.missing("model"))?.into(),
            messages: messages::read(list)?,
            variables: variables(fields)?,
            sampling: sampling(fields)?,
            max_tokens: max_tokens(fields)?,
            stop: stop(fields)?,
            logprobs: logprobs(fields)?,
            stream,
            include_usage: include_usage.unwrap_or(false),
        })
    }
}

fn sampling(fields: Fields) -> ApiResult<Sampling> {
    Ok(Sampling {
        temperature: fields.number("temperature", 0.0..=2.0)?,
        top_p: fields.number("top_p", SHARE)?,
        // -1 is a customary way to say "off".
        top_k: fields.whole("top_k", -1..=i64::from(u32::MAX))?.map(|k| u32::try_from(k).unwrap_or(0)),
        min_p: fields.number("min_p", SHARE)?,
        repetition_penalty: fields.number("repetition_penalty", 0.01..=100.0)?,
        presence_penalty: fields.number("presence_penalty", PENALTY)?,
        frequency_penalty: fields.number("frequency_penalty", PENALTY)?,
        logit_bias: logit_bias(fields)?,
        seed: seed(fields)?,
    })
}

/// Any whole number of 64 bits, with or without a sign.
fn seed(fields: Fields) -> ApiResult<Option<u64>> {
    match fields.get("seed").map(|v| (v, v.as_u64())) {
        Some((_, Some(seed))) => Ok(Some(seed)),
        Some(_) => Ok(fields.whole("seed", i64::MIN..=i64::MAX)?.map(|seed| seed as u64)),
        None => Ok(None),
    }
}

fn logit_bias(fields: Fields) -> ApiResult<Vec<(u32, f32)>> {
    let Some(map) = fields.object("logit_bias")? else { return Ok(Vec::new()) };
    let entries = Fields::of(fields.get("logit_bias").unwrap_or(&Value::Null), "logit_bias")?;
    let one = |id: &String| {
        let token = id.parse().map_err(|_| ApiError::value(entries.path(id), format!("{id:?} in logit_bias is no token id")))?;
        Ok((token, entries.number(id, -100.0..=100.0)?.unwrap_or(0.0)))
    };
    map.keys().map(one).collect()
}

/// Where both are given, both hold.
fn max_tokens(fields: Fields) -> ApiResult<Option<usize>> {
    let mut least = None;
    for name in ["max_completion_tokens", "max_tokens"] {
        let limit = fields.whole(name, 1..=i64::MAX)?.map(|n| usize::try_from(n).unwrap_or(usize::MAX));
        least = [least, limit].into_iter().flatten().min();
    }
    Ok(least)
}

fn stop(fields: Fields) -> ApiResult<Vec<String>> {
    let texts = match fields.get("stop") {
        None => return Ok(Vec::new()),
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(list)) => {
            let one = |(i, v): (usize, &Value)| match v {
                Value::String(text) => Ok(text.clone()),
                other => Err(wrong_type(&format!("stop[{i}]"), "a string", other)),
            };
            list.iter().enumerate().map(one).collect::<ApiResult<_>>()?
        }
        Some(other) => return Err(wrong_type("stop", "a string or an array of strings", other)),
    };
    if texts.len() > MOST_STOPS {
        return Err(ApiError::value("stop", format!("stop has {} texts; at most {MOST_STOPS} are allowed", texts.len())));
    }
    if texts.iter().any(String::is_empty) {
        return Err(ApiError::value("stop", "a stop text is empty"));
    }
    Ok(texts)
}

fn logprobs(fields: Fields) -> ApiResult<Option<usize>> {
    let wanted = fields.flag("logprobs")?.unwrap_or(false);
    let top = fields.whole("top_logprobs", 0..=MOST_TOP_LOGPROBS)?;
    match (wanted, top) {
        (true, top) => Ok(Some(top.unwrap_or(0) as usize)),
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => Err(ApiError::value("top_logprobs", "top_logprobs needs logprobs: true")),
    }
}

/// What the chat template sees beside the messages.
fn variables(fields: Fields) -> ApiResult<Map<String, Value>> {
    let mut variables = Map::new();
    if let Some(effort) = fields.text("reasoning_effort")? {
        if !EFFORTS.contains(&effort) {
            let message = format!("reasoning_effort is {effort:?}, and must be one of: {}", EFFORTS.join(", "));
            return Err(ApiError::value("reasoning_effort", message));
        }
        if effort == "none" {
            variables.insert("enable_thinking".into(), false.into());
        }
        variables.insert("reasoning_effort".into(), effort.into());
    }
    let own = ["messages", "add_generation_prompt", "tools", "documents"];
    for (name, value) in fields.object("chat_template_kwargs")?.into_iter().flatten() {
        if own.contains(&name.as_str()) {
            let message = format!("chat_template_kwargs cannot set {name}");
            return Err(ApiError::unsupported(format!("chat_template_kwargs.{name}"), message));
        }
        variables.insert(name.clone(), value.clone());
    }
    Ok(variables)
}

/// Fields that would change the answer's meaning. The values that change nothing are fine.
fn refuse_what_cannot_be_honoured(fields: Fields) -> ApiResult<()> {
    let refuse = |name: &str, why: &str| Err(ApiError::unsupported(name, format!("{name} cannot be honoured: {why}")));
    for name in ["tools", "functions"] {
        if fields.list(name)?.is_some_and(|tools| !tools.is_empty()) {
            return refuse(name, "this version knows no tools");
        }
    }
    for name in ["tool_choice", "function_call"] {
        if fields.get(name).is_some_and(|choice| !matches!(choice.as_str(), Some("none" | "auto"))) {
            return refuse(name, "this version knows no tools");
        }
    }
    if let Some(format) = fields.get("response_format") {
        let format = Fields::of(format, "response_format")?;
        match format.text("type")?.ok_or_else(|| format.missing("type"))? {
            "text" => {}
            kind => return refuse("response_format", &format!("this version writes text only, not {kind}")),
        }
    }
    if let Some(modalities) = fields.list("modalities")?
        && modalities.iter().any(|m| m != "text")
    {
        return refuse("modalities", "this version writes text only");
    }
    if fields.whole("n", 1..=i64::MAX)?.is_some_and(|n| n != 1) {
        return refuse("n", "this version makes one answer for a request");
    }
    if fields.text("verbosity")?.is_some_and(|v| v != "medium") {
        return refuse("verbosity", "a local model is told so in its messages");
    }
    for (names, why) in [
        (&["audio"][..], "this version does not speak"),
        (&["web_search_options"], "this version does not search"),
        (
            &["guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs", "json_schema", "grammar"],
            "this version writes free text only",
        ),
    ] {
        if let Some(name) = names.iter().find(|name| fields.get(name).is_some()) {
            return refuse(name, why);
        }
    }
    Ok(())
}
