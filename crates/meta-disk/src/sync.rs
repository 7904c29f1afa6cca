//! Durability of commits: on request, and by a background thread soon after each commit.
//!
//! Invariants: `synced <= head`; after a failed sync all further syncs and commits fail. The kernel may have dropped the unsynced
//! bytes although the next sync succeeds, and then no later commit could become durable.

use crate::engine_dir::SyncedMark;
use crate::tables::Tables;
use meta::{EngineError, Seqno};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{io, mem};

/// The newest commit and the newest synced commit.
pub(crate) struct Progress {
    /// The newest commit.
    head: AtomicU64,
    synced: Mutex<Synced>,
    /// The failure after which all syncs and commits fail until the engine is opened again.
    stopped: OnceLock<EngineError>,
}

/// The newest synced commit, in memory and on the disk.
struct Synced {
    /// The newest synced commit.
    to: Seqno,
    /// The file with the number of this commit.
    mark: SyncedMark,
}

impl Progress {
    /// Creates the progress of an engine whose commits up to `head` are durable.
    pub(crate) fn new(head: Seqno, mark: SyncedMark) -> Self {
        let synced = Synced { to: head, mark };
        Self { head: AtomicU64::new(head.0), synced: Mutex::new(synced), stopped: OnceLock::new() }
    }

    pub(crate) fn head(&self) -> Seqno {
        Seqno(self.head.load(Ordering::Acquire))
    }

    pub(crate) fn set_head(&self, head: Seqno) {
        self.head.store(head.0, Ordering::Release);
    }

    /// Makes all further syncs and commits fail, because after this failure no commit is certain to become durable.
    pub(crate) fn stop(&self, failure: &EngineError) {
        let stopped = EngineError::Unavailable(format!(
            "it has stopped after an error, unmount the volume and mount it again: {failure}"
        ));
        if self.stopped.set(stopped).is_ok() {
            tracing::error!(
                "the metadata engine has stopped and refuses all changes; unmount the volume and mount it again: {failure}"
            );
        }
    }

    /// Fails once the engine has stopped.
    pub(crate) fn check_running(&self) -> Result<(), EngineError> {
        self.stopped.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Syncs all completed commits, unless another thread has done so meanwhile.
    pub(crate) fn sync(&self, tables: &Tables) -> Result<(), EngineError> {
        let wanted = self.head();
        let mut synced = lock(&self.synced);
        self.check_running()?;
        if synced.to >= wanted {
            return Ok(());
        }
        let reached = self.head();
        // A journal detects by itself whether records are lost.
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

/// Returns the error for a mark of synced commits that cannot be written.
fn mark_failed(error: io::Error) -> EngineError {
    EngineError::Unavailable(format!("the number of the last synced commit cannot be written: {error}"))
}

/// The background thread that syncs commits.
pub(crate) struct Syncer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// The state that the syncer shares with its thread.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// Requests to the thread.
#[derive(Default)]
struct State {
    has_unsynced: bool,
    must_stop: bool,
}

impl Syncer {
    /// Starts the thread, which syncs commits at intervals while there are unsynced ones.
    pub(crate) fn start(
        tables: Arc<Tables>,
        progress: Arc<Progress>,
        interval: Duration,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let thread_shared = shared.clone();
        let thread = thread::Builder::new().name("meta-sync".into()).spawn(move || {
            while thread_shared.wait(interval) {
                // `progress` keeps the error and returns it from the next sync.
                let _ = progress.sync(&tables);
            }
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Wakes the thread after a commit.
    pub(crate) fn wake(&self) {
        let had_unsynced = mem::replace(&mut lock(&self.shared.state).has_unsynced, true);
        if !had_unsynced {
            self.shared.changed.notify_one();
        }
    }
}

impl Drop for Syncer {
    /// Stops the thread after it has synced the remaining commits.
    fn drop(&mut self) {
        lock(&self.shared.state).must_stop = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Waits until there are unsynced commits and then for the interval, or until the thread must stop. Returns whether there are
    /// unsynced commits; if not, the thread must end.
    fn wait(&self, interval: Duration) -> bool {
        let idle = |state: &mut State| !state.has_unsynced && !state.must_stop;
        let state = self.changed.wait_while(lock(&self.state), idle).unwrap_or_else(PoisonError::into_inner);
        let (mut state, _) = self
            .changed
            .wait_timeout_while(state, interval, |state| !state.must_stop)
            .unwrap_or_else(PoisonError::into_inner);
        mem::take(&mut state.has_unsynced)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
