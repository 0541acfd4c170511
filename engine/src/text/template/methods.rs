//! Python's methods of strings, lists and dicts that templates call. Those that change their object do not exist here, as in
//! the reference's sandbox; what is not here is left to `minijinja_contrib::pycompat`.

use minijinja::value::{Kwargs, Rest, Tuple, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

use super::value::dict;

/// The value's method `name`, where it has one.
pub fn call(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let own = match value.kind() {
        ValueKind::String => string(state, value.as_str().unwrap_or_default(), name, args)?,
        ValueKind::Map if name == "copy" => {
            let () = from_args(args)?;
            value.as_object().and_then(|o| o.try_iter_pairs()).map(dict)
        }
        ValueKind::Seq if name == "copy" => {
            let () = from_args(args)?;
            Some(value.try_iter()?.collect())
        }
        ValueKind::Seq if name == "index" => {
            let (wanted,): (&Value,) = from_args(args)?;
            match value.try_iter()?.position(|item| item == *wanted) {
                Some(index) => Some(Value::from(index)),
                None => return Err(invalid("the value is not in the list")),
            }
        }
        _ => None,
    };
    match own {
        Some(result) => Ok(result),
        None => pycompat::unknown_method_callback(state, value, name, args),
    }
}

fn string(state: &State, text: &str, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    Ok(Some(match name {
        "strip" | "lstrip" | "rstrip" => {
            let (chars,): (Option<&str>,) = from_args(args)?;
            let cut = |c: char| chars.map_or_else(|| is_space(c), |set| set.contains(c));
            let text = if name == "rstrip" { text } else { text.trim_start_matches(cut) };
            Value::from(if name == "lstrip" { text } else { text.trim_end_matches(cut) })
        }
        "split" | "rsplit" => {
            let (positional, kwargs): (Rest<Value>, Kwargs) = from_args(args)?;
            let separator = match positional.first() {
                Some(value) => value.clone(),
                None => kwargs.get::<Option<Value>>("sep")?.unwrap_or_default(),
            };
            let limit = match positional.get(1) {
                Some(value) => value.as_i64().ok_or_else(|| invalid("maxsplit must be a number"))?,
                None => kwargs.get::<Option<i64>>("maxsplit")?.unwrap_or(-1),
            };
            kwargs.assert_all_used()?;
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            let parts = match separator.as_str() {
                Some("") => return Err(invalid("empty separator")),
                Some(separator) if name == "split" => text.splitn(limit.saturating_add(1), separator).collect(),
                Some(separator) => rsplit(text, separator, limit),
                None if name == "split" => split_spaces(text, limit),
                // Splitting from the right at spaces, with a limit, is not seen in templates.
                None => split_spaces(text, usize::MAX),
            };
            state.consume_fuel(parts.len() as u64)?;
            parts.into_iter().map(Value::from).collect()
        }
        "splitlines" => {
            let (keep,): (Option<bool>,) = from_args(args)?;
            let lines = split_lines(text, keep.unwrap_or(false));
            state.consume_fuel(lines.len() as u64)?;
            lines.into_iter().map(Value::from).collect()
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            if separator.is_empty() {
                return Err(invalid("empty separator"));
            }
            let parts = match (name, if name == "partition" { text.find(separator) } else { text.rfind(separator) }) {
                (_, Some(at)) => [&text[..at], separator, &text[at + separator.len()..]],
                ("partition", None) => [text, "", ""],
                (_, None) => ["", "", text],
            };
            Value::from(Tuple::from(parts.map(Value::from)))
        }
        "startswith" | "endswith" => {
            let (affixes, start, end): (&Value, Option<i64>, Option<i64>) = from_args(args)?;
            let (_, text) = part(text, start, end);
            let has = |affix: &Value| match affix.as_str() {
                Some(affix) if name == "startswith" => Ok(text.starts_with(affix)),
                Some(affix) => Ok(text.ends_with(affix)),
                None => Err(invalid("an affix must be a string or a tuple of strings")),
            };
            Value::from(match affixes.downcast_object_ref::<Tuple>() {
                Some(tuple) => tuple.iter().map(has).collect::<Result<Vec<_>, _>>()?.contains(&true),
                None => has(affixes)?,
            })
        }
        "find" | "rfind" | "index" | "rindex" | "count" => {
            let (wanted, start, end): (&str, Option<i64>, Option<i64>) = from_args(args)?;
            let (skipped, text) = part(text, start, end);
            let at = match name {
                "count" => return Ok(Some(Value::from(text.matches(wanted).count()))),
                "find" | "index" => text.find(wanted),
                _ => text.rfind(wanted),
            };
            match at {
                Some(at) => Value::from(skipped + text[..at].chars().count()),
                None if name.ends_with("find") => Value::from(-1),
                None => return Err(invalid("substring not found")),
            }
        }
        "title" => {
            let mut after_letter = false;
            let mut title = String::with_capacity(text.len());
            for c in text.chars() {
                if after_letter {
                    title.extend(c.to_lowercase())
                } else {
                    title.extend(c.to_uppercase())
                }
                after_letter = c.is_lowercase() || c.is_uppercase();
            }
            Value::from(title)
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "ljust" | "rjust" | "zfill" => {
            let (width, fill): (usize, Option<&str>) = from_args(args)?;
            let fill = match (name, fill) {
                ("zfill", _) => "0",
                (_, fill) => fill.unwrap_or(" "),
            };
            if fill.chars().count() != 1 {
                return Err(invalid("the fill must be one character"));
            }
            let missing = width.saturating_sub(text.chars().count());
            state.consume_fuel(missing as u64 / 16)?;
            let padding = fill.repeat(missing);
            Value::from(match (name, text.strip_prefix(['+', '-'])) {
                ("ljust", _) => format!("{text}{padding}"),
                ("zfill", Some(digits)) => format!("{}{padding}{digits}", &text[..1]),
                _ => format!("{padding}{text}"),
            })
        }
        // A width is made before it is paid for.
        "format" if has_wide_field(text) => return Err(invalid("a format with a field that is too wide")),
        "casefold" => Value::from(text.to_lowercase()),
        "swapcase" => {
            let swap = |c: char| match c.is_uppercase() {
                true => c.to_lowercase().collect::<String>(),
                false => c.to_uppercase().collect(),
            };
            Value::from(text.chars().map(swap).collect::<String>())
        }
        "isdecimal" => Value::from(!text.is_empty() && text.chars().all(|c| c.is_ascii_digit())),
        _ => return Ok(None),
    }))
}

/// Whether a format has a width of five digits, or one that comes from its arguments.
fn has_wide_field(format: &str) -> bool {
    let digits = format.as_bytes().windows(5).any(|w| w.iter().all(u8::is_ascii_digit));
    let inner = format.split('{').skip(1).any(|field| field.contains(':') && !field.contains('}'));
    digits || inner
}

fn invalid(reason: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason)
}

/// `text[start:end]`, and how many characters precede it.
fn part(text: &str, start: Option<i64>, end: Option<i64>) -> (usize, &str) {
    if start.is_none() && end.is_none() {
        return (0, text);
    }
    let chars = text.chars().count();
    let index = |i: i64| match usize::try_from(i) {
        Ok(i) => i.min(chars),
        Err(_) => chars.saturating_sub(i.unsigned_abs() as usize),
    };
    let (start, end) = (start.map_or(0, index), end.map_or(chars, index));
    let byte = |i: usize| text.char_indices().nth(i).map_or(text.len(), |(at, _)| at);
    (start, text.get(byte(start)..byte(end)).unwrap_or_default())
}

/// `str.isspace` of one character: Unicode's White_Space and the four separators that only Python counts.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

fn rsplit<'a>(text: &'a str, separator: &str, limit: usize) -> Vec<&'a str> {
    let mut parts: Vec<&str> = text.rsplitn(limit.saturating_add(1), separator).collect();
    parts.reverse();
    parts
}

/// Without a separator, runs of spaces separate, and those at the ends count for nothing.
fn split_spaces(text: &str, limit: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() {
        match rest.find(is_space) {
            Some(end) if parts.len() < limit => {
                parts.push(&rest[..end]);
                rest = rest[end..].trim_start_matches(is_space);
            }
            // Past the limit, the last part keeps its spaces.
            _ => {
                parts.push(rest);
                rest = "";
            }
        }
    }
    parts
}

/// `str.splitlines`, which ends lines at more characters than Rust does.
fn split_lines(text: &str, keep_ends: bool) -> Vec<&str> {
    let ends = |c: char| matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(ends) {
        let end = match &rest[at..] {
            crlf if crlf.starts_with("\r\n") => at + 2,
            other => at + other.chars().next().map_or(1, char::len_utf8),
        };
        lines.push(&rest[..if keep_ends { end } else { at }]);
        rest = &rest[end..];
    }
    if !rest.is_empty() {
        lines.push(rest);
    }
    lines
}
