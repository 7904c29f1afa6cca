//! Applies hints, entries of listings and results of HEAD requests to a table, as [`judgement`](super::judgement) decides.

use super::change_log::{ChangeLog, RecordKind};
use super::judgement::{
    ApplyOutcome, EntryDecision, HeadResult, HintDecision, UnverifiedHint, decide_entry, decide_hint,
    record_after_head,
};
use super::slots::{Seen, hash};
use super::table::Table;
use crate::object_record::{LiveObject, ObjectRecord};
use events::Hint;
use std::sync::Arc;
use store::{ListEntry, ListedObject, Timestamp};

impl Table {
    /// Applies a hint, unless it cannot be trusted. `listing` is the number of the container's listing in progress, if
    /// one is. A hint of an object that is not known is applied only if `has_room`.
    pub(super) fn apply_hint(
        &mut self,
        hint: &Hint<'_>,
        now: Timestamp,
        listing: Option<u32>,
        has_room: bool,
        log: &mut ChangeLog,
    ) -> ApplyOutcome {
        let hash = hash(self.container(), &hint.key);
        let slot = self.slots.find(hash, &hint.key);
        let class = match slot {
            Some(slot) => Some(self.slots.state(slot).class),
            None => self.class_of(&hint.key),
        };
        let Some(class) = class else { return ApplyOutcome::Unwanted };
        let needs = self.needs(class);
        let record = slot.map(|slot| Arc::clone(self.slots.record(slot)));
        let known = record.as_deref().and_then(ObjectRecord::read);
        let outcome = match decide_hint(known.as_ref(), hint, needs, self.trust_limits, now) {
            HintDecision::Replace(next) if has_room || slot.is_some() => {
                self.put(hash, class, &next, listing.map(Seen::ByHintDuring), log);
                ApplyOutcome::Applied
            }
            HintDecision::Replace(_) => ApplyOutcome::NoRoom,
            HintDecision::Keep(outcome) => outcome,
        };
        if outcome == ApplyOutcome::Verify {
            self.log_verify_pending(&hint.key, log);
        }
        outcome
    }

    /// Logs that an object has to be verified, so that a restarted handler verifies it.
    pub(super) fn log_verify_pending(&self, key: &[u8], log: &mut ChangeLog) {
        self.log_key(RecordKind::VerifyPending, key, log);
    }

    /// Buffers a record that has only the key of an object.
    fn log_key(&self, kind: RecordKind, key: &[u8], log: &mut ChangeLog) {
        let mut record = Vec::new();
        ObjectRecord { key, order: None, live: None }.pack(&mut record);
        log.append(kind, self.container(), &record);
    }

    /// Applies an entry of listing number `listing`. A hint that arrived while the listing ran may be later than the
    /// entry. `verify_metadata` says that known metadata, which a listing does not show, may be wrong.
    pub(super) fn apply_entry(
        &mut self,
        entry: &ListEntry,
        listing: u32,
        verify_metadata: bool,
        log: &mut ChangeLog,
    ) -> ApplyOutcome {
        let ListEntry::Object(ListedObject { object, size_bytes, .. }) = entry else {
            return ApplyOutcome::Unwanted;
        };
        let key = object.key.as_bytes();
        let Some(class) = self.class_of(key) else { return ApplyOutcome::Unwanted };
        let needs = self.needs(class);
        let hash = hash(self.container(), key);
        let slot = self.slots.find(hash, key);
        let live = LiveObject {
            size_bytes: *size_bytes,
            modified: object.last_modified.unwrap_or_default(),
            etag: object.etag.as_str().into(),
            accessed: None,
            content_type: None,
            properties: None,
            tags: None,
        };
        let known = slot.map(|slot| self.slots.known(slot));
        let is_announced_meanwhile =
            slot.is_some_and(|slot| self.slots.seen(slot) == Some(Seen::ByHintDuring(listing)));
        let decision = decide_entry(known.as_ref(), is_announced_meanwhile, &live, needs, verify_metadata);
        let seen = Seen::InListing(listing);
        match (decision, slot) {
            (EntryDecision::Store | EntryDecision::StoreAndVerify, _) => {
                self.put(hash, class, &ObjectRecord { key, order: None, live: Some(live) }, Some(seen), log);
            }
            (EntryDecision::Repeated | EntryDecision::Verify, Some(slot)) => self.slots.set_seen(slot, seen),
            (EntryDecision::Repeated | EntryDecision::Verify, None) => {}
        }
        match decision {
            EntryDecision::Repeated => ApplyOutcome::Repeated,
            EntryDecision::Store => ApplyOutcome::Applied,
            EntryDecision::Verify | EntryDecision::StoreAndVerify => {
                self.log_verify_pending(key, log);
                ApplyOutcome::Verify
            }
        }
    }

    /// Ends a listing: marks the objects that it did not return as absent, except those that a hint or a HEAD result
    /// announced while it ran. Returns the keys of the exceptions, which have to be verified.
    pub(super) fn remove_unlisted(&mut self, listing: u32, log: &mut ChangeLog) -> Vec<Box<[u8]>> {
        let mut unverified = Vec::new();
        for slot in self.live_slots() {
            let key: Box<[u8]> = self.slots.key(slot).into();
            match self.slots.seen(slot) {
                Some(Seen::InListing(last)) if last == listing => {}
                Some(Seen::ByHintDuring(last)) if last == listing => {
                    self.log_verify_pending(&key, log);
                    unverified.push(key);
                }
                _ => {
                    let (class, order) = (self.slots.state(slot).class, self.slots.known(slot).order);
                    let absent = ObjectRecord { key: &key, order, live: None };
                    self.put(hash(self.container(), &key), class, &absent, None, log);
                }
            }
        }
        unverified
    }

    /// Applies the result of a HEAD request, `None` for an absent object, and logs that the object was verified. The
    /// caller ensures that the known state is still the one from before the request. `unverified_hint` is the hint that
    /// caused the request.
    pub(super) fn apply_head(
        &mut self,
        key: &[u8],
        head: Option<&HeadResult>,
        unverified_hint: Option<&UnverifiedHint>,
        listing: Option<u32>,
        log: &mut ChangeLog,
    ) {
        if let Some(class) = self.class_of(key) {
            let hash = hash(self.container(), key);
            let slot = self.slots.find(hash, key);
            let record = slot.map(|slot| Arc::clone(self.slots.record(slot)));
            let known = record.as_deref().and_then(ObjectRecord::read);
            let accessed = known.and_then(|known| known.live).and_then(|live| live.accessed);
            let needs = self.needs(class);
            let live = head.map(|head| needs.trim(head.live_object(accessed)));
            let next = record_after_head(key, known.as_ref(), live, unverified_hint);
            if known != Some(next) {
                self.put(hash, class, &next, listing.map(Seen::ByHintDuring), log);
            }
        }
        self.log_key(RecordKind::Verified, key, log);
    }
}
