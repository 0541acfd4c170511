//! Starting, stopping, and clients that take more than their share.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use rmlx_engine::api::{Device, Options};
use rmlx_engine::engine::Engine;
use rmlx_engine::error::Error;
use rmlx_engine::server::{self, Limits, ServeOptions};
use serde_json::json;

use crate::client::{ANY_PORT, Frame, Server, connect, get, only};
use crate::common::wait_for;

#[test]
fn heads_that_do_not_end() {
    let server = Server::with(Limits { head: Duration::from_millis(200), ..Limits::default() });
    let mut slow: Vec<_> = (0..5).map(|_| connect(server.at())).collect();
    for stream in &mut slow {
        stream.write_all(b"GET /health HTTP/1.1\r\nhost: local").unwrap();
    }
    let began = Instant::now();
    for stream in &mut slow {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
    assert!(began.elapsed() >= Duration::from_millis(150), "they were closed at once");
    // Nor one that says nothing at all.
    assert_eq!(connect(server.at()).read(&mut [0]).unwrap_or(0), 0);
    // Nor one with a head that is too large.
    let large = format!("GET /health HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "x".repeat(200_000));
    let mut stream = connect(server.at());
    let _ = stream.write_all(large.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(get(server.at(), "/health").status, 200);
}

#[test]
fn too_many_connections() {
    let server = Server::with(Limits { connections: 3, ..Limits::default() });
    let mut held: Vec<_> = (0..3).map(|_| connect(server.at())).collect();
    for stream in &mut held {
        stream.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        assert!(stream.read(&mut [0; 512]).unwrap() > 0);
    }
    assert_eq!(get(server.at(), "/health").error(), (503, None, "too_many_connections".into()));
    held.pop();
    wait_for("a place", || get(server.at(), "/health").status == 200);
}

#[test]
fn stopping_lets_short_answers_finish() {
    let Server { engine, serving, .. } = Server::new();
    drop((engine, serving));
    let server = Server::new();
    let mut stream = server.stream(json!({ "logit_bias": only('h'), "max_tokens": 300 }));
    stream.tokens(1);
    let at = server.at();
    let Server { serving, .. } = server;
    let stopping = thread::spawn(move || serving.stop(Duration::from_secs(60)));
    let (text, done) = stream.text();
    assert!(done, "{text}");
    stopping.join().unwrap();
    assert!(std::net::TcpStream::connect(at).is_err(), "it takes no more requests");
}

#[test]
fn stopping_ends_long_answers_with_an_error() {
    let server = Server::new();
    let long = json!({ "logit_bias": { "130": -100, "128": -100 }, "max_tokens": 30_000 });
    let mut stream = server.stream(long.clone());
    stream.tokens(1);
    let at = server.at();
    let body = server.body(long);
    let whole = thread::spawn(move || crate::client::chat(at, &body));
    wait_for("both", || server.running() == 2);
    let Server { engine, serving, .. } = server;
    let began = Instant::now();
    serving.stop(Duration::from_millis(200));
    assert!(began.elapsed() >= Duration::from_millis(200));
    let frames: Vec<Frame> = stream.collect();
    let Some(Frame::Data(last)) = frames.last() else { panic!("{:?}", frames.last()) };
    assert_eq!((&last["error"]["code"], &last["error"]["type"]), (&json!("server_stopping"), &json!("server_error")));
    assert!(!frames.contains(&Frame::Done));
    assert_eq!(whole.join().unwrap().error(), (503, None, "server_stopping".into()));
    wait_for("the slots", || engine.activity().running == 0);
}

#[test]
fn dropping_ends_at_once() {
    let server = Server::new();
    let mut stream = server.stream(json!({ "logit_bias": { "130": -100, "128": -100 }, "max_tokens": 30_000 }));
    stream.tokens(1);
    let at = server.at();
    let Server { engine, serving, .. } = server;
    let began = Instant::now();
    drop(serving);
    assert!(began.elapsed() < Duration::from_secs(5));
    assert!(!stream.text().1);
    wait_for("the slot", || engine.activity().running == 0);
    // The same port, though its connections are still closing.
    let again = ServeOptions { port: at.port(), ..ANY_PORT };
    let serving = server::start(engine, &again).unwrap();
    assert_eq!(get(serving.address(), "/health").status, 200);
    assert_eq!(serving.url(), format!("http://127.0.0.1:{}", at.port()));
}

/// The app has a runtime of its own.
#[test]
fn it_starts_inside_another_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let server = Server::new();
        assert_eq!(get(server.at(), "/health").status, 200);
        server.ask(json!({})).ok();
        let Server { serving, .. } = server;
        serving.stop(Duration::from_secs(1));
        drop(Server::new());
    });
}

#[test]
fn only_this_machine() {
    let engine = Engine::start(Options { device: Device::Cpu, ..Options::default() }).unwrap();
    for host in [Ipv4Addr::UNSPECIFIED, Ipv4Addr::new(192, 168, 0, 1)] {
        let refused = server::start(engine.clone(), &ServeOptions { host: IpAddr::V4(host), port: 0 });
        let error = refused.err().expect("nobody else may connect").to_string();
        assert!(error.contains("key"), "{error}");
    }
}

#[test]
fn a_port_that_is_taken() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let engine = Engine::start(Options { device: Device::Cpu, ..Options::default() }).unwrap();
    let Err(error) = server::start(engine.clone(), &ServeOptions { port, ..ANY_PORT }) else { panic!("two on one port") };
    let Error::PortTaken { port: named, owner, next, .. } = &error else { panic!("{error}") };
    assert_eq!(*named, port);
    assert!(owner.contains(&std::process::id().to_string()), "{owner}");
    let serving = server::start(engine, &ServeOptions { port: next.unwrap(), ..ANY_PORT }).unwrap();
    assert_eq!(get(serving.address(), "/health").status, 200);
}
