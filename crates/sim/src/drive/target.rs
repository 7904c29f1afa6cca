//! The systems under test: a drive, or several drives as a pool.

use drive::Drive;
use drive::pool::Pool;
use store::Buckets;

/// A store with buckets.
pub(super) trait StorageTarget: Buckets {
    /// Returns the drives of the store.
    fn drives(&self) -> Vec<Drive>;
}

impl StorageTarget for Drive {
    fn drives(&self) -> Vec<Drive> {
        vec![self.clone()]
    }
}

impl StorageTarget for Pool {
    fn drives(&self) -> Vec<Drive> {
        Pool::drives(self).into_iter().map(|(_, drive)| drive).collect()
    }
}
