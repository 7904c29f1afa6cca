//! Holds on space that end with their holder: blocks that are being written, and blocks that are being read.

use super::Space;
use crate::error::Result;
use crate::format::{Extent, Piece, Run};
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
    is_kept: bool,
    space: SharedSpace,
}

impl Loose {
    /// One run of so many blocks, or the longest there is, but none shorter than `least`.
    pub(crate) fn allocate(space: &SharedSpace, blocks: u64, least: u64) -> Result<Self> {
        let run = lock(space).allocate(blocks, least)?;
        Ok(Self::claimed(space, run))
    }

    /// One run for the index.
    pub(crate) fn allocate_one_for_index(space: &SharedSpace, blocks: u64) -> Result<Self> {
        let run = lock(space).allocate_one_for_index(blocks)?;
        Ok(Self::claimed(space, run))
    }

    /// Blocks for the index, in as many runs as it takes.
    pub(crate) fn allocate_for_index(space: &SharedSpace, blocks: u64) -> Result<Vec<Self>> {
        let runs = lock(space).allocate_for_index(blocks)?;
        Ok(runs.into_iter().map(|run| Self::claimed(space, run)).collect())
    }

    /// A run that the space already knows as loose.
    pub(crate) fn claimed(space: &SharedSpace, run: Run) -> Self {
        Self { run, is_kept: false, space: space.clone() }
    }

    pub(crate) fn run(&self) -> Run {
        self.run
    }

    /// Gives back what lies beyond so many blocks.
    pub(crate) fn trim(&mut self, blocks: u64) {
        self.run = lock(&self.space).trim(self.run, blocks);
    }

    /// The run stays taken when its holder goes: what names it is on the device.
    pub(crate) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Loose {
    fn drop(&mut self) {
        if !self.is_kept {
            lock(&self.space).drop_loose(self.run);
        }
    }
}

impl fmt::Debug for Loose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.run.fmt(f)
    }
}

/// Blocks that are being read: nobody writes to them while this is held.
pub(crate) struct Pins {
    starts: Vec<u64>,
    space: SharedSpace,
}

impl Pins {
    /// Nothing, to begin with.
    pub(crate) fn new(space: &SharedSpace) -> Self {
        Self { starts: Vec::new(), space: space.clone() }
    }

    pub(crate) fn piece(&mut self, piece: &Piece) {
        let mut space = lock(&self.space);
        let start = piece.at / space.geometry().zone_bytes() * space.geometry().zone_blocks;
        space.pin(start);
        self.starts.push(start);
    }

    pub(crate) fn extents(&mut self, extents: &[Extent]) {
        let mut space = lock(&self.space);
        extents.iter().for_each(|extent| space.pin(extent.run.start));
        self.starts.extend(extents.iter().map(|extent| extent.run.start));
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
