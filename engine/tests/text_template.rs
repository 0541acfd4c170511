//! Chat templates against what the reference prints (`tests/oracles/text`).

use std::fs;
use std::path::PathBuf;

use rmlx_engine::error::Error;
use rmlx_engine::text::{ChatTemplate, Conversation, End, SpecialTokens};
use serde_json::Value as Json;
use time::OffsetDateTime;
use time::macros::datetime;

const NOW: OffsetDateTime = datetime!(2024-07-05 09:03:07.000042 UTC);

fn fixtures(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(name)
}

fn read(name: &str) -> Json {
    let path = fixtures(name);
    serde_json::from_slice(&fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))).unwrap()
}

#[test]
fn small_templates_print_what_the_reference_prints() {
    let file = read("templates/semantics.json");
    let messages = file["messages"].as_array().unwrap();
    let variables = file["variables"].as_object().unwrap();
    let conversation = Conversation { messages, variables, end: End::NextMessage, now: NOW };
    let mut wrong = Vec::new();
    for case in file["cases"].as_array().unwrap() {
        let source = case["template"].as_str().unwrap();
        let output = ChatTemplate::from_source(source, &SpecialTokens::default()).and_then(|t| t.render(&conversation));
        let right = match (&output, case["output"].as_str()) {
            (Ok(text), Some(expected)) => text == expected,
            (Err(Error::Template(_)), None) => true,
            _ => false,
        };
        let known = case.get("differs").is_some();
        if right == known {
            wrong.push(format!("{source}\n  expected {}\n  got      {output:?}", case["output"]));
        }
    }
    assert!(wrong.is_empty(), "{} cases differ:\n{}", wrong.len(), wrong.join("\n"));
}

fn render(source: &str, messages: &[Json]) -> rmlx_engine::error::Result<String> {
    let variables = serde_json::Map::new();
    ChatTemplate::from_source(source, &SpecialTokens::default())?.render(&Conversation {
        messages,
        variables: &variables,
        end: End::NextMessage,
        now: NOW,
    })
}

#[test]
fn hostile_templates_end_as_errors() {
    let deep = |open: &str, inner: &str, close: &str, n: usize| format!("{}{inner}{}", open.repeat(n), close.repeat(n));
    let sources = [
        "{% for a in range(99999) %}{% for b in range(99999) %}{{ a * b }}{% endfor %}{% endfor %}".to_string(),
        "{% set ns = namespace(s='x') %}{% for a in range(99999) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}".into(),
        "{% set ns = namespace(s=[1]) %}{% for a in range(99999) %}{% set ns.s = ns.s + ns.s %}{% endfor %}".into(),
        "{% set ns = namespace(s=[1]) %}{% for a in range(99) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}".into(),
        "{% set ns = namespace(s=[1]) %}{% for a in range(99) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s | tojson }}".into(),
        "{% set ns = namespace(s=[1]) %}{% for a in range(99) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s | string }}".into(),
        "{% set ns = namespace(s=[1]) %}{% for a in range(99) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s ~ '' }}".into(),
        "{% set ns = namespace(s=[1]) %}{% for a in range(99) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s | join }}".into(),
        "{% set ns = namespace(s=[1], t=[1]) %}{% for a in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}{{ ns.s == ns.t }}".into(),
        "{% set ns = namespace(s=[1], t=[1]) %}{% for a in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}{{ {ns.s: 1}[ns.t] }}".into(),
        "{% set ns = namespace(s=1) %}{% for a in range(99999) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s }}".into(),
        "{% set ns = namespace(s=1) %}{% for a in range(99999) %}{% set ns.s = {'a': ns.s} %}{% endfor %}{{ ns.s | tojson }}".into(),
        "{% set ns = namespace(s=1, t=1) %}{% for a in range(99999) %}{% set ns.s = [ns.s] %}{% set ns.t = [ns.t] %}{% endfor %}{{ ns.s == ns.t }}{{ raise_exception('x') }}".into(),
        "{{ 'x' * 999999999999 }}".into(),
        "{{ [1] * 999999999999 }}".into(),
        "{{ 'x'.ljust(999999999999) }}".into(),
        "{{ '%999999999d' | format(1) }}".into(),
        "{{ '{:>999999999}'.format('x') }}".into(),
        "{{ ('x' * 100000).replace('x', 'x' * 100000) }}".into(),
        "{{ ('x' * 100000) | replace('', 'y' * 100000) }}".into(),
        "{{ 'a' | indent(999999999, true) }}".into(),
        "{{ [1] | tojson(indent=999999999) }}{{ raise_exception('x') }}".into(),
        "{{ 9 ** 99999999999 }}{{ raise_exception('x') }}".into(),
        "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns ~ '' }}".into(),
        "{% set ns = namespace() %}{% set ns.a = [{'b': ns}] %}{{ ns ~ '' }}".into(),
        "{% set ns = namespace(s=[1]) %}{% for a in range(99999) %}{% set ns.s = ns.s[0:] %}{% endfor %}{{ ns.s | length }}{{ raise_exception('x') }}".into(),
        "{% set a = [1] * 40000 %}{% set b = [1] * 40000 %}{% for i in range(99999) %}{% if a == b %}{% endif %}{% endfor %}".into(),
        "{% macro m(x) %}{{ m([x, x]) }}{% endmacro %}{{ m([1]) }}".into(),
        "{% macro m(x) %}{{ x ~ '' }}{{ m([x, x]) }}{% endmacro %}{{ m([1]) }}".into(),
        "{% macro m(x) %}{{ m(x + x) }}{% endmacro %}{{ m([1]) }}".into(),
        "{% for x in [[1]] recursive %}{{ loop([x, x]) }}{% endfor %}".into(),
        "{% set ns = namespace(s=[1]) %}{% for a in range(60) %}{% set ns.s = ns.s | batch(1000, ns.s) | list %}{% endfor %}{{ ns.s ~ '' }}".into(),
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}".into(),
        "{% macro m(n) %}{{ m(n) }}{{ m(n) }}{% endmacro %}{{ m(1) }}".into(),
        "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}".into(),
        "{% for a in range(9999) %}{{ messages | tojson }}{% endfor %}".into(),
        "{% for a in range(9999) %}{{ messages | string }}{% endfor %}".into(),
        "{% for a in range(99999) %}{{ strftime_now('%c' * 10000) }}{% endfor %}".into(),
        "{% for a in range(99999) %}{{ ('a ' * 10000).split() | length }}{% endfor %}".into(),
        "{% for a in range(99999) %}{{ ('a ' * 10000).title() | length }}{% endfor %}".into(),
        "{% for a in range(99999) %}{{ ('a' * 10000).count('b') }}{% endfor %}".into(),
        "{{ range(99999) | map('string') | map('length') | sort | join | length }}{% for a in range(99999) %}{{ range(99999) | list | length }}{% endfor %}".into(),
        format!("{{% for a in range(9999) %}}{}{{% endfor %}}", "x".repeat(100_000)),
        deep("(", "1", ")", 5000) + "{{",
        format!("{{{{ {} }}}}", deep("(", "1", ")", 5000)),
        format!("{{{{ {} }}}}", deep("[", "1", "]", 5000)),
        format!("{{{{ {}1 }}}}", "-".repeat(50_000)),
        format!("{{{{ {}1 }}}}", "not ".repeat(50_000)),
        format!("{{{{ {} }}}}{{{{ raise_exception('x') }}}}", "1 + ".repeat(50_000) + "1"),
        format!("{{{{ {} }}}}{{{{ raise_exception('x') }}}}", "a.b".to_string() + &".c".repeat(50_000)),
        format!("{{{{ {} }}}}", "x".to_string() + &" | upper".repeat(50_000) + " | nope"),
        format!("{{{{ {} }}}}{{{{ raise_exception('x') }}}}", "1 if 1 else ".repeat(50_000) + "1"),
        deep("{% if 1 %}", "x", "{% endif %}", 5000),
        deep("{% for a in [1] %}", "x", "{% endfor %}", 3000),
        deep("{% set a %}", "x", "{% endset %}", 3000),
        "{{".repeat(100_000),
        "{% if 1 %}".repeat(50_000),
        format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}x".repeat(50_000)),
        format!("{{{{ {}", "-".repeat(500_000)),
        "{{ '{:>{}}'.format('x', 999999999) }}".into(),
        "x".repeat(2 << 20),
    ];
    let messages = [serde_json::json!({"role": "user", "content": "long ".repeat(20_000)})];
    for source in sources {
        let start = std::time::Instant::now();
        let result = render(&source, &messages);
        let shown = &source[..source.len().min(160)];
        assert!(matches!(result, Err(Error::Template(_))), "{shown}: {:.200?}", result.map(|t| t.len()));
        assert!(start.elapsed().as_secs() < 20, "{shown}: {:?}", start.elapsed());
    }
}

#[test]
fn templates_near_the_limits_do_not_end_the_process() {
    let messages = [serde_json::json!({"role": "user", "content": "Hi"})];
    for expression in [
        format!("{}1", "-".repeat(1900)),
        format!("{}1", "not ".repeat(1900)),
        format!("{}1", "1 + ".repeat(900)),
        format!("a{}", ".b".repeat(900)),
        format!("'x'{}", " | upper".repeat(900)),
        format!("{}1", "1 if 0 else ".repeat(450)),
        format!("{}1{}", "[".repeat(900), "]".repeat(900)),
        format!("{}1{}", "{1: ".repeat(450), "}".repeat(450)),
    ] {
        let _ = render(&format!("{{{{ {expression} }}}}"), &messages);
        let _ = render(&format!("{{% set a = {expression} %}}{{{{ a ~ '' }}}}"), &messages);
    }
}

#[test]
fn the_clock_is_the_callers() {
    let now =
        |format: &str| render(&format!("{{{{ strftime_now('{format}') }}}}"), &[serde_json::json!({"role": "user"})]).unwrap();
    assert_eq!(now("%Y-%m-%d|%B %b %h|%A %a|%H:%M:%S.%f"), "2024-07-05|July Jul Jul|Friday Fri|09:03:07.000042");
    assert_eq!(now("%I %p %P|%-d %-m %-H %-I %-j|%j %y %C"), "09 AM am|5 7 9 9 187|187 24 20");
    assert_eq!(now("%e %k %l|%w %u %U %W %V %G"), " 5  9  9|5 5 26 27 27 2024");
    assert_eq!(
        now("%c|%x|%X|%D|%F|%T|%R|%r"),
        "Fri Jul  5 09:03:07 2024|07/05/24|09:03:07|07/05/24|2024-07-05|09:03:07|09:03|09:03:07 AM"
    );
    assert_eq!(now("%z%Z|%%|%Q %|%-"), "|%|%Q %|%-");
}

#[test]
fn a_last_message_can_be_left_open() {
    let chatml = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
    let trimmed = chatml.replace("m.content", "m.content | trim");
    let variables = serde_json::Map::new();
    let open = |source: &str, content: Json| {
        let messages =
            [serde_json::json!({"role": "user", "content": "Hi"}), serde_json::json!({"role": "assistant", "content": content})];
        let conversation = Conversation { messages: &messages, variables: &variables, end: End::OpenMessage, now: NOW };
        ChatTemplate::from_source(source, &SpecialTokens::default()).unwrap().render(&conversation)
    };
    assert_eq!(open(chatml, "Sure, ".into()).unwrap(), "<user>Hi</>\n<assistant>Sure, ");
    assert_eq!(open(&trimmed, "Sure, ".into()).unwrap(), "<user>Hi</>\n<assistant>Sure,");
    assert_eq!(open(&trimmed, "Sure".into()).unwrap(), "<user>Hi</>\n<assistant>Sure");
    assert!(matches!(open(chatml, Json::Null), Err(Error::BadRequest(_))));
    assert!(matches!(open("{{ messages[0].content }}", "Sure".into()), Err(Error::Template(_))));
}

#[test]
fn what_is_no_conversation_is_a_bad_request() {
    assert!(matches!(render("x", &[]), Err(Error::BadRequest(_))));
    assert!(matches!(render("x", &["hi".into()]), Err(Error::BadRequest(_))));
    let error = render("{{ raise_exception('roles must alternate') }}", &[serde_json::json!({})]).unwrap_err();
    assert_eq!(error.to_string(), "the chat template failed: it refuses the conversation: roles must alternate");
    let error = render("a\n{{ b.c }}", &[serde_json::json!({})]).unwrap_err().to_string();
    assert!(error.contains("line 2"), "{error}");
}

/// A snapshot folder with these files.
fn snapshot(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    dir
}

fn render_snapshot(files: &[(&str, &str)], variables: Json) -> rmlx_engine::error::Result<String> {
    let dir = snapshot(files);
    let messages = [serde_json::json!({"role": "user", "content": "Hi"})];
    let variables = variables.as_object().unwrap();
    ChatTemplate::load(dir.path())?.render(&Conversation { messages: &messages, variables, end: End::NextMessage, now: NOW })
}

#[test]
fn the_template_is_found_where_it_is() {
    let config = (
        "tokenizer_config.json",
        r#"{"chat_template": "config {{ bos_token }}", "bos_token": {"content": "<s>"}, "eos_token": null}"#,
    );
    let file = ("chat_template.jinja", "file {{ eos_token is defined }}");
    let legacy = ("chat_template.json", r#"{"chat_template": "legacy"}"#);
    let named = r#"{"chat_template": [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]}"#;
    let named = ("tokenizer_config.json", named);
    let none = serde_json::json!({});
    let tools = serde_json::json!({"tools": [{"type": "function"}]});
    let no_tools = serde_json::json!({"tools": []});
    for (files, variables, expected) in [
        (vec![config, file, legacy], &none, "file False"),
        (vec![config, legacy], &none, "config <s>"),
        (vec![("tokenizer_config.json", r#"{"chat_template": null}"#), legacy], &none, "legacy"),
        (vec![legacy], &none, "legacy"),
        (vec![named], &none, "plain"),
        (vec![named], &tools, "tools"),
        (vec![named], &no_tools, "plain"),
        (vec![file, ("additional_chat_templates/tool_use.jinja", "more")], &tools, "more"),
        (vec![file, ("additional_chat_templates/tool_use.jinja", "more")], &none, "file False"),
        (vec![("chat_templates/default.jinja", "folder")], &none, "folder"),
        (vec![("chat_templates/only.jinja", "only"), ("chat_templates/README.md", "x")], &none, "only"),
        (vec![("tokenizer_config.json", r#"{"chat_template": {"default": "object"}}"#)], &none, "object"),
    ] {
        assert_eq!(render_snapshot(&files, variables.clone()).unwrap(), expected, "{files:?}");
    }
    assert!(ChatTemplate::load(snapshot(&[]).path()).unwrap().is_none());
    for broken in [
        ("tokenizer_config.json", "{"),
        ("tokenizer_config.json", r#"{"chat_template": 7}"#),
        ("tokenizer_config.json", r#"{"chat_template": []}"#),
        ("tokenizer_config.json", r#"{"chat_template": [{"name": "default"}]}"#),
        ("chat_template.json", "nothing"),
    ] {
        let error = render_snapshot(&[broken], none.clone()).unwrap_err();
        assert!(matches!(error, Error::BadFile { .. }) && error.to_string().contains(broken.0), "{broken:?}: {error}");
    }
    let error = render_snapshot(&[("chat_template.jinja", "a\n{% if %}")], none).unwrap_err();
    assert!(matches!(error, Error::Template(_)) && error.to_string().contains("chat_template.jinja"), "{error}");
}
