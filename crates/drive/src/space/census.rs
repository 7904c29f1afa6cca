//! The census: what the space says of every block against what the index names.

use super::{Extents, Space};
use crate::format::{Body, Run};
use std::collections::BTreeMap;

/// What the entries of the index name.
#[derive(Debug, Default)]
pub(crate) struct Named {
    /// How many extents lie in a run.
    runs: BTreeMap<Run, u64>,
    /// By zone, how many bytes of pieces.
    pieces: BTreeMap<u64, u64>,
}

/// How the blocks are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Census {
    pub(crate) free_blocks: u64,
    /// Of runs that entries of the index name.
    pub(crate) named_blocks: u64,
    /// Of tables, the manifest, and what is being written or still read.
    pub(crate) held_blocks: u64,
    /// Of pack zones.
    pub(crate) zone_blocks: u64,
}

impl Named {
    /// An entry names this body.
    pub(crate) fn body(&mut self, body: &Body, zone_bytes: u64) {
        match body {
            Body::Piece(piece) => {
                *self.pieces.entry(piece.at / zone_bytes).or_default() += u64::from(piece.len)
            }
            Body::Extents(extents) => {
                extents.iter().for_each(|extent| *self.runs.entry(extent.run).or_default() += 1);
            }
            Body::Mark => {}
        }
    }
}

impl Space {
    /// Compares with what the index names, while nobody changes it. The problems, one line each.
    pub(crate) fn census(&self, named: &Named) -> (Census, Vec<String>) {
        let mut problems = Vec::new();
        self.check_owners(named, &mut problems);
        self.check_zones(named, &mut problems);
        let mut seen: Extents = self.free.clone();
        let mut count = |runs: &mut dyn Iterator<Item = Run>, whose: &str| {
            let mut blocks = 0;
            for run in runs {
                blocks += run.blocks;
                if !seen.insert(run) {
                    problems.push(format!("{run:?} of {whose} has blocks that are somebody else's too"));
                }
            }
            blocks
        };
        let held = self.loose.iter().map(|(&start, &(blocks, _))| Run { start, blocks });
        let doomed = self.doomed.iter().map(|(&start, &blocks)| Run { start, blocks });
        let census = Census {
            free_blocks: self.free_blocks(),
            named_blocks: count(&mut named.runs.keys().copied(), "an object"),
            held_blocks: count(&mut held.chain(doomed), "a writer or reader"),
            zone_blocks: count(&mut self.zones.keys().map(|&zone| self.zone_run(zone)), "a zone"),
        };
        count(&mut self.spares.iter().map(|&zone| self.zone_run(zone)), "the log");
        count(&mut std::iter::once(self.geometry.superblocks()), "the superblocks");
        if seen.blocks() != self.geometry.blocks {
            let lost = self.geometry.blocks - seen.blocks().min(self.geometry.blocks);
            problems.push(format!("{lost} blocks are nobody's, and not free"));
        }
        (census, problems)
    }

    fn check_owners(&self, named: &Named, problems: &mut Vec<String>) {
        for (run, &owners) in &named.runs {
            let counted = 1 + self.shared.get(&run.start).map_or(0, |&(_, more)| u64::from(more));
            if counted != owners {
                problems.push(format!("{run:?} has {owners} owners, and {counted} are counted"));
            }
        }
        for (run, more) in self.shared.values() {
            if !named.runs.contains_key(run) {
                problems.push(format!("{run:?} has no owner, and {} are counted", more + 1));
            }
        }
    }

    fn check_zones(&self, named: &Named, problems: &mut Vec<String>) {
        for (zone, entry) in self.zones() {
            let live_bytes = named.pieces.get(&zone).copied().unwrap_or(0);
            if entry.live_bytes != live_bytes {
                let counted = entry.live_bytes;
                problems.push(format!("zone {zone} has {live_bytes} bytes alive, and {counted} are counted"));
            }
            if entry.used_bytes > self.geometry.zone_bytes() {
                problems.push(format!("zone {zone} has frames beyond its end"));
            }
        }
        for zone in named.pieces.keys().filter(|zone| !self.zones.contains_key(zone)) {
            problems.push(format!("zone {zone} has objects, and is no zone of the log"));
        }
    }
}
