//! Renames that return at once: a store in front of another, whose objects follow their names in the background.
//!
//! A bucket has no rename; what can be had is a copy inside the store and a deletion, which take their time. Here a rename
//! is a step in a local journal. Reads and listings show every object where it was renamed to, wherever it lies by then; a
//! write waits for the one object that is still at its place, or, where a whole tree has moved away from, for that. The
//! objects are copied in the background, several at a time, and their old keys deleted.
//!
//! Invariants: an object is deleted where it lay only after it is where it goes to; nothing moves before the journal, and
//! whatever else says where it is now ([`Keeper`]), survives the loss of power; a move that was done in part
//! goes on where it ended, and done again does no harm; nobody's object at the new place is replaced unless the
//! [`Judge`] says so and it was kept.

mod execute;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod journal;
mod keeper;
mod logical_listing;
mod move_conflict;
mod mover_upload;
mod moves;
mod wait_for_moves;

use crate::etag_aliases::Aliases;
use crate::writeback::LostKey;
use crate::{
    Attributes, Claims, CopyOptions, ETag, Entropy, GetOptions, ListPage, ListRequest, Multipart, Object,
    ObjectKey, ObjectMeta, ObjectRef, ObjectStore, Payload, Precondition, PutOptions, Result, StoreError,
    Tags, blocking,
};
use execute::Copied;
use journal::Journal;
pub use keeper::{Keeper, NamingError};
use moves::{Candidate, Move, Moves, Step};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use tokio::sync::Notify;

/// Who renames more waits until some are done.
const MOVES_MAX: usize = 1 << 16;
/// So many moves that are done are remembered: more than are done while the bucket is asked for a page.
const DONE_MAX: usize = 4096;

/// How a mover behaves.
#[derive(Clone)]
pub struct MoverOptions {
    /// The store below acknowledges copies and deletions before they are done, in order: objects that are renamed one by one
    /// are left to it.
    pub copies_at_once: bool,
    /// Who renames waits, hears whether it came to nothing, and tries again: nothing is a conflict then.
    pub is_shared: bool,
    /// Where our bytes go if somebody else stored something at the new place, and there is no [`Judge`].
    pub lost: LostKey,
}

impl fmt::Debug for MoverOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MoverOptions").field("copies_at_once", &self.copies_at_once).finish_non_exhaustive()
    }
}

/// What is on its way.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Moving {
    /// Renames whose objects have not all moved.
    pub renames: usize,
    /// Objects that have moved since this mover was opened.
    pub objects_moved: u64,
    /// Why the last attempt failed, if nothing has moved since.
    pub failure: Option<String>,
}

/// One rename on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renamed {
    /// Where it lies: a key, or what keys begin with, which ends in `/`.
    pub from: Vec<u8>,
    /// Where it shows.
    pub to: Vec<u8>,
    /// The tag of the object, if it is one.
    pub etag: Option<ETag>,
}

/// A store in front of another.
pub struct Mover {
    me: Weak<Self>,
    store: Arc<dyn ObjectStore>,
    state: Mutex<State>,
    aliases: Mutex<Aliases>,
    /// Places that somebody is moving an object from.
    places: Claims<ObjectKey>,
    /// Moves that somebody is carrying out, by number.
    running: Claims<u64>,
    /// What met another object where it was to go, and is still where it was, by its key there.
    overtaken: Mutex<HashMap<ObjectKey, Copied>>,
    entropy: Arc<Entropy>,
    options: MoverOptions,
    keeper: OnceLock<Keeper>,
    has_runner: AtomicBool,
    objects_moved: AtomicU64,
    /// Moves begun when so much had been appended to the journal may be carried out.
    safe_up_to: AtomicU64,
    /// How many new tags the keeper was told, and how many of them it knows after a loss of power.
    told: AtomicU64,
    told_safely: AtomicU64,
    failure: Mutex<Option<String>>,
    /// A move is done, or an attempt at one failed.
    changed: Notify,
    /// Something was renamed.
    woken: Arc<Notify>,
}

#[derive(Debug)]
struct State {
    moves: Moves,
    journal: Journal,
    /// Places that moves have left, and how much had been appended to the journal when it said so: before something new is
    /// stored there that must survive the loss of power, or it would be moved too.
    left: Vec<(Move, u64)>,
    /// The last of the moves that are done, by number, and how many there were before them: who listed a place meanwhile saw
    /// what was.
    done: VecDeque<(u64, Move)>,
    done_before: u64,
}

impl State {
    fn take(&mut self, steps: Vec<Step>) -> Result<()> {
        self.journal.append(&steps).map_err(failed)?;
        self.apply(steps);
        Ok(())
    }

    fn apply(&mut self, steps: Vec<Step>) {
        for step in steps {
            if let Step::Begin { number, one } = &step
                && !one.is_tree
            {
                self.moves.is_new(*number);
            }
            self.moves.apply(step);
        }
        if let Err(error) = self.journal.compact(&self.moves) {
            // What it says is true, only longer.
            tracing::warn!(%error, "the journal of moves cannot be written anew");
        }
    }

    /// A move has been carried out.
    fn finish(&mut self, number: u64) -> Result<()> {
        let one = self.moves.get(number).cloned();
        self.take(vec![Step::Done { number }])?;
        self.left.extend(one.clone().map(|one| (one, self.journal.appended())));
        self.done.extend(one.map(|one| (number, one)));
        if self.done.len() > DONE_MAX {
            self.done.pop_front();
            self.done_before += 1;
        }
        Ok(())
    }

    /// How many moves are done.
    fn done_count(&self) -> u64 {
        self.done_before + self.done.len() as u64
    }

    /// Whether what lay under a key, or under keys that begin so, has left since so many moves were done, by one that had been
    /// begun before `before`.
    fn has_left_since(&self, since: u64, before: u64, place: &[u8]) -> bool {
        let first = since.saturating_sub(self.done_before) as usize;
        self.done.iter().skip(first).any(|(number, one)| *number < before && one.covers(place))
    }

    /// Whether something has left a place, or places that begin so, and the journal may lose that.
    fn was_left(&self, place: &[u8]) -> bool {
        self.left.iter().any(|(one, _)| one.covers(place))
    }

    fn has_synced(&mut self, appended: u64) {
        self.journal.has_synced(appended);
        self.left.retain(|(_, at)| *at > appended);
    }

    /// Takes the steps of a rename if what belongs to it succeeds. The journal is first: a crash in between leaves a
    /// rename that nobody was told of.
    fn rename<T, E: NamingError>(
        &mut self,
        is_safe_first: bool,
        plan: impl FnOnce(&Moves) -> Vec<Step>,
        name: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let steps = plan(&self.moves);
        let end = self.journal.end();
        self.journal.append(&steps).map_err(failed)?;
        let is_safe = if is_safe_first { self.sync() } else { Ok(()) };
        match is_safe.map_err(E::from).and_then(|()| name()) {
            Ok(done) => {
                self.apply(steps);
                Ok(done)
            }
            Err(error) if error.is_uncertain() => {
                self.apply(steps);
                Err(error)
            }
            Err(error) => {
                self.journal.cut(end).map_err(failed)?;
                Err(error)
            }
        }
    }

    fn sync(&mut self) -> Result<()> {
        let appended = self.journal.appended();
        if let Some(file) = self.journal.unsynced().map_err(failed)? {
            file.sync_data().map_err(failed)?;
        }
        self.has_synced(appended);
        Ok(())
    }
}

impl fmt::Debug for Mover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mover").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Mover {
    /// Opens the journal at `path` in front of a store; `WouldBlock` if another process has it open. What it says is seen
    /// at once, and moves from [`Mover::resume`] or the next rename on.
    pub fn open(
        path: &Path,
        store: Arc<dyn ObjectStore>,
        options: MoverOptions,
        entropy: Arc<Entropy>,
    ) -> io::Result<Arc<Self>> {
        let (journal, moves) = Journal::open(path)?;
        Ok(Arc::new_cyclic(|me| Self {
            me: me.clone(),
            store,
            state: Mutex::new(State {
                moves,
                journal,
                left: Vec::new(),
                done: VecDeque::new(),
                done_before: 0,
            }),
            aliases: Mutex::default(),
            places: Claims::default(),
            running: Claims::default(),
            overtaken: Mutex::default(),
            entropy,
            options,
            keeper: OnceLock::new(),
            has_runner: AtomicBool::new(false),
            objects_moved: AtomicU64::new(0),
            safe_up_to: AtomicU64::new(0),
            told: AtomicU64::new(0),
            told_safely: AtomicU64::new(0),
            failure: Mutex::default(),
            changed: Notify::new(),
            woken: Arc::default(),
        }))
    }

    /// How many renames the journal at `path`, which may be missing, holds that are not finished; `WouldBlock` if a process
    /// has it open.
    pub fn waiting_in(path: &Path) -> io::Result<usize> {
        match path.exists() {
            true => Ok(Journal::open(path)?.1.len()),
            false => Ok(0),
        }
    }

    /// Says who else keeps where things are. The first call counts.
    pub fn kept_by(&self, keeper: Keeper) {
        let _ = self.keeper.set(keeper);
    }

    /// What is on its way.
    pub fn moving(&self) -> Moving {
        Moving {
            renames: self.state().moves.len(),
            objects_moved: self.objects_moved.load(Ordering::Acquire),
            failure: self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// What was renamed and has not all moved.
    pub fn pending(&self) -> Vec<Renamed> {
        let state = self.state();
        let renamed = |one: &Move| match &one.to {
            moves::Target::Place(to, _) => {
                Some(Renamed { from: one.from.clone(), to: to.clone(), etag: one.etag.clone() })
            }
            moves::Target::Nowhere | moves::Target::GivenUp(_) => None,
        };
        state.moves.all().filter_map(|(_, one)| renamed(one)).collect()
    }

    /// How many bytes of the journal survive the loss of power, as far as this process knows: for simulators, which take the
    /// rest away.
    pub fn synced(&self) -> u64 {
        self.state().journal.synced_bytes()
    }

    /// Returns when nothing is on its way, or the last attempt failed.
    pub async fn rests(&self) {
        loop {
            let changed = self.changed.notified();
            if self.is_idle() || self.moving().failure.is_some() {
                return;
            }
            self.resume();
            changed.await;
        }
    }

    /// Returns when nothing is on its way.
    pub async fn arrived(&self) {
        loop {
            let changed = self.changed.notified();
            if self.is_idle() {
                return;
            }
            self.resume();
            changed.await;
        }
    }

    /// Renames an object; what shows at the target goes if it is as asked. `name` is told what shows at the new place then,
    /// and does whatever else belongs to the rename: nothing moves before it has succeeded, and nothing is renamed if it
    /// surely failed. Returns at once, and conditions are checked when the object moves. Where what `name` does must not survive the
    /// loss of power without the rename, `is_safe_first` makes the journal safe before.
    pub async fn rename_object<T, E: NamingError>(
        &self,
        from: &ObjectRef,
        to: &ObjectKey,
        at_target: &Precondition,
        is_safe_first: bool,
        name: impl FnOnce(&ObjectRef) -> Result<T, E>,
    ) -> Result<T, E> {
        if from.key == *to {
            return Err(StoreError::Invalid("an object cannot be moved to its own key".into()).into());
        }
        if self.options.copies_at_once {
            return self.rename_below(from, to, at_target, name).await;
        }
        self.make_room().await?;
        self.vacate(to.as_bytes(), |one| {
            !one.is_tree && one.from == to.as_bytes() && one.shows_at(from.key.as_bytes())
        })
        .await?;
        // What is being moved from one place, or to be replaced, is at the next then.
        let going = self.candidates(to).into_iter().filter(|there| there.by.is_some());
        let places: BTreeSet<ObjectKey> =
            self.candidates(&from.key).into_iter().chain(going).map(|there| there.key).collect();
        let mut claims = Vec::with_capacity(places.len());
        for place in &places {
            claims.push(self.places.claim(place).await);
        }
        let places = self.candidates(&from.key);
        let (places, at_target, etag) = {
            let aliases = self.aliases();
            let tagged = |there: Candidate| (aliases.there(&there.key, &from.etag), there);
            let places: Vec<_> = places.into_iter().map(tagged).collect();
            (places, aliases.condition_there(to, at_target), aliases.known(&from.key, &from.etag))
        };
        let renamed = ObjectRef::new(to.clone(), etag);
        let plan = |moves: &Moves| moves.rename(&places, to, &at_target);
        let done = self.state().rename(is_safe_first, plan, || name(&renamed))?;
        drop(claims);
        self.goes_on();
        Ok(done)
    }

    /// The store below does it later, in this order.
    async fn rename_below<T, E: NamingError>(
        &self,
        from: &ObjectRef,
        to: &ObjectKey,
        at_target: &Precondition,
        name: impl FnOnce(&ObjectRef) -> Result<T, E>,
    ) -> Result<T, E> {
        let options = CopyOptions { precondition: at_target.clone(), ..CopyOptions::default() };
        let copy = self.copy(from, to, options).await?;
        let done = match name(&copy) {
            Ok(done) => done,
            Err(error) if error.is_uncertain() => return Err(error),
            Err(error) => {
                self.delete(to, Precondition::Matches(copy.etag)).await?;
                return Err(error);
            }
        };
        self.delete(&from.key, Precondition::Matches(from.etag.clone())).await?;
        Ok(done)
    }

    /// Renames everything whose keys begin with `from`, which ends in `/` as `to` does. Nobody stores anything there
    /// meanwhile, and nothing shows at the target but an empty object of the target's own name, which goes. `name` as in
    /// [`Mover::rename_object`].
    pub async fn rename_tree<T, E: NamingError>(
        &self,
        from: &[u8],
        to: &[u8],
        name: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        self.make_room().await?;
        self.vacate(to, |one| one.is_tree && one.from == to && one.shows_at(from)).await?;
        if self.options.copies_at_once {
            // The journal must not know of what the store below could lose.
            self.store.sync().await?;
        }
        let done = self.state().rename(false, |moves| moves.rename_tree(from, to), name)?;
        if self.options.copies_at_once {
            self.sync_journal().await?;
        }
        self.goes_on();
        Ok(done)
    }

    /// Something has been renamed, and does not wait for what could not be moved before.
    fn goes_on(&self) {
        self.woken.notify_waiters();
        self.resume();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn aliases(&self) -> MutexGuard<'_, Aliases> {
        self.aliases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_idle(&self) -> bool {
        self.state().moves.len() == 0
    }

    fn candidates(&self, key: &ObjectKey) -> Vec<Candidate> {
        self.state().moves.candidates(key)
    }

    async fn make_room(&self) -> Result<()> {
        loop {
            let changed = self.changed.notified();
            if self.state().moves.len() < MOVES_MAX {
                return Ok(());
            }
            if let Some(failure) = self.moving().failure {
                return Err(StoreError::Unavailable(format!(
                    "{MOVES_MAX} renames wait for the bucket: {failure}"
                )));
            }
            self.resume();
            changed.await;
        }
    }

    /// Syncs the store below, and then the journal.
    async fn sync_done(&self) -> Result<()> {
        if self.state().journal.unsynced().map_err(failed)?.is_some() {
            self.store.sync().await?;
        }
        self.sync_journal().await
    }

    /// Returns when the renames so far survive the loss of power.
    pub async fn sync_journal(&self) -> Result<()> {
        let (unsynced, appended) = {
            let journal = &self.state().journal;
            (journal.unsynced().map_err(failed)?, journal.appended())
        };
        let Some(file) = unsynced else { return Ok(()) };
        blocking(move || file.sync_data()).await.map_err(failed)?;
        self.state().has_synced(appended);
        Ok(())
    }

    /// Has moved what shows under a key to that key, so that it can be changed there.
    async fn settle(&self, key: &ObjectKey) -> Result<()> {
        self.clear(key).await?;
        self.vacate(key.as_bytes(), |_| false).await?;
        for there in self.candidates(key) {
            if let Some(number) = there.by {
                self.move_one(number, &there).await?;
            }
        }
        Ok(())
    }

    /// Has copies that nobody wants deleted at a key.
    async fn clear(&self, key: &ObjectKey) -> Result<()> {
        let given_up: Vec<u64> = self.state().moves.given_up_at(key.as_bytes()).collect();
        for number in given_up {
            self.carry_out(number).await?;
        }
        Ok(())
    }

    /// Waits until nothing is to leave a place any more, but for what `may_stay`.
    async fn vacate(&self, place: &[u8], may_stay: impl Fn(&Move) -> bool) -> Result<()> {
        loop {
            let in_the_way = {
                let moves = &self.state().moves;
                let near = match place.ends_with(b"/") {
                    true => moves.owner_near(place),
                    false => moves.owner(place),
                };
                near.filter(|number| !moves.get(*number).is_some_and(&may_stay))
            };
            match in_the_way {
                None => break,
                Some(number) => self.carry_out(number).await?,
            }
        }
        let was_left = self.state().was_left(place);
        if was_left { self.sync_journal().await } else { Ok(()) }
    }

    /// The first of the places where something may lie that has it.
    async fn first<T, F: Future<Output = Result<T>>>(
        &self,
        key: &ObjectKey,
        attempt: impl Fn(Candidate) -> F,
    ) -> Result<T> {
        let mut missed = StoreError::NotFound(key.clone());
        let places = self.state().moves.lookup_order(key);
        for there in places {
            match attempt(there).await {
                Err(StoreError::NotFound(_)) => {}
                // Something else is there, or it has another tag at the next place.
                Err(StoreError::PreconditionFailed(_)) => {
                    missed = StoreError::PreconditionFailed(key.clone())
                }
                outcome => return outcome,
            }
        }
        Err(missed)
    }

    /// An object as its callers know it.
    fn shown(&self, key: &ObjectKey, meta: ObjectMeta) -> ObjectMeta {
        let object = self.aliases().as_given(meta.object);
        ObjectMeta { object: ObjectRef { key: key.clone(), ..object }, ..meta }
    }

    async fn get_at(&self, there: &Candidate, options: &GetOptions) -> Result<Object> {
        let asked = options.if_match.as_ref().map(|given| self.aliases().there(&there.key, given));
        let is_asked = asked.is_some();
        let if_match = asked.or_else(|| there.etag.clone());
        match self.store.get(&there.key, GetOptions { if_match, ..options.clone() }).await {
            Err(StoreError::PreconditionFailed(key)) if !is_asked => Err(StoreError::NotFound(key)),
            Ok(found) if there.is_replaced(&found.meta) => Err(StoreError::NotFound(there.key.clone())),
            found => found,
        }
    }

    async fn head_at(&self, key: &ObjectKey, there: &Candidate) -> Result<ObjectMeta> {
        let meta = self.store.head(&there.key).await?;
        match self.is_still(key, there.etag.as_ref(), &meta) && !there.is_replaced(&meta) {
            true => Ok(meta),
            false => Err(StoreError::NotFound(there.key.clone())),
        }
    }

    /// Whether what was found is what shows under a key, and had this tag.
    fn is_still(&self, key: &ObjectKey, etag: Option<&ETag>, found: &ObjectMeta) -> bool {
        let is_known = || self.keeper.get().is_some_and(|keeper| (keeper.knows)(key, found));
        etag.is_none_or(|etag| *etag == found.object.etag || is_known())
    }
}

#[async_trait::async_trait]
impl ObjectStore for Mover {
    async fn get(&self, key: &ObjectKey, options: GetOptions) -> Result<Object> {
        let options = &options;
        let found = self.first(key, |there| async move { self.get_at(&there, options).await }).await;
        match found {
            Ok(Object { meta, body }) => Ok(Object { meta: self.shown(key, meta), body }),
            Err(error) => Err(error.about(key)),
        }
    }

    async fn head(&self, key: &ObjectKey) -> Result<ObjectMeta> {
        let found = self.first(key, |there| async move { self.head_at(key, &there).await }).await;
        found.map(|meta| self.shown(key, meta)).map_err(|error| error.about(key))
    }

    async fn put(&self, key: &ObjectKey, body: Payload, options: PutOptions) -> Result<ObjectRef> {
        self.settle(key).await?;
        let precondition = self.aliases().condition_there(key, &options.precondition);
        self.store.put(key, body, PutOptions { precondition, ..options }).await
    }

    async fn multipart(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
        tags: Tags,
    ) -> Result<Arc<dyn Multipart>> {
        let inner = self.store.multipart(key, attributes, tags).await?;
        let me = self.me.upgrade().ok_or_else(closed)?;
        Ok(Arc::new(mover_upload::Upload::new(me, key.clone(), inner)))
    }

    async fn copy(&self, from: &ObjectRef, to: &ObjectKey, options: CopyOptions) -> Result<ObjectRef> {
        self.settle(&from.key).await?;
        self.settle(to).await?;
        let (from, precondition) = {
            let aliases = self.aliases();
            let etag = aliases.there(&from.key, &from.etag);
            (ObjectRef { etag, ..from.clone() }, aliases.condition_there(to, &options.precondition))
        };
        self.store.copy(&from, to, CopyOptions { precondition, ..options }).await
    }

    /// Unlike [`Mover::rename_object`] it asks first whether everything is as it must be.
    async fn rename(&self, from: &ObjectRef, to: &ObjectKey, precondition: Precondition) -> Result<()> {
        if self.head(&from.key).await?.object.etag != from.etag {
            return Err(StoreError::PreconditionFailed(from.key.clone()));
        }
        let there = self.find(to).await?.map(|meta| meta.object.etag);
        if !precondition.holds(there.as_ref()) {
            return Err(StoreError::PreconditionFailed(to.clone()));
        }
        let at_target = there.map_or(Precondition::Absent, Precondition::Matches);
        self.rename_object(from, to, &at_target, false, |_| Ok(())).await
    }

    async fn delete(&self, key: &ObjectKey, precondition: Precondition) -> Result<()> {
        if self.is_idle() || precondition != Precondition::None {
            self.settle(key).await?;
            let precondition = self.aliases().condition_there(key, &precondition);
            return self.store.delete(key, precondition).await;
        }
        self.clear(key).await?;
        'anew: loop {
            for there in self.candidates(key) {
                match there.by {
                    Some(number) if !self.delete_on_its_way(number, &there).await? => continue 'anew,
                    Some(_) => {}
                    None => self.store.delete(key, Precondition::None).await?,
                }
            }
            return Ok(());
        }
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        self.list_as_shown(request).await
    }

    async fn tags(&self, key: &ObjectKey) -> Result<Tags> {
        let found = self.first(key, |there| async move { self.store.tags(&there.key).await }).await;
        found.map_err(|error| error.about(key))
    }

    async fn set_tags(&self, key: &ObjectKey, tags: Tags) -> Result<()> {
        self.settle(key).await?;
        self.store.set_tags(key, tags).await
    }

    async fn sync(&self) -> Result<()> {
        self.sync_journal().await?;
        self.store.sync().await
    }
}

fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".into())
}

fn failed(error: io::Error) -> StoreError {
    StoreError::of_log("the journal of moves", error)
}
