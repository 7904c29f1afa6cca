//! Writes a table: entries in order go to a sink, block by block.

use crate::block::{BlockBuilder, common_len};
use crate::layout::{Footer, Partition, Place, TOP_LEN_MAX, checksum};
use crate::{Error, KEY_LEN_MAX, Result, VALUE_LEN_MAX, filter};
use bytes::Bytes;
use std::io::Write;

/// What to build with. Readers need not know it.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How long a block grows, in bytes, at most 1 MiB; an entry that is longer has a block of its own.
    pub block_bytes: usize,
    /// How many entries of a block share their keys' beginnings.
    pub restart_interval: usize,
    /// How many bits of the filter a key takes, at most 64; 0 for no filter. Of keys that are not there, with 10 one in a hundred
    /// is looked for.
    pub filter_bits_per_key: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { block_bytes: 16 << 10, restart_interval: 16, filter_bits_per_key: 10 }
    }
}

const BLOCK_BYTES_MAX: usize = 1 << 20;
const BITS_PER_KEY_MAX: u32 = 64;

/// Indexes are searched once in every read by key, so they share less.
const INDEX_RESTART_INTERVAL: usize = 4;

/// A partition ends when its index is so long (but not while it has few entries, whose keys must be very long) or when so
/// many keys are in it: what a reader must read and keep to find one key is bounded, and what the writer keeps.
const INDEX_LEN: usize = 32 << 10;
const INDEX_ENTRIES_MIN: usize = 16;
const PARTITION_KEYS: usize = 128 << 10;

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The table's length in bytes.
    pub len_bytes: u64,
    /// How many entries it has.
    pub entries: u64,
    /// The first key; empty if there is none.
    pub first: Bytes,
    /// The last key; empty if there is none.
    pub last: Bytes,
}

/// A table that is being written. It keeps one block, the index and the hashes of one partition, and the top: some MiB.
#[derive(Debug)]
pub struct Writer<W> {
    sink: W,
    options: Options,
    written: u64,
    entries: u64,
    first: Vec<u8>,
    data: BlockBuilder,
    /// What separates the present block from the one before: after that one's keys, not after its own.
    bound: Vec<u8>,
    index: BlockBuilder,
    /// The bound of the partition's first block.
    partition_bound: Vec<u8>,
    hashes: Vec<u64>,
    top: BlockBuilder,
}

impl<W: Write> Writer<W> {
    /// An empty table that goes to `sink`, in writes of a block or more.
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

    /// Adds an entry; its key must be after all before.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfOrder`] and [`Error::TooLong`] say that this entry cannot be in the table, which is as it was. After
    /// [`Error::Io`] the table is lost.
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

    /// How much has gone to the sink, in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.written
    }

    /// Ends the table; gives back the sink, which is not flushed.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]; [`Error::TooLong`] if the table has more blocks than an open table can keep in mind.
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
        let place = write(&mut self.sink, &mut self.written, self.data.finish())?;
        if self.index.entries() == 0 {
            self.partition_bound.clone_from(&self.bound);
        }
        add_to_index(&mut self.index, &self.bound, &place.encode());
        let is_long = self.index.len() >= INDEX_LEN && self.index.entries() >= INDEX_ENTRIES_MIN;
        if is_long || self.hashes.len() >= PARTITION_KEYS { self.end_partition() } else { Ok(()) }
    }

    fn end_partition(&mut self) -> Result<()> {
        let filter = filter::build(&self.hashes, self.options.filter_bits_per_key);
        self.hashes.clear();
        let filter = write(&mut self.sink, &mut self.written, &filter)?;
        let index = write(&mut self.sink, &mut self.written, self.index.finish())?;
        add_to_index(&mut self.top, &self.partition_bound, &Partition { filter, index }.encode());
        check_len("an index", self.top.len(), TOP_LEN_MAX)
    }
}

fn check_len(what: &'static str, len: usize, max: usize) -> Result<()> {
    if len <= max { Ok(()) } else { Err(Error::TooLong { what, len: len as u64, max: max as u64 }) }
}

fn write(sink: &mut impl Write, written: &mut u64, bytes: &[u8]) -> Result<Place> {
    sink.write_all(bytes)?;
    let place = Place::of(*written, bytes);
    *written = place.end();
    Ok(place)
}

fn add_to_index(index: &mut BlockBuilder, bound: &[u8], value: &[u8]) {
    let shared = common_len(index.last(), bound);
    index.add(bound, shared, value);
}
