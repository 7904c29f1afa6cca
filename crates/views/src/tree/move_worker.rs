//! Objects follow their directory: what a rename shows at once, each object says some time later.
//!
//! An object says in its metadata where it lies, which a copy onto itself inside the store changes. Invariants: what is to follow is
//! on disk before anybody sees it; an object that says something newer is left alone; only the newest of several moves of an
//! object is made.

use super::branch::Branch;
use super::changing::Changing;
use super::journal::{self, Journal, Move, Moves};
use super::naming::{DIRECTORY_PROPERTY, EntryName};
use crate::{ObjectName, Shown};
use events::{Hint, Said, Sink, What};
use futures_util::StreamExt as _;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::{Buckets, Clock, CopyOptions, ObjectMeta, Precondition, StoreError, blocking};
use tokio::sync::Notify;

/// Objects copied at the same time.
const AT_ONCE: usize = 16;
/// Somebody who changes an object again and again is followed so often, and then later.
const ATTEMPTS_MAX: usize = 8;
/// The first and the longest wait after a failure, in which the store's client has tried for a while already.
const WAITS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// What is to follow.
#[derive(Debug)]
pub(super) struct Follower {
    buckets: Arc<dyn Buckets>,
    handler: Option<Arc<dyn Sink>>,
    clock: Arc<dyn Clock>,
    journal: Option<Arc<Mutex<Journal>>>,
    moves: Mutex<Moves>,
    /// Moves that the store refused for good, with its words. They stay in `moves`, so that their objects are shown where
    /// they were put, and are tried again when they are moved again or when the next process opens the journal.
    refused: Mutex<BTreeMap<ObjectName, String>>,
    begun: Notify,
}

/// What became of a move.
enum Outcome {
    Ends(End),
    /// The store did not do it now, and may later.
    Later(StoreError),
    /// The store will not do it.
    Refused(StoreError),
}

/// How a move ends.
pub(super) enum End {
    /// The object says where it lies: there, or elsewhere because another client has moved it.
    Says(Arc<Shown>),
    /// The object is gone.
    Gone,
}

impl Follower {
    /// With what was under way when the last one ended, if there is a directory to keep that in.
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

    /// Everything that is under way.
    pub(super) fn moves(&self) -> Vec<Move> {
        self.lock().values().cloned().collect()
    }

    /// Returns the number of moves that will still be made.
    pub(super) fn len(&self) -> usize {
        self.lock().len() - locked(&self.refused).len()
    }

    /// Returns the objects whose moves the store has refused, with its words.
    pub(super) fn refused(&self) -> Vec<(ObjectName, String)> {
        locked(&self.refused).iter().map(|(name, error)| (name.clone(), error.clone())).collect()
    }

    /// Returns the moves to be made now.
    fn due(&self) -> Vec<Move> {
        let (all, refused) = (self.lock(), locked(&self.refused));
        all.values().filter(|one| !refused.contains_key(&one.object)).cloned().collect()
    }

    /// Takes moves on, which then survive the end of the process. Returns each as it is now to be made.
    pub(super) async fn begin(&self, moves: Vec<Move>) -> io::Result<Vec<Move>> {
        if let Some(journal) = self.journal.clone() {
            let moves = moves.clone();
            blocking(move || locked(&journal).begin(&moves)).await?;
        }
        let mut all = self.lock();
        let taken = moves.into_iter().map(|one| {
            let object = one.object.clone();
            locked(&self.refused).remove(&object);
            journal::merge(&mut all, one);
            all.get(&object).cloned()
        });
        let taken = taken.collect::<Option<_>>().unwrap_or_default();
        self.begun.notify_one();
        Ok(taken)
    }

    /// Makes moves for as long as it is let.
    pub(super) async fn run(self: Arc<Self>, branches: Arc<BTreeMap<EntryName, Arc<Branch>>>) {
        let mut wait = WAITS.0;
        loop {
            let begun = self.begun.notified();
            let moves = self.due();
            if moves.is_empty() {
                begun.await;
                continue;
            }
            let followed = futures_util::stream::iter(moves).map(|one| self.follow(one, &branches));
            let all = followed.buffer_unordered(AT_ONCE).fold(true, async |all, one| all && one).await;
            wait = if all { WAITS.0 } else { WAITS.1.min(wait * 2) };
            if !all {
                // What begins meanwhile waits for the first wait only.
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = async { begun.await; tokio::time::sleep(WAITS.0).await } => {}
                }
            }
        }
    }

    /// Makes one move; false if it has to be made later.
    async fn follow(&self, one: Move, branches: &Arc<BTreeMap<EntryName, Arc<Branch>>>) -> bool {
        let _changing = Changing::begin(branches, &one.object);
        let end = match self.outcome(&one).await {
            Outcome::Ends(end) => end,
            Outcome::Later(error) => {
                tracing::debug!(key = %one.object.key, %error, "an object follows its directory later");
                return false;
            }
            Outcome::Refused(error) => {
                self.refuse(&one, &error);
                return true;
            }
        };
        branches.values().for_each(|branch| branch.has_moved(&one, &end));
        self.tell(&one.object).await;
        self.end(&one).await;
        true
    }

    /// Lets the handler look at what followed. It must know before the journal forgets: otherwise who comes after this process is
    /// shown where the object was.
    async fn tell(&self, object: &ObjectName) {
        let Some(handler) = &self.handler else { return };
        let hint = Hint {
            bucket: Cow::Borrowed(&object.container),
            key: Cow::Borrowed(object.key.as_bytes()),
            what: What::Changed,
            order: None,
            time: None,
            said: Said::default(),
        };
        if let Err(error) = handler.take(&[hint]).await {
            tracing::warn!(key = %object.key, %error, "the handler hears by other ways that an object was moved");
        }
    }

    async fn end(&self, one: &Move) {
        let is_last = {
            let mut all = self.lock();
            // Moved again meanwhile, it goes on.
            if all.get(&one.object).is_none_or(|newest| newest.to != one.to) {
                return;
            }
            all.remove(&one.object);
            all.is_empty()
        };
        if let Some(journal) = self.journal.clone() {
            let one = one.clone();
            // What is said again does no harm.
            if let Err(error) = blocking(move || locked(&journal).done(&one, is_last)).await {
                tracing::warn!(%error, "the journal of directories cannot be written");
            }
        }
    }

    /// Keeps a move that the store refuses, unless a newer one of its object has begun.
    fn refuse(&self, one: &Move, error: &StoreError) {
        let all = self.lock();
        if all.get(&one.object).is_some_and(|newest| newest.to == one.to) {
            let (key, container) = (&one.object.key, &one.object.container);
            tracing::warn!(%key, %container, %error, "the store refuses to move an object with its directory");
            locked(&self.refused).insert(one.object.clone(), error.to_string());
        }
    }

    async fn outcome(&self, one: &Move) -> Outcome {
        for _ in 0..ATTEMPTS_MAX {
            match self.attempt(one).await {
                Ok(shown) => return Outcome::Ends(End::Says(Arc::new(shown))),
                Err(StoreError::PreconditionFailed(_)) => {}
                Err(StoreError::NotFound(_)) => return Outcome::Ends(End::Gone),
                Err(error) if error.is_retryable() => return Outcome::Later(error),
                Err(error) => return Outcome::Refused(error),
            }
        }
        Outcome::Later(StoreError::PreconditionFailed(one.object.key.clone()))
    }

    /// Lets an object say where it lies, if it is as it was when it was looked at. Returns what it says then.
    async fn attempt(&self, one: &Move) -> Result<Shown, StoreError> {
        let store = self.buckets.open(&one.object.container).await?;
        let mut found = store.head(&one.object.key).await?;
        let says = found.attributes.user.get(DIRECTORY_PROPERTY).cloned();
        if says == one.to || !one.from.contains(&says) {
            return Ok(self.shown(&one.object, found));
        }
        match one.to.clone() {
            Some(to) => found.attributes.user.insert(DIRECTORY_PROPERTY.to_owned(), to),
            None => found.attributes.user.remove(DIRECTORY_PROPERTY),
        };
        let options = CopyOptions {
            attributes: Some(found.attributes.clone()),
            precondition: Precondition::Matches(found.object.etag.clone()),
            size_bytes: Some(found.size_bytes),
            ..CopyOptions::default()
        };
        found.object = store.copy(&found.object, &one.object.key, options).await?;
        Ok(self.shown(&one.object, found))
    }

    fn shown(&self, object: &ObjectName, found: ObjectMeta) -> Shown {
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

/// What an object shows while it has not followed yet: itself, where it is to lie.
pub(super) fn moved(moving: &HashMap<ObjectName, Move>, shown: Arc<Shown>) -> Arc<Shown> {
    let Some(one) = moving.get(&shown.name) else { return shown };
    let says = shown.properties.as_ref().and_then(|properties| properties.get(DIRECTORY_PROPERTY));
    if !one.from.iter().any(|from| from.as_ref() == says) {
        return shown;
    }
    let mut shown = Arc::unwrap_or_clone(shown);
    let mut properties = shown.properties.take().unwrap_or_default();
    match one.to.clone() {
        Some(to) => properties.insert(DIRECTORY_PROPERTY.to_owned(), to),
        None => properties.remove(DIRECTORY_PROPERTY),
    };
    shown.properties = Some(properties);
    Arc::new(shown)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
