//! Writes a table: takes entries in key order and sends them to a sink, block by block.

use crate::block::{BlockBuilder, common_len};
use crate::layout::{BlockHandle, Footer, Partition, TOP_LEN_MAX, checksum};
use crate::{Error, KEY_LEN_MAX, Result, VALUE_LEN_MAX, filter};
use bytes::Bytes;
use std::io::Write;

/// Options of a writer. Readers do not need them.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The length of a block in bytes, which it exceeds by at most a few bytes; at most 1 MiB. A longer entry gets a
    /// block of its own.
    pub block_bytes: usize,
    /// The number of entries per restart point: of each group, only the first key is stored whole.
    pub restart_interval: usize,
    /// The number of filter bits per key, at most 64; 0 means no filter. With 10 bits about one lookup in a hundred of an absent
    /// key passes the filter.
    pub filter_bits_per_key: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { block_bytes: 16 << 10, restart_interval: 16, filter_bits_per_key: 10 }
    }
}

const BLOCK_BYTES_MAX: usize = 1 << 20;
const BITS_PER_KEY_MAX: u32 = 64;

/// Every lookup searches an index, so indexes have more restart points than data blocks.
const INDEX_RESTART_INTERVAL: usize = 4;

/// Length in bytes of an index at which its partition ends, if it has [`INDEX_ENTRIES_MIN`] entries. This bounds what a
/// lookup reads and keeps, and what the writer keeps in memory.
const INDEX_LEN: usize = 32 << 10;
/// Minimum number of entries of an index that ends its partition by its length. Fewer entries mean very long keys.
const INDEX_ENTRIES_MIN: usize = 16;
/// Number of keys at which a partition ends, whatever the length of its index.
const PARTITION_KEYS: usize = 128 << 10;

/// A description of the table that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The length of the table in bytes.
    pub len_bytes: u64,
    /// The number of entries.
    pub entries: u64,
    /// The first key; empty if the table has no entries.
    pub first: Bytes,
    /// The last key; empty if the table has no entries.
    pub last: Bytes,
}

/// A table that is being written. The writer keeps one block, the index and key hashes of one partition, and the top: some MiB.
#[derive(Debug)]
pub struct Writer<W> {
    sink: W,
    options: Options,
    written: u64,
    entries: u64,
    first: Vec<u8>,
    data: BlockBuilder,
    /// The bound (separator key) of the current block: greater than all keys of earlier blocks, at most the block's own first key.
    bound: Vec<u8>,
    index: BlockBuilder,
    /// The bound of the current partition's first block.
    partition_bound: Vec<u8>,
    hashes: Vec<u64>,
    top: BlockBuilder,
}

impl<W: Write> Writer<W> {
    /// Begins an empty table. The sink receives one write for each block, filter and index, and one for the end of
    /// the table.
    pub fn new(sink: W, options: Options) -> Self {
        let options = Options {
            block_bytes: options.block_bytes.min(BLOCK_BYTES_MAX),
            restart_interval: options.restart_interval.max(1),
            filter_bits_per_key: options.filter_bits_per_key.min(BITS_PER_KEY_MAX),
        };
        Self {
            sink,
            options,
            written: 0,
            entries: 0,
            first: Vec::new(),
            data: BlockBuilder::new(options.restart_interval),
            bound: Vec::new(),
            index: BlockBuilder::new(INDEX_RESTART_INTERVAL),
            partition_bound: Vec::new(),
            hashes: Vec::new(),
            top: BlockBuilder::new(1),
        }
    }

    /// Adds an entry. Its key must be greater than all keys added before.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfOrder`], and [`Error::TooLong`] for a key or a value, reject this entry and leave the table
    /// unchanged. After [`Error::Io`], and after [`Error::TooLong`] for an index, the table is unusable.
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        check_len("a key", key.len(), KEY_LEN_MAX)?;
        check_len("a value", value.len(), VALUE_LEN_MAX)?;
        let last = self.data.last();
        let shared = common_len(last, key);
        if self.entries > 0 && key.get(shared) <= last.get(shared) {
            return Err(Error::OutOfOrder);
        }
        if self.data.entries() > 0 && self.data.len() + key.len() + value.len() > self.options.block_bytes {
            self.end_block()?;
        }
        if self.entries == 0 {
            self.first.extend_from_slice(key);
        } else if self.data.entries() == 0 {
            self.bound.clear();
            self.bound.extend_from_slice(&key[..=shared]);
        }
        self.data.add(key, shared, value);
        self.entries += 1;
        if self.options.filter_bits_per_key > 0 {
            self.hashes.push(filter::hash(key));
        }
        Ok(())
    }

    /// Returns the number of bytes written to the sink so far.
    pub fn len_bytes(&self) -> u64 {
        self.written
    }

    /// Finishes the table. Returns the sink, which is not flushed.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]; [`Error::TooLong`] if the table has too many blocks for the top to fit into memory (64 MiB).
    pub fn finish(mut self) -> Result<(W, Summary)> {
        if self.data.entries() > 0 {
            self.end_block()?;
        }
        if self.index.entries() > 0 {
            self.end_partition()?;
        }
        let last = Bytes::copy_from_slice(self.data.last());
        let top = self.top.finish();
        let mut tail = [&self.first, &last[..], top].concat();
        let footer = Footer {
            entries: self.entries,
            table_len: self.written + (tail.len() + Footer::LEN) as u64,
            first_len: self.first.len() as u16,
            last_len: last.len() as u16,
            top_len: top.len() as u32,
            checksum: checksum(&tail),
        };
        tail.extend_from_slice(&footer.encode());
        self.sink.write_all(&tail)?;
        let summary =
            Summary { len_bytes: footer.table_len, entries: self.entries, first: self.first.into(), last };
        Ok((self.sink, summary))
    }

    fn end_block(&mut self) -> Result<()> {
        let handle = write_part(&mut self.sink, &mut self.written, self.data.finish())?;
        if self.index.entries() == 0 {
            self.partition_bound.clone_from(&self.bound);
        }
        add_to_index(&mut self.index, &self.bound, &handle.encode());
        let is_long = self.index.len() >= INDEX_LEN && self.index.entries() >= INDEX_ENTRIES_MIN;
        if is_long || self.hashes.len() >= PARTITION_KEYS { self.end_partition() } else { Ok(()) }
    }

    fn end_partition(&mut self) -> Result<()> {
        let filter = filter::build(&self.hashes, self.options.filter_bits_per_key);
        self.hashes.clear();
        let filter = write_part(&mut self.sink, &mut self.written, &filter)?;
        let index = write_part(&mut self.sink, &mut self.written, self.index.finish())?;
        add_to_index(&mut self.top, &self.partition_bound, &Partition { filter, index }.encode());
        check_len("an index", self.top.len(), TOP_LEN_MAX)
    }
}

fn check_len(what: &'static str, len: usize, max: usize) -> Result<()> {
    if len <= max { Ok(()) } else { Err(Error::TooLong { what, len: len as u64, max: max as u64 }) }
}

fn write_part(sink: &mut impl Write, written: &mut u64, bytes: &[u8]) -> Result<BlockHandle> {
    sink.write_all(bytes)?;
    let handle = BlockHandle::of(*written, bytes);
    *written = handle.end();
    Ok(handle)
}

fn add_to_index(index: &mut BlockBuilder, bound: &[u8], value: &[u8]) {
    let shared = common_len(index.last(), bound);
    index.add(bound, shared, value);
}
