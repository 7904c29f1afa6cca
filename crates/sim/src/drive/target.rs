//! Places that clients use: a drive, or several as a pool.

use drive::Drive;
use drive::pool::Pool;
use store::Buckets;

/// A place with buckets.
pub(super) trait StorageTarget: Buckets {
    /// The drives that it is made of.
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
