//! Compact: one table of several, so that a look and a listing have few to ask.

use super::{Machine, table_bytes_max};
use crate::error::Result;
use crate::format::blocks_of;
use crate::index::IndexTable;
use crate::space::lock;
use std::ops::Bound;
use std::sync::Arc;

/// So many tables of about one size become one.
const TABLES_OF_A_SIZE: usize = 4;

/// An older table is of about one size with newer ones if it is at most so many times as long as all of them.
const SIZE_RATIO: u64 = 2;

impl Machine {
    /// Makes one table of several, if there are enough of about one size; `false` if not. The old ones' blocks are free after
    /// the next checkpoint.
    pub(crate) fn compact(&self) -> Result<bool> {
        self.check_writable()?;
        let mut root = self.root();
        let tables = self.index.view().tables.clone();
        let lengths: Vec<u64> = tables.iter().map(|table| table.source().len()).collect();
        let Some(count) = worth_merging(&lengths) else { return Ok(false) };
        let old = &tables[..count];
        let merged_bytes = lengths[..count].iter().sum();
        {
            // What a checkpoint needs stays: better many tables than no more deletions.
            let mut space = lock(&self.space);
            self.keep_for_checkpoint(&mut space, 0);
            if !space.has_for_index(blocks_of(table_bytes_max(merged_bytes))) {
                return Ok(false);
            }
        }
        self.merge(old, count == tables.len())?;
        root.retiring.extend_from_slice(old);
        Ok(true)
    }

    fn merge(&self, old: &[Arc<IndexTable>], is_all: bool) -> Result<()> {
        let entries = sst::Merge::new(old.iter().map(|table| table.scan(Bound::Unbounded)));
        let len_bytes = old.iter().map(|table| table.source().len()).sum();
        let new = self.build_table(entries, len_bytes, is_all)?;
        self.index.replace(old, new);
        Ok(())
    }
}

/// How many of the newest tables are to become one, by their lengths, the newest first.
fn worth_merging(lengths: &[u64]) -> Option<usize> {
    let mut sum = 0;
    let of_a_size = lengths.iter().take_while(|&&length| {
        let fits = sum == 0 || length <= sum * SIZE_RATIO;
        sum += length;
        fits
    });
    let count = of_a_size.count();
    (count >= TABLES_OF_A_SIZE).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::worth_merging;

    #[test]
    fn tables_of_about_one_size_are_merged() {
        assert_eq!(worth_merging(&[]), None);
        assert_eq!(worth_merging(&[10, 12, 9]), None);
        assert_eq!(worth_merging(&[10, 12, 9, 11]), Some(4));
        assert_eq!(worth_merging(&[10, 12, 9, 400]), None);
        assert_eq!(worth_merging(&[10, 12, 9, 11, 40, 900]), Some(5));
    }
}
