//! How a command can end other than well, and with which exit code.

use rmlx_engine::api::ErrorInfo;
use rmlx_engine::error::Error;

pub type Result<T, E = Failure> = std::result::Result<T, E>;

#[derive(Debug)]
pub enum Failure {
    /// What was asked for does not fit together.
    Usage(String),
    Engine(ErrorInfo),
    /// SIGINT or SIGTERM.
    Signal(i32),
    /// Whoever read our output has seen enough, `head` say. No fault, and nobody to tell.
    StdoutClosed,
    /// The command has found something, and said so.
    Told,
}

impl Failure {
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Engine(error) if error.code == "claim_held" => 11,
            Self::Engine(_) | Self::Told => 1,
            Self::Signal(signal) => 128 + *signal as u8,
            Self::StdoutClosed => 0,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Engine(ErrorInfo::from(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes() {
        let held = Error::ClaimHeld { pid: "7".into(), hint: String::new() };
        for (failure, code) in [
            (Failure::from(held), 11),
            (Failure::from(Error::Cancelled), 1),
            (Failure::Usage(String::new()), 2),
            (Failure::Signal(2), 130),
            (Failure::Signal(15), 143),
            (Failure::StdoutClosed, 0),
            (Failure::Told, 1),
        ] {
            assert_eq!(failure.exit_code(), code, "{failure:?}");
        }
    }
}
