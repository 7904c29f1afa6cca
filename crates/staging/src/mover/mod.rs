//! A store whose renames return at once: it records the rename in a local journal and moves the objects in the
//! background.
//!
//! S3 has no rename, only a copy inside the bucket and a deletion, and both take time. Here a rename appends one step
//! to a journal. Each object has a *logical key*, under which reads and listings show it, and a *physical key*, under
//! which the bucket stores it. A *move* is a rename that is still to be carried out: the object at a physical key
//! gets its logical key. Moves are executed in the background, several objects at a time: copy to the new key, then
//! delete the old one. A write to a key first finishes the moves into and out of that key; a write below a renamed
//! tree's old prefix finishes that tree's move.
//!
//! Invariants: an object is deleted at its old key only after it exists at its new key. No object moves before the
//! journal, and the namespace that records where objects are ([`MoveObserver`]), survive the loss of power. A partly
//! executed move continues where it stopped, and executing a move twice does no harm. Another client's object at the
//! new key is replaced only if [`ConflictCallbacks`](crate::conflict::ConflictCallbacks) decide so, and only after a copy of that
//! object was made.

mod candidate;
mod execute;
mod executor;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod journal;
mod journaled_moves;
mod logical_listing;
mod move_conflict;
mod move_locks;
mod move_observer;
mod mover_upload;
mod moves;
mod names_after_restart;
mod resolved_conflicts;
mod wait_for_moves;

pub use journal::rot;
pub use move_observer::{MoveObserver, NamingError};

use crate::conflict::{Decisions, LostKey};
use candidate::Candidate;
use executor::{Activity, Durability, Executor};
use journal::Journal;
use journaled_moves::JournaledMoves;
use move_locks::{MoveLocks, PausedMove};
use mover_upload::MoverUpload;
use moves::{Move, Moves, Step};
use resolved_conflicts::ResolvedConflicts;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use store::{
    Attributes, CopyOptions, ETag, Entropy, GetOptions, KeyedLocks, ListPage, ListRequest, Multipart, Object,
    ObjectKey, ObjectMeta, ObjectRef, ObjectStore, Payload, Precondition, PutOptions, Result, StoreError,
    Tags,
};

/// Maximum renames in flight. Further renames wait until one completes, or fail if the last attempt to move failed.
const MOVES_MAX: usize = 1 << 16;

/// Options of a mover.
#[derive(Clone)]
pub struct MoverOptions {
    /// The store below acknowledges copies and deletions before the bucket has them, and keeps their order
    /// (write-back). Renames of single objects are then passed to that store as a copy and a deletion.
    pub copies_at_once: bool,
    /// Callers wait for each rename, learn through [`MoveObserver::is_void`] if it failed, and retry: an object that
    /// another client changed before it moved is not recorded as a conflict.
    pub is_shared: bool,
    /// Returns the key at which our object is kept if another client stored an object at the new key and no
    /// [`ConflictCallbacks`](crate::conflict::ConflictCallbacks) are set.
    pub lost: LostKey,
}

/// A store in front of another store, with renames that return at once.
pub struct Mover {
    me: Weak<Self>,
    executor: Arc<Executor>,
    options: MoverOptions,
}

impl fmt::Debug for MoverOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MoverOptions").field("copies_at_once", &self.copies_at_once).finish_non_exhaustive()
    }
}

/// Progress of the moves.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Moving {
    /// Renames whose objects have not all moved yet.
    pub renames: usize,
    /// Objects moved since this mover was opened.
    pub objects_moved: u64,
    /// Error of the last attempt, if nothing has moved since.
    pub failure: Option<String>,
}

/// A rename whose objects have not all moved yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renamed {
    /// The keys, or prefixes that end in `/`, at which the objects were visible before, the latest first. The last one is physical.
    pub from: Vec<Vec<u8>>,
    /// Logical key, or a prefix that ends in `/`, to which the objects move.
    pub to: Vec<u8>,
    /// Etag of the object; `None` for a prefix.
    pub etag: Option<ETag>,
}

impl fmt::Debug for Mover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mover").field("store", &self.executor.store).finish_non_exhaustive()
    }
}

impl Mover {
    /// Opens the journal at `path` in front of a store. Returns `WouldBlock` if another process has the journal open.
    /// Unfinished renames are visible at once; their objects move after [`Mover::resume`] or the next rename.
    pub fn open(
        path: &Path,
        store: Arc<dyn ObjectStore>,
        options: MoverOptions,
        entropy: Arc<Entropy>,
    ) -> io::Result<Arc<Self>> {
        let (journal, moves, aliases) = Journal::open(path)?;
        let executor = Arc::new_cyclic(|me| Executor {
            me: me.clone(),
            store,
            state: Mutex::new(JournaledMoves::new(journal, moves)),
            aliases: Mutex::new(aliases),
            source_locks: KeyedLocks::default(),
            move_locks: MoveLocks::default(),
            decisions: Decisions::new(options.lost.clone(), entropy),
            resolved: ResolvedConflicts::default(),
            observer: OnceLock::new(),
            durability: Durability::default(),
            activity: Activity::default(),
            is_shared: options.is_shared,
        });
        Ok(Arc::new_cyclic(|me| Self { me: me.clone(), executor, options }))
    }

    /// Returns the number of unfinished renames in the journal at `path`, or 0 if the file is missing. Returns
    /// `WouldBlock` if a process has the journal open.
    pub fn waiting_in(path: &Path) -> io::Result<usize> {
        match path.exists() {
            true => Ok(Journal::open(path)?.1.len()),
            false => Ok(0),
        }
    }

    /// Returns the progress of the moves.
    pub fn moving(&self) -> Moving {
        Moving {
            renames: self.executor.state().moves.len(),
            objects_moved: self.executor.activity.objects_moved.load(Ordering::Acquire),
            failure: self.executor.activity.failure(),
        }
    }

    /// Returns the renames whose objects have not all moved yet.
    pub fn pending(&self) -> Vec<Renamed> {
        let state = self.executor.state();
        let renamed = |(number, mv): (u64, &Move)| match &mv.to {
            moves::Target::Key(to, _) => {
                let from = state.moves.earlier_places(number);
                Some(Renamed { from, to: to.clone(), etag: mv.etag.clone() })
            }
            moves::Target::Deleted | moves::Target::DeletedWithCopy(_) => None,
        };
        state.moves.all().filter_map(renamed).collect()
    }

    /// Returns the key under which callers see the object that is stored at a key; `None` if an unfinished move deletes that object.
    pub fn visible_key(&self, stored_at: &ObjectKey) -> Option<ObjectKey> {
        self.executor.state().moves.visible_key(stored_at)
    }

    /// Returns whether an unfinished move deletes exactly this object.
    pub fn is_deleting(&self, object: &ObjectRef) -> bool {
        let state = self.executor.state();
        let owner = state.moves.owner_of(object).and_then(|number| state.moves.get(number));
        let deletes = |mv: &Move| !matches!(mv.to, moves::Target::Key(..));
        owner.is_some_and(|mv| deletes(mv) && mv.etag.as_ref() == Some(&object.etag))
    }

    /// Returns whether the object visible under a key may still be stored at another key.
    pub fn is_moving(&self, key: &ObjectKey) -> bool {
        self.candidates(key).iter().any(|candidate| candidate.by_move.is_some())
    }

    /// Notes that an object at a key, which callers knew by the etag `given`, has the etag `there` in the store below, and that callers
    /// know it by that from now on.
    pub fn renew_etag(&self, stored_at: &ObjectKey, given: &ETag, there: &ETag) {
        self.executor.state().renewed_etags.remember(stored_at, given.clone(), there.clone());
        let Some(visible) = self.visible_key(stored_at) else { return };
        // The object may be stored at its old keys, and as a copy at its new one that is not reported yet.
        let candidates = self.candidates(&visible).into_iter().map(|candidate| candidate.key);
        let places: BTreeSet<ObjectKey> = candidates.chain([visible]).collect();
        let mut aliases = self.executor.aliases();
        aliases.renew_bucket_tag(stored_at, given, there);
        for place in places {
            aliases.renew(&place, given, there);
        }
    }

    /// Returns how many bytes of the journal survive the loss of power, as far as this process knows. Simulators cut
    /// the rest.
    pub fn synced(&self) -> u64 {
        self.executor.state().journal.log.synced_bytes()
    }

    /// Executes the unfinished moves in the background. Needs a runtime.
    pub fn resume(&self) {
        self.executor.resume();
    }

    /// Makes all renames so far survive the loss of power.
    pub async fn sync_journal(&self) -> Result<()> {
        self.executor.sync_journal().await
    }

    /// Waits until no move is left or the last attempt failed.
    pub async fn wait_until_idle(&self) {
        loop {
            let progress = self.executor.activity.progress.notified();
            if self.executor.is_idle() || self.moving().failure.is_some() {
                return;
            }
            self.resume();
            progress.await;
        }
    }

    /// Waits until no move is left.
    pub async fn wait_until_all_moved(&self) {
        loop {
            let progress = self.executor.activity.progress.notified();
            if self.executor.is_idle() {
                return;
            }
            self.resume();
            progress.await;
        }
    }

    /// Renames an object and returns at once; an existing object at the target is replaced. `name` receives the
    /// object as it is visible at its new key and commits whatever else belongs to the rename: nothing moves before
    /// `name` has succeeded, and nothing is renamed if it certainly failed. The etag of `from` and `at_target` are
    /// checked later, when the object moves. If the effect of `name` must not survive a loss of power without the
    /// rename, `sync_first` makes the journal durable before `name` runs.
    pub async fn rename_object<T, E: NamingError>(
        &self,
        from: &ObjectRef,
        to: &ObjectKey,
        at_target: &Precondition,
        sync_first: bool,
        name: impl FnOnce(&ObjectRef) -> Result<T, E>,
    ) -> Result<T, E> {
        if from.key == *to {
            return Err(StoreError::Invalid("an object cannot be moved to its own key".into()).into());
        }
        if self.options.copies_at_once {
            return self.rename_in_store(from, to, at_target, name).await;
        }
        self.wait_for_capacity().await?;
        self.finish_moves_out_of(to.as_bytes(), |mv| {
            !mv.is_tree && mv.from == to.as_bytes() && mv.has_target(from.key.as_bytes())
        })
        .await?;
        self.settle_duplicates_at(to).await;
        // An object on its way to the old key, or on its way to the new key where the rename replaces it, may reach
        // its next key while this call waits: lock all of them.
        let leaving = self.candidates(to).into_iter().filter(|candidate| candidate.by_move.is_some());
        let places: BTreeSet<ObjectKey> =
            self.candidates(&from.key).into_iter().chain(leaving).map(|candidate| candidate.key).collect();
        let mut locks = Vec::with_capacity(places.len());
        for place in &places {
            locks.push(self.executor.source_locks.lock(place).await);
        }
        let places = self.candidates(&from.key);
        let (places, at_target, etag) = {
            let aliases = self.executor.aliases();
            let tagged = |candidate: Candidate| (aliases.bucket_tag(&candidate.key, &from.etag), candidate);
            let places: Vec<_> = places.into_iter().map(tagged).collect();
            (places, aliases.bucket_condition(to, at_target), aliases.reported_tag(&from.key, &from.etag))
        };
        let renamed = ObjectRef::new(to.clone(), etag);
        let plan = |moves: &Moves| moves.plan_rename(&places, to, &at_target);
        let done = self.executor.state().rename(sync_first, plan, || name(&renamed))?;
        drop(locks);
        self.wake_executor();
        Ok(done)
    }

    /// Executes the moves that bring an object to a key from several keys at which it may be. Afterwards it is known what a rename to the
    /// key replaces. If a move fails, it is repeated in the background.
    async fn settle_duplicates_at(&self, key: &ObjectKey) {
        let duplicates = self.executor.state().moves.duplicates_to(key);
        for number in duplicates {
            self.executor.execute(number).await.ok();
        }
    }

    /// Passes a rename to the store below, as a copy and a deletion in this order.
    async fn rename_in_store<T, E: NamingError>(
        &self,
        from: &ObjectRef,
        to: &ObjectKey,
        at_target: &Precondition,
        name: impl FnOnce(&ObjectRef) -> Result<T, E>,
    ) -> Result<T, E> {
        let options =
            CopyOptions { precondition: at_target.clone(), is_rename: true, ..CopyOptions::default() };
        let copy = self.copy(from, to, options).await?;
        let done = match name(&copy) {
            Ok(done) => done,
            Err(error) if error.is_uncertain() => return Err(error),
            // If the copy has replaced an object, nothing else is left under the new key, so the copy stays. It becomes a copy of its own:
            // the next mount would complete the rename.
            Err(error) if matches!(at_target, Precondition::Matches(_)) => {
                self.copy_onto_itself(&copy).await?;
                return Err(error);
            }
            Err(error) => {
                self.delete(to, Precondition::Matches(copy.etag)).await?;
                return Err(error);
            }
        };
        match self.delete(&from.key, Precondition::Matches(from.etag.clone())).await {
            // Another client has stored a new object there, or only the answer to the deletion was lost.
            Ok(()) | Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => {}
            Err(error) => {
                tracing::warn!(key = %from.key, %error, "a renamed object could not be deleted at its old key yet; retrying");
                self.delete_later(from)?;
            }
        }
        Ok(done)
    }

    /// Stores an object again with the attributes that it has.
    async fn copy_onto_itself(&self, object: &ObjectRef) -> Result<()> {
        let attributes = Some(self.head(&object.key).await?.attributes);
        let precondition = Precondition::Matches(object.etag.clone());
        let options = CopyOptions { attributes, precondition, ..CopyOptions::default() };
        self.copy(object, &object.key, options).await.map(drop)
    }

    /// Hides an object that was copied to another key, and deletes it in the background. Does nothing if a move takes it away already.
    pub fn delete_later(&self, object: &ObjectRef) -> Result<()> {
        let etag = self.executor.aliases().bucket_tag(&object.key, &object.etag);
        let object = ObjectRef { etag, ..object.clone() };
        {
            let mut state = self.executor.state();
            if state.moves.owner_of(&object).is_some() {
                return Ok(());
            }
            let steps = state.moves.plan_deletion(&object);
            state.record(steps)?;
        }
        self.wake_executor();
        Ok(())
    }

    /// Renames all objects whose keys begin with `from`; `from` and `to` end in `/`. The caller ensures that nobody
    /// stores below `from` meanwhile and that nothing is visible below `to` except an empty object with the key `to`,
    /// which is replaced and meets `at_marker`. `name` and `sync_first` work as in [`Mover::rename_object`].
    pub async fn rename_tree<T, E: NamingError>(
        &self,
        from: &[u8],
        to: &[u8],
        at_marker: &Precondition,
        sync_first: bool,
        name: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        self.wait_for_capacity().await?;
        self.finish_moves_out_of(to, |mv| mv.is_tree && mv.from == to && mv.has_target(from)).await?;
        if self.options.copies_at_once {
            // The journal must not mention objects that the store below could still lose.
            self.executor.store.sync().await?;
        }
        let at_marker = match ObjectKey::new(to.to_vec()) {
            Ok(marker) => self.executor.aliases().bucket_condition(&marker, at_marker),
            Err(_) => at_marker.clone(),
        };
        let plan = |moves: &Moves| moves.plan_rename_tree(from, to, &at_marker);
        // A request in flight would otherwise bring an object to `from` after that tree was moved back, or delete it at `to`.
        let steps = plan(&self.executor.state().moves);
        let paused = self.pause_moves_ended_by(steps).await;
        let done = self.executor.state().rename(sync_first, plan, name)?;
        drop(paused);
        if self.options.copies_at_once {
            self.executor.sync_journal().await?;
        }
        self.wake_executor();
        Ok(done)
    }

    /// Pauses the moves that these steps would end, the newest first: a move that is being executed may wait for older ones.
    async fn pause_moves_ended_by(&self, steps: Vec<Step>) -> Vec<PausedMove<'_>> {
        let ended = |step| if let Step::Done { number } = step { Some(number) } else { None };
        let ended: BTreeSet<u64> = steps.into_iter().filter_map(ended).collect();
        let mut paused = Vec::new();
        for number in ended.into_iter().rev() {
            paused.push(self.executor.move_locks.pause(number).await);
        }
        paused
    }

    /// Starts the moves of a new rename, also if earlier moves wait after a failure.
    fn wake_executor(&self) {
        self.executor.activity.renamed.notify_waiters();
        self.resume();
    }

    /// Returns the physical keys at which the object of a logical key may be.
    fn candidates(&self, key: &ObjectKey) -> Vec<Candidate> {
        self.executor.state().moves.candidates(key)
    }

    /// Waits until fewer than [`MOVES_MAX`] moves are unfinished. Fails if moves are failing.
    async fn wait_for_capacity(&self) -> Result<()> {
        loop {
            let progress = self.executor.activity.progress.notified();
            if self.executor.state().moves.len() < MOVES_MAX {
                return Ok(());
            }
            if let Some(failure) = self.moving().failure {
                return Err(StoreError::Unavailable(format!(
                    "{MOVES_MAX} renames wait for their objects to move in the bucket: {failure}"
                )));
            }
            self.resume();
            progress.await;
        }
    }

    /// Executes the moves that involve a key, so that the object visible under it is stored there and nowhere else.
    async fn finish_moves_into(&self, key: &ObjectKey) -> Result<()> {
        self.delete_stray_copies(key).await?;
        self.finish_moves_out_of(key.as_bytes(), |_| false).await?;
        for candidate in self.candidates(key) {
            if let Some(number) = candidate.by_move {
                self.executor.move_object_now(number, &candidate).await?;
            }
        }
        Ok(())
    }

    /// Returns whether the object stored at a key is being moved away. Another one may have been stored there since the rename, by a request
    /// whose answer was lost.
    fn is_object_leaving(&self, key: &ObjectKey) -> bool {
        let state = self.executor.state();
        let owner = state.moves.owner(key.as_bytes()).and_then(|number| state.moves.get(number));
        owner.is_some_and(|mv| !mv.is_tree)
    }

    /// Deletes stray copies at a key.
    async fn delete_stray_copies(&self, key: &ObjectKey) -> Result<()> {
        let stray_copies: Vec<u64> = self.executor.state().moves.stray_copies_at(key.as_bytes()).collect();
        for number in stray_copies {
            self.executor.execute(number).await?;
        }
        Ok(())
    }

    /// Deletes the objects at a key that moves were to replace or delete. They must go before the moving object is deleted: after a crash in
    /// between, they would be visible again.
    async fn delete_replaced(&self, key: &ObjectKey, candidates: &[Candidate]) -> Result<()> {
        let in_place = candidates.iter().filter(|candidate| candidate.by_move.is_none());
        for etag in in_place.flat_map(|candidate| &candidate.replaced) {
            match self.executor.store.delete(key, Precondition::Matches(etag.clone())).await {
                Ok(()) | Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Executes the moves away from a key, or from around and below a prefix, except those that `is_exempt` accepts.
    /// Then syncs the journal if it could lose the completion of such a move.
    async fn finish_moves_out_of(&self, place: &[u8], is_exempt: impl Fn(&Move) -> bool) -> Result<()> {
        loop {
            let blocking_move = self.executor.state().moves.move_out_of(place, &is_exempt);
            match blocking_move {
                None => break,
                Some(number) => self.executor.execute(number).await?,
            }
        }
        let is_unsynced = self.executor.state().has_unsynced_done(place);
        if is_unsynced { self.executor.sync_journal().await } else { Ok(()) }
    }

    /// Calls `attempt` for each place where the object may be stored, in order, until one has it.
    async fn try_candidates<T, F: Future<Output = Result<T>>>(
        &self,
        key: &ObjectKey,
        attempt: impl Fn(Candidate) -> F,
    ) -> Result<T> {
        'anew: loop {
            let mut missed = StoreError::NotFound(key.clone());
            let places = self.executor.state().moves.lookup_order(key);
            for candidate in places {
                match attempt(candidate.clone()).await {
                    Ok(_) if !self.is_still_at(key, &candidate) => continue 'anew,
                    Err(StoreError::NotFound(_)) => {}
                    // Another object is stored there, or this object has another etag at its next key.
                    Err(StoreError::PreconditionFailed(_)) => {
                        missed = StoreError::PreconditionFailed(key.clone())
                    }
                    outcome => return outcome,
                }
            }
            return Err(missed);
        }
    }

    /// Returns whether what was found at a candidate's key is the object visible under `key`. If the move of a tree has ended meanwhile, a
    /// new object may have been stored at the old key.
    fn is_still_at(&self, key: &ObjectKey, candidate: &Candidate) -> bool {
        candidate.by_move.is_none() || candidate.etag.is_some() || self.candidates(key).contains(candidate)
    }

    /// Returns an object's description with its logical key and the etag that was issued to callers.
    fn as_caller_sees(&self, key: &ObjectKey, meta: ObjectMeta) -> ObjectMeta {
        let object = self.executor.with_known_tag(meta.object);
        ObjectMeta { object: ObjectRef { key: key.clone(), ..object }, ..meta }
    }

    /// Reads the object at a candidate's key. Fails with `NotFound` if another object is there.
    async fn get_candidate(&self, candidate: &Candidate, options: &GetOptions) -> Result<Object> {
        let requested =
            options.if_match.as_ref().map(|etag| self.executor.aliases().bucket_tag(&candidate.key, etag));
        let is_conditional = requested.is_some();
        let if_match = requested.or_else(|| candidate.etag.clone());
        match self.executor.store.get(&candidate.key, GetOptions { if_match, ..options.clone() }).await {
            Err(StoreError::PreconditionFailed(key)) if !is_conditional => Err(StoreError::NotFound(key)),
            Ok(found) if candidate.is_replaced(&found.meta) => {
                Err(StoreError::NotFound(candidate.key.clone()))
            }
            // The object that is too short may be one that callers no longer see.
            Err(StoreError::InvalidRange(key)) if !candidate.replaced.is_empty() => {
                match self.executor.store.head(&candidate.key).await? {
                    found if candidate.is_replaced(&found) => Err(StoreError::NotFound(key)),
                    _ => Err(StoreError::InvalidRange(key)),
                }
            }
            found => found,
        }
    }

    /// Returns the metadata of the object at a candidate's key. Fails with `NotFound` if another object is there.
    async fn head_candidate(&self, key: &ObjectKey, candidate: &Candidate) -> Result<ObjectMeta> {
        let meta = self.executor.store.head(&candidate.key).await?;
        match self.executor.is_same_object(key, candidate.etag.as_ref(), &meta)
            && !candidate.is_replaced(&meta)
        {
            true => Ok(meta),
            false => Err(StoreError::NotFound(candidate.key.clone())),
        }
    }
}

#[async_trait::async_trait]
impl ObjectStore for Mover {
    async fn get(&self, key: &ObjectKey, options: GetOptions) -> Result<Object> {
        let options = &options;
        let found = self
            .try_candidates(key, |candidate| async move { self.get_candidate(&candidate, options).await })
            .await;
        match found {
            Ok(Object { meta, body }) => Ok(Object { meta: self.as_caller_sees(key, meta), body }),
            Err(error) => Err(error.about(key)),
        }
    }

    async fn head(&self, key: &ObjectKey) -> Result<ObjectMeta> {
        let found = self
            .try_candidates(key, |candidate| async move { self.head_candidate(key, &candidate).await })
            .await;
        found.map(|meta| self.as_caller_sees(key, meta)).map_err(|error| error.about(key))
    }

    async fn put(&self, key: &ObjectKey, body: Payload, options: PutOptions) -> Result<ObjectRef> {
        self.finish_moves_into(key).await?;
        let precondition = self.executor.aliases().bucket_condition(key, &options.precondition);
        self.executor.store.put(key, body, PutOptions { precondition, ..options }).await
    }

    async fn multipart(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
        tags: Tags,
    ) -> Result<Arc<dyn Multipart>> {
        let inner = self.executor.store.multipart(key, attributes, tags).await?;
        let me = self.me.upgrade().ok_or_else(closed)?;
        Ok(Arc::new(MoverUpload::new(me, key.clone(), inner)))
    }

    async fn copy(&self, from: &ObjectRef, to: &ObjectKey, options: CopyOptions) -> Result<ObjectRef> {
        self.finish_moves_into(&from.key).await?;
        self.finish_moves_into(to).await?;
        let (from, precondition) = {
            let aliases = self.executor.aliases();
            let etag = aliases.bucket_tag(&from.key, &from.etag);
            (ObjectRef { etag, ..from.clone() }, aliases.bucket_condition(to, &options.precondition))
        };
        self.executor.store.copy(&from, to, CopyOptions { precondition, ..options }).await
    }

    /// Unlike [`Mover::rename_object`] this checks the etag and the precondition first.
    async fn rename(&self, from: &ObjectRef, to: &ObjectKey, precondition: Precondition) -> Result<()> {
        if self.head(&from.key).await?.object.etag != from.etag {
            return Err(StoreError::PreconditionFailed(from.key.clone()));
        }
        let existing = self.find(to).await?.map(|meta| meta.object.etag);
        if !precondition.holds(existing.as_ref()) {
            return Err(StoreError::PreconditionFailed(to.clone()));
        }
        let at_target = existing.map_or(Precondition::Absent, Precondition::Matches);
        self.rename_object(from, to, &at_target, false, |_| Ok(())).await
    }

    async fn delete(&self, key: &ObjectKey, precondition: Precondition) -> Result<()> {
        if self.executor.is_idle() || precondition != Precondition::None || self.is_object_leaving(key) {
            self.finish_moves_into(key).await?;
            let precondition = self.executor.aliases().bucket_condition(key, &precondition);
            return self.executor.store.delete(key, precondition).await;
        }
        self.delete_stray_copies(key).await?;
        'anew: loop {
            let candidates = self.candidates(key);
            self.delete_replaced(key, &candidates).await?;
            for candidate in candidates {
                match candidate.by_move {
                    Some(number) if !self.executor.delete_in_transit(number, &candidate).await? => {
                        continue 'anew;
                    }
                    Some(_) => {}
                    None => self.executor.store.delete(key, Precondition::None).await?,
                }
            }
            return Ok(());
        }
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        self.list_logical(request).await
    }

    async fn tags(&self, key: &ObjectKey) -> Result<Tags> {
        let found = self
            .try_candidates(key, |candidate| async move {
                if candidate.by_move.is_some() || !candidate.replaced.is_empty() {
                    self.head_candidate(key, &candidate).await?;
                }
                self.executor.store.tags(&candidate.key).await
            })
            .await;
        found.map_err(|error| error.about(key))
    }

    async fn set_tags(&self, key: &ObjectKey, tags: Tags) -> Result<()> {
        self.finish_moves_into(key).await?;
        self.executor.store.set_tags(key, tags).await
    }

    async fn sync(&self) -> Result<()> {
        self.executor.sync_journal().await?;
        self.executor.store.sync().await
    }
}

fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".into())
}
