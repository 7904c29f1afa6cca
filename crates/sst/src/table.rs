//! A table that is open for reading.

use crate::block::Block;
use crate::cache::CachedPart;
use crate::cursor::Cursor;
use crate::filter::{self, Filter};
use crate::layout::{BLOCK_LEN_MAX, BlockHandle, FILTER_LEN_MAX, Footer, Partition, read};
use crate::source::Source;
use crate::{Cache, Error, Result, verify};
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;

/// The number of bytes that `open` reads first from the end of a table. For most tables this covers first key, last key, top and footer.
const TAIL_LEN: u64 = 8 << 10;

/// An open table. It keeps its first and last key and its top in memory, about 60 bytes per 15 MiB of table.
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

impl<S> Drop for Table<S> {
    /// Frees the memory of a table that is no longer read, such as one that a merge replaced.
    fn drop(&mut self) {
        self.cache.forget(self.id);
    }
}

impl<S: Source> Table<S> {
    /// Opens a table. This takes one or two reads at the end of the table.
    ///
    /// `id` distinguishes the table's parts from those of other tables in the cache. An id must belong to one open table only: when
    /// the table is dropped, its parts leave the cache.
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
        // A copy, because the buffer that was read may be larger.
        let mut kept = Bytes::copy_from_slice(&tail[..tail_len - Footer::LEN]);
        let handle = BlockHandle { at, len: kept.len() as u32, checksum: footer.checksum };
        kept = handle.check_or_reread(&source, kept)?;
        let first = kept.split_to(usize::from(footer.first_len));
        let last = kept.split_to(usize::from(footer.last_len));
        let top = Block::new(kept, at + (first.len() + last.len()) as u64)?;
        if top.is_empty() != (footer.entries == 0) || first > last {
            return Err(Error::Corrupt { what: "the footer and the top-level index disagree", at });
        }
        Ok(Self { source, id, cache, entries: footer.entries, first, last, top })
    }

    /// Returns the value of a key; `None` if the table does not hold the key. The value shares memory with its block,
    /// so it keeps the block alive.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] and [`Error::Io`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        Ok(self.find(key, true)?.flatten())
    }

    /// Like [`Table::get`], but never reads from the source. The outer `None` means that the lookup would need a read.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`].
    pub fn get_kept(&self, key: &[u8]) -> Result<Option<Option<Bytes>>> {
        self.find(key, false)
    }

    /// Returns whether the table may hold the key, according to its filter. `false` is certain.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] and [`Error::Io`].
    pub fn may_hold(&self, key: &[u8]) -> Result<bool> {
        Ok(self.candidate_partition(key, true)?.flatten().is_some())
    }

    /// Returns the id that distinguishes the table in its cache.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the number of entries.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Returns the first key; empty if the table has no entries.
    pub fn first(&self) -> &[u8] {
        &self.first
    }

    /// Returns the last key; empty if the table has no entries.
    pub fn last(&self) -> &[u8] {
        &self.last
    }

    /// Scans the entries from a key on, in ascending order. The first few blocks come through the cache; a longer scan bypasses it.
    pub fn scan(self: &Arc<Self>, from: Bound<&[u8]>) -> Cursor<S> {
        Cursor::new(Arc::clone(self), from, false)
    }

    /// Like [`Table::scan`], for a caller that stops soon and continues later with another scan: blocks read ahead stay in the cache.
    pub fn scan_part(self: &Arc<Self>, from: Bound<&[u8]>) -> Cursor<S> {
        Cursor::new(Arc::clone(self), from, true)
    }

    /// Reads and checks the whole table, bypassing the cache: every checksum, the order of all keys, that parts leave neither gaps
    /// nor overlaps, that filters admit every key, and that counts and bounds are right.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] and [`Error::Io`].
    pub fn verify(&self) -> Result<()> {
        verify::verify(self)
    }

    /// Returns the memory that the open table occupies apart from the cache, in bytes.
    pub fn kept_bytes(&self) -> usize {
        self.first.len() + self.last.len() + self.top.len()
    }

    /// Returns the source that the table is read from.
    pub fn source(&self) -> &S {
        &self.source
    }

    pub(crate) fn top(&self) -> &Block {
        &self.top
    }

    /// Looks up a key. The outer `None` means that the lookup needs a read but `may_read` is false.
    fn find(&self, key: &[u8], may_read: bool) -> Result<Option<Option<Bytes>>> {
        let Some(partition) = self.candidate_partition(key, may_read)? else { return Ok(None) };
        let Some(partition) = partition else { return Ok(Some(None)) };
        let Some(index) = self.block_for(&partition.index, may_read)? else { return Ok(None) };
        let Some(floor) = index.floor(key)? else { return Ok(Some(None)) };
        let handle = BlockHandle::decode(index.value_bytes(&floor), index.at())?;
        let Some(block) = self.block_for(&handle, may_read)? else { return Ok(None) };
        Ok(Some(block.floor(key)?.filter(|floor| floor.is_equal).map(|floor| block.value(&floor))))
    }

    /// Returns the partition in which the key lies if the table holds it. The inner `None` means that the table does not hold the key;
    /// the outer `None` means that the lookup needs a read but `may_read` is false.
    fn candidate_partition(&self, key: &[u8], may_read: bool) -> Result<Option<Option<Partition>>> {
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

    fn filter(&self, handle: &BlockHandle, may_read: bool) -> Result<Option<Filter>> {
        let read = || Ok(CachedPart::Filter(self.read_filter(handle)?));
        match self.part(handle, may_read, read)? {
            Some(CachedPart::Filter(filter)) => Ok(Some(filter)),
            Some(CachedPart::Block(_)) => {
                Err(Error::Corrupt { what: "the handle of a filter refers to a block", at: handle.at })
            }
            None => Ok(None),
        }
    }

    fn block_for(&self, handle: &BlockHandle, may_read: bool) -> Result<Option<Block>> {
        let read = || self.read_for_cache(handle);
        self.part(handle, may_read, read)?.map(|part| as_block(part, handle)).transpose()
    }

    /// Returns a part from the cache, or reads and caches it if `may_read` is true; `None` if it is neither cached nor
    /// may be read.
    fn part(
        &self,
        handle: &BlockHandle,
        may_read: bool,
        read: impl FnOnce() -> Result<CachedPart>,
    ) -> Result<Option<CachedPart>> {
        match may_read {
            true => self.cache.get_or_read(self.id, handle.at, read).map(Some),
            false => Ok(self.cache.get(self.id, handle.at)),
        }
    }

    /// Reads a filter, bypassing the cache.
    pub(crate) fn read_filter(&self, handle: &BlockHandle) -> Result<Filter> {
        Filter::new(&handle.read(&self.source, FILTER_LEN_MAX)?, handle.at)
    }

    /// Returns a block from the cache, or reads and caches it.
    pub(crate) fn block(&self, handle: &BlockHandle) -> Result<Block> {
        as_block(self.cache.get_or_read(self.id, handle.at, || self.read_for_cache(handle))?, handle)
    }

    /// Reads a block and copies it: the source may return a slice of a larger buffer, which the cache must not keep alive.
    fn read_for_cache(&self, handle: &BlockHandle) -> Result<CachedPart> {
        let bytes = handle.read(&self.source, BLOCK_LEN_MAX)?;
        Ok(CachedPart::Block(block_of(Bytes::copy_from_slice(&bytes), handle)?))
    }

    /// Returns a block if the cache has it.
    pub(crate) fn peek_block(&self, handle: &BlockHandle) -> Result<Option<Block>> {
        self.cache.peek(self.id, handle.at).map(|part| as_block(part, handle)).transpose()
    }

    /// Puts a block that was read together with others into the cache. The bytes are copied, so that the cache does not
    /// hold the others.
    pub(crate) fn insert_block(&self, handle: &BlockHandle, bytes: &[u8]) -> Result<Block> {
        let block = block_of(Bytes::copy_from_slice(bytes), handle)?;
        self.cache.insert(self.id, handle.at, CachedPart::Block(block.clone()));
        Ok(block)
    }

    /// Reads a block, bypassing the cache.
    pub(crate) fn read_block(&self, handle: &BlockHandle) -> Result<Block> {
        block_of(handle.read(&self.source, BLOCK_LEN_MAX)?, handle)
    }
}

fn as_block(part: CachedPart, handle: &BlockHandle) -> Result<Block> {
    match part {
        CachedPart::Block(block) => Ok(block),
        CachedPart::Filter(_) => {
            Err(Error::Corrupt { what: "the handle of a block refers to a filter", at: handle.at })
        }
    }
}

/// Parses a block that must have entries. Only the top of an empty table may have none.
pub(crate) fn block_of(bytes: Bytes, handle: &BlockHandle) -> Result<Block> {
    let block = Block::new(bytes, handle.at)?;
    if block.is_empty() {
        return Err(Error::Corrupt { what: "a block has no entries", at: handle.at });
    }
    Ok(block)
}
