//! Compact: one table of several, so that a look and a listing have few to ask.

use super::checkpoint::{lengths_of_whole, mark_damaged};
use super::{Machine, table_bytes_max};
use crate::error::Result;
use crate::format::blocks_of;
use crate::index::{IndexTable, TableSink};
use crate::space::lock;
use std::ops::Bound;
use std::sync::{Arc, PoisonError};

/// So many tables of about one size become one.
const TABLES_OF_A_SIZE: usize = 4;

/// An older table is of about one size with newer ones if it is at most so many times as long as all of them.
const SIZE_RATIO: u64 = 2;

/// A compaction that is under way: tables that no checkpoint touches meanwhile, and room for the table of their entries.
struct Compaction {
    old: Vec<Arc<IndexTable>>,
    /// Whether these are all tables there are, so that no deletion has to be kept.
    is_all: bool,
    sink: TableSink,
}

impl Machine {
    /// Makes one table of several, if there are enough of about one size; `false` if not. The old ones' blocks are free after
    /// the next checkpoint. Checkpoints go on meanwhile.
    pub(crate) fn compact(&self) -> Result<bool> {
        self.check_writable()?;
        let _only_compaction = self.compacting.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Compaction { old, is_all, sink }) = self.begin_compaction()? else { return Ok(false) };
        let entries = sst::Merge::new(old.iter().map(|table| table.scan(Bound::Unbounded)));
        let merged = self.build_table_in(sink, entries, is_all);
        let mut root = self.root();
        old.iter().for_each(|table| table.source().set_merging(false));
        match merged {
            Err(error) if error.is_of_index() && mark_damaged(&old) => {
                tracing::warn!(%error, "a damaged table of the index is not merged with others: scrub the drive");
                Ok(false)
            }
            merged => {
                self.index.replace(&old, merged?);
                root.retiring.extend(old);
                Ok(true)
            }
        }
    }

    /// Chooses tables to merge and takes room for the result; `None` if there is nothing to merge, or no room.
    fn begin_compaction(&self) -> Result<Option<Compaction>> {
        let _no_checkpoint = self.root();
        let tables = self.index.view().tables.clone();
        let lengths = lengths_of_whole(&tables);
        let Some(count) = worth_merging(&lengths) else { return Ok(None) };
        let merged_bytes = lengths[..count].iter().sum();
        {
            // What a checkpoint needs stays: better many tables than no more deletions.
            let mut space = lock(&self.space);
            self.keep_for_checkpoint(&mut space, 0);
            if !space.has_for_index(blocks_of(table_bytes_max(merged_bytes))) {
                return Ok(None);
            }
        }
        let sink = self.table_sink(merged_bytes)?;
        let is_all = count == tables.len();
        let old: Vec<_> = tables.into_iter().take(count).collect();
        old.iter().for_each(|table| table.source().set_merging(true));
        Ok(Some(Compaction { old, is_all, sink }))
    }

    /// Returns when no compaction is under way.
    pub(crate) fn wait_for_compaction(&self) {
        drop(self.compacting.lock().unwrap_or_else(PoisonError::into_inner));
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
