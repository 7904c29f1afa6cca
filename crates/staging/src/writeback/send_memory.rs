//! Memory for bodies that are being uploaded.

use std::sync::Arc;
use store::{Result, StoreError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Unit in which [`SendMemory`] counts memory, in bytes.
const UNIT_BYTES: u64 = 64 << 10;

/// Memory for bodies that are being uploaded.
#[derive(Debug, Clone)]
pub(super) struct SendMemory {
    /// Units of [`UNIT_BYTES`] that are free.
    free: Arc<Semaphore>,
    units: u32,
}

impl SendMemory {
    pub(super) fn new(bytes: u64) -> Self {
        let units = u32::try_from(bytes / UNIT_BYTES).unwrap_or(u32::MAX >> 4).clamp(1, u32::MAX >> 4);
        Self { free: Arc::new(Semaphore::new(units as usize)), units }
    }

    /// Returns the units of a body. A body longer than all memory takes all of it.
    fn units(&self, bytes: u64) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX).clamp(1, self.units)
    }

    /// Waits until there is memory for a body of this length, and takes it until the permit is dropped.
    pub(super) async fn take(&self, bytes: u64) -> Result<OwnedSemaphorePermit> {
        let taken = self.free.clone().acquire_many_owned(self.units(bytes)).await;
        taken.map_err(|_| StoreError::Unavailable("the write-back log is closed".into()))
    }

    /// Takes memory for a body if some is free now.
    pub(super) fn try_take(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        self.free.clone().try_acquire_many_owned(self.units(bytes)).ok()
    }
}
