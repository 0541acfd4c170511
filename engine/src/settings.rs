//! The settings: one TOML file that holds the differences to the defaults.
//!
//! A change reads, changes and replaces the file under a lock, so that two processes lose nothing of each other's. The new file
//! takes the old one's place when it is whole. A file that cannot be read as settings stays as it is.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::api::Settings;
use crate::contained;
use crate::error::{Error, Result};

/// Bytes of the file at most.
const MOST: u64 = 1 << 20;
/// Characters of a text at most, apart from the system message.
const LONGEST: usize = 1000;

pub fn path(home: &Path) -> PathBuf {
    home.join("settings.toml")
}

/// All settings; where the folder has no file, the defaults.
///
/// # Errors
/// [`Error::BadFile`] names the file, and the key that is unknown or has a wrong value.
pub fn read(home: &Path) -> Result<Settings> {
    let path = path(home);
    match path.try_exists() {
        Ok(true) => {}
        Ok(false) => return Ok(Settings::default()),
        // Something else is in the folder's place: there is no file.
        Err(e) if e.kind() == ErrorKind::NotADirectory => return Ok(Settings::default()),
        Err(e) => return Err(Error::io(&path, e)),
    }
    let mut text = String::new();
    let file = contained::open_regular(&path)?;
    file.take(MOST + 1).read_to_string(&mut text).map_err(|e| match e.kind() {
        ErrorKind::InvalidData => Error::bad_file(&path, "not UTF-8"),
        _ => Error::io(&path, e),
    })?;
    if text.len() as u64 > MOST {
        return Err(Error::bad_file(&path, format!("more than {MOST} bytes")));
    }
    let table: toml::Table = text.parse().map_err(|e: toml::de::Error| {
        // The whole of it shows the line, however long that is.
        let whole = e.to_string();
        Error::bad_file(&path, if whole.len() > LONGEST { e.message() } else { whole.trim_end() })
    })?;
    let patch = serde_json::to_value(table).map_err(|e| Error::bad_file(&path, e))?;
    // TOML has no null: this was a number that JSON has not.
    if let Some(key) = null(&patch) {
        return Err(Error::bad_file(&path, format!("{key}: must be a finite number")));
    }
    changed(&Settings::default(), &patch).map_err(|reason| Error::bad_file(&path, reason))
}

/// The key of a null in it.
fn null(value: &Value) -> Option<String> {
    let within = |(name, value): (&String, &Value)| match value {
        Value::Null => Some(name.clone()),
        other => null(other).map(|key| format!("{name}.{key}")),
    };
    value.as_object()?.iter().find_map(within)
}

/// Changes the fields that `patch` names (`null`: back to the default) and returns all settings.
///
/// # Errors
/// [`Error::BadRequest`] names the key of the patch that is unknown or has a wrong value; those of [`read`]. Nothing is changed then.
pub fn change(home: &Path, patch: &Value) -> Result<Settings> {
    DirBuilder::new().recursive(true).mode(0o700).create(home).map_err(|e| Error::io(home, e))?;
    let lock = home.join("settings.lock");
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&lock);
    let locked = file.and_then(|file| file.lock().map(|()| file)).map_err(|e| Error::io(&lock, e))?;
    let before = read(home)?;
    let after = changed(&before, patch).map_err(Error::BadRequest)?;
    if after != before {
        write(&path(home), &after)?;
    }
    drop(locked);
    Ok(after)
}

/// The file's text: what differs from the defaults.
fn write(path: &Path, settings: &Settings) -> Result<()> {
    let internal = |e: &dyn std::fmt::Display| Error::Internal(format!("settings did not become TOML: {e}"));
    let text = match differences(&value(&Settings::default()), &value(settings)) {
        Some(differences) => toml::to_string(&differences).map_err(|e| internal(&e))?,
        None => String::new(),
    };
    // A link stays one.
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.into());
    let half = real.with_extension("toml.partial");
    let done = (|| {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&half)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&half, &real)?;
        // The new name, too, outlives a power cut.
        File::open(real.parent().unwrap_or(Path::new(".")))?.sync_all()
    })();
    if done.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&half);
    }
    done.map_err(|e| Error::io(path, e))
}

/// The settings with the patch's fields, or which of them is wrong.
fn changed(settings: &Settings, patch: &Value) -> Result<Settings, String> {
    if !patch.is_object() {
        return Err("settings are an object of fields".into());
    }
    let defaults = value(&Settings::default());
    let mut merged = value(settings);
    let mut leaves = Vec::new();
    merge(&mut merged, &defaults, patch, "", &mut leaves)?;
    // A wrong type is found in the patch's own fields, one at a time: the settings before it were right.
    for (key, leaf) in leaves {
        let mut alone = defaults.clone();
        let place = key.split('.').fold(&mut alone, |at, name| &mut at[name]);
        *place = leaf;
        serde_json::from_value::<Settings>(alone).map_err(|e| format!("{key}: {e}"))?;
    }
    let settings: Settings = serde_json::from_value(merged).map_err(|e| e.to_string())?;
    check(&settings)?;
    Ok(settings)
}

/// Puts the patch's fields over `base`'s and collects them with their keys.
fn merge(base: &mut Value, defaults: &Value, patch: &Value, at: &str, leaves: &mut Vec<(String, Value)>) -> Result<(), String> {
    let (Value::Object(base), Value::Object(patch)) = (base, patch) else {
        return Err(format!("{at}: must be a table of fields"));
    };
    for (name, new) in patch {
        let key = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
        let Some(old) = base.get_mut(name) else { return Err(unknown(&key, defaults)) };
        let default = at.split('.').filter(|part| !part.is_empty()).fold(defaults, |at, part| &at[part]).get(name);
        match new {
            Value::Null => *old = default.cloned().unwrap_or_default(),
            new if old.is_object() => merge(old, defaults, new, &key, leaves)?,
            new => {
                leaves.push((key, new.clone()));
                *old = new.clone();
            }
        }
    }
    Ok(())
}

fn check(settings: &Settings) -> Result<(), String> {
    let Settings { model, theme: _, shortcut, chat, endpoint, models } = settings;
    if let Some(model) = model
        && (model.trim().is_empty() || !plain(model))
    {
        return Err("model: must be the name of a model".into());
    }
    if !plain(shortcut) {
        return Err("shortcut: must be a combination of keys, such as CmdOrCtrl+Shift+Space".into());
    }
    if chat.temperature.is_some_and(|t| !(t.is_finite() && t >= 0.0)) {
        return Err("chat.temperature: must be a number that is not negative".into());
    }
    if chat.max_tokens == Some(0) {
        return Err("chat.max_tokens: must be at least 1".into());
    }
    if endpoint.port == 0 {
        return Err("endpoint.port: must be between 1 and 65535".into());
    }
    if models.folder.as_ref().is_some_and(|f| !f.is_absolute()) {
        return Err("models.folder: must be an absolute path".into());
    }
    if models.rate_limit == Some(0) {
        return Err("models.rate_limit: must be at least 1 byte a second".into());
    }
    Ok(())
}

/// One line of no great length.
fn plain(text: &str) -> bool {
    text.chars().count() <= LONGEST && !text.chars().any(char::is_control)
}

fn unknown(key: &str, defaults: &Value) -> String {
    let mut known = Vec::new();
    keys(defaults, "", &mut known);
    // The whole key, or a name that stands at the wrong place.
    let distance = |name: &String| distance(key, name).min(distance(key, name.rsplit('.').next().unwrap_or(name)));
    match known.iter().min_by_key(|name| distance(name)) {
        Some(nearest) if distance(nearest) <= nearest.len().div_ceil(2) => {
            format!("{key:.100}: no such setting\nhint: is {nearest} meant?")
        }
        _ => format!("{key:.100}: no such setting\nhint: there are {}", known.join(", ")),
    }
}

fn keys(value: &Value, at: &str, known: &mut Vec<String>) {
    for (name, value) in value.as_object().into_iter().flatten() {
        let key = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
        if value.is_object() {
            keys(value, &key, known);
        }
        known.push(key);
    }
}

/// Edits of one character (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(100).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// Settings are plain data, which always is JSON. Numbers are as short as an f32 can be told.
fn value(settings: &Settings) -> Value {
    let mut value = serde_json::to_value(settings).unwrap_or_default();
    shorten(&mut value);
    value
}

fn shorten(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(shorten),
        Value::Number(number) if number.is_f64() => {
            let single = number.as_f64().unwrap_or_default() as f32;
            if let Ok(short) = single.to_string().parse::<f64>() {
                *value = short.into();
            }
        }
        _ => {}
    }
}

/// What `new` has otherwise; TOML knows no null, and a field that is back at its default is left out anyway.
fn differences(old: &Value, new: &Value) -> Option<Value> {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let different = |(name, new): (&String, &Value)| Some((name.clone(), differences(old.get(name)?, new)?));
            let fields: Map<String, Value> = new.iter().filter_map(different).collect();
            (!fields.is_empty()).then_some(Value::Object(fields))
        }
        (old, new) => (old != new).then(|| new.clone()),
    }
}

#[cfg(test)]
mod tests;
