//! Objects in the order of their times, for rules on ages.

use crate::object_record::LiveObject;
use std::collections::BTreeSet;
use store::Timestamp;

/// Slots by the times of their objects.
#[derive(Debug, Default)]
pub(super) struct TimeIndex {
    by_modified: BTreeSet<(Timestamp, u32)>,
    by_accessed: BTreeSet<(Timestamp, u32)>,
}

/// Approximate memory of an entry, in bytes.
const ENTRY_BYTES: usize = 24;

impl TimeIndex {
    pub(super) fn memory_bytes(&self) -> usize {
        (self.by_modified.len() + self.by_accessed.len()) * ENTRY_BYTES
    }

    pub(super) fn insert(&mut self, slot: u32, live: &LiveObject<'_>) {
        self.by_modified.insert((live.modified, slot));
        self.by_accessed.extend(live.accessed.map(|accessed| (accessed, slot)));
    }

    pub(super) fn remove(&mut self, slot: u32, live: &LiveObject<'_>) {
        self.by_modified.remove(&(live.modified, slot));
        live.accessed.map(|accessed| self.by_accessed.remove(&(accessed, slot)));
    }

    /// Returns the slots of the objects whose times are in ranges of `modified` and of `accessed` times.
    pub(super) fn in_ranges(&self, [modified, accessed]: [Vec<(Timestamp, Timestamp)>; 2]) -> BTreeSet<u32> {
        let mut slots = BTreeSet::new();
        for (order, ranges) in [(&self.by_modified, modified), (&self.by_accessed, accessed)] {
            for (from, to) in ranges {
                slots.extend(order.range((from, 0)..=(to, u32::MAX)).map(|(_, slot)| *slot));
            }
        }
        slots
    }
}
