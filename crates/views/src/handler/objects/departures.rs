//! Keys that left a set of views, in the order of their versions, kept for clients that ask what is gone.
//!
//! Invariant: every departure with a version above `floor` is in the queue. Older ones may be missing.

use super::matcher::ViewSet;
use std::collections::{HashSet, VecDeque};

/// The newest departures of a table.
#[derive(Debug, Default)]
pub(super) struct Departures {
    queue: VecDeque<Departure>,
    /// Bytes of the keys in the queue.
    key_bytes: usize,
    /// Version up to which departures may be missing from the queue.
    floor: u64,
}

/// A key that left a set of views.
#[derive(Debug)]
pub(super) struct Departure {
    pub(super) version: u64,
    pub(super) key: Box<[u8]>,
    /// The set that it left; `None` if it is not known, so that it may be any.
    pub(super) from: Option<ViewSet>,
}

/// Bytes that the allocation of a key takes besides the key.
const ALLOCATION_OVERHEAD: usize = 16;

impl Departures {
    pub(super) fn floor(&self) -> u64 {
        self.floor
    }

    pub(super) fn set_floor(&mut self, version: u64) {
        self.floor = version;
    }

    /// Returns the approximate memory, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.key_bytes
            + self.queue.len() * ALLOCATION_OVERHEAD
            + self.queue.capacity() * size_of::<Departure>()
    }

    pub(super) fn push(&mut self, departure: Departure) {
        self.key_bytes += departure.key.len();
        self.queue.push_back(departure);
    }

    /// Drops the oldest departures until at most `max` are left.
    pub(super) fn prune(&mut self, max: usize) {
        while self.queue.len() > max
            && let Some(departure) = self.queue.pop_front()
        {
            self.key_bytes -= departure.key.len();
            self.floor = departure.version;
        }
    }

    /// Returns the departures from a view after version `since`, the last of each key, newest first.
    pub(super) fn since(&self, view_number: u32, since: u64) -> impl Iterator<Item = &Departure> {
        let mut seen = HashSet::new();
        let newest_first = self.queue.iter().rev().take_while(move |departure| departure.version > since);
        newest_first.filter(move |departure| {
            let was_in = departure.from.as_ref().is_none_or(|set| set.binary_search(&view_number).is_ok());
            was_in && seen.insert(&departure.key)
        })
    }
}
