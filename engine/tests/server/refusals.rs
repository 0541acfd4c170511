//! What is refused, and how.

use std::time::Duration;

use proptest::prelude::*;
use rmlx_engine::server::Limits;
use serde_json::{Value, json};

use crate::client::{Server, chat, get, post, send};

#[test]
fn wrong_bodies() {
    let server = Server::new();
    let message =
        |content: Value| json!({ "messages": [{ "role": "user", "content": "a" }, { "role": "user", "content": content }] });
    let role = |role: &str| json!({ "messages": [{ "role": role, "content": "a" }] });
    let part = |part: Value| json!({ "messages": [{ "role": "user", "content": [part] }] });
    let (kind, value, missing, cannot) = ("invalid_type", "invalid_value", "missing_required_parameter", "unsupported_parameter");
    for (more, param, code) in [
        (json!({ "model": null }), "model", missing),
        (json!({ "model": 7 }), "model", kind),
        (json!({ "messages": null }), "messages", missing),
        (json!({ "messages": "hi" }), "messages", kind),
        (json!({ "messages": [] }), "messages", value),
        (json!({ "messages": ["hi"] }), "messages[0]", kind),
        (json!({ "messages": [{ "content": "a" }] }), "messages[0].role", missing),
        (json!({ "messages": [{ "role": "user" }] }), "messages[0].content", missing),
        (role("wizard"), "messages[0].role", value),
        (role("tool"), "messages[0].role", cannot),
        (json!({ "messages": [{ "role": "assistant", "tool_calls": [{}] }] }), "messages[0].tool_calls", cannot),
        (message(json!(7)), "messages[1].content", kind),
        (message(json!({})), "messages[1].content", kind),
        (message(json!([7])), "messages[1].content[0]", kind),
        (message(json!([{ "text": "a" }])), "messages[1].content[0].type", missing),
        (message(json!([{ "type": "text" }])), "messages[1].content[0].text", missing),
        (message(json!([{ "type": "text", "text": 7 }])), "messages[1].content[0].text", kind),
        (part(json!({ "type": "image_url", "image_url": { "url": "data:," } })), "messages[0].content[0]", cannot),
        (part(json!({ "type": "input_audio", "input_audio": {} })), "messages[0].content[0]", cannot),
        (part(json!({ "type": "hologram" })), "messages[0].content[0].type", value),
        (json!({ "stream": "yes" }), "stream", kind),
        (json!({ "stream_options": {} }), "stream_options", value),
        (json!({ "stream": true, "stream_options": { "include_usage": 1 } }), "stream_options.include_usage", kind),
        (json!({ "temperature": "warm" }), "temperature", kind),
        (json!({ "temperature": 2.5 }), "temperature", value),
        (json!({ "temperature": -0.1 }), "temperature", value),
        (json!({ "top_p": 1.1 }), "top_p", value),
        (json!({ "top_k": 1.5 }), "top_k", kind),
        (json!({ "top_k": -2 }), "top_k", value),
        (json!({ "min_p": -1 }), "min_p", value),
        (json!({ "repetition_penalty": 0 }), "repetition_penalty", value),
        (json!({ "presence_penalty": 2.1 }), "presence_penalty", value),
        (json!({ "frequency_penalty": true }), "frequency_penalty", kind),
        (json!({ "max_tokens": 0 }), "max_tokens", value),
        (json!({ "max_tokens": "8" }), "max_tokens", kind),
        (json!({ "max_completion_tokens": -1 }), "max_completion_tokens", value),
        (json!({ "seed": 1.5 }), "seed", kind),
        (json!({ "stop": 7 }), "stop", kind),
        (json!({ "stop": ["a", 7] }), "stop[1]", kind),
        (json!({ "stop": ["a", "b", "c", "d", "e"] }), "stop", value),
        (json!({ "stop": "" }), "stop", value),
        (json!({ "logit_bias": [] }), "logit_bias", kind),
        (json!({ "logit_bias": { "x": 1 } }), "logit_bias.x", value),
        (json!({ "logit_bias": { "5": "1" } }), "logit_bias.5", kind),
        (json!({ "logit_bias": { "5": 101 } }), "logit_bias.5", value),
        (json!({ "logit_bias": { "1000000": 1 } }), "logit_bias", "invalid_request"),
        (json!({ "logprobs": 1 }), "logprobs", kind),
        (json!({ "top_logprobs": 3 }), "top_logprobs", value),
        (json!({ "logprobs": true, "top_logprobs": 21 }), "top_logprobs", value),
        (json!({ "n": 2 }), "n", cannot),
        (json!({ "n": "1" }), "n", kind),
        (json!({ "tools": [{ "type": "function" }] }), "tools", cannot),
        (json!({ "functions": [{}] }), "functions", cannot),
        (json!({ "tool_choice": "required" }), "tool_choice", cannot),
        (json!({ "response_format": { "type": "json_object" } }), "response_format", cannot),
        (json!({ "response_format": { "type": "json_schema", "json_schema": {} } }), "response_format", cannot),
        (json!({ "response_format": {} }), "response_format.type", missing),
        (json!({ "modalities": ["text", "audio"] }), "modalities", cannot),
        (json!({ "audio": { "voice": "x" } }), "audio", cannot),
        (json!({ "web_search_options": {} }), "web_search_options", cannot),
        (json!({ "guided_json": {} }), "guided_json", cannot),
        (json!({ "verbosity": "high" }), "verbosity", cannot),
        (json!({ "reasoning_effort": "vast" }), "reasoning_effort", value),
        (json!({ "chat_template_kwargs": { "tools": [] } }), "chat_template_kwargs.tools", cannot),
        (json!({ "chat_template_kwargs": 1 }), "chat_template_kwargs", kind),
    ] {
        let refused = server.ask(more.clone());
        assert_eq!(refused.error(), (400, Some(param.into()), code.into()), "{more}: {refused:?}");
        assert_eq!(refused.json()["error"]["type"], "invalid_request_error");
    }
    for (body, code) in [("", "invalid_json"), ("{", "invalid_json"), ("[]", "invalid_type"), ("\u{feff}{}", "invalid_json")] {
        assert_eq!(send(server.at(), &post(body, "")).error(), (400, None, code.into()), "{body}");
    }
    let deep = format!("{{\"x\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(send(server.at(), &post(&deep, "")).error(), (400, None, "invalid_json".into()));
}

#[test]
fn what_is_accepted() {
    let server = Server::new();
    for more in [
        json!({ "user": "x", "metadata": { "a": "b" }, "store": true, "service_tier": "auto", "parallel_tool_calls": true }),
        json!({ "unknown": { "what": ["ever"] }, "tools": [], "tool_choice": "auto", "response_format": { "type": "text" } }),
        json!({ "n": 1, "temperature": 0, "top_k": -1, "min_p": 0.1, "repetition_penalty": 1.1, "modalities": ["text"] }),
        json!({ "temperature": 2, "top_p": 0.5, "presence_penalty": -2, "frequency_penalty": 2.0, "stop": [] }),
        json!({ "seed": -1, "max_completion_tokens": 3.0, "stop": ["a", "b", "c", "d"], "logit_bias": {} }),
        json!({ "reasoning_effort": "none", "chat_template_kwargs": { "enable_thinking": false }, "verbosity": "medium" }),
        json!({ "messages": [{ "role": "developer", "content": "be" }, { "role": "user", "content": [{ "type": "text", "text": "a" }] },
            { "role": "assistant", "content": null }, { "role": "user", "content": "b", "name": "x" }] }),
    ] {
        let answer = server.ask(more.clone());
        assert_eq!(answer.status, 200, "{more}: {answer:?}");
    }
    // Both limits hold.
    let usage = |more| server.ask(more).ok()["usage"]["completion_tokens"].clone();
    let bias = crate::client::only('x');
    assert_eq!(usage(json!({ "max_tokens": 5, "max_completion_tokens": 2, "logit_bias": bias })), 2);
    assert_eq!(usage(json!({ "max_tokens": 2, "max_completion_tokens": 5, "logit_bias": bias })), 2);
}

#[test]
fn models_and_prompts() {
    let server = Server::new();
    let unknown = server.ask(json!({ "model": "org/nothing" }));
    assert_eq!(unknown.error(), (404, Some("model".into()), "model_not_found".into()));
    assert!(unknown.body.contains(&server.tiny()), "it names what there is: {unknown:?}");
    // A folder that nobody offered, though it holds a model.
    let other = crate::support::fixtures().join("oracles/qwen2");
    assert_eq!(server.ask(json!({ "model": other })).error().2, "model_not_found");

    let long = json!({ "messages": [{ "role": "user", "content": "x".repeat(40_000) }] });
    for stream in [false, true] {
        let mut body = server.body(long.clone());
        body["stream"] = stream.into();
        let refused = chat(server.at(), &body);
        assert_eq!(refused.error(), (400, Some("messages".into()), "context_length_exceeded".into()));
        let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains("40019") && message.contains("32768"), "{message}");
    }

    std::fs::write(std::path::Path::new(&server.tiny()).join("model.safetensors"), "broken").unwrap();
    for stream in [false, true] {
        let failed = server.ask(json!({ "stream": stream }));
        assert_eq!((failed.status, failed.error().1), (503, Some("model".into())), "{failed:?}");
        assert_eq!(failed.header("x-should-retry"), Some("false"));
    }
}

#[test]
fn names_of_models() {
    let server = Server::new();
    let unknown = || server.ask(json!({ "model": "org/nothing" })).body;
    let before = unknown();
    // Being resident is another reason to be named.
    server.ask(json!({ "max_tokens": 1 })).ok();
    assert_eq!(unknown(), before);
    let garbled = get(server.at(), "/v1/models/%ff");
    assert_eq!(garbled.error(), (404, Some("model".into()), "model_not_found".into()));
}

#[test]
fn paths_and_methods() {
    let server = Server::new();
    for (method, path, status, code) in [
        ("GET", "/", 404, "unknown_url"),
        ("POST", "/v1/embeddings", 404, "unknown_url"),
        ("GET", "/v1/models/", 404, "unknown_url"),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
        ("POST", "/health", 405, "method_not_allowed"),
    ] {
        let request = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        assert_eq!(send(server.at(), &request).error(), (status, None, code.into()), "{method} {path}");
    }
}

#[test]
fn a_web_page_cannot_use_it() {
    let server = Server::new();
    let get = |headers: &str| send(server.at(), &format!("GET /health HTTP/1.1\r\nconnection: close\r\n{headers}\r\n"));
    for fine in ["host: localhost:8080\r\n", "host: 127.0.0.1\r\n", "host: [::1]:1\r\n"] {
        assert_eq!(get(fine).status, 200, "{fine}");
    }
    assert_eq!(get("host: localhost\r\nhost: evil.example\r\n").status, 403);
    for host in ["", "host: evil.example\r\n", "host: localhost.evil.example\r\n", "host: 192.168.0.1\r\n", "host: \r\n"] {
        assert_eq!(get(host).error(), (403, None, "host_not_allowed".into()), "{host}");
    }
    let absolute = send(server.at(), "GET http://evil.example/health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    assert_eq!(absolute.status, 403);
    for origin in ["https://evil.example", "null", "http://localhost.evil.example", "file://", "tauri://localhost"] {
        let refused = get(&format!("host: localhost\r\norigin: {origin}\r\n"));
        assert_eq!(refused.error(), (403, None, "origin_not_allowed".into()), "{origin}");
    }
    let own = get("host: localhost\r\norigin: http://localhost:3000\r\n");
    assert_eq!(own.status, 200);
    // Preflights are answered before anything is checked, and never with a permission.
    let preflight = "OPTIONS /v1/chat/completions HTTP/1.1\r\nhost: evil.example\r\norigin: https://evil.example\r\n\
        access-control-request-method: POST\r\nconnection: close\r\n\r\n";
    let preflight = send(server.at(), preflight);
    assert_eq!(preflight.status, 204);
    for response in [own, preflight] {
        assert!(response.headers.iter().all(|(name, _)| !name.starts_with("access-control")), "{response:?}");
    }
    // A form, or a fetch without asking, has another type.
    let body = server.body(json!({})).to_string();
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""] {
        let request = post(&body, "").replace("application/json", kind);
        assert_eq!(send(server.at(), &request).error(), (415, None, "unsupported_media_type".into()), "{kind}");
    }
    let request = post(&body, "").replace("application/json", "Application/JSON; charset=utf-8");
    assert_eq!(send(server.at(), &request).status, 200);
    assert_eq!(send(server.at(), &post(&body, "content-encoding: gzip\r\n")).status, 415);
}

#[test]
fn request_ids() {
    let server = Server::new();
    let id = |headers: &str| {
        let response =
            send(server.at(), &format!("GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n"));
        response.header("x-request-id").unwrap().to_owned()
    };
    assert_eq!(id("x-request-id: mine-1\r\n"), "mine-1");
    assert!(id("x-request-id: not mine\r\n").starts_with("req_"));
    assert_ne!(id(""), id(""));
}

#[test]
fn large_bodies() {
    let server = Server::with(Limits { body_bytes: 100_000, body: Duration::from_millis(300), ..Limits::default() });
    let large = "x".repeat(3_000_000);
    assert_eq!(send(server.at(), &post(&large, "")).error(), (413, None, "body_too_large".into()));
    // Not even where the size is not said before.
    let chunks = format!("{:x}\r\n{large}\r\n0\r\n\r\n", large.len());
    let head = post("", "transfer-encoding: chunked\r\n").replace("content-length: 0\r\n", "");
    assert_eq!(send(server.at(), &format!("{head}{chunks}")).error(), (413, None, "body_too_large".into()));
    // One that does not come.
    let slow = post("", "").replace("content-length: 0", "content-length: 10");
    assert_eq!(send(server.at(), &slow).error(), (408, None, "request_timeout".into()));
    assert_eq!(get(server.at(), "/health").status, 200);
}

/// Values for fields, from right to absurd.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (-3i64..4).prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        prop_oneof!["user", "system", "assistant", "text", "tool", "image_url", "none", "auto"].prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let name = prop_oneof!["role", "content", "type", "text", "tool_calls", "include_usage", "[0-9]{1,7}", ".{0,4}"];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name, inner), 0..4).prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

#[test]
fn no_body_is_too_much() {
    let server = Server::new();
    let fields = [
        "messages",
        "stream",
        "stream_options",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "max_tokens",
        "stop",
        "seed",
        "n",
        "tools",
        "logit_bias",
        "logprobs",
        "top_logprobs",
        "presence_penalty",
        "repetition_penalty",
        "response_format",
        "tool_choice",
        "model",
        "modalities",
        "reasoning_effort",
        "chat_template_kwargs",
        "max_completion_tokens",
        "user",
        "verbosity",
    ];
    let one = (prop::sample::select(fields.to_vec()), any_json());
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let ended = runner.run(&prop::collection::vec(one, 1..4), |changes| {
        let mut body = server.body(json!({ "max_tokens": 2 }));
        for (name, value) in changes {
            body[name] = value;
        }
        if body.get("max_tokens").is_none_or(Value::is_null) && body.get("max_completion_tokens").is_none_or(Value::is_null) {
            body["max_completion_tokens"] = 2.into();
        }
        // A large limit is fine, and takes its time.
        for name in ["max_tokens", "max_completion_tokens"] {
            if body[name].as_f64().is_some_and(|n| n > 9.0) {
                body[name] = 9.into();
            }
        }
        let response = chat(server.at(), &body);
        prop_assert!(matches!(response.status, 200 | 400 | 404), "{body}: {response:?}");
        if response.status != 200 {
            response.error();
        }
        Ok(())
    });
    ended.unwrap_or_else(|e| panic!("{e}"));
    // None of them broke it.
    server.ask(json!({})).ok();
}
