//! Start-up and shut-down order, and the state that everything else shares.

use std::env;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, mpsc};
use std::thread;
use std::time::Duration;

use rmlx_engine::api::{Activity, Options, Pull, PullPhase};
use rmlx_engine::engine::{Canceller, Engine};
use rmlx_engine::error::{Error, Result};
use rmlx_engine::log;
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tauri::{AppHandle, Builder, Emitter, EventTarget, Manager, RunEvent, Runtime};

use crate::endpoint::Endpoint;
use crate::shortcut::Shortcut;
use crate::{endpoint, ipc, platform, shortcut, tray, window};

/// What requests of the endpoint get to finish when the app ends.
const ENDPOINT_GRACE: Duration = Duration::from_secs(2);
/// What the engine gets to save running answers. A step that it is in cannot be cut short.
const ENGINE_GRACE: Duration = Duration::from_secs(5);
/// The engine tells of every change; the page and the menu hear of them this often at most.
const COALESCE: Duration = Duration::from_millis(50);
/// Bytes of JSON that a change may have: the web view keeps memory for good when one is too long.
const CHANGE_LIMIT: usize = 4096;

/// Managed by Tauri as `Arc<State>`.
pub struct State {
    /// `None` once the app ends.
    engine: RwLock<Option<Engine>>,
    pub endpoint: Endpoint,
    /// Of the load that the page asked for last.
    pub load: Mutex<Option<Canceller>>,
    /// Ends the check of a model's files that the page asked for last.
    pub verify: Mutex<Option<Arc<AtomicBool>>>,
    /// Something is being downloaded by this process.
    fetching: AtomicBool,
    /// The newest that the engine told of.
    pub activity: Arc<Mutex<Activity>>,
    /// What the page wants to find again when its window comes back.
    pub page: Mutex<String>,
    pub window: window::Memory,
    pub shortcut: Shortcut,
    /// `Engine::conversations_stamp` when the page was last told that they changed.
    conversations: Mutex<Option<u64>>,
    /// The icon is there, and so is a place that shows it.
    pub tray: AtomicBool,
    /// Other rMLX processes of this user can use this engine.
    shared: AtomicBool,
    quitting: AtomicBool,
}

impl State {
    fn new(engine: Engine) -> Self {
        Self {
            activity: Arc::new(Mutex::new(engine.activity())),
            engine: RwLock::new(Some(engine)),
            endpoint: Endpoint::default(),
            load: Mutex::default(),
            verify: Mutex::default(),
            fetching: AtomicBool::new(false),
            page: Mutex::default(),
            window: window::Memory::default(),
            shortcut: Shortcut::default(),
            conversations: Mutex::default(),
            tray: AtomicBool::new(false),
            shared: AtomicBool::new(false),
            quitting: AtomicBool::new(false),
        }
    }

    pub fn engine(&self) -> Result<Engine> {
        let engine = self.engine.read().unwrap_or_else(PoisonError::into_inner);
        engine.clone().ok_or_else(|| Error::Internal("rMLX is quitting".into()))
    }

    pub fn quitting(&self) -> bool {
        self.quitting.load(Ordering::SeqCst)
    }

    /// Something would be lost or cut off if the app ended now.
    pub fn in_use(&self) -> bool {
        let activity = lock(&self.activity);
        activity.running > 0 || activity.loading.is_some() || self.fetching.load(Ordering::SeqCst) || self.endpoint.is_on()
    }

    fn share(&self) {
        let Ok(engine) = self.engine() else { return };
        match engine.share() {
            Ok(()) => self.shared.store(true, Ordering::SeqCst),
            Err(error) => tracing::warn!(code = error.code(), "other rMLX processes cannot use this engine: {error}"),
        }
    }
}

pub fn state<R: Runtime>(app: &AppHandle<R>) -> Arc<State> {
    app.state::<Arc<State>>().inner().clone()
}

/// No code that panics runs under the locks of this crate, so a poisoned one still guards whole data.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends a change to the page; nothing where there is no window. Names and payloads: `Changes` in `ui/src/ipc.ts`.
pub fn tell<R: Runtime>(app: &AppHandle<R>, change: &str, payload: impl Serialize + Clone) {
    if let Err(error) = app.emit_to(EventTarget::webview_window(window::MAIN), change, payload) {
        tracing::warn!("a change did not reach the page: {change}: {error}");
    }
}

/// Tells the page when conversations were changed, by whomever: the command line writes to the same database. Any thread.
pub fn look_at_conversations<R: Runtime>(app: &AppHandle<R>) {
    let app = app.clone();
    thread::spawn(move || {
        let state = state(&app);
        match state.engine().and_then(|engine| engine.conversations_stamp()) {
            Ok(now) if lock(&state.conversations).replace(now) != Some(now) => tell(&app, "conversations", ()),
            Ok(_) => {}
            Err(error) => tracing::warn!(code = error.code(), "conversations could not be looked at: {error}"),
        }
    });
}

/// What needs neither an event loop nor a display: the commands and the windows' rules.
pub fn configure<R: Runtime>(builder: Builder<R>) -> Builder<R> {
    builder.invoke_handler(ipc::handler()).on_window_event(window::on_event)
}

/// Gives the app its engine. Commands work from here on.
pub fn start<R: Runtime>(app: &AppHandle<R>, engine: Engine) {
    let (wake, woken) = mpsc::sync_channel(1);
    let state = Arc::new(State::new(engine.clone()));
    let newest = state.activity.clone();
    engine.watch(move |activity| {
        lock(&newest).clone_from(activity);
        // Full: whoever is woken by what is in there sees this activity too.
        let _ = wake.try_send(());
    });
    app.manage(state.clone());
    match engine.models() {
        Ok(models) => {
            let app = app.clone();
            models.watch_pulls(move |pulls| on_pulls(&app, pulls));
        }
        Err(error) => tracing::warn!(code = error.code(), "nothing can be downloaded: {error}"),
    }
    drop(engine);
    let app = app.clone();
    thread::spawn(move || {
        let mut last = Activity::default();
        while woken.recv().is_ok() {
            let now = lock(&state.activity).clone();
            on_activity(&app, &state, &last, &now);
            last = now;
            thread::sleep(COALESCE);
        }
    });
}

fn on_activity<R: Runtime>(app: &AppHandle<R>, state: &State, last: &Activity, now: &Activity) {
    if last == now {
        return;
    }
    tell(app, "activity", now);
    if last.running != now.running {
        tell(app, "conversations", ());
    }
    tray::refresh(app);
    // Another rMLX may have held the claim when this one started, and be gone.
    if now.model.is_some() && now.model != last.model && !state.shared.load(Ordering::SeqCst) {
        state.share();
    }
    window::after_work(app);
}

/// From the downloads' own thread.
pub(crate) fn on_pulls<R: Runtime>(app: &AppHandle<R>, pulls: &[Pull]) {
    let ended = |phase| matches!(phase, PullPhase::Paused | PullPhase::Done | PullPhase::Failed);
    let fetching = pulls.iter().any(|pull| !pull.elsewhere && !ended(pull.phase));
    let state = state(app);
    let before = state.fetching.swap(fetching, Ordering::SeqCst);
    let short = serde_json::to_vec(pulls).is_ok_and(|json| json.len() <= CHANGE_LIMIT);
    // Without them the page asks.
    tell(app, "pulls", short.then_some(pulls));
    if before && !fetching {
        window::after_work(app);
    }
}

/// The app, until the user quits it.
pub fn run() -> ExitCode {
    log::start(None);
    let mut hidden = false;
    for argument in env::args_os().skip(1) {
        match argument.to_str() {
            Some(window::HIDDEN) => hidden = true,
            Some("--version") => {
                println!("rMLX {}", env!("CARGO_PKG_VERSION"));
                return ExitCode::SUCCESS;
            }
            // Launchers add arguments of their own.
            _ => tracing::warn!("an argument that the app does not know has no effect"),
        }
    }
    if let Err(problem) = platform::display() {
        eprintln!("error: {problem}");
        return ExitCode::FAILURE;
    }
    let builder = Builder::default()
        // First of all: a second start must end before it does anything.
        .plugin(tauri_plugin_single_instance::init(|app, arguments, _| {
            // From any process of this user: one known word is looked for and nothing else is read.
            if !arguments.iter().any(|argument| argument == window::HIDDEN) {
                window::show(app);
            }
        }))
        .plugin(tauri_plugin_global_shortcut::Builder::new().with_handler(shortcut::on_press).build());
    let app = configure(builder)
        .setup(move |app| {
            set_up(app.handle(), hidden).inspect_err(|error| {
                // Tauri would panic with it.
                tracing::error!("the app could not start: {error}");
                eprintln!("error: {error}");
                std::process::exit(1);
            })?;
            Ok(())
        })
        .build(context());
    match app {
        Ok(app) => app.run(on_run_event),
        Err(error) => {
            tracing::error!("the app could not start: {error}");
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// The configuration, pages and permissions that the build put into this program.
pub fn context<R: Runtime>() -> tauri::Context<R> {
    tauri::generate_context!()
}

fn set_up<R: Runtime>(app: &AppHandle<R>, hidden: bool) -> std::result::Result<(), Box<dyn std::error::Error>> {
    start(app, Engine::start(Options::default())?);
    watch_signals(app)?;
    platform::start(app);
    // A hidden window would only hold memory: it is made when it is first shown.
    if !hidden {
        window::show(app);
    }
    shortcut::follow_settings(app);
    tray::start(app);
    let app = app.clone();
    thread::spawn(move || {
        state(&app).share();
        endpoint::follow_settings(&app);
    });
    Ok(())
}

fn on_run_event<R: Runtime>(app: &AppHandle<R>, event: RunEvent) {
    match event {
        // The last window went: its memory is released while the app goes on.
        RunEvent::ExitRequested { api, code: None, .. } if !state(app).quitting() => api.prevent_exit(),
        RunEvent::Exit => shut_down(&state(app)),
        #[cfg(target_os = "macos")]
        RunEvent::Reopen { .. } => window::show(app),
        _ => {}
    }
}

/// Ends the app, whatever it is doing; answers in the making are kept as far as they are.
pub fn quit<R: Runtime>(app: &AppHandle<R>) {
    state(app).quitting.store(true, Ordering::SeqCst);
    app.exit(0);
}

fn shut_down(state: &State) {
    state.quitting.store(true, Ordering::SeqCst);
    state.endpoint.stop(ENDPOINT_GRACE);
    let engine = state.engine.write().unwrap_or_else(PoisonError::into_inner).take();
    let (done, ended) = mpsc::channel();
    thread::spawn(move || {
        drop(engine);
        let _ = done.send(());
    });
    if ended.recv_timeout(ENGINE_GRACE).is_err() {
        tracing::warn!("the engine did not end within {ENGINE_GRACE:?}");
    }
}

/// The first signal quits; a second one does not wait for that.
fn watch_signals<R: Runtime>(app: &AppHandle<R>) -> Result<()> {
    let signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP]);
    let mut signals = signals.map_err(|error| Error::io("signal handlers", error))?;
    let app = app.clone();
    thread::spawn(move || {
        for signal in signals.forever() {
            if state(&app).quitting() {
                signal_hook::low_level::exit(128 + signal);
            }
            tracing::info!(signal, "ended by a signal");
            quit(&app);
        }
    });
    Ok(())
}
