//! When commits reach the disk: at once for who asks, soon for all others.
//!
//! Invariants: `synced <= head`; after a sync that failed every further sync and every further commit fails, since the
//! kernel may have dropped the bytes although the next flush succeeds: nothing built on them could ever be durable.

use crate::engine_dir::Mark;
use crate::tables::Tables;
use meta::{EngineError, Seqno};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{io, mem};

/// The newest commit, and how far commits are on the disk.
pub(crate) struct Progress {
    head: AtomicU64,
    synced: Mutex<Synced>,
    /// The failure after which nothing is synced or committed until the engine is opened again.
    stopped: OnceLock<EngineError>,
}

struct Synced {
    to: Seqno,
    mark: Mark,
}

impl Progress {
    /// Everything up to `head` is on the disk.
    pub(crate) fn new(head: Seqno, mark: Mark) -> Self {
        let synced = Synced { to: head, mark };
        Self { head: AtomicU64::new(head.0), synced: Mutex::new(synced), stopped: OnceLock::new() }
    }

    pub(crate) fn head(&self) -> Seqno {
        Seqno(self.head.load(Ordering::Acquire))
    }

    pub(crate) fn set_head(&self, head: Seqno) {
        self.head.store(head.0, Ordering::Release);
    }

    /// Refuses every further sync and commit: after this failure nothing could be trusted to become durable.
    pub(crate) fn stop(&self, failure: &EngineError) {
        let stopped = EngineError::Unavailable(format!(
            "it has stopped after a failure, unmount the volume and mount it again: {failure}"
        ));
        if self.stopped.set(stopped).is_ok() {
            tracing::error!(
                "the metadata engine takes no further changes until it is opened again: {failure}"
            );
        }
    }

    /// Fails once the engine has stopped.
    pub(crate) fn check_running(&self) -> Result<(), EngineError> {
        self.stopped.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Syncs what has been committed, unless another thread did meanwhile.
    pub(crate) fn sync(&self, tables: &Tables) -> Result<(), EngineError> {
        let wanted = self.head();
        let mut synced = lock(&self.synced);
        self.check_running()?;
        if synced.to >= wanted {
            return Ok(());
        }
        let reached = self.head();
        // A journal says by itself what it has.
        let mark =
            || if tables.is_journaled() { Ok(()) } else { synced.mark.set(reached).map_err(mark_failed) };
        let outcome = tables.sync().and_then(|()| mark());
        match &outcome {
            Ok(()) => synced.to = reached,
            Err(error) => self.stop(error),
        }
        outcome
    }
}

fn mark_failed(error: io::Error) -> EngineError {
    EngineError::Unavailable(format!("the record of what was synced cannot be written: {error}"))
}

/// The thread that syncs what nobody asked to have synced.
pub(crate) struct Syncer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    unsynced: bool,
    stop: bool,
}

impl Syncer {
    pub(crate) fn start(
        tables: Arc<Tables>,
        progress: Arc<Progress>,
        interval: Duration,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = shared.clone();
        let thread = thread::Builder::new().name("meta-sync".into()).spawn(move || {
            while of_thread.wait(interval) {
                // Kept in `progress`: whoever asks for a sync is told.
                let _ = progress.sync(&tables);
            }
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// There is something to sync.
    pub(crate) fn wake(&self) {
        let was = mem::replace(&mut lock(&self.shared.state).unsynced, true);
        if !was {
            self.shared.changed.notify_one();
        }
    }
}

impl Drop for Syncer {
    /// Syncs what is left.
    fn drop(&mut self) {
        lock(&self.shared.state).stop = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Waits until there is something to sync and the interval is over; no longer once it ends. Whether to go on.
    fn wait(&self, interval: Duration) -> bool {
        let idle = |state: &mut State| !state.unsynced && !state.stop;
        let state = self.changed.wait_while(lock(&self.state), idle).unwrap_or_else(PoisonError::into_inner);
        let (mut state, _) = self
            .changed
            .wait_timeout_while(state, interval, |state| !state.stop)
            .unwrap_or_else(PoisonError::into_inner);
        mem::take(&mut state.unsynced)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
