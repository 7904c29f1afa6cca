//! The objects of one container in one shard, with the views that each is in, in the order of their changes.
//!
//! Owns the state. Objects in the same set of views form a linked list in the order of their versions. The changes of
//! a view are read from the ends of the lists of those sets that contain the view. A change moves its object to the
//! end of one list, however many views see the object. Departures, which are keys that left a set, are kept in a
//! queue of bounded length ([`Table::history_max`]).
//!
//! Refuses: to ask a store, to wait. Invariants: a live object is in the list of its set; versions ascend along a
//! list; `by_modified` and `by_accessed` hold all live objects if the matcher has rules on ages, else none.

use super::change_log::{ChangeLog, RecordKind};
use super::matcher::{KeyClass, KeyClassId, Matcher, TimeCuts, ViewSet, ViewSetId};
use super::object_record::{LiveObject, ObjectRecord, key_of};
use super::reconcile::TrustLimits;
use hashbrown::{HashMap, HashTable};
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use store::Timestamp;

#[derive(Debug)]
pub(super) struct Table {
    pub(super) container: u32,
    pub(super) matcher: Arc<Matcher>,
    time_cuts: Arc<TimeCuts>,
    classes: HashMap<KeyClassId, Arc<KeyClass>>,
    /// Sets by signature, which begins with the class.
    sets: HashMap<Box<[u32]>, ViewSetId>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    index: HashTable<u32>,
    lists: HashMap<ViewSetId, List>,
    /// Absent objects, kept because a late hint might announce them again.
    tombstones: List,
    live_count: usize,
    departures: VecDeque<Departure>,
    /// Version of the newest departure that is not in `departures` any more.
    pub(super) departures_floor: u64,
    pub(super) trust_limits: TrustLimits,
    by_modified: BTreeSet<(Timestamp, u32)>,
    by_accessed: BTreeSet<(Timestamp, u32)>,
    record_bytes: usize,
    scratch: Vec<u8>,
    pub(super) packed: Vec<u8>,
    signature: Vec<u32>,
}

#[derive(Debug)]
struct Slot {
    record: Box<[u8]>,
    version: u64,
    class: KeyClassId,
    set: ViewSetId,
    /// How the object was last seen during a listing: encodes [`Seen`].
    seen: u32,
    previous: u32,
    next: u32,
}

/// A doubly linked list of slots, from the one that changed longest ago.
#[derive(Debug, Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
    count: usize,
}

/// A key that left a set of views.
#[derive(Debug)]
struct Departure {
    version: u64,
    key: Box<[u8]>,
    /// The set; `None` if it is not known, so that it may be any.
    from: Option<ViewSet>,
}

/// How an object was last seen, with the number of the listing that ran then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    InListing(u32),
    ByHintDuring(u32),
}

/// A change in a view: a slot that it shows, or a key that left it.
#[derive(Debug)]
pub(super) enum Change {
    Shown(u32),
    Gone(Box<[u8]>),
}

const NONE: u32 = u32::MAX;

/// Minimum for the number of departures, and of tombstones, that a table keeps.
const HISTORY_MIN: usize = 1024;

impl Table {
    pub(super) fn new(container: u32, matcher: Arc<Matcher>, time_cuts: Arc<TimeCuts>) -> Self {
        Self {
            container,
            matcher,
            time_cuts,
            classes: HashMap::new(),
            sets: HashMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            index: HashTable::new(),
            lists: HashMap::new(),
            tombstones: List::EMPTY,
            live_count: 0,
            departures: VecDeque::new(),
            departures_floor: 0,
            trust_limits: TrustLimits::default(),
            by_modified: BTreeSet::new(),
            by_accessed: BTreeSet::new(),
            record_bytes: 0,
            scratch: Vec::new(),
            packed: Vec::new(),
            signature: Vec::new(),
        }
    }

    pub(super) fn time_cuts(&self) -> &Arc<TimeCuts> {
        &self.time_cuts
    }

    pub(super) fn live_count(&self) -> usize {
        self.live_count
    }

    /// Returns the approximate memory of the table, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        // Overhead of an allocation for a record.
        const ALLOCATION_OVERHEAD: usize = 16;
        let time_indexes = (self.by_modified.len() + self.by_accessed.len()) * 24;
        let departures: usize = self
            .departures
            .iter()
            .map(|departure| departure.key.len() + ALLOCATION_OVERHEAD + size_of::<Departure>())
            .sum();
        self.record_bytes
            + (self.slots.len() - self.free.len()) * ALLOCATION_OVERHEAD
            + self.slots.capacity() * size_of::<Slot>()
            + self.index.allocation_size()
            + time_indexes
            + departures
            + self.sets.len() * 96
    }

    /// Returns the sets that have objects, with the number of their objects.
    pub(super) fn set_sizes(&self) -> impl Iterator<Item = (ViewSet, usize)> {
        let filled = self.lists.iter().filter(|(_, list)| list.count > 0);
        filled.map(|(set, list)| (self.matcher.set(*set), list.count))
    }

    pub(super) fn find(&self, hash: u64, key: &[u8]) -> Option<u32> {
        self.index.find(hash, |slot| key_of(&self.slots[*slot as usize].record) == key).copied()
    }

    pub(super) fn known(&self, slot: u32) -> ObjectRecord<'_> {
        let record = &self.slots[slot as usize].record;
        ObjectRecord::read(record).unwrap_or(ObjectRecord { key: key_of(record), order: None, live: None })
    }

    pub(super) fn class_of_slot(&self, slot: u32) -> KeyClassId {
        self.slots[slot as usize].class
    }

    pub(super) fn version_of(&self, slot: u32) -> u64 {
        self.slots[slot as usize].version
    }

    pub(super) fn seen(&self, slot: u32) -> Option<Seen> {
        Seen::read(self.slots[slot as usize].seen)
    }

    pub(super) fn set_seen(&mut self, slot: u32, seen: Option<Seen>) {
        self.slots[slot as usize].seen = seen.map_or(0, Seen::number);
    }

    /// Returns the class of a key, whether or not its object is known; `None` if no view wants the key.
    pub(super) fn class_of(&mut self, key: &[u8]) -> Option<KeyClassId> {
        let mut scratch = std::mem::take(&mut self.signature);
        let class = self.matcher.class_of(key, &mut scratch);
        self.signature = scratch;
        class
    }

    pub(super) fn class(&mut self, id: KeyClassId) -> &KeyClass {
        self.classes.entry(id).or_insert_with(|| self.matcher.class(id))
    }

    /// Replaces the known state of an object.
    pub(super) fn put(
        &mut self,
        hash: u64,
        class: KeyClassId,
        known: &ObjectRecord<'_>,
        seen: Option<Seen>,
        log: &mut ChangeLog,
    ) {
        let mut record = std::mem::take(&mut self.scratch);
        record.clear();
        known.pack(&mut record);
        let slot = self.find(hash, known.key);
        self.put_packed(slot, hash, class, &record, seen, log);
        self.scratch = record;
    }

    /// Like `put`, for a packed record whose slot the caller has looked up.
    pub(super) fn put_packed(
        &mut self,
        slot: Option<u32>,
        hash: u64,
        class: KeyClassId,
        record: &[u8],
        seen: Option<Seen>,
        log: &mut ChangeLog,
    ) {
        let version = log.append(RecordKind::Object, self.container, record);
        let slot = self.store_record(slot, hash, class, record, version);
        if seen.is_some() {
            self.set_seen(slot, seen);
        }
        self.prune_history(seen.is_some());
    }

    /// Loads a record of a snapshot or, in the order of versions, of the log.
    pub(super) fn load_record(&mut self, hash: u64, record: &[u8], version: u64, is_log: bool) {
        let key = key_of(record);
        let Some(class) = self.class_of(key) else { return };
        let slot = self.find(hash, key);
        if is_log && slot.is_some() {
            // The set that the object left is not known, because the matcher of that time is not.
            self.departures.push_back(Departure { version, key: key.into(), from: None });
        }
        self.store_record(slot, hash, class, record, version);
        self.prune_history(false);
    }

    pub(super) fn set_departures_floor(&mut self, version: u64) {
        self.departures_floor = version;
    }

    fn store_record(
        &mut self,
        slot: Option<u32>,
        hash: u64,
        class: KeyClassId,
        record: &[u8],
        version: u64,
    ) -> u32 {
        let live = ObjectRecord::read(record).and_then(|known| known.live);
        let set = live.map_or(ViewSetId::NONE, |live| self.set_of(class, &live));
        let slot = match slot {
            Some(slot) => {
                self.detach(slot, version, live.is_some().then_some(set));
                slot
            }
            None => self.new_slot(hash, record, class),
        };
        let found = &mut self.slots[slot as usize];
        self.record_bytes = self.record_bytes + record.len() - found.record.len();
        if found.record.len() == record.len() {
            found.record.copy_from_slice(record);
        } else {
            found.record = record.into();
        }
        (found.version, found.class, found.set) = (version, class, set);
        self.attach(slot, live.is_some());
        slot
    }

    /// Takes the record out of a slot, without a copy. `find` does not find the slot until the record is returned.
    pub(super) fn take_record(&mut self, slot: u32) -> Box<[u8]> {
        std::mem::take(&mut self.slots[slot as usize].record)
    }

    pub(super) fn return_record(&mut self, slot: u32, record: Box<[u8]>) {
        self.slots[slot as usize].record = record;
    }

    fn new_slot(&mut self, hash: u64, record: &[u8], class: KeyClassId) -> u32 {
        let new = Slot {
            record: record.into(),
            version: 0,
            class,
            set: ViewSetId::NONE,
            seen: 0,
            previous: NONE,
            next: NONE,
        };
        self.record_bytes += record.len();
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = new;
                slot
            }
            None => {
                self.slots.push(new);
                (self.slots.len() - 1) as u32
            }
        };
        let slots = &self.slots;
        self.index.insert_unique(hash, slot, |slot| {
            super::hash(self.container, key_of(&slots[*slot as usize].record))
        });
        slot
    }

    /// Removes a slot from its list and from the indexes of times. Records a departure if `next`, the object's next
    /// set, is another set or none.
    fn detach(&mut self, slot: u32, version: u64, next: Option<ViewSetId>) {
        let found = &self.slots[slot as usize];
        let known = ObjectRecord::read(&found.record);
        let live = known.and_then(|known| known.live);
        if let Some(live) = live {
            let (modified, accessed) = (live.modified, live.accessed);
            if found.set != ViewSetId::NONE && next != Some(found.set) {
                let from = Some(self.matcher.set(found.set));
                self.departures.push_back(Departure { version, key: key_of(&found.record).into(), from });
            }
            if self.matcher.has_ages() {
                self.by_modified.remove(&(modified, slot));
                accessed.map(|accessed| self.by_accessed.remove(&(accessed, slot)));
            }
            self.live_count -= 1;
        }
        self.unlink(slot, live.is_some());
    }

    fn attach(&mut self, slot: u32, is_live: bool) {
        self.link(slot, is_live);
        if is_live {
            self.live_count += 1;
            if self.matcher.has_ages() {
                self.index_times(slot);
            }
        }
    }

    fn index_times(&mut self, slot: u32) {
        let Some(live) = ObjectRecord::read(&self.slots[slot as usize].record).and_then(|known| known.live)
        else {
            return;
        };
        let (modified, accessed) = (live.modified, live.accessed);
        self.by_modified.insert((modified, slot));
        accessed.map(|accessed| self.by_accessed.insert((accessed, slot)));
    }

    fn list_of(&mut self, slot: u32, is_live: bool) -> &mut List {
        let set = self.slots[slot as usize].set;
        if is_live { self.lists.entry(set).or_insert(List::EMPTY) } else { &mut self.tombstones }
    }

    fn unlink(&mut self, slot: u32, is_live: bool) {
        let Slot { previous, next, .. } = self.slots[slot as usize];
        let list = self.list_of(slot, is_live);
        list.count -= 1;
        if previous == NONE {
            list.head = next
        }
        if next == NONE {
            list.tail = previous
        }
        if previous != NONE {
            self.slots[previous as usize].next = next
        }
        if next != NONE {
            self.slots[next as usize].previous = previous
        }
    }

    fn link(&mut self, slot: u32, is_live: bool) {
        let list = self.list_of(slot, is_live);
        let last = list.tail;
        list.count += 1;
        list.tail = slot;
        if last == NONE {
            list.head = slot
        } else {
            self.slots[last as usize].next = slot
        }
        let found = &mut self.slots[slot as usize];
        (found.previous, found.next) = (last, NONE);
    }

    /// Returns how many departures, and how many tombstones, are kept.
    fn history_max(&self) -> usize {
        HISTORY_MIN.max(self.live_count / 4)
    }

    /// Drops the oldest departures and tombstones. While a listing is in progress, tombstones stay: an entry of the
    /// listing may be older than the removal.
    fn prune_history(&mut self, is_listing: bool) {
        let history_max = self.history_max();
        while self.departures.len() > history_max {
            self.departures_floor =
                self.departures.pop_front().map_or(self.departures_floor, |departure| departure.version);
        }
        while !is_listing && self.tombstones.count > history_max {
            self.drop_tombstone(self.tombstones.head);
        }
    }

    fn drop_tombstone(&mut self, slot: u32) {
        self.unlink(slot, false);
        let record = std::mem::take(&mut self.slots[slot as usize].record);
        let order = ObjectRecord::read(&record).and_then(|known| known.order);
        self.trust_limits.forgotten_order_max = self.trust_limits.forgotten_order_max.max(order);
        self.drop_record(slot, &record);
    }

    /// Frees a slot that is in no list.
    fn drop_record(&mut self, slot: u32, record: &[u8]) {
        let hash = super::hash(self.container, key_of(record));
        if let Ok(entry) = self.index.find_entry(hash, |found| *found == slot) {
            entry.remove();
        }
        self.record_bytes -= record.len();
        self.free.push(slot);
    }

    fn set_of(&mut self, class: KeyClassId, live: &LiveObject<'_>) -> ViewSetId {
        let mut signature = std::mem::take(&mut self.signature);
        signature.clear();
        signature.push(class.0);
        let rules = self.classes.entry(class).or_insert_with(|| self.matcher.class(class));
        rules.append_signature(live, &self.time_cuts, &mut signature);
        let set = match self.sets.get(signature.as_slice()) {
            Some(set) => *set,
            None => {
                let set = self.matcher.match_rules(rules, live, self.time_cuts.now);
                self.sets.insert(signature.as_slice().into(), set);
                set
            }
        };
        self.signature = signature;
        set
    }

    /// Sets another matcher: recomputes the sets of all objects, and drops objects that no view wants any more.
    pub(super) fn set_matcher(
        &mut self,
        matcher: &Arc<Matcher>,
        time_cuts: &Arc<TimeCuts>,
        log: &mut ChangeLog,
    ) {
        // First applies the passing of time to the old rules, so that departures are recorded. Changing the matcher
        // itself moves no object into or out of a view that is in both.
        self.advance(&Arc::new(self.matcher.time_cuts(time_cuts.now)), log);
        self.matcher = Arc::clone(matcher);
        self.time_cuts = Arc::clone(time_cuts);
        self.classes.clear();
        self.sets.clear();
        self.by_modified.clear();
        self.by_accessed.clear();
        let lists = std::mem::take(&mut self.lists);
        let mut slots: Vec<u32> = lists.values().flat_map(|list| self.walk(*list)).collect();
        slots.sort_unstable_by_key(|slot| self.slots[*slot as usize].version);
        for slot in slots {
            self.reclassify_slot(slot);
        }
        for slot in self.tombstone_slots() {
            let record = std::mem::take(&mut self.slots[slot as usize].record);
            let class = self.class_of(key_of(&record));
            self.slots[slot as usize].record = record;
            match class {
                Some(class) => self.slots[slot as usize].class = class,
                None => self.drop_tombstone(slot),
            }
        }
    }

    fn reclassify_slot(&mut self, slot: u32) {
        let record = std::mem::take(&mut self.slots[slot as usize].record);
        let live = ObjectRecord::read(&record).and_then(|known| known.live);
        let Some(class) = self.class_of(key_of(&record)) else {
            self.live_count -= 1;
            return self.drop_record(slot, &record);
        };
        self.slots[slot as usize].class = class;
        let set = live.map_or(ViewSetId::NONE, |live| self.set_of(class, &live));
        let found = &mut self.slots[slot as usize];
        (found.record, found.set) = (record, set);
        self.link(slot, true);
        if self.matcher.has_ages() {
            self.index_times(slot);
        }
    }

    /// Moves to another moment: recomputes the sets of the objects that this can change.
    pub(super) fn advance(&mut self, time_cuts: &Arc<TimeCuts>, log: &mut ChangeLog) {
        if !self.matcher.has_ages() || self.time_cuts == *time_cuts {
            return;
        }
        let [modified, accessed] = self.time_cuts.changed_ranges(time_cuts);
        if !self.time_cuts.has_same_order(time_cuts) {
            self.sets.clear();
        }
        self.time_cuts = Arc::clone(time_cuts);
        let mut slots = BTreeSet::new();
        for (order, ranges) in [(&self.by_modified, modified), (&self.by_accessed, accessed)] {
            for (from, to) in ranges {
                slots.extend(order.range((from, 0)..=(to, u32::MAX)).map(|(_, slot)| *slot));
            }
        }
        for slot in slots {
            self.refresh_set(slot, log);
        }
        self.prune_history(true);
    }

    /// Recomputes the set of an object. A change is logged as a record of the object: otherwise clients that do not
    /// know of the change yet would not learn of it after a restart.
    fn refresh_set(&mut self, slot: u32, log: &mut ChangeLog) {
        let record = std::mem::take(&mut self.slots[slot as usize].record);
        let class = self.slots[slot as usize].class;
        let live = ObjectRecord::read(&record).and_then(|known| known.live);
        let set = live.map(|live| self.set_of(class, &live));
        let is_changed = set != Some(self.slots[slot as usize].set);
        let version = is_changed.then(|| log.append(RecordKind::Object, self.container, &record));
        self.slots[slot as usize].record = record;
        if let (Some(set), Some(version)) = (set, version) {
            self.detach(slot, version, Some(set));
            let found = &mut self.slots[slot as usize];
            (found.version, found.set) = (version, set);
            self.attach(slot, true);
        }
    }

    /// Appends the changes of a view since a version; for version 0, everything that the view shows.
    pub(super) fn changes(&self, view: u32, is_in: &[bool], since: u64, into: &mut Vec<(u64, u32, Change)>) {
        for (_, list) in self.lists.iter().filter(|(set, _)| is_set(is_in, **set)) {
            let mut at = list.tail;
            while at != NONE && self.slots[at as usize].version > since {
                let slot = &self.slots[at as usize];
                into.push((slot.version, self.container, Change::Shown(at)));
                at = slot.previous;
            }
        }
        if since > 0 {
            self.departures_since(view, is_in, since, into);
        }
    }

    fn departures_since(&self, view: u32, is_in: &[bool], since: u64, into: &mut Vec<(u64, u32, Change)>) {
        let mut seen = HashSet::new();
        for departure in self.departures.iter().rev().take_while(|departure| departure.version > since) {
            let was_in = departure.from.as_ref().is_none_or(|set| set.binary_search(&view).is_ok());
            if was_in && seen.insert(&departure.key) && !self.is_shown(&departure.key, is_in) {
                into.push((departure.version, self.container, Change::Gone(departure.key.clone())));
            }
        }
    }

    fn is_shown(&self, key: &[u8], is_in: &[bool]) -> bool {
        let slot = self.find(super::hash(self.container, key), key);
        slot.is_some_and(|slot| {
            let slot = &self.slots[slot as usize];
            slot.set != ViewSetId::NONE && is_set(is_in, slot.set)
        })
    }

    /// Returns the slots of all live objects.
    pub(super) fn live_slots(&self) -> Vec<u32> {
        self.lists.values().flat_map(|list| self.walk(*list)).collect()
    }

    /// Returns the slots of all tombstones.
    pub(super) fn tombstone_slots(&self) -> Vec<u32> {
        self.walk(self.tombstones).collect()
    }

    pub(super) fn record(&self, slot: u32) -> &[u8] {
        &self.slots[slot as usize].record
    }

    fn walk(&self, list: List) -> impl Iterator<Item = u32> {
        let from = |at: u32| (at != NONE).then_some(at);
        std::iter::successors(from(list.head), move |at| from(self.slots[*at as usize].next))
    }
}

impl List {
    const EMPTY: Self = Self { head: NONE, tail: NONE, count: 0 };
}

impl Seen {
    fn number(self) -> u32 {
        match self {
            Self::InListing(listing) => listing * 2,
            Self::ByHintDuring(listing) => listing * 2 + 1,
        }
    }

    fn read(number: u32) -> Option<Self> {
        match (number / 2, number % 2) {
            (0, _) => None,
            (listing, 0) => Some(Self::InListing(listing)),
            (listing, _) => Some(Self::ByHintDuring(listing)),
        }
    }
}

fn is_set(is_in: &[bool], set: ViewSetId) -> bool {
    is_in.get(set.0 as usize).copied().unwrap_or(false)
}
