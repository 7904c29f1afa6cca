//! The audit: compares the state of every block with the blocks that index entries refer to.

use super::{FreeMap, Space};
use crate::format::{Body, Run};
use std::collections::BTreeMap;

/// Blocks that index entries refer to.
#[derive(Debug, Default)]
pub(crate) struct References {
    /// The number of slices in records that refer to each run.
    runs: BTreeMap<Run, u64>,
    /// Bytes of inline data, by zone.
    inline: BTreeMap<u64, u64>,
}

/// Number of blocks by use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct BlockCounts {
    pub(crate) free_blocks: u64,
    /// Blocks of runs that index entries refer to.
    pub(crate) named_blocks: u64,
    /// Blocks of tables and the manifest, and blocks that are being written or still read.
    pub(crate) held_blocks: u64,
    /// Blocks of pack zones.
    pub(crate) zone_blocks: u64,
}

impl References {
    /// Adds the blocks of an entry's body.
    pub(crate) fn add_body(&mut self, body: &Body, zone_bytes: u64) {
        match body {
            Body::Inline(inline) => {
                *self.inline.entry(inline.at / zone_bytes).or_default() += u64::from(inline.len)
            }
            Body::Runs(slices) => {
                slices.iter().for_each(|slice| *self.runs.entry(slice.run).or_default() += 1);
            }
            Body::DeleteMarker => {}
        }
    }
}

impl Space {
    /// Compares the space with the blocks that index entries refer to. The index must not change meanwhile. Returns the block counts and
    /// the problems, one line each.
    pub(crate) fn audit(&self, references: &References) -> (BlockCounts, Vec<String>) {
        let mut problems = Vec::new();
        self.check_owners(references, &mut problems);
        self.check_zones(references, &mut problems);
        let mut seen: FreeMap = self.free.clone();
        let mut count = |runs: &mut dyn Iterator<Item = Run>, whose: &str| {
            let mut blocks = 0;
            for run in runs {
                blocks += run.blocks;
                if !seen.insert(run) {
                    problems.push(format!("{run:?} of {whose} overlaps blocks with another use"));
                }
            }
            blocks
        };
        let reserved = self.reservations.iter().map(|(&start, &(blocks, _))| Run { start, blocks });
        let pending_free = self.pending_free.iter().map(|(&start, &blocks)| Run { start, blocks });
        let counts = BlockCounts {
            free_blocks: self.free_space().free_blocks(),
            named_blocks: count(&mut references.runs.keys().copied(), "an object"),
            held_blocks: count(&mut reserved.chain(pending_free), "a writer, reader or table"),
            zone_blocks: count(
                &mut self.log_zones.iter().map(|(zone, _)| self.geometry.zone_run(zone)),
                "a zone",
            ),
        };
        count(&mut self.log_reserve.iter().map(|&zone| self.geometry.zone_run(zone)), "the log");
        count(&mut std::iter::once(self.geometry.superblocks()), "the superblocks");
        if seen.blocks() != self.geometry.blocks {
            let lost = self.geometry.blocks - seen.blocks().min(self.geometry.blocks);
            problems.push(format!("{lost} blocks are neither used nor free"));
        }
        (counts, problems)
    }

    fn check_owners(&self, references: &References, problems: &mut Vec<String>) {
        for (run, &owners) in &references.runs {
            let counted = 1 + self.shared.get(&run.start).map_or(0, |&(_, more)| u64::from(more));
            if counted != owners {
                problems.push(format!("{run:?} has {owners} owners, but the space counts {counted}"));
            }
        }
        for (run, more) in self.shared.values() {
            if !references.runs.contains_key(run) {
                problems.push(format!("{run:?} has no owner, but the space counts {}", more + 1));
            }
        }
    }

    fn check_zones(&self, references: &References, problems: &mut Vec<String>) {
        for (zone, entry) in self.log_zones.iter() {
            let live_bytes = references.inline.get(&zone).copied().unwrap_or(0);
            if entry.live_bytes != live_bytes {
                let counted = entry.live_bytes;
                problems
                    .push(format!("zone {zone} has {live_bytes} live bytes, but the space counts {counted}"));
            }
            if entry.used_bytes > self.geometry.zone_bytes() {
                problems.push(format!("zone {zone} has frames beyond its end"));
            }
        }
        for zone in references.inline.keys().filter(|zone| self.log_zones.get(**zone).is_none()) {
            problems.push(format!("zone {zone} has objects, but is not a zone of the log"));
        }
    }
}
