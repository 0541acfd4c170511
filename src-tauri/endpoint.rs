//! The localhost endpoint as the app's switch: settings, the running server, and what to say about it.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Mutex;
use std::time::Duration;

use rmlx_engine::api::{EndpointSettings, EndpointState, ErrorInfo};
use rmlx_engine::engine::Engine;
use rmlx_engine::error::{Error, Result};
use rmlx_engine::server::{self, ServeOptions, Serving};
use serde_json::json;
use tauri::{AppHandle, Runtime};

use crate::app::{self, State, lock};
use crate::tray;

/// What requests get to finish when the endpoint is switched off.
const GRACE: Duration = Duration::from_secs(2);

#[derive(Default)]
pub struct Endpoint {
    /// Held through every change, so that changes come one after another.
    serving: Mutex<Option<Serving>>,
    state: Mutex<EndpointState>,
}

impl Endpoint {
    pub fn state(&self) -> EndpointState {
        lock(&self.state).clone()
    }

    pub fn is_on(&self) -> bool {
        matches!(*lock(&self.state), EndpointState::On { .. })
    }

    pub fn stop(&self, grace: Duration) {
        if let Some(serving) = lock(&self.serving).take() {
            serving.stop(grace);
        }
        *lock(&self.state) = EndpointState::Off;
    }

    /// Starts, moves or stops the endpoint. A port that cannot be had is a state, not an error: the switch shows it.
    fn become_as(&self, engine: Engine, wanted: &EndpointSettings) -> EndpointState {
        let mut serving = lock(&self.serving);
        let fits = |serving: &Serving| wanted.enabled && serving.address().port() == wanted.port;
        if !serving.as_ref().is_some_and(fits) {
            if let Some(old) = serving.take() {
                old.stop(GRACE);
            }
            let state = if wanted.enabled { start(engine, wanted.port, &mut serving) } else { EndpointState::Off };
            *lock(&self.state) = state;
        }
        self.state()
    }
}

fn start(engine: Engine, port: u16, serving: &mut Option<Serving>) -> EndpointState {
    let options = ServeOptions { host: IpAddr::V4(Ipv4Addr::LOCALHOST), port };
    match server::start(engine, &options) {
        Ok(started) => {
            let url = started.url();
            *serving = Some(started);
            EndpointState::On { url }
        }
        Err(error) => {
            tracing::warn!(code = error.code(), "the endpoint could not start: {error}");
            let next_port = match error {
                Error::PortTaken { next, .. } => next,
                _ => None,
            };
            EndpointState::Failed { error: ErrorInfo::from(&error), next_port }
        }
    }
}

/// Keeps the switch (and the port, when one is given) as settings and makes the endpoint follow them. Blocks.
///
/// # Errors
/// Settings that could not be written; then nothing changed.
pub fn set<R: Runtime>(app: &AppHandle<R>, on: bool, port: Option<u16>) -> Result<EndpointState> {
    if port == Some(0) {
        return Err(Error::BadRequest("an endpoint's port is between 1 and 65535: 0".into()));
    }
    let mut patch = json!({ "enabled": on });
    if let Some(port) = port {
        patch["port"] = port.into();
    }
    let settings = app::state(app).engine()?.set_settings(&json!({ "endpoint": patch }))?;
    app::tell(app, "settings", settings);
    Ok(follow_settings(app))
}

/// Makes the endpoint what the settings say, and tells the page and the menu. Blocks.
pub fn follow_settings<R: Runtime>(app: &AppHandle<R>) -> EndpointState {
    let state = app::state(app);
    let now = apply(&state).unwrap_or_else(|error| {
        tracing::error!(code = error.code(), "the endpoint's settings could not be read: {error}");
        EndpointState::Failed { error: ErrorInfo::from(&error), next_port: None }
    });
    app::tell(app, "endpoint", &now);
    tray::refresh(app);
    now
}

fn apply(state: &State) -> Result<EndpointState> {
    let engine = state.engine()?;
    let wanted = engine.settings()?.endpoint;
    Ok(state.endpoint.become_as(engine, &wanted))
}
