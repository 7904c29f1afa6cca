//! Guards on space: reservations of blocks to write, and pins on blocks that are being read or written.

use super::{Allocation, Space};
use crate::error::Result;
use crate::format::{Body, Run};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The space, shared by its guards.
pub(crate) type SharedSpace = Arc<Mutex<Space>>;

pub(crate) fn lock(space: &Mutex<Space>) -> MutexGuard<'_, Space> {
    space.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A reserved run that nothing committed refers to. Dropping a reservation frees the run, unless a commit took it over.
pub(crate) struct Reservation {
    run: Run,
    allocation: Allocation,
    space: SharedSpace,
}

impl Reservation {
    fn new(space: &SharedSpace, (run, allocation): (Run, Allocation)) -> Self {
        Self { run, allocation, space: space.clone() }
    }

    /// Reserves a run of `blocks`, or the longest available if it has at least `least` blocks. Leaves `zones_left` zones free.
    pub(crate) fn allocate(space: &SharedSpace, blocks: u64, least: u64, zones_left: u64) -> Result<Self> {
        let allocated = lock(space).allocate(blocks, least, zones_left)?;
        Ok(Self::new(space, allocated))
    }

    /// Reserves one run for the index.
    pub(crate) fn allocate_one_for_index(space: &SharedSpace, blocks: u64) -> Result<Self> {
        let allocated = lock(space).allocate_one_for_index(blocks)?;
        Ok(Self::new(space, allocated))
    }

    /// Reserves blocks for the index, in as many runs as needed.
    pub(crate) fn allocate_for_index(space: &SharedSpace, blocks: u64) -> Result<Vec<Self>> {
        let allocated = lock(space).allocate_for_index(blocks)?;
        Ok(allocated.into_iter().map(|allocated| Self::new(space, allocated)).collect())
    }

    pub(crate) fn run(&self) -> Run {
        self.run
    }

    /// Frees the end of the run, so that `blocks` remain.
    pub(crate) fn trim(&mut self, blocks: u64) {
        self.run = lock(&self.space).trim(self.run, blocks);
    }

    /// Ends the guard without freeing the run: from now on the caller has to free it.
    pub(crate) fn into_run(mut self) -> Run {
        self.allocation = 0;
        self.run
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        lock(&self.space).drop_reservation(self.run, self.allocation);
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.run.fmt(f)
    }
}

/// Pins on blocks that are being read or written: they are not allocated again while this exists.
pub(crate) struct Pins {
    /// The first blocks of the pinned runs and zones.
    starts: Vec<u64>,
    space: SharedSpace,
}

impl Pins {
    /// Makes an empty set of pins.
    pub(crate) fn new(space: &SharedSpace) -> Self {
        Self { starts: Vec::new(), space: space.clone() }
    }

    /// Pins the blocks of a body.
    pub(crate) fn pin_body(&mut self, body: &Body) {
        let geometry = lock(&self.space).geometry();
        let starts: Vec<u64> = match body {
            Body::Inline(inline) => vec![inline.at / geometry.zone_bytes() * geometry.zone_blocks],
            Body::Runs(slices) => slices.iter().map(|slice| slice.run.start).collect(),
            Body::DeleteMarker => Vec::new(),
        };
        self.add(starts);
    }

    /// Pins a run.
    pub(crate) fn pin_run(&mut self, run: Run) {
        self.add(vec![run.start]);
    }

    /// Pins a pack zone.
    pub(crate) fn pin_zone(&mut self, zone: u64) {
        let start = zone * lock(&self.space).geometry().zone_blocks;
        self.add(vec![start]);
    }

    /// Pins further runs or zones.
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

/// Guards that a commit keeps until it is done, for the blocks it refers to. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Hold(
    #[expect(dead_code, reason = "it is held, not used")] Arc<(Vec<Reservation>, Option<Pins>)>,
);

impl Hold {
    /// Holds newly written runs. The pins keep them from reuse even if a commit that named them is undone by another commit: a caller
    /// that missed the first outcome may commit them again.
    pub(crate) fn runs(reservations: Vec<Reservation>, space: &SharedSpace) -> Self {
        let mut pins = Pins::new(space);
        pins.add(reservations.iter().map(|reservations| reservations.run.start).collect());
        Self(Arc::new((reservations, Some(pins))))
    }

    /// Holds blocks that another object owns too.
    pub(crate) fn pins(pins: Pins) -> Self {
        Self(Arc::new((Vec::new(), Some(pins))))
    }
}
