//! Bodies as they go over the wire.

use serde_json::{Value, json};

use crate::client::{Frame, Server, Stream, body, chat, get, only, utf8_model};

/// What differs from run to run.
fn redacted(mut body: Value) -> Value {
    fn walk(value: &mut Value) {
        match value {
            Value::Object(map) => {
                for (name, value) in map {
                    match name.as_str() {
                        "id" | "model" => assert!(value.as_str().is_some_and(|v| !v.is_empty())),
                        "created" => assert!(value.as_u64().is_some_and(|v| v > 1_600_000_000 && v < 100_000_000_000)),
                        "system_fingerprint" => assert!(value.as_str().is_some_and(|v| v.starts_with("rmlx-"))),
                        "logprob" => assert!(value.as_f64().is_some_and(|v| v <= 0.0)),
                        _ => {
                            walk(value);
                            continue;
                        }
                    }
                    *value = format!("[{name}]").into();
                }
            }
            Value::Array(list) => list.iter_mut().for_each(walk),
            _ => {}
        }
    }
    walk(&mut body);
    body
}

fn frames(stream: Stream) -> Value {
    let one = |frame| match frame {
        Frame::Data(data) => redacted(data),
        Frame::Done => "[DONE]".into(),
        // A slow machine may be silent for five seconds.
        Frame::Comment(_) => Value::Null,
    };
    stream.map(one).filter(|f| !f.is_null()).collect()
}

#[test]
fn an_answer_in_one_piece() {
    let server = Server::new();
    let answer = server.ask(json!({ "logit_bias": only('h'), "max_tokens": 3 }));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    insta::assert_json_snapshot!("whole", redacted(answer.ok()));
    let answer = server.ask(json!({ "logit_bias": only('h'), "stop": ["hh"], "logprobs": true, "top_logprobs": 1 }));
    let answer = redacted(answer.ok());
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert_eq!(answer["choices"][0]["message"]["content"], "");
    // The tokens of the stop text belong to no text.
    assert_eq!(answer["choices"][0]["logprobs"]["content"], json!([]));
    let answer = server.ask(json!({ "logit_bias": only('h'), "max_tokens": 2, "logprobs": true, "top_logprobs": 0 }));
    insta::assert_json_snapshot!("logprobs", redacted(answer.ok())["choices"][0]["logprobs"]);
}

#[test]
fn an_answer_as_a_stream() {
    let server = Server::new();
    // One token: how many share a chunk is a matter of who is quicker.
    let stream = server.stream(json!({ "logit_bias": only('h'), "max_tokens": 1, "stream_options": {} }));
    let header = |name: &str| stream.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
    assert_eq!((stream.status, header("content-type"), header("content-encoding")), (200, Some("text/event-stream"), None));
    insta::assert_json_snapshot!("stream", frames(stream));
    let options = json!({ "include_usage": true });
    let more = json!({ "logit_bias": only('h'), "max_tokens": 1, "logprobs": true, "stream_options": options });
    insta::assert_json_snapshot!("stream_usage_logprobs", frames(server.stream(more)));
}

/// The ids of one stream are the same, and those of two differ.
#[test]
fn ids_are_fresh() {
    let server = Server::new();
    let ids = |stream: Stream| -> Vec<String> {
        let id = |frame| match frame {
            Frame::Data(data) => Some(data["id"].as_str().unwrap().to_owned()),
            _ => None,
        };
        let mut ids: Vec<String> = stream.filter_map(id).collect();
        ids.dedup();
        ids
    };
    let (one, other) = (ids(server.stream(json!({}))), ids(server.stream(json!({}))));
    assert_eq!((one.len(), other.len()), (1, 1));
    assert_ne!(one, other);
}

/// Bytes of a token, put together, are the text; each stands with its own alternatives.
#[test]
fn log_probabilities_add_up_to_the_text() {
    let server = Server::new();
    // Every byte of é and of € alone, and the letter a.
    let bias = utf8_bias();
    let more = json!({ "logprobs": true, "top_logprobs": 3, "logit_bias": bias, "max_tokens": 60, "temperature": 1.0 });
    let answer = chat(server.at(), &body(&utf8_model(), more)).ok();
    let choice = &answer["choices"][0];
    let entries = choice["logprobs"]["content"].as_array().unwrap();
    let bytes: Vec<u8> = entries.iter().flat_map(|e| e["bytes"].as_array().unwrap()).map(|b| b.as_u64().unwrap() as u8).collect();
    assert_eq!(String::from_utf8_lossy(&bytes), choice["message"]["content"].as_str().unwrap());
    assert!(entries.iter().all(|e| e["top_logprobs"].as_array().unwrap().len() == 3), "{entries:?}");
}

/// Makes the fixture's model write bytes of a few characters in any order.
pub fn utf8_bias() -> Value {
    let tokenizer = crate::support::json(&crate::support::fixtures().join("oracles/llama/tokenizer.json"));
    // As byte-level vocabularies write C3, A9, a.
    let id = |letter: &str| tokenizer["model"]["vocab"][letter].as_u64().unwrap().to_string();
    json!({ (id("Ã")): 100, (id("©")): 100, (id("a")): 98 })
}

#[test]
fn usage_is_exact() {
    let server = Server::new();
    // The template puts `<|im_start|>user\n` before and `<|im_end|>\n<|im_start|>assistant\n` after; one token a letter.
    let prompt = 1 + "user\n".len() + "hello".len() + 1 + 1 + 1 + "assistant\n".len();
    let more = json!({ "messages": [{ "role": "user", "content": "hello" }], "logit_bias": only('x'), "max_tokens": 5 });
    let usage = &server.ask(more.clone()).ok()["usage"];
    let expected = json!({
        "prompt_tokens": prompt, "completion_tokens": 5, "total_tokens": prompt + 5, "prompt_tokens_details": { "cached_tokens": 0 },
    });
    assert_eq!(usage, &expected);
    let mut streamed = more;
    streamed["stream_options"] = json!({ "include_usage": true });
    let chunks: Vec<Value> =
        server.stream(streamed).filter_map(|f| if let Frame::Data(d) = f { Some(d) } else { None }).collect();
    let with_usage: Vec<&Value> = chunks.iter().filter(|c| !c["usage"].is_null()).collect();
    assert_eq!(with_usage.len(), 1);
    assert_eq!((&with_usage[0]["usage"], &with_usage[0]["choices"]), (&expected, &json!([])));
    assert_eq!(chunks.last(), Some(with_usage[0]));
}

#[test]
fn health_and_models() {
    let server = Server::new();
    let health = get(server.at(), "/health").ok();
    let expected = json!({
        "status": "ok", "version": env!("CARGO_PKG_VERSION"), "engine": "idle", "model": null, "loading": null, "running": 0,
    });
    assert_eq!(health, expected);
    server.ask(json!({})).ok();
    assert_eq!(get(server.at(), "/health").ok()["model"], json!(server.tiny()));
    let models = get(server.at(), "/v1/models").ok();
    assert_eq!(models["object"], "list");
    let id = server.tiny();
    let ours = models["data"].as_array().unwrap().iter().find(|m| m["id"] == json!(id)).unwrap();
    assert_eq!((&ours["object"], &ours["max_model_len"]), (&json!("model"), &json!(32768)));
    // The slashes of an id, as they are and encoded.
    for path in [id.clone(), id.replace('/', "%2F")] {
        assert_eq!(&get(server.at(), &format!("/v1/models/{path}")).ok(), ours);
    }
    let missing = get(server.at(), "/v1/models/org%2Fmissing");
    assert_eq!(missing.error(), (404, Some("model".into()), "model_not_found".into()));
    assert!(missing.body.contains(&id), "{missing:?}");
}

/// What a template that refuses a conversation sees instead.
#[test]
fn conversations_that_templates_refuse_are_put_plainly() {
    let server = Server::new();
    let strict = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}\
        {% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('must alternate') }}{% endif %}\
        {{ m.content }}|{% endfor %}";
    let tokenizer = std::path::Path::new(&server.tiny()).join("tokenizer_config.json");
    let mut config = crate::support::json(&tokenizer);
    config["chat_template"] = strict.into();
    std::fs::write(&tokenizer, config.to_string()).unwrap();
    let m = |role: &str, content: &str| json!({ "role": role, "content": content });
    let asked = |messages: Value| server.ask(json!({ "messages": messages, "max_tokens": 1 }));
    // One token a letter shows what was rendered.
    let tokens = |messages| asked(messages).ok()["usage"]["prompt_tokens"].as_u64().unwrap() as usize;
    assert_eq!(tokens(json!([m("user", "a"), m("user", "b")])), "a\n\nb|".len());
    assert_eq!(tokens(json!([m("developer", "s"), m("user", "a"), m("assistant", "b"), m("user", "c")])), "s\n\na|b|c|".len());
    assert_eq!(tokens(json!([m("user", "a"), m("system", "s"), m("assistant", "b"), m("user", "c")])), "a\n\ns|b|c|".len());
    assert_eq!(asked(json!([m("assistant", "a")])).error(), (400, Some("messages".into()), "template".into()));
}
