//! Log zones: the zones that hold frames, their statistics, and the order in which the log uses them.
//!
//! Invariants: the head zone, the next zone and an announced zone are never freed or cleaned. `dead_candidates` contains every zone
//! without live bytes.

use crate::format::{FrameHeader, Manifest, Zone};
use std::collections::{BTreeMap, BTreeSet};

impl Zone {
    /// Returns the bytes that cleaning would gain: the used bytes, less the live bytes and their index entries, which are written again.
    /// Padding of frames is not counted.
    pub(crate) fn reclaimable_bytes(&self) -> u64 {
        let live_entries_bytes =
            self.entries_bytes.saturating_mul(self.live_bytes) / self.inline_bytes.max(1);
        self.used_bytes.saturating_sub(self.live_bytes.saturating_add(live_entries_bytes))
    }
}

/// The zones of the log.
#[derive(Debug)]
pub(crate) struct LogZones {
    zones: BTreeMap<u64, Zone>,
    /// Candidates for freeing: contains all zones without live bytes, and perhaps others.
    dead_candidates: BTreeSet<u64>,
    /// Zones that could not be cleaned. They are left alone until the drive is opened again.
    uncleanable: BTreeSet<u64>,
    /// The zone that the log is written to, and the zone in which it continues.
    head: u64,
    next: u64,
    /// The zone after the next, as named by a frame that is being written. Stays set after a failed write, because the frame may be
    /// on the device.
    announced: Option<u64>,
    /// The first frame that a recovery would read. A zone whose last frame is this or a later one is not freed.
    needed_frame: u64,
}

impl LogZones {
    pub(super) fn from_manifest(manifest: &Manifest) -> Self {
        let dead = manifest.zones.iter().filter(|(_, entry)| entry.live_bytes == 0);
        Self {
            zones: manifest.zones.iter().copied().collect(),
            dead_candidates: dead.map(|&(zone, _)| zone).collect(),
            uncleanable: BTreeSet::new(),
            head: manifest.head_zone,
            next: manifest.next_zone,
            announced: None,
            needed_frame: manifest.next_frame,
        }
    }

    pub(super) fn write_to_manifest(&self, manifest: &mut Manifest) {
        manifest.zones = self.iter().collect();
        (manifest.head_zone, manifest.next_zone) = (self.head, self.next);
    }

    /// Returns the zone that the log is written to.
    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    /// Returns the zone in which the log continues after the head zone.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Returns all zones by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, Zone)> {
        self.zones.iter().map(|(&zone, &entry)| (zone, entry))
    }

    pub(crate) fn get(&self, zone: u64) -> Option<Zone> {
        self.zones.get(&zone).copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.zones.len()
    }

    /// Makes two zones the first of an empty log.
    pub(super) fn begin(&mut self, head: u64, next: u64) {
        (self.head, self.next) = (head, next);
    }

    /// Adds an empty zone.
    pub(super) fn add(&mut self, zone: u64) {
        self.zones.insert(zone, Zone::default());
        self.dead_candidates.insert(zone);
    }

    /// Removes a zone.
    pub(super) fn remove(&mut self, zone: u64) {
        self.zones.remove(&zone);
        self.dead_candidates.remove(&zone);
        self.uncleanable.remove(&zone);
    }

    /// Records that a frame which is being written names this zone as the one after the next.
    pub(super) fn announce(&mut self, zone: u64) {
        self.announced = Some(zone);
    }

    /// Moves the log's head to the next zone, and sets the zone after it.
    pub(crate) fn advance(&mut self, next: u64) {
        self.head = self.next;
        self.next = next;
        self.announced = None;
    }

    /// Records that a frame was written to the head zone, of which `used_bytes` are used now.
    pub(crate) fn record_frame(&mut self, header: &FrameHeader, used_bytes: u64) {
        let inline_bytes = u64::from(header.inline_bytes);
        let zone = self.zones.entry(self.head).or_default();
        zone.last_frame = header.number;
        zone.used_bytes = used_bytes;
        zone.inline_bytes += inline_bytes;
        zone.entries_bytes += u64::from(header.entries_bytes);
        zone.live_bytes += inline_bytes;
        match zone.live_bytes {
            0 => self.dead_candidates.insert(self.head),
            _ => self.dead_candidates.remove(&self.head),
        };
    }

    /// Records that `len` bytes of inline data in a zone are unused. Returns false, and records nothing, if the zone is
    /// not of the log or has fewer live bytes.
    pub(super) fn mark_dead(&mut self, number: u64, len: u32) -> bool {
        let zone = self.zones.get_mut(&number);
        let left = zone.as_ref().and_then(|zone| zone.live_bytes.checked_sub(len.into()));
        if let (Some(zone), Some(left)) = (zone, left) {
            zone.live_bytes = left;
            if left == 0 {
                self.dead_candidates.insert(number);
            }
        }
        left.is_some()
    }

    /// Undoes [`mark_dead`](Self::mark_dead).
    pub(super) fn unmark_dead(&mut self, number: u64, len: u32) {
        let Some(entry) = self.zones.get_mut(&number) else { return };
        entry.live_bytes += u64::from(len);
        if entry.live_bytes > 0 {
            self.dead_candidates.remove(&number);
        }
    }

    /// Sets the first frame that a recovery would read: the changes of all earlier frames are in durable tables.
    pub(crate) fn set_needed_frame(&mut self, frame: u64) {
        self.needed_frame = frame;
    }

    /// Returns the zones that can be freed: they have no live bytes, the log is past them, and no recovery needs them.
    pub(super) fn dead(&self) -> Vec<u64> {
        self.dead_candidates.iter().copied().filter(|&zone| self.is_dead(zone)).collect()
    }

    /// Returns whether a zone can be freed: it has no live bytes, the log is past it, and no recovery needs it.
    pub(super) fn is_dead(&self, zone: u64) -> bool {
        self.get(zone).is_some_and(|entry| entry.live_bytes == 0 && self.is_cleanable(zone, entry))
    }

    /// Returns whether the log is past a zone and a recovery does not need it.
    fn is_cleanable(&self, zone: u64, entry: Zone) -> bool {
        let is_of_log = zone == self.head || zone == self.next || Some(zone) == self.announced;
        !is_of_log && entry.last_frame < self.needed_frame
    }

    /// Returns the zone whose cleaning would gain most, among those with live bytes that can be cleaned now; `None` if
    /// there are none.
    pub(crate) fn best_to_clean(&self) -> Option<(u64, Zone)> {
        let candidates = self.iter().filter(|&(zone, entry)| {
            self.is_cleanable(zone, entry) && entry.live_bytes > 0 && !self.uncleanable.contains(&zone)
        });
        candidates.max_by_key(|(_, entry)| entry.reclaimable_bytes())
    }

    /// Excludes a zone from cleaning, because an attempt failed.
    pub(crate) fn mark_uncleanable(&mut self, zone: u64) {
        self.uncleanable.insert(zone);
    }

    #[cfg(test)]
    pub(super) fn dead_candidates(&self) -> usize {
        self.dead_candidates.len()
    }

    #[cfg(test)]
    pub(super) fn set(&mut self, number: u64, zone: Zone) {
        self.zones.insert(number, zone);
        self.dead_candidates.remove(&number);
    }
}
