//! Reconciles the known state of an object with a hint, an entry of a listing, or the result of a HEAD request.
//!
//! Owns the rules for conflicts. Of two hints, the one with the greater order is the later one. If a hint and a
//! listing are of the same time, or if orders cannot be compared, neither is trusted and the object has to be
//! verified by a HEAD request.

use super::change_log::{ChangeLog, RecordKind};
use super::matcher::Needs;
use super::object_record::{LiveObject, ObjectRecord, Pairs};
use super::table::{Seen, Table};
use events::{ChangeKind, Hint, Order};
use std::time::Duration;
use store::{ListEntry, ObjectMeta, Tags, Timestamp};

/// Result of applying a hint or an entry of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ApplyOutcome {
    /// The known state was replaced.
    Applied,
    /// The hint or entry says what was known already.
    Repeated,
    /// The known state is later than the hint.
    Late,
    /// No view wants the object.
    Unwanted,
    /// The object has to be verified by a HEAD request.
    Verify,
}

/// Maximum time by which a source's clock may be ahead of this one.
const AHEAD_MAX: Duration = Duration::from_secs(2);

/// Two orders whose lengths in bits differ by more than this are from sources of different kinds and cannot be
/// compared.
const KIND_BITS: u32 = 4;

/// Result of a HEAD request, with the object's tags if a view needs them.
#[derive(Debug)]
pub(super) struct HeadResult {
    pub(super) meta: ObjectMeta,
    pub(super) tags: Option<Tags>,
}

impl Table {
    /// Applies a hint, unless it cannot be trusted. `listing` is the number of the listing in progress.
    pub(super) fn apply_hint(
        &mut self,
        hash: u64,
        hint: &Hint<'_>,
        now: Timestamp,
        listing: Option<u32>,
        log: &mut ChangeLog,
    ) -> ApplyOutcome {
        let seen = listing.map(Seen::ByHintDuring);
        let slot = self.find(hash, &hint.key);
        let class = match slot {
            Some(slot) => Some(self.class_of_slot(slot)),
            None => self.class_of(&hint.key),
        };
        let Some(class) = class else { return ApplyOutcome::Unwanted };
        let needs = self.class(class).needs;
        let record = slot.map(|slot| self.take_record(slot));
        let known = record.as_deref().and_then(ObjectRecord::read);
        let mut packed = std::mem::take(&mut self.packed);
        packed.clear();
        let outcome = match decide(known.as_ref(), hint, needs, self.trust_limits, now) {
            Decision::Replace(next) => {
                next.pack(&mut packed);
                ApplyOutcome::Applied
            }
            Decision::Keep(outcome) => outcome,
        };
        if let (Some(slot), Some(record)) = (slot, record) {
            self.return_record(slot, record);
        }
        match outcome {
            ApplyOutcome::Applied => self.put_packed(slot, hash, class, &packed, seen, log),
            ApplyOutcome::Verify => self.log_verify_pending(&hint.key, log),
            ApplyOutcome::Repeated | ApplyOutcome::Late | ApplyOutcome::Unwanted => {}
        }
        self.packed = packed;
        outcome
    }

    /// Logs that an object has to be verified, so that a restarted handler verifies it.
    pub(super) fn log_verify_pending(&mut self, key: &[u8], log: &mut ChangeLog) {
        let mut record = Vec::new();
        ObjectRecord { key, order: None, live: None }.pack(&mut record);
        log.append(RecordKind::VerifyPending, self.container, &record);
    }

    /// Applies an entry of a listing. A hint that arrived while the listing ran may be later than the entry.
    pub(super) fn apply_entry(
        &mut self,
        hash: u64,
        entry: &ListEntry,
        listing: u32,
        verify_metadata: bool,
        log: &mut ChangeLog,
    ) -> ApplyOutcome {
        let ListEntry::Object { object, size_bytes } = entry else { return ApplyOutcome::Unwanted };
        let key = object.key.as_bytes();
        let Some(class) = self.class_of(key) else { return ApplyOutcome::Unwanted };
        let needs = self.class(class).needs;
        let slot = self.find(hash, key);
        let seen = Some(Seen::InListing(listing));
        let modified = object.last_modified.unwrap_or_default();
        if let Some(slot) = slot {
            let is_same = self.known(slot).live.is_some_and(|live| {
                live.etag == object.etag.as_str()
                    && live.size_bytes == *size_bytes
                    && is_same_second(live.modified, modified)
            });
            let is_known = self.known(slot).live.is_some_and(|live| needs.are_met_by(&live));
            // A listing does not show metadata, which may have changed if hints were lost.
            let may_differ = verify_metadata && self.known(slot).live.is_some_and(|live| live.has_metadata());
            if is_same && is_known && !may_differ {
                self.set_seen(slot, seen);
                return ApplyOutcome::Repeated;
            }
            if is_same || self.seen(slot) == Some(Seen::ByHintDuring(listing)) {
                self.set_seen(slot, seen);
                self.log_verify_pending(key, log);
                return ApplyOutcome::Verify;
            }
        }
        let etag = object.etag.as_str();
        let live = LiveObject {
            size_bytes: *size_bytes,
            modified,
            etag,
            accessed: None,
            content_type: None,
            properties: None,
            tags: None,
        };
        let is_enough = needs.are_met_by(&live);
        if is_enough || slot.is_none() {
            self.put(hash, class, &ObjectRecord { key, order: None, live: Some(live) }, seen, log);
        }
        if is_enough {
            return ApplyOutcome::Applied;
        }
        if let Some(slot) = self.find(hash, key) {
            self.set_seen(slot, seen);
        }
        self.log_verify_pending(key, log);
        ApplyOutcome::Verify
    }

    /// Ends a listing: removes the objects that it did not return, except those that a hint announced while it ran.
    /// Returns the keys of the exceptions, which have to be verified.
    pub(super) fn remove_unlisted(&mut self, listing: u32, log: &mut ChangeLog) -> Vec<Box<[u8]>> {
        let mut unverified = Vec::new();
        for slot in self.live_slots() {
            match self.seen(slot) {
                Some(Seen::InListing(last)) if last == listing => {}
                Some(Seen::ByHintDuring(last)) if last == listing => {
                    let key: Box<[u8]> = self.known(slot).key.into();
                    self.log_verify_pending(&key, log);
                    unverified.push(key);
                }
                _ => {
                    let (class, known) = (self.class_of_slot(slot), self.known(slot));
                    let (key, order): (Box<[u8]>, _) = (known.key.into(), known.order);
                    let hash = super::hash(self.container, &key);
                    self.put(hash, class, &ObjectRecord { key: &key, order, live: None }, None, log);
                }
            }
        }
        unverified
    }

    /// Applies the result of a HEAD request. The caller ensures that the known state is still the one from before the
    /// request. `unverified_hint` is the hint that caused the request.
    pub(super) fn apply_head(
        &mut self,
        hash: u64,
        key: &[u8],
        head: Option<&HeadResult>,
        unverified_hint: Option<&UnverifiedHint>,
        listing: Option<u32>,
        log: &mut ChangeLog,
    ) -> ApplyOutcome {
        let Some(class) = self.class_of(key) else { return ApplyOutcome::Unwanted };
        let slot = self.find(hash, key);
        let known = slot.map(|slot| self.known(slot));
        let old = known.and_then(|known| known.live);
        let live = head.map(|head| head.live_object(old.and_then(|live| live.accessed)));
        // Order of the new record:
        // - that of the hint, if the HEAD result confirms the hint and no later hint was applied meanwhile;
        // - else the known order, if the HEAD result shows the known version or confirms a known removal;
        // - else none. Two states in which the object is absent are not known to be the same removal: the object may
        //   have been stored and removed in between.
        let known_order = known.and_then(|known| known.order);
        let confirmed = unverified_hint.filter(|hint| hint.matches(live.as_ref())).map(|hint| hint.order);
        let is_removal_confirmed = confirmed.is_some() && old.is_none() && live.is_none();
        let order = match confirmed {
            Some(order) if Some(order) >= known_order => Some(order),
            _ if is_removal_confirmed || is_same_version(old.as_ref(), live.as_ref()) => known_order,
            _ => None,
        };
        let next = ObjectRecord { key, order, live };
        if known == Some(next) {
            return ApplyOutcome::Repeated;
        }
        let mut packed = Vec::new();
        next.pack(&mut packed);
        self.put_packed(slot, hash, class, &packed, listing.map(Seen::ByHintDuring), log);
        ApplyOutcome::Applied
    }
}

/// A hint that was not trusted, kept until its object is verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnverifiedHint {
    pub(super) order: u128,
    /// The etag and time that a hint of a stored object gives; `None` for a removal.
    stored: Option<(Option<Box<str>>, Option<Timestamp>)>,
}

impl UnverifiedHint {
    pub(super) fn new(hint: &Hint<'_>, now: Timestamp) -> Option<Self> {
        let stored = || (hint.object.etag.as_deref().map(Box::from), hint.time);
        Some(Self {
            order: trusted_order(hint, now)?.0,
            stored: (hint.kind != ChangeKind::Removed).then(stored),
        })
    }

    /// Returns whether a HEAD result confirms the hint.
    fn matches(&self, live: Option<&LiveObject<'_>>) -> bool {
        match (&self.stored, live) {
            (None, None) => true,
            (Some((Some(etag), time)), Some(live)) => {
                **etag == *live.etag && time.is_none_or(|time| is_same_second(time, live.modified))
            }
            _ => false,
        }
    }
}

fn is_same_version(left: Option<&LiveObject<'_>>, right: Option<&LiveObject<'_>>) -> bool {
    match (left, right) {
        (Some(left), Some(right)) => left.etag == right.etag && is_same_second(left.modified, right.modified),
        _ => false,
    }
}

impl HeadResult {
    fn live_object(&self, accessed: Option<Timestamp>) -> LiveObject<'_> {
        let meta = &self.meta;
        let user = &meta.attributes.user;
        LiveObject {
            size_bytes: meta.size_bytes,
            modified: meta.object.last_modified.unwrap_or_default(),
            etag: meta.object.etag.as_str(),
            accessed: accessed.max(user.get(ATIME).and_then(|atime| read_atime(atime))),
            content_type: Some(meta.attributes.content_type.as_deref()),
            properties: Some(Pairs::Map(user)),
            tags: self.tags.as_ref().map(Pairs::Map),
        }
    }
}

/// User metadata in which AWS's tools and Tenon keep the access time, in nanoseconds (`vfs`, headers).
const ATIME: &str = "file-atime";

fn read_atime(text: &str) -> Option<Timestamp> {
    text.strip_suffix("ns").unwrap_or(text).parse().ok().map(Timestamp)
}

/// Limits up to which a hint that announces an unknown object is verified instead of trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct TrustLimits {
    /// Greatest order of the tombstones that were dropped. A hint of an unknown object with an order up to this may
    /// be older than the removal of that object.
    pub(super) forgotten_order_max: Option<u128>,
    /// Time, by the sources' clocks, up to which hints may be older than the last listing. A later hint that removes
    /// the object may be lost.
    pub(super) hints_lost_until: Option<Timestamp>,
}

/// Effect of a hint on the known state.
#[derive(Debug)]
enum Decision<'a> {
    Replace(ObjectRecord<'a>),
    Keep(ApplyOutcome),
}

/// Returns the order of a hint, unless the source's clock is ahead. Most orders are times: if one from the future
/// were stored, all later hints would count as late once the source's clock is corrected.
fn trusted_order(hint: &Hint<'_>, now: Timestamp) -> Option<Order> {
    hint.order.filter(|_| hint.time.is_none_or(|time| time <= now.after(AHEAD_MAX)))
}

fn decide<'a>(
    known: Option<&ObjectRecord<'a>>,
    hint: &'a Hint<'_>,
    needs: Needs,
    trust_limits: TrustLimits,
    now: Timestamp,
) -> Decision<'a> {
    let live = known.and_then(|known| known.live);
    if hint.kind == ChangeKind::Read {
        return apply_read(known, live, hint, needs, now);
    }
    let verify = Decision::Keep(ApplyOutcome::Verify);
    let Some(Order(order)) = trusted_order(hint, now) else { return verify };
    let is_same = live.is_some_and(|live| hint.object.etag.as_deref() == Some(live.etag));
    let may_be_removed_since =
        live.is_none() && hint.kind == ChangeKind::Stored && hint.time <= trust_limits.hints_lost_until;
    match known.map(|known| known.order) {
        Some(Some(last)) if !is_same_kind(order, last) => return verify,
        Some(Some(last)) if order < last => {
            let may_be_later = hint.time.is_some_and(|ended| may_end_after(order, ended, last));
            return if may_be_later { verify } else { Decision::Keep(ApplyOutcome::Late) };
        }
        Some(Some(last)) if order == last => {
            return match hint.kind {
                ChangeKind::Stored if is_same => Decision::Keep(ApplyOutcome::Repeated),
                ChangeKind::Removed if live.is_none() => Decision::Keep(ApplyOutcome::Repeated),
                _ => verify,
            };
        }
        // The last listing did not show the object, and the hint may be older than the listing.
        Some(Some(_)) | None if may_be_removed_since => return verify,
        Some(Some(last))
            if order > last && live.is_some_and(|live| may_end_after(last, live.modified, order)) =>
        {
            return verify;
        }
        Some(Some(_)) => {}
        // The known state comes from the store, so its order is not known. A hint of the same bytes and metadata
        // supplies the order. The hint's tags are not used, because the known ones may be later.
        Some(None) => {
            let is_described = |live: &LiveObject<'_>| is_same && has_known_metadata(hint, live, needs);
            return match live.filter(|live| hint.kind == ChangeKind::Stored && is_described(live)) {
                Some(live) if hint.time.is_some_and(|time| is_same_second(time, live.modified)) => {
                    Decision::Replace(ObjectRecord {
                        key: &hint.key,
                        order: Some(order),
                        live: Some(with_metadata(live, hint)),
                    })
                }
                _ => verify,
            };
        }
        None if trust_limits.forgotten_order_max.is_some_and(|floor| order <= floor) => return verify,
        None => {}
    }
    let next = match hint.kind {
        ChangeKind::Removed => Some(None),
        ChangeKind::Changed => live.and_then(|live| after_change(live, hint, needs)).map(Some),
        _ => after_store(live, hint, needs).map(Some),
    };
    next.map_or(verify, |live| Decision::Replace(ObjectRecord { key: &hint.key, order: Some(order), live }))
}

/// Returns whether a hint of the same bytes also gives the known metadata, as far as views need it. A copy of an
/// object onto itself changes only metadata, perhaps within the same second.
fn has_known_metadata(hint: &Hint<'_>, live: &LiveObject<'_>, needs: Needs) -> bool {
    let object = &hint.object;
    let properties = object.properties.as_deref().map(Pairs::List);
    let content_type = object.content_type.as_deref().map(Some);
    let tags = object.tags.as_deref().map(Pairs::List);
    (!needs.properties || properties == live.properties)
        && (!needs.content_type || content_type == live.content_type)
        && (!needs.tags || tags == live.tags)
}

/// Applies a hint of a read, which changes only the access time.
fn apply_read<'a>(
    known: Option<&ObjectRecord<'a>>,
    live: Option<LiveObject<'a>>,
    hint: &Hint<'_>,
    needs: Needs,
    now: Timestamp,
) -> Decision<'a> {
    let at = hint.time.unwrap_or(now);
    match (known, live) {
        _ if !needs.accessed => Decision::Keep(ApplyOutcome::Unwanted),
        (Some(known), Some(live)) if live.accessed < Some(at) => Decision::Replace(ObjectRecord {
            live: Some(LiveObject { accessed: Some(at), ..live }),
            ..*known
        }),
        _ => Decision::Keep(ApplyOutcome::Repeated),
    }
}

/// Returns the object that a hint of a PUT describes, if the hint has all metadata that views need.
fn after_store<'a>(old: Option<LiveObject<'a>>, hint: &'a Hint<'_>, needs: Needs) -> Option<LiveObject<'a>> {
    let object = &hint.object;
    let properties = object.properties.as_deref().map(Pairs::List);
    let atime = properties.and_then(|pairs| pairs.get(ATIME)).and_then(read_atime);
    let live = LiveObject {
        size_bytes: object.size_bytes?,
        modified: hint.time?,
        etag: object.etag.as_deref()?,
        accessed: atime.max(old.and_then(|old| old.accessed)),
        content_type: object.content_type.as_deref().map(Some),
        properties,
        tags: object.tags.as_deref().map(Pairs::List),
    };
    needs.are_met_by(&live).then_some(live)
}

/// Returns the object with the type and properties of a hint, where they were not known.
fn with_metadata<'a>(live: LiveObject<'a>, hint: &'a Hint<'_>) -> LiveObject<'a> {
    LiveObject {
        content_type: live.content_type.or(hint.object.content_type.as_deref().map(Some)),
        properties: live.properties.or(hint.object.properties.as_deref().map(Pairs::List)),
        ..live
    }
}

/// Returns the object with the metadata of a hint of a change, if the hint names the same bytes and has all metadata
/// that views need. Metadata that the hint does not give is not known any more.
fn after_change<'a>(old: LiveObject<'a>, hint: &'a Hint<'_>, needs: Needs) -> Option<LiveObject<'a>> {
    let object = &hint.object;
    let is_same = object.etag.as_deref() == Some(old.etag);
    let live = LiveObject {
        content_type: object.content_type.as_deref().map(Some),
        properties: object.properties.as_deref().map(Pairs::List),
        tags: object.tags.as_deref().map(Pairs::List),
        ..old
    };
    (is_same && needs.are_met_by(&live)).then_some(live)
}

/// Returns whether a change that ended at `ended` may have ended after another one began, so that their orders do not
/// tell which came last. MinIO's order is the time, in nanoseconds, at which the PUT began, and an event's time is
/// later than the end of the PUT. Other orders are not such times, or are assigned when a change ends.
fn may_end_after(order: u128, ended: Timestamp, began: u128) -> bool {
    u128::try_from(ended.0).is_ok_and(|ended| is_same_kind(order, ended) && began < ended)
}

fn is_same_kind(order: u128, other: u128) -> bool {
    (128 - order.leading_zeros()).abs_diff(128 - other.leading_zeros()) <= KIND_BITS
}

/// Returns whether two times are less than a second apart: stores give times of listings, HEAD results and events in
/// seconds, milliseconds or finer units.
fn is_same_second(left: Timestamp, right: Timestamp) -> bool {
    left.0.abs_diff(right.0) < 1_000_000_000
}
