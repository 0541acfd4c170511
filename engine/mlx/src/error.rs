//! Errors as values. mlx-c reports a failed call by its return code and hands the text to one process-wide handler.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::panic::Location;
use std::sync::Once;

use mlx_sys as c;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What MLX said, and the line of Rust that asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    message: String,
    at: &'static Location<'static>,
}

impl Error {
    #[track_caller]
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), at: Location::caller() }
    }

    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at {}:{})", self.message, self.at.file(), self.at.line())
    }
}

impl std::error::Error for Error {}

thread_local! {
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Called by mlx-c on the thread whose call failed, inside its catch block: record, never unwind.
extern "C" fn record(message: *const c_char, _data: *mut c_void) {
    // SAFETY: mlx-c passes a NUL-terminated text that lives for the duration of this call.
    let text = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
    // mlx-c appends the place in its own source, which helps nobody.
    let text = match text.rfind(" at ") {
        Some(at) if text[at..].contains("mlx_c.cpp") || text[at..].contains("/mlx/c/") => text[..at].to_string(),
        _ => text,
    };
    let _ = LAST.try_with(|last| *last.borrow_mut() = Some(text));
}

/// Replaces mlx-c's default handler, which prints and EXITS the process. Every path into mlx-c comes through here first.
#[inline]
pub(crate) fn init() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler is a plain function without data; nothing needs dropping.
        unsafe { c::mlx_set_error_handler(Some(record), std::ptr::null_mut(), None) };
    });
}

#[cold]
#[track_caller]
pub(crate) fn last() -> Error {
    let text = LAST.with(|last| last.borrow_mut().take());
    Error::new(text.unwrap_or_else(|| "MLX reported an error without a text".into()))
}

/// Sets the text that the next failed call will report: for errors raised by our own callbacks.
pub(crate) fn set_last(text: String) {
    LAST.with(|last| *last.borrow_mut() = Some(text));
}

#[inline]
#[track_caller]
pub(crate) fn check(code: i32) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(last()) }
}
