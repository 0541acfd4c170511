//! The engine's thread: many answers at once, loads beside them, and failures that stay where they are. Most of it with models
//! made of functions, which stop where the test says.

mod loading;
#[path = "../support/mod.rs"]
mod support;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use rmlx_engine::api::{self, Event, FinishReason, Request, Sampling};
use rmlx_engine::claim::{Claim, Slot};
use rmlx_engine::decode::{Plan, Resolved};
use rmlx_engine::engine::Reader;
use rmlx_engine::error::{Error, Result};
use rmlx_engine::hub::Snapshot;
use rmlx_engine::pipe::pipe;
use rmlx_engine::registry::{Loader, Placement, Registry, Resident};
use rmlx_engine::text::Tokenizer;
use rmlx_engine::worker::{self, Command, Handle, Job, Wanted};
use support::fake::{Fake, Seen, Visit, one_hot};
use support::*;

const VOCABULARY: usize = 512;
/// Tokens of a prefill step on the CPU.
const CHUNK: usize = 128;
/// Nothing here takes that long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

fn oracle(name: &str) -> PathBuf {
    fixtures().join("oracles").join(name)
}

fn name_of(folder: &std::path::Path) -> String {
    folder.to_str().expect("a path in UTF-8").into()
}

/// A place where the engine's thread waits until the test lets it go on.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<GateState>, Condvar)>);

#[derive(Default)]
struct GateState {
    arrived: usize,
    allowed: usize,
}

impl Gate {
    fn wait<'a>(&'a self, until: impl Fn(&GateState) -> bool) -> std::sync::MutexGuard<'a, GateState> {
        let state = self.0.0.lock().unwrap();
        let (state, timeout) = self.0.1.wait_timeout_while(state, PATIENCE, |s| !until(s)).unwrap();
        assert!(!timeout.timed_out(), "nobody came: {} arrived, {} allowed", state.arrived, state.allowed);
        state
    }

    /// On the engine's thread.
    fn pass(&self) {
        let mine = {
            let mut state = self.0.0.lock().unwrap();
            state.arrived += 1;
            state.arrived
        };
        self.0.1.notify_all();
        drop(self.wait(|s| s.allowed >= mine));
    }

    /// Lets `n` more pass.
    fn allow(&self, n: usize) {
        let mut state = self.0.0.lock().unwrap();
        state.allowed = state.allowed.saturating_add(n);
        drop(state);
        self.0.1.notify_all();
    }

    fn open(&self) {
        self.allow(usize::MAX);
    }

    /// Waits until the engine's thread stands at the gate for the nth time.
    fn arrives(&self, n: usize) {
        drop(self.wait(|s| s.arrived >= n));
    }

    fn arrived(&self) -> usize {
        self.0.0.lock().unwrap().arrived
    }
}

/// A list that both threads see.
type Log<T> = Arc<Mutex<Vec<T>>>;

fn log<T>() -> Log<T> {
    Arc::default()
}

fn entries<T: Clone>(log: &Log<T>) -> Vec<T> {
    log.lock().unwrap().clone()
}

/// A worker whose models `make` makes, from the names they are asked for by.
fn worker(make: impl Fn(&str) -> Fake + Send + 'static) -> Handle {
    loading(move |name, _| Ok(make(name)))
}

type Told<'a> = &'a mut dyn FnMut(u64, u64) -> ControlFlow<()>;

/// The same where `make` tells how far it is and may fail.
fn loading(make: impl Fn(&str, Told<'_>) -> Result<Fake> + Send + 'static) -> Handle {
    worker::start_with(mlx::Device::Cpu, move || {
        Registry::with_loader(
            mlx::Device::Cpu,
            api::Dtype::Auto,
            Box::new(move |name, snapshot, _, progress| resident(name, snapshot, make(name, progress)?)),
        )
    })
    .unwrap()
}

fn resident(name: &str, snapshot: &Snapshot, model: Fake) -> Result<Resident> {
    let folder = snapshot.folder().into();
    let (model, dtype) = (Rc::new(model), mlx::Dtype::F32);
    Ok(Resident { name: name.into(), folder, model, vocabulary: VOCABULARY, dtype, claim: None })
}

/// Tells a hundred times.
fn tell(progress: Told<'_>, each: impl Fn(u64)) -> Result<()> {
    for i in 1..=100 {
        each(i);
        if progress(i, 100).is_break() {
            return Err(Error::Cancelled);
        }
    }
    Ok(())
}

/// A fixture by its name; what is made of it is the worker's matter.
fn wanted(name: &str) -> Wanted {
    Wanted { name: name.into(), snapshot: Arc::new(Snapshot::open(&oracle(name)).unwrap()) }
}

fn ask(worker: &Handle, model: &str, prompt: Vec<u32>, max_new: usize) -> Reader {
    let sampling = Sampling { temperature: Some(0.0), ..Sampling::default() };
    let plan = Plan {
        prompt,
        sampling: Resolved::new(&sampling, None, VOCABULARY).unwrap(),
        max_new,
        stop_ids: Default::default(),
        stop: Vec::new(),
    };
    let tokenizer = Arc::new(Tokenizer::load(&oracle("qwen3")).unwrap());
    let job = Job { wanted: wanted(model), plan, tokenizer, emit_tokens: true, asked: Instant::now() };
    let (writer, reader) = pipe();
    worker.send(Command::Generate(Box::new(job), writer)).unwrap();
    reader
}

fn load_model(worker: &Handle, model: &str) -> Reader {
    let (writer, reader) = pipe();
    worker.send(Command::Load(wanted(model), writer)).unwrap();
    reader
}

fn status(worker: &Handle) -> api::Status {
    let (reply, answer) = mpsc::channel();
    worker.send(Command::Status(reply)).unwrap();
    answer.recv_timeout(PATIENCE).expect("a status")
}

fn next(reader: &mut Reader) -> Option<Event> {
    match reader.next_timeout(PATIENCE) {
        Poll::Ready(event) => event,
        Poll::Pending => panic!("nothing came"),
    }
}

/// Waits for the first token.
fn begun(reader: &mut Reader) {
    while !matches!(next(reader).expect("it goes on"), Event::Token { .. }) {}
}

/// Writes the id of its prompt's first token, whatever follows: sequences can be told apart.
fn echo(seen: Seen) -> Vec<f32> {
    one_hot(VOCABULARY, seen.token)
}

// ---- many answers ----

#[test]
fn a_short_answer_does_not_wait_for_a_long_one() {
    let worker = worker(|_| Fake::new(echo));
    let mut long = ask(&worker, "qwen3", vec![1], 3000);
    begun(&mut long);
    let short = Answer::read(ask(&worker, "qwen3", vec![2; 10], 5));
    assert_eq!(short.ids, [2; 5]);
    // What came of the long one so far is not its end.
    while let Poll::Ready(event) = long.try_next() {
        assert!(matches!(event, Some(Event::Token { .. } | Event::Text { .. })), "{event:?}");
    }
    long.cancel();
    assert_eq!(Answer::read(long).code(), "cancelled");
}

/// Each turn is one step for every answer that is past its prompt, and one chunk for one that is not.
#[test]
fn steps_and_chunks_take_turns() {
    let (gate, steps, calls) = (Gate::default(), log(), log());
    let (at, seen, called) = (gate.clone(), steps.clone(), calls.clone());
    let worker = worker(move |_| {
        let (at, seen, called) = (at.clone(), seen.clone(), called.clone());
        let model = Fake::new(move |s| {
            seen.lock().unwrap().push(s.token);
            echo(s)
        });
        Fake { layers: 1, ..model }.visited(move |v| {
            called.lock().unwrap().push(v.tokens);
            at.pass();
            Ok(())
        })
    });
    // The first waits in its prompt until all are there.
    let first = ask(&worker, "qwen3", vec![1; 3], 8);
    gate.arrives(1);
    let rest: Vec<Reader> = (2..5).map(|id| ask(&worker, "qwen3", vec![id; 3], 8)).collect();
    let long = ask(&worker, "qwen3", vec![9; 20 * CHUNK], 2);
    gate.open();
    for reader in rest.into_iter().chain([first, long]) {
        Answer::read(reader).finished();
    }
    // Five prompts came one by one, so the others got at most a few steps ahead; then all go round.
    let steps: Vec<u32> = entries(&steps).into_iter().filter(|id| *id < 9).collect();
    assert_eq!(steps.len(), 4 * 8);
    for id in 1..5 {
        let places: Vec<usize> = (0..steps.len()).filter(|i| steps[*i] == id).collect();
        for pair in places.windows(2) {
            let between = &steps[pair[0] + 1..pair[1]];
            assert!(between.iter().all(|other| between.iter().filter(|o| *o == other).count() == 1), "{id}: {steps:?}");
        }
    }
    // Between two chunks of the long prompt every answer got its step.
    let calls = entries(&calls);
    let chunks: Vec<usize> = (0..calls.len()).filter(|i| calls[*i] == CHUNK).collect();
    assert_eq!(chunks.len(), 20);
    assert!(chunks.windows(2).take(5).all(|w| w[1] - w[0] > 1), "{calls:?}");
}

/// Two long prompts take turns too.
#[test]
fn prompts_take_turns() {
    let (gate, log) = (Gate::default(), log());
    let (at, seen) = (gate.clone(), log.clone());
    let worker = worker(move |_| {
        let (at, seen) = (at.clone(), seen.clone());
        Fake { layers: 1, ..Fake::new(echo) }.visited(move |v| {
            seen.lock().unwrap().push((v.position, v.tokens));
            at.pass();
            Ok(())
        })
    });
    let one = ask(&worker, "qwen3", vec![1; 4 * CHUNK], 1);
    gate.arrives(1);
    let two = ask(&worker, "qwen3", vec![2; 4 * CHUNK], 1);
    gate.open();
    Answer::read(one).finished();
    Answer::read(two).finished();
    let positions: Vec<usize> = entries(&log).iter().map(|(position, _)| position / CHUNK).collect();
    assert!(positions == [0, 0, 1, 1, 2, 2, 3, 3] || positions == [0, 1, 0, 2, 1, 3, 2, 3], "{positions:?}");
}

/// However much is asked, the answers in flight go on between the questions.
#[test]
fn a_flood_of_questions_does_not_stop_the_answers() {
    let gate = Gate::default();
    let worker = gated(&gate);
    let answer = ask(&worker, "qwen3", vec![1], 1_000_000);
    gate.arrives(1);
    let (reply, replies) = mpsc::channel();
    for _ in 0..200 {
        worker.send(Command::Status(reply.clone())).unwrap();
    }
    gate.open();
    for _ in 0..200 {
        replies.recv_timeout(PATIENCE).expect("a status");
    }
    assert!(gate.arrived() >= 200, "only {} steps meanwhile", gate.arrived());
    drop(answer);
}

// ---- cancelling ----

/// A gated model: one pass for each call of the only layer.
fn gated(gate: &Gate) -> Handle {
    let gate = gate.clone();
    worker(move |_| {
        let gate = gate.clone();
        Fake { layers: 1, ..Fake::new(echo) }.visited(move |_| {
            gate.pass();
            Ok(())
        })
    })
}

#[test]
fn a_dropped_reader_ends_an_answer_before_its_next_step() {
    for (passes, prompt) in [(1, 4 * CHUNK), (3, 4 * CHUNK), (4, 4 * CHUNK), (5, 2), (9, 2)] {
        let gate = Gate::default();
        let worker = gated(&gate);
        let reader = ask(&worker, "qwen3", vec![1; prompt], 1000);
        gate.allow(passes);
        // In the middle of a chunk or step.
        gate.arrives(passes + 1);
        drop(reader);
        gate.open();
        // Whatever the status finds has happened before.
        status(&worker);
        status(&worker);
        assert_eq!(gate.arrived(), passes + 1, "it went on");
        // There is room for the next.
        assert_eq!(Answer::read(ask(&worker, "qwen3", vec![3], 4)).ids, [3; 4]);
    }
}

#[test]
fn a_cancel_is_the_last_event() {
    let gate = Gate::default();
    let worker = gated(&gate);
    let reader = ask(&worker, "qwen3", vec![1], 1000);
    gate.allow(3);
    gate.arrives(4);
    reader.cancel();
    gate.open();
    let answer = Answer::read(reader);
    assert_eq!(answer.code(), "cancelled");
    assert!(answer.ids.len() <= 3);
    assert_eq!(gate.arrived(), 4);
}

/// One of many goes; the others do not notice.
#[test]
fn others_go_on_past_a_cancel() {
    let worker = worker(|_| Fake::new(echo));
    let mut readers: Vec<Reader> = (1..6).map(|id| ask(&worker, "qwen3", vec![id; 5], 60)).collect();
    begun(&mut readers[0]);
    drop(readers.remove(2));
    drop(readers.remove(0));
    for (reader, id) in readers.into_iter().zip([2, 4, 5]) {
        assert_eq!(Answer::read(reader).ids, [id; 60]);
    }
}

// ---- failures ----

/// A model that fails in its own way where the prompt has token 66.
fn failing(how: fn() -> Result<Vec<f32>>) -> Handle {
    worker(move |_| {
        let mut model = Fake::new(echo);
        model.scores = Box::new(move |seen| if seen.token == 66 { how() } else { Ok(echo(seen)) });
        model
    })
}

#[test]
fn a_failure_ends_its_own_answer_only() {
    type How = fn() -> Result<Vec<f32>>;
    let ways: [(How, &str, &str); 4] = [
        (|| panic!("the floor is {}", "wet"), "internal", "the floor is wet"),
        (|| std::panic::panic_any(7), "internal", "panic"),
        (|| Err(Error::Mlx("out of memory".into())), "mlx", "out of memory"),
        (|| Ok(vec![f32::NAN; VOCABULARY]), "non_finite", "not a number"),
    ];
    for (how, code, text) in ways {
        let worker = failing(how);
        let mut beside = ask(&worker, "qwen3", vec![7], 300);
        begun(&mut beside);
        let failed = Answer::read(ask(&worker, "qwen3", vec![1, 66], 10));
        assert_eq!(failed.code(), code);
        assert!(failed.failed.as_ref().unwrap().message.contains(text), "{failed:?}");
        assert_eq!(failed.ids, [0; 0]);
        assert_eq!(Answer::read(beside).finished().usage.completion_tokens, 300);
        assert_eq!(Answer::read(ask(&worker, "qwen3", vec![8], 3)).ids, [8; 3]);
        // The other commands come to the same failures.
        let (reply, logits) = mpsc::channel();
        worker.send(Command::Logits(wanted("qwen3"), vec![66], reply)).unwrap();
        let logits = logits.recv_timeout(PATIENCE).unwrap();
        assert!(logits.is_ok() == (code == "non_finite"), "{logits:?}");
        assert_eq!(status(&worker).resident, ["qwen3"]);
    }
}

/// A failure in the middle of an answer comes after what was written before it.
#[test]
fn what_was_written_before_a_failure_is_read() {
    let worker =
        worker(|_| Fake::new(echo).visited(|v: Visit| if v.position == 9 && v.layer == 2 { panic!("at nine") } else { Ok(()) }));
    let answer = Answer::read(ask(&worker, "qwen3", vec![4; 3], 50));
    assert_eq!(answer.code(), "internal");
    assert!(answer.failed.unwrap().message.contains("at nine"));
    // The step at position 9 is built before the token of the step before it is read.
    assert_eq!(answer.ids, [4; 6]);
}

#[test]
fn a_panic_before_the_first_step_ends_that_request_only() {
    // While a model is made, and while its states are.
    let worker = loading(|name, _| match name {
        "llama" => panic!("no such llama"),
        "qwen2" => Ok(Fake { layers: usize::MAX, ..Fake::new(echo) }),
        _ => Ok(Fake::new(echo)),
    });
    let mut beside = ask(&worker, "qwen3", vec![7], 300);
    begun(&mut beside);
    let failed = Answer::read(ask(&worker, "llama", vec![1], 10));
    assert!(failed.code() == "internal" && failed.failed.as_ref().unwrap().message.contains("no such llama"), "{failed:?}");
    let failed = Answer::read(ask(&worker, "qwen2", vec![1], 10));
    assert_eq!(failed.code(), "internal", "{failed:?}");
    assert_eq!(Answer::read(beside).finished().usage.completion_tokens, 300);
    assert_eq!(Answer::read(ask(&worker, "qwen3", vec![8], 3)).ids, [8; 3]);
}

// ---- other users ----

#[test]
fn threads_share_the_engine() {
    let engine = engine(None);
    let folder = name_of(&oracle("qwen3"));
    let threads: Vec<_> = (1..5u32)
        .map(|id| {
            let (engine, folder) = (engine.clone(), folder.clone());
            std::thread::spawn(move || {
                let asked = || Request { max_tokens: Some(12), ignore_eos: true, ..request(vec![id; 5]) };
                let answer = Answer::read(engine.generate(&folder, asked()).unwrap()).ids;
                assert_eq!(engine.status().resident, std::slice::from_ref(&folder));
                (answer, Answer::read(engine.generate(&folder, asked()).unwrap()).ids)
            })
        })
        .collect();
    for thread in threads {
        let (first, second) = thread.join().unwrap();
        assert_eq!((first.len(), &first), (12, &second));
    }
}

#[test]
fn a_measurement_is_of_what_was_asked() {
    let engine = engine(Some(600));
    let folder = name_of(&oracle("qwen3"));
    let plan = |contexts: Vec<usize>, tokens, runs| api::BenchPlan { contexts, tokens, prompt_chunk: None, runs };
    let report = engine.bench(&folder, plan(vec![10, 300], 4, 2)).unwrap();
    assert_eq!((report.device.as_str(), report.dtype.as_str(), report.model.as_str()), ("cpu", "f32", folder.as_str()));
    // Three layers, keys and values, two heads of 32, f32, grown by 256.
    let bytes = |positions: u64| 3 * 2 * 2 * 32 * 4 * positions;
    assert_eq!(report.rows.iter().map(|r| (r.ctx, r.kv_bytes)).collect::<Vec<_>>(), [(10, bytes(256)), (300, bytes(512))]);
    for row in &report.rows {
        let all = [row.prefill_tok_s, row.ttft_ms, row.decode_tok_s, row.host_us_per_token];
        assert!(all.iter().all(|x| x.is_finite() && *x > 0.0) && row.peak_bytes > 0, "{row:?}");
    }
    for (wrong, code) in [
        (plan(vec![0], 4, 1), "invalid_request"),
        (plan(vec![5], 1, 1), "invalid_request"),
        (plan(vec![5], 4, 0), "invalid_request"),
        (plan(vec![5, 597], 4, 1), "context_length_exceeded"),
        (plan(vec![usize::MAX], 4, 1), "context_length_exceeded"),
    ] {
        assert_eq!(engine.bench(&folder, wrong).expect_err("a refusal").code(), code);
    }
}

// ---- the end ----

#[test]
fn the_end_of_the_engine_ends_everything() {
    let gate = Gate::default();
    let at = gate.clone();
    let worker = loading(move |name, progress| {
        if name == "llama" {
            tell(progress, |_| at.pass())?;
        }
        Ok(Fake::new(echo))
    });
    let mut running = ask(&worker, "qwen3", vec![1], 1_000_000);
    begun(&mut running);
    let load = load_model(&worker, "llama");
    gate.arrives(1);
    let waiting = ask(&worker, "qwen3", vec![2], 5);
    let waiting_load = load_model(&worker, "qwen2");
    let (reply, logits) = mpsc::channel();
    worker.send(Command::Logits(wanted("qwen3"), vec![1], reply)).unwrap();
    let ended = std::thread::spawn(move || drop(worker));
    while !ended.is_finished() {
        // Slowly: the word of the end must get there before the load's end does.
        std::thread::sleep(Duration::from_millis(20));
        gate.allow(1);
    }
    ended.join().unwrap();
    assert!(gate.arrived() < 100, "the load went on to its end");
    for reader in [running, load, waiting, waiting_load] {
        assert_eq!(Answer::read(reader).code(), "cancelled");
    }
    // Its answer or none, but no waiting.
    let _ = logits.recv_timeout(PATIENCE);
    assert_ne!(logits.try_recv().map(|_| ()), Err(mpsc::TryRecvError::Empty));
}

#[test]
fn an_idle_engine_ends_and_an_unused_one_too() {
    drop(worker(|_| Fake::new(echo)));
    let engine = engine(None);
    let clone = engine.clone();
    drop(engine);
    let reader = clone.generate(&name_of(&oracle("llama")), Request { max_tokens: Some(2), ..request(vec![1]) }).unwrap();
    assert_eq!(Answer::read(reader).ids.len(), 2);
    drop(clone);
}

/// A waker may own the engine, and then the last handle goes on the engine's own thread.
#[test]
fn the_last_handle_may_go_on_the_engines_thread() {
    let gate = Gate::default();
    let worker = gated(&gate);
    let mut reader = ask(&worker, "qwen3", vec![1], 1_000_000);
    gate.allow(3);
    gate.arrives(4);
    while reader.try_next().is_ready() {}
    let owner = Mutex::new(Some(worker));
    let (gone, told) = mpsc::channel();
    reader.set_waker(Box::new(move || {
        drop(owner.lock().unwrap().take());
        let _ = gone.send(std::thread::current().name().map(str::to_string));
    }));
    gate.open();
    assert_eq!(told.recv_timeout(PATIENCE).expect("it was woken").as_deref(), Some("engine"));
    assert_eq!(Answer::read(reader).code(), "cancelled");
}

// ---- the pipe between the threads ----

/// A reader that does not read costs the text and no more; it is all there when it comes back.
#[test]
fn a_slow_reader_is_bounded() {
    let engine = engine(None);
    let folder = oracle("qwen3");
    let ask = |token_ids| {
        let asked = Request { token_ids, max_tokens: Some(600), ignore_eos: true, ..request(vec![1, 2, 3]) };
        engine.generate(&name_of(&folder), asked).unwrap()
    };
    let expected = Answer::read(ask(true));
    let slow = ask(false);
    // Another answer of that length begins later and ends later: the first is over.
    assert_eq!(Answer::read(ask(true)).text, expected.text);
    let events: Vec<Event> = slow.collect();
    assert!(events.len() <= 3, "{} events", events.len());
    assert!(matches!(&events[1], Event::Text { delta } if *delta == expected.text), "{events:?}");
    assert!(matches!(&events[2], Event::Finished(f) if f.usage.completion_tokens == 600));
}

#[test]
fn the_engine_tells_how_it_is_while_it_works() {
    let engine = engine(None);
    let before = engine.status();
    assert_eq!((before.device.as_str(), before.resident.len(), before.dtype), ("cpu", 0, None));
    let folder = name_of(&oracle("qwen3"));
    let mut reader = engine.generate(&folder, Request { ignore_eos: true, ..request(vec![1]) }).unwrap();
    begun(&mut reader);
    let busy = engine.status();
    assert_eq!((busy.resident, busy.dtype.as_deref()), (vec![folder], Some("f32")));
    assert!(busy.active_bytes > 0 && busy.peak_bytes >= busy.active_bytes);
    drop(reader);
}
