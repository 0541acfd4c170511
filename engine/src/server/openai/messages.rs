//! Messages on their way to a chat template.

use serde_json::Value;

use crate::api::Message;
use crate::server::errors::{ApiError, ApiResult};
use crate::server::fields::{Fields, wrong_type};

/// The messages of a body, with neighbours of the same role made one.
pub fn read(list: &[Value]) -> ApiResult<Vec<Message>> {
    if list.is_empty() {
        return Err(ApiError::value("messages", "messages is empty: a conversation needs at least one"));
    }
    let one = |(i, value)| message(value, &format!("messages[{i}]"));
    let messages = list.iter().enumerate().map(one).collect::<ApiResult<Vec<_>>>()?;
    Ok(merged(messages))
}

fn message(value: &Value, at: &str) -> ApiResult<Message> {
    let fields = Fields::of(value, at)?;
    let role = fields.text("role")?.ok_or_else(|| fields.missing("role"))?;
    let role = match role {
        "system" | "developer" => "system",
        "user" | "assistant" => role,
        "tool" | "function" => {
            return Err(ApiError::unsupported(fields.path("role"), "this version knows no tools, so no results of tools"));
        }
        other => {
            let message = format!("{} is {other:?}, and must be system, developer, user or assistant", fields.path("role"));
            return Err(ApiError::value(fields.path("role"), message));
        }
    };
    for field in ["tool_calls", "function_call", "audio"] {
        if fields.get(field).is_some_and(|v| v.as_array().is_none_or(|list| !list.is_empty())) {
            let path = fields.path(field);
            let message = format!("{path} cannot be honoured: this version knows no tools and no sound");
            return Err(ApiError::unsupported(path, message));
        }
    }
    if value.get("content").is_none() && role != "assistant" {
        return Err(fields.missing("content"));
    }
    Ok(Message::new(role, content(fields)?))
}

fn content(fields: Fields) -> ApiResult<String> {
    let path = fields.path("content");
    match fields.get("content") {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(parts)) => {
            let texts = parts.iter().enumerate().map(|(i, part)| part_text(part, &format!("{path}[{i}]")));
            Ok(texts.collect::<ApiResult<Vec<_>>>()?.join("\n"))
        }
        Some(other) => Err(wrong_type(&path, "a string, null or an array of parts", other)),
    }
}

fn part_text<'a>(part: &'a Value, at: &str) -> ApiResult<&'a str> {
    let fields = Fields::of(part, at)?;
    let kind = fields.text("type")?.ok_or_else(|| fields.missing("type"))?;
    let sense = match kind {
        "text" | "refusal" => return fields.text(kind)?.ok_or_else(|| fields.missing(kind)),
        "image_url" | "image" | "input_image" => "this model cannot see images",
        "input_audio" | "audio_url" => "this model cannot hear",
        "video_url" => "this model cannot see videos",
        "file" | "input_file" => "this model cannot read files",
        other => {
            let message = format!("{} is {other:?}, which this version does not know", fields.path("type"));
            return Err(ApiError::value(fields.path("type"), message));
        }
    };
    Err(ApiError::unsupported(at, format!("{sense}: send text")))
}

fn merged(messages: Vec<Message>) -> Vec<Message> {
    let mut merged: Vec<Message> = Vec::with_capacity(messages.len());
    for message in messages {
        match merged.last_mut().filter(|last| last.role == message.role) {
            Some(last) => {
                last.content.push_str("\n\n");
                last.content.push_str(&message.content);
            }
            None => merged.push(message),
        }
    }
    merged
}

/// The conversation in plainer forms, for templates that refuse it as it is: first with later system messages said by the
/// user, then also without a system message of its own at the start.
pub fn plainer(messages: &[Message]) -> Vec<Vec<Message>> {
    let user = |message: &Message| match message.role.as_str() {
        "system" => Message::new("user", message.content.as_str()),
        _ => message.clone(),
    };
    let (first, rest) = messages.split_at(messages.len().min(1));
    let later: Vec<Message> = first.iter().cloned().chain(rest.iter().map(user)).collect();
    let all: Vec<Message> = messages.iter().map(user).collect();
    let mut forms = vec![merged(later), merged(all)];
    forms.dedup();
    forms.retain(|form| form != messages);
    forms
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(messages: &[Message]) -> Vec<(&str, &str)> {
        messages.iter().map(|m| (m.role.as_str(), m.content.as_str())).collect()
    }

    #[test]
    fn neighbours_of_one_role_are_one_message() {
        let list = json!([
            { "role": "system", "content": "a" },
            { "role": "developer", "content": [{ "type": "text", "text": "b" }, { "type": "text", "text": "c" }] },
            { "role": "user", "content": "d", "name": "x" },
            { "role": "user", "content": "e" },
            { "role": "assistant", "content": null, "tool_calls": [], "refusal": null },
            { "role": "assistant" },
            { "role": "user", "content": [] },
        ]);
        let messages = read(list.as_array().unwrap()).unwrap();
        assert_eq!(said(&messages), [("system", "a\n\nb\nc"), ("user", "d\n\ne"), ("assistant", "\n\n"), ("user", "")]);
    }

    #[test]
    fn plainer_forms() {
        let m = |role: &str, content: &str| Message::new(role, content);
        let plain = [m("user", "a"), m("assistant", "b"), m("user", "c")];
        assert!(plainer(&plain).is_empty());
        let led = [m("system", "s"), m("user", "a")];
        assert_eq!(plainer(&led), [[m("user", "s\n\na")]]);
        let mixed = [m("system", "s"), m("user", "a"), m("system", "t"), m("assistant", "b"), m("system", "u")];
        let forms = plainer(&mixed);
        assert_eq!(said(&forms[0]), [("system", "s"), ("user", "a\n\nt"), ("assistant", "b"), ("user", "u")]);
        assert_eq!(said(&forms[1]), [("user", "s\n\na\n\nt"), ("assistant", "b"), ("user", "u")]);
        assert_eq!(forms.len(), 2);
    }
}
