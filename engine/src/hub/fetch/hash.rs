//! Hashes files on threads of their own: behind a transfer, as far as the file has no gap, or all at once.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use tokio::sync::oneshot;

use super::super::remote::{Hash, RemoteFile};
use crate::error::{Error, Result};

/// Bytes that are read at once.
const BLOCK: usize = 1 << 20;

/// Follows a file that is being fetched. Dropped, it ends.
pub struct Following {
    shared: Arc<Shared>,
    result: oneshot::Receiver<Result<bool>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Bytes from 0 on that are there.
    ready: u64,
    stop: bool,
}

impl Following {
    pub fn start(path: &Path, file: &RemoteFile) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let (send, result) = oneshot::channel();
        let opened = File::open(path).map_err(|e| Error::io(path, e))?;
        let (path, size, hash, theirs) = (path.to_owned(), file.bytes, file.hash.clone(), shared.clone());
        let work = move || {
            if let Some(right) = theirs.follow(&opened, size, &hash).map_err(|e| Error::io(path, e)).transpose() {
                // Nobody waits for it where the transfer ended.
                let _ = send.send(right);
            }
        };
        let thread = thread::Builder::new().name("hash".into()).spawn(work);
        thread.map_err(|e| Error::Internal(format!("no thread: {e}")))?;
        Ok(Self { shared, result })
    }

    /// So many bytes from 0 on are there.
    pub fn advance(&self, ready: u64) {
        let mut state = self.shared.lock();
        state.ready = state.ready.max(ready);
        self.shared.changed.notify_one();
    }

    /// Whether the file's hash is right, when all of it is there.
    pub async fn end(mut self) -> Result<bool> {
        (&mut self.result).await.unwrap_or_else(|_| Err(Error::Internal("hashing ended early".into())))
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: stopped.
    fn follow(&self, file: &File, size: u64, hash: &Hash) -> std::io::Result<Option<bool>> {
        let mut hasher = hash.hasher(size);
        let mut block = vec![0; BLOCK.min(size as usize)];
        let mut at = 0;
        while at < size {
            let mut state = self.lock();
            while state.ready <= at && !state.stop {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let (ready, stop) = (state.ready.min(size), state.stop);
            drop(state);
            if stop {
                return Ok(None);
            }
            let n = (ready - at).min(BLOCK as u64) as usize;
            file.read_exact_at(&mut block[..n], at)?;
            hasher.update(&block[..n]);
            at += n as u64;
        }
        Ok(Some(hasher.hex() == hash.hex()))
    }
}
