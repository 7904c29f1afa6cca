//! The last entry before a key.

use crate::block::{Block, BlockCursor};
use crate::layout::{BlockHandle, Partition};
use crate::source::Source;
use crate::{Result, Table};
use bytes::Bytes;

impl<S: Source> Table<S> {
    /// Returns the last entry whose key is less than `key`; `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`](crate::Error::Corrupt) and [`Error::Io`](crate::Error::Io).
    pub fn last_before(&self, key: &[u8]) -> Result<Option<(Vec<u8>, Bytes)>> {
        if key <= self.first() {
            return Ok(None);
        }
        // A bound may be less than the first key of its part, so that the part has no entry before `key`. The part before it has one.
        let mut partition_limit = key.to_vec();
        while let Some((bound, value)) = entry_before(self.top(), &partition_limit)? {
            let partition = Partition::decode(&value, self.top().at())?;
            if let Some(found) = self.last_before_in(&partition, key)? {
                return Ok(Some(found));
            }
            partition_limit = bound;
        }
        Ok(None)
    }

    fn last_before_in(&self, partition: &Partition, key: &[u8]) -> Result<Option<(Vec<u8>, Bytes)>> {
        let index = self.block(&partition.index)?;
        let mut limit = key.to_vec();
        while let Some((bound, value)) = entry_before(&index, &limit)? {
            let block = self.block(&BlockHandle::decode(&value, index.at())?)?;
            if let Some(found) = entry_before(&block, key)? {
                return Ok(Some(found));
            }
            limit = bound;
        }
        Ok(None)
    }
}

/// Returns the last entry of a block whose key is less than `key`; `None` if there is none.
fn entry_before(block: &Block, key: &[u8]) -> Result<Option<(Vec<u8>, Bytes)>> {
    let Some(mut cursor) = BlockCursor::at_restart_before(block.clone(), key)? else { return Ok(None) };
    let mut found = None;
    while cursor.advance()? && cursor.key() < key {
        found = Some((cursor.key().to_vec(), cursor.value()));
    }
    Ok(found)
}
