//! Space at the store, where it can be measured.

use std::fmt;
use std::sync::OnceLock;

/// The space of a disk or drive that holds the objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpace {
    /// Total size in bytes.
    pub total_bytes: u64,
    /// Free space in bytes.
    pub available_bytes: u64,
}

/// A function that returns the current space; `None` if it cannot be determined. Must not block.
pub type MeasureDiskSpace = Box<dyn Fn() -> Option<DiskSpace> + Send + Sync>;

/// The function that measures space; unset for a store without a size limit.
#[derive(Default)]
pub(crate) struct SpaceSource(OnceLock<MeasureDiskSpace>);

impl SpaceSource {
    /// Sets the function that measures space. Only the first call has an effect.
    pub(crate) fn set(&self, measure: MeasureDiskSpace) {
        let _ = self.0.set(measure);
    }

    /// Returns the current space, if known.
    pub(crate) fn now(&self) -> Option<DiskSpace> {
        self.0.get()?()
    }
}

impl fmt::Debug for SpaceSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SpaceSource").field(&self.now()).finish()
    }
}
