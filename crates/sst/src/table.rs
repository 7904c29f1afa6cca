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
        let mut tail = read(&source, tail_at, (len - tail_at) as usize)?;
        let footer_in = |tail: &[u8]| Footer::decode(&tail[tail.len().saturating_sub(Footer::LEN)..], len);
        let footer = footer_in(&tail).or_else(|error| {
            let is_right = |tail: &[u8]| footer_in(tail).is_ok();
            tail = source.read_otherwise(tail_at, tail.len(), &is_right).ok_or(error)?;
            footer_in(&tail)
        })?;
        let tail_len = footer.tail_len();
        let at = len - tail_len as u64;
        let tail = match tail.len().checked_sub(tail_len) {
            Some(before) => tail.slice(before..),
            None => read(&source, at, tail_len)?,
        };
        // Of its own memory: what was read has more.
        let mut kept = Bytes::copy_from_slice(&tail[..tail_len - Footer::LEN]);
        kept = Place { at, len: kept.len() as u32, checksum: footer.checksum }.checked(&source, kept)?;
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
        Ok(self.look(key, true)?.flatten())
    }

    /// As [`Table::get`], without a read: `None` if that would take one.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`].
    pub fn get_kept(&self, key: &[u8]) -> Result<Option<Option<Bytes>>> {
        self.look(key, false)
    }

    /// Whether the table may have the key, by its filter: false is certain.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] and [`Error::Io`].
    pub fn may_hold(&self, key: &[u8]) -> Result<bool> {
        Ok(self.partition_that_may_hold(key, true)?.flatten().is_some())
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

    /// The entries from a key on, in ascending order. After a few blocks it reads past the cache, as one who goes through all of a
    /// table.
    pub fn scan(self: &Arc<Self>, from: Bound<&[u8]>) -> Cursor<S> {
        Cursor::new(Arc::clone(self), from, false)
    }

    /// The same for one who stops before long, and goes on there with another scan: what was read ahead stays in the cache.
    pub fn scan_part(self: &Arc<Self>, from: Bound<&[u8]>) -> Cursor<S> {
        Cursor::new(Arc::clone(self), from, true)
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

    /// How much it keeps in memory beside what is in the cache, in bytes.
    pub fn kept_bytes(&self) -> usize {
        self.first.len() + self.last.len() + self.top.len()
    }

    /// Where it lies.
    pub fn source(&self) -> &S {
        &self.source
    }

    pub(crate) fn top(&self) -> &Block {
        &self.top
    }

    /// The key's value, if there is one; `None` if it would take a read that may not be.
    fn look(&self, key: &[u8], may_read: bool) -> Result<Option<Option<Bytes>>> {
        let Some(partition) = self.partition_that_may_hold(key, may_read)? else { return Ok(None) };
        let Some(partition) = partition else { return Ok(Some(None)) };
        let Some(index) = self.block_for(&partition.index, may_read)? else { return Ok(None) };
        let Some(floor) = index.floor(key)? else { return Ok(Some(None)) };
        let place = Place::decode(index.value_bytes(&floor), index.at())?;
        let Some(block) = self.block_for(&place, may_read)? else { return Ok(None) };
        Ok(Some(block.floor(key)?.filter(|floor| floor.is_equal).map(|floor| block.value(&floor))))
    }

    /// Where the key lies if it is there, if it may be there; `None` if it would take a read that may not be.
    fn partition_that_may_hold(&self, key: &[u8], may_read: bool) -> Result<Option<Option<Partition>>> {
        if key < self.first() || key > self.last() {
            return Ok(Some(None));
        }
        let Some(floor) = self.top.floor(key)? else { return Ok(Some(None)) };
        let partition = Partition::decode(self.top.value_bytes(&floor), self.top.at())?;
        if partition.filter.len == 0 {
            return Ok(Some(Some(partition)));
        }
        let Some(filter) = self.filter(&partition.filter, may_read)? else { return Ok(None) };
        Ok(Some(filter.may_hold(filter::hash(key)).then_some(partition)))
    }

    fn filter(&self, place: &Place, may_read: bool) -> Result<Option<Filter>> {
        let read = || Ok(Kept::Filter(self.read_filter(place)?));
        match self.part(place, may_read, read)? {
            Some(Kept::Filter(filter)) => Ok(Some(filter)),
            Some(Kept::Block(_)) => {
                Err(Error::Corrupt { what: "a block is named as a filter", at: place.at })
            }
            None => Ok(None),
        }
    }

    fn block_for(&self, place: &Place, may_read: bool) -> Result<Option<Block>> {
        let read = || self.read_to_keep(place);
        self.part(place, may_read, read)?.map(|kept| as_block(kept, place)).transpose()
    }

    /// A part by the cache, if the cache has it or it may be read.
    fn part(
        &self,
        place: &Place,
        may_read: bool,
        read: impl FnOnce() -> Result<Kept>,
    ) -> Result<Option<Kept>> {
        match may_read {
            true => self.cache.get_or_read(self.id, place.at, read).map(Some),
            false => Ok(self.cache.get(self.id, place.at)),
        }
    }

    /// Past the cache.
    pub(crate) fn read_filter(&self, place: &Place) -> Result<Filter> {
        Filter::new(&place.read(&self.source, FILTER_LEN_MAX)?, place.at)
    }

    /// A block by the cache.
    pub(crate) fn block(&self, place: &Place) -> Result<Block> {
        as_block(self.cache.get_or_read(self.id, place.at, || self.read_to_keep(place))?, place)
    }

    /// A block that has no more memory than it is long: what a source reads may lie in more.
    fn read_to_keep(&self, place: &Place) -> Result<Kept> {
        let bytes = place.read(&self.source, BLOCK_LEN_MAX)?;
        Ok(Kept::Block(block_of(Bytes::copy_from_slice(&bytes), place)?))
    }

    /// A block, if the cache has it.
    pub(crate) fn kept_block(&self, place: &Place) -> Result<Option<Block>> {
        self.cache.peek(self.id, place.at).map(|kept| as_block(kept, place)).transpose()
    }

    /// Keeps a block that was read with others, whose memory it does not hold.
    pub(crate) fn keep_block(&self, place: &Place, bytes: &[u8]) -> Result<Block> {
        let block = block_of(Bytes::copy_from_slice(bytes), place)?;
        self.cache.insert(self.id, place.at, Kept::Block(block.clone()));
        Ok(block)
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
