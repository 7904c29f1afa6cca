//! What a hint, a listing or a look makes of what is known of an object.
//!
//! Owns the judgement who is right: of two hints the one with the greater order; between a hint and a listing of the same time,
//! or where an order cannot tell, nobody: then somebody has to look.

use super::change_log::{Mark, Pen};
use super::matcher::Needs;
use super::object_record::{Known, Pairs, There};
use super::table::{Seen, Table};
use events::{Hint, Order, What};
use std::time::Duration;
use store::{ListEntry, ObjectMeta, Tags, Timestamp};

/// What came of a hint, or of an entry of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The state is another.
    Applied,
    /// It said what was known.
    Repeated,
    /// Something later was known.
    Late,
    /// No view wants the object.
    Unwanted,
    /// Somebody has to look at the object.
    Look,
}

/// By how much a source's clock may be ahead of this one.
const AHEAD_MAX: Duration = Duration::from_secs(2);

/// Orders whose lengths in bits differ by more than this are of sources of different kinds.
const KIND_BITS: u32 = 4;

/// An object seen in the store, by HEAD and where need be by its tags.
#[derive(Debug)]
pub(super) struct Looked {
    pub(super) meta: ObjectMeta,
    pub(super) tags: Option<Tags>,
}

impl Table {
    /// Takes what a hint says, unless it cannot be believed. `listing` is the number of the listing that runs.
    pub(super) fn hear(
        &mut self,
        hash: u64,
        hint: &Hint<'_>,
        now: Timestamp,
        listing: Option<u32>,
        pen: &mut Pen,
    ) -> Outcome {
        let seen = listing.map(Seen::ByEventDuring);
        let slot = self.find(hash, &hint.key);
        let class = match slot {
            Some(slot) => Some(self.class_of_slot(slot)),
            None => self.class_of(&hint.key),
        };
        let Some(class) = class else { return Outcome::Unwanted };
        let needs = self.class(class).needs;
        let record = slot.map(|slot| self.lend_record(slot));
        let known = record.as_deref().and_then(Known::read);
        let mut packed = std::mem::take(&mut self.packed);
        packed.clear();
        let outcome = match judge(known.as_ref(), hint, needs, self.doubts, now) {
            Judged::So(next) => {
                next.pack(&mut packed);
                Outcome::Applied
            }
            Judged::Not(outcome) => outcome,
        };
        if let (Some(slot), Some(record)) = (slot, record) {
            self.give_back(slot, record);
        }
        match outcome {
            Outcome::Applied => self.put_packed(slot, hash, class, &packed, seen, pen),
            Outcome::Look => self.note_look(&hint.key, pen),
            Outcome::Repeated | Outcome::Late | Outcome::Unwanted => {}
        }
        self.packed = packed;
        outcome
    }

    /// Writes down that somebody has to look.
    pub(super) fn note_look(&mut self, key: &[u8], pen: &mut Pen) {
        let mut record = Vec::new();
        Known { key, order: None, there: None }.pack(&mut record);
        pen.write(Mark::Look, self.container, &record);
    }

    /// Takes an entry of a listing. Whoever changed the object while the listing ran may know better.
    pub(super) fn list(
        &mut self,
        hash: u64,
        entry: &ListEntry,
        listing: u32,
        always_looks: bool,
        pen: &mut Pen,
    ) -> Outcome {
        let ListEntry::Object { object, size_bytes } = entry else { return Outcome::Unwanted };
        let key = object.key.as_bytes();
        let Some(class) = self.class_of(key) else { return Outcome::Unwanted };
        let needs = self.class(class).needs;
        let slot = self.find(hash, key);
        let seen = Some(Seen::InListing(listing));
        let modified = object.last_modified.unwrap_or_default();
        if let Some(slot) = slot {
            let is_same = self.known(slot).there.is_some_and(|there| {
                there.etag == object.etag.as_str()
                    && there.size_bytes == *size_bytes
                    && is_same_second(there.modified, modified)
            });
            let is_known = self.known(slot).there.is_some_and(|there| needs.are_met(&there));
            // A listing says nothing of metadata, which may be other than it was known to be.
            let may_differ = always_looks && self.known(slot).there.is_some_and(|there| there.has_metadata());
            if is_same && is_known && !may_differ {
                self.see(slot, seen);
                return Outcome::Repeated;
            }
            if is_same || self.seen(slot) == Some(Seen::ByEventDuring(listing)) {
                self.see(slot, seen);
                self.note_look(key, pen);
                return Outcome::Look;
            }
        }
        let etag = object.etag.as_str();
        let there = There {
            size_bytes: *size_bytes,
            modified,
            etag,
            accessed: None,
            content_type: None,
            properties: None,
            tags: None,
        };
        let is_enough = needs.are_met(&there);
        if is_enough || slot.is_none() {
            self.put(hash, class, &Known { key, order: None, there: Some(there) }, seen, pen);
        }
        if is_enough {
            return Outcome::Applied;
        }
        if let Some(slot) = self.find(hash, key) {
            self.see(slot, seen);
        }
        self.note_look(key, pen);
        Outcome::Look
    }

    /// The listing is over: what it did not show is gone, unless somebody said meanwhile that it is there. Returns the keys of
    /// which nobody knows.
    pub(super) fn sweep(&mut self, listing: u32, pen: &mut Pen) -> Vec<Box<[u8]>> {
        let mut doubtful = Vec::new();
        for slot in self.all() {
            match self.seen(slot) {
                Some(Seen::InListing(last)) if last == listing => {}
                Some(Seen::ByEventDuring(last)) if last == listing => {
                    let key: Box<[u8]> = self.known(slot).key.into();
                    self.note_look(&key, pen);
                    doubtful.push(key);
                }
                _ => {
                    let (class, known) = (self.class_of_slot(slot), self.known(slot));
                    let (key, order): (Box<[u8]>, _) = (known.key.into(), known.order);
                    let hash = super::hash(self.container, &key);
                    self.put(hash, class, &Known { key: &key, order, there: None }, None, pen);
                }
            }
        }
        doubtful
    }

    /// Takes what somebody saw in the store, where a hint could not be believed. What is known must be what was known when the
    /// look began.
    pub(super) fn look(
        &mut self,
        hash: u64,
        key: &[u8],
        looked: Option<&Looked>,
        doubt: Option<&Doubt>,
        listing: Option<u32>,
        pen: &mut Pen,
    ) -> Outcome {
        let Some(class) = self.class_of(key) else { return Outcome::Unwanted };
        let slot = self.find(hash, key);
        let known = slot.map(|slot| self.known(slot));
        let old = known.and_then(|known| known.there);
        let there = looked.map(|looked| looked.there(old.and_then(|there| there.accessed)));
        // What was seen has the place of the hint that says the same; if none does, or a later one was heard meanwhile, that of what
        // was known of the same bytes. What is gone may have been there and gone meanwhile.
        let had = known.and_then(|known| known.order);
        let said = doubt.filter(|doubt| doubt.is_of(there.as_ref())).map(|doubt| doubt.order);
        let is_gone_still = said.is_some() && old.is_none() && there.is_none();
        let order = match said {
            Some(said) if Some(said) >= had => Some(said),
            _ if is_gone_still || is_same_version(old.as_ref(), there.as_ref()) => had,
            _ => None,
        };
        let next = Known { key, order, there };
        if known == Some(next) {
            return Outcome::Repeated;
        }
        let mut packed = Vec::new();
        next.pack(&mut packed);
        self.put_packed(slot, hash, class, &packed, listing.map(Seen::ByEventDuring), pen);
        Outcome::Applied
    }
}

/// The hint that could not be believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Doubt {
    pub(super) order: u128,
    /// The tag and the time of what was stored, as far as it says.
    stored: Option<(Option<Box<str>>, Option<Timestamp>)>,
}

impl Doubt {
    pub(super) fn of(hint: &Hint<'_>, now: Timestamp) -> Option<Self> {
        let stored = || (hint.said.etag.as_deref().map(Box::from), hint.time);
        Some(Self { order: place(hint, now)?.0, stored: (hint.what != What::Removed).then(stored) })
    }

    /// Whether the hint says what was seen.
    fn is_of(&self, there: Option<&There<'_>>) -> bool {
        match (&self.stored, there) {
            (None, None) => true,
            (Some((Some(etag), time)), Some(there)) => {
                **etag == *there.etag && time.is_none_or(|time| is_same_second(time, there.modified))
            }
            _ => false,
        }
    }
}

fn is_same_version(left: Option<&There<'_>>, right: Option<&There<'_>>) -> bool {
    match (left, right) {
        (Some(left), Some(right)) => left.etag == right.etag && is_same_second(left.modified, right.modified),
        _ => false,
    }
}

impl Looked {
    fn there(&self, accessed: Option<Timestamp>) -> There<'_> {
        let meta = &self.meta;
        let user = &meta.attributes.user;
        There {
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

/// User metadata in which AWS's tools and Tenon keep when a file was read, in nanoseconds (`vfs`, headers).
const ATIME: &str = "file-atime";

fn read_atime(text: &str) -> Option<Timestamp> {
    text.strip_suffix("ns").unwrap_or(text).parse().ok().map(Timestamp)
}

/// When it is not believed that an object of which nothing is known is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Doubts {
    /// The greatest order of what is gone and forgotten.
    pub(super) removed_floor: Option<u128>,
    /// Until when, by the sources' clocks, hints may be of before the last listing, and what undid them lost.
    pub(super) until: Option<Timestamp>,
}

/// What a hint makes of what is known.
#[derive(Debug)]
enum Judged<'a> {
    So(Known<'a>),
    Not(Outcome),
}

/// A hint's place in the order of its object, if it can be believed. Most orders are times: after one that is ahead of all
/// that is true would be taken for late, once the source's clock is put back.
fn place(hint: &Hint<'_>, now: Timestamp) -> Option<Order> {
    hint.order.filter(|_| hint.time.is_none_or(|time| time <= now.after(AHEAD_MAX)))
}

fn judge<'a>(
    known: Option<&Known<'a>>,
    hint: &'a Hint<'_>,
    needs: Needs,
    doubts: Doubts,
    now: Timestamp,
) -> Judged<'a> {
    let there = known.and_then(|known| known.there);
    if hint.what == What::Read {
        return read(known, there, hint, needs, now);
    }
    let look = Judged::Not(Outcome::Look);
    let Some(Order(order)) = place(hint, now) else { return look };
    let is_same = there.is_some_and(|there| hint.said.etag.as_deref() == Some(there.etag));
    let is_doubtful = there.is_none() && hint.what == What::Stored && hint.time <= doubts.until;
    match known.map(|known| known.order) {
        Some(Some(last)) if !is_one_kind(order, last) => return look,
        Some(Some(last)) if order < last => {
            let is_unclear = hint.time.is_some_and(|ended| may_end_after(order, ended, last));
            return if is_unclear { look } else { Judged::Not(Outcome::Late) };
        }
        Some(Some(last)) if order == last => {
            return match hint.what {
                What::Stored if is_same => Judged::Not(Outcome::Repeated),
                What::Removed if there.is_none() => Judged::Not(Outcome::Repeated),
                _ => look,
            };
        }
        // It was not there when the container was listed, and this may be of before.
        Some(Some(_)) | None if is_doubtful => return look,
        Some(Some(last))
            if order > last && there.is_some_and(|there| may_end_after(last, there.modified, order)) =>
        {
            return look;
        }
        Some(Some(_)) => {}
        // The store said so, nobody knows when: a hint of the same bytes has their place, and knows no tags of later.
        Some(None) => {
            let is_told = |there: &There<'_>| is_same && says_the_same(hint, there, needs);
            return match there.filter(|there| hint.what == What::Stored && is_told(there)) {
                Some(there) if hint.time.is_some_and(|time| is_same_second(time, there.modified)) => {
                    Judged::So(Known {
                        key: &hint.key,
                        order: Some(order),
                        there: Some(described(there, hint)),
                    })
                }
                _ => look,
            };
        }
        None if doubts.removed_floor.is_some_and(|floor| order <= floor) => return look,
        None => {}
    }
    let next = match hint.what {
        What::Removed => Some(None),
        What::Changed => there.and_then(|there| changed(there, hint, needs)).map(Some),
        _ => stored(there, hint, needs).map(Some),
    };
    next.map_or(look, |there| Judged::So(Known { key: &hint.key, order: Some(order), there }))
}

/// Whether a hint of the same bytes says the metadata that is known, of what is needed: a copy of an object onto itself changes
/// that alone, perhaps within the same second.
fn says_the_same(hint: &Hint<'_>, there: &There<'_>, needs: Needs) -> bool {
    let said = &hint.said;
    let properties = said.properties.as_deref().map(Pairs::Said);
    let content_type = said.content_type.as_deref().map(Some);
    let tags = said.tags.as_deref().map(Pairs::Said);
    (!needs.properties || properties == there.properties)
        && (!needs.content_type || content_type == there.content_type)
        && (!needs.tags || tags == there.tags)
}

/// Somebody read the object, which changes nothing but that.
fn read<'a>(
    known: Option<&Known<'a>>,
    there: Option<There<'a>>,
    hint: &Hint<'_>,
    needs: Needs,
    now: Timestamp,
) -> Judged<'a> {
    let at = hint.time.unwrap_or(now);
    match (known, there) {
        _ if !needs.accessed => Judged::Not(Outcome::Unwanted),
        (Some(known), Some(there)) if there.accessed < Some(at) => {
            Judged::So(Known { there: Some(There { accessed: Some(at), ..there }), ..*known })
        }
        _ => Judged::Not(Outcome::Repeated),
    }
}

/// What a hint says of bytes that are new, if it is all that is needed.
fn stored<'a>(old: Option<There<'a>>, hint: &'a Hint<'_>, needs: Needs) -> Option<There<'a>> {
    let said = &hint.said;
    let properties = said.properties.as_deref().map(Pairs::Said);
    let atime = properties.and_then(|pairs| pairs.get(ATIME)).and_then(read_atime);
    let there = There {
        size_bytes: said.size_bytes?,
        modified: hint.time?,
        etag: said.etag.as_deref()?,
        accessed: atime.max(old.and_then(|old| old.accessed)),
        content_type: said.content_type.as_deref().map(Some),
        properties,
        tags: said.tags.as_deref().map(Pairs::Said),
    };
    needs.are_met(&there).then_some(there)
}

/// The same object, with what was not known of it besides.
fn described<'a>(there: There<'a>, hint: &'a Hint<'_>) -> There<'a> {
    There {
        content_type: there.content_type.or(hint.said.content_type.as_deref().map(Some)),
        properties: there.properties.or(hint.said.properties.as_deref().map(Pairs::Said)),
        ..there
    }
}

/// The same bytes with other metadata, if the hint says that they are the same and it is not of later ones: what was not said is
/// not known any more.
fn changed<'a>(old: There<'a>, hint: &'a Hint<'_>, needs: Needs) -> Option<There<'a>> {
    let said = &hint.said;
    let is_same = said.etag.as_deref() == Some(old.etag);
    let there = There {
        content_type: said.content_type.as_deref().map(Some),
        properties: said.properties.as_deref().map(Pairs::Said),
        tags: said.tags.as_deref().map(Pairs::Said),
        ..old
    };
    (is_same && needs.are_met(&there)).then_some(there)
}

/// Whether a change with an order, which had ended at a time, may have ended after another one began, so that their orders do not
/// tell which came last: MinIO's order is the nanosecond in which an object began to be stored, and an event's time is later than
/// the end of that. Other orders are no such times, or are given when a change ends.
fn may_end_after(order: u128, ended: Timestamp, began: u128) -> bool {
    u128::try_from(ended.0).is_ok_and(|ended| is_one_kind(order, ended) && began < ended)
}

fn is_one_kind(order: u128, other: u128) -> bool {
    (128 - order.leading_zeros()).abs_diff(128 - other.leading_zeros()) <= KIND_BITS
}

/// Stores say times of listings, looks and events to the second, the millisecond or better.
fn is_same_second(left: Timestamp, right: Timestamp) -> bool {
    left.0.abs_diff(right.0) < 1_000_000_000
}
