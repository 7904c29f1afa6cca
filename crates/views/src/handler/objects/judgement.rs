//! Judges what a hint, an entry of a listing, or the result of a HEAD request changes in the known state of an object.
//!
//! Owns the rules for conflicts, as functions of the known state and the event. Of two hints, the one with the greater
//! order is the later one. If a hint arrived while a listing ran that shows another state, or if orders cannot be
//! compared, neither is trusted and the object has to be verified by a HEAD request.

use super::matcher::Needs;
use crate::object_record::{EtagRef, LiveObject, ObjectRecord, Pairs};
use events::{ChangeKind, Hint, Order};
use std::time::Duration;
use store::{ObjectMeta, Tags, Timestamp};

/// Result of applying a hint or an entry of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ApplyOutcome {
    /// The known state was replaced.
    Applied,
    /// The hint or entry says what was known already.
    Repeated,
    /// The known state is later than the hint, which changes nothing.
    Late,
    /// No view wants the object.
    Unwanted,
    /// There is no memory for the object, so it stays unknown.
    NoRoom,
    /// The object has to be verified by a HEAD request.
    Verify,
}

/// Maximum time by which a source's clock may be ahead of the handler's clock. The order of a hint from later is not
/// trusted.
const AHEAD_MAX: Duration = Duration::from_secs(2);

/// Two orders whose lengths in bits differ by more than this are from sources of different kinds and cannot be
/// compared.
const KIND_BITS: u32 = 4;

/// Result of a HEAD request, with the object's tags if a view needs them.
#[derive(Debug)]
pub(crate) struct HeadResult {
    pub(crate) meta: ObjectMeta,
    pub(crate) tags: Option<Tags>,
}

/// Effect of a hint on the known state.
#[derive(Debug)]
pub(super) enum HintDecision<'a> {
    /// The record replaces the known state.
    Replace(ObjectRecord<'a>),
    /// The known state stays; the outcome says why.
    Keep(ApplyOutcome),
}

/// Effect of an entry of a listing on the known state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryDecision {
    /// The entry says what was known already.
    Repeated,
    /// The known state stays, and the object has to be verified.
    Verify,
    /// The entry replaces the known state.
    Store,
    /// The entry replaces the known state, and the object has to be verified, because the entry says too little.
    StoreAndVerify,
}

/// Decides about an entry of a listing. `is_announced_meanwhile` says that a hint of the object was applied while the listing ran, so that
/// it may be later than the entry. `verify_metadata` says that metadata, which a listing does not show, may have changed unnoticed.
pub(super) fn decide_entry(
    known: Option<&ObjectRecord<'_>>,
    is_announced_meanwhile: bool,
    entry: &LiveObject<'_>,
    needs: Needs,
    verify_metadata: bool,
) -> EntryDecision {
    let live = known.and_then(|known| known.live);
    let is_same = live
        .is_some_and(|live| live.size_bytes == entry.size_bytes && is_same_version(Some(&live), Some(entry)));
    let is_known = live.is_some_and(|live| needs.are_met_by(&live));
    let may_differ = verify_metadata && live.is_some_and(|live| live.has_metadata());
    if is_same && is_known && !may_differ {
        return EntryDecision::Repeated;
    }
    if is_same || is_announced_meanwhile {
        return EntryDecision::Verify;
    }
    match (needs.are_met_by(entry), known) {
        (true, _) => EntryDecision::Store,
        (false, None) => EntryDecision::StoreAndVerify,
        (false, Some(_)) => EntryDecision::Verify,
    }
}

/// Returns the record after a HEAD request; `live` is the object that it found. The caller ensures that the known state is still the one
/// from before the request. `unverified_hint` is the hint that caused the request.
///
/// The order of the new record is
/// - that of the hint, if the HEAD result confirms the hint and no later hint was applied meanwhile;
/// - else the known order, if the HEAD result shows the known version or confirms a known removal;
/// - else none. Two states in which the object is absent are not known to be the same removal: the object may have been stored and removed
///   in between.
pub(super) fn record_after_head<'a>(
    key: &'a [u8],
    known: Option<&ObjectRecord<'_>>,
    live: Option<LiveObject<'a>>,
    unverified_hint: Option<&UnverifiedHint>,
) -> ObjectRecord<'a> {
    let old = known.and_then(|known| known.live);
    let known_order = known.and_then(|known| known.order);
    let confirmed = unverified_hint.filter(|hint| hint.matches(live.as_ref())).map(|hint| hint.order);
    let is_removal_confirmed = confirmed.is_some() && old.is_none() && live.is_none();
    let order = match confirmed {
        Some(order) if Some(order) >= known_order => Some(order),
        _ if is_removal_confirmed || is_same_version(old.as_ref(), live.as_ref()) => known_order,
        _ => None,
    };
    ObjectRecord { key, order, live }
}

/// A hint that was not trusted, kept until its object is verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnverifiedHint {
    pub(crate) order: u128,
    /// The etag and time that a hint of a stored object gives; `None` for a removal.
    stored: Option<(Option<Box<str>>, Option<Timestamp>)>,
}

impl UnverifiedHint {
    /// Returns what a verification needs of a hint; `None` if the hint has no order that is trusted.
    pub(crate) fn new(hint: &Hint<'_>, now: Timestamp) -> Option<Self> {
        let stored = || (hint.object.etag.as_deref().map(Box::from), hint.time);
        Some(Self {
            order: trusted_order(hint, now)?.0,
            stored: (hint.kind != ChangeKind::Removed).then(stored),
        })
    }

    /// Returns whether a HEAD result confirms the hint: both say that the object is absent, or give the same etag, and
    /// the same second if the hint has a time.
    fn matches(&self, live: Option<&LiveObject<'_>>) -> bool {
        match (&self.stored, live) {
            (None, None) => true,
            (Some((Some(etag), time)), Some(live)) => {
                EtagRef::from(&**etag) == live.etag
                    && time.is_none_or(|time| is_same_second(time, live.modified))
            }
            _ => false,
        }
    }
}

/// Returns whether both objects exist and have the same etag and second of modification.
fn is_same_version(left: Option<&LiveObject<'_>>, right: Option<&LiveObject<'_>>) -> bool {
    match (left, right) {
        (Some(left), Some(right)) => left.etag == right.etag && is_same_second(left.modified, right.modified),
        _ => false,
    }
}

impl HeadResult {
    /// Returns the object as the request found it. `accessed` is the time of the last read that is known; a later one
    /// in the object's metadata replaces it.
    pub(super) fn live_object(&self, accessed: Option<Timestamp>) -> LiveObject<'_> {
        let meta = &self.meta;
        let user = &meta.attributes.user;
        LiveObject {
            size_bytes: meta.size_bytes,
            modified: meta.object.last_modified.unwrap_or_default(),
            etag: meta.object.etag.as_str().into(),
            accessed: accessed.max(user.get(ATIME).and_then(|atime| read_atime(atime))),
            content_type: Some(meta.attributes.content_type.as_deref()),
            properties: Some(Pairs::Map(user)),
            tags: self.tags.as_ref().map(Pairs::Map),
        }
    }
}

/// Name of the user metadata in which AWS's tools and Tenon keep the access time, in nanoseconds (crate `vfs`, module
/// `headers`).
const ATIME: &str = "file-atime";

/// Reads the access time from its metadata, with or without the suffix `ns`; `None` if it is malformed.
fn read_atime(text: &str) -> Option<Timestamp> {
    text.strip_suffix("ns").unwrap_or(text).parse().ok().map(Timestamp)
}

/// Limits up to which a hint that announces an unknown or absent object is verified instead of trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct TrustLimits {
    /// Greatest order of the tombstones that were dropped. A hint of an unknown object with an order up to this may
    /// be older than the removal of that object.
    pub(super) forgotten_order_max: Option<u128>,
    /// Time, by the sources' clocks, up to which hints may be older than the last listing; `None` before the first. The
    /// hint that announces the removal of such an object may have been lost.
    pub(super) hints_lost_until: Option<Timestamp>,
}

/// Returns the order of a hint; `None` if it has none, or if the source's clock is ahead. Most orders are times: if one
/// from the future were stored, all later hints would count as late once the source's clock is corrected.
fn trusted_order(hint: &Hint<'_>, now: Timestamp) -> Option<Order> {
    hint.order.filter(|_| hint.time.is_none_or(|time| time <= now.after(AHEAD_MAX)))
}

/// Decides about a hint, `now` being the handler's time. `needs` is the metadata that views need of the object.
pub(super) fn decide_hint<'a>(
    known: Option<&ObjectRecord<'a>>,
    hint: &'a Hint<'_>,
    needs: Needs,
    trust_limits: TrustLimits,
    now: Timestamp,
) -> HintDecision<'a> {
    let live = known.and_then(|known| known.live);
    if hint.kind == ChangeKind::Read {
        return apply_read(known, live, hint, needs, now);
    }
    let verify = HintDecision::Keep(ApplyOutcome::Verify);
    let Some(Order(order)) = trusted_order(hint, now) else { return verify };
    let is_same = live.is_some_and(|live| hint.object.etag.as_deref().map(EtagRef::from) == Some(live.etag));
    let may_be_removed_since =
        live.is_none() && hint.kind == ChangeKind::Stored && hint.time <= trust_limits.hints_lost_until;
    match known.map(|known| known.order) {
        Some(Some(last)) if !is_same_kind(order, last) => return verify,
        Some(Some(last)) if order < last => {
            let may_be_later = hint.time.is_some_and(|ended| may_end_after(order, ended, last));
            return if may_be_later { verify } else { HintDecision::Keep(ApplyOutcome::Late) };
        }
        Some(Some(last)) if order == last => {
            return match hint.kind {
                ChangeKind::Stored if is_same => HintDecision::Keep(ApplyOutcome::Repeated),
                ChangeKind::Removed if live.is_none() => HintDecision::Keep(ApplyOutcome::Repeated),
                _ => verify,
            };
        }
        // The object is absent or unknown since the last listing, and the hint may be older than that listing.
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
                    HintDecision::Replace(ObjectRecord {
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
    next.map_or(verify, |live| {
        HintDecision::Replace(ObjectRecord { key: &hint.key, order: Some(order), live })
    })
}

/// Returns whether a hint of the same bytes also gives the known metadata, as far as views need it. The etag and time
/// do not tell: a copy of an object onto itself changes only metadata, perhaps within the same second.
fn has_known_metadata(hint: &Hint<'_>, live: &LiveObject<'_>, needs: Needs) -> bool {
    let object = &hint.object;
    let properties = object.properties.as_deref().map(Pairs::List);
    let content_type = object.content_type.as_deref().map(Some);
    let tags = object.tags.as_deref().map(Pairs::List);
    (!needs.properties || properties == live.properties)
        && (!needs.content_type || content_type == live.content_type)
        && (!needs.tags || tags == live.tags)
}

/// Decides about a hint of a read, which changes only the access time of an object that is known to exist. A hint
/// without a time counts as of `now`.
fn apply_read<'a>(
    known: Option<&ObjectRecord<'a>>,
    live: Option<LiveObject<'a>>,
    hint: &Hint<'_>,
    needs: Needs,
    now: Timestamp,
) -> HintDecision<'a> {
    let at = hint.time.unwrap_or(now);
    match (known, live) {
        _ if !needs.accessed => HintDecision::Keep(ApplyOutcome::Unwanted),
        (Some(known), Some(live)) if live.accessed < Some(at) => HintDecision::Replace(ObjectRecord {
            live: Some(LiveObject { accessed: Some(at), ..live }),
            ..*known
        }),
        _ => HintDecision::Keep(ApplyOutcome::Repeated),
    }
}

/// Returns the object that a hint of a PUT describes; `None` if the hint lacks the length, the time, the etag or
/// metadata that views need.
fn after_store<'a>(old: Option<LiveObject<'a>>, hint: &'a Hint<'_>, needs: Needs) -> Option<LiveObject<'a>> {
    let object = &hint.object;
    let properties = object.properties.as_deref().map(Pairs::List);
    let atime = properties.and_then(|pairs| pairs.get(ATIME)).and_then(read_atime);
    let live = LiveObject {
        size_bytes: object.size_bytes?,
        modified: hint.time?,
        etag: object.etag.as_deref()?.into(),
        accessed: atime.max(old.and_then(|old| old.accessed)),
        content_type: object.content_type.as_deref().map(Some),
        properties,
        tags: object.tags.as_deref().map(Pairs::List),
    };
    needs.are_met_by(&live).then_some(live)
}

/// Returns the object with the content type and properties of a hint, where they were not known.
fn with_metadata<'a>(live: LiveObject<'a>, hint: &'a Hint<'_>) -> LiveObject<'a> {
    LiveObject {
        content_type: live.content_type.or(hint.object.content_type.as_deref().map(Some)),
        properties: live.properties.or(hint.object.properties.as_deref().map(Pairs::List)),
        ..live
    }
}

/// Returns the object with the metadata of a hint of a change; `None` unless the hint names the same bytes and has all
/// metadata that views need. Metadata that the hint does not give is not known any more.
fn after_change<'a>(old: LiveObject<'a>, hint: &'a Hint<'_>, needs: Needs) -> Option<LiveObject<'a>> {
    let object = &hint.object;
    let is_same = object.etag.as_deref().map(EtagRef::from) == Some(old.etag);
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

/// Returns whether two orders may be from sources of one kind, so that they can be compared.
fn is_same_kind(order: u128, other: u128) -> bool {
    (128 - order.leading_zeros()).abs_diff(128 - other.leading_zeros()) <= KIND_BITS
}

/// Returns whether two times are less than a second apart: stores give times of listings, HEAD results and events in
/// seconds, milliseconds or finer units.
fn is_same_second(left: Timestamp, right: Timestamp) -> bool {
    left.0.abs_diff(right.0) < 1_000_000_000
}
