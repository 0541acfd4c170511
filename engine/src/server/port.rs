//! A port to listen on, or who has it.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};

use listeners::{Protocol, SocketState};

use crate::error::{Error, Result};

/// How many ports after the wanted one are tried for the offer.
const TRIES: u16 = 50;

/// The standard library sets `SO_REUSEADDR`, so connections that are still closing do not hold up a restart.
pub fn listen(address: SocketAddr) -> Result<TcpListener> {
    // macOS gives a loopback address to a second program when the first listens on all addresses.
    if cfg!(target_os = "macos") && address.port() != 0 && owner(address.port()).is_some() {
        return Err(taken(address));
    }
    let listener = TcpListener::bind(address).map_err(|e| match e.kind() {
        ErrorKind::AddrInUse => taken(address),
        ErrorKind::PermissionDenied => {
            Error::BadRequest(format!("port {} belongs to the system\nhint: choose one above 1023", address.port()))
        }
        _ => Error::io(address.to_string(), e),
    })?;
    listener.set_nonblocking(true).map_err(|e| Error::io(address.to_string(), e))?;
    Ok(listener)
}

fn taken(address: SocketAddr) -> Error {
    let port = address.port();
    let free = |port: &u16| TcpListener::bind((address.ip(), *port)).is_ok();
    let next = (port.saturating_add(1)..=port.saturating_add(TRIES)).filter(|p| *p != port).find(free);
    let hint = next.map(|next| format!("\nhint: port {next} is free")).unwrap_or_default();
    Error::PortTaken { port, owner: owner(port).unwrap_or_else(|| "another program".into()), next, hint }
}

/// The name and number of the process that listens; `None` where nobody does or the system does not say.
fn owner(port: u16) -> Option<String> {
    let all = listeners::get_all().ok()?;
    let ours = |l: &listeners::Listener| l.socket.port() == port && l.protocol == Protocol::TCP && l.state == SocketState::Listen;
    let process = all.into_iter().find(ours)?.process;
    Some(format!("{} (process {})", process.name, process.pid))
}
