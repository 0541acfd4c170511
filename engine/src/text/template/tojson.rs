//! The `tojson` filter with the output of Python's `json.dumps`, which templates were written against.

use std::fmt::Write;

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

use super::value::py_float;

/// Levels of lists and dicts.
const MAX_DEPTH: usize = 200;

/// `tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`: nothing is escaped for HTML.
pub fn tojson(state: &State, value: &Value, positional: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let argument = |index: usize, name: &str| -> Result<Option<Value>, Error> {
        let value = match positional.get(index) {
            Some(value) => Some(value.clone()),
            None => kwargs.get::<Option<Value>>(name)?,
        };
        Ok(value.filter(|v| !v.is_none() && !v.is_undefined()))
    };
    let ensure_ascii = argument(0, "ensure_ascii")?.is_some_and(|v| v.is_true());
    let indent = argument(1, "indent")?.map(|v| match v.as_str() {
        Some(text) => text.to_string(),
        None => " ".repeat(v.as_i64().unwrap_or(0).clamp(0, 64) as usize),
    });
    let separators = match argument(2, "separators")? {
        None if indent.is_some() => (",".to_string(), ": ".to_string()),
        None => (", ".to_string(), ": ".to_string()),
        Some(pair) => {
            let text = |i| Ok::<_, Error>(pair.get_item_by_index(i)?.as_str().map(str::to_string));
            match (text(0)?, text(1)?) {
                (Some(item), Some(key)) => (item, key),
                _ => return Err(unserializable("separators must be two strings")),
            }
        }
    };
    let sort_keys = argument(3, "sort_keys")?.is_some_and(|v| v.is_true());
    kwargs.assert_all_used()?;
    let mut writer = Writer { state, out: String::new(), ensure_ascii, indent, separators, sort_keys };
    writer.value(value, 0)?;
    Ok(Value::from(writer.out))
}

fn unserializable(reason: impl Into<String>) -> Error {
    Error::new(ErrorKind::BadSerialization, reason.into())
}

struct Writer<'a> {
    state: &'a State<'a, 'a>,
    out: String,
    ensure_ascii: bool,
    indent: Option<String>,
    /// Between items; between a key and its value.
    separators: (String, String),
    sort_keys: bool,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(unserializable("nested too deeply"));
        }
        // Every value costs fuel: a few lists within each other can print without end.
        self.state.consume_fuel(1 + value.as_str().map_or(0, str::len) as u64 / 64)?;
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.number(value),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.container(['[', ']'], items.len(), depth, |writer, i| writer.value(&items[i], depth + 1))?;
            }
            ValueKind::Map => {
                let pairs = value.as_object().and_then(|o| o.try_iter_pairs());
                let mut pairs: Vec<(String, Value)> =
                    pairs.into_iter().flatten().map(|(k, v)| Ok((key(&k)?, v))).collect::<Result<_, Error>>()?;
                if self.sort_keys {
                    pairs.sort_by(|a, b| a.0.cmp(&b.0));
                }
                self.container(['{', '}'], pairs.len(), depth, |writer, i| {
                    writer.string(&pairs[i].0);
                    let separator = writer.separators.1.clone();
                    writer.out.push_str(&separator);
                    writer.value(&pairs[i].1, depth + 1)
                })?;
            }
            kind => return Err(unserializable(format!("a value of type {kind} is not JSON"))),
        }
        Ok(())
    }

    fn container(
        &mut self,
        brackets: [char; 2],
        len: usize,
        depth: usize,
        mut item: impl FnMut(&mut Self, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(brackets[0]);
        for i in 0..len {
            if i > 0 {
                let separator = self.separators.0.clone();
                self.out.push_str(&separator);
            }
            self.line(depth + 1);
            item(self, i)?;
        }
        if len > 0 {
            self.line(depth);
        }
        self.out.push(brackets[1]);
        Ok(())
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str(indent);
            }
        }
    }

    fn number(&mut self, value: &Value) {
        let text = match py_float(value).as_deref() {
            Some("nan") => "NaN".into(),
            Some("inf") => "Infinity".into(),
            Some("-inf") => "-Infinity".into(),
            Some(float) => float.to_string(),
            None => value.to_string(),
        };
        self.out.push_str(&text);
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || (self.ensure_ascii && !(' '..='~').contains(&c)) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        // Writing to a String cannot fail.
                        let _ = write!(self.out, "\\u{unit:04x}");
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

/// A dict's key as `json.dumps` writes it, without the quotes.
fn key(value: &Value) -> Result<String, Error> {
    match value.kind() {
        ValueKind::String => Ok(value.as_str().unwrap_or_default().to_string()),
        ValueKind::None => Ok("null".into()),
        ValueKind::Bool => Ok(if value.is_true() { "true" } else { "false" }.into()),
        ValueKind::Number => Ok(py_float(value).unwrap_or_else(|| value.to_string())),
        kind => Err(unserializable(format!("a key of type {kind} is not JSON"))),
    }
}
