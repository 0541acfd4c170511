//! Chat templates against what the reference prints (`tests/oracles/text`).

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
    serde_json::from_slice(&std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))).unwrap()
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
        //        "{% set ns = namespace(s=[1]) %}{% for a in range(99999) %}{% set ns.s = ns.s + ns.s %}{% endfor %}".into(),
        "{% set ns = namespace(s=[1]) %}{% for a in range(99) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}".into(),
        "{% set ns = namespace(s=[1]) %}{% for a in range(99) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s | tojson }}".into(),
        "{% set ns = namespace(s=[1]) %}{% for a in range(99) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s | string }}".into(),
        // DAG "{% set ns = namespace(s=[1]) %}{% for a in range(99) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s ~ '' }}".into(),
        // DAG "{% set ns = namespace(s=[1]) %}{% for a in range(99) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s | join }}".into(),
        // DAG "{% set ns = namespace(s=[1], t=[1]) %}{% for a in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}{{ ns.s == ns.t }}".into(),
        // DAG "{% set ns = namespace(s=[1], t=[1]) %}{% for a in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}{{ {ns.s: 1}[ns.t] }}".into(),
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
        "x".repeat(2 << 20),
    ];
    let messages = [serde_json::json!({"role": "user", "content": "long ".repeat(20_000)})];
    for source in sources {
        let start = std::time::Instant::now();
        let result = render(&source, &messages);
        let shown = &source[..source.len().min(160)];
        eprintln!("{:6.0} ms {shown} {:.160?}", start.elapsed().as_secs_f64() * 1e3, result.as_ref().map(String::len));
        assert!(matches!(result, Err(Error::Template(_))), "{shown}: {:.200?}", result.map(|t| t.len()));
        assert!(start.elapsed().as_secs() < 20, "{shown}: {:?}", start.elapsed());
    }
}
