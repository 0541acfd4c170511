//! Chat templates: the model's own Jinja text, rendered as transformers renders it.
//!
//! * A template comes from the network. It sees values only, runs on a budget of steps and bytes, and cannot load a file.
//! * The clock is the caller's: the same conversation at the same time renders to the same text.
//! * Where Jinja2, Python and minijinja differ, Python wins: `tests/fixtures/templates/semantics.json` holds what the
//!   reference prints.

mod bounds;
mod environment;
mod methods;
mod strftime;
mod tojson;
mod value;

use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use minijinja::{Environment, ErrorKind, Value};
use serde_json::{Map, Value as Json};
use time::OffsetDateTime;

use super::files::{read_json, read_text};
use super::special::SpecialTokens;
use crate::error::{Error, Result};

/// Bytes of a template's source. The longest known ones have some 50 KB.
const MAX_SOURCE: usize = 1 << 20;
/// Steps of one rendering; a step also pays for 64 bytes of text. This bounds time and memory.
const FUEL: u64 = 3_000_000;
/// Further steps for each byte of the conversation: every filter that a text passes through pays for it.
const FUEL_PER_BYTE: u64 = 2;
/// Bytes of output beyond eight times the conversation.
const OUTPUT: usize = 4 << 20;

/// How a model wants conversations written.
#[derive(Debug, Clone)]
pub enum ChatTemplate {
    /// The snapshot has no template: a base model, which goes on with a text and does not chat.
    None,
    Jinja(Jinja),
}

/// One conversation to write.
#[derive(Debug, Clone, Copy)]
pub struct Conversation<'a> {
    /// Objects with `role` and `content`, in the shape of OpenAI's API; further keys reach the template as they are. Keys
    /// with `null` count as absent.
    pub messages: &'a [Json],
    /// What else the template sees: `tools`, `documents`, `enable_thinking`, ...
    pub variables: &'a Map<String, Json>,
    pub end: End,
    /// What `strftime_now` prints.
    pub now: OffsetDateTime,
}

/// How the rendered text ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With the header of the assistant's next message (`add_generation_prompt`).
    NextMessage,
    /// Inside the last message, which the model goes on with.
    OpenMessage,
    /// After the last message.
    Closed,
}

impl ChatTemplate {
    /// The template of a snapshot: `chat_template.jinja` with `additional_chat_templates/*.jinja` beside it, else
    /// `chat_template` of tokenizer_config.json (a text, or named texts), else chat_template.json, else `chat_templates/`.
    ///
    /// # Errors
    /// [`Error::BadFile`] for files that cannot be read as what they are, [`Error::Template`] for a template that does not parse.
    pub fn load(folder: &Path) -> Result<Self> {
        let special = SpecialTokens::load(folder)?;
        match find_sources(folder)? {
            Some((path, sources)) => Jinja::new(sources, &special)
                .map(Self::Jinja)
                .map_err(|e| Error::Template(format!("{}: {}", path.display(), reason_of(e)))),
            None => Ok(Self::None),
        }
    }

    /// A template given as text.
    ///
    /// # Errors
    /// [`Error::Template`] where it does not parse.
    pub fn from_source(source: &str, special: &SpecialTokens) -> Result<Self> {
        Jinja::new(BTreeMap::from([(DEFAULT.into(), source.into())]), special).map(Self::Jinja)
    }

    pub fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// # Errors
    /// [`Error::BadRequest`] where there is no template or nothing to render, [`Error::Template`] where the template fails,
    /// refuses the conversation, or runs out of its budget.
    pub fn render(&self, conversation: &Conversation) -> Result<String> {
        match self {
            Self::None => Err(Error::BadRequest(
                "this model has no chat template: it is a base model, which goes on with a text and does not chat".into(),
            )),
            Self::Jinja(jinja) => jinja.render(conversation),
        }
    }
}

const DEFAULT: &str = "default";
/// Used where tools are given.
const TOOL_USE: &str = "tool_use";

/// A compiled template.
#[derive(Clone)]
pub struct Jinja {
    environment: Arc<Environment<'static>>,
    /// Source by name.
    sources: Arc<BTreeMap<String, String>>,
    /// `bos_token` and the like.
    special: Arc<BTreeMap<String, String>>,
}

impl std::fmt::Debug for Jinja {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Jinja").field("templates", &self.sources.keys()).finish_non_exhaustive()
    }
}

impl Jinja {
    fn new(sources: BTreeMap<String, String>, special: &SpecialTokens) -> Result<Self> {
        let mut environment = environment::new();
        for (name, source) in &sources {
            if source.len() > MAX_SOURCE {
                return Err(Error::Template(format!("the template has {} bytes; {MAX_SOURCE} are allowed", source.len())));
            }
            // Jinja2 reads every line end as `\n`.
            let source = source.replace("\r\n", "\n").replace('\r', "\n");
            let source = bounds::rewrite(&source).map_err(Error::Template)?;
            environment = add(environment, name.clone(), source)?;
        }
        Ok(Self {
            environment: Arc::new(environment),
            sources: Arc::new(sources),
            special: Arc::new(special.named().map(|(name, text)| (name.to_string(), text.to_string())).collect()),
        })
    }

    /// The source that is used with, or without, tools.
    pub fn source(&self, with_tools: bool) -> &str {
        self.sources.get(self.name(with_tools)).map_or("", String::as_str)
    }

    fn name(&self, with_tools: bool) -> &str {
        let named = |name: &str| self.sources.contains_key(name);
        match () {
            () if with_tools && named(TOOL_USE) => TOOL_USE,
            () if named(DEFAULT) => DEFAULT,
            () => self.sources.keys().next().map_or(DEFAULT, String::as_str),
        }
    }

    fn render(&self, conversation: &Conversation) -> Result<String> {
        let mut messages = normalize(conversation.messages)?;
        let continued = match conversation.end {
            End::OpenMessage => Some(mark_end(&mut messages)?),
            _ => None,
        };
        let variables = conversation.variables;
        let tools = variables.get("tools").and_then(Json::as_array).is_some_and(|tools| !tools.is_empty());
        let bytes: usize = messages.iter().map(size_of_json).sum::<usize>() + variables.values().map(size_of_json).sum::<usize>();

        let mut environment = (*self.environment).clone();
        environment.set_fuel(Some(FUEL + bytes as u64 * FUEL_PER_BYTE));
        let items = messages.iter().chain(variables.values()).map(count_json).sum::<usize>();
        bounds::add_filters(&mut environment, bounds::ITEMS + 2 * items);
        let now = conversation.now;
        environment.add_function("strftime_now", move |format: &str| strftime::strftime(now, format));
        let template = environment.get_template(self.name(tools)).map_err(|e| explain(&e))?;

        // Absent tools are none and not undefined, as for the reference's callers.
        let mut context: BTreeMap<&str, Value> = BTreeMap::from([("tools", Value::from(())), ("documents", Value::from(()))]);
        context.extend(self.special.iter().map(|(name, text)| (name.as_str(), Value::from(text.as_str()))));
        context.extend(variables.iter().map(|(name, json)| (name.as_str(), value::from_json(json))));
        context.insert("messages", messages.iter().map(value::from_json).collect());
        context.insert("add_generation_prompt", Value::from(conversation.end == End::NextMessage));
        let context = Value::from_pairs(context);

        let mut output = Limited { bytes: Vec::new(), limit: OUTPUT + bytes.saturating_mul(8) };
        catch_unwind(AssertUnwindSafe(|| template.render_captured_to(context, &mut output).map(|_| ())))
            .unwrap_or_else(|_| Err(minijinja::Error::new(ErrorKind::InvalidOperation, "it broke its engine")))
            .map_err(|e| explain(&e))?;
        let text = String::from_utf8(output.bytes).map_err(|e| Error::Template(e.to_string()))?;
        match continued {
            Some(content) => cut_at_mark(text, &content),
            None => Ok(text),
        }
    }
}

/// Parses a template. Its expressions decide how much stack that takes, so it has a stack of its own.
fn add(mut environment: Environment<'static>, name: String, source: String) -> Result<Environment<'static>> {
    let parse = move || environment.add_template_owned(name, source).map(|()| environment);
    let thread = std::thread::Builder::new().name("template".into()).stack_size(bounds::PARSER_STACK).spawn(parse);
    match thread.map_err(|e| Error::Internal(format!("no thread for a template: {e}")))?.join() {
        Ok(parsed) => parsed.map_err(|e| explain(&e)),
        Err(_) => Err(Error::Template("it broke its parser".into())),
    }
}

fn explain(error: &minijinja::Error) -> Error {
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        if let Some(environment::Raised(message)) = inner.downcast_ref::<environment::Raised>() {
            return Error::Template(format!("it refuses the conversation: {message}"));
        }
        source = inner.source();
    }
    Error::Template(match (error.kind(), error.line()) {
        (ErrorKind::WriteFailure, _) => "it writes more text than the conversation explains".into(),
        (ErrorKind::OutOfFuel, _) => "it does not end within its budget of steps and bytes".into(),
        (kind, Some(line)) => {
            format!("{}, line {line}", error.detail().map_or_else(|| kind.to_string(), |d| format!("{kind}: {d}")))
        }
        (_, None) => error.to_string(),
    })
}

fn reason_of(error: Error) -> String {
    match error {
        Error::Template(reason) => reason,
        other => other.to_string(),
    }
}

/// A writer that refuses to grow without end.
struct Limited {
    bytes: Vec<u8>,
    limit: usize,
}

impl io::Write for Limited {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + text.len() > self.limit {
            return Err(io::Error::other(format!("the text is longer than {} bytes", self.limit)));
        }
        self.bytes.extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Messages as transformers hands them to templates: without keys that hold nothing, and with the reasoning under the names
/// that templates look for.
fn normalize(messages: &[Json]) -> Result<Vec<Json>> {
    if messages.is_empty() {
        return Err(Error::BadRequest("a conversation needs at least one message".into()));
    }
    let normal = |message: &Json| {
        let message = message.as_object().ok_or_else(|| Error::BadRequest("a message must be an object".into()))?;
        let mut message: Map<String, Json> =
            message.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), v.clone())).collect();
        let reasoning = ["reasoning_content", "thinking", "reasoning"].iter().find_map(|key| message.get(*key)).cloned();
        if let Some(reasoning) = reasoning {
            message.entry("thinking").or_insert_with(|| reasoning.clone());
            message.insert("reasoning_content".into(), reasoning);
        }
        Ok(Json::Object(message))
    };
    messages.iter().map(normal).collect()
}

/// A text that no conversation holds. It ends in a space so that a template that trims the content shows it.
const MARK: &str = "\u{f8ff}rmlx-goes-on-here\u{f8ff} ";

/// Marks the end of the last message's text, which is returned.
fn mark_end(messages: &mut [Json]) -> Result<String> {
    let nothing = || Error::BadRequest("the last message has no text to go on with".into());
    let content = messages.last_mut().and_then(|m| m.get_mut("content")).ok_or_else(nothing)?;
    let text = match content {
        Json::Array(parts) => parts.iter_mut().rev().find_map(|part| part.get_mut("text")).ok_or_else(nothing)?,
        content => content,
    };
    let original = text.as_str().ok_or_else(nothing)?.to_string();
    *text = Json::String(format!("{original}{MARK}"));
    Ok(original)
}

fn cut_at_mark(mut text: String, content: &str) -> Result<String> {
    let trimmed = MARK.trim_end();
    let at = text.rfind(trimmed).filter(|_| text.contains(content.trim()));
    let at =
        at.ok_or_else(|| Error::Template("it does not show the last message, so the message cannot be gone on with".into()))?;
    let kept_spaces = text[at..].starts_with(MARK);
    text.truncate(at);
    if !kept_spaces {
        text.truncate(text.trim_end().len());
    }
    Ok(text)
}

/// About the bytes of the value written down.
fn size_of_json(json: &Json) -> usize {
    match json {
        Json::String(text) => text.len() + 2,
        Json::Array(items) => 2 + items.iter().map(|i| 2 + size_of_json(i)).sum::<usize>(),
        Json::Object(map) => 2 + map.iter().map(|(k, v)| 4 + k.len() + size_of_json(v)).sum::<usize>(),
        _ => 8,
    }
}

/// The values in a value, itself included.
fn count_json(json: &Json) -> usize {
    1 + match json {
        Json::Array(items) => items.iter().map(count_json).sum(),
        Json::Object(map) => map.values().map(count_json).sum(),
        _ => 0usize,
    }
}

/// The templates of a snapshot by name, and the file or folder that they are from.
fn find_sources(folder: &Path) -> Result<Option<(std::path::PathBuf, BTreeMap<String, String>)>> {
    const LONE: &str = "chat_template.jinja";
    if let Some(source) = read_text(folder, LONE, MAX_SOURCE as u64)? {
        let mut sources = named_files(folder, "additional_chat_templates")?;
        sources.insert(DEFAULT.into(), source);
        return Ok(Some((folder.join(LONE), sources)));
    }
    for name in ["tokenizer_config.json", "chat_template.json"] {
        let path = folder.join(name);
        let Some(config) = read_json(folder, name)? else { continue };
        match config.get("chat_template") {
            None | Some(Json::Null) => {}
            Some(template) => {
                let sources = named_sources(template).ok_or_else(|| Error::bad_file(&path, "chat_template holds no text"))?;
                return Ok(Some((path, sources)));
            }
        }
    }
    for name in ["additional_chat_templates", "chat_templates"] {
        let sources = named_files(folder, name)?;
        if !sources.is_empty() {
            return Ok(Some((folder.join(name), sources)));
        }
    }
    Ok(None)
}

/// A text; a list of `{"name", "template"}`; or an object of texts.
fn named_sources(template: &Json) -> Option<BTreeMap<String, String>> {
    let sources: BTreeMap<String, String> = match template {
        Json::String(source) => BTreeMap::from([(DEFAULT.into(), source.clone())]),
        Json::Array(list) => list
            .iter()
            .map(|item| Some((item.get("name")?.as_str()?.into(), item.get("template")?.as_str()?.into())))
            .collect::<Option<_>>()?,
        Json::Object(map) => map.iter().map(|(name, s)| Some((name.clone(), s.as_str()?.into()))).collect::<Option<_>>()?,
        _ => return None,
    };
    (!sources.is_empty()).then_some(sources)
}

/// The files `<name>.jinja` of a folder in the snapshot, which need not exist.
fn named_files(snapshot: &Path, folder: &str) -> Result<BTreeMap<String, String>> {
    let mut sources = BTreeMap::new();
    let Ok(entries) = std::fs::read_dir(snapshot.join(folder)) else { return Ok(sources) };
    for entry in entries {
        let path = entry.map_err(|e| Error::io(snapshot.join(folder), e))?.path();
        let name = path.file_stem().and_then(|n| n.to_str()).filter(|_| path.extension().is_some_and(|e| e == "jinja"));
        if let Some(name) = name
            && let Some(source) = read_text(snapshot, &format!("{folder}/{name}.jinja"), MAX_SOURCE as u64)?
        {
            sources.insert(name.to_string(), source);
        }
    }
    Ok(sources)
}
