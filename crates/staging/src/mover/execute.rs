//! Executes moves: copies objects inside the store, then deletes them at their old keys.

use super::candidate::Candidate;
use super::executor::Executor;
use super::moves::{Move, Target};
use super::resolved_conflicts::{CopiedObject, SourceObject};
use futures_util::{StreamExt as _, TryStreamExt as _};
use std::collections::HashSet;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::{
    CopyOptions, ETag, GetOptions, ListEntry, ListRequest, ObjectKey, ObjectMeta, ObjectRef, Pages,
    Precondition, Result, StoreError,
};

/// Objects copied or deleted concurrently.
const CONCURRENT_OBJECTS: usize = 32;
/// Keys per LIST page.
const PAGE_ENTRIES: usize = 1000;
/// Objects of a tree to copy before their old keys are deleted. Other clients see the new names earlier, and the list
/// of copied objects stays bounded.
const COPIES_BEFORE_DELETE: usize = 16_384;
/// Maximum attempts for an object that another client keeps changing while it moves.
const ATTEMPTS_MAX: usize = 8;
/// Maximum passes over a tree. An object that was on its way into the tree can land behind the first pass. Objects
/// that another client keeps storing at the old prefix stay there.
const PASSES_MAX: usize = 4;
/// First and longest delay after a failure; the store's client has retried for a while by then. A new rename ends a
/// delay, but not before the first one has passed.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

impl Executor {
    /// Executes the unfinished moves in the background. Needs a runtime.
    pub(super) fn resume(&self) {
        if self.is_idle() {
            return;
        }
        if !self.activity.has_runner.swap(true, Ordering::AcqRel)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(run_moves(self.me.clone()));
        }
    }

    /// Attempts every move once, in order; adjacent moves of single objects run concurrently. Returns false if any
    /// attempt failed.
    async fn execute_all(&self) -> bool {
        let numbers: Vec<(u64, bool)> =
            self.state().moves.all().map(|(number, mv)| (number, mv.is_tree)).collect();
        let mut any_failed = false;
        for same in numbers.chunk_by(|one, next| !one.1 && !next.1) {
            let tries: Vec<_> = same.iter().map(|(number, _)| self.execute(*number)).collect();
            let outcomes: Vec<_> =
                futures_util::stream::iter(tries).buffer_unordered(CONCURRENT_OBJECTS).collect().await;
            for error in outcomes.into_iter().filter_map(Result::err) {
                tracing::warn!(%error, "a renamed object or directory could not be moved in the bucket yet; retrying");
                self.activity.note(Some(error.to_string()));
                any_failed = true;
            }
        }
        // Completed moves become durable now. The journal must not record them while the store below could still lose
        // their copies and deletions.
        if let Err(error) = self.sync_store_and_journal().await {
            tracing::warn!(%error, "cannot sync the store and the journal of moves; completed moves would run again after a loss of power");
        }
        !any_failed
    }

    /// Executes a move, or waits for the task that executes it. If the move is paused meanwhile, executes the rest of it after the pause.
    pub(super) async fn execute(&self, number: u64) -> Result<()> {
        while !self.execute_until_paused(number).await? {}
        Ok(())
    }

    /// Executes a move. Returns false if it was paused before it was finished.
    async fn execute_until_paused(&self, number: u64) -> Result<bool> {
        let _lock = self.move_locks.lock(number).await;
        let Some(mv) = self.state().moves.get(number).cloned() else { return Ok(true) };
        self.make_durable().await?;
        // A stray copy at the source or target would be taken for another client's object.
        let stray_copies = self.state().moves.stray_copies_around(number);
        for number in stray_copies {
            Box::pin(self.execute(number)).await?;
        }
        let prerequisites = self.state().moves.prerequisites(number);
        for number in prerequisites {
            Box::pin(self.execute(number)).await?;
        }
        let source = ObjectKey::new(mv.from.clone()).ok().filter(|_| !mv.is_tree);
        // Held until the move is recorded as done, so that a request that waits for the key then finds the object.
        let _source_lock = match &source {
            Some(key) => Some(self.source_locks.lock(key).await),
            None => None,
        };
        let has_all_moved = match &source {
            _ if mv.is_return() => true,
            Some(key) => {
                self.state().moves.mark_tried(number);
                self.move_object(number, key).await?;
                true
            }
            None if mv.is_tree => self.move_tree(number, &mv).await?,
            None => true,
        };
        if has_all_moved {
            self.finish_move(number).await?;
        }
        Ok(has_all_moved)
    }

    /// Makes the journal and the namespace survive the loss of power, before objects move.
    async fn make_durable(&self) -> Result<()> {
        let appended = self.state().journal.log.appended();
        if self.durability.up_to.load(Ordering::Acquire) >= appended {
            return Ok(());
        }
        if let Some(observer) = self.observer.get() {
            (observer.make_safe)().await?;
        }
        self.sync_journal().await?;
        self.durability.up_to.fetch_max(appended, Ordering::AcqRel);
        Ok(())
    }

    /// Completes a move. The namespace learns the new etags and makes them durable before the journal records the move as
    /// done, because the etags cannot be determined later.
    async fn finish_move(&self, number: u64) -> Result<()> {
        let Some(mv) = self.state().moves.get(number).cloned() else { return Ok(()) };
        if let Target::Key(to, _) = &mv.to {
            self.report_arrival(to);
        }
        let reported = self.durability.etags_reported.load(Ordering::Acquire);
        if self.durability.etags_durable.load(Ordering::Acquire) < reported {
            if let Some(observer) = self.observer.get() {
                (observer.make_safe)().await?;
            }
            self.durability.etags_durable.fetch_max(reported, Ordering::AcqRel);
        }
        self.state().finish(number)?;
        self.aliases().forget_left(&mv.from);
        // The move may have left another client's object at its source, which an earlier move had brought there. Its etag is reported now.
        self.report_arrival(&mv.from);
        self.activity.note(None);
        Ok(())
    }

    /// Moves the object at one physical key now.
    pub(super) async fn move_object_now(&self, number: u64, candidate: &Candidate) -> Result<()> {
        let is_tree = self.state().moves.get(number).is_some_and(|mv| mv.is_tree);
        if !is_tree {
            return self.execute(number).await;
        }
        self.make_durable().await?;
        let _source_lock = self.source_locks.lock(&candidate.key).await;
        let Some(found) = self.store.find(&candidate.key).await? else { return Ok(()) };
        match self.copy_tree_object(number, found.into(), false).await? {
            Some(copied) => self.delete_source(&copied).await,
            None => Ok(()),
        }
    }

    /// Deletes an object whose move is not finished. Returns false if the object has arrived meanwhile, or must be
    /// looked up again.
    pub(super) async fn delete_in_transit(&self, number: u64, candidate: &Candidate) -> Result<bool> {
        let may_be_duplicate = self.state().moves.may_be_duplicate(number);
        if may_be_duplicate {
            // The object there may be a copy with another etag; executing the move recognises and deletes it.
            self.execute(number).await?;
            return Ok(false);
        }
        let _source_lock = self.source_locks.lock(&candidate.key).await;
        let mv = self.state().moves.get(number).cloned();
        let Some(mv) = mv else { return Ok(false) };
        if mv.is_tree {
            return self.store.delete(&candidate.key, Precondition::None).await.map(|()| true);
        }
        let uncertain_target = self.state().moves.uncertain_target(number);
        if let Some(to) = uncertain_target {
            // The object may have arrived at the target, so whatever is stored there is deleted first. If that
            // deletion fails nothing has changed.
            self.store.delete(&to, Precondition::None).await?;
        }
        {
            let mut state = self.state();
            let steps = state.moves.plan_delete(number);
            state.record(steps)?;
        }
        if let Target::Key(to, _) = &mv.to {
            // If the deletion below fails, an object that has arrived stays at the target under its own etag.
            self.report_arrival(to);
        }
        self.move_object(number, &candidate.key).await?;
        self.finish_move(number).await?;
        Ok(true)
    }

    /// Executes the move of one object. The caller holds the lock of its physical key.
    async fn move_object(&self, number: u64, from: &ObjectKey) -> Result<()> {
        let mut found: Option<SourceObject> = None;
        for _ in 0..ATTEMPTS_MAX {
            // The object may have been renamed again.
            let Some(mv) = self.state().moves.get(number).cloned() else { return Ok(()) };
            let source = match (found.take(), &mv.etag) {
                (Some(source), _) => source,
                (None, Some(etag)) => {
                    SourceObject { object: ObjectRef::new(from.clone(), etag.clone()), size_bytes: None }
                }
                (None, None) => match self.store.find(from).await? {
                    Some(found) => found.into(),
                    None => return Ok(()),
                },
            };
            let (to, precondition) = match &mv.to {
                Target::Key(to, precondition) => (to, precondition),
                Target::Deleted => {
                    self.delete_duplicates(number, &source.object).await?;
                    return self.delete_moved(&source.object).await;
                }
                Target::DeletedWithCopy(place) => {
                    self.delete_duplicates(number, &source.object).await?;
                    return self.delete_with_copy(&source.object, place).await;
                }
            };
            let Ok(to) = ObjectKey::new(to.clone()) else { return Ok(()) };
            let options = source.options(precondition.clone());
            if let Some(copied) = self.copy_resolving_conflict(&source, &to, options).await? {
                // The copies cannot be compared with the object at the target later, which may be another client's by then.
                match copied.kept.is_some() {
                    true => self.delete_duplicates(number, &source.object).await?,
                    false => self.delete_unknown_duplicates(number, &source.object).await?,
                }
                return self.delete_source(&copied).await;
            }
            found = match self.store.find(from).await? {
                Some(current) if self.is_same_object(&to, Some(&source.object.etag), &current) => {
                    Some(current.into())
                }
                Some(current) if self.is_duplicate(number, &current, &to).await? => {
                    return self.delete_moved(&current.object).await;
                }
                // The object is gone, or another client has stored a new one at its key. The object to be replaced
                // stays: it may be the renamed object, and deleting it could lose both.
                current => {
                    if let Some(theirs) = current.filter(|_| !self.is_shared) {
                        self.note_lost(&source.object, theirs.object).await?;
                    }
                    if let Some(observer) = self.observer.get() {
                        (observer.is_void)(from, &to);
                    }
                    return Ok(());
                }
            };
        }
        Err(StoreError::Unavailable(format!("'{from}' keeps being changed by another client")))
    }

    /// Returns whether the object at a move's source is a copy, made by an attempt of unknown outcome, of an object that has arrived at
    /// the target or that a later move brings there.
    async fn is_duplicate(&self, number: u64, current: &ObjectMeta, to: &ObjectKey) -> Result<bool> {
        if !self.state().moves.may_be_duplicate(number) {
            return Ok(false);
        }
        let places = self.state().moves.candidates(to);
        for place in places.into_iter().filter(|place| place.by_move != Some(number)) {
            if let Some(other) = self.store.find(&place.key).await?
                && self.is_copy(current, &other).await?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Moves the objects of a renamed tree. Returns false if the move was paused before all of them had moved.
    async fn move_tree(&self, number: u64, mv: &Move) -> Result<bool> {
        for _ in 0..PASSES_MAX {
            let mut copied = Vec::new();
            let request =
                ListRequest { prefix: mv.from.clone().into(), limit: PAGE_ENTRIES, ..ListRequest::default() };
            let mut pages = Pages::new(self.store.as_ref(), request);
            let mut found = 0;
            while !self.move_locks.is_paused(number)
                && let Some(entries) = pages.next().await?
            {
                let owned = self.objects_owned_by(number, entries);
                found += owned.len();
                copied.extend(self.copy_page(number, owned).await?);
                if copied.len() >= COPIES_BEFORE_DELETE {
                    self.delete_sources(std::mem::take(&mut copied)).await?;
                }
            }
            self.delete_sources(copied).await?;
            if self.move_locks.is_paused(number) {
                return Ok(false);
            }
            if found == 0 {
                break;
            }
        }
        Ok(true)
    }

    /// Returns the listed objects that belong to this move and not to a move inside its tree.
    fn objects_owned_by(&self, number: u64, entries: Vec<ListEntry>) -> Vec<SourceObject> {
        let state = self.state();
        let is_own = |found: &SourceObject| state.moves.owner_of(&found.object) == Some(number);
        objects_of(entries).filter(is_own).collect()
    }

    /// Copies the objects of a page. Returns those that are at their new keys. If a copy fails, deletes their old keys
    /// instead and returns the error.
    async fn copy_page(&self, number: u64, objects: Vec<SourceObject>) -> Result<Vec<CopiedObject>> {
        let existing = self.existing_targets(number, &objects).await?;
        let copies: Vec<_> =
            objects.into_iter().map(|object| self.copy_listed(number, object, &existing)).collect();
        let copied: Vec<_> =
            futures_util::stream::iter(copies).buffer_unordered(CONCURRENT_OBJECTS).collect().await;
        let mut moved = Vec::new();
        let mut failed = Ok(());
        for outcome in copied {
            match outcome {
                Ok(copied) => moved.extend(copied),
                Err(error) => failed = Err(error),
            }
        }
        if let Err(error) = failed {
            self.delete_sources(moved).await?;
            return Err(error);
        }
        Ok(moved)
    }

    /// Copies an object that a listing of a moving tree has found. `existing` are keys at the target that are not free.
    async fn copy_listed(
        &self,
        number: u64,
        source: SourceObject,
        existing: &HashSet<ObjectKey>,
    ) -> Result<Option<CopiedObject>> {
        let _source_lock = self.source_locks.lock(&source.object.key).await;
        if self.move_locks.is_paused(number) {
            return Ok(None);
        }
        let target = self.state().moves.target_of(number, &source.object);
        let is_free = target.is_some_and(|to| !existing.contains(&to));
        self.copy_tree_object(number, source, is_free).await
    }

    /// Returns existing keys, among them all target keys of these objects (of one page) that exist already.
    async fn existing_targets(&self, number: u64, objects: &[SourceObject]) -> Result<HashSet<ObjectKey>> {
        let targets: Vec<ObjectKey> = {
            let state = self.state();
            let target = |found: &SourceObject| state.moves.target_of(number, &found.object);
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
        let mut pages = Pages::new(self.store.as_ref(), request);
        let mut existing = HashSet::new();
        while let Some(entries) = pages.next().await? {
            let is_over = entries.last().is_none_or(|entry| entry.text() > last.as_bytes());
            existing.extend(objects_of(entries).map(|found| found.object.key));
            if is_over {
                break;
            }
        }
        Ok(existing)
    }

    /// Copies an object of a tree to its logical key; `None` if another move owns the object by now, or it is gone.
    /// The caller holds the lock of its physical key.
    async fn copy_tree_object(
        &self,
        number: u64,
        mut source: SourceObject,
        is_free: bool,
    ) -> Result<Option<CopiedObject>> {
        for _ in 0..ATTEMPTS_MAX {
            let target = self.state().moves.target_of(number, &source.object);
            let Some(to) = target else { return Ok(None) };
            let options = CopyOptions { is_checked: is_free, ..source.options(Precondition::Absent) };
            if let Some(copied) = self.copy_resolving_conflict(&source, &to, options).await? {
                return Ok(Some(copied));
            }
            match self.store.find(&source.object.key).await? {
                None => return Ok(None),
                Some(found) => source = found.into(),
            }
        }
        Err(StoreError::Unavailable(format!("'{}' keeps being changed by another client", source.object.key)))
    }

    /// Copies an object and resolves a conflict with another client's object at the target. Returns `None` if the
    /// object to copy is gone, or if either object was changed meanwhile.
    async fn copy_resolving_conflict(
        &self,
        source: &SourceObject,
        to: &ObjectKey,
        options: CopyOptions,
    ) -> Result<Option<CopiedObject>> {
        if let Some(copied) = self.resolved.find(source, to) {
            return Ok(Some(copied));
        }
        match self.copy_object(source, to, options).await {
            Ok(_) => return Ok(Some(CopiedObject::new(source, to, None))),
            Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
        let from = &source.object;
        let Some(ours) = self.store.find(&from.key).await?.filter(|ours| ours.object.etag == from.etag)
        else {
            return Ok(None);
        };
        let theirs = match self.store.find(to).await? {
            // The object to replace is gone.
            None => return self.copy_unless_changed(source, to, Precondition::Absent).await,
            // Another call has copied it, and has not deleted it at its old key yet.
            Some(theirs) if self.is_recorded_copy(from, &theirs.object) => {
                return Ok(Some(CopiedObject::new(source, to, None)));
            }
            // Both are directory markers and equivalent.
            Some(theirs) if is_marker(&ours) && is_marker(&theirs) => {
                let precondition = Precondition::Matches(theirs.object.etag);
                return self.copy_unless_changed(source, to, precondition).await;
            }
            Some(theirs) => theirs,
        };
        if self.is_copy(&ours, &theirs).await? {
            self.record_copy(from, theirs.object)?;
            return Ok(Some(CopiedObject::new(source, to, None)));
        }
        match self.resolve_conflict(source, to, theirs.object).await {
            // Either object was changed meanwhile.
            Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => Ok(None),
            resolved => resolved.map(Some),
        }
    }

    /// Like [`Executor::copy_object`], but returns `None` if the object at either key has changed.
    async fn copy_unless_changed(
        &self,
        source: &SourceObject,
        to: &ObjectKey,
        precondition: Precondition,
    ) -> Result<Option<CopiedObject>> {
        match self.copy_object(source, to, source.options(precondition)).await {
            Ok(_) => Ok(Some(CopiedObject::new(source, to, None))),
            Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Copies an object in the bucket, and remembers the etag of the copy.
    pub(super) async fn copy_object(
        &self,
        source: &SourceObject,
        to: &ObjectKey,
        options: CopyOptions,
    ) -> Result<ObjectRef> {
        let copy = self.store.copy(&source.object, to, options).await?;
        self.record_copy(&source.object, copy.clone())?;
        Ok(copy)
    }

    /// Remembers the etag of a copy for callers that know the object by its earlier etag, and counts the copy.
    fn record_copy(&self, from: &ObjectRef, copy: ObjectRef) -> Result<()> {
        let issued = self.with_known_tag(from.clone()).etag;
        let mut aliases = self.aliases();
        if issued != copy.etag {
            aliases.remember(&copy.key, issued.clone(), copy.etag.clone());
            drop(aliases);
            self.state().record_copied(copy.key, issued, copy.etag)?;
        }
        self.activity.objects_moved.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Returns whether an object is the copy of another that was recorded.
    fn is_recorded_copy(&self, from: &ObjectRef, copy: &ObjectRef) -> bool {
        let issued = self.with_known_tag(from.clone()).etag;
        issued != copy.etag && self.aliases().bucket_tag(&copy.key, &issued) == copy.etag
    }

    /// Returns whether an object is a copy of another: an earlier attempt may have made it and lost the answer.
    async fn is_copy(&self, ours: &ObjectMeta, theirs: &ObjectMeta) -> Result<bool> {
        if ours.size_bytes != theirs.size_bytes || ours.attributes != theirs.attributes {
            return Ok(false);
        }
        if ours.object.etag == theirs.object.etag {
            return Ok(true);
        }
        match self.has_same_bytes(ours, theirs).await {
            // One of the objects was replaced while it was read.
            Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => Ok(false),
            has => has,
        }
    }

    /// Reads two objects and returns whether their bytes are equal.
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

    /// Makes the etags of copies survive the loss of power. Nothing else identifies a copy once the object at the old key is deleted.
    async fn make_copies_durable(&self) -> Result<()> {
        let is_unsynced = self.state().has_unsynced_copies();
        if is_unsynced { self.sync_journal().await } else { Ok(()) }
    }

    /// Deletes objects at their old keys after they have arrived at their new keys, several at a time.
    async fn delete_sources(&self, copied: Vec<CopiedObject>) -> Result<()> {
        self.make_copies_durable().await?;
        let deletions: Vec<_> = copied.iter().map(|copied| self.delete_source(copied)).collect();
        futures_util::stream::iter(deletions).buffer_unordered(CONCURRENT_OBJECTS).try_collect().await
    }

    /// Deletes an object at its old key after it has arrived at its new key, and reports both.
    async fn delete_source(&self, CopiedObject { from, to, kept }: &CopiedObject) -> Result<()> {
        self.make_copies_durable().await?;
        match self.store.delete(&from.key, Precondition::Matches(from.etag.clone())).await {
            Ok(()) | Err(StoreError::NotFound(_)) => {}
            Err(StoreError::PreconditionFailed(_)) => self.delete_duplicate_source(&from.key, to).await?,
            Err(error) => return Err(error),
        }
        self.report_arrival(to.as_bytes());
        if let Some(observer) = self.observer.get() {
            (observer.has_left)(from);
        }
        if let Some(kept) = kept {
            self.resolved.forget(from);
            [to, kept].into_iter().for_each(|key| self.decisions.report_resolved(key));
        }
        Ok(())
    }

    /// Deletes an object at its old key that has another etag than the one copied, if it is a copy of the object at
    /// the new key: an earlier answer was lost, or the copy was made twice. The user metadata, which includes times,
    /// identifies it. Any other object belongs to another client.
    async fn delete_duplicate_source(&self, from: &ObjectKey, to: &ObjectKey) -> Result<()> {
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

    /// Reports to the observer the current etags of objects at a key, or below a prefix, that callers know by other
    /// etags. An object that was renamed again while it moved is not reported: the observer does not know it by this
    /// key, and the next move passes the issued etag on to the next key.
    pub(super) fn report_arrival(&self, place: &[u8]) {
        if let Some(observer) = self.observer.get() {
            self.aliases().report_changes(place, |key, issued, bucket| {
                if !(observer.has_arrived)(key, issued, bucket)
                    && self.state().moves.owner(key.as_bytes()).is_some()
                {
                    return false;
                }
                self.durability.etags_reported.fetch_add(1, Ordering::AcqRel);
                true
            });
        }
    }

    /// Deletes the copies of a move's object that attempts of unknown outcome may have made at the sources of other moves.
    async fn delete_duplicates(&self, number: u64, object: &ObjectRef) -> Result<()> {
        let places = self.state().moves.possible_duplicates_of(number, &object.etag);
        self.delete_copies(object, places.into_iter().map(|(place, _)| (place, None)).collect()).await
    }

    /// Like [`Executor::delete_duplicates`], but leaves copies whose own moves know them by their etags.
    async fn delete_unknown_duplicates(&self, number: u64, object: &ObjectRef) -> Result<()> {
        let places = self.state().moves.possible_duplicates_of(number, &object.etag);
        self.delete_copies(object, places).await
    }

    /// Deletes the copies of an object at these keys that attempts of unknown outcome may have made, unless they have the given etags. Only
    /// the object itself, which is deleted next, identifies them.
    async fn delete_copies(&self, object: &ObjectRef, places: Vec<(ObjectKey, Option<ETag>)>) -> Result<()> {
        if places.is_empty() {
            return Ok(());
        }
        let Some(ours) = self.store.find(&object.key).await?.filter(|ours| ours.object.etag == object.etag)
        else {
            return Ok(());
        };
        for (place, spared) in places {
            if let Some(copy) = self.store.find(&place).await?
                && spared.is_none_or(|etag| etag != copy.object.etag)
                && self.is_copy(&ours, &copy).await?
            {
                self.delete_moved(&copy.object).await?;
            }
        }
        Ok(())
    }

    /// Deletes an object and the copy that an attempt of unknown outcome may have made. The etag identifies the copy if its
    /// source is gone: the answer to the deletion of the source may have been lost too.
    async fn delete_with_copy(&self, object: &ObjectRef, copied_to: &[u8]) -> Result<()> {
        let Ok(to) = ObjectKey::new(copied_to.to_vec()) else { return self.delete_moved(object).await };
        let known_copy = {
            let aliases = self.aliases();
            let issued = aliases.with_issued_tag(object.clone()).etag;
            ObjectRef::new(to.clone(), aliases.bucket_tag(&to, &issued))
        };
        self.delete_moved(&known_copy).await?;
        self.delete_copies(object, vec![(to, None)]).await?;
        self.delete_moved(object).await
    }

    /// Deletes an object that has moved, unless another client has stored a new one at its key.
    async fn delete_moved(&self, object: &ObjectRef) -> Result<()> {
        match self.store.delete(&object.key, Precondition::Matches(object.etag.clone())).await {
            Ok(()) | Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Returns the objects of a listing, without its prefixes.
fn objects_of(entries: Vec<ListEntry>) -> impl Iterator<Item = SourceObject> {
    let objects = entries.into_iter().filter_map(ListEntry::into_object);
    objects.map(|(object, size_bytes)| SourceObject { object, size_bytes: Some(size_bytes) })
}

/// Returns whether an object is a directory marker.
fn is_marker(meta: &ObjectMeta) -> bool {
    meta.size_bytes == 0 && meta.object.key.as_bytes().ends_with(b"/")
}

/// Executes moves until none is left.
async fn run_moves(me: Weak<Executor>) {
    let mut wait = RETRY_DELAYS.0;
    loop {
        let Some(executor) = me.upgrade() else { return };
        let renames = executor.activity.renamed.clone();
        // A rename from here on may come too late for this attempt, but it ends the delay after it.
        let mut renamed = std::pin::pin!(renames.notified());
        renamed.as_mut().enable();
        if executor.execute_all().await {
            wait = RETRY_DELAYS.0;
        } else {
            drop(executor);
            tokio::time::sleep(RETRY_DELAYS.0).await;
            let _ = tokio::time::timeout(wait.saturating_sub(RETRY_DELAYS.0), renamed).await;
            wait = (wait * 2).min(RETRY_DELAYS.1);
            continue;
        }
        if executor.is_idle() {
            executor.activity.has_runner.store(false, Ordering::Release);
            // A rename before the store above still found a runner and started no task, so look again. If moves are left, this task goes on,
            // unless another one has begun.
            if executor.is_idle() || executor.activity.has_runner.swap(true, Ordering::AcqRel) {
                return;
            }
        }
    }
}
