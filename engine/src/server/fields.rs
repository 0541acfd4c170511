//! Reading a JSON object field by field. What has the wrong type is refused with its path; what nobody asks for is ignored.

use std::ops::RangeInclusive;

use axum::http::StatusCode;
use serde_json::{Map, Value};

use super::errors::{ApiError, ApiResult};

/// An object, and where it stands in the body.
#[derive(Clone, Copy)]
pub struct Fields<'a, 'p> {
    map: &'a Map<String, Value>,
    /// Empty for the body itself.
    at: &'p str,
}

impl<'a, 'p> Fields<'a, 'p> {
    /// # Errors
    /// For anything but an object.
    pub fn of(value: &'a Value, at: &'p str) -> ApiResult<Self> {
        let map = value.as_object().ok_or_else(|| match at {
            "" => {
                ApiError::new(StatusCode::BAD_REQUEST, "invalid_type", format!("the body must be an object, not {}", kind(value)))
            }
            at => wrong_type(at, "an object", value),
        })?;
        Ok(Self { map, at })
    }

    pub fn path(&self, name: &str) -> String {
        if self.at.is_empty() { name.into() } else { format!("{}.{name}", self.at) }
    }

    /// `null` counts as absent.
    pub fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|v| !v.is_null())
    }

    pub fn missing(&self, name: &str) -> ApiError {
        let path = self.path(name);
        let message = format!("{path} is missing");
        ApiError::new(StatusCode::BAD_REQUEST, "missing_required_parameter", message).with_param(path)
    }

    fn read<T>(&self, name: &str, what: &str, read: impl FnOnce(&'a Value) -> Option<T>) -> ApiResult<Option<T>> {
        let one = |value| read(value).ok_or_else(|| wrong_type(&self.path(name), what, value));
        self.get(name).map(one).transpose()
    }

    pub fn text(&self, name: &str) -> ApiResult<Option<&'a str>> {
        self.read(name, "a string", Value::as_str)
    }

    pub fn flag(&self, name: &str) -> ApiResult<Option<bool>> {
        self.read(name, "true or false", Value::as_bool)
    }

    pub fn list(&self, name: &str) -> ApiResult<Option<&'a Vec<Value>>> {
        self.read(name, "an array", Value::as_array)
    }

    pub fn object(&self, name: &str) -> ApiResult<Option<&'a Map<String, Value>>> {
        self.read(name, "an object", Value::as_object)
    }

    pub fn number(&self, name: &str, range: RangeInclusive<f64>) -> ApiResult<Option<f32>> {
        let Some(number) = self.read(name, "a number", Value::as_f64)? else { return Ok(None) };
        if range.contains(&number) {
            return Ok(Some(number as f32));
        }
        let path = self.path(name);
        let message = format!("{path} is {number}, not a number from {} to {}", range.start(), range.end());
        Err(ApiError::value(path, message))
    }

    pub fn whole(&self, name: &str, range: RangeInclusive<i64>) -> ApiResult<Option<i64>> {
        let Some(number) = self.read(name, "a whole number", whole)? else { return Ok(None) };
        if range.contains(&number) {
            return Ok(Some(number));
        }
        let path = self.path(name);
        let message = match (*range.start(), *range.end()) {
            (least, i64::MAX) => format!("{path} is {number}, and must be at least {least}"),
            (least, most) => format!("{path} is {number}, not a whole number from {least} to {most}"),
        };
        Err(ApiError::value(path, message))
    }
}

/// A number that is whole, also where it is written with a point.
fn whole(value: &Value) -> Option<i64> {
    let from_float = |x: f64| (x.fract() == 0.0 && x.abs() < 9e15).then_some(x as i64);
    value.as_i64().or_else(|| value.as_f64().and_then(from_float))
}

pub fn wrong_type(path: &str, what: &str, value: &Value) -> ApiError {
    let message = format!("{path} must be {what}, not {}", kind(value));
    ApiError::new(StatusCode::BAD_REQUEST, "invalid_type", message).with_param(path)
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
