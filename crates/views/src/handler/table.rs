//! The objects of one container in one shard, with the views that each is in, and what changed in which order.
//!
//! Owns the state. Objects of one set of views are a list in the order of their versions, so that what changed in a view is read
//! from the ends of the lists of the sets that it is in, and a change moves its object to the end of one list, however many
//! views see it. Keys that left a set are kept beside, so many as [`Table::kept`] says.
//!
//! Refuses: to ask a store, to wait. Invariants: a live object is in the list of its set; versions ascend in a list; `by_modified`
//! and `by_accessed` are full where the matcher has ages and empty elsewhere.

use super::change_log::{Mark, Pen};
use super::matcher::{Class, ClassId, Matcher, Moment, Set, SetId};
use super::object_record::{Known, There, key_of};
use super::reconcile::Doubts;
use hashbrown::{HashMap, HashTable};
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use store::Timestamp;

#[derive(Debug)]
pub(super) struct Table {
    pub(super) container: u32,
    pub(super) matcher: Arc<Matcher>,
    moment: Arc<Moment>,
    classes: HashMap<ClassId, Arc<Class>>,
    /// Sets by class and outline.
    sets: HashMap<Box<[u32]>, SetId>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    index: HashTable<u32>,
    lists: HashMap<SetId, List>,
    /// What is gone, for as long as a late hint might bring it back.
    removed: List,
    live: usize,
    left: VecDeque<Left>,
    /// Of the newest that is not in `left` any more.
    pub(super) left_floor: u64,
    pub(super) doubts: Doubts,
    by_modified: BTreeSet<(Timestamp, u32)>,
    by_accessed: BTreeSet<(Timestamp, u32)>,
    record_bytes: usize,
    scratch: Vec<u8>,
    pub(super) packed: Vec<u8>,
    outline: Vec<u32>,
}

#[derive(Debug)]
struct Slot {
    record: Box<[u8]>,
    version: u64,
    class: ClassId,
    set: SetId,
    /// What the last listing had to do with it: see [`Seen`].
    seen: u32,
    previous: u32,
    next: u32,
}

/// Slots by number from the one that changed longest ago.
#[derive(Debug, Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
    count: usize,
}

/// A key that left a set of views.
#[derive(Debug)]
struct Left {
    version: u64,
    key: Box<[u8]>,
    /// `None`: nobody knows which.
    from: Option<Set>,
}

/// When an object was seen, by the number of a listing; 0 while none runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    InListing(u32),
    ByEventDuring(u32),
}

/// One change of a view.
#[derive(Debug)]
pub(super) enum Change {
    Shown(u32),
    Gone(Box<[u8]>),
}

const NONE: u32 = u32::MAX;

/// So many keys that are gone, or left a set, are kept of a small table.
const KEPT_MIN: usize = 1024;

impl Table {
    pub(super) fn new(container: u32, matcher: Arc<Matcher>, moment: Arc<Moment>) -> Self {
        Self {
            container,
            matcher,
            moment,
            classes: HashMap::new(),
            sets: HashMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            index: HashTable::new(),
            lists: HashMap::new(),
            removed: List::EMPTY,
            live: 0,
            left: VecDeque::new(),
            left_floor: 0,
            doubts: Doubts::default(),
            by_modified: BTreeSet::new(),
            by_accessed: BTreeSet::new(),
            record_bytes: 0,
            scratch: Vec::new(),
            packed: Vec::new(),
            outline: Vec::new(),
        }
    }

    pub(super) fn moment(&self) -> &Arc<Moment> {
        &self.moment
    }

    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// About the memory that it takes, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        // What an allocator adds to a record.
        const BESIDE: usize = 16;
        let ordered = (self.by_modified.len() + self.by_accessed.len()) * 24;
        let left: usize = self.left.iter().map(|left| left.key.len() + BESIDE + size_of::<Left>()).sum();
        self.record_bytes
            + (self.slots.len() - self.free.len()) * BESIDE
            + self.slots.capacity() * size_of::<Slot>()
            + self.index.allocation_size()
            + ordered
            + left
            + self.sets.len() * 96
    }

    /// The sets that there are objects of, and how many.
    pub(super) fn set_sizes(&self) -> impl Iterator<Item = (Set, usize)> {
        let filled = self.lists.iter().filter(|(_, list)| list.count > 0);
        filled.map(|(set, list)| (self.matcher.set(*set), list.count))
    }

    pub(super) fn find(&self, hash: u64, key: &[u8]) -> Option<u32> {
        self.index.find(hash, |slot| key_of(&self.slots[*slot as usize].record) == key).copied()
    }

    pub(super) fn known(&self, slot: u32) -> Known<'_> {
        let record = &self.slots[slot as usize].record;
        Known::read(record).unwrap_or(Known { key: key_of(record), order: None, there: None })
    }

    pub(super) fn class_of_slot(&self, slot: u32) -> ClassId {
        self.slots[slot as usize].class
    }

    pub(super) fn version_of(&self, slot: u32) -> u64 {
        self.slots[slot as usize].version
    }

    pub(super) fn seen(&self, slot: u32) -> Option<Seen> {
        Seen::read(self.slots[slot as usize].seen)
    }

    pub(super) fn see(&mut self, slot: u32, seen: Option<Seen>) {
        self.slots[slot as usize].seen = seen.map_or(0, Seen::number);
    }

    /// The class of a key that nothing may be known of; `None` if no view wants it.
    pub(super) fn class_of(&mut self, key: &[u8]) -> Option<ClassId> {
        let mut scratch = std::mem::take(&mut self.outline);
        let class = self.matcher.class_of(key, &mut scratch);
        self.outline = scratch;
        class
    }

    pub(super) fn class(&mut self, id: ClassId) -> &Class {
        self.classes.entry(id).or_insert_with(|| self.matcher.class(id))
    }

    /// Makes an object what is known of it now.
    pub(super) fn put(
        &mut self,
        hash: u64,
        class: ClassId,
        known: &Known<'_>,
        seen: Option<Seen>,
        pen: &mut Pen,
    ) {
        let mut record = std::mem::take(&mut self.scratch);
        record.clear();
        known.pack(&mut record);
        let slot = self.find(hash, known.key);
        self.put_packed(slot, hash, class, &record, seen, pen);
        self.scratch = record;
    }

    /// The same of a packed record, whose slot was found.
    pub(super) fn put_packed(
        &mut self,
        slot: Option<u32>,
        hash: u64,
        class: ClassId,
        record: &[u8],
        seen: Option<Seen>,
        pen: &mut Pen,
    ) {
        let version = pen.write(Mark::Object, self.container, record);
        let slot = self.place(slot, hash, class, record, version);
        if seen.is_some() {
            self.see(slot, seen);
        }
        self.forget(seen.is_some());
    }

    /// The same of a record that a snapshot or, in the order of versions, the log has.
    pub(super) fn put_back(&mut self, hash: u64, record: &[u8], version: u64, is_log: bool) {
        let key = key_of(record);
        let Some(class) = self.class_of(key) else { return };
        let slot = self.find(hash, key);
        if is_log && slot.is_some() {
            // Nobody knows which views it was in by then.
            self.left.push_back(Left { version, key: key.into(), from: None });
        }
        self.place(slot, hash, class, record, version);
        self.forget(false);
    }

    pub(super) fn forget_until(&mut self, version: u64) {
        self.left_floor = version;
    }

    fn place(&mut self, slot: Option<u32>, hash: u64, class: ClassId, record: &[u8], version: u64) -> u32 {
        let there = Known::read(record).and_then(|known| known.there);
        let set = there.map_or(SetId::NONE, |there| self.set_of(class, &there));
        let slot = match slot {
            Some(slot) => {
                self.take_out(slot, version, there.is_some().then_some(set));
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
        self.put_in(slot, there.is_some());
        slot
    }

    /// Lends the record of a slot, which is not to be found until it is given back.
    pub(super) fn lend_record(&mut self, slot: u32) -> Box<[u8]> {
        std::mem::take(&mut self.slots[slot as usize].record)
    }

    pub(super) fn give_back(&mut self, slot: u32, record: Box<[u8]>) {
        self.slots[slot as usize].record = record;
    }

    fn new_slot(&mut self, hash: u64, record: &[u8], class: ClassId) -> u32 {
        let new = Slot {
            record: record.into(),
            version: 0,
            class,
            set: SetId::NONE,
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

    /// Out of its list and orders; what is left is noted where the next set, if any, is another.
    fn take_out(&mut self, slot: u32, version: u64, next: Option<SetId>) {
        let found = &self.slots[slot as usize];
        let known = Known::read(&found.record);
        let there = known.and_then(|known| known.there);
        if let Some(there) = there {
            let (modified, accessed) = (there.modified, there.accessed);
            if found.set != SetId::NONE && next != Some(found.set) {
                let from = Some(self.matcher.set(found.set));
                self.left.push_back(Left { version, key: key_of(&found.record).into(), from });
            }
            if self.matcher.has_ages() {
                self.by_modified.remove(&(modified, slot));
                accessed.map(|accessed| self.by_accessed.remove(&(accessed, slot)));
            }
            self.live -= 1;
        }
        self.unlink(slot, there.is_some());
    }

    fn put_in(&mut self, slot: u32, is_there: bool) {
        self.link(slot, is_there);
        if is_there {
            self.live += 1;
            if self.matcher.has_ages() {
                self.order(slot);
            }
        }
    }

    fn order(&mut self, slot: u32) {
        let Some(there) = Known::read(&self.slots[slot as usize].record).and_then(|known| known.there) else {
            return;
        };
        let (modified, accessed) = (there.modified, there.accessed);
        self.by_modified.insert((modified, slot));
        accessed.map(|accessed| self.by_accessed.insert((accessed, slot)));
    }

    fn list_of(&mut self, slot: u32, is_there: bool) -> &mut List {
        let set = self.slots[slot as usize].set;
        if is_there { self.lists.entry(set).or_insert(List::EMPTY) } else { &mut self.removed }
    }

    fn unlink(&mut self, slot: u32, is_there: bool) {
        let Slot { previous, next, .. } = self.slots[slot as usize];
        let list = self.list_of(slot, is_there);
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

    fn link(&mut self, slot: u32, is_there: bool) {
        let list = self.list_of(slot, is_there);
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

    /// How many keys that are gone, or left a set, are kept.
    fn kept(&self) -> usize {
        KEPT_MIN.max(self.live / 4)
    }

    /// Forgets what is gone longest. While a listing runs it needs to know what went meanwhile.
    fn forget(&mut self, is_listing: bool) {
        let kept = self.kept();
        while self.left.len() > kept {
            self.left_floor = self.left.pop_front().map_or(self.left_floor, |left| left.version);
        }
        while !is_listing && self.removed.count > kept {
            self.drop_removed(self.removed.head);
        }
    }

    fn drop_removed(&mut self, slot: u32) {
        self.unlink(slot, false);
        let record = std::mem::take(&mut self.slots[slot as usize].record);
        let order = Known::read(&record).and_then(|known| known.order);
        self.doubts.removed_floor = self.doubts.removed_floor.max(order);
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

    fn set_of(&mut self, class: ClassId, there: &There<'_>) -> SetId {
        let mut outline = std::mem::take(&mut self.outline);
        outline.clear();
        outline.push(class.0);
        let rules = self.classes.entry(class).or_insert_with(|| self.matcher.class(class));
        rules.outline(there, &self.moment, &mut outline);
        let set = match self.sets.get(outline.as_slice()) {
            Some(set) => *set,
            None => {
                let set = self.matcher.ask(rules, there, self.moment.now);
                self.sets.insert(outline.as_slice().into(), set);
                set
            }
        };
        self.outline = outline;
        set
    }

    /// Other rulesets are in force: finds all sets anew, and drops what no view wants any more.
    pub(super) fn switch(&mut self, matcher: &Arc<Matcher>, moment: &Arc<Moment>, pen: &mut Pen) {
        // What time alone changed is said of the rulesets that there were; of these nothing else changes.
        self.advance(&Arc::new(self.matcher.moment(moment.now)), pen);
        self.matcher = Arc::clone(matcher);
        self.moment = Arc::clone(moment);
        self.classes.clear();
        self.sets.clear();
        self.by_modified.clear();
        self.by_accessed.clear();
        let lists = std::mem::take(&mut self.lists);
        let mut slots: Vec<u32> = lists.values().flat_map(|list| self.walk(*list)).collect();
        slots.sort_unstable_by_key(|slot| self.slots[*slot as usize].version);
        for slot in slots {
            self.switch_slot(slot);
        }
        for slot in self.all_removed() {
            let record = std::mem::take(&mut self.slots[slot as usize].record);
            let class = self.class_of(key_of(&record));
            self.slots[slot as usize].record = record;
            match class {
                Some(class) => self.slots[slot as usize].class = class,
                None => self.drop_removed(slot),
            }
        }
    }

    fn switch_slot(&mut self, slot: u32) {
        let record = std::mem::take(&mut self.slots[slot as usize].record);
        let there = Known::read(&record).and_then(|known| known.there);
        let Some(class) = self.class_of(key_of(&record)) else {
            self.live -= 1;
            return self.drop_record(slot, &record);
        };
        self.slots[slot as usize].class = class;
        let set = there.map_or(SetId::NONE, |there| self.set_of(class, &there));
        let found = &mut self.slots[slot as usize];
        (found.record, found.set) = (record, set);
        self.link(slot, true);
        if self.matcher.has_ages() {
            self.order(slot);
        }
    }

    /// Time went by, or back: finds anew the sets that this can change.
    pub(super) fn advance(&mut self, moment: &Arc<Moment>, pen: &mut Pen) {
        if !self.matcher.has_ages() || self.moment == *moment {
            return;
        }
        let [modified, accessed] = self.moment.differs(moment);
        if !self.moment.is_like(moment) {
            self.sets.clear();
        }
        self.moment = Arc::clone(moment);
        let mut slots = BTreeSet::new();
        for (order, ranges) in [(&self.by_modified, modified), (&self.by_accessed, accessed)] {
            for (from, to) in ranges {
                slots.extend(order.range((from, 0)..=(to, u32::MAX)).map(|(_, slot)| *slot));
            }
        }
        for slot in slots {
            self.flip(slot, pen);
        }
        self.forget(true);
    }

    /// A record says so, too: clients that have not heard of it yet do not find out otherwise after a restart.
    fn flip(&mut self, slot: u32, pen: &mut Pen) {
        let record = std::mem::take(&mut self.slots[slot as usize].record);
        let class = self.slots[slot as usize].class;
        let there = Known::read(&record).and_then(|known| known.there);
        let set = there.map(|there| self.set_of(class, &there));
        let is_other = set != Some(self.slots[slot as usize].set);
        let version = is_other.then(|| pen.write(Mark::Object, self.container, &record));
        self.slots[slot as usize].record = record;
        if let (Some(set), Some(version)) = (set, version) {
            self.take_out(slot, version, Some(set));
            let found = &mut self.slots[slot as usize];
            (found.version, found.set) = (version, set);
            self.put_in(slot, true);
        }
    }

    /// What changed in a view since a version. Of version 0 everything that is there.
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
            self.gone(view, is_in, since, into);
        }
    }

    fn gone(&self, view: u32, is_in: &[bool], since: u64, into: &mut Vec<(u64, u32, Change)>) {
        let mut seen = HashSet::new();
        for left in self.left.iter().rev().take_while(|left| left.version > since) {
            let was_in = left.from.as_ref().is_none_or(|set| set.binary_search(&view).is_ok());
            if was_in && seen.insert(&left.key) && !self.is_shown(&left.key, is_in) {
                into.push((left.version, self.container, Change::Gone(left.key.clone())));
            }
        }
    }

    fn is_shown(&self, key: &[u8], is_in: &[bool]) -> bool {
        let slot = self.find(super::hash(self.container, key), key);
        slot.is_some_and(|slot| {
            let slot = &self.slots[slot as usize];
            slot.set != SetId::NONE && is_set(is_in, slot.set)
        })
    }

    /// All live objects by slot.
    pub(super) fn all(&self) -> Vec<u32> {
        self.lists.values().flat_map(|list| self.walk(*list)).collect()
    }

    /// What is gone, by slot.
    pub(super) fn all_removed(&self) -> Vec<u32> {
        self.walk(self.removed).collect()
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
            Self::ByEventDuring(listing) => listing * 2 + 1,
        }
    }

    fn read(number: u32) -> Option<Self> {
        match (number / 2, number % 2) {
            (0, _) => None,
            (listing, 0) => Some(Self::InListing(listing)),
            (listing, _) => Some(Self::ByEventDuring(listing)),
        }
    }
}

fn is_set(is_in: &[bool], set: SetId) -> bool {
    is_in.get(set.0 as usize).copied().unwrap_or(false)
}
