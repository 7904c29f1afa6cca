//! The packed records of one container's objects in one shard, each in a numbered slot with its version and its set of views.
//!
//! Owns finding a record by its key, and the links of the lists that slots are in ([`List`]). Refuses to know when a record changes.
//!
//! Invariant: a slot is in one list at most.

use super::matcher::{KeyClassId, ViewSetId};
use crate::object_record::{LiveObject, ObjectRecord, key_of};
use hashbrown::HashTable;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The slots of a table.
#[derive(Debug)]
pub(super) struct Slots {
    pub(super) container: u32,
    slots: Vec<Slot>,
    /// Numbers of the slots that hold no object.
    free: Vec<u32>,
    /// Numbers of the other slots, by the hash of their keys.
    index: HashTable<u32>,
    /// Total length of the packed records.
    record_bytes: usize,
}

#[derive(Debug)]
struct Slot {
    record: Arc<[u8]>,
    state: SlotState,
    /// How the object was last seen during a listing: encodes [`Seen`]; 0 if it never was.
    seen: u32,
    previous: u32,
    next: u32,
}

/// The version of a record, and what the rules say of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotState {
    pub(super) version: u64,
    pub(super) class: KeyClassId,
    pub(super) set: ViewSetId,
}

/// A doubly linked list of slots, from the one that changed longest ago.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct List {
    pub(super) head: u32,
    pub(super) tail: u32,
    pub(super) count: usize,
}

/// How an object was last seen, with the number of the listing that ran then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// The listing returned it.
    InListing(u32),
    /// A hint or the result of a HEAD request was applied while the listing ran.
    ByHintDuring(u32),
}

/// No slot, as the end of a list.
pub(super) const NONE: u32 = u32::MAX;

/// Bytes that the allocation of a record takes besides the record: the allocator's, and the counts of an `Arc`.
const ALLOCATION_OVERHEAD: usize = 32;

/// Returns the hash of a key in a container.
pub(super) fn hash(container: u32, key: &[u8]) -> u64 {
    xxh3_64_with_seed(key, u64::from(container))
}

impl Slots {
    pub(super) fn new(container: u32) -> Self {
        Self { container, slots: Vec::new(), free: Vec::new(), index: HashTable::new(), record_bytes: 0 }
    }

    /// Returns the approximate memory, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.record_bytes
            + (self.slots.len() - self.free.len()) * ALLOCATION_OVERHEAD
            + self.slots.capacity() * size_of::<Slot>()
            + self.index.allocation_size()
    }

    pub(super) fn find(&self, hash: u64, key: &[u8]) -> Option<u32> {
        self.index.find(hash, |slot| key_of(&self.slots[*slot as usize].record) == key).copied()
    }

    pub(super) fn find_key(&self, key: &[u8]) -> Option<u32> {
        self.find(hash(self.container, key), key)
    }

    pub(super) fn record(&self, slot: u32) -> &Arc<[u8]> {
        &self.slots[slot as usize].record
    }

    pub(super) fn key(&self, slot: u32) -> &[u8] {
        key_of(self.record(slot))
    }

    /// Returns the record of a slot, unpacked.
    pub(super) fn known(&self, slot: u32) -> ObjectRecord<'_> {
        let known = ObjectRecord::read(self.record(slot));
        known.unwrap_or_else(|| unreachable!("a record is packed when it is stored"))
    }

    /// Returns the object of a slot; `None` if it is absent.
    pub(super) fn live(&self, slot: u32) -> Option<LiveObject<'_>> {
        self.known(slot).live
    }

    pub(super) fn state(&self, slot: u32) -> SlotState {
        self.slots[slot as usize].state
    }

    pub(super) fn set_state(&mut self, slot: u32, state: SlotState) {
        self.slots[slot as usize].state = state;
    }

    pub(super) fn seen(&self, slot: u32) -> Option<Seen> {
        Seen::read(self.slots[slot as usize].seen)
    }

    pub(super) fn set_seen(&mut self, slot: u32, seen: Seen) {
        self.slots[slot as usize].seen = seen.number();
    }

    /// Stores the record of an object that is not known yet, in a slot that is in no list.
    pub(super) fn insert(&mut self, hash: u64, record: &[u8], state: SlotState) -> u32 {
        let new = Slot { record: record.into(), state, seen: 0, previous: NONE, next: NONE };
        self.record_bytes += record.len();
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = new;
                slot
            }
            None => self.push(new),
        };
        let (container, slots) = (self.container, &self.slots);
        self.index
            .insert_unique(hash, slot, |slot| self::hash(container, key_of(&slots[*slot as usize].record)));
        slot
    }

    fn push(&mut self, new: Slot) -> u32 {
        // Growing by an eighth wastes less than doubling, and copies each slot eight times at most on average.
        if self.slots.len() == self.slots.capacity() {
            self.slots.reserve_exact(self.slots.len() / 8 + 4);
        }
        self.slots.push(new);
        (self.slots.len() - 1) as u32
    }

    /// Replaces the record of a slot by another one of the same object.
    pub(super) fn replace(&mut self, slot: u32, record: &[u8]) {
        let found = &mut self.slots[slot as usize].record;
        debug_assert_eq!(key_of(found), key_of(record), "a slot keeps its object");
        self.record_bytes = self.record_bytes + record.len() - found.len();
        match Arc::get_mut(found).filter(|found| found.len() == record.len()) {
            Some(found) => found.copy_from_slice(record),
            None => *found = record.into(),
        }
    }

    /// Frees a slot that is in no list.
    pub(super) fn remove(&mut self, slot: u32) {
        let hash = hash(self.container, self.key(slot));
        if let Ok(entry) = self.index.find_entry(hash, |found| *found == slot) {
            entry.remove();
        }
        let record = std::mem::take(&mut self.slots[slot as usize].record);
        self.record_bytes -= record.len();
        self.free.push(slot);
    }

    /// Removes a slot from its list.
    pub(super) fn unlink(&mut self, slot: u32, list: &mut List) {
        let Slot { previous, next, .. } = self.slots[slot as usize];
        list.count -= 1;
        match self.slots.get_mut(previous as usize) {
            Some(previous) => previous.next = next,
            None => list.head = next,
        }
        match self.slots.get_mut(next as usize) {
            Some(next) => next.previous = previous,
            None => list.tail = previous,
        }
    }

    /// Adds a slot to the end of a list.
    pub(super) fn link(&mut self, slot: u32, list: &mut List) {
        let last = std::mem::replace(&mut list.tail, slot);
        list.count += 1;
        match self.slots.get_mut(last as usize) {
            Some(last) => last.next = slot,
            None => list.head = slot,
        }
        let found = &mut self.slots[slot as usize];
        (found.previous, found.next) = (last, NONE);
    }

    /// Returns the slots of a list, from the one that changed longest ago.
    pub(super) fn walk(&self, list: List) -> impl Iterator<Item = u32> {
        let from = |at: u32| (at != NONE).then_some(at);
        std::iter::successors(from(list.head), move |at| from(self.slots[*at as usize].next))
    }

    /// Returns the slots of a list, from the one that changed last.
    pub(super) fn walk_back(&self, list: List) -> impl Iterator<Item = u32> {
        let from = |at: u32| (at != NONE).then_some(at);
        std::iter::successors(from(list.tail), move |at| from(self.slots[*at as usize].previous))
    }
}

impl List {
    pub(super) const EMPTY: Self = Self { head: NONE, tail: NONE, count: 0 };
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
