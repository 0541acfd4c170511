//! A plain HTTP client over `std` sockets, and servers to speak to.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};

use rmlx_engine::api::{Device, Options};
use rmlx_engine::engine::Engine;
use rmlx_engine::server::{self, Limits, ServeOptions, Serving};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::{PATIENCE, tiny_model};

pub const ANY_PORT: ServeOptions = ServeOptions { host: IpAddr::V4(Ipv4Addr::LOCALHOST), port: 0 };

/// An endpoint in this process.
pub struct Server {
    pub engine: Engine,
    pub serving: Serving,
    folder: TempDir,
}

impl Server {
    pub fn new() -> Self {
        Self::with(Limits::default())
    }

    pub fn with(limits: Limits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        tiny_model(&folder.path().join("tiny"));
        let engine = Engine::start(Options { device: Device::Cpu, ..Options::default() }).unwrap();
        let models = vec![folder.path().join("tiny").to_str().unwrap().into(), utf8_model()];
        let serving = server::start_with(engine.clone(), &ANY_PORT, limits, models).unwrap();
        Self { engine, serving, folder }
    }

    pub fn at(&self) -> SocketAddr {
        self.serving.address()
    }

    /// Its tokens are the ASCII characters, and its context holds 32,768 of them.
    pub fn tiny(&self) -> String {
        self.folder.path().join("tiny").to_str().unwrap().into()
    }

    pub fn running(&self) -> usize {
        self.engine.activity().running
    }

    /// A body for the tiny model.
    pub fn body(&self, more: Value) -> Value {
        body(&self.tiny(), more)
    }

    pub fn ask(&self, more: Value) -> Response {
        chat(self.at(), &self.body(more))
    }

    pub fn stream(&self, more: Value) -> Stream {
        let mut body = self.body(more);
        body["stream"] = true.into();
        Stream::open(self.at(), &body)
    }
}

/// A model whose tokens are, among others, all single bytes.
pub fn utf8_model() -> String {
    crate::support::fixtures().join("oracles/llama").to_str().unwrap().into()
}

/// `more` goes over the defaults; `null` takes a field away.
pub fn body(model: &str, more: Value) -> Value {
    let mut body = json!({ "model": model, "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 8, "seed": 7 });
    for (name, value) in more.as_object().unwrap() {
        match value {
            Value::Null => drop(body.as_object_mut().unwrap().remove(name)),
            value => body[name] = value.clone(),
        }
    }
    body
}

/// Makes the tiny model write this letter only.
pub fn only(letter: char) -> Value {
    json!({ (letter as u32).to_string(): 100 })
}

#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    #[track_caller]
    pub fn ok(self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        self.json()
    }

    #[track_caller]
    pub fn text(self) -> String {
        self.ok()["choices"][0]["message"]["content"].as_str().unwrap().into()
    }

    /// Status, param and code of an error object, which must have a message and a type.
    #[track_caller]
    pub fn error(&self) -> (u16, Option<String>, String) {
        let error = &self.json()["error"];
        assert!(error["message"].as_str().is_some_and(|m| !m.is_empty()) && error["type"].is_string(), "{self:?}");
        (self.status, error["param"].as_str().map(Into::into), error["code"].as_str().unwrap_or_default().into())
    }
}

pub fn connect(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

pub fn get(at: SocketAddr, path: &str) -> Response {
    send(at, &format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"))
}

pub fn chat(at: SocketAddr, body: &Value) -> Response {
    send(at, &post(&body.to_string(), ""))
}

/// A request for a completion; `more` are header lines.
pub fn post(body: &str, more: &str) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n{more}\r\n{body}",
        body.len()
    )
}

pub fn send(at: SocketAddr, request: &str) -> Response {
    let mut stream = connect(at);
    // It may be refused before it is read.
    let _ = stream.write_all(request.as_bytes());
    read(&mut BufReader::new(stream))
}

/// Head and body of a response.
pub fn read(reader: &mut impl BufRead) -> Response {
    let (status, headers) = read_head(reader);
    let find = |name: &str| headers.iter().find(|(n, _): &&(String, String)| n == name).map(|(_, v)| v.clone());
    let mut body = Vec::new();
    if find("transfer-encoding").is_some() {
        while let Some(chunk) = read_chunk(reader) {
            body.extend(chunk);
        }
    } else if let Some(length) = find("content-length") {
        body.resize(length.parse().unwrap(), 0);
        reader.read_exact(&mut body).unwrap();
    }
    Response { status, headers, body: String::from_utf8(body).unwrap() }
}

fn read_head(reader: &mut impl BufRead) -> (u16, Vec<(String, String)>) {
    let mut line = || {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    };
    let first = line();
    let status = first.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or_else(|| panic!("no status: {first:?}"));
    let pair = |l: String| l.split_once(": ").map(|(n, v)| (n.to_lowercase(), v.to_owned()));
    (status, std::iter::from_fn(|| pair(line())).collect())
}

/// `None` at the end, also at one that is not said.
fn read_chunk(reader: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut size = String::new();
    reader.read_line(&mut size).ok()?;
    let size = usize::from_str_radix(size.trim(), 16).ok()?;
    let mut chunk = vec![0; size + 2];
    reader.read_exact(&mut chunk).ok()?;
    chunk.truncate(size);
    (size > 0).then_some(chunk)
}

/// A streamed answer.
pub struct Stream {
    pub headers: Vec<(String, String)>,
    pub status: u16,
    reader: BufReader<TcpStream>,
    rest: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Frame {
    Data(Value),
    Done,
    Comment(String),
}

impl Stream {
    pub fn open(at: SocketAddr, body: &Value) -> Self {
        let mut stream = connect(at);
        stream.write_all(post(&body.to_string(), "").as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let (status, headers) = read_head(&mut reader);
        Self { headers, status, reader, rest: Vec::new() }
    }

    /// The text of the answer so far to the end, and whether it came to one.
    pub fn text(self) -> (String, bool) {
        let (mut text, mut done) = (String::new(), false);
        for frame in self {
            match frame {
                Frame::Data(chunk) => text.push_str(chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default()),
                Frame::Done => done = true,
                Frame::Comment(_) => {}
            }
        }
        (text, done)
    }

    /// Reads this many frames with text.
    pub fn tokens(&mut self, count: usize) {
        let has_text = |frame: &Frame| matches!(frame, Frame::Data(c) if c["choices"][0]["delta"]["content"] != "");
        let read = self.by_ref().filter(has_text).take(count).count();
        assert_eq!(read, count);
    }
}

impl Iterator for Stream {
    type Item = Frame;

    fn next(&mut self) -> Option<Frame> {
        let end = loop {
            match self.rest.windows(2).position(|w| w == b"\n\n") {
                Some(end) => break end,
                None => self.rest.extend(read_chunk(&mut self.reader)?),
            }
        };
        let event: Vec<u8> = self.rest.drain(..end + 2).collect();
        let event = std::str::from_utf8(&event).expect("frames hold whole characters").trim_end();
        assert!(!event.contains('\n'), "{event:?}");
        Some(match event.strip_prefix("data: ") {
            Some("[DONE]") => Frame::Done,
            Some(data) => Frame::Data(serde_json::from_str(data).unwrap()),
            None => Frame::Comment(event.strip_prefix(": ").expect("data or a comment").into()),
        })
    }
}
