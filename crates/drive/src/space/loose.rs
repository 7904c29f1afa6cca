//! Holds on space that end with their holder: blocks that are being written, and blocks that are being read.

use super::{Allocation, Space};
use crate::error::Result;
use crate::format::{Body, Run};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The space as its holders share it.
pub(crate) type SharedSpace = Arc<Mutex<Space>>;

pub(crate) fn lock(space: &Mutex<Space>) -> MutexGuard<'_, Space> {
    space.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A run that nothing committed names yet. Dropped before something does, it is free again.
pub(crate) struct Loose {
    run: Run,
    allocation: Allocation,
    space: SharedSpace,
}

impl Loose {
    fn new(space: &SharedSpace, (run, allocation): (Run, Allocation)) -> Self {
        Self { run, allocation, space: space.clone() }
    }

    /// One run of so many blocks, or the longest there is, but none shorter than `least`; so many zones stay free.
    pub(crate) fn allocate(space: &SharedSpace, blocks: u64, least: u64, zones_left: u64) -> Result<Self> {
        let allocated = lock(space).allocate(blocks, least, zones_left)?;
        Ok(Self::new(space, allocated))
    }

    /// One run for the index.
    pub(crate) fn allocate_one_for_index(space: &SharedSpace, blocks: u64) -> Result<Self> {
        let allocated = lock(space).allocate_one_for_index(blocks)?;
        Ok(Self::new(space, allocated))
    }

    /// Blocks for the index, in as many runs as it takes.
    pub(crate) fn allocate_for_index(space: &SharedSpace, blocks: u64) -> Result<Vec<Self>> {
        let allocated = lock(space).allocate_for_index(blocks)?;
        Ok(allocated.into_iter().map(|allocated| Self::new(space, allocated)).collect())
    }

    pub(crate) fn run(&self) -> Run {
        self.run
    }

    /// Gives back what lies beyond so many blocks.
    pub(crate) fn trim(&mut self, blocks: u64) {
        self.run = lock(&self.space).trim(self.run, blocks);
    }

    /// The run stays taken until whoever has it now gives it back.
    pub(crate) fn keep(mut self) -> Run {
        self.allocation = 0;
        self.run
    }
}

impl Drop for Loose {
    fn drop(&mut self) {
        lock(&self.space).drop_loose(self.run, self.allocation);
    }
}

impl fmt::Debug for Loose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.run.fmt(f)
    }
}

/// Blocks that are being read, or written: they are given to nobody else while this is held.
pub(crate) struct Pins {
    starts: Vec<u64>,
    space: SharedSpace,
}

impl Pins {
    /// Nothing, to begin with.
    pub(crate) fn new(space: &SharedSpace) -> Self {
        Self { starts: Vec::new(), space: space.clone() }
    }

    /// What a body lies in.
    pub(crate) fn body(&mut self, body: &Body) {
        let geometry = lock(&self.space).geometry();
        let starts: Vec<u64> = match body {
            Body::Piece(piece) => vec![piece.at / geometry.zone_bytes() * geometry.zone_blocks],
            Body::Extents(extents) => extents.iter().map(|extent| extent.run.start).collect(),
            Body::Mark => Vec::new(),
        };
        self.add(starts);
    }

    /// A run.
    pub(crate) fn run(&mut self, run: Run) {
        self.add(vec![run.start]);
    }

    /// A pack zone.
    pub(crate) fn zone(&mut self, zone: u64) {
        let start = zone * lock(&self.space).geometry().zone_blocks;
        self.add(vec![start]);
    }

    fn add(&mut self, starts: Vec<u64>) {
        let mut space = lock(&self.space);
        starts.iter().for_each(|&start| space.pin(start));
        self.starts.extend(starts);
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        let mut space = lock(&self.space);
        self.starts.iter().for_each(|&start| space.unpin(start));
    }
}

impl fmt::Debug for Pins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pins").field("starts", &self.starts).finish_non_exhaustive()
    }
}

/// What must not be given out before a commit that names it is done.
#[derive(Debug, Clone)]
pub(crate) struct Hold(#[expect(dead_code, reason = "it is held, not used")] Arc<(Vec<Loose>, Option<Pins>)>);

impl Hold {
    /// New runs. They are nobody else's also when a commit that named them was undone by another: who did not hear of it may
    /// commit them once more.
    pub(crate) fn runs(loose: Vec<Loose>, space: &SharedSpace) -> Self {
        let mut pins = Pins::new(space);
        pins.add(loose.iter().map(|loose| loose.run.start).collect());
        Self(Arc::new((loose, Some(pins))))
    }

    /// What is another's too.
    pub(crate) fn pins(pins: Pins) -> Self {
        Self(Arc::new((Vec::new(), Some(pins))))
    }
}
