//! Checkpoint: writes the memtable as a table, and moves the superblock to the log position after its entries.

use super::Engine;
use super::root::{Root, write_superblock};
use crate::codec::crc32c;
use crate::device::Buffer;
use crate::error::{Error, Result};
use crate::format::{MANIFEST_BYTES_MAX, Manifest, blocks_of};
use crate::index::{IndexTable, TableSink, table_error, verify};
use crate::policy::{TABLE_BYTES_MIN, table_bytes_max};
use crate::space::{Reservation, lock};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The newest tables that have at most this many bytes together are merged into the next table, so that many nearly empty checkpoints
/// take no more room than one. The room kept for a checkpoint includes [`TABLE_BYTES_MIN`] of overhead, enough for these entries too.
const SHORT_BYTES: u64 = TABLE_BYTES_MIN / 2;

/// The table of a checkpoint, if it has any entries, and the short tables that were merged into it.
struct BuiltTable {
    table: Option<Arc<IndexTable>>,
    short: Vec<Arc<IndexTable>>,
}

impl Engine {
    /// Writes the memtable as a table. After an error all committed entries are where they were, in memory or in a table, and the next
    /// checkpoint includes them. After a failure of the device nothing is written any more.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        let mut root = self.root.lock();
        let mut log_bytes = 0;
        let made = self.make_checkpoint(&mut root, &mut log_bytes);
        if made.is_err() {
            self.log.lock().bytes_since_checkpoint += log_bytes;
        }
        self.root.count_checkpoint(&made);
        made
    }

    /// Makes a checkpoint, and sets `log_bytes` to the length of the log that it covers, in bytes.
    fn make_checkpoint(&self, root: &mut Root, log_bytes: &mut u64) -> Result<()> {
        let mut manifest = self.begin_checkpoint(log_bytes)?;
        let BuiltTable { table, short } = match self.build_frozen_table() {
            Ok(made) => made,
            Err(error) => {
                let _log = self.log.lock();
                self.index.undo_rotation();
                return Err(error);
            }
        };
        self.index.install_flushed(&short, table);
        root.retiring.extend(short);
        let tables = self.index.view().tables.clone();
        manifest.tables = tables.iter().map(|table| table.source().entry()).collect();
        if !manifest.is_valid(self.geometry) {
            // Paired with `read_manifest`: the next opening would refuse it.
            let what = "the manifest contradicts itself and was not written: run 'tenon drive check'";
            return Err(self.device.fail(Error::Unsuitable(what.into())));
        }
        let bytes = manifest.encode();
        let run = self.write_manifest(&bytes)?.into_run();
        let old = std::mem::replace(&mut root.superblock.manifest, run);
        root.superblock.manifest_bytes = bytes.len() as u64;
        root.superblock.manifest_sum = crc32c(&bytes);
        root.superblock.generation += 1;
        write_superblock(&self.device, &root.superblock, [0, 1])?;
        root.retiring.drain(..).for_each(|table| table.source().set_in_manifest(false));
        tables.iter().for_each(|table| table.source().set_in_manifest(true));
        let mut log = self.log.lock();
        log.checkpoint_frame = manifest.next_frame;
        let index = self.index.size();
        let mut space = lock(&self.space);
        space.free_reserved(old);
        space.log_zones_mut().set_needed_frame(manifest.next_frame);
        self.reserve_for_checkpoint(&mut space, index, 0);
        space.free_dead_zones();
        Ok(())
    }

    /// Rotates the memtable, and returns the manifest of this moment, without tables.
    fn begin_checkpoint(&self, log_bytes: &mut u64) -> Result<Manifest> {
        let mut log = self.log.lock();
        // Checked under the log's lock: a frame that failed in the meantime may name blocks that count as free here.
        self.check_writable()?;
        self.index.rotate_memtable();
        let last_write = self.last_write.load(Ordering::Relaxed);
        let mut manifest =
            Manifest { next_frame: log.next_frame, head_at: log.head_at, last_write, ..Manifest::default() };
        *log_bytes = std::mem::take(&mut log.bytes_since_checkpoint);
        lock(&self.space).write_to_manifest(&mut manifest);
        Ok(manifest)
    }

    /// Builds a table of the rotated memtable and of the short tables below it. If a short table is damaged, the table
    /// has the entries of the memtable only.
    fn build_frozen_table(&self) -> Result<BuiltTable> {
        let tables = self.index.view().tables.clone();
        let short = &tables[..count_short(&mergeable_lengths(&tables))];
        match self.build_table_with(short, short.len() == tables.len()) {
            // Entries in memory become durable all the same. Reads of the damaged tables, and a scrub, report the lost entries.
            Err(error) if error.is_of_index() && !short.is_empty() => {
                tracing::warn!(%error, "a table of the index is damaged or cannot be read, and was not merged into the checkpoint's new table: scrub the drive");
                mark_damaged(short);
                Ok(BuiltTable { table: self.build_table_with(&[], false)?, short: Vec::new() })
            }
            table => Ok(BuiltTable { table: table?, short: short.to_vec() }),
        }
    }

    /// Builds a table of the rotated memtable and these tables. `is_all` says that the index has no other tables.
    fn build_table_with(&self, short: &[Arc<IndexTable>], is_all: bool) -> Result<Option<Arc<IndexTable>>> {
        self.build_table(self.index.scan_frozen_and(short), self.index.size().frozen_bytes, is_all)
    }

    /// Writes a table of entries. `entries_bytes` is the most that they take, short tables not counted. Returns `None`
    /// if there are none. `drops_deletions` leaves deletions out, which is right if no older table is left.
    fn build_table(
        &self,
        entries: impl sst::Sorted,
        entries_bytes: u64,
        drops_deletions: bool,
    ) -> Result<Option<Arc<IndexTable>>> {
        let sink = self.table_sink(entries_bytes)?;
        self.build_table_in(sink, entries, drops_deletions)
    }

    /// Allocates room for a table whose entries take at most `entries_bytes`.
    pub(super) fn table_sink(&self, entries_bytes: u64) -> Result<TableSink> {
        TableSink::new(self.device().clone(), self.space.clone(), table_bytes_max(entries_bytes))
    }

    /// Does what `build_table` does, but writes to room that is allocated already.
    pub(super) fn build_table_in(
        &self,
        sink: TableSink,
        mut entries: impl sst::Sorted,
        drops_deletions: bool,
    ) -> Result<Option<Arc<IndexTable>>> {
        let mut writer = sst::Writer::new(sink, sst::Options::default());
        while entries.advance().map_err(table_error)? {
            if !(drops_deletions && entries.value().is_empty()) {
                writer.add(entries.key(), entries.value()).map_err(table_error)?;
            }
        }
        let (sink, summary) = writer.finish().map_err(table_error)?;
        if summary.entries == 0 {
            return Ok(None);
        }
        let source = sink.finish(summary.len_bytes)?;
        self.index.open_table(source).map(Some)
    }

    /// Writes the bytes of a manifest to free blocks, and returns the reservation of these.
    fn write_manifest(&self, bytes: &[u8]) -> Result<Reservation> {
        if bytes.len() as u64 > MANIFEST_BYTES_MAX - self.geometry.row_bytes() {
            return Err(Error::Unsuitable(
                "the drive is too fragmented: its manifest would be too long, so the checkpoint was not written".into(),
            ));
        }
        let run = Reservation::allocate_one_for_index(&self.space, blocks_of(bytes.len() as u64))?;
        let at = run.run().at();
        self.device.write(at, &Buffer::in_rows(self.geometry.row_bytes(), [bytes]))?;
        self.device.flush(at)?;
        Ok(run)
    }
}

/// Returns the lengths of the newest tables, up to the first that cannot be merged because it is damaged or being compacted.
pub(super) fn mergeable_lengths(tables: &[Arc<IndexTable>]) -> Vec<u64> {
    let is_free = |table: &&Arc<IndexTable>| !table.source().is_damaged() && !table.source().is_merging();
    let whole = tables.iter().take_while(is_free);
    whole.map(|table| table.source().len()).collect()
}

/// Marks those of the tables that cannot be read as a whole. Returns whether there are any: a failed read may succeed later.
pub(super) fn mark_damaged(tables: &[Arc<IndexTable>]) -> bool {
    let damaged: Vec<_> = tables.iter().filter(|table| !verify(table).is_right()).collect();
    damaged.iter().for_each(|table| table.source().set_damaged());
    !damaged.is_empty()
}

/// Returns how many of the newest tables are merged into the next one. The lengths are those of the tables, newest first.
fn count_short(lengths: &[u64]) -> usize {
    let sums = lengths.iter().scan(0, |sum, length| {
        *sum += length;
        Some(*sum)
    });
    sums.take_while(|&sum| sum <= SHORT_BYTES).count()
}
