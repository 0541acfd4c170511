//! JSON as a template sees it: Python's dicts, their methods, and how Python prints a value.

use std::fmt::Write;
use std::sync::Arc;

use minijinja::value::{DynObject, Enumerator, Object, ObjectRepr, Tuple, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};
use serde_json::Value as Json;

/// Levels of lists and dicts that are printed. Rust's stack is the limit; Python's own is about 1000.
const MAX_DEPTH: usize = 200;

/// A JSON value, with the order of its keys.
pub fn from_json(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(b) => Value::from(*b),
        Json::String(s) => Value::from(s.as_str()),
        Json::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(i), _) => Value::from(i),
            (None, Some(u)) => Value::from(u),
            (None, None) => Value::from(n.as_f64().unwrap_or(f64::NAN)),
        },
        Json::Array(items) => items.iter().map(from_json).collect(),
        Json::Object(map) => dict(map.iter().map(|(k, v)| (Value::from(k.as_str()), from_json(v)))),
    }
}

/// A dict that templates tell from one of their own only by its attributes: see [`Dict`].
pub fn dict(pairs: impl IntoIterator<Item = (Value, Value)>) -> Value {
    let map = Value::from_pairs(pairs);
    match map.as_object() {
        Some(inner) => Value::from_object(Dict(inner.clone())),
        None => map,
    }
}

/// Python's dict: `d.items` is the method even where a key is called "items"; `d['items']` is the key's value.
/// Tool schemas have such keys.
#[derive(Debug)]
struct Dict(DynObject);

const DICT_METHODS: [&str; 11] =
    ["clear", "copy", "fromkeys", "get", "items", "keys", "pop", "popitem", "setdefault", "update", "values"];

impl Object for Dict {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.0.get_value(key)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        if DICT_METHODS.contains(&key) {
            return Some(Value::from_object(Bound { dict: Value::from_dyn_object(self.clone()), method: key.into() }));
        }
        self.0.get_value_by_str(key)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        match self.0.try_iter_pairs() {
            Some(pairs) => Enumerator::KeyValueIter(pairs),
            None => Enumerator::Empty,
        }
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        self.0.enumerator_len()
    }
}

/// A method that a template looked at without calling it.
#[derive(Debug)]
struct Bound {
    dict: Value,
    method: String,
}

impl Object for Bound {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn call(self: &Arc<Self>, state: &mut State<'_, '_>, args: &[Value]) -> Result<Value, Error> {
        self.dict.call_method(state, &self.method, args)
    }

    fn render(self: &Arc<Self>, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "<built-in method {} of dict object>", self.method)
    }
}

/// `str(value)`; undefined is the empty text.
pub fn py_str(state: &State, value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    match value.as_str() {
        Some(text) => out.push_str(text),
        None if value.is_undefined() => {}
        None => py_repr(state, value, &mut out, 0)?,
    }
    Ok(out)
}

/// `repr(value)`. Every value costs fuel: a few lists within each other can print without end.
fn py_repr(state: &State, value: &Value, out: &mut String, depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(Error::new(ErrorKind::InvalidOperation, "nested too deeply to be printed"));
    }
    state.consume_fuel(1)?;
    let before = out.len();
    let list = |out: &mut String, open: char, close: char| {
        out.push(open);
        let mut len = 0;
        for item in value.try_iter()? {
            if len > 0 {
                out.push_str(", ");
            }
            py_repr(state, &item, out, depth + 1)?;
            len += 1;
        }
        if open == '(' && len == 1 {
            out.push(',');
        }
        out.push(close);
        Ok::<_, Error>(())
    };
    match value.kind() {
        ValueKind::Number => match py_float(value) {
            Some(text) => out.push_str(&text),
            None => write_display(value, out),
        },
        ValueKind::Seq if value.downcast_object_ref::<Tuple>().is_some() => list(out, '(', ')')?,
        ValueKind::Seq => list(out, '[', ']')?,
        ValueKind::Map => {
            out.push('{');
            let pairs = value.as_object().and_then(|o| o.try_iter_pairs());
            for (i, (key, item)) in pairs.into_iter().flatten().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                py_repr(state, &key, out, depth + 1)?;
                out.push_str(": ");
                py_repr(state, &item, out, depth + 1)?;
            }
            out.push('}');
        }
        // Its Debug form quotes and escapes as Python does.
        ValueKind::String => {
            let _ = write!(out, "{value:?}");
            state.consume_fuel((out.len() - before) as u64 / 64)?;
        }
        ValueKind::Undefined => out.push_str("Undefined"),
        _ => write_display(value, out),
    }
    Ok(())
}

fn write_display(value: &Value, out: &mut String) {
    // Writing to a String cannot fail.
    let _ = write!(out, "{value}");
}

/// `repr` of a float; `None` for every other value.
pub fn py_float(value: &Value) -> Option<String> {
    if value.kind() != ValueKind::Number || value.is_integer() {
        return None;
    }
    let float = f64::try_from(value.clone()).ok()?;
    if float.is_nan() {
        return Some("nan".into());
    }
    if float.is_infinite() {
        return Some(if float > 0.0 { "inf" } else { "-inf" }.into());
    }
    // Rust's Debug changes to exponents where Python does, but writes 1e16 for 1e+16 and 1e-7 for 1e-07.
    let text = format!("{float:?}");
    Some(match text.split_once('e') {
        None => text,
        Some((mantissa, exponent)) => {
            let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
            format!("{mantissa}e{sign}{digits:0>2}")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_print_as_in_python() {
        let cases = [
            (serde_json::json!({"a": [1, 2.5, true, null], "b": "it's"}), r#"{'a': [1, 2.5, True, None], 'b': "it's"}"#),
            (serde_json::json!(1e16), "1e+16"),
            (serde_json::json!(1.5e-7), "1.5e-07"),
            (serde_json::json!(0.0001), "0.0001"),
            (serde_json::json!(1e100), "1e+100"),
            (serde_json::json!(3.0), "3.0"),
            (serde_json::json!(18446744073709551615u64), "18446744073709551615"),
            (serde_json::json!("raw\n"), "raw\n"),
        ];
        for (json, expected) in cases {
            let environment = minijinja::Environment::new();
            assert_eq!(py_str(&environment.empty_state(), &from_json(&json)).unwrap(), expected);
        }
    }
}
