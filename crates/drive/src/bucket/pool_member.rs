//! Pool member: queries that a pool makes to the bucket on one of its drives, to place keys and to find them.

use super::DriveBucket;
use super::key_versions::KeyVersions;
use crate::error::Result;
use crate::format::IndexKey;
use store::ObjectKey;

/// A bucket on a drive of a pool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PoolMember<'a>(pub(crate) &'a DriveBucket);

impl PoolMember<'_> {
    /// Returns whether the drive has the current object of a key, or `None` if its index cannot tell from memory.
    pub(crate) fn has_current_in_memory(self, key: &ObjectKey) -> Option<bool> {
        let entry = IndexKey::object(self.0.id, key);
        self.0.frontend.engine.index.get_in_memory(&entry.0).map(|value| value.is_some())
    }

    /// Returns whether the drive has the current object of a key.
    pub(crate) async fn has_current(self, key: &ObjectKey) -> Result<bool> {
        Ok(self.0.frontend.entry(&IndexKey::object(self.0.id, key)).await?.is_some())
    }

    /// Returns whether the drive has older versions or delete markers of a key.
    pub(crate) async fn has_older_versions(self, key: &ObjectKey) -> Result<bool> {
        Ok(!KeyVersions { bucket: self.0, key }.older(1).await?.is_empty())
    }

    /// Fails if the drive does not accept writes.
    pub(crate) fn check_writable(self) -> Result<()> {
        self.0.frontend.engine.check_writable()
    }

    /// Returns the free space for objects, in bytes.
    pub(crate) fn available_bytes(self) -> u64 {
        self.0.frontend.available_bytes()
    }
}
