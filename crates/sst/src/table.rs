//! A table that is read.

use crate::block::Block;
use crate::cache::Kept;
use crate::cursor::Cursor;
use crate::filter::{self, Filter};
use crate::layout::{BLOCK_LEN_MAX, FILTER_LEN_MAX, Footer, Partition, Place, read};
use crate::source::Source;
use crate::{Cache, Error, Result, verify};
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;

/// How much of a table's end is read first, in bytes: of most tables all that is kept while they are open.
const TAIL_LEN: u64 = 8 << 10;

/// A table. It keeps its footer, its first and last key and the top of its index, about 60 bytes for each 15 MiB.
#[derive(Debug)]
pub struct Table<S> {
    source: S,
    id: u64,
    cache: Arc<Cache>,
    entries: u64,
    first: Bytes,
    last: Bytes,
    top: Block,
}

impl<S: Source> Table<S> {
    /// Opens a table; one or two reads at its end.
    ///
    /// `id` tells its parts from those of other tables in the cache; an id is used for one table only, or after
    /// [`Cache::forget`].
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the source does not hold a table, and [`Error::Io`].
    pub fn open(source: S, id: u64, cache: Arc<Cache>) -> Result<Self> {
        let len = source.len_bytes();
        let tail_at = len.saturating_sub(TAIL_LEN);
        let tail = read(&source, tail_at, (len - tail_at) as usize)?;
        let footer = Footer::decode(&tail[tail.len().saturating_sub(Footer::LEN)..], len)?;
        let tail_len = footer.tail_len();
        let at = len - tail_len as u64;
        let tail = match tail.len().checked_sub(tail_len) {
            Some(before) => tail.slice(before..),
            None => read(&source, at, tail_len)?,
        };
        let mut kept = tail.slice(..tail_len - Footer::LEN);
        Place { at, len: kept.len() as u32, checksum: footer.checksum }.check(&kept)?;
        let first = kept.split_to(usize::from(footer.first_len));
        let last = kept.split_to(usize::from(footer.last_len));
        let top = Block::new(kept, at + (first.len() + last.len()) as u64)?;
        if top.is_empty() != (footer.entries == 0) || first > last {
            return Err(Error::Corrupt { what: "the footer contradicts the top", at });
        }
        Ok(Self { source, id, cache, entries: footer.entries, first, last, top })
    }

    /// The value of a key; it keeps the block that it lies in in memory.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] and [`Error::Io`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let Some(partition) = self.partition_that_may_hold(key)? else { return Ok(None) };
        let index = self.block(&partition.index)?;
        let Some(floor) = index.floor(key)? else { return Ok(None) };
        let block = self.block(&Place::decode(index.value_bytes(&floor), index.at())?)?;
        Ok(block.floor(key)?.filter(|floor| floor.is_equal).map(|floor| block.value(&floor)))
    }

    /// Whether the table may have the key, by its filter: false is certain.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] and [`Error::Io`].
    pub fn may_hold(&self, key: &[u8]) -> Result<bool> {
        Ok(self.partition_that_may_hold(key)?.is_some())
    }

    /// How many entries it has.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// The first key; empty if there is none.
    pub fn first(&self) -> &[u8] {
        &self.first
    }

    /// The last key; empty if there is none.
    pub fn last(&self) -> &[u8] {
        &self.last
    }

    /// The entries from a key on, in ascending order.
    pub fn scan(self: &Arc<Self>, from: Bound<&[u8]>) -> Cursor<S> {
        Cursor::new(Arc::clone(self), from)
    }

    /// Reads all of the table, past the cache, and checks it: every checksum, the order of all keys, that every byte has its
    /// place, that filters let every key pass, that counts and bounds are true.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] and [`Error::Io`].
    pub fn verify(&self) -> Result<()> {
        verify::verify(self)
    }

    /// Where it lies.
    pub fn source(&self) -> &S {
        &self.source
    }

    pub(crate) fn top(&self) -> &Block {
        &self.top
    }

    fn partition_that_may_hold(&self, key: &[u8]) -> Result<Option<Partition>> {
        if key < self.first() || key > self.last() {
            return Ok(None);
        }
        let Some(floor) = self.top.floor(key)? else { return Ok(None) };
        let partition = Partition::decode(self.top.value_bytes(&floor), self.top.at())?;
        if partition.filter.len == 0 {
            return Ok(Some(partition));
        }
        let may_hold = self.filter(&partition.filter)?.may_hold(filter::hash(key));
        Ok(may_hold.then_some(partition))
    }

    fn filter(&self, place: &Place) -> Result<Filter> {
        let read = || Ok(Kept::Filter(self.read_filter(place)?));
        match self.cache.get_or_read(self.id, place.at, read)? {
            Kept::Filter(filter) => Ok(filter),
            Kept::Block(_) => Err(Error::Corrupt { what: "a block is named as a filter", at: place.at }),
        }
    }

    /// Past the cache.
    pub(crate) fn read_filter(&self, place: &Place) -> Result<Filter> {
        Filter::new(&place.read(&self.source, FILTER_LEN_MAX)?, place.at)
    }

    /// A block by the cache.
    pub(crate) fn block(&self, place: &Place) -> Result<Block> {
        let read = || Ok(Kept::Block(self.read_block(place)?));
        as_block(self.cache.get_or_read(self.id, place.at, read)?, place)
    }

    /// A block, if the cache has it.
    pub(crate) fn kept_block(&self, place: &Place) -> Result<Option<Block>> {
        self.cache.peek(self.id, place.at).map(|kept| as_block(kept, place)).transpose()
    }

    /// A block past the cache.
    pub(crate) fn read_block(&self, place: &Place) -> Result<Block> {
        block_of(place.read(&self.source, BLOCK_LEN_MAX)?, place)
    }
}

fn as_block(kept: Kept, place: &Place) -> Result<Block> {
    match kept {
        Kept::Block(block) => Ok(block),
        Kept::Filter(_) => Err(Error::Corrupt { what: "a filter is named as a block", at: place.at }),
    }
}

/// A block that may not be empty, as none but an empty table's top is.
pub(crate) fn block_of(bytes: Bytes, place: &Place) -> Result<Block> {
    let block = Block::new(bytes, place.at)?;
    if block.is_empty() {
        return Err(Error::Corrupt { what: "a block has no entries", at: place.at });
    }
    Ok(block)
}
