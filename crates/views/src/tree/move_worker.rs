//! Rewrites the directory property of objects after a rename. The views show a rename at once; this worker makes each
//! object's own metadata agree with it some time later.
//!
//! The property is user metadata; it is changed by a copy of the object onto itself inside the store. Invariants: a
//! move is in the journal before any view shows it; an object whose property was set to something newer is left
//! alone; of several moves of one object only the newest is made.

use super::branch::Branch;
use super::changing::Changing;
use super::journal::Journal;
use super::moves::{self, Move, MoveEnd, Moves};
use super::naming::{DIRECTORY_PROPERTY, EntryName};
use crate::{ObjectName, PackedObject, Shown};
use events::{ChangeKind, Hint, ObjectDescription, Sink};
use futures_util::StreamExt as _;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::{Buckets, Clock, CopyOptions, ObjectMeta, Precondition, StoreError, blocking};
use tokio::sync::Notify;

/// Maximum number of objects that are copied at once.
const MOVES_IN_PARALLEL: usize = 16;
/// Attempts for an object that other clients change at the same time; afterwards it is tried again later.
const ATTEMPTS_MAX: usize = 8;
/// First and longest wait after a failure. The store's client has retried for a while before.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// Makes the moves of a tree in the background.
#[derive(Debug)]
pub(super) struct MoveWorker {
    buckets: Arc<dyn Buckets>,
    handler: Option<Arc<dyn Sink>>,
    clock: Arc<dyn Clock>,
    /// The journal; `None` keeps moves in memory only.
    journal: Option<Arc<Mutex<Journal>>>,
    /// Moves that have not ended.
    moves: Mutex<Moves>,
    /// Moves that the store refused for good, with its errors. They stay in `moves`, so that their objects are shown
    /// in the new directory. They are tried again when their objects are moved again, or when the next process opens
    /// the journal.
    refused: Mutex<BTreeMap<ObjectName, String>>,
    begun: Notify,
}

/// Result of the attempts to make a move.
enum MoveOutcome {
    /// The move has ended; holds how.
    Ends(MoveEnd),
    /// A temporary failure; the move is tried again later.
    Later(StoreError),
    /// The store refuses the move.
    Refused(StoreError),
}

impl MoveWorker {
    /// Opens the journal in `dir`, if there is one. [`MoveWorker::run`] continues the moves that it has.
    pub(super) async fn open(
        buckets: Arc<dyn Buckets>,
        handler: Option<Arc<dyn Sink>>,
        clock: Arc<dyn Clock>,
        dir: Option<PathBuf>,
    ) -> io::Result<Self> {
        let (journal, moves) = match dir {
            Some(dir) => {
                let (journal, moves) = blocking(move || Journal::open(&dir)).await?;
                (Some(Arc::new(Mutex::new(journal))), moves)
            }
            None => (None, Moves::new()),
        };
        let (moves, refused) = (Mutex::new(moves), Mutex::default());
        Ok(Self { buckets, handler, clock, journal, moves, refused, begun: Notify::new() })
    }

    /// Returns all moves that have not ended.
    pub(super) fn moves(&self) -> Vec<Move> {
        self.lock().values().cloned().collect()
    }

    /// Returns the number of moves that this process will still make, without those that the store has refused.
    pub(super) fn len(&self) -> usize {
        self.lock().len() - locked(&self.refused).len()
    }

    /// Returns the objects whose moves the store has refused, with its errors.
    pub(super) fn refused(&self) -> Vec<(ObjectName, String)> {
        locked(&self.refused).iter().map(|(name, error)| (name.clone(), error.clone())).collect()
    }

    /// Returns the moves to be made now.
    fn due(&self) -> Vec<Move> {
        let (all, refused) = (self.lock(), locked(&self.refused));
        all.values().filter(|object_move| !refused.contains_key(&object_move.object)).cloned().collect()
    }

    /// Adds moves, which from then on survive the end of the process if there is a journal. Returns each merged with
    /// earlier moves of the same object. After an error none is added.
    pub(super) async fn begin(&self, moves: Vec<Move>) -> io::Result<Vec<Move>> {
        if let Some(journal) = self.journal.clone() {
            let moves = moves.clone();
            blocking(move || locked(&journal).begin(&moves)).await?;
        }
        let mut all = self.lock();
        let merged = moves.into_iter().map(|object_move| {
            let object = object_move.object.clone();
            locked(&self.refused).remove(&object);
            moves::merge(&mut all, object_move);
            all.get(&object).cloned()
        });
        let merged = merged.collect::<Option<_>>().unwrap_or_default();
        self.begun.notify_one();
        Ok(merged)
    }

    /// Makes moves until the task is aborted.
    pub(super) async fn run(self: Arc<Self>, branches: Arc<BTreeMap<EntryName, Arc<Branch>>>) {
        let mut backoff = BACKOFF.0;
        loop {
            let begun = self.begun.notified();
            let moves = self.due();
            if moves.is_empty() {
                begun.await;
                continue;
            }
            let results =
                futures_util::stream::iter(moves).map(|object_move| self.make_move(object_move, &branches));
            let all = results
                .buffer_unordered(MOVES_IN_PARALLEL)
                .fold(true, async |all, is_done| all && is_done)
                .await;
            backoff = if all { BACKOFF.0 } else { BACKOFF.1.min(backoff * 2) };
            if !all {
                // New moves wait only for the shortest time.
                tokio::select! {
                    () = tokio::time::sleep(backoff) => {}
                    () = async { begun.await; tokio::time::sleep(BACKOFF.0).await } => {}
                }
            }
        }
    }

    /// Makes one move. Returns false if it has to be tried again later.
    async fn make_move(&self, object_move: Move, branches: &Arc<BTreeMap<EntryName, Arc<Branch>>>) -> bool {
        let _changing = Changing::begin(branches, &object_move.object);
        let end = match self.attempt_with_retries(&object_move).await {
            MoveOutcome::Ends(end) => end,
            MoveOutcome::Later(error) => {
                tracing::debug!(key = %object_move.object.key, %error, "cannot store in the object that its directory was renamed; retrying later");
                return false;
            }
            MoveOutcome::Refused(error) => {
                self.refuse(&object_move, &error);
                return true;
            }
        };
        branches.values().for_each(|branch| branch.end_move(&object_move, &end));
        self.notify_handler(&object_move.object).await;
        self.finish(&object_move).await;
        true
    }

    /// Gives the handler a hint of an object that was moved. The handler must have it before the journal forgets the
    /// move: otherwise the next process would show the object in its old directory.
    async fn notify_handler(&self, object: &ObjectName) {
        let Some(handler) = &self.handler else { return };
        let hint = Hint {
            bucket: Cow::Borrowed(&object.container),
            key: Cow::Borrowed(object.key.as_bytes()),
            kind: ChangeKind::Changed,
            order: None,
            time: None,
            object: ObjectDescription::default(),
        };
        if let Err(error) = handler.take(&[hint]).await {
            tracing::warn!(key = %object.key, %error, "cannot tell the event handler that an object was moved; it has to learn this from other events");
        }
    }

    /// Forgets a move that has ended, unless a newer move of the same object has begun.
    async fn finish(&self, object_move: &Move) {
        let is_last = {
            let mut all = self.lock();
            // If the object was moved again meanwhile, the newer move remains.
            if all.get(&object_move.object).is_none_or(|newest| newest.to != object_move.to) {
                return;
            }
            all.remove(&object_move.object);
            all.is_empty()
        };
        if let Some(journal) = self.journal.clone() {
            let object_move = object_move.clone();
            // If the entry is lost, the next process repeats the move, which does no harm.
            if let Err(error) = blocking(move || locked(&journal).end(&object_move, is_last)).await {
                tracing::warn!(%error, "the journal of directory renames cannot record that an object was moved; the next mount moves it again, which does no harm");
            }
        }
    }

    /// Keeps a move that the store refuses, unless a newer move of the same object has begun.
    fn refuse(&self, object_move: &Move, error: &StoreError) {
        let all = self.lock();
        if all.get(&object_move.object).is_some_and(|newest| newest.to == object_move.to) {
            let (key, container) = (&object_move.object.key, &object_move.object.container);
            tracing::warn!(%key, %container, %error, "the store refuses to change the directory property of an object whose directory was renamed: this client shows it in the new directory, other clients in the old one");
            locked(&self.refused).insert(object_move.object.clone(), error.to_string());
        }
    }

    /// Attempts a move, again at once while other clients change the object at the same time.
    async fn attempt_with_retries(&self, object_move: &Move) -> MoveOutcome {
        for _ in 0..ATTEMPTS_MAX {
            match self.attempt(object_move).await {
                Ok(shown) => return MoveOutcome::Ends(MoveEnd::Placed(PackedObject::from(shown))),
                Err(StoreError::PreconditionFailed(_)) => {}
                Err(StoreError::NotFound(_)) => return MoveOutcome::Ends(MoveEnd::Gone),
                Err(error) if error.is_retryable() => return MoveOutcome::Later(error),
                Err(error) => return MoveOutcome::Refused(error),
            }
        }
        MoveOutcome::Later(StoreError::PreconditionFailed(object_move.object.key.clone()))
    }

    /// Sets the directory property of an object, and returns the object as it is afterwards. Leaves an object alone
    /// that names a directory which the move does not expect. Fails with [`StoreError::PreconditionFailed`] if the
    /// object changes between HEAD and copy.
    async fn attempt(&self, object_move: &Move) -> Result<Shown, StoreError> {
        let store = self.buckets.open(&object_move.object.container).await?;
        let mut found = store.head(&object_move.object.key).await?;
        let current = found.attributes.user.get(DIRECTORY_PROPERTY).cloned();
        if current == object_move.to || !object_move.from.contains(&current) {
            return Ok(self.to_shown(&object_move.object, found));
        }
        match object_move.to.clone() {
            Some(to) => found.attributes.user.insert(DIRECTORY_PROPERTY.to_owned(), to),
            None => found.attributes.user.remove(DIRECTORY_PROPERTY),
        };
        let options = CopyOptions {
            attributes: Some(found.attributes.clone()),
            precondition: Precondition::Matches(found.object.etag.clone()),
            size_bytes: Some(found.size_bytes),
            ..CopyOptions::default()
        };
        found.object = store.copy(&found.object, &object_move.object.key, options).await?;
        Ok(self.to_shown(&object_move.object, found))
    }

    fn to_shown(&self, object: &ObjectName, found: ObjectMeta) -> Shown {
        Shown {
            name: object.clone(),
            size_bytes: found.size_bytes,
            etag: found.object.etag,
            modified: found.object.last_modified.unwrap_or_else(|| self.clock.now()),
            content_type: found.attributes.content_type,
            properties: Some(found.attributes.user),
            tags: None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Moves> {
        locked(&self.moves)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
