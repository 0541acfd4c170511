//! Streams: what they say, and what becomes of them when their readers are slow or gone.

use std::io::{Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use rmlx_engine::server::Limits;
use serde_json::{Value, json};

use crate::client::{Frame, Server, Stream, body, chat, connect, get, only, post, utf8_model};
use crate::common::wait_for;
use crate::golden::utf8_bias;

/// An answer that does not end soon: its context holds it, and its end is forbidden.
fn endless() -> Value {
    json!({ "logit_bias": { "128": -100, "129": -100, "130": -100, "131": -100 }, "max_tokens": 30_000 })
}

#[test]
fn a_stream_and_one_piece_say_the_same() {
    let server = Server::new();
    let more = json!({ "max_tokens": 40, "temperature": 1.0, "seed": 11 });
    let whole = server.ask(more.clone()).text();
    assert!(!whole.is_empty());
    // All at once, some streamed and some not.
    let texts: Vec<String> = thread::scope(|scope| {
        let one = |i: usize| {
            let (server, more) = (&server, more.clone());
            scope.spawn(move || if i.is_multiple_of(2) { server.ask(more).text() } else { server.stream(more).text().0 })
        };
        let all: Vec<_> = (0..8).map(one).collect();
        all.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(texts.iter().all(|t| *t == whole), "{whole:?}: {texts:?}");
    let mut other = more;
    other["seed"] = 12.into();
    assert_ne!(server.ask(other).text(), whole);
}

/// Characters whose bytes come in several tokens arrive whole.
#[test]
fn characters_are_not_split() {
    let server = Server::new();
    let more = json!({ "max_tokens": 200, "temperature": 1.0, "logit_bias": utf8_bias() });
    let mut asked = body(&utf8_model(), more);
    let whole = chat(server.at(), &asked).text();
    assert!(whole.contains('é') && whole.chars().count() < 200, "{whole}");
    asked["stream"] = true.into();
    let mut pieces = Vec::new();
    for frame in Stream::open(server.at(), &asked) {
        // The client insists on UTF-8 in every frame.
        if let Frame::Data(chunk) = frame {
            pieces.extend(chunk["choices"][0]["delta"]["content"].as_str().map(str::to_owned));
        }
    }
    assert_eq!(pieces.concat(), whole);
    assert!(pieces.len() > 10, "{pieces:?}");
}

#[test]
fn silence_is_filled_with_comments() {
    let server = Server::with(Limits { keep_alive: Duration::from_millis(20), ..Limits::default() });
    // All of it is held back, because it may become the stop text.
    let stop = "h".repeat(1500);
    let stream = server.stream(json!({ "logit_bias": only('h'), "max_tokens": 1000, "stop": stop }));
    let frames: Vec<Frame> = stream.collect();
    let is_comment = |f: &&Frame| matches!(f, Frame::Comment(text) if text == "keep-alive");
    assert!(frames.iter().filter(is_comment).count() > 2, "{frames:?}");
    assert!(matches!(&frames[0], Frame::Data(role) if role["choices"][0]["delta"]["role"] == "assistant"));
    assert_eq!(frames.last(), Some(&Frame::Done));
}

/// The role comes before the prompt is read: while another prompt is, in fact.
#[test]
fn the_first_chunk_does_not_wait() {
    let server = Server::new();
    server.ask(json!({ "max_tokens": 1 })).ok();
    let long = json!([{ "role": "user", "content": "x".repeat(30_000) }]);
    let mut first = server.stream(json!({ "messages": long, "max_tokens": 1 }));
    assert!(matches!(first.next(), Some(Frame::Data(chunk)) if chunk["choices"][0]["delta"]["role"] == "assistant"));
    // Only now does the prompt come to its turn, or it is being read.
    wait_for("the prompt is read after that", || server.running() == 1);
}

#[test]
fn fifty_hang_ups_beside_a_running_answer() {
    let server = Server::new();
    let more = json!({ "max_tokens": 1500, "temperature": 1.0, "seed": 5, "logit_bias": endless()["logit_bias"] });
    let undisturbed = server.ask(more.clone()).text();
    let mut stream = server.stream(more);
    stream.tokens(1);
    thread::scope(|scope| {
        for _ in 0..5 {
            scope.spawn(|| {
                for _ in 0..10 {
                    server.stream(endless()).tokens(5);
                }
            });
        }
    });
    // 30,000 tokens each would take far longer than the test has patience.
    wait_for("the slots of those that are gone", || server.running() <= 1);
    let mut text = undisturbed[..0].to_owned();
    let (rest, done) = stream.text();
    text.push_str(&rest);
    assert!(done && undisturbed.ends_with(&text) && text.len() + 50 > undisturbed.len(), "{} {}", text.len(), undisturbed.len());
    wait_for("the last slot", || server.running() == 0);
    server.ask(json!({})).ok();
}

#[test]
fn hanging_up_without_a_stream_frees_the_slot() {
    let server = Server::new();
    for _ in 0..5 {
        let mut stream = connect(server.at());
        stream.write_all(post(&server.body(endless()).to_string(), "").as_bytes()).unwrap();
        wait_for("the answer to begin", || server.running() == 1);
        drop(stream);
        wait_for("its slot", || server.running() == 0);
    }
}

/// What nobody reads ends, long before the answer would, and takes no memory meanwhile.
#[test]
fn a_reader_that_takes_nothing() {
    let server = Server::with(Limits { stalled: Duration::from_millis(300), ..Limits::default() });
    let mut more = endless();
    // Large frames: the sockets' buffers fill sooner.
    more["logprobs"] = true.into();
    more["top_logprobs"] = 20.into();
    let mut stream = server.stream(more);
    stream.tokens(1);
    // Another is not held up.
    assert_eq!(get(server.at(), "/health").ok()["running"], 1);
    server.ask(json!({})).ok();
    wait_for("the end of the stalled answer", || server.running() == 0);
    let frames: Vec<Frame> = stream.collect();
    assert!(frames.len() < 29_000 && !frames.contains(&Frame::Done), "{}", frames.len());
}

/// A reader that is slow but reads gets everything, in fewer and larger pieces.
#[test]
fn a_slow_reader_gets_everything() {
    let server = Server::with(Limits { stalled: Duration::from_millis(500), ..Limits::default() });
    let more = json!({ "max_tokens": 400, "logit_bias": only('h') });
    let stream = server.stream(more);
    let (mut text, mut done, began) = (String::new(), false, Instant::now());
    for frame in stream {
        match frame {
            Frame::Data(chunk) => text.push_str(chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default()),
            Frame::Done => done = true,
            Frame::Comment(_) => {}
        }
        if began.elapsed() < Duration::from_millis(800) {
            thread::sleep(Duration::from_millis(5));
        }
    }
    assert!(done);
    assert_eq!(text, "h".repeat(400));
}

#[test]
fn connections_are_kept_for_the_next_request() {
    let server = Server::new();
    let mut stream = connect(server.at());
    let request = post(&server.body(json!({})).to_string(), "").replace("connection: close\r\n", "");
    let mut reader = std::io::BufReader::new(stream.try_clone().unwrap());
    for _ in 0..3 {
        stream.write_all(request.as_bytes()).unwrap();
        crate::client::read(&mut reader).ok();
    }
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(reader.read(&mut [0]).unwrap(), 0);
}
