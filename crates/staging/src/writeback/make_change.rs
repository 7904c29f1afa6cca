//! Making a change: check its condition, append it to the log, then make it visible to readers.
//!
//! Invariants: the log has the changes of a key in the order in which they become visible. Nothing about a key
//! changes between the check of a condition and the moment at which the change is visible. Readers never wait for the
//! disk.

use super::Writeback;
use super::condition::{Condition, check_pending};
use super::early_upload::EarlyUploadSlot;
use super::errors::failed;
use super::extent::Extent;
use super::log_record::{self, ExtentRecord, ObjectDescription, Record};
use super::pending::{Change, PendingObject};
use std::sync::{Arc, MutexGuard, PoisonError};
use store::{ObjectKey, ObjectRef, Payload, Result, StoreError};

/// Longest body, in bytes, that is appended together with the record that describes it. Longer bodies are appended
/// before.
const BODY_BYTES_MAX: u64 = 64 << 10;

/// An object to store, without the body that follows its extents.
pub(super) struct NewObject {
    pub(super) description: ObjectDescription,
    pub(super) extents: Vec<Extent>,
    /// A multipart upload that already has parts in the bucket.
    pub(super) early: EarlyUploadSlot,
    /// The object of which this one is a copy, if it is renamed.
    pub(super) renamed_from: Option<ObjectRef>,
}

impl NewObject {
    pub(super) fn new(description: ObjectDescription, extents: Vec<Extent>) -> Self {
        Self { description, extents, early: EarlyUploadSlot::default(), renamed_from: None }
    }
}

impl Writeback {
    /// Locks the making of changes: held from the check of a key's state until the change is visible, including the
    /// write of the record. Taken before `pending`. Returns the number of the next change.
    pub(super) fn lock_changes(&self) -> MutexGuard<'_, u64> {
        self.next_change.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends bytes of an object whose record comes later.
    pub(super) async fn append_bytes(&self, body: &Payload) -> Result<Vec<Extent>> {
        if body.is_empty() {
            return Ok(Vec::new());
        }
        let mut wait = self.begin_wait();
        loop {
            let progress = self.activity.progress.notified();
            match log_record::append(&self.log, &Record::Bytes, body).map_err(failed) {
                Err(StoreError::Full(full)) => self.wait_for_disk(full, progress, &mut wait).await?,
                appended => return appended.map(|(segment, range)| vec![Extent::Log(segment, range)]),
            }
        }
    }

    /// Makes a change. `body` follows the extents of `object`. Every change that is logged passes through here.
    pub(super) async fn make_change(
        &self,
        key: &ObjectKey,
        condition: &Condition<'_>,
        mut object: Option<NewObject>,
        mut body: Payload,
    ) -> Result<()> {
        self.admit(body.len()).await?;
        if let Some(object) = &mut object
            && body.len() > BODY_BYTES_MAX
        {
            object.extents.extend(self.append_bytes(&body).await?);
            body = Payload::default();
        }
        let mut wait = self.begin_wait();
        loop {
            let progress = self.activity.progress.notified();
            match self.try_make_change(key, condition, object.as_ref(), &body) {
                Err(StoreError::Full(full)) => self.wait_for_disk(full, progress, &mut wait).await?,
                changed => return changed,
            }
        }
    }

    /// Adds a change of a key to the log and to the pending changes, if the condition holds. Without `object` it is a
    /// deletion.
    fn try_make_change(
        &self,
        key: &ObjectKey,
        condition: &Condition<'_>,
        object: Option<&NewObject>,
        body: &Payload,
    ) -> Result<()> {
        let mut next_change = self.lock_changes();
        let (never_uploaded, base, is_only_record) = {
            let pending = self.pending();
            check_pending(key, pending.overlay(key), condition.precondition)?;
            let never_uploaded = pending.never_uploaded(key, self.options.keys_are_used_once);
            let is_only_record = pending.is_free(key) && !pending.unsynced.has(key, &self.log);
            (never_uploaded, self.base(&pending, key, condition), is_only_record)
        };
        if let (None, Some(change)) = (object, never_uploaded) {
            let done = Record::Done { change, key: key.clone(), etag: None };
            log_record::append(&self.log, &done, &Payload::default()).map_err(failed)?;
            let mut pending = self.pending();
            pending.cancel(key);
            pending.unsynced.note(key, &self.log);
            return Ok(());
        }
        let change = *next_change;
        *next_change += 1;
        let record = match object {
            None => Record::Delete { change, key: key.clone(), base: base.clone() },
            Some(object) => Record::Put {
                change,
                key: key.clone(),
                base: base.clone(),
                object: object.description.clone(),
                extents: extent_records(&object.extents, body),
                renamed_from: object.renamed_from.clone().map(Box::new),
            },
        };
        let (segment, range) = log_record::append(&self.log, &record, body).map_err(failed)?;
        if let Some(object) = object {
            assert_refers_back(&object.extents, segment.number);
        }
        let end = range.end;
        let pending_object = object.map(|object| {
            let mut extents = object.extents.clone();
            if !range.is_empty() {
                extents.push(Extent::Log(segment.clone(), range));
            }
            let (description, early) = (object.description.clone(), object.early.clone());
            Arc::new(PendingObject::new(description, extents, early))
        });
        let mut change = Change::new(change, pending_object, base, self.stamps.clock.now(), (segment, end));
        change.is_only_record = is_only_record;
        let mut pending = self.pending();
        let was_idle = pending.len() == 0;
        pending.insert(key.clone(), change);
        if let Some(NewObject { renamed_from: Some(from), description, .. }) = object {
            pending.renames.begin(from.clone(), ObjectRef::new(key.clone(), description.etag.clone()));
        }
        pending.unsynced.note(key, &self.log);
        // The upload task knows the oldest change and wakes when that is due, so later changes need not wake it.
        if was_idle || self.is_urgent(pending.len()) {
            self.activity.wake.notify_one();
        }
        Ok(())
    }
}

/// Checks that a record in a segment refers to bytes of this segment or of older ones: a replay has read no others, and
/// segments are removed from the oldest on.
fn assert_refers_back(extents: &[Extent], segment: u64) {
    for extent in extents {
        if let Extent::Log(source, _) = extent {
            assert!(
                source.number <= segment,
                "a record in segment {segment} refers to segment {}",
                source.number
            );
        }
    }
}

/// Returns the extents, and the body after them, as the record names them.
fn extent_records(extents: &[Extent], body: &Payload) -> Vec<ExtentRecord> {
    let place = |extent: &Extent| match extent {
        Extent::Log(segment, range) => ExtentRecord::Log { segment: segment.number, range: range.clone() },
        Extent::Bucket(object, range) => {
            ExtentRecord::Bucket { object: object.clone(), range: range.clone() }
        }
    };
    let body = (!body.is_empty()).then_some(ExtentRecord::Body);
    extents.iter().map(place).chain(body).collect()
}
