//! Checkpoint: what is in memory goes into a table, and the superblock leads to what the log begins after.

use super::{Machine, Root, TABLE_BYTES_MIN, table_bytes_max};
use crate::device::{BlockDevice, Buffer};
use crate::error::{Error, Result};
use crate::format::{MANIFEST_BYTES_MAX, Manifest, Superblock, blocks_of};
use crate::index::{IndexTable, TableSink, of_table};
use crate::space::{Loose, lock};
use crate::wire::sum;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A recovery reads at most so much of the log, in bytes.
const LOG_BYTES_MAX: u64 = 512 << 20;

/// The newest tables that take no more together, in bytes, go into the next one: many checkpoints with next to nothing in them take no
/// more room than one. What a table is longer than its entries is kept for it anyway, and has room for them.
const SHORT_BYTES: u64 = TABLE_BYTES_MIN / 2;

/// After so many checkpoints that failed in a row nothing is stored that makes the index longer.
const FAILED_CHECKPOINTS_MAX: u32 = 3;

/// A table of the frozen entries, if there were any, and the tables whose entries are in it as well.
struct Made {
    table: Option<Arc<IndexTable>>,
    short: Vec<Arc<IndexTable>>,
}

impl Machine {
    /// Whether memory or log have grown so that it is time. While a table is made of so much, as much again has room.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        let log_bytes_max = LOG_BYTES_MAX.min(self.geometry.zones() * self.geometry.zone_bytes() / 16);
        self.index.memory_bytes() > self.options.index_bytes / 4 || self.log_bytes() > log_bytes_max
    }

    /// Whether what is in no table takes all the memory that it may.
    pub(crate) fn is_memory_full(&self) -> bool {
        let taken_bytes = self.index.memory_bytes() as u64 + self.index.frozen_bytes();
        taken_bytes > self.options.index_bytes as u64 / 2
    }

    /// Makes a table of what is in memory. After an error all that was committed is where it was, in memory or in a table, and a later
    /// one takes it along; but a device that failed is not written to any more.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        let mut root = self.root();
        let mut log_bytes = 0;
        let made = self.make_checkpoint(&mut root, &mut log_bytes);
        match &made {
            Ok(()) => self.failed_checkpoints.store(0, Ordering::Relaxed),
            Err(error) => {
                self.log().since_bytes += log_bytes;
                // A full drive refuses what grows by itself.
                if !matches!(error, Error::Full) {
                    self.failed_checkpoints.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        made
    }

    /// Whether checkpoints fail one after the other, so that memory and log would grow without end.
    pub(crate) fn is_stuck(&self) -> bool {
        self.failed_checkpoints.load(Ordering::Relaxed) >= FAILED_CHECKPOINTS_MAX && self.wants_checkpoint()
    }

    /// `log_bytes` is set to how much of the log the checkpoint is of.
    fn make_checkpoint(&self, root: &mut Root, log_bytes: &mut u64) -> Result<()> {
        let mut manifest = self.freeze(log_bytes)?;
        let Made { table, short } = match self.table_of_frozen() {
            Ok(made) => made,
            Err(error) => {
                let _log = self.log();
                self.index.unfreeze();
                return Err(error);
            }
        };
        self.index.thaw(&short, table);
        root.retiring.extend(short);
        let tables = self.index.view().tables.clone();
        manifest.tables = tables.iter().map(|table| table.source().entry()).collect();
        let bytes = manifest.encode();
        let run = self.write_manifest(&bytes)?.keep();
        let old = std::mem::replace(&mut root.superblock.manifest, run);
        root.superblock.manifest_bytes = bytes.len() as u64;
        root.superblock.manifest_sum = sum(&bytes);
        root.superblock.generation += 1;
        write_superblock(&*self.device, &root.superblock, [0, 1], |at| self.flush(at))
            .map_err(|error| self.fail(error))?;
        root.retiring.drain(..).for_each(|table| table.source().set_named(false));
        tables.iter().for_each(|table| table.source().set_named(true));
        let mut log = self.log();
        log.since = manifest.next_frame;
        let mut space = lock(&self.space);
        space.give_back(old);
        space.needs_from(manifest.next_frame);
        self.keep_for_checkpoint(&mut space, 0);
        space.free_dead_zones();
        Ok(())
    }

    /// What is known now, up to the tables; from here on it goes into another memory.
    fn freeze(&self, log_bytes: &mut u64) -> Result<Manifest> {
        let mut log = self.log();
        // Not before: a frame that failed meanwhile names what is free as far as is known here.
        self.check_writable()?;
        self.index.freeze();
        let last_write = self.last_write.load(Ordering::Relaxed);
        let mut manifest =
            Manifest { next_frame: log.frame, head_at: log.at, last_write, ..Manifest::default() };
        *log_bytes = std::mem::take(&mut log.since_bytes);
        lock(&self.space).describe(&mut manifest);
        Ok(manifest)
    }

    /// Makes a table of the frozen entries and of the short tables before them.
    fn table_of_frozen(&self) -> Result<Made> {
        let tables = self.index.view().tables.clone();
        let short = &tables[..count_short(&lengths_of_whole(&tables))];
        match self.table_with(short, short.len() == tables.len()) {
            // The entries in memory become safe all the same. Reads of the damaged tables, and a scrub, name what is lost.
            Err(error) if error.is_of_index() && !short.is_empty() => {
                tracing::warn!(%error, "a checkpoint leaves a damaged table of the index as it is");
                mark_damaged(short);
                Ok(Made { table: self.table_with(&[], false)?, short: Vec::new() })
            }
            table => Ok(Made { table: table?, short: short.to_vec() }),
        }
    }

    fn table_with(&self, short: &[Arc<IndexTable>], is_all: bool) -> Result<Option<Arc<IndexTable>>> {
        self.build_table(self.index.frozen_and(short), self.index.frozen_bytes(), is_all)
    }

    /// Writes a table of entries, which take at most so many bytes beside those of short tables; `None` if there are none.
    fn build_table(
        &self,
        entries: impl sst::Sorted,
        entries_bytes: u64,
        drops_deletions: bool,
    ) -> Result<Option<Arc<IndexTable>>> {
        let sink = self.table_sink(entries_bytes)?;
        self.build_table_in(sink, entries, drops_deletions)
    }

    /// Takes room for a table of entries of so many bytes at most.
    pub(super) fn table_sink(&self, entries_bytes: u64) -> Result<TableSink> {
        TableSink::new(self.device.clone(), self.space.clone(), table_bytes_max(entries_bytes))
    }

    /// Like `build_table`, in room that is taken already.
    pub(super) fn build_table_in(
        &self,
        sink: TableSink,
        mut entries: impl sst::Sorted,
        drops_deletions: bool,
    ) -> Result<Option<Arc<IndexTable>>> {
        let mut writer = sst::Writer::new(sink, sst::Options::default());
        while entries.advance().map_err(of_table)? {
            if !(drops_deletions && entries.value().is_empty()) {
                writer.add(entries.key(), entries.value()).map_err(of_table)?;
            }
        }
        let (sink, summary) = writer.finish().map_err(of_table)?;
        if summary.entries == 0 {
            return Ok(None);
        }
        let source = sink.finish(summary.len_bytes)?;
        let id = self.last_table.fetch_add(1, Ordering::Relaxed);
        match IndexTable::open(source, id, self.index.cache().clone()) {
            Ok(table) => Ok(Some(Arc::new(table))),
            Err(error) => Err(of_table(error)),
        }
    }

    fn write_manifest(&self, bytes: &[u8]) -> Result<Loose> {
        if bytes.len() as u64 > MANIFEST_BYTES_MAX - self.geometry.row_bytes() {
            return Err(Error::Unfit("the drive is too fragmented for a manifest".into()));
        }
        let run = Loose::allocate_one_for_index(&self.space, blocks_of(bytes.len() as u64))?;
        let at = run.run().at();
        let written = self.device.write_at(at, &Buffer::in_rows(self.geometry.row_bytes(), [bytes]));
        written.map_err(|error| self.fail(Error::device(at)(error)))?;
        self.flush(at)?;
        Ok(run)
    }
}

/// The lengths of the newest tables, up to the first that is not merged with others: it is damaged, or a compaction reads it.
pub(super) fn lengths_of_whole(tables: &[Arc<IndexTable>]) -> Vec<u64> {
    let is_free = |table: &&Arc<IndexTable>| !table.source().is_damaged() && !table.source().is_merging();
    let whole = tables.iter().take_while(is_free);
    whole.map(|table| table.source().len()).collect()
}

/// Remembers which of some tables cannot be read as a whole. Returns whether there are any: a read may fail once and then pass.
pub(super) fn mark_damaged(tables: &[Arc<IndexTable>]) -> bool {
    let mut is_any = false;
    for table in tables.iter().filter(|table| table.verify().is_err()) {
        table.source().set_damaged();
        is_any = true;
    }
    is_any
}

/// How many of the newest tables go into the next one, by their lengths, the newest first.
fn count_short(lengths: &[u64]) -> usize {
    let sums = lengths.iter().scan(0, |sum, length| {
        *sum += length;
        Some(*sum)
    });
    sums.take_while(|&sum| sum <= SHORT_BYTES).count()
}

/// One copy after the other, so that one is whole at any time.
pub(super) fn write_superblock(
    device: &dyn BlockDevice,
    superblock: &Superblock,
    copies: [u64; 2],
    flush: impl Fn(u64) -> Result<()>,
) -> Result<()> {
    let geometry = superblock.geometry;
    let row = Buffer::in_rows(geometry.row_bytes(), [&superblock.encode()[..]]);
    for copy in copies {
        let at = geometry.superblock_at(copy);
        device.write_at(at, &row).map_err(Error::device(at))?;
        flush(at)?;
    }
    Ok(())
}
