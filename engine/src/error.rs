//! One error type for the engine, named by cause. Whoever reacts to an error reacts to [`Error::code`], never to its text.

use std::fmt;
use std::path::{Path, PathBuf};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, with the file, tensor or number that it went wrong with.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// No snapshot answers to this name.
    #[error("no model is called {name}{hint}")]
    ModelNotFound { name: String, hint: String },
    /// A file of a snapshot is broken or contradicts another.
    #[error("{}: {reason}", path.display())]
    BadFile { path: PathBuf, reason: String },
    /// The snapshot is whole, but this version cannot run it.
    #[error("this model cannot be run: {0}")]
    Unsupported(String),
    /// Tensors that the architecture needs and the snapshot lacks, or the reverse, or with another shape.
    #[error("the weights do not fit the architecture: {0}")]
    Weights(String),
    #[error("the prompt has {prompt} tokens and the context holds {limit}{hint}")]
    ContextLength { prompt: usize, limit: usize, hint: String },
    /// The request itself is wrong.
    #[error("{0}")]
    BadRequest(String),
    #[error("the chat template failed: {0}")]
    Template(String),
    #[error("the tokenizer failed: {0}")]
    Tokenizer(String),
    #[error("the model's output is not a number: the weights or the arithmetic type do not suit each other")]
    NonFinite,
    /// It was asked as if it could chat.
    #[error(
        "this is a base model: it has no chat template and only continues text\nhint: choose a model made for chat, or continue a text: rmlx run MODEL --raw-prompt TEXT"
    )]
    BaseModel,
    #[error("cancelled")]
    Cancelled,
    #[error("another rMLX (process {pid}) holds the claim on this machine{hint}")]
    ClaimHeld { pid: String, hint: String },
    #[error("port {port} is taken by {owner}{hint}")]
    PortTaken { port: u16, owner: String, next: Option<u16>, hint: String },
    /// No such conversation or message.
    #[error("{0}")]
    NotFound(String),
    /// The database of conversations reported an error.
    #[error("{}: {reason}", path.display())]
    Store { path: PathBuf, reason: String },
    /// The hub refused, or could not be reached.
    #[error("{message}")]
    Hub { cause: HubCause, message: String },
    /// There is not enough room on the disk.
    #[error("{}: {needed} bytes are needed and {free} are free{hint}", path.display())]
    DiskFull { path: PathBuf, needed: u64, free: u64, hint: String },
    /// MLX itself reported an error.
    #[error("MLX: {0}")]
    Mlx(String),
    /// What another process's engine says, as it says it.
    #[error("{message}")]
    Attached { code: &'static str, message: String },
    /// A panic, or a worker that is gone: a fault of this program.
    #[error("internal error: {0}")]
    Internal(String),
}

/// Why the hub gave nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HubCause {
    /// No such repository or revision (or a private one, of which the hub does not tell).
    NotFound,
    /// Its publisher's terms must be accepted, or a token is missing.
    Gated,
    /// The token is wrong.
    Token,
    /// Too many requests.
    Busy,
    /// Not reachable.
    Offline,
    /// What came was not what the hub's protocol says.
    BadAnswer,
    /// A file's bytes were wrong again and again.
    BadDownload,
}

impl HubCause {
    fn code(self) -> &'static str {
        match self {
            Self::NotFound => "hub_not_found",
            Self::Gated => "hub_gated",
            Self::Token => "hub_token",
            Self::Busy => "hub_busy",
            Self::Offline => "hub_offline",
            Self::BadAnswer => "hub_bad_answer",
            Self::BadDownload => "bad_download",
        }
    }
}

impl Error {
    pub fn io(path: impl AsRef<Path>, source: std::io::Error) -> Self {
        Self::Io { path: path.as_ref().into(), source }
    }

    pub fn bad_file(path: impl AsRef<Path>, reason: impl fmt::Display) -> Self {
        Self::BadFile { path: path.as_ref().into(), reason: reason.to_string() }
    }

    /// A stable name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "io",
            Self::ModelNotFound { .. } => "model_not_found",
            Self::BadFile { .. } => "bad_file",
            Self::Unsupported(_) => "unsupported_model",
            Self::Weights(_) => "bad_weights",
            Self::ContextLength { .. } => "context_length_exceeded",
            Self::BadRequest(_) => "invalid_request",
            Self::Template(_) => "template",
            Self::Tokenizer(_) => "tokenizer",
            Self::NonFinite => "non_finite",
            Self::BaseModel => "base_model",
            Self::Cancelled => "cancelled",
            Self::ClaimHeld { .. } => "claim_held",
            Self::PortTaken { .. } => "port_taken",
            Self::NotFound(_) => "not_found",
            Self::Store { .. } => "store",
            Self::Hub { cause, .. } => cause.code(),
            Self::DiskFull { .. } => "disk_full",
            Self::Mlx(_) => "mlx",
            Self::Attached { code, .. } => code,
            Self::Internal(_) => "internal",
        }
    }

    /// A code that came from another process, if it is one of [`Self::code`]'s; else that of [`Self::Internal`].
    pub fn known_code(code: &str) -> &'static str {
        CODES.into_iter().find(|known| *known == code).unwrap_or("internal")
    }
}

const CODES: [&str; 26] = [
    "io",
    "model_not_found",
    "bad_file",
    "unsupported_model",
    "bad_weights",
    "context_length_exceeded",
    "invalid_request",
    "template",
    "tokenizer",
    "non_finite",
    "base_model",
    "cancelled",
    "claim_held",
    "port_taken",
    "not_found",
    "store",
    "hub_not_found",
    "hub_gated",
    "hub_token",
    "hub_busy",
    "hub_offline",
    "hub_bad_answer",
    "bad_download",
    "disk_full",
    "mlx",
    "internal",
];

impl From<mlx::Error> for Error {
    fn from(e: mlx::Error) -> Self {
        Self::Mlx(e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_survive_the_way_to_another_process() {
        let text = String::new;
        for error in [
            Error::io("f", std::io::Error::other("x")),
            Error::ModelNotFound { name: text(), hint: text() },
            Error::bad_file("f", ""),
            Error::Unsupported(text()),
            Error::Weights(text()),
            Error::ContextLength { prompt: 2, limit: 1, hint: text() },
            Error::BadRequest(text()),
            Error::Template(text()),
            Error::Tokenizer(text()),
            Error::NonFinite,
            Error::Cancelled,
            Error::ClaimHeld { pid: text(), hint: text() },
            Error::PortTaken { port: 1, owner: text(), next: None, hint: text() },
            Error::NotFound(text()),
            Error::Store { path: "f".into(), reason: text() },
            Error::Mlx(text()),
            Error::Internal(text()),
        ] {
            let attached = Error::Attached { code: Error::known_code(error.code()), message: error.to_string() };
            assert_eq!((attached.code(), attached.to_string()), (error.code(), error.to_string()));
        }
        assert_eq!(Error::known_code("from the future"), "internal");
    }
}
