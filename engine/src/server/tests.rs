use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use axum::routing::get;

use super::*;
use crate::api::{Device, Options};

fn get_path(at: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_panic_ends_one_request() {
    async fn here() -> &'static str {
        panic!("secret of this request")
    }
    async fn on_a_thread(axum::extract::State(app): axum::extract::State<Arc<App>>) -> errors::ApiResult<&'static str> {
        app.blocking(|| panic!("secret of this request")).await
    }
    let more = Router::new().route("/here", get(here)).route("/thread", get(on_a_thread));
    let engine = Engine::start(Options { device: Device::Cpu, ..Options::default() }).unwrap();
    let options = ServeOptions { host: Ipv4Addr::LOCALHOST.into(), port: 0 };
    let limits = Limits { preparing: 1, ..Limits::default() };
    let serving = start_router(engine, &options, limits, Vec::new(), more).unwrap();
    // More often than there are threads and turns.
    for path in ["/here", "/thread", "/here", "/thread", "/thread"] {
        let answer = get_path(serving.address(), path);
        assert!(answer.starts_with("HTTP/1.1 500 ") && answer.contains(r#""code":"internal""#), "{answer}");
        assert!(!answer.contains("secret") && answer.contains("x-request-id"), "{answer}");
    }
    assert!(get_path(serving.address(), "/health").starts_with("HTTP/1.1 200 "));
}
