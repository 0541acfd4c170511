//! The pump: from an engine's pipe to the page, in batches over one channel.
//!
//! WebKit keeps memory for good when a message is too long, and a message for each token would keep it busy for nothing. So no
//! message comes sooner than [`PACE`] after the one before, and none has more than [`LIMIT`] bytes. Meanwhile the pipe merges what
//! is waiting in it; a text that is longer than a message is split between characters.

use std::collections::VecDeque;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use rmlx_engine::api::{ErrorInfo, Event};
use rmlx_engine::engine::Reader;
use tauri::ipc::Channel;

pub const PACE: Duration = Duration::from_millis(33);
/// Bytes of JSON.
pub const LIMIT: usize = 4096;

/// What a list of one text costs apart from the text: `[{"type":"text","delta":""}]`.
const FRAME: usize = 28;

/// Sends all events, the last one too, and returns why it failed if it did. Ends early, and drops the reader, when the channel takes
/// nothing more. Blocks.
pub fn pump(mut reader: Reader, channel: &Channel<Vec<Event>>) -> Option<ErrorInfo> {
    let mut waiting = Waiting::default();
    let mut failed = None;
    let mut next = Instant::now();
    let mut take = |event: Event, waiting: &mut Waiting| {
        if let Event::Failed(error) = &event {
            failed = Some(error.clone());
        }
        waiting.push(event);
    };
    loop {
        if waiting.events.is_empty() {
            let Some(event) = reader.next() else { break };
            take(event, &mut waiting);
        }
        thread::sleep(next.saturating_duration_since(Instant::now()));
        while waiting.bytes < LIMIT
            && let Poll::Ready(Some(event)) = reader.try_next()
        {
            take(event, &mut waiting);
        }
        if channel.send(waiting.batch()).is_err() {
            break;
        }
        next = Instant::now() + PACE;
    }
    failed
}

/// Events that each fit into a message, with the JSON bytes they take there (a comma included).
#[derive(Default)]
struct Waiting {
    events: VecDeque<(Event, usize)>,
    bytes: usize,
}

impl Waiting {
    fn push(&mut self, event: Event) {
        match event {
            Event::Text { delta } => {
                for piece in pieces(&delta, LIMIT - FRAME) {
                    self.add(Event::Text { delta: piece.into() });
                }
            }
            // Nothing else grows with what a model says, but a message may quote a long name.
            Event::Failed(ErrorInfo { code, message }) => {
                let head = pieces(&message, LIMIT / 2).next().unwrap_or_default();
                let message = if head.len() < message.len() { format!("{head}…") } else { message };
                self.add(Event::Failed(ErrorInfo { code, message }));
            }
            other => self.add(other),
        }
    }

    fn add(&mut self, event: Event) {
        let bytes = serde_json::to_vec(&event).map_or(LIMIT, |json| json.len()) + 1;
        self.bytes += bytes;
        self.events.push_back((event, bytes));
    }

    /// As many as one message holds; at least one.
    fn batch(&mut self) -> Vec<Event> {
        let mut batch = Vec::new();
        // The brackets, less the comma that the last one does not have.
        let mut size = 1;
        while let Some((_, bytes)) = self.events.front()
            && (batch.is_empty() || size + bytes <= LIMIT)
        {
            size += bytes;
            self.bytes -= bytes;
            batch.extend(self.events.pop_front().map(|(event, _)| event));
        }
        batch
    }
}

/// Splits between characters into pieces that have at most `limit` bytes as JSON.
fn pieces(mut text: &str, limit: usize) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let mut size = 0;
        let end = text.char_indices().find(|(_, c)| {
            size += escaped(*c);
            size > limit
        });
        let (piece, rest) = text.split_at(end.map_or(text.len(), |(at, _)| at));
        text = rest;
        Some(piece).filter(|piece| !piece.is_empty())
    })
}

/// Bytes of a character in a JSON string, as serde_json writes it.
fn escaped(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..'\u{20}' => 6,
        _ => c.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use rmlx_engine::api::{FinishReason, Finished, LoadStage, Timings, Usage};
    use rmlx_engine::error::Error;
    use rmlx_engine::pipe::pipe;
    use tauri::ipc::InvokeResponseBody;

    use super::*;

    type Sent = Arc<Mutex<Vec<(Instant, String)>>>;

    /// A channel that keeps its messages and, after `most` of them, takes none.
    fn channel(most: usize) -> (Channel<Vec<Event>>, Sent) {
        let sent = Sent::default();
        let sink = sent.clone();
        let channel = Channel::new(move |body| {
            let InvokeResponseBody::Json(json) = body else { panic!("not JSON") };
            let mut sent = sink.lock().unwrap();
            if sent.len() == most {
                return Err(tauri::Error::WebviewNotFound);
            }
            sent.push((Instant::now(), json));
            Ok(())
        });
        (channel, sent)
    }

    fn events(sent: &Sent) -> Vec<Event> {
        sent.lock().unwrap().iter().flat_map(|(_, json)| serde_json::from_str::<Vec<Event>>(json).unwrap()).collect()
    }

    fn text(delta: &str) -> Event {
        Event::Text { delta: delta.into() }
    }

    fn finished() -> Event {
        Event::Finished(Finished {
            reason: FinishReason::Stop,
            stop: None,
            usage: Usage::default(),
            timings: Timings::default(),
            kv_bytes: 0,
        })
    }

    #[test]
    fn the_frame_is_what_an_empty_text_takes() {
        assert_eq!(serde_json::to_string(&[text("")]).unwrap().len(), FRAME);
    }

    #[test]
    fn characters_are_counted_as_they_are_written() {
        for c in ('\0'..='\u{ff}').chain(['\u{2028}', '語', '😀', '\u{7f}', '\u{fffd}']) {
            assert_eq!(serde_json::to_string(&c).unwrap().len() - 2, escaped(c), "{c:?}");
        }
    }

    #[test]
    fn long_texts_come_whole_in_order_in_small_messages() {
        for sample in ["a", "é", "語\n", "😀\"\\", "\u{1}x"] {
            let long = sample.repeat(3 * LIMIT / sample.len());
            let (writer, reader) = pipe();
            writer.push(Event::Prefill { done: 1, total: 1 });
            writer.push(text(&long));
            writer.push(finished());
            let (channel, sent) = channel(usize::MAX);
            assert_eq!(pump(reader, &channel), None);
            let sizes: Vec<_> = sent.lock().unwrap().iter().map(|(_, json)| json.len()).collect();
            assert!(sizes.iter().all(|size| *size <= LIMIT), "{sizes:?}");
            assert!(sizes[1] > LIMIT - 8, "messages are filled: {sizes:?}");
            let events = events(&sent);
            assert_eq!(events.first(), Some(&Event::Prefill { done: 1, total: 1 }));
            assert_eq!(events.last(), Some(&finished()));
            let joined: String =
                events.iter().filter_map(|e| if let Event::Text { delta } = e { Some(&**delta) } else { None }).collect();
            assert!(joined == long, "{sample:?}");
        }
    }

    #[test]
    fn many_small_events_share_messages_and_keep_their_order() {
        let (writer, reader) = pipe();
        for id in 0..1000 {
            writer.push(Event::Token { id, logprob: None });
        }
        writer.push(finished());
        let (channel, sent) = channel(usize::MAX);
        pump(reader, &channel);
        let sent_count = sent.lock().unwrap().len();
        assert!((9..30).contains(&sent_count), "{sent_count}");
        assert!(sent.lock().unwrap().iter().all(|(_, json)| json.len() <= LIMIT));
        let ids: Vec<_> =
            events(&sent).iter().filter_map(|e| if let Event::Token { id, .. } = e { Some(*id) } else { None }).collect();
        assert_eq!(ids, (0..1000).collect::<Vec<_>>());
        assert_eq!(events(&sent).last(), Some(&finished()));
    }

    #[test]
    fn no_message_comes_sooner_than_the_pace_however_fast_the_writer() {
        let (writer, reader) = pipe();
        let writing = thread::spawn(move || {
            let start = Instant::now();
            let mut count = 0;
            while start.elapsed() < Duration::from_millis(400) {
                writer.push(text("token "));
                count += 1;
                thread::sleep(Duration::from_millis(1));
            }
            writer.push(finished());
            count
        });
        let (channel, sent) = channel(usize::MAX);
        pump(reader, &channel);
        let count = writing.join().unwrap();
        let sent = sent.lock().unwrap();
        assert!(sent.len() > 1);
        assert!(sent.windows(2).all(|two| two[1].0 - two[0].0 >= PACE));
        let texts: usize = sent.iter().map(|(_, json)| json.matches("token ").count()).sum();
        assert_eq!(texts, count);
    }

    #[test]
    fn a_message_waits_for_nothing_but_the_pace() {
        let (writer, reader) = pipe();
        let (channel, sent) = channel(usize::MAX);
        let pumping = thread::spawn(move || pump(reader, &channel));
        writer.push(text("first"));
        let start = Instant::now();
        while sent.lock().unwrap().is_empty() {
            assert!(start.elapsed() < Duration::from_secs(10), "the first text waits for a second one");
            thread::yield_now();
        }
        writer.push(finished());
        pumping.join().unwrap();
        assert_eq!(events(&sent), [text("first"), finished()]);
    }

    #[test]
    fn a_channel_that_takes_nothing_more_ends_the_pump_and_cancels_the_writer() {
        let (writer, reader) = pipe();
        let (channel, sent) = channel(1);
        let pumping = thread::spawn(move || pump(reader, &channel));
        let start = Instant::now();
        while !writer.is_cancelled() {
            assert!(start.elapsed() < Duration::from_secs(10), "the pump goes on");
            writer.push(text("more "));
            thread::yield_now();
        }
        assert_eq!(pumping.join().unwrap(), None);
        assert_eq!(sent.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_failure_is_sent_and_returned_and_a_long_one_is_cut() {
        let (writer, reader) = pipe();
        writer.push(Event::Loading { stage: LoadStage::Weights, done: 1, total: 2 });
        writer.fail(&Error::Internal("\u{1}".repeat(LIMIT)));
        let (channel, sent) = channel(usize::MAX);
        let error = pump(reader, &channel).unwrap();
        assert_eq!(error.code, "internal");
        assert!(sent.lock().unwrap().iter().all(|(_, json)| json.len() <= LIMIT));
        assert!(matches!(events(&sent).last(), Some(Event::Failed(error)) if error.message.ends_with('…')));
    }
}
