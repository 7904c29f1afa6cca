//! Finds the key at which a scan continues after an unreadable part of a table.

use crate::block::BlockCursor;
use crate::layout::{BlockHandle, Partition};
use crate::source::Source;
use crate::{Result, Table};

impl<S: Source> Table<S> {
    /// Returns the key, inclusive, at which a failed scan continues. `key` is the last key that the scan returned, or the key at which
    /// it began. Every entry between `key` and the returned key is in the unreadable part. `None` if nothing behind `key` is readable.
    pub fn resume_after(&self, key: &[u8]) -> Option<Vec<u8>> {
        let floor = self.top().floor(key).ok()?;
        let mut top = BlockCursor::before(self.top().clone(), floor.as_ref()).ok()?;
        while top.advance().ok()? {
            // An unreadable index hides only its own partition, so the search continues in the next partition.
            let found = Partition::decode(top.value_bytes(), top.block().at())
                .and_then(|partition| self.resume_in_partition(&partition, key));
            if let Ok(Some(bound)) = found {
                return Some(bound);
            }
        }
        None
    }

    /// Returns the bound of the partition's first readable block that begins after `key`.
    fn resume_in_partition(&self, partition: &Partition, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut index = BlockCursor::new(self.read_block(&partition.index)?);
        while index.advance()? {
            if index.key() <= key {
                continue;
            }
            let handle = BlockHandle::decode(index.value_bytes(), index.block().at())?;
            if self.read_block(&handle).is_ok() {
                return Ok(Some(index.key().to_vec()));
            }
        }
        Ok(None)
    }
}
