//! The engine's thread. It owns every array, so everything that touches one happens here, step by step.
//!
//! A scheduler, never "one job at a time": each turn runs one prefill chunk for one sequence that still has prompt left, and one
//! decode step for every sequence that is past it; then new commands and cancellations are looked at. While a model loads, turns
//! go on between its tensors.

mod activity;
mod bench;
mod running;

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use mlx::Array;

use crate::api::{self, Activity, BenchPlan, BenchReport, Event, LoadStage, Logits, Status};
use crate::claim;
use crate::decode::Plan;
use crate::error::{Error, Result};
use crate::hub::Snapshot;
use crate::kernels::{self, Precision};
use crate::pipe::Writer;
use crate::registry::{Registry, Resident};
use crate::text::Tokenizer;
use activity::{Account, Board};
use running::Running;

/// A model by the name that the user gave and the files that it stands for.
pub struct Wanted {
    pub name: String,
    pub snapshot: Arc<Snapshot>,
}

/// One answer to make, everything but the model prepared.
pub struct Job {
    pub wanted: Wanted,
    pub plan: Plan,
    pub tokenizer: Arc<Tokenizer>,
    /// Token events are wanted.
    pub emit_tokens: bool,
    pub asked: Instant,
}

pub enum Command {
    Load(Wanted, Writer),
    Generate(Box<Job>, Writer),
    Logits(Wanted, Vec<u32>, Sender<Result<Logits>>),
    Bench(Wanted, BenchPlan, Sender<Result<BenchReport>>),
    Status(Sender<Status>),
    /// Gives the resident model's memory back.
    Unload(Sender<Result<()>>),
    Shutdown,
}

/// The way to the thread. When it goes, the thread ends its answers, gives up its model and its claim, and is waited for.
pub struct Handle {
    commands: Sender<Command>,
    device: mlx::Device,
    board: Board,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::Shutdown);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A pipe's waker that owns the last handle goes on the engine's own thread, which cannot wait for itself.
        if let Some(thread) = thread.filter(|t| t.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
    }
}

impl Handle {
    pub fn send(&self, command: Command) -> Result<()> {
        self.commands.send(command).map_err(|_| gone())
    }

    /// `cpu` or `gpu`.
    pub fn device(&self) -> &'static str {
        device_name(self.device)
    }

    pub fn activity(&self) -> Activity {
        self.board.now()
    }

    /// Calls `on_change` with every change from now on, on the engine's thread. One that panics is not called again.
    pub fn watch(&self, on_change: impl Fn(&Activity) + Send + Sync + 'static) {
        self.board.watch(on_change);
    }
}

/// Waits for the thread's reply.
pub fn answer<T>(reply: &Receiver<T>) -> Result<T> {
    reply.recv().map_err(|_| gone())
}

fn gone() -> Error {
    Error::Internal("the engine's thread is gone".into())
}

/// MLX has a GPU on this machine.
pub fn gpu_available() -> bool {
    mlx::gpu_available()
}

/// Starts the thread; nothing is loaded and no claim taken yet. Models on the GPU take theirs from `claim`.
///
/// # Errors
/// [`Error::BadRequest`] for a GPU that is not there, or a number of threads that cannot be set.
pub fn start(options: &api::Options, claim: claim::Slot) -> Result<Handle> {
    let (dtype, threads) = (options.dtype, options.threads);
    let device = match options.device {
        api::Device::Cpu => mlx::Device::Cpu,
        api::Device::Auto if !mlx::gpu_available() => mlx::Device::Cpu,
        api::Device::Gpu if !mlx::gpu_available() => {
            return Err(Error::BadRequest("this MLX finds no GPU on this machine; use --device cpu".into()));
        }
        api::Device::Auto | api::Device::Gpu => mlx::Device::Gpu,
    };
    if device == mlx::Device::Cpu && !mlx::set_cpu_threads(threads) {
        return Err(Error::BadRequest("MLX's matrix library here takes no number of threads; leave --threads out".into()));
    }
    kernels::pool::set_threads(threads);
    let precision = if options.exact { Precision::Exact } else { Precision::Fast };
    start_with(device, move || Registry::new(device, dtype).computing(precision).claiming(claim))
}

/// [`start`] with a registry of the caller's making, made on the thread.
///
/// # Errors
/// What the device says.
pub fn start_with(device: mlx::Device, registry: impl FnOnce() -> Registry + Send + 'static) -> Result<Handle> {
    let (commands, receiver) = mpsc::channel();
    let (started, start) = mpsc::channel();
    let board = Board::default();
    let account = Account::new(board.clone());
    let thread = std::thread::Builder::new()
        .name("engine".into())
        .spawn(move || {
            // The stream must belong to this thread.
            let ready = mlx::use_device(device).and_then(|()| limit_memory(device)).map_err(Error::from);
            let go = ready.is_ok();
            let _ = started.send(ready);
            if go {
                Worker::new(receiver, device, registry(), account).run();
            }
        })
        .map_err(|e| Error::Internal(format!("the engine's thread did not start: {e}")))?;
    answer(&start)??;
    Ok(Handle { commands, device, board, thread: Mutex::new(Some(thread)) })
}

/// Prompt tokens per prefill step. Between steps other sequences get their turn and cancellations are seen: the CPU needs about
/// as long for its chunk as a GPU for the larger one.
fn prefill_chunk(device: mlx::Device) -> usize {
    match device {
        mlx::Device::Cpu => 128,
        mlx::Device::Gpu => 2048,
    }
}

/// Keeps MLX's allocator well below what the GPU has: the CUDA backend allocates managed memory, which the driver would take from
/// the whole machine.
fn limit_memory(device: mlx::Device) -> mlx::Result<()> {
    match mlx::gpu_memory().filter(|_| device == mlx::Device::Gpu) {
        Some(bytes) => mlx::memory::set_limit(bytes / 4 * 3),
        None => Ok(()),
    }
}

struct Worker {
    commands: Receiver<Command>,
    device: mlx::Device,
    registry: Registry,
    running: Vec<Running>,
    account: Account,
    /// Commands that need a model and came while another was loading.
    waiting: VecDeque<Command>,
    /// The handle is gone: what waits has nobody to wait for it.
    ending: bool,
    /// Nothing was done since memory was given back.
    rested: bool,
}

impl Worker {
    fn new(commands: Receiver<Command>, device: mlx::Device, registry: Registry, account: Account) -> Self {
        Self { commands, device, registry, running: Vec::new(), account, waiting: VecDeque::new(), ending: false, rested: true }
    }

    /// Runs until told to shut down or nobody is left to tell.
    fn run(mut self) {
        while !self.ending {
            let next = match self.waiting.pop_front() {
                Some(command) => Ok(command),
                None if self.running.is_empty() => {
                    self.rest();
                    self.commands.recv().map_err(|_| TryRecvError::Disconnected)
                }
                None => self.commands.try_recv(),
            };
            match next {
                Err(TryRecvError::Disconnected) => break,
                Ok(command) => {
                    self.rested &= matches!(command, Command::Status(_));
                    self.handle(command);
                }
                Err(TryRecvError::Empty) => {}
            }
            // After each command, so that many of them do not hold up the answers in flight.
            if !self.ending {
                turn(&mut self.running, self.device, &mut self.account);
            }
        }
        self.end();
    }

    /// Gives back what work has left in the allocator. A GPU's cache stays: filling it again would slow down the next answer.
    fn rest(&mut self) {
        if std::mem::replace(&mut self.rested, true) || self.device != mlx::Device::Cpu {
            return;
        }
        if let Err(e) = mlx::memory::clear_cache() {
            tracing::warn!("{e}");
        }
    }

    /// Whoever still waits for an answer is told, and the model goes.
    fn end(mut self) {
        self.running.drain(..).for_each(Running::cancel);
        for command in self.waiting.drain(..).chain(self.commands.try_iter()) {
            if let Command::Load(_, writer) | Command::Generate(_, writer) = command {
                writer.fail(&Error::Cancelled);
            }
        }
        if let Err(e) = self.registry.unload() {
            tracing::warn!("{e}");
        }
    }

    fn handle(&mut self, command: Command) {
        match command {
            Command::Load(wanted, writer) => {
                if self.registry.get(wanted.snapshot.folder()).is_some() {
                    writer.push(Event::Loaded);
                    return writer.end();
                }
                match self.model(&wanted, Some(&writer)) {
                    Ok(_) => writer.end(),
                    Err(e) => writer.fail(&e),
                }
            }
            Command::Generate(job, writer) => match self.model(&job.wanted, Some(&writer)) {
                Ok(resident) => self.answer(*job, &resident, writer),
                Err(e) => writer.fail(&e),
            },
            Command::Logits(wanted, tokens, reply) => {
                let answer = guarded(|| {
                    let resident = self.model(&wanted, None)?;
                    self.logits(&resident, tokens)
                });
                let _ = reply.send(answer);
            }
            Command::Bench(wanted, plan, reply) => {
                let answer = guarded(|| {
                    let resident = self.model(&wanted, None)?;
                    let rows = bench::run(&resident, &plan, prefill_chunk(self.device))?;
                    Ok(BenchReport {
                        model: resident.name,
                        device: device_name(self.device).into(),
                        dtype: resident.dtype.name().into(),
                        mlx_version: mlx::version(),
                        rows,
                    })
                });
                let _ = reply.send(answer);
            }
            Command::Status(reply) => {
                let _ = reply.send(status(self.device, self.registry.resident()));
            }
            Command::Unload(reply) => {
                let _ = reply.send(self.unload());
            }
            Command::Shutdown => self.ending = true,
        }
    }

    /// Nobody's answer is cut off for it.
    fn unload(&mut self) -> Result<()> {
        if !self.running.is_empty() {
            return Err(Error::BadRequest("the model is answering\nhint: stop its answers, or wait for their end".into()));
        }
        let gone = guarded(|| self.registry.unload());
        self.account.unloaded();
        gone
    }

    fn answer(&mut self, job: Job, resident: &Resident, writer: Writer) {
        self.account.answer_begins(self.running.len() + 1);
        let failed = match Running::start(job, resident, writer) {
            Ok(running) => {
                self.running.extend(running);
                None
            }
            Err(e) => Some(e),
        };
        self.account.turned(self.running.len(), failed);
    }

    /// The model, loaded if it is not resident; `writer` then gets the events of the load.
    fn model(&mut self, wanted: &Wanted, writer: Option<&Writer>) -> Result<Resident> {
        if let Some(resident) = self.registry.get(wanted.snapshot.folder()) {
            return Ok(resident);
        }
        if writer.is_some_and(Writer::is_cancelled) {
            // It waited while another model loaded. What is resident stays.
            return Err(Error::Cancelled);
        }
        self.account.load_begins(&wanted.name);
        let loaded = self.load(wanted, writer);
        self.account.load_ended(self.registry.resident().map(|r| r.name.as_str()), loaded.as_ref().err());
        loaded
    }

    /// Loads in place of what is resident. Other sequences go on meanwhile.
    fn load(&mut self, wanted: &Wanted, writer: Option<&Writer>) -> Result<Resident> {
        let cancelled = || writer.is_some_and(Writer::is_cancelled);
        let Self { commands, device, registry, running, account, waiting, ending, rested: _ } = self;
        let push = |event| {
            if let Some(w) = writer {
                w.push(event);
            }
        };
        push(Event::Loading { stage: LoadStage::Inspect, done: 0, total: 0 });
        let mut progress = |done, total| {
            push(Event::Loading { stage: LoadStage::Weights, done, total });
            account.unloaded();
            turn(running, *device, account);
            for command in commands.try_iter() {
                match command {
                    Command::Status(reply) => {
                        let _ = reply.send(status(*device, None));
                    }
                    Command::Unload(reply) => {
                        let busy = "a model is being loaded\nhint: stop that, or wait for its end";
                        let _ = reply.send(Err(Error::BadRequest(busy.into())));
                    }
                    Command::Shutdown => *ending = true,
                    other => waiting.push_back(other),
                }
            }
            if *ending || cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let resident = guarded(|| registry.load(&wanted.name, &wanted.snapshot, &mut progress))?;
        if *device == mlx::Device::Gpu {
            // The GPU's kernels are compiled when they are first used; the first answer should not wait for that.
            push(Event::Loading { stage: LoadStage::Warmup, done: 0, total: 0 });
            guarded(|| bench::warm_up(&resident))?;
        }
        push(Event::Loaded);
        Ok(resident)
    }

    /// The logits after every token of a prompt.
    fn logits(&mut self, resident: &Resident, tokens: Vec<u32>) -> Result<Logits> {
        let mut states = resident.model.states();
        let mut data = Vec::with_capacity(tokens.len() * resident.vocabulary);
        for chunk in tokens.chunks(prefill_chunk(self.device)) {
            let ids = Array::from_slice(chunk, &[1, chunk.len()])?;
            let hidden = resident.model.forward(&ids, &mut states)?;
            data.extend(resident.model.logits(&hidden)?.to_f32()?);
            turn(&mut self.running, self.device, &mut self.account);
        }
        Ok(Logits { tokens, vocab: resident.vocabulary, data })
    }
}

/// One chunk for the first sequence that still has prompt left, one step for each that is past it.
fn turn(running: &mut Vec<Running>, device: mlx::Device, account: &mut Account) {
    if let Some(at) = running.iter().position(|r| !r.ready()) {
        running[at].prefill(prefill_chunk(device));
        // The others with prompt left come before it the next time.
        let worked = running.remove(at);
        running.push(worked);
    }
    // All steps are submitted before the first is waited for.
    running.iter_mut().for_each(Running::submit);
    running.iter_mut().for_each(Running::collect);
    let failed = running.iter_mut().filter_map(Running::failure).next_back();
    running.retain(|r| !r.over());
    account.turned(running.len(), failed);
}

fn status(device: mlx::Device, resident: Option<&Resident>) -> Status {
    let usage = mlx::memory::usage();
    Status {
        device: device_name(device).into(),
        dtype: resident.map(|r| r.dtype.name().into()),
        mlx_version: mlx::version(),
        active_bytes: (usage.active + kernels::attention::held_bytes()) as u64,
        peak_bytes: (usage.peak + kernels::attention::most_held_bytes()) as u64,
        cache_bytes: usage.cache as u64,
        resident: resident.map(|r| r.name.clone()).into_iter().collect(),
    }
}

fn device_name(device: mlx::Device) -> &'static str {
    match device {
        mlx::Device::Cpu => "cpu",
        mlx::Device::Gpu => "gpu",
    }
}

/// Runs one piece of work; a panic in it ends that work alone.
fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|s| s.to_string()).or_else(|| panic.downcast_ref::<String>().cloned());
        Err(Error::Internal(text.unwrap_or_else(|| "a panic without a text".into())))
    })
}
