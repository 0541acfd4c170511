//! The localhost endpoint: OpenAI's dialect over HTTP.

use std::net::SocketAddr;
use std::time::Duration;

use crate::engine::Engine;
use crate::error::Result;

/// Where and how to listen.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    pub host: std::net::IpAddr,
    pub port: u16,
}

/// A running endpoint. Dropping it ends it at once.
pub struct Serving {
    address: SocketAddr,
}

/// Listens, on threads of its own; returns when connections are accepted.
///
/// # Errors
/// [`crate::error::Error::PortTaken`], with the port's owner and a free port.
#[allow(unused_variables, clippy::todo)]
pub fn start(engine: Engine, options: &ServeOptions) -> Result<Serving> {
    todo!()
}

impl Serving {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:8080`
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Takes no more requests; answers in flight get this long to finish, then end with an error that says so.
    #[allow(unused_variables, clippy::todo)]
    pub fn stop(self, grace: Duration) {
        todo!()
    }
}
