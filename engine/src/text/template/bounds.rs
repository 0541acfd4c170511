//! Bounds that minijinja's fuel does not set.
//!
//! Fuel pays for steps and for the text that they make. It does not pay for comparing lists, for joining them with text, or for
//! what `a + b` of two lists holds, and no limit keeps a value from holding itself or from nesting until the stack ends. A
//! template of a few lines could end the process that way. So every place that gives a value a name (`set`, `for`, `with`,
//! parameters) passes it through a filter that bounds how much it holds, how deep it nests, and how long the rendering takes.
//!
//! What stays unbounded is what one expression without any name makes, by filters that repeat their input many times over.

use std::time::{Duration, Instant};

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, State, Value};

/// The filter of a value that gets a name; of one that becomes an attribute of a namespace.
const VALUE: &str = "rmlx_bounded_value";
const FIELD: &str = "rmlx_bounded_field";

/// Items that a value may hold, those of its items included, beyond twice those of the conversation.
pub const ITEMS: usize = 50_000;
/// Lists and dicts within each other. JSON as it is read has at most 128.
const DEPTH: usize = 150;
/// Tags within each other.
const NESTED_TAGS: usize = 40;
/// Words and operators in one tag, and `elif` tags in a template. The parser goes a level deeper for some of them.
const LONGEST_TAG: usize = 2000;
/// What that takes, with room to spare: some 3 KB for each.
pub const PARSER_STACK: usize = 64 << 20;
/// Of one rendering. The longest real ones take milliseconds.
const TIME: Duration = Duration::from_secs(10);

/// Adds the filters to an environment for one rendering.
pub fn add_filters(env: &mut minijinja::Environment, items: usize) {
    let end = Instant::now() + TIME;
    env.add_filter(VALUE, move |state: &State, value: &Value| bounded(state, value, items, end, false));
    env.add_filter(FIELD, move |state: &State, value: &Value| bounded(state, value, items, end, true));
}

/// The value; what is computed anew at each look becomes a list.
fn bounded(state: &State, value: &Value, items: usize, end: Instant, field: bool) -> Result<Value, Error> {
    if Instant::now() > end {
        return Err(Error::new(ErrorKind::OutOfFuel, "the template takes too long"));
    }
    let mut left = items;
    let value = if value.kind() == ValueKind::Iterable {
        let taken: Vec<Value> = value.try_iter()?.take(items + 1).collect();
        Value::from(taken)
    } else {
        value.clone()
    };
    count(&value, &mut left, 0, field)?;
    state.consume_fuel((items - left) as u64 / 16)?;
    Ok(value)
}

fn count(value: &Value, left: &mut usize, depth: usize, field: bool) -> Result<(), Error> {
    let refuse = |reason| Err(Error::new(ErrorKind::InvalidOperation, reason));
    if depth > DEPTH {
        return refuse("lists and dicts are nested too deeply");
    }
    let Some(rest) = left.checked_sub(1) else { return refuse("a list or dict holds too much") };
    *left = rest;
    let Some(object) = value.as_object() else { return Ok(()) };
    // A namespace is the only value that can change, and so the only one that could hold itself.
    if object.type_name().ends_with("::Namespace") {
        return if field { refuse("a namespace cannot hold another") } else { Ok(()) };
    }
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            for item in value.try_iter()? {
                count(&item, left, depth + 1, field)?;
            }
        }
        ValueKind::Map => {
            for (_, item) in object.try_iter_pairs().into_iter().flatten() {
                count(&item, left, depth + 1, field)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// The source with the filters in it. `{% generation %}`, which marks what the assistant wrote, becomes `{% with %}`: the same
/// scope, the same text.
///
/// # Errors
/// Where tags are too long or nested too deeply.
pub fn rewrite(source: &str) -> Result<String, String> {
    let mut out = String::with_capacity(source.len() + source.len() / 4);
    let mut rest = source;
    let mut nested = 0usize;
    let mut elifs = 0usize;
    while let Some(at) = next_tag(rest) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = tag_length(rest);
        let length = end.unwrap_or(rest.len());
        let tag = &rest[..length];
        if !tag.starts_with("{#") && words(tag) > LONGEST_TAG {
            return Err(format!("a tag of more than {LONGEST_TAG} words"));
        }
        // The parser will complain about a tag without an end.
        if end.is_none() {
            break;
        }
        rest = &rest[length..];
        if !tag.starts_with("{%") {
            out.push_str(tag);
            continue;
        }
        let inner = tag[2..length - 2].trim_start_matches(['-', '+']);
        let inner = inner.strip_suffix(['-', '+']).unwrap_or(inner);
        let name: &str = inner.trim_start().split(|c: char| c != '_' && !c.is_alphanumeric()).next().unwrap_or_default();
        let body = inner.trim_start().get(name.len()..).unwrap_or_default();
        let (open, close) = tag.split_at(tag.find(inner).filter(|_| !inner.is_empty()).unwrap_or(2));
        let close = &close[inner.len()..];
        let opens = matches!(name, "for" | "if" | "with" | "macro" | "call" | "filter" | "block" | "generation" | "autoescape")
            || (name == "set" && assignment(body).is_none());
        nested = if name.starts_with("end") { nested.saturating_sub(1) } else { nested + usize::from(opens) };
        elifs += usize::from(name == "elif");
        if nested > NESTED_TAGS || elifs > LONGEST_TAG {
            return Err(format!("more than {NESTED_TAGS} tags within each other"));
        }
        match name {
            "raw" => {
                let end = end_of_raw(rest);
                out.push_str(tag);
                out.push_str(&rest[..end]);
                rest = &rest[end..];
            }
            "generation" => out.push_str(&format!("{open} with {close}")),
            "endgeneration" => out.push_str(&format!("{open} endwith {close}")),
            "set" => match assignment(body) {
                Some(at) => {
                    let filter = if body[..at].contains('.') { FIELD } else { VALUE };
                    out.push_str(&format!("{open} set {}= ({}) | {filter} {close}", &body[..at], &body[at + 1..]));
                }
                None => out.push_str(tag),
            },
            _ => {
                out.push_str(tag);
                for name in bound_names(name, body) {
                    out.push_str(&format!("{{% set {name} = {name} | {VALUE} {close}"));
                }
            }
        }
    }
    out.push_str(rest);
    Ok(out)
}

/// Where the next `{{`, `{%` or `{#` is.
fn next_tag(text: &str) -> Option<usize> {
    text.match_indices('{').map(|(at, _)| at).find(|at| matches!(text.as_bytes().get(at + 1), Some(b'{' | b'%' | b'#')))
}

/// Bytes of the tag that `text` begins with, or nothing where it does not end.
fn tag_length(text: &str) -> Option<usize> {
    match text.as_bytes()[1] {
        b'#' => text.find("#}").map(|at| at + 2),
        b'%' => outside(&text[2..], |rest, _| rest.starts_with("%}")).map(|at| at + 4),
        _ => outside(&text[2..], |rest, depth| rest.starts_with("}}") && depth == 0).map(|at| at + 4),
    }
}

/// The words, operators and texts of a tag; more rather than less.
fn words(tag: &str) -> usize {
    let mut words = 0;
    let mut in_word = false;
    outside(tag, |rest, _| {
        let c = rest.as_bytes()[0];
        let word = c == b'_' || c.is_ascii_alphanumeric();
        words += usize::from(!(c.is_ascii_whitespace() || word && in_word));
        in_word = word;
        false
    });
    words
}

/// The first byte outside of texts for which `wanted` is true, given the rest and how many brackets are open.
fn outside(text: &str, mut wanted: impl FnMut(&str, usize) -> bool) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (0, 0usize);
    while at < bytes.len() {
        match bytes[at] {
            // A byte of a longer character.
            0x80.. => {}
            quote @ (b'"' | b'\'') => {
                at += 1;
                while at < bytes.len() && bytes[at] != quote {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
            }
            byte => {
                if wanted(&text[at..], depth) {
                    return Some(at);
                }
                match byte {
                    b'(' | b'[' | b'{' => depth += 1,
                    b')' | b']' | b'}' => depth = depth.saturating_sub(1),
                    _ => {}
                }
            }
        }
        at += 1;
    }
    None
}

/// Where the `=` of `set a = b` is; a block `set a | filter` has none.
fn assignment(body: &str) -> Option<usize> {
    outside(body, |rest, depth| rest.starts_with('=') && depth == 0)
}

/// The names that a tag gives values to.
fn bound_names<'a>(tag: &str, body: &'a str) -> Vec<&'a str> {
    let list = match tag {
        "for" => outside(body, |rest, depth| depth == 0 && rest.starts_with("in") && !rest[2..].starts_with(is_word))
            .filter(|at| !body[..*at].ends_with(is_word))
            .map_or("", |at| &body[..at]),
        "with" => body,
        "macro" | "call" => match (body.find('('), tag) {
            (Some(at), "macro") => &body[at..],
            (Some(at), _) if body[..at].trim().is_empty() => &body[at..],
            _ => "",
        },
        _ => "",
    };
    let list = match (tag, list.strip_prefix('(')) {
        ("macro" | "call", Some(inner)) => {
            &inner[..outside(inner, |rest, depth| rest.starts_with(')') && depth == 0).unwrap_or(0)]
        }
        _ => list,
    };
    let mut names = Vec::new();
    let mut rest = list;
    loop {
        let end = outside(rest, |rest, depth| rest.starts_with(',') && depth == 0);
        let part = &rest[..end.unwrap_or(rest.len())];
        let target = part.split('=').next().unwrap_or_default();
        // A target may be a tuple in brackets.
        names
            .extend(target.split(|c: char| !is_word(c)).filter(|name| name.starts_with(|c: char| c == '_' || c.is_alphabetic())));
        match end {
            Some(at) => rest = &rest[at + 1..],
            None => return names,
        }
    }
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// Bytes up to the tag that ends raw text.
fn end_of_raw(text: &str) -> usize {
    let is_end = |at: &usize| {
        let tag = text[at + 2..].trim_start_matches(['-', '+']).trim_start();
        tag.strip_prefix("endraw").is_some_and(|tag| tag.trim_start().trim_start_matches(['-', '+']).starts_with("%}"))
    };
    text.match_indices("{%").map(|(at, _)| at).find(is_end).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expected: &str) {
        let short = rewrite(source).unwrap().replace(VALUE, "V").replace(FIELD, "F");
        assert_eq!(short, expected);
    }

    #[test]
    fn values_that_get_a_name_are_filtered() {
        check("a {{ b }} {# c #} d", "a {{ b }} {# c #} d");
        check("{% set a = 1 %}", "{% set  a = ( 1 ) | V %}");
        check("{%- set ns.a = b if c -%}", "{%- set  ns.a = ( b if c ) | F -%}");
        check("{% set a, b = '=%}', [1] %}", "{% set  a, b = ( '=%}', [1] ) | V %}");
        check("{% set a | f(x=1) %}b{% endset %}", "{% set a | f(x=1) %}b{% endset %}");
        check(
            "{% for a, (b, c) in d if a in e %}",
            "{% for a, (b, c) in d if a in e %}{% set a = a | V %}{% set b = b | V %}{% set c = c | V %}",
        );
        check("{%- for inner in x -%}", "{%- for inner in x -%}{% set inner = inner | V -%}");
        check("{% macro m(a, b=c(1, 2)) %}", "{% macro m(a, b=c(1, 2)) %}{% set a = a | V %}{% set b = b | V %}");
        check("{% call(x) m(y) %}{% call m(y) %}", "{% call(x) m(y) %}{% set x = x | V %}{% call m(y) %}");
        check("{% with a = 1, b = [2, 3] %}", "{% with a = 1, b = [2, 3] %}{% set a = a | V %}{% set b = b | V %}");
    }

    #[test]
    fn what_is_no_tag_stays() {
        check("{{ '{% set a = 1 %}' }}", "{{ '{% set a = 1 %}' }}");
        check(
            "{% raw %}{% set a = 1 %}{%- endraw -%}{% set b = 2 %}",
            "{% raw %}{% set a = 1 %}{%- endraw -%}{% set  b = ( 2 ) | V %}",
        );
        check("{# {% set a = 1 %} #}", "{# {% set a = 1 %} #}");
        check("{{ {'a': {}} }}{{", "{{ {'a': {}} }}{{");
        check("{% generation %}x{%- endgeneration +%}", "{% with %}x{%- endwith +%}");
        check("{% set é = 'ü' %}", "{% set  é = ( 'ü' ) | V %}");
        check("{%%}{%-%}{% %}{%", "{%%}{%-%}{% %}{%");
        for long in [
            "{% if a %}".repeat(1000),
            format!("{{% if a %}}{}", "{% elif a %}".repeat(3000)),
            format!("{{{{ {}1 }}}}", "-".repeat(3000)),
            format!("{{{{ {}1 }}}}", "not ".repeat(3000)),
        ] {
            assert!(rewrite(&long).is_err());
        }
        // A long text is one word.
        assert!(rewrite(&format!("{{{{ '{}' }}}}", "a, ".repeat(3000))).is_ok());
    }
}
