//! Resume: where a scan goes on behind a part of a table that cannot be read.

use crate::block::Steps;
use crate::layout::{Partition, Place};
use crate::source::Source;
use crate::{Result, Table};

impl<S: Source> Table<S> {
    /// Returns where a scan goes on that an error ended behind `key`, its last key or where it began: a key, inclusive, from which on
    /// entries can be read. No entry lies between that and what cannot be read. `None` if nothing can be read behind the key.
    pub fn resume_after(&self, key: &[u8]) -> Option<Vec<u8>> {
        let floor = self.top().floor(key).ok()?;
        let mut top = Steps::before(self.top().clone(), floor.as_ref()).ok()?;
        while top.advance().ok()? {
            // An index that cannot be read hides its partition; the next one has its own.
            let found = Partition::decode(top.value_bytes(), top.block().at())
                .and_then(|partition| self.resume_in(&partition, key));
            if let Ok(Some(bound)) = found {
                return Some(bound);
            }
        }
        None
    }

    /// The bound of the partition's first block behind a key that can be read.
    fn resume_in(&self, partition: &Partition, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut index = Steps::new(self.read_block(&partition.index)?);
        while index.advance()? {
            if index.key() <= key {
                continue;
            }
            let place = Place::decode(index.value_bytes(), index.block().at())?;
            if self.read_block(&place).is_ok() {
                return Ok(Some(index.key().to_vec()));
            }
        }
        Ok(None)
    }
}
