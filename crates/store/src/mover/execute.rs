//! Objects follow their names: copies inside the store, then deletions.

use super::Mover;
use super::moves::{Candidate, Move, Target};
use crate::{
    CopyOptions, GetOptions, ListEntry, ListRequest, ObjectKey, ObjectMeta, ObjectRef, Pages, Precondition,
    Result, StoreError,
};
use futures_util::{StreamExt as _, TryStreamExt as _};
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{PoisonError, Weak};
use std::time::Duration;

/// Objects copied, or deleted, at the same time.
const AT_ONCE: usize = 32;
/// Keys asked for at once.
const PAGE_ENTRIES: usize = 1000;
/// So many objects of a tree are copied before their old keys are deleted: others see the new names the sooner, and it
/// bounds what is remembered.
const COPIED_BEFORE_DELETING: usize = 16_384;
/// Somebody who changes an object again and again while it moves is followed so often.
const ATTEMPTS_MAX: usize = 8;
/// A tree is gone through so often: what was on its way there lands behind the first pass. Who goes on storing at the old
/// place makes new objects there.
const PASSES_MAX: usize = 4;
/// The first and the longest wait after a failure, in which the store's client has tried for a while already. What is renamed
/// meanwhile waits for the first.
const WAITS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// What was copied, and where it is now too.
#[derive(Debug, Clone)]
pub(super) struct Copied {
    pub(super) from: ObjectRef,
    pub(super) to: ObjectKey,
    /// Where it, or what somebody else stored at the target, is kept.
    pub(super) kept: Option<ObjectKey>,
}

impl Copied {
    pub(super) fn new(source: &Source, to: &ObjectKey, kept: Option<ObjectKey>) -> Self {
        Self { from: source.object.clone(), to: to.clone(), kept }
    }
}

/// What is to be copied, and how large it is, if that is known.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) object: ObjectRef,
    size_bytes: Option<u64>,
}

impl Source {
    /// How to copy it as it is.
    pub(super) fn options(&self, precondition: Precondition) -> CopyOptions {
        CopyOptions { precondition, size_bytes: self.size_bytes, ..CopyOptions::default() }
    }
}

impl From<ObjectMeta> for Source {
    fn from(found: ObjectMeta) -> Self {
        Self { object: found.object, size_bytes: Some(found.size_bytes) }
    }
}

impl Mover {
    /// Lets what is on its way go on, in the background. Needs a runtime.
    pub fn resume(&self) {
        if self.is_idle() {
            return;
        }
        if !self.has_runner.swap(true, Ordering::AcqRel)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(run(self.me.clone()));
        }
    }

    /// Tries every move once, in their order; objects several at a time. False if any failed.
    async fn try_all(&self) -> bool {
        let numbers: Vec<(u64, bool)> =
            self.state().moves.all().map(|(number, one)| (number, one.is_tree)).collect();
        let mut has_failed = false;
        for same in numbers.chunk_by(|one, next| !one.1 && !next.1) {
            let tries: Vec<_> = same.iter().map(|(number, _)| self.carry_out(*number)).collect();
            let outcomes: Vec<_> =
                futures_util::stream::iter(tries).buffer_unordered(AT_ONCE).collect().await;
            for error in outcomes.into_iter().filter_map(Result::err) {
                tracing::warn!(%error, "what was renamed has not moved in the bucket yet; it is tried again");
                self.note_failure(Some(error.to_string()));
                has_failed = true;
            }
        }
        // What is done is soon known to be. The journal must not say so while the store below could lose the copies and deletions.
        if let Err(error) = self.sync_done().await {
            tracing::warn!(%error, "what has moved is moved again after a loss of power");
        }
        !has_failed
    }

    fn note_failure(&self, failure: Option<String>) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
        self.changed.notify_waiters();
    }

    /// Carries a move out, or waits for who does.
    pub(super) async fn carry_out(&self, number: u64) -> Result<()> {
        let _running = self.running.claim(&number).await;
        let Some(one) = self.state().moves.get(number).cloned() else { return Ok(()) };
        self.make_safe().await?;
        // Copies that nobody wants would be taken for somebody else's objects.
        let given_up = self.state().moves.given_up_around(number);
        for number in given_up {
            Box::pin(self.carry_out(number)).await?;
        }
        match one.is_tree {
            true => self.move_tree(number, &one).await?,
            false => {
                // Earlier moves take their object from the same place first: this move would take it for somebody else's. And
                // only beside what they have brought is a copy of it known as a copy.
                let earlier = self.state().moves.earlier(number);
                for number in earlier {
                    Box::pin(self.carry_out(number)).await?;
                }
                let Ok(key) = ObjectKey::new(one.from) else { return self.is_done(number).await };
                let _place = self.places.claim(&key).await;
                self.state().moves.is_tried(number);
                self.move_object(number, &key).await?;
                self.is_done(number).await?;
            }
        }
        Ok(())
    }

    /// Everything that says where things are survives the loss of power.
    async fn make_safe(&self) -> Result<()> {
        let appended = self.state().journal.appended();
        if self.safe_up_to.load(Ordering::Acquire) >= appended {
            return Ok(());
        }
        if let Some(keeper) = self.keeper.get() {
            (keeper.make_safe)().await?;
        }
        self.sync_journal().await?;
        self.safe_up_to.fetch_max(appended, Ordering::AcqRel);
        Ok(())
    }

    /// Ends a move. Its names know the tags of what has arrived, and would know them after a loss of power, before the journal says
    /// that it is done: nobody finds these tags out again.
    async fn is_done(&self, number: u64) -> Result<()> {
        let one = self.state().moves.get(number).cloned();
        if let Some(Move { to: Target::Place(to, _), .. }) = one {
            self.tell_arrived(&to);
        }
        let told = self.told.load(Ordering::Acquire);
        if self.told_safely.load(Ordering::Acquire) < told {
            if let Some(keeper) = self.keeper.get() {
                (keeper.make_safe)().await?;
            }
            self.told_safely.fetch_max(told, Ordering::AcqRel);
        }
        self.state().finish(number)?;
        self.note_failure(None);
        Ok(())
    }

    /// Moves the object at one place now.
    pub(super) async fn move_one(&self, number: u64, there: &Candidate) -> Result<()> {
        let is_tree = self.state().moves.get(number).is_some_and(|one| one.is_tree);
        if !is_tree {
            return self.carry_out(number).await;
        }
        self.make_safe().await?;
        let _place = self.places.claim(&there.key).await;
        let Some(found) = self.store.find(&there.key).await? else { return Ok(()) };
        match self.copy_below(number, found.into(), false).await? {
            Some(copied) => self.leave(&copied).await,
            None => Ok(()),
        }
    }

    /// Deletes an object where it is on its way from. False if it has arrived meanwhile: what is there now is another.
    pub(super) async fn delete_on_its_way(&self, number: u64, there: &Candidate) -> Result<bool> {
        let is_double = self.state().moves.is_double(number);
        if is_double {
            // A copy may lie there under another tag; carrying the move out recognises and deletes it.
            self.carry_out(number).await?;
            return Ok(false);
        }
        let _place = self.places.claim(&there.key).await;
        let one = self.state().moves.get(number).cloned();
        let Some(one) = one else { return Ok(false) };
        if one.is_tree {
            return self.store.delete(&there.key, Precondition::None).await.map(|()| true);
        }
        let half_replaced = self.state().moves.half_replaced(number);
        if let Some(to) = half_replaced {
            // It may have arrived there: what is there goes first, whichever it is. If it does not go nothing has happened.
            self.store.delete(&to, Precondition::None).await?;
        }
        {
            let mut state = self.state();
            let steps = state.moves.delete(number);
            state.take(steps)?;
        }
        if let Target::Place(to, _) = &one.to {
            // What has arrived there stays if this fails, and is known by its own tag.
            self.tell_arrived(to);
        }
        self.move_object(number, &there.key).await?;
        self.is_done(number).await?;
        Ok(true)
    }

    /// The move of one object, whose place is claimed.
    async fn move_object(&self, number: u64, from: &ObjectKey) -> Result<()> {
        let mut found: Option<Source> = None;
        for _ in 0..ATTEMPTS_MAX {
            // It may have been renamed again.
            let Some(one) = self.state().moves.get(number).cloned() else { return Ok(()) };
            let source = match (found.take(), &one.etag) {
                (Some(source), _) => source,
                (None, Some(etag)) => {
                    Source { object: ObjectRef::new(from.clone(), etag.clone()), size_bytes: None }
                }
                (None, None) => match self.store.find(from).await? {
                    Some(found) => found.into(),
                    None => return Ok(()),
                },
            };
            let (to, precondition) = match &one.to {
                Target::Place(to, precondition) => (to, precondition),
                Target::Nowhere => return self.delete_moved(&source.object).await,
                Target::GivenUp(place) => return self.delete_with_copy(&source.object, place).await,
            };
            let Ok(to) = ObjectKey::new(to.clone()) else { return Ok(()) };
            if let Some(copied) = self.copy_to(&source, &to, precondition).await? {
                return self.leave(&copied).await;
            }
            found = match self.store.find(from).await? {
                Some(there) if self.is_still(&to, Some(&source.object.etag), &there) => Some(there.into()),
                Some(there) if self.is_double(number, &there, &to).await? => {
                    return self.delete_moved(&there.object).await;
                }
                // It has gone, or somebody has stored something new there, which is another object now. What it was to replace
                // stays: it may be what came from here, and nobody would have either.
                there => {
                    if let Some(theirs) = there.filter(|_| !self.options.is_shared) {
                        self.note_void(&source.object, theirs.object).await?;
                    }
                    if let Some(keeper) = self.keeper.get() {
                        (keeper.is_void)(from, &to);
                    }
                    return Ok(());
                }
            };
        }
        Err(StoreError::Unavailable(format!("'{from}' is changed all the time")))
    }

    /// Whether what lies where an attempt of unknown outcome copied to is that copy: what was copied has arrived elsewhere.
    async fn is_double(&self, number: u64, there: &ObjectMeta, to: &ObjectKey) -> Result<bool> {
        if !self.state().moves.is_double(number) {
            return Ok(false);
        }
        match self.store.find(to).await? {
            Some(arrived) => self.is_copy(there, &arrived).await,
            None => Ok(false),
        }
    }

    /// Moves everything that a move takes from its tree.
    async fn move_tree(&self, number: u64, one: &Move) -> Result<()> {
        for _ in 0..PASSES_MAX {
            let mut copied = Vec::new();
            let request = ListRequest {
                prefix: one.from.clone().into(),
                limit: PAGE_ENTRIES,
                ..ListRequest::default()
            };
            let mut pages = Pages::of(self.store.as_ref(), request);
            let mut found = 0;
            while let Some(entries) = pages.next().await? {
                let own = self.own(number, entries);
                found += own.len();
                copied.extend(self.copy_page(number, own).await?);
                if copied.len() >= COPIED_BEFORE_DELETING {
                    self.leave_all(std::mem::take(&mut copied)).await?;
                }
            }
            self.leave_all(copied).await?;
            if found == 0 {
                break;
            }
        }
        self.is_done(number).await
    }

    /// The objects among the entries that the move takes, and none that begins another.
    fn own(&self, number: u64, entries: Vec<ListEntry>) -> Vec<Source> {
        let state = self.state();
        let is_own = |found: &Source| state.moves.owner(found.object.key.as_bytes()) == Some(number);
        objects_of(entries).filter(is_own).collect()
    }

    /// Copies the objects of a page; those that are at their new places.
    async fn copy_page(&self, number: u64, objects: Vec<Source>) -> Result<Vec<Copied>> {
        let taken = self.taken(number, &objects).await?;
        let copies: Vec<_> =
            objects.into_iter().map(|object| self.copy_listed(number, object, &taken)).collect();
        let copied: Vec<_> = futures_util::stream::iter(copies).buffer_unordered(AT_ONCE).collect().await;
        let mut moved = Vec::new();
        let mut failed = Ok(());
        for outcome in copied {
            match outcome {
                Ok(copied) => moved.extend(copied),
                Err(error) => failed = Err(error),
            }
        }
        if let Err(error) = failed {
            self.leave_all(moved).await?;
            return Err(error);
        }
        Ok(moved)
    }

    async fn copy_listed(
        &self,
        number: u64,
        source: Source,
        taken: &HashSet<ObjectKey>,
    ) -> Result<Option<Copied>> {
        let _place = self.places.claim(&source.object.key).await;
        let target = self.state().moves.target_of(number, source.object.key.as_bytes());
        let is_free = target.is_some_and(|to| !taken.contains(&to));
        self.copy_below(number, source, is_free).await
    }

    /// The keys that some of these objects, which are of one page, go to and that are there already.
    async fn taken(&self, number: u64, objects: &[Source]) -> Result<HashSet<ObjectKey>> {
        let targets: Vec<ObjectKey> = {
            let state = self.state();
            let target = |found: &Source| state.moves.target_of(number, found.object.key.as_bytes());
            objects.iter().filter_map(target).collect()
        };
        let (Some(first), Some(last)) = (targets.iter().min(), targets.iter().max()) else {
            return Ok(HashSet::new());
        };
        let shared =
            first.as_bytes().iter().zip(last.as_bytes()).take_while(|(one, other)| one == other).count();
        let request = ListRequest {
            prefix: first.as_bytes()[..shared].to_vec().into(),
            limit: PAGE_ENTRIES,
            ..ListRequest::default()
        };
        let mut pages = Pages::of(self.store.as_ref(), request);
        let mut taken = HashSet::new();
        while let Some(entries) = pages.next().await? {
            let is_over = entries.last().is_none_or(|entry| entry.text() > last.as_bytes());
            taken.extend(objects_of(entries).map(|found| found.object.key));
            if is_over {
                break;
            }
        }
        Ok(taken)
    }

    /// Copies an object of a tree, whose place is claimed, to where it shows; `None` if it is on another way by now, or gone.
    async fn copy_below(&self, number: u64, mut source: Source, is_free: bool) -> Result<Option<Copied>> {
        for _ in 0..ATTEMPTS_MAX {
            let target = self.state().moves.target_of(number, source.object.key.as_bytes());
            let Some(to) = target else { return Ok(None) };
            let precondition = if is_free { Precondition::None } else { Precondition::Absent };
            if let Some(copied) = self.copy_to(&source, &to, &precondition).await? {
                return Ok(Some(copied));
            }
            match self.store.find(&source.object.key).await? {
                None => return Ok(None),
                Some(found) => source = found.into(),
            }
        }
        Err(StoreError::Unavailable(format!("'{}' is changed all the time", source.object.key)))
    }

    /// Copies an object; of what somebody else has stored at the target nothing is lost. `None` if there is no such object
    /// any more.
    async fn copy_to(
        &self,
        source: &Source,
        to: &ObjectKey,
        precondition: &Precondition,
    ) -> Result<Option<Copied>> {
        if let Some(settled) = self.was_overtaken(source, to) {
            return Ok(Some(settled));
        }
        match self.copy_if(source, to, precondition.clone()).await {
            Ok(_) => return Ok(Some(Copied::new(source, to, None))),
            Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
        let from = &source.object;
        let Some(ours) = self.store.find(&from.key).await?.filter(|ours| ours.object.etag == from.etag)
        else {
            return Ok(None);
        };
        let theirs = match self.store.find(to).await? {
            // The object to replace has gone.
            None => return self.copy_unless_changed(source, to, Precondition::Absent).await,
            // Both are markers, which say the same.
            Some(theirs) if is_marker(&ours) && is_marker(&theirs) => {
                let precondition = Precondition::Matches(theirs.object.etag);
                return self.copy_unless_changed(source, to, precondition).await;
            }
            Some(theirs) => theirs,
        };
        if self.is_copy(&ours, &theirs).await? {
            self.has_moved(from, theirs.object);
            return Ok(Some(Copied::new(source, to, None)));
        }
        match self.settle_overtaken(source, to, theirs.object).await {
            // Ours was changed meanwhile, or theirs again.
            Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => Ok(None),
            settled => settled.map(Some),
        }
    }

    /// As [`Mover::copy_if`]; `None` if what lies at either place has changed meanwhile.
    async fn copy_unless_changed(
        &self,
        source: &Source,
        to: &ObjectKey,
        precondition: Precondition,
    ) -> Result<Option<Copied>> {
        match self.copy_if(source, to, precondition).await {
            Ok(_) => Ok(Some(Copied::new(source, to, None))),
            Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn copy_if(
        &self,
        source: &Source,
        to: &ObjectKey,
        precondition: Precondition,
    ) -> Result<ObjectRef> {
        let copy = self.store.copy(&source.object, to, source.options(precondition)).await?;
        self.has_moved(&source.object, copy.clone());
        Ok(copy)
    }

    fn has_moved(&self, from: &ObjectRef, copy: ObjectRef) {
        let mut aliases = self.aliases();
        let given = aliases.as_given(from.clone()).etag;
        if given != copy.etag {
            aliases.remember(&copy.key, given, copy.etag);
        }
        drop(aliases);
        self.objects_moved.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether an object is a copy of another: an earlier attempt made it, and nobody heard of it.
    async fn is_copy(&self, ours: &ObjectMeta, theirs: &ObjectMeta) -> Result<bool> {
        if ours.size_bytes != theirs.size_bytes || ours.attributes != theirs.attributes {
            return Ok(false);
        }
        if ours.object.etag == theirs.object.etag {
            return Ok(true);
        }
        match self.has_same_bytes(ours, theirs).await {
            // One of them was replaced while it was read.
            Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => Ok(false),
            has => has,
        }
    }

    async fn has_same_bytes(&self, ours: &ObjectMeta, theirs: &ObjectMeta) -> Result<bool> {
        let mut bytes = [Vec::new(), Vec::new()];
        let body = |meta: &ObjectMeta| {
            let options = GetOptions { if_match: Some(meta.object.etag.clone()), ..GetOptions::default() };
            let key = meta.object.key.clone();
            async move { Ok::<_, StoreError>(self.store.get(&key, options).await?.body) }
        };
        let (mut one, mut other) = (body(ours).await?, body(theirs).await?);
        loop {
            let [left, right] = &mut bytes;
            match left.is_empty() {
                true => match one.try_next().await? {
                    Some(piece) => left.extend_from_slice(&piece),
                    None => return Ok(right.is_empty() && other.try_next().await?.is_none()),
                },
                false if right.is_empty() => match other.try_next().await? {
                    Some(piece) => right.extend_from_slice(&piece),
                    None => return Ok(false),
                },
                false => {
                    let same = left.len().min(right.len());
                    if left[..same] != right[..same] {
                        return Ok(false);
                    }
                    left.drain(..same);
                    right.drain(..same);
                }
            }
        }
    }

    async fn leave_all(&self, copied: Vec<Copied>) -> Result<()> {
        let leaves: Vec<_> = copied.iter().map(|one| self.leave(one)).collect();
        futures_util::stream::iter(leaves).buffer_unordered(AT_ONCE).try_collect().await
    }

    /// An object has arrived, and goes where it was.
    async fn leave(&self, Copied { from, to, kept }: &Copied) -> Result<()> {
        match self.store.delete(&from.key, Precondition::Matches(from.etag.clone())).await {
            Ok(()) | Err(StoreError::NotFound(_)) => {}
            Err(StoreError::PreconditionFailed(_)) => self.leave_copy(&from.key, to).await?,
            Err(error) => return Err(error),
        }
        self.tell_arrived(to.as_bytes());
        if let Some(keeper) = self.keeper.get() {
            (keeper.has_left)(from);
        }
        if let Some(kept) = kept {
            self.has_left(from);
            self.tell_settled([to, kept]);
        }
        Ok(())
    }

    /// A copy to there of which nobody had heard, or which was made twice, has another tag; by the times in its headers it
    /// is known. Anything else is somebody else's.
    async fn leave_copy(&self, from: &ObjectKey, to: &ObjectKey) -> Result<()> {
        let (left, arrived) = (self.store.find(from).await?, self.store.find(to).await?);
        match (left, arrived) {
            (Some(left), Some(arrived))
                if !left.attributes.user.is_empty() && self.is_copy(&left, &arrived).await? =>
            {
                self.delete_moved(&left.object).await
            }
            _ => Ok(()),
        }
    }

    /// Who was given other tags for what shows under a key, or under keys that begin so, hears of those it has now.
    fn tell_arrived(&self, place: &[u8]) {
        if let Some(keeper) = self.keeper.get() {
            self.aliases().tell(place, |key, given, there| {
                (keeper.has_arrived)(key, given, there);
                self.told.fetch_add(1, Ordering::AcqRel);
            });
        }
    }

    /// Deletes an object and the copy of it that an attempt of unknown outcome may have made.
    async fn delete_with_copy(&self, object: &ObjectRef, copied_to: &[u8]) -> Result<()> {
        if let Ok(to) = ObjectKey::new(copied_to.to_vec())
            && let Some(ours) = self.store.find(&object.key).await?
            && ours.object.etag == object.etag
            && let Some(copy) = self.store.find(&to).await?
            && self.is_copy(&ours, &copy).await?
        {
            self.delete_moved(&copy.object).await?;
        }
        self.delete_moved(object).await
    }

    /// Deletes what has moved, unless somebody has stored something new there.
    async fn delete_moved(&self, object: &ObjectRef) -> Result<()> {
        match self.store.delete(&object.key, Precondition::Matches(object.etag.clone())).await {
            Ok(()) | Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn objects_of(entries: Vec<ListEntry>) -> impl Iterator<Item = Source> {
    let objects = entries.into_iter().filter_map(ListEntry::into_object);
    objects.map(|(object, size_bytes)| Source { object, size_bytes: Some(size_bytes) })
}

/// Whether an object only says that there is a directory.
fn is_marker(meta: &ObjectMeta) -> bool {
    meta.size_bytes == 0 && meta.object.key.as_bytes().ends_with(b"/")
}

/// Ends when nothing is on its way.
async fn run(me: Weak<Mover>) {
    let mut wait = WAITS.0;
    loop {
        let Some(mover) = me.upgrade() else { return };
        let woken = mover.woken.clone();
        // What is renamed from here on need not be among what is tried now.
        let mut renamed = std::pin::pin!(woken.notified());
        renamed.as_mut().enable();
        if mover.try_all().await {
            wait = WAITS.0;
        } else {
            drop(mover);
            tokio::time::sleep(WAITS.0).await;
            let _ = tokio::time::timeout(wait.saturating_sub(WAITS.0), renamed).await;
            wait = (wait * 2).min(WAITS.1);
            continue;
        }
        if mover.is_idle() {
            mover.has_runner.store(false, Ordering::Release);
            // What was begun in between has not started another.
            if mover.is_idle() || mover.has_runner.swap(true, Ordering::AcqRel) {
                return;
            }
        }
    }
}
