//! The functions, filters and tests that templates call, where minijinja's own differ from Jinja2's or are missing.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior, Value};

use super::tojson::tojson;
use super::{methods, value};

/// Jinja2's environment as transformers sets it up.
pub fn new() -> Environment<'static> {
    let mut env = Environment::new();
    env.set_undefined_behavior(UndefinedBehavior::Lenient);
    env.set_auto_escape_callback(|_| AutoEscape::None);
    if let Ok(syntax) = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build() {
        env.set_syntax(syntax);
    }
    env.set_debug(false);
    env.set_formatter(|out, state, value| {
        match value.as_str() {
            Some(text) => out.write_str(text)?,
            None => out.write_str(&value::py_str(state, value)?)?,
        }
        Ok(())
    });
    env.set_unknown_method_callback(methods::call);
    env.remove_global("debug");
    // Not Jinja2's, and what they make doubles with each use.
    env.remove_filter("zip");
    env.remove_filter("chain");
    env.add_function("raise_exception", |message: &Value| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, "raised").with_source(Raised(message.to_string())))
    });
    env.add_filter("tojson", tojson);
    env.add_filter("string", |state: &State, value: &Value| match value.kind() {
        ValueKind::String => Ok(value.clone()),
        _ => value::py_str(state, value).map(Value::from),
    });
    env.add_function("dict", |positional: Rest<Value>, kwargs: Kwargs| -> Result<Value, Error> {
        let mut pairs = Vec::new();
        for source in positional.iter() {
            match source.as_object().filter(|_| source.kind() == ValueKind::Map).and_then(|o| o.try_iter_pairs()) {
                Some(items) => pairs.extend(items),
                None => {
                    for pair in source.try_iter()? {
                        pairs.push((pair.get_item_by_index(0)?, pair.get_item_by_index(1)?));
                    }
                }
            }
        }
        for name in kwargs.args().map(str::to_string).collect::<Vec<_>>() {
            pairs.push((Value::from(name.as_str()), kwargs.get::<Value>(&name)?));
        }
        Ok(value::dict(pairs))
    });
    env.add_function("joiner", minijinja_contrib::globals::joiner);
    env.add_filter("int", |value: &Value, default: Option<Value>, base: Option<u32>| {
        int(value, base.unwrap_or(10)).or(default).unwrap_or_else(|| Value::from(0))
    });
    env.add_filter("float", |value: &Value, default: Option<Value>| {
        float(value).map(Value::from).or(default).unwrap_or_else(|| Value::from(0.0))
    });
    env.add_test("callable", |value: &Value| value.kind() == ValueKind::Plain);
    env.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    // Python's strings and dicts have a length and items, so Jinja2 counts them.
    env.add_test("sequence", |value: &Value| {
        let list = value.kind() == ValueKind::Iterable && value.len().is_some();
        list || value.is_undefined() || matches!(value.kind(), ValueKind::Seq | ValueKind::String | ValueKind::Map)
    });
    env
}

/// What `raise_exception` was called with: the template refuses the conversation.
#[derive(Debug)]
pub struct Raised(pub String);

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

/// Jinja2's `int`: what is no number gives `None`.
fn int(value: &Value, base: u32) -> Option<Value> {
    match value.as_str() {
        Some(text) => {
            let text = text.trim().replace('_', "");
            let whole = (2..=36).contains(&base).then(|| i64::from_str_radix(&text, base).ok()).flatten();
            whole.or_else(|| text.parse::<f64>().ok().filter(|f| f.is_finite()).map(|f| f as i64)).map(Value::from)
        }
        None if value.is_integer() => Some(value.clone()),
        None if value.kind() == ValueKind::Bool => Some(Value::from(i64::from(value.is_true()))),
        None => f64::try_from(value.clone()).ok().filter(|f| f.is_finite()).map(|f| Value::from(f as i64)),
    }
}

/// Jinja2's `float`: what is no number gives `None`.
fn float(value: &Value) -> Option<f64> {
    match value.as_str() {
        Some(text) => text.trim().replace('_', "").parse().ok(),
        None if value.kind() == ValueKind::Bool => Some(f64::from(u8::from(value.is_true()))),
        None => f64::try_from(value.clone()).ok(),
    }
}
