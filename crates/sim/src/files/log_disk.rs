//! The disk below the write-back log: reads that fail once, and ranges that stay unreadable.

use staging::writeback::ReadFaults;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::Entropy;

/// A segment of the log, by its number, and a range in it.
type Place = (u64, Range<u64>);

/// Unreadable sectors of a disk. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct LogDisk(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    entropy: Entropy,
    /// Reads in a thousand that fail once.
    per_thousand: u64,
    /// Reads that failed once and succeed the next time.
    failed_once: HashSet<Place>,
    /// Ranges that stay unreadable.
    unreadable: Vec<Place>,
    /// A byte of the log is wrong. The search for the next frame reads whole sectors, so an unreadable byte would make the rest of its sector
    /// unreadable, which may be needed.
    is_corrupted: bool,
    fired: FiredReads,
}

/// Numbers of reads that failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FiredReads {
    pub(crate) passing: u64,
    pub(crate) lasting: u64,
}

impl LogDisk {
    /// Makes the disk of a world. On half of the disks, reads fail once at random.
    pub(crate) fn new(seed: u64) -> Self {
        let entropy = Entropy::new(seed);
        let per_thousand = [0, 0, 5, 100][entropy.below(4) as usize];
        let (failed_once, unreadable, is_corrupted, fired) = Default::default();
        let state = State { entropy, per_thousand, failed_once, unreadable, is_corrupted, fired };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Returns the failing reads, for the log.
    pub(crate) fn faults(&self) -> ReadFaults {
        let disk = self.clone();
        ReadFaults::new(move |segment, range| disk.lock().fails(segment, range))
    }

    /// Makes part of one of the places unreadable, on one disk in two each time, unless a byte of the log is wrong. Returns the part.
    pub(crate) fn spoil_one(&self, mut places: Vec<Place>) -> Option<Place> {
        let mut state = self.lock();
        if state.is_corrupted || places.is_empty() || state.entropy.below(2) == 0 {
            return None;
        }
        let (segment, range) = places.swap_remove(state.entropy.below(places.len() as u64) as usize);
        let start = range.start + state.entropy.below(range.end - range.start);
        let end = start + 1 + state.entropy.below(range.end - start);
        state.unreadable.push((segment, start..end));
        Some((segment, start..end))
    }

    pub(crate) fn has_unreadable_ranges(&self) -> bool {
        !self.lock().unreadable.is_empty()
    }

    /// Notes that a byte of the log is wrong.
    pub(crate) fn note_corruption(&self) {
        self.lock().is_corrupted = true;
    }

    pub(crate) fn fired(&self) -> FiredReads {
        self.lock().fired
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn fails(&mut self, segment: u64, range: &Range<u64>) -> bool {
        let is_hit =
            |(number, bad): &Place| *number == segment && bad.start < range.end && range.start < bad.end;
        if self.unreadable.iter().any(is_hit) {
            self.fired.lasting += 1;
            return true;
        }
        let place = (segment, range.clone());
        if self.failed_once.remove(&place) || self.entropy.below(1000) >= self.per_thousand {
            return false;
        }
        self.fired.passing += 1;
        self.failed_once.insert(place)
    }
}
