//! The parts that moves work on: the store below, the moves with their journal, locks, and the namespace that observes them.

use super::journaled_moves::{JournaledMoves, failed};
use super::move_locks::MoveLocks;
use super::move_observer::MoveObserver;
use super::resolved_conflicts::ResolvedConflicts;
use crate::conflict::Decisions;
use crate::etag_aliases::EtagAliases;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use store::{ETag, KeyedLocks, ObjectKey, ObjectMeta, ObjectRef, ObjectStore, Result, blocking};
use tokio::sync::Notify;

/// Executes moves in the store below the mover.
#[derive(Debug)]
pub(super) struct Executor {
    pub(super) me: Weak<Self>,
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) state: Mutex<JournaledMoves>,
    pub(super) aliases: Mutex<EtagAliases>,
    /// Locks of the physical keys that objects are moved from.
    pub(super) source_locks: KeyedLocks<ObjectKey>,
    pub(super) move_locks: MoveLocks,
    pub(super) decisions: Decisions,
    pub(super) resolved: ResolvedConflicts,
    pub(super) observer: OnceLock<MoveObserver>,
    pub(super) durability: Durability,
    pub(super) activity: Activity,
    /// See [`MoverOptions::is_shared`](super::MoverOptions::is_shared).
    pub(super) is_shared: bool,
}

/// How much of the journal, and of the etags reported to the observer, is known to survive a loss of power.
#[derive(Debug, Default)]
pub(super) struct Durability {
    /// Bytes appended to the journal up to which moves may be executed, because it and the namespace are durable.
    pub(super) up_to: AtomicU64,
    /// Number of new etags that were reported to the observer.
    pub(super) etags_reported: AtomicU64,
    /// Number of these that the observer has made durable.
    pub(super) etags_durable: AtomicU64,
}

/// State that the task that executes moves and its callers share: progress, the last error and wake-ups.
#[derive(Debug, Default)]
pub(super) struct Activity {
    /// Whether a task that executes moves is running.
    pub(super) has_runner: AtomicBool,
    /// Objects copied to their new keys by this process.
    pub(super) objects_moved: AtomicU64,
    /// Error of the last attempt, if nothing has moved since.
    failure: Mutex<Option<String>>,
    /// Notified when a move completes or an attempt fails.
    pub(super) progress: Notify,
    /// Notified when a rename adds moves.
    pub(super) renamed: Arc<Notify>,
}

impl Activity {
    /// Returns the error of the last attempt, if nothing has moved since.
    pub(super) fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes that a move completed (`None`), or the error of an attempt.
    pub(super) fn note(&self, failure: Option<String>) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
        self.progress.notify_waiters();
    }
}

impl Executor {
    pub(super) fn state(&self) -> MutexGuard<'_, JournaledMoves> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn aliases(&self) -> MutexGuard<'_, EtagAliases> {
        self.aliases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether there are no unfinished moves.
    pub(super) fn is_idle(&self) -> bool {
        self.state().moves.len() == 0
    }

    /// Syncs the store below, if the journal has unsynced steps, then the journal.
    pub(super) async fn sync_store_and_journal(&self) -> Result<()> {
        if self.state().journal.log.file_to_sync().map_err(failed)?.is_some() {
            self.store.sync().await?;
        }
        self.sync_journal().await
    }

    /// Makes all renames so far survive the loss of power.
    pub(super) async fn sync_journal(&self) -> Result<()> {
        let (unsynced, appended) = {
            let journal = &self.state().journal;
            (journal.log.file_to_sync().map_err(failed)?, journal.log.appended())
        };
        let Some(file) = unsynced else { return Ok(()) };
        blocking(move || file.sync_data()).await.map_err(failed)?;
        self.state().mark_synced(appended);
        Ok(())
    }

    /// Returns an object of the store below with the etag by which callers know it. Translates also etags that were renewed since, because
    /// the store below may answer a request with the state at the beginning of the request.
    pub(super) fn with_known_tag(&self, mut object: ObjectRef) -> ObjectRef {
        object.etag = self.state().renewed_etags.bucket_tag(&object.key, &object.etag);
        self.aliases().with_issued_tag(object)
    }

    /// Returns whether an object that was found is the one visible under a key. `etag` is the tag that it had;
    /// without a tag, any object is.
    pub(super) fn is_same_object(&self, key: &ObjectKey, etag: Option<&ETag>, found: &ObjectMeta) -> bool {
        let is_known = || self.observer.get().is_some_and(|observer| (observer.knows)(key, found));
        etag.is_none_or(|etag| *etag == found.object.etag || is_known())
    }
}
