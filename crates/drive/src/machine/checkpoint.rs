//! Checkpoint: what is in memory goes into a table, and the superblock leads to what the log begins after.

use super::{Machine, TABLE_BYTES_MIN, table_bytes_max};
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

/// A table of the frozen entries, if there were any, and the tables whose entries are in it as well.
struct Made {
    table: Option<Arc<IndexTable>>,
    short: Vec<Arc<IndexTable>>,
}

impl Machine {
    /// Whether memory or log have grown so that it is time. While a table is made of so much, as much again has room.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        let log_bytes_max = LOG_BYTES_MAX.min(self.geometry.zones() * self.geometry.zone_bytes() / 16);
        self.index.memory_bytes() > self.options.index_bytes / 4 || self.log().since_bytes > log_bytes_max
    }

    /// Whether what is in no table takes all the memory that it may.
    pub(crate) fn is_memory_full(&self) -> bool {
        let taken_bytes = self.index.memory_bytes() as u64 + self.index.frozen_bytes();
        taken_bytes > self.options.index_bytes as u64 / 2
    }

    /// Whether something was committed since the last one.
    pub(crate) fn is_dirty(&self) -> bool {
        let log = self.log();
        log.frame != log.since
    }

    /// Makes a table of what is in memory. After an error all that was committed is where it was, in memory or in a table, and a later
    /// one takes it along; but a device that failed is not written to any more.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        let mut root = self.root();
        let mut manifest = self.freeze()?;
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
    fn freeze(&self) -> Result<Manifest> {
        let mut log = self.log();
        // Not before: a frame that failed meanwhile names what is free as far as is known here.
        self.check_writable()?;
        self.index.freeze();
        let last_write = self.last_write.load(Ordering::Relaxed);
        let mut manifest =
            Manifest { next_frame: log.frame, head_at: log.at, last_write, ..Manifest::default() };
        log.since_bytes = 0;
        lock(&self.space).describe(&mut manifest);
        Ok(manifest)
    }

    /// Makes a table of the frozen entries and of the short tables before them.
    fn table_of_frozen(&self) -> Result<Made> {
        let tables = self.index.view().tables.clone();
        let lengths: Vec<u64> = tables.iter().map(|table| table.source().len()).collect();
        let short = &tables[..count_short(&lengths)];
        match self.table_with(short, short.len() == tables.len()) {
            // Who reads them says so. What is in memory shall be safe all the same.
            Err(Error::DamagedIndex { .. }) if !short.is_empty() => {
                Ok(Made { table: self.table_with(&[], false)?, short: Vec::new() })
            }
            table => Ok(Made { table: table?, short: short.to_vec() }),
        }
    }

    fn table_with(&self, short: &[Arc<IndexTable>], is_all: bool) -> Result<Option<Arc<IndexTable>>> {
        self.build_table(self.index.frozen_and(short), self.index.frozen_bytes(), is_all)
    }

    /// Writes a table of entries, which take at most so many bytes beside those of short tables; `None` if there are none.
    pub(super) fn build_table(
        &self,
        mut entries: impl sst::Sorted,
        entries_bytes: u64,
        drops_deletions: bool,
    ) -> Result<Option<Arc<IndexTable>>> {
        let len_bytes_max = table_bytes_max(entries_bytes);
        let sink = TableSink::new(self.device.clone(), self.space.clone(), len_bytes_max)?;
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
