//! Compaction: merges tables of the index, so that lookups and listings read few of them.

use super::Engine;
use super::checkpoint::{mark_damaged, mergeable_lengths};
use crate::error::Result;
use crate::format::blocks_of;
use crate::index::{IndexTable, TableSink};
use crate::policy::table_bytes_max;
use crate::space::lock;
use std::ops::Bound;
use std::sync::{Arc, PoisonError};

/// A compaction in progress. Checkpoints do not touch its tables.
struct Compaction {
    /// The tables that are merged.
    old: Vec<Arc<IndexTable>>,
    /// Whether `old` has all tables of the index, so that deletions can be dropped.
    is_all: bool,
    sink: TableSink,
}

impl Engine {
    /// Merges several tables into one. Returns false if nothing was merged: too few tables are of similar size, there
    /// is no room, or one of the tables is damaged. The blocks of the old tables become free with the next checkpoint.
    /// Checkpoints continue meanwhile.
    pub(crate) fn compact(&self) -> Result<bool> {
        self.check_writable()?;
        let _only_compaction = self.compaction_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Compaction { old, is_all, sink }) = self.begin_compaction()? else { return Ok(false) };
        let entries = sst::Merge::new(old.iter().map(|table| table.scan(Bound::Unbounded)));
        let merged = self.build_table_in(sink, entries, is_all);
        let mut root = self.root.lock();
        old.iter().for_each(|table| table.source().set_merging(false));
        match merged {
            Err(error) if error.is_of_index() && mark_damaged(&old) => {
                tracing::warn!(%error, "tables of the index were not merged, as one is damaged or cannot be read: scrub the drive");
                Ok(false)
            }
            merged => {
                self.index.replace(&old, merged?);
                root.retiring.extend(old);
                Ok(true)
            }
        }
    }

    /// Chooses tables to merge and allocates room for the result. Returns `None` if no merge is due, or no room.
    fn begin_compaction(&self) -> Result<Option<Compaction>> {
        let _no_checkpoint = self.root.lock();
        let tables = self.index.view().tables.clone();
        let lengths = mergeable_lengths(&tables);
        let Some(count) = sst::tables_to_merge(&lengths) else { return Ok(None) };
        let merged_bytes = lengths[..count].iter().sum();
        {
            // The room for a checkpoint stays free. More tables are better than a drive that refuses deletions.
            let index = self.index.size();
            let mut space = lock(&self.space);
            self.reserve_for_checkpoint(&mut space, index, 0);
            if !space.free_space().has_room_for_index(blocks_of(table_bytes_max(merged_bytes))) {
                return Ok(None);
            }
        }
        let sink = self.table_sink(merged_bytes)?;
        let is_all = count == tables.len();
        let old: Vec<_> = tables.into_iter().take(count).collect();
        old.iter().for_each(|table| table.source().set_merging(true));
        Ok(Some(Compaction { old, is_all, sink }))
    }
}
