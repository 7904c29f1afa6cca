//! Free blocks: disjoint runs, neighbours joined, found by place and by length.

use crate::format::Run;
use std::collections::{BTreeMap, BTreeSet};

/// A set of blocks as the fewest runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Extents {
    by_start: BTreeMap<u64, u64>,
    /// Length, then start.
    by_len: BTreeSet<(u64, u64)>,
    blocks: u64,
}

impl Extents {
    /// How many blocks there are in all.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// How many runs there are.
    pub(crate) fn runs_count(&self) -> usize {
        self.by_start.len()
    }

    /// The runs, by place.
    pub(crate) fn runs(&self) -> impl Iterator<Item = Run> {
        self.by_start.iter().map(|(&start, &blocks)| Run { start, blocks })
    }

    /// The longest run.
    pub(crate) fn longest(&self) -> Option<Run> {
        self.by_len.last().map(|&(blocks, start)| Run { start, blocks })
    }

    /// The longest run of fewer blocks than these.
    pub(crate) fn longest_below(&self, blocks: u64) -> Option<Run> {
        self.by_len.range(..(blocks, 0)).next_back().map(|&(blocks, start)| Run { start, blocks })
    }

    /// The shortest run of at least so many blocks, the first of several.
    pub(crate) fn best(&self, blocks: u64) -> Option<Run> {
        self.by_len.range((blocks, 0)..).next().map(|&(blocks, start)| Run { start, blocks })
    }

    /// The runs of at least so many blocks.
    pub(crate) fn at_least(&self, blocks: u64) -> impl Iterator<Item = Run> {
        self.by_len.range((blocks, 0)..).map(|&(blocks, start)| Run { start, blocks })
    }

    /// Whether all of a run is in the set.
    pub(crate) fn holds(&self, run: Run) -> bool {
        self.around(run.start).is_some_and(|found| run.end() <= found.end())
    }

    /// Adds a run; `false` if a block of it was there already.
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

    /// Takes a run out; `false` if a block of it is not there.
    pub(crate) fn remove(&mut self, run: Run) -> bool {
        let Some(found) = self.around(run.start).filter(|found| run.end() <= found.end()) else {
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

    /// The run that a block is in.
    fn around(&self, block: u64) -> Option<Run> {
        let (&start, &blocks) = self.by_start.range(..=block).next_back()?;
        (block < start + blocks).then_some(Run { start, blocks })
    }

    fn add_run(&mut self, run: Run) {
        self.by_start.insert(run.start, run.blocks);
        self.by_len.insert((run.blocks, run.start));
        self.blocks += run.blocks;
    }

    fn drop_run(&mut self, run: Run) {
        self.by_start.remove(&run.start);
        self.by_len.remove(&(run.blocks, run.start));
        self.blocks -= run.blocks;
    }
}

impl FromIterator<Run> for Extents {
    fn from_iter<T: IntoIterator<Item = Run>>(runs: T) -> Self {
        let mut extents = Self::default();
        runs.into_iter().for_each(|run| {
            extents.insert(run);
        });
        extents
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn they_are_a_set_of_blocks(steps in prop::collection::vec((any::<bool>(), 0u64..60, 1u64..9), 0..60)) {
            let mut model = BTreeSet::new();
            let mut extents = Extents::default();
            for (inserts, start, blocks) in steps {
                let run = Run { start, blocks };
                let held = (start..run.end()).filter(|block| model.contains(block)).count() as u64;
                prop_assert_eq!(extents.holds(run), held == blocks);
                if inserts {
                    prop_assert_eq!(extents.insert(run), held == 0);
                    if held == 0 { model.extend(start..run.end()); }
                } else {
                    prop_assert_eq!(extents.remove(run), held == blocks);
                    if held == blocks { model.retain(|block| !(start..run.end()).contains(block)); }
                }
                prop_assert_eq!(extents.blocks(), model.len() as u64);
                let listed: Vec<u64> = extents.runs().flat_map(|run| run.start..run.end()).collect();
                prop_assert_eq!(listed, model.iter().copied().collect::<Vec<_>>());
                let joined = extents.runs().zip(extents.runs().skip(1)).all(|(one, next)| one.end() < next.start);
                prop_assert!(joined);
                let best = extents.best(3).map(|run| run.blocks);
                prop_assert_eq!(best, extents.runs().map(|run| run.blocks).filter(|&blocks| blocks >= 3).min());
            }
        }
    }
}
