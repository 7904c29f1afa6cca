//! The space: the state of every block. Tracks free blocks, runs and their owners, and pack zones with their live bytes.
//!
//! Owns neither bytes nor the log: `commit` and `open` report the changes of a frame once it is durable.
//!
//! Invariants: a block is free, in a superblock, set aside for the log, in one pack zone, or in one run. A run is owned
//! by committed records (one, plus the number in `shared`), or reserved (allocated, but no committed record refers to
//! it: it is being written, or holds a table or the manifest), or pending free (without owner, but still being read).
//! Released blocks are not allocated while they are being read.

mod audit;
mod dry_run;
mod free_map;
mod log_zones;
mod reservation;
mod scrub_guard;

pub(crate) use audit::References;
pub(crate) use free_map::FreeMap;
pub(crate) use log_zones::LogZones;
pub(crate) use reservation::{Hold, Pins, Reservation, SharedSpace, lock};
pub(crate) use scrub_guard::ScrubGuard;

use crate::error::{Error, Result};
use crate::format::{Geometry, Manifest, Run};
use crate::policy::{FreeSpace, LOG_RESERVE_ZONES};
use std::collections::{BTreeMap, HashMap};

/// The number of an allocation, counted since the drive was opened.
pub(crate) type Allocation = u64;

/// The state of every block.
#[derive(Debug)]
pub(crate) struct Space {
    geometry: Geometry,
    free: FreeMap,
    /// Length and allocation number of runs that are allocated but that nothing committed refers to, by start.
    reservations: BTreeMap<u64, (u64, Allocation)>,
    last_allocation: Allocation,
    /// Length of runs without owner that are still being read, by start.
    pending_free: BTreeMap<u64, u64>,
    /// Runs with more than one owner, by start, and the number of additional owners.
    shared: HashMap<u64, (Run, u32)>,
    /// Number of pins of readers and writers, by start of the zone or run.
    pins: HashMap<u64, u32>,
    /// The blocks that a scrub compares at the moment.
    scrubbed: Option<Run>,
    log_zones: LogZones,
    /// Free zones set aside for the log. Runs are not allocated from them, so they stay whole.
    log_reserve: Vec<u64>,
    /// Blocks that the next checkpoint may need. The log leaves them free.
    checkpoint_blocks: u64,
    /// Whether zones are set aside; false until the free blocks are known.
    has_log_reserve: bool,
}

impl Space {
    /// Makes the space of a device that holds only its superblocks.
    pub(crate) fn new(geometry: Geometry) -> Self {
        let start = geometry.superblocks().end();
        let all = Run { start, blocks: geometry.blocks - start };
        let manifest = Manifest { free: vec![all], ..Manifest::default() };
        Self::from_manifest(geometry, &manifest)
    }

    /// Makes the space that a manifest describes.
    pub(crate) fn from_manifest(geometry: Geometry, manifest: &Manifest) -> Self {
        Self {
            geometry,
            free: FreeMap::new(geometry.zone_blocks, manifest.free.iter().copied()),
            reservations: BTreeMap::new(),
            last_allocation: 0,
            pending_free: BTreeMap::new(),
            shared: manifest.shared.iter().map(|&(run, more)| (run.start, (run, more))).collect(),
            pins: HashMap::new(),
            scrubbed: None,
            log_zones: LogZones::from_manifest(manifest),
            log_reserve: Vec::new(),
            checkpoint_blocks: 0,
            has_log_reserve: false,
        }
    }

    /// Writes the committed state of the blocks into a manifest.
    pub(crate) fn write_to_manifest(&self, manifest: &mut Manifest) {
        let mut free = self.free.clone();
        let reservations = self.reservations.iter().map(|(&start, &(blocks, _))| Run { start, blocks });
        let pending_free = self.pending_free.iter().map(|(&start, &blocks)| Run { start, blocks });
        let log_reserve = self.log_reserve.iter().map(|&zone| self.geometry.zone_run(zone));
        for run in reservations.chain(pending_free).chain(log_reserve) {
            free.insert(run);
        }
        manifest.free = free.runs().collect();
        manifest.shared = self.shared.values().copied().collect();
        manifest.shared.sort_unstable();
        self.log_zones.write_to_manifest(manifest);
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Returns the zones of the log.
    pub(crate) fn log_zones(&self) -> &LogZones {
        &self.log_zones
    }

    pub(crate) fn log_zones_mut(&mut self) -> &mut LogZones {
        &mut self.log_zones
    }

    /// Returns the free space in numbers, for the admission policy.
    pub(crate) fn free_space(&self) -> FreeSpace {
        let (blocks, zones) = (self.free.blocks(), self.free.whole_zones());
        // The policy compares blocks with zones, so whole zones must be a part of the free blocks.
        assert!(zones * self.geometry.zone_blocks <= blocks, "{zones} whole zones in {blocks} free blocks");
        FreeSpace {
            blocks,
            zones,
            reserve_zones: self.log_reserve.len() as u64,
            checkpoint_blocks: self.checkpoint_blocks,
            zone_blocks: self.geometry.zone_blocks,
        }
    }

    /// Allocates a run of `blocks`, in whole rows, for an object that must leave `zones_left` zones free. If no run is
    /// that long, allocates the longest one, provided that it has at least `least` blocks. If that would leave too few
    /// whole zones free, allocates a run outside whole free zones. Fails with [`Error::Full`].
    pub(crate) fn allocate(&mut self, blocks: u64, least: u64, zones_left: u64) -> Result<(Run, Allocation)> {
        let (blocks, least) = (self.geometry.round_up_to_rows(blocks), self.geometry.round_up_to_rows(least));
        let found = match self.free.best_fit(blocks) {
            Some(found) => Run { blocks, ..found },
            None => self.free.longest().filter(|longest| longest.blocks >= least).ok_or(Error::Full)?,
        };
        if found.blocks > self.free_space().object_blocks(zones_left) {
            return Err(Error::Full);
        }
        let allocation = self.reserve(found);
        if self.free_space().free_zones() < zones_left {
            self.free_reserved(found);
            return self.allocate_outside_zones(blocks, least);
        }
        Ok((found, allocation))
    }

    /// Allocates a run outside whole free zones.
    fn allocate_outside_zones(&mut self, blocks: u64, least: u64) -> Result<(Run, Allocation)> {
        let found = self.free.longest_below(self.geometry.zone_blocks).filter(|found| found.blocks >= least);
        let found = found.ok_or(Error::Full)?;
        let run = Run { blocks: found.blocks.min(blocks), ..found };
        Ok((run, self.reserve(run)))
    }

    /// Allocates one run for the index. May use the blocks that objects must leave free.
    pub(crate) fn allocate_one_for_index(&mut self, blocks: u64) -> Result<(Run, Allocation)> {
        let blocks = self.geometry.round_up_to_rows(blocks);
        let found = self.free.best_fit(blocks).ok_or(Error::Full)?;
        let run = Run { blocks, ..found };
        Ok((run, self.reserve(run)))
    }

    /// Allocates blocks for the index in as many runs as needed. May use the blocks that objects must leave free.
    pub(crate) fn allocate_for_index(&mut self, blocks: u64) -> Result<Vec<(Run, Allocation)>> {
        let blocks = self.geometry.round_up_to_rows(blocks);
        if self.free.blocks() < blocks {
            return Err(Error::Full);
        }
        let mut runs = Vec::new();
        let mut left = blocks;
        while left > 0 {
            let found = self.best_for_index(left).ok_or(Error::Full)?;
            let run = Run { blocks: found.blocks.min(left), ..found };
            runs.push((run, self.reserve(run)));
            left -= run.blocks;
        }
        Ok(runs)
    }

    /// Returns the best free run for the index. While zones are few, prefers runs that contain no whole zone.
    fn best_for_index(&self, blocks: u64) -> Option<Run> {
        let between = || self.free.longest_below(self.geometry.zone_blocks);
        let scarce = if self.free_space().free_zones() <= 2 * LOG_RESERVE_ZONES { between() } else { None };
        scarce.or_else(|| self.free.best_fit(blocks)).or_else(|| self.free.longest())
    }

    /// Takes a free run out of the free map as a new allocation.
    fn reserve(&mut self, run: Run) -> Allocation {
        assert!(self.free.remove(run), "the allocated run was free");
        self.last_allocation += 1;
        self.reservations.insert(run.start, (run.blocks, self.last_allocation));
        self.last_allocation
    }

    /// Frees the end of a reserved run, after the rows that contain `blocks`.
    pub(crate) fn trim(&mut self, run: Run, blocks: u64) -> Run {
        let blocks = self.geometry.round_up_to_rows(blocks);
        let reservation = self.reservations.get_mut(&run.start).filter(|(held, _)| *held == run.blocks);
        let fits = reservation.is_some() && blocks > 0 && blocks <= run.blocks;
        assert!(fits, "the run is reserved");
        if blocks < run.blocks {
            reservation.into_iter().for_each(|(held, _)| *held = blocks);
            assert!(
                self.free.insert(Run { start: run.start + blocks, blocks: run.blocks - blocks }),
                "the end of a reserved run is not free"
            );
        }
        Run { blocks, ..run }
    }

    /// Frees an allocated run, unless a commit took it over.
    pub(crate) fn drop_reservation(&mut self, run: Run, allocation: Allocation) {
        if self.reservations.get(&run.start).is_some_and(|(_, of)| *of == allocation) {
            self.free_reserved(run);
        }
    }

    /// Frees a reserved run. It becomes available once it is neither pinned nor scrubbed.
    pub(crate) fn free_reserved(&mut self, run: Run) {
        if self.reservations.remove(&run.start).is_some() {
            self.free_run(run);
        }
    }

    /// Reserves a run of the manifest or of a table. Returns false if it is not free. For `open`, after the replay of the log.
    pub(crate) fn reserve_for_open(&mut self, run: Run) -> bool {
        let is_free = self.free.contains(run);
        if is_free {
            self.reserve(run);
        }
        is_free
    }

    /// Adds a committed owner to a run. Returns false if the run is not on the device or not whole rows.
    pub(crate) fn retain(&mut self, run: Run) -> bool {
        if !self.geometry.contains(run) {
            return false;
        }
        if self.reservations.get(&run.start).is_some_and(|(blocks, _)| *blocks == run.blocks) {
            self.reservations.remove(&run.start);
        } else if self.pending_free.get(&run.start) == Some(&run.blocks) {
            self.pending_free.remove(&run.start);
        } else if !self.free.remove(run) {
            self.shared.entry(run.start).or_insert((run, 0)).1 += 1;
        }
        true
    }

    /// Removes a committed owner from a run. Returns false if the run has none or is not on the device.
    pub(crate) fn release(&mut self, run: Run) -> bool {
        if !self.geometry.contains(run) {
            return false;
        }
        match self.shared.get_mut(&run.start) {
            Some((_, more)) if *more > 1 => *more -= 1,
            Some(_) => drop(self.shared.remove(&run.start)),
            None => return self.free_run(run),
        }
        true
    }

    /// Frees a run, or notes that it becomes free later if it must stay taken. Returns false if it was free already.
    fn free_run(&mut self, run: Run) -> bool {
        match self.must_stay_taken(run) {
            true => self.pending_free.insert(run.start, run.blocks).is_none(),
            false => self.free.insert(run),
        }
    }

    /// Counts a reader of the run or zone that starts at a block, which must not be reused meanwhile.
    fn pin(&mut self, start: u64) {
        *self.pins.entry(start).or_default() += 1;
    }

    /// Ends what [`pin`](Self::pin) began.
    fn unpin(&mut self, start: u64) {
        let readers = self.pins.get(&start).copied().unwrap_or(0);
        // Paired with `pin`: a pin that ends twice would free blocks that another reader still reads.
        assert!(readers > 0, "the blocks from {start} on are not pinned");
        if readers > 1 {
            self.pins.insert(start, readers - 1);
        } else {
            self.pins.remove(&start);
            let pending_free = self.pending_free.get(&start).map(|&blocks| Run { start, blocks });
            if let Some(run) = pending_free.filter(|&run| !self.must_stay_taken(run)) {
                self.pending_free.remove(&start);
                self.free.insert(run);
            }
            let zone = start / self.geometry.zone_blocks;
            if start == self.geometry.zone_run(zone).start {
                self.free_if_dead(zone);
            }
        }
    }

    /// Sets the number of blocks that the next checkpoint may need.
    pub(crate) fn set_checkpoint_blocks(&mut self, blocks: u64) {
        self.checkpoint_blocks = blocks;
    }

    /// Returns the greatest length of a manifest of this space, in bytes.
    pub(crate) fn manifest_bytes_max(&self) -> u64 {
        // An upper bound, as the manifest joins adjacent free runs. A varint takes at most ten bytes.
        let runs = self.free.runs_count()
            + 2 * self.reservations.len()
            + self.pending_free.len()
            + self.log_reserve.len();
        let runs = runs + 2 * self.shared.len();
        (runs as u64 * 2 + self.log_zones.len() as u64 * 6 + 16) * 10
    }

    /// Returns the numbers of the free zones set aside for the log.
    pub(crate) fn log_reserve(&self) -> &[u64] {
        &self.log_reserve
    }

    /// Begins to set zones aside for the log.
    pub(crate) fn begin_log_reserve(&mut self) {
        self.has_log_reserve = true;
        self.refill_log_reserve();
    }

    /// Sets free zones aside for the log, up to the number that it must have.
    fn refill_log_reserve(&mut self) {
        while self.has_log_reserve
            && (self.log_reserve.len() as u64) < LOG_RESERVE_ZONES
            && let Some(zone) = self.spare_zone()
        {
            assert!(self.free.remove(self.geometry.zone_run(zone)), "the zone is free");
            self.log_reserve.push(zone);
        }
    }

    /// Returns the last free zone, if the index can spare it.
    fn spare_zone(&self) -> Option<u64> {
        self.free.last_zones().next().filter(|_| self.free_space().has_zone_for_log())
    }

    /// Returns the last free zones, at most `count`.
    pub(crate) fn last_free_zones(&self, count: usize) -> Vec<u64> {
        self.free.last_zones().take(count).collect()
    }

    /// Allocates the first zones of the log. For `format`.
    pub(crate) fn begin_log(&mut self) -> Result<()> {
        let (head, next) = (self.take_zone()?, self.take_zone()?);
        self.log_zones.begin(head, next);
        Ok(())
    }

    /// Allocates the zone after the log's next: the last free one, far from where runs begin, or one from the log
    /// reserve. Fails with [`Error::Full`].
    pub(crate) fn take_zone(&mut self) -> Result<u64> {
        let zone = match self.spare_zone() {
            Some(last) => {
                assert!(self.claim_zone(last), "the zone is free");
                last
            }
            None => {
                let spare = self.log_reserve.pop().ok_or(Error::Full)?;
                self.log_zones.add(spare);
                spare
            }
        };
        self.log_zones.announce(zone);
        Ok(zone)
    }

    /// Gives a zone to the log. Returns false if it is not free. For `open`, as a frame names the zone.
    pub(crate) fn claim_zone(&mut self, zone: u64) -> bool {
        let is_free = zone < self.geometry.zones() && self.free.remove(self.geometry.zone_run(zone));
        if is_free {
            self.log_zones.add(zone);
        }
        is_free
    }

    /// Records that `len` bytes of inline data are unused in the zone that contains the position `at`. Returns false,
    /// and records nothing, if the zone is not of the log or has fewer live bytes.
    pub(crate) fn mark_dead(&mut self, at: u64, len: u32) -> bool {
        self.log_zones.mark_dead(at / self.geometry.zone_bytes(), len)
    }

    /// Frees the zones that have no live bytes and that no recovery needs.
    pub(crate) fn free_dead_zones(&mut self) {
        self.log_zones.dead().into_iter().for_each(|zone| self.free_if_dead(zone));
        self.refill_log_reserve();
    }

    /// Frees a zone of the log if nothing in it is live and it may be reused.
    fn free_if_dead(&mut self, zone: u64) {
        let run = self.geometry.zone_run(zone);
        if self.log_zones.is_dead(zone) && !self.must_stay_taken(run) {
            self.log_zones.remove(zone);
            if !self.free.insert(run) {
                // Only a crafted frame can cause this. Blocks in doubt are not allocated.
                tracing::error!(
                    zone,
                    "blocks of a zone without live data are free already; the zone is not freed"
                );
            }
        }
    }

    /// Returns the free blocks.
    pub(crate) fn free(&self) -> &FreeMap {
        &self.free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Zone;

    /// A reader of a zone's former contents freed the zone while a commit was taking it.
    #[test]
    fn an_announced_zone_is_not_freed_by_its_last_reader() {
        let mut space = Space::new(Geometry { blocks: 4096, zone_blocks: 256, row_blocks: 1 });
        space.begin_log().unwrap();
        space.log_zones.set_needed_frame(2);
        let announced = space.take_zone().unwrap();
        let is_taken = |space: &Space| space.log_zones.iter().any(|(zone, _)| zone == announced);
        space.pin(space.geometry.zone_run(announced).start);
        space.unpin(space.geometry.zone_run(announced).start);
        space.free_dead_zones();
        assert!(is_taken(&space));
        space.log_zones.advance(announced);
        space.free_dead_zones();
        assert!(is_taken(&space));
    }

    /// Every commit searched all zones of the log for dead ones while it held the locks of log and space: 12.7 ms on a drive of 160,000
    /// zones. Now a commit visits only zones without live bytes, and whole free zones are counted without a search.
    #[test]
    fn a_commit_visits_only_zones_without_live_bytes() {
        const ZONES: u64 = 20_000;
        let geometry = Geometry { blocks: ZONES * 256, zone_blocks: 256, row_blocks: 1 };
        let live =
            Zone { last_frame: 1, used_bytes: 100, live_bytes: 10, inline_bytes: 20, entries_bytes: 5 };
        let zones: Vec<_> = (1..ZONES - 10).map(|zone| (zone, live)).collect();
        let start = (ZONES - 10) * 256;
        let free = vec![Run { start, blocks: 10 * 256 }];
        let (head_zone, next_zone) = (1, 2);
        let manifest = Manifest { zones, free, head_zone, next_zone, next_frame: 2, ..Manifest::default() };
        let mut space = Space::from_manifest(geometry, &manifest);
        assert_eq!((space.free_space().free_zones(), space.log_zones.dead_candidates()), (10, 0));
        let at = |zone: u64| zone * geometry.zone_bytes();
        for zone in [7, 9_000, ZONES - 11] {
            assert!(space.mark_dead(at(zone), 4));
            assert_eq!(space.log_zones.dead_candidates(), 0);
            assert!(space.mark_dead(at(zone), 6));
            assert_eq!(space.log_zones.dead_candidates(), 1);
            space.free_dead_zones();
            assert_eq!(space.log_zones.dead_candidates(), 0);
        }
        assert_eq!(space.free_space().free_zones(), 13);
        // A dead zone that is the log's head is freed only after the log has moved on.
        assert!(space.mark_dead(at(1), 10));
        space.free_dead_zones();
        assert_eq!((space.free_space().free_zones(), space.log_zones.dead_candidates()), (13, 1));
        let announced = space.take_zone().unwrap();
        space.log_zones.advance(announced);
        space.free_dead_zones();
        assert_eq!(space.free_space().free_zones(), 13);
        assert!(space.log_zones.iter().all(|(zone, _)| zone != 1));
    }

    /// A crafted frame made more blocks free than the device has.
    #[test]
    fn runs_beyond_the_device_are_neither_retained_nor_released() {
        let geometry = Geometry { blocks: 4096, zone_blocks: 256, row_blocks: 1 };
        let mut space = Space::new(geometry);
        let free = space.free().blocks();
        for (start, blocks) in [(10_176, 122_880), (4095, 2)] {
            let run = Run { start, blocks };
            assert!(!space.retain(run) && !space.release(run), "{run:?}");
        }
        assert_eq!(space.free().blocks(), free);
    }
}
