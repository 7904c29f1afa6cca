//! Scrub guard: a range of blocks that are not reused while a scrub compares what each device holds of them.
//!
//! Committed blocks that are released meanwhile become free when the guard is dropped. Free blocks of the range may be allocated: the
//! scrub does not touch them.

use super::{SharedSpace, Space, lock};
use crate::device::BLOCK_BYTES;
use crate::format::Run;

/// Blocks of objects and frames that are not written to while the guard exists.
#[derive(Debug)]
pub(crate) struct ScrubGuard {
    space: SharedSpace,
    /// The guarded range, in which `runs` are committed.
    range: Run,
    runs: Vec<Run>,
}

impl ScrubGuard {
    /// Guards a range of at most `rows` rows, which begins at the first block from `from` on that is not free. Returns
    /// `None` at the end of the device, or if another guard exists.
    pub(crate) fn next(shared: &SharedSpace, from: u64, rows: u64) -> Option<Self> {
        let mut space = lock(shared);
        let (end, row_blocks) = (space.geometry.blocks, space.geometry.row_blocks);
        let start = space.free.end_of_run_at(from).unwrap_or(from);
        if start >= end || space.scrubbed.is_some() {
            return None;
        }
        let range = Run { start, blocks: (rows * row_blocks).min(end - start) };
        let runs = space.committed_in(range);
        space.scrubbed = Some(range);
        Some(Self { space: shared.clone(), range, runs })
    }

    /// Returns the committed runs of the range.
    pub(crate) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Returns the block after the range.
    pub(crate) fn end(&self) -> u64 {
        self.range.end()
    }
}

impl Drop for ScrubGuard {
    fn drop(&mut self) {
        let mut space = lock(&self.space);
        space.scrubbed = None;
        let is_in = |run: &Run| overlaps(*run, self.range);
        let pending_free = space.pending_free.iter().map(|(&start, &blocks)| Run { start, blocks });
        let left: Vec<Run> =
            pending_free.filter(is_in).filter(|run| !space.pins.contains_key(&run.start)).collect();
        for run in left {
            space.pending_free.remove(&run.start);
            space.free.insert(run);
        }
        space.free_dead_zones();
    }
}

pub(super) fn overlaps(one: Run, other: Run) -> bool {
    one.start < other.end() && other.start < one.end()
}

impl Space {
    /// Returns whether blocks stay taken when they are released, because they are being read or scrubbed.
    pub(super) fn must_stay_taken(&self, run: Run) -> bool {
        self.pins.contains_key(&run.start) || self.scrubbed.is_some_and(|range| overlaps(range, run))
    }

    /// Returns the blocks of a range that hold committed objects or whole frames. Tables and the manifest (which are reserved) and the
    /// superblocks are excluded.
    fn committed_in(&self, range: Run) -> Vec<Run> {
        let size = self.geometry.zone_blocks;
        let reservations = self.reservations.iter().map(|(&start, &(blocks, _))| Run { start, blocks });
        let pending_free = self.pending_free.iter().map(|(&start, &blocks)| Run { start, blocks });
        let log_reserve = self.log_reserve.iter().map(|&zone| self.geometry.zone_run(zone));
        let zones = range.start / size..=(range.end() - 1) / size;
        let unwritten = zones.filter_map(|zone| {
            let (run, entry) = (self.geometry.zone_run(zone), self.log_zones.get(zone)?);
            let start = run.start + entry.used_bytes / BLOCK_BYTES;
            Some(Run { start, blocks: run.end() - start })
        });
        let others = reservations
            .chain(pending_free)
            .chain(log_reserve)
            .chain(unwritten)
            .chain([self.geometry.superblocks()]);
        let mut others: Vec<Run> = others.chain(self.free.overlapping(range)).collect();
        others.retain(|run| run.blocks > 0 && overlaps(*run, range));
        others.sort_unstable();
        let mut from = range.start;
        let mut committed = Vec::new();
        for other in others.into_iter().chain([Run { start: range.end(), blocks: 0 }]) {
            if other.start > from {
                committed.push(Run { start: from, blocks: other.start - from });
            }
            from = from.max(other.end());
        }
        committed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Geometry;
    use std::sync::{Arc, Mutex};

    /// A scrub of a drive in use reads data and parity of rows, and rewrites parity. Blocks whose object was deleted meanwhile, and which
    /// were allocated for another object, would get the parity of the first.
    #[test]
    fn scrubbed_blocks_are_not_reused_before_the_scrub_ends() {
        let shared: SharedSpace =
            Arc::new(Mutex::new(Space::new(Geometry { blocks: 4096, zone_blocks: 256, row_blocks: 1 })));
        let runs: Vec<Run> = {
            let mut space = lock(&shared);
            space.begin_log().unwrap();
            let runs: Vec<Run> = (0..4).map(|_| space.allocate(8, 8, 0).unwrap().0).collect();
            assert!(runs[..3].iter().all(|&run| space.retain(run)));
            runs
        };
        let free = lock(&shared).free().blocks();
        let scrubbed = ScrubGuard::next(&shared, 0, 32).unwrap();
        // The first three, which are adjacent; the fourth is reserved and being written.
        let objects = Run { start: runs[0].start, blocks: 24 };
        assert_eq!(scrubbed.runs(), [objects]);
        assert!(ScrubGuard::next(&shared, 0, 32).is_none());
        {
            let mut space = lock(&shared);
            assert!(space.release(runs[1]));
            // The run is released already: a second release contradicts the space.
            assert!(!space.can_apply(&[crate::format::Change::Release(runs[1])]));
            space.pin(runs[0].start);
            assert!(space.release(runs[0]));
            space.unpin(runs[0].start);
            let (other, _) = space.allocate(8, 8, 0).unwrap();
            assert!(!overlaps(other, objects), "{other:?}");
            space.free_reserved(other);
            space.pin(runs[2].start);
            assert!(space.release(runs[2]));
            assert_eq!(space.free().blocks(), free);
        }
        let end = scrubbed.end();
        drop(scrubbed);
        assert_eq!(lock(&shared).free().blocks(), free + 16);
        lock(&shared).unpin(runs[2].start);
        assert_eq!(lock(&shared).free().blocks(), free + 24);
        // Beyond the objects only zones of the log are in use, and they are unwritten.
        let mut from = end;
        while let Some(scrubbed) = ScrubGuard::next(&shared, from, 32) {
            assert_eq!(scrubbed.runs(), []);
            from = scrubbed.end();
        }
    }
}
