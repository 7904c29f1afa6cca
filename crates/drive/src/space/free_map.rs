//! The free-space map: disjoint runs, with neighbours joined, found by position and by length.

use crate::format::Run;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A set of blocks, kept as the fewest possible runs.
#[derive(Debug, Clone, Default)]
pub(crate) struct FreeMap {
    /// Lengths by start.
    by_start: BTreeMap<u64, u64>,
    /// Pairs of length and start.
    by_len: BTreeSet<(u64, u64)>,
    /// The number of blocks in the set.
    blocks: u64,
    /// The length of a zone in blocks; 0 if whole zones are not counted.
    zone_blocks: u64,
    /// The starts of runs that contain whole zones, and the number of those zones.
    with_zones: BTreeSet<u64>,
    whole_zones: u64,
}

impl FreeMap {
    /// Makes a map of these runs.
    pub(crate) fn new(zone_blocks: u64, runs: impl IntoIterator<Item = Run>) -> Self {
        let mut map = Self { zone_blocks, ..Self::default() };
        runs.into_iter().for_each(|run| {
            map.insert(run);
        });
        map
    }

    /// Returns the number of zones of which all blocks are in the map.
    pub(crate) fn whole_zones(&self) -> u64 {
        self.whole_zones
    }

    /// Returns the zones of which all blocks are in the map, the last first.
    pub(crate) fn last_zones(&self) -> impl Iterator<Item = u64> {
        let runs = self.with_zones.iter().rev().filter_map(|start| self.run_at(*start));
        runs.flat_map(|run| self.zones_of(run).rev())
    }

    /// Returns the zones that lie in a run as a whole.
    fn zones_of(&self, run: Run) -> Range<u64> {
        match self.zone_blocks {
            0 => 0..0,
            size => run.start.div_ceil(size)..(run.end() / size).max(run.start.div_ceil(size)),
        }
    }

    /// Returns the number of blocks.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns the number of runs.
    pub(crate) fn runs_count(&self) -> usize {
        self.by_start.len()
    }

    /// Returns the runs by position.
    pub(crate) fn runs(&self) -> impl Iterator<Item = Run> {
        self.by_start.iter().map(|(&start, &blocks)| Run { start, blocks })
    }

    /// Returns the longest run.
    pub(crate) fn longest(&self) -> Option<Run> {
        self.by_len.last().map(|&(blocks, start)| Run { start, blocks })
    }

    /// Returns the longest run that is shorter than `blocks`.
    pub(crate) fn longest_below(&self, blocks: u64) -> Option<Run> {
        self.by_len.range(..(blocks, 0)).next_back().map(|&(blocks, start)| Run { start, blocks })
    }

    /// Returns the shortest run of at least `blocks`, the first of several.
    pub(crate) fn best_fit(&self, blocks: u64) -> Option<Run> {
        self.by_len.range((blocks, 0)..).next().map(|&(blocks, start)| Run { start, blocks })
    }

    /// Returns whether all blocks of a run are in the map.
    pub(crate) fn contains(&self, run: Run) -> bool {
        self.run_at(run.start).is_some_and(|found| run.end() <= found.end())
    }

    /// Adds a run. Returns false, and adds nothing, if a block of the run is in the map.
    pub(crate) fn insert(&mut self, run: Run) -> bool {
        let before =
            self.by_start.range(..=run.start).next_back().map(|(&start, &blocks)| Run { start, blocks });
        let after = self.by_start.range(run.start..).next().map(|(&start, &blocks)| Run { start, blocks });
        if before.is_some_and(|before| before.end() > run.start)
            || after.is_some_and(|after| after.start < run.end())
        {
            return false;
        }
        let (mut start, mut end) = (run.start, run.end());
        if let Some(before) = before.filter(|before| before.end() == start) {
            self.drop_run(before);
            start = before.start;
        }
        if let Some(after) = after.filter(|after| after.start == end) {
            self.drop_run(after);
            end = after.end();
        }
        self.add_run(Run { start, blocks: end - start });
        true
    }

    /// Removes a run. Returns false, and removes nothing, if a block of the run is not in the map.
    pub(crate) fn remove(&mut self, run: Run) -> bool {
        let Some(found) = self.run_at(run.start).filter(|found| run.end() <= found.end()) else {
            return false;
        };
        self.drop_run(found);
        if found.start < run.start {
            self.add_run(Run { start: found.start, blocks: run.start - found.start });
        }
        if run.end() < found.end() {
            self.add_run(Run { start: run.end(), blocks: found.end() - run.end() });
        }
        true
    }

    /// Returns the runs that have blocks of a range, the last first.
    pub(crate) fn overlapping(&self, range: Run) -> impl Iterator<Item = Run> {
        let runs = self.by_start.range(..range.end()).rev().map(|(&start, &blocks)| Run { start, blocks });
        runs.take_while(move |run| run.end() > range.start)
    }

    /// Returns the end of the run that contains a block; `None` if the block is not in the map.
    pub(crate) fn end_of_run_at(&self, block: u64) -> Option<u64> {
        self.run_at(block).map(|run| run.end())
    }

    /// Returns the run that contains a block.
    fn run_at(&self, block: u64) -> Option<Run> {
        let (&start, &blocks) = self.by_start.range(..=block).next_back()?;
        (block < start + blocks).then_some(Run { start, blocks })
    }

    /// Adds a free run to all indexes.
    fn add_run(&mut self, run: Run) {
        let is_new = self.by_start.insert(run.start, run.blocks).is_none();
        // Paired with `drop_run`: an allocation by length must find exactly the runs that exist by position.
        assert!(self.by_len.insert((run.blocks, run.start)) && is_new, "{run:?} is free already");
        self.blocks += run.blocks;
        let zones = self.zones_of(run);
        if !zones.is_empty() {
            self.with_zones.insert(run.start);
            self.whole_zones += zones.end - zones.start;
        }
    }

    /// Removes a free run from all indexes.
    fn drop_run(&mut self, run: Run) {
        let by_start = self.by_start.remove(&run.start);
        // Paired with `add_run`.
        assert!(self.by_len.remove(&(run.blocks, run.start)), "{run:?} is not free by length");
        assert_eq!(by_start, Some(run.blocks), "{run:?} is not free by position");
        self.blocks -= run.blocks;
        let zones = self.zones_of(run);
        if !zones.is_empty() {
            self.with_zones.remove(&run.start);
            self.whole_zones -= zones.end - zones.start;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_free_map_equals_a_set_of_blocks(steps in prop::collection::vec((any::<bool>(), 0u64..60, 1u64..9), 0..60)) {
            let mut model = BTreeSet::new();
            let mut map = FreeMap::new(4, []);
            for (inserts, start, blocks) in steps {
                let run = Run { start, blocks };
                let held = (start..run.end()).filter(|block| model.contains(block)).count() as u64;
                prop_assert_eq!(map.contains(run), held == blocks);
                if inserts {
                    prop_assert_eq!(map.insert(run), held == 0);
                    if held == 0 { model.extend(start..run.end()); }
                } else {
                    prop_assert_eq!(map.remove(run), held == blocks);
                    if held == blocks { model.retain(|block| !(start..run.end()).contains(block)); }
                }
                prop_assert_eq!(map.blocks(), model.len() as u64);
                let listed: Vec<u64> = map.runs().flat_map(|run| run.start..run.end()).collect();
                prop_assert_eq!(listed, model.iter().copied().collect::<Vec<_>>());
                let joined = map.runs().zip(map.runs().skip(1)).all(|(one, next)| one.end() < next.start);
                prop_assert!(joined);
                let is_whole = |zone: &u64| (4 * zone..4 * zone + 4).all(|block| model.contains(&block));
                let whole: Vec<u64> = (0..20).rev().filter(is_whole).collect();
                prop_assert_eq!(map.whole_zones(), whole.len() as u64);
                prop_assert_eq!(map.last_zones().collect::<Vec<_>>(), whole);
                let best_fit = map.best_fit(3).map(|run| run.blocks);
                prop_assert_eq!(best_fit, map.runs().map(|run| run.blocks).filter(|&blocks| blocks >= 3).min());
            }
        }
    }
}
