//! As little of HTTP as a client of the endpoint needs.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use serde_json::Value;

use crate::wait::ANSWER;

/// Status and body; `None` where nobody listens.
pub fn request(port: u16, method: &str, path: &str, body: Option<&Value>) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.set_read_timeout(Some(ANSWER)).unwrap();
    let body = body.map(Value::to_string).unwrap_or_default();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.into()))
}

pub fn health(port: u16) -> bool {
    request(port, "GET", "/health", None).is_some_and(|(status, _)| status == 200)
}
