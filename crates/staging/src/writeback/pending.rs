//! The changes that the bucket does not have yet: for each key the newest. Pure state; no I/O.
//!
//! A newer change of a key replaces the older one, so that only the newest is uploaded. A change that is being
//! uploaded while a newer one comes stays here until the outcome is known. A change waits while pending objects still
//! read the object that it would replace in the bucket. A change whose attempt failed waits apart from the queue, so
//! that it does not delay others.

use super::early_upload::EarlyUploadSlot;
use super::extent::Extent;
use super::log_record::ObjectDescription;
use super::unfinished_renames::UnfinishedRenames;
use super::unsynced_keys::UnsyncedKeys;
use log::Segment;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use store::{ETag, ObjectKey, ObjectMeta, ObjectRef, Precondition, Timestamp};
use tokio::time::Instant;

/// An object that is not in the bucket yet.
#[derive(Debug)]
pub(super) struct PendingObject {
    pub(super) description: ObjectDescription,
    pub(super) extents: Vec<Extent>,
    /// A multipart upload that already has parts in the bucket.
    pub(super) early: EarlyUploadSlot,
    /// A request that stores the object was sent, by this process or perhaps by an earlier one.
    was_sent: AtomicBool,
}

impl PendingObject {
    /// Creates an object that was never sent.
    pub(super) fn new(description: ObjectDescription, extents: Vec<Extent>, early: EarlyUploadSlot) -> Self {
        Self { description, extents, early, was_sent: AtomicBool::new(false) }
    }

    /// Returns whether a request that stores the object was sent.
    pub(super) fn was_sent(&self) -> bool {
        self.was_sent.load(Ordering::Acquire)
    }

    /// Notes that a request that stores the object is about to be sent.
    pub(super) fn note_sent(&self) {
        self.was_sent.store(true, Ordering::Release);
    }

    /// Returns the length of the object.
    pub(super) fn size_bytes(&self) -> u64 {
        self.extents.iter().map(Extent::len).sum()
    }

    pub(super) fn meta(&self, key: &ObjectKey) -> ObjectMeta {
        let object = ObjectRef {
            key: key.clone(),
            etag: self.description.etag.clone(),
            version: None,
            last_modified: Some(self.description.stored_at),
        };
        let attributes = self.description.attributes.clone();
        let tag_count = Some(self.description.tags.len() as u32);
        ObjectMeta { object, size_bytes: self.size_bytes(), attributes, tag_count }
    }

    /// Returns whether an object of the bucket has the same length and user metadata.
    pub(super) fn is_like(&self, found: &ObjectMeta) -> bool {
        found.size_bytes == self.size_bytes() && found.attributes.user == self.description.attributes.user
    }

    /// Returns whether all bytes are those that the bucket has under this key, so that only attributes or tags
    /// change.
    pub(super) fn reuses_only(&self, key: &ObjectKey) -> bool {
        self.extents.iter().all(|extent| matches!(extent, Extent::Bucket(object, _) if object.key == *key))
    }

    /// Returns the keys of the objects in the bucket that this object is made of.
    pub(super) fn sources(&self) -> HashSet<ObjectKey> {
        let sources = self.extents.iter().filter_map(|extent| match extent {
            Extent::Bucket(object, _) => Some(object.key.clone()),
            Extent::Log(..) => None,
        });
        sources.collect()
    }

    /// Returns whether this object, with this etag, is one that the pending object is made of.
    pub(super) fn is_made_of(&self, object: &ObjectRef) -> bool {
        self.extents.iter().any(|extent| {
            matches!(extent, Extent::Bucket(source, _) if source.key == object.key && source.etag == object.etag)
        })
    }

    /// Returns whether any bytes are in the log.
    pub(super) fn has_log_bytes(&self) -> bool {
        self.log_bytes() > 0
    }

    /// Returns how many bytes of the object are in the log.
    fn log_bytes(&self) -> u64 {
        let logged = self.extents.iter().filter(|extent| matches!(extent, Extent::Log(..)));
        logged.map(Extent::len).sum()
    }
}

/// The newest change of a key.
#[derive(Debug, Clone)]
pub(super) struct Change {
    /// Number of the change; later changes have greater ones.
    pub(super) number: u64,
    /// `None`: the key is deleted.
    pub(super) object: Option<Arc<PendingObject>>,
    /// Condition for the upload: what the bucket must have under the key.
    pub(super) base: Precondition,
    /// Time of the change; 1970 for a change that an earlier process made.
    pub(super) made_at: Timestamp,
    /// Segment of the record, held while the record is needed, and the record's end. `None`: the record is not needed
    /// any more.
    record: Option<(Arc<Segment>, u64)>,
    /// The log had no other record of the key that is not synced. A loss of power can only lose this record, and then
    /// nothing in the log contradicts an object that the bucket already has.
    pub(super) is_only_record: bool,
    /// An attempt was made, so the change may be in the bucket already.
    was_tried: bool,
    /// Earlier changes of the key that may be in the bucket.
    earlier_attempts: Vec<EarlierAttempt>,
    /// Number of failed attempts to upload the change.
    pub(super) failures: u32,
    /// Delay of the next attempt after a failed one; `None` if none is delayed.
    retry: Option<Delay>,
    /// Objects that the change is made of are gone, so that no other change waits for this one to read them.
    has_lost_sources: bool,
}

/// An earlier change of a key that may be in the bucket.
#[derive(Debug, Clone)]
struct EarlierAttempt {
    /// `None`: a deletion.
    object: Option<Arc<PendingObject>>,
    /// Segment of the record, held so that the change is still known after a restart.
    _segment: Option<Arc<Segment>>,
}

/// Delay until the next attempt.
#[derive(Debug, Clone, Copy)]
struct Delay {
    /// Time of the next attempt.
    until: Instant,
    /// The bucket refused the change and would refuse it again.
    is_refused: bool,
}

/// Maximum earlier changes of a key to remember; the oldest are forgotten.
const EARLIER_ATTEMPTS_MAX: usize = 16;

impl Change {
    pub(super) fn new(
        number: u64,
        object: Option<Arc<PendingObject>>,
        base: Precondition,
        made_at: Timestamp,
        record: (Arc<Segment>, u64),
    ) -> Self {
        let record = Some(record);
        let (is_only_record, was_tried, earlier_attempts, failures, retry) =
            (false, false, Vec::new(), 0, None);
        Self {
            number,
            object,
            base,
            made_at,
            record,
            is_only_record,
            was_tried,
            earlier_attempts,
            failures,
            retry,
            has_lost_sources: false,
        }
    }

    /// Returns whether the change may be in the bucket already and replaced, at `key`, an object that it is made of.
    pub(super) fn may_have_replaced_source(&self, key: &ObjectKey) -> bool {
        self.was_tried && self.object.as_ref().is_some_and(|object| object.sources().contains(key))
    }

    /// Returns the keys of the bucket's objects that must stay as they are until the change of `key` is in the bucket: those that it is made
    /// of, and those that an earlier change was made of, which may be in the bucket and is recognised by its bytes.
    fn sources(&self, key: &ObjectKey) -> HashSet<ObjectKey> {
        if self.has_lost_sources {
            return HashSet::new();
        }
        let earlier = self.earlier_attempts.iter().filter_map(|earlier| earlier.object.as_ref());
        let objects = self.object.iter().chain(earlier);
        // A change does not wait for itself.
        objects.flat_map(|object| object.sources()).filter(|source| source != key).collect()
    }

    /// Returns whether the record survives the loss of power.
    pub(super) fn is_synced(&self) -> bool {
        self.record.as_ref().is_none_or(|(segment, end)| segment.is_synced_to(*end))
    }

    /// Returns the change as it is once the bucket has it under this etag: its bytes are in the bucket and it needs
    /// nothing in the log.
    fn into_stored(self, key: &ObjectKey, etag: Option<&ETag>) -> Self {
        let object = self.object.map(|object| {
            let stored = ObjectRef::new(key.clone(), etag.unwrap_or(&object.description.etag).clone());
            let size = object.size_bytes();
            let extents = if size > 0 { vec![Extent::Bucket(stored, 0..size)] } else { Vec::new() };
            let stored = PendingObject::new(object.description.clone(), extents, EarlyUploadSlot::default());
            stored.note_sent();
            Arc::new(stored)
        });
        Self { object, record: None, ..self }
    }

    /// Returns the earlier changes of the key that may be in the bucket, newest first.
    pub(super) fn earlier_attempts(&self) -> impl Iterator<Item = Option<&PendingObject>> {
        self.earlier_attempts.iter().rev().map(|earlier| earlier.object.as_deref())
    }

    /// Marks a change of an earlier process, which may have uploaded it.
    pub(super) fn mark_tried(self) -> Self {
        Self { was_tried: true, ..self }
    }
}

/// All pending changes.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// The newest change of each key.
    keys: BTreeMap<ObjectKey, Change>,
    /// Keys by the numbers of their newest changes.
    queue: BTreeMap<u64, ObjectKey>,
    /// Entries of `queue` without a failed attempt.
    fresh: BTreeMap<u64, ObjectKey>,
    /// Entries of `queue` with a failed attempt, by the time of the next attempt.
    delayed: BTreeMap<(Instant, u64), ObjectKey>,
    /// Number of pending objects and guards that need an object in the bucket unchanged, by that object's key.
    readers: HashMap<ObjectKey, usize>,
    /// Changes being uploaded: the bucket has them, or will have them, unless the attempt fails.
    in_flight: HashMap<ObjectKey, Change>,
    /// Bytes in the log that are still to be uploaded.
    bytes: u64,
    /// Number of bucket reads in progress. A read may have been answered before a change was uploaded.
    bucket_reads: usize,
    /// Changes that were uploaded during those reads.
    done_during_reads: BTreeMap<ObjectKey, Change>,
    pub(super) unsynced: UnsyncedKeys,
    pub(super) renames: UnfinishedRenames,
}

impl Pending {
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Change> {
        self.keys.get(key)
    }

    /// Returns whether a key has no pending change, uploading or not.
    pub(super) fn is_free(&self, key: &ObjectKey) -> bool {
        !self.keys.contains_key(key) && !self.in_flight.contains_key(key)
    }

    /// Begins a bucket read: until it ends, changes that are uploaded stay visible through [`Pending::overlay`].
    pub(super) fn begin_bucket_read(&mut self) {
        self.bucket_reads += 1;
    }

    /// Ends a read of the bucket. After the last one, the changes that were done meanwhile are forgotten.
    pub(super) fn end_bucket_read(&mut self) {
        assert!(self.bucket_reads > 0, "a read of the bucket ends that has not begun");
        self.bucket_reads -= 1;
        if self.bucket_reads == 0 {
            self.done_during_reads.clear();
        }
    }

    /// Returns the newest change of a key that a bucket read may have missed: a pending one, or one uploaded during
    /// the read.
    pub(super) fn overlay(&self, key: &ObjectKey) -> Option<&Change> {
        self.keys.get(key).or_else(|| self.done_during_reads.get(key))
    }

    /// Returns, from a key on, the changes that a bucket read may have missed.
    pub(super) fn overlay_from(&self, from: &[u8]) -> impl Iterator<Item = (&ObjectKey, &Change)> {
        let range = (Bound::Included(from), Bound::Unbounded);
        let mut done = self.done_during_reads.range::<[u8], _>(range).peekable();
        let mut pending = self.keys.range::<[u8], _>(range).peekable();
        std::iter::from_fn(move || match (pending.peek(), done.peek()) {
            (Some((newer, _)), Some((older, _))) if newer == older => {
                done.next();
                pending.next()
            }
            (Some((one, _)), Some((other, _))) if other < one => done.next(),
            (None, Some(_)) => done.next(),
            _ => pending.next(),
        })
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns the bytes in the log that are still to be uploaded.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the upload condition of a new change. `condition` was checked against the pending change, if there is
    /// one: the bucket must then still meet the pending change's own condition.
    pub(super) fn base(&self, key: &ObjectKey, condition: &Precondition) -> Precondition {
        match self.keys.get(key) {
            Some(change) if *condition != Precondition::None => change.base.clone(),
            _ => condition.clone(),
        }
    }

    /// Returns the number of changes that the bucket refuses.
    pub(super) fn refused_count(&self) -> usize {
        self.delayed.values().filter(|key| self.is_refused(key)).count()
    }

    /// Returns whether the bucket has refused the newest change of a key, and no try is in progress.
    fn is_refused(&self, key: &ObjectKey) -> bool {
        let delay = self.keys.get(key).and_then(|change| change.retry);
        delay.is_some_and(|delay| delay.is_refused) && !self.in_flight.contains_key(key)
    }

    /// Returns whether every pending change is one that the bucket refuses.
    pub(super) fn has_only_refused(&self) -> bool {
        self.fresh.is_empty() && self.delayed.values().all(|key| self.is_refused(key))
    }

    /// Schedules the refused changes for another attempt now.
    pub(super) fn retry_refused(&mut self, now: Instant) {
        let refused = self.delayed.iter().filter(|(_, key)| self.is_refused(key));
        for ((until, number), key) in refused.map(|(at, key)| (*at, key.clone())).collect::<Vec<_>>() {
            self.delayed.remove(&(until, number));
            self.delayed.insert((now, number), key.clone());
            if let Some(change) = self.keys.get_mut(&key) {
                change.retry = Some(Delay { until: now, is_refused: false });
            }
        }
    }

    /// Returns the number of the oldest change that the bucket may not have; `None` if it has all.
    pub(super) fn oldest_number(&self) -> Option<u64> {
        let in_flight = self.in_flight.values().map(|change| change.number);
        in_flight.chain(self.queue.keys().next().copied()).min()
    }

    /// Returns the time of the oldest change that has no failed attempt and is not being uploaded; `None` if there is
    /// none.
    pub(super) fn oldest_untried_at(&self) -> Option<Timestamp> {
        let key = self.fresh.values().find(|key| !self.in_flight.contains_key(*key))?;
        Some(self.keys.get(key)?.made_at)
    }

    /// Returns the time of the next retry; `None` if no change waits for one.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        let next = self.delayed.iter().find(|(_, key)| !self.in_flight.contains_key(*key));
        next.map(|((until, _), _)| *until)
    }

    /// Returns the time of the newest change.
    pub(super) fn newest_at(&self) -> Option<Timestamp> {
        Some(self.keys.get(self.queue.values().next_back()?)?.made_at)
    }

    /// Returns the number of a key's newest change if no change of the key was ever sent to the bucket, and the bucket
    /// has no object under it; otherwise `None`. Deleting such a key leaves nothing to upload.
    pub(super) fn never_uploaded(&self, key: &ObjectKey, keys_are_used_once: bool) -> Option<u64> {
        let newest = self.keys.get(key)?;
        // A deletion without a condition may be meant for an object in the bucket.
        let is_first = keys_are_used_once && newest.base == Precondition::None && newest.object.is_some();
        let is_new = newest.base == Precondition::Absent || is_first;
        (is_new && !newest.was_tried && newest.earlier_attempts.is_empty()).then_some(newest.number)
    }

    /// Removes a key's change without uploading it.
    pub(super) fn cancel(&mut self, key: &ObjectKey) {
        self.renames.end(key);
        self.drop_newest(key);
    }

    /// Adds a key's newest change, in place of the older one.
    pub(super) fn insert(&mut self, key: ObjectKey, mut change: Change) {
        if let Some(newest) = self.keys.get(&key) {
            change.earlier_attempts.clone_from(&newest.earlier_attempts);
            if newest.was_tried {
                let _segment = newest.record.as_ref().map(|(segment, _)| segment.clone());
                change.earlier_attempts.push(EarlierAttempt { object: newest.object.clone(), _segment });
                let surplus = change.earlier_attempts.len().saturating_sub(EARLIER_ATTEMPTS_MAX);
                change.earlier_attempts.drain(..surplus);
            }
        }
        self.renames.end(&key);
        self.drop_newest(&key);
        // Uploads go by number, and a replay takes the last record of a key for its newest change.
        if let Some((newest, _)) = self.queue.last_key_value() {
            assert!(*newest < change.number, "change {} is made after change {newest}", change.number);
        }
        self.count_reader(&key, &change, 1);
        self.queue.insert(change.number, key.clone());
        self.fresh.insert(change.number, key.clone());
        self.bytes += change.object.as_ref().map_or(0, |object| object.log_bytes());
        self.keys.insert(key, change);
    }

    /// Takes the change to upload next: the oldest, or a due retry; `None` if all wait or are being uploaded. At least
    /// one of each kind can be in progress: a retry comes first while no retry is in progress, so that neither kind
    /// waits for the other.
    pub(super) fn take_next(&mut self, now: Instant) -> Option<(ObjectKey, Change)> {
        let is_ready =
            |key: &&ObjectKey| !self.in_flight.contains_key(*key) && !self.readers.contains_key(*key);
        let fresh = || self.fresh.values().find(is_ready);
        let retry = || self.delayed.range(..=(now, u64::MAX)).map(|(_, key)| key).find(is_ready);
        let is_retrying = self.in_flight.values().any(|change| change.failures > 0);
        let key = if is_retrying { fresh().or_else(retry) } else { retry().or_else(fresh) }?.clone();
        let newest = self.keys.get_mut(&key)?;
        newest.was_tried = true;
        let change = newest.clone();
        self.count_reader(&key, &change, 1);
        self.in_flight.insert(key.clone(), change.clone());
        Some((key, change))
    }

    /// Returns whether this is a key's newest change and not being uploaded.
    pub(super) fn is_newest_and_idle(&self, key: &ObjectKey, number: u64) -> bool {
        self.is_newest(key, number) && !self.in_flight.contains_key(key)
    }

    /// Returns whether a change is the newest one of its key.
    fn is_newest(&self, key: &ObjectKey, number: u64) -> bool {
        self.keys.get(key).is_some_and(|newest| newest.number == number)
    }

    /// Returns the oldest change that needs bucket objects, if nothing is being uploaded. Such changes can wait for each other in a cycle;
    /// others only wait for them.
    pub(super) fn find_deadlocked(&self) -> Option<(ObjectKey, Change)> {
        let mut changes = self.queue.values().filter_map(|key| Some((key, self.keys.get(key)?)));
        let (key, change) = changes
            .find(|(key, change)| !change.sources(key).is_empty())
            .filter(|_| self.in_flight.is_empty())?;
        Some((key.clone(), change.clone()))
    }

    /// Forgets the earlier changes of a key that may be in the bucket.
    pub(super) fn forget_earlier_attempts(&mut self, key: &ObjectKey) {
        self.change_sources(key, |newest| newest.earlier_attempts.clear());
    }

    /// Ends the wait of other changes for the objects that a key's newest change is made of.
    pub(super) fn forget_sources(&mut self, key: &ObjectKey) {
        self.change_sources(key, |newest| newest.has_lost_sources = true);
    }

    fn change_sources(&mut self, key: &ObjectKey, change: impl FnOnce(&mut Change)) {
        let Some(newest) = self.keys.get_mut(key) else { return };
        let before = newest.sources(key);
        change(newest);
        let after = newest.sources(key);
        self.count_readers(&after, 1);
        self.count_readers(&before, -1);
    }

    /// Removes a change that is in the bucket, where the object has this etag. A newer change of the key is then
    /// uploaded over that object. An older one, left by a log whose record of the change is damaged, is obsolete.
    pub(super) fn complete(&mut self, key: &ObjectKey, number: u64, etag: Option<ETag>) {
        self.end_attempt(key);
        match self.keys.get_mut(key) {
            Some(newest) if newest.number <= number => {
                let done = self.drop_newest(key);
                if self.bucket_reads > 0 {
                    let done = done.map(|done| (key.clone(), done.into_stored(key, etag.as_ref())));
                    self.done_during_reads.extend(done);
                }
            }
            Some(newest) => {
                // A change without a condition keeps having none.
                if newest.base != Precondition::None {
                    newest.base = etag.map_or(Precondition::Absent, Precondition::Matches);
                }
                self.forget_earlier_attempts(key);
            }
            None => {}
        }
    }

    /// Removes a change whose object was stored under another key. A newer change of the key meets the same object in
    /// the bucket as this one.
    pub(super) fn set_aside(&mut self, key: &ObjectKey, number: u64) {
        self.end_attempt(key);
        if self.keys.get(key).is_some_and(|newest| newest.number == number) {
            self.drop_newest(key);
        }
    }

    /// Ends a failed attempt and schedules the next one, unless a newer change has come.
    pub(super) fn schedule_retry(&mut self, key: &ObjectKey, number: u64, until: Instant, is_refused: bool) {
        self.end_attempt(key);
        let Some(newest) = self.keys.get_mut(key).filter(|newest| newest.number == number) else { return };
        self.fresh.remove(&number);
        if let Some(delay) = newest.retry.replace(Delay { until, is_refused }) {
            self.delayed.remove(&(delay.until, number));
        }
        newest.failures += 1;
        self.delayed.insert((until, number), key.clone());
    }

    /// Ends the attempt to upload a change.
    pub(super) fn end_attempt(&mut self, key: &ObjectKey) {
        if let Some(change) = self.in_flight.remove(key) {
            self.count_reader(key, &change, -1);
        }
    }

    /// Protects objects in the bucket from being replaced until [`Pending::release_sources`]. Returns false if one is
    /// being replaced now.
    pub(super) fn hold_sources(&mut self, keys: &HashSet<ObjectKey>) -> bool {
        let is_free = !keys.iter().any(|key| self.in_flight.contains_key(key));
        if is_free {
            self.count_readers(keys, 1);
        }
        is_free
    }

    /// Ends the use of keys as sources of a copy, so that their changes may be uploaded.
    pub(super) fn release_sources(&mut self, keys: &HashSet<ObjectKey>) {
        self.count_readers(keys, -1);
    }

    /// Removes the newest change of a key and returns it.
    fn drop_newest(&mut self, key: &ObjectKey) -> Option<Change> {
        let change = self.keys.remove(key)?;
        self.queue.remove(&change.number);
        self.fresh.remove(&change.number);
        if let Some(delay) = change.retry {
            self.delayed.remove(&(delay.until, change.number));
        }
        self.bytes -= change.object.as_ref().map_or(0, |object| object.log_bytes());
        self.count_reader(key, &change, -1);
        Some(change)
    }

    /// Changes the number of readers of the keys whose objects a change needs by `by`.
    fn count_reader(&mut self, key: &ObjectKey, change: &Change, by: isize) {
        self.count_readers(&change.sources(key), by);
    }

    /// Changes the number of readers of keys by `by`.
    fn count_readers(&mut self, sources: &HashSet<ObjectKey>, by: isize) {
        for source in sources {
            let count = self.readers.entry(source.clone()).or_default();
            *count = count.saturating_add_signed(by);
            if *count == 0 {
                self.readers.remove(source);
            }
        }
    }
}
