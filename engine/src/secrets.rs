//! The hub's access token: where it comes from, and where it is kept. It is never written to a file, a log or an error by this program.
//!
//! Looked up in this order: the environment (`HF_TOKEN`, then `HUGGING_FACE_HUB_TOKEN`), the system's keyring, this process's
//! memory, the token file of the hub's own tools (`HF_TOKEN_PATH`, `HF_HOME/token`). What is set goes to the keyring; where there is
//! none, or it is locked, it stays in this process's memory, and the user is told.
//!
//! A keyring may ask its user something and wait, so a thread of its own speaks to it, and nobody waits for it longer than [`WAIT`].

use std::env;
use std::fmt;
use std::hint::black_box;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use keyring_core::Entry;

use crate::api::{TokenKept, TokenState};
use crate::contained;
use crate::error::{Error, Result};
use crate::paths;

const SERVICE: &str = "rMLX";
const USER: &str = "hugging-face-token";
/// Time for an answer of the keyring, which may have to ask its user for a password.
const WAIT: Duration = Duration::from_secs(15);
/// A keyring that failed may have been unlocked since, or begun to run.
const RETRY: Duration = Duration::from_secs(30);
/// Bytes; the hub's tokens have some 40.
const LONGEST: usize = 1024;

/// A text that shows itself to nobody who does not ask for it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// # Errors
    /// [`Error::BadRequest`], without the text: it is empty, or has what no token has.
    pub fn new(text: &str) -> Result<Self> {
        let text = text.trim();
        if text.is_empty() || text.len() > LONGEST || !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(Error::BadRequest("that is not an access token: letters and digits without spaces are expected".into()));
        }
        Ok(Self(text.into()))
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.0).into_bytes();
        bytes.fill(0);
        // Otherwise the compiler sees that nobody reads the zeros.
        black_box(&bytes);
    }
}

/// Opens the keyring's entry. Called on the keyring's thread, again after it failed.
pub type Open = Box<dyn Fn() -> keyring_core::Result<Entry> + Send>;

/// The token. Cheap to clone; all clones share what is known.
#[derive(Clone)]
pub struct Secrets(Arc<Inner>);

struct Inner {
    /// In the order in which they are read. `None`: what is set there is no token.
    environment: Vec<(&'static str, Option<Secret>)>,
    file: Option<PathBuf>,
    wait: Duration,
    retry: Duration,
    state: Arc<Mutex<State>>,
    keyring: Mutex<Sender<Ask>>,
}

#[derive(Debug, Default)]
struct State {
    keyring: Keyring,
    /// Questions that the keyring's thread has not answered yet.
    open: usize,
    session: Option<Secret>,
}

/// What is known of the keyring.
#[derive(Debug, Default)]
enum Keyring {
    #[default]
    NotAsked,
    Read(Option<Secret>),
    /// Why it cannot be used, and since when.
    Away(String, Instant),
}

enum Ask {
    Read(Sender<()>),
    Set(Secret, Sender<()>),
    Forget(Sender<()>),
}

impl Secrets {
    /// Of this process's environment and the system's keyring. `RMLX_KEYRING=off` leaves the keyring alone.
    pub fn from_env() -> Self {
        let file = paths::named("HF_TOKEN_PATH").unwrap_or_else(|| paths::hugging_face().join("token"));
        let set = |key: &&str| env::var_os(key).is_some_and(|v| !v.to_string_lossy().trim().is_empty());
        let keys = ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"].into_iter().filter(set);
        let environment = keys.map(|key| (key, env::var(key).ok().and_then(|text| Secret::new(&text).ok())));
        let open: Open = if env::var_os("RMLX_KEYRING").is_some_and(|v| v == "off") {
            Box::new(|| Err(keyring_core::Error::NotSupportedByStore("RMLX_KEYRING=off".into())))
        } else {
            Box::new(system)
        };
        Self::new(environment.collect(), Some(file), open, WAIT)
    }

    fn new(environment: Vec<(&'static str, Option<Secret>)>, file: Option<PathBuf>, open: Open, wait: Duration) -> Self {
        let state = Arc::<Mutex<State>>::default();
        let (asks, asked) = mpsc::channel();
        let shared = state.clone();
        // Where no thread can be had, the sender finds nobody, which is a keyring that cannot be used.
        let _ = thread::Builder::new().name("keyring".into()).spawn(move || serve(&open, &asked, &shared));
        Self(Arc::new(Inner { environment, file, wait, retry: RETRY, state, keyring: Mutex::new(asks) }))
    }

    /// What to send to the hub.
    ///
    /// # Errors
    /// [`Error::BadRequest`]: what the environment has is no token. Another one is not taken in its place.
    pub fn token(&self) -> Result<Option<Secret>> {
        if let Some((key, secret)) = self.0.environment.first() {
            let wrong =
                || Error::BadRequest(format!("{key}: what is set there is not an access token\nhint: correct or unset it"));
            return secret.clone().ok_or_else(wrong).map(Some);
        }
        self.read(false);
        let state = self.state();
        let kept = match &state.keyring {
            Keyring::Read(Some(secret)) => Some(secret.clone()),
            _ => state.session.clone(),
        };
        drop(state);
        Ok(kept.or_else(|| self.file()))
    }

    /// Where it comes from.
    pub fn show(&self) -> TokenState {
        if self.0.environment.is_empty() {
            self.read(true);
        }
        self.looked()
    }

    /// As far as the keyring is known.
    fn looked(&self) -> TokenState {
        if let Some((key, None)) = self.0.environment.first() {
            let note = format!("{key} is set to something that is none: correct or unset it, or nothing can be asked of the hub");
            return TokenState { kept: TokenKept::None, note: Some(note) };
        }
        if let Some((key, _)) = self.0.environment.first() {
            return TokenState { kept: TokenKept::Environment, note: Some(format!("from the environment: {key}")) };
        }
        let state = self.state();
        let away = match &state.keyring {
            Keyring::Away(why, _) => Some(why.clone()),
            _ => None,
        };
        let kept = match (&state.keyring, &state.session) {
            (Keyring::Read(Some(_)), _) => TokenKept::Keyring,
            (_, Some(_)) => TokenKept::Session,
            _ => TokenKept::None,
        };
        drop(state);
        match kept {
            TokenKept::Session => {
                let why = away.unwrap_or_default();
                TokenState { kept, note: Some(format!("kept until this program ends, and not in a secure store: {why}")) }
            }
            TokenKept::None if self.file().is_some() => {
                let path = self.0.file.as_deref().unwrap_or(Path::new("")).display().to_string();
                TokenState { kept: TokenKept::File, note: Some(format!("from the file of the hub's own tools: {path}")) }
            }
            kept => TokenState { kept, note: away.map(|why| format!("there is no secure store for a token: {why}")) },
        }
    }

    /// Keeps a token, or forgets the one that is kept.
    pub fn set(&self, token: Option<Secret>) -> TokenState {
        match token {
            Some(secret) => {
                // In case the keyring cannot take it, or not soon enough.
                self.state().session = Some(secret.clone());
                self.ask(|done| Ask::Set(secret, done));
            }
            None => {
                self.state().session = None;
                self.ask(Ask::Forget);
                let away = if let Keyring::Away(why, _) = &self.state().keyring { Some(why.clone()) } else { None };
                if let Some(why) = away {
                    let forgot = format!("forgotten here; what is in the keyring stays there, for it cannot be asked: {why}");
                    // The environment and the file are not for this program to clear.
                    let TokenState { kept, note } = self.looked();
                    let rest = note.filter(|_| kept != TokenKept::None).map_or_else(String::new, |note| format!("; {note}"));
                    return TokenState { kept, note: Some(format!("{forgot}{rest}")) };
                }
            }
        }
        self.looked()
    }

    /// Once; what is found then stays known. One that failed is asked again after a while, or where somebody looks (`now`), and then
    /// gets what it could not keep; but not while it still has a question, its password's say.
    fn read(&self, now: bool) {
        let state = self.state();
        let due = match &state.keyring {
            Keyring::NotAsked => true,
            Keyring::Away(_, since) => state.open == 0 && (now || since.elapsed() >= self.0.retry),
            Keyring::Read(_) => false,
        };
        let session = state.session.clone();
        drop(state);
        match session {
            _ if !due => {}
            Some(secret) => self.ask(|done| Ask::Set(secret, done)),
            None => self.ask(Ask::Read),
        }
    }

    /// Waits for the answer, but not for ever: what comes later is known from then on.
    fn ask(&self, ask: impl FnOnce(Sender<()>) -> Ask) {
        let (done, answered) = mpsc::channel();
        self.state().open += 1;
        let sent = self.0.keyring.lock().unwrap_or_else(PoisonError::into_inner).send(ask(done));
        let why = match sent.map(|()| answered.recv_timeout(self.0.wait)) {
            Ok(Ok(())) => return,
            Ok(Err(mpsc::RecvTimeoutError::Timeout)) => {
                format!("the keyring has not answered for {} seconds; it may be waiting for its password", self.0.wait.as_secs())
            }
            Ok(Err(mpsc::RecvTimeoutError::Disconnected)) | Err(_) => "the keyring cannot be asked".into(),
        };
        tracing::warn!("{why}");
        self.state().keyring = Keyring::Away(why, Instant::now());
    }

    fn file(&self) -> Option<Secret> {
        let mut text = String::new();
        let file = contained::open_regular(self.0.file.as_deref()?).ok()?;
        file.take(LONGEST as u64 + 2).read_to_string(&mut text).ok()?;
        let secret = Secret::new(&text).ok();
        drop(Secret(text));
        secret
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The keyring's thread: one thing after the other, so that what was forgotten does not come back.
fn serve(open: &Open, asked: &Receiver<Ask>, state: &Mutex<State>) {
    let mut entry: Option<Entry> = None;
    while let Ok(ask) = asked.recv() {
        let opened = match &entry {
            Some(_) => Ok(()),
            None => open().map(|opened| entry = Some(opened)),
        };
        let entry = match (&entry, opened) {
            (Some(entry), Ok(())) => Ok(entry),
            (_, Err(e)) => Err(e),
            (None, Ok(())) => Err(keyring_core::Error::NoDefaultStore),
        };
        let known = |found: keyring_core::Result<Option<Secret>>, taken: bool| {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            state.keyring = match found {
                Ok(secret) => {
                    if taken {
                        state.session = None;
                    }
                    Keyring::Read(secret)
                }
                Err(e) => Keyring::Away(reason(&e), Instant::now()),
            };
            state.open = state.open.saturating_sub(1);
        };
        let done = match ask {
            Ask::Read(done) => {
                known(entry.and_then(read), false);
                done
            }
            Ask::Set(secret, done) => {
                known(entry.and_then(|e| e.set_password(secret.expose())).map(|()| Some(secret)), true);
                done
            }
            Ask::Forget(done) => {
                let forgotten = entry.and_then(|e| match e.delete_credential() {
                    Err(keyring_core::Error::NoEntry) => Ok(()),
                    other => other,
                });
                known(forgotten.map(|()| None), false);
                done
            }
        };
        // Who asked may have gone.
        let _ = done.send(());
    }
}

fn read(entry: &Entry) -> keyring_core::Result<Option<Secret>> {
    match entry.get_password() {
        Ok(text) => {
            let secret = Secret::new(&text).ok();
            drop(Secret(text));
            Ok(secret)
        }
        Err(keyring_core::Error::NoEntry) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Why a keyring cannot be used. Only the kind of error goes into it: some of the errors carry the secret itself.
fn reason(error: &keyring_core::Error) -> String {
    use keyring_core::Error as E;
    let what = match error {
        E::NoStorageAccess(_) => "the keyring is locked, and was not unlocked",
        E::PlatformFailure(_) | E::NoDefaultStore => "there is no keyring that answers",
        E::NotSupportedByStore(why) if why == "RMLX_KEYRING=off" => "it is switched off (RMLX_KEYRING=off)",
        E::Ambiguous(_) => "the keyring has several tokens of rMLX; remove them with its own program",
        E::TooLong(..) | E::Invalid(..) => "the keyring does not take it",
        _ => "the keyring's entry cannot be read",
    };
    what.into()
}

#[cfg(target_os = "macos")]
fn system() -> keyring_core::Result<Entry> {
    use keyring_core::api::CredentialStoreApi;
    apple_native_keyring_store::keychain::Store::new()?.build(SERVICE, USER, None)
}

#[cfg(target_os = "linux")]
fn system() -> keyring_core::Result<Entry> {
    use keyring_core::api::CredentialStoreApi;
    zbus_secret_service_keyring_store::Store::new()?.build(SERVICE, USER, None)
}

#[cfg(not(any(target_os = "macos", target_os = "linux")))]
fn system() -> keyring_core::Result<Entry> {
    Err(keyring_core::Error::NoDefaultStore)
}

#[cfg(test)]
mod tests;
