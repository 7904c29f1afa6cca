//! A cursor over the entries of a table in ascending order, with read-ahead.

use crate::block::{Block, BlockCursor};
use crate::layout::{BLOCK_LEN_MAX, BlockHandle, Partition, read};
use crate::merge::Sorted;
use crate::source::Source;
use crate::table::block_of;
use crate::{Error, Result, Table};
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;

/// The number of bytes that a long scan reads at once.
const READ_AHEAD_LEN: u64 = 256 << 10;

/// The number of blocks that a scan reads through the cache. A longer scan is unlikely to be repeated, so it bypasses the cache.
const CACHED_BLOCKS: u32 = 4;

/// A position in a table: before the first entry of a scan when new, then at an entry, then at the end.
///
/// The cursor checks what it reads: whatever the bytes are, the keys that it returns ascend.
#[derive(Debug)]
pub struct Cursor<S> {
    reader: BlockReader<S>,
    state: State,
    value: Bytes,
}

#[derive(Debug)]
enum State {
    Before(Bound<Vec<u8>>),
    At(Box<Position>),
    Ended,
}

/// The current entries of the top, of the index that the top refers to, and of the block that the index refers to.
#[derive(Debug)]
struct Position {
    top: BlockCursor,
    partition: Partition,
    index: BlockCursor,
    data: BlockCursor,
}

impl<S: Source> Cursor<S> {
    pub(crate) fn new(table: Arc<Table<S>>, from: Bound<&[u8]>, fills_cache: bool) -> Self {
        let reader = BlockReader { table, ahead: ReadAhead::default(), fills_cache, blocks: 0, read_to: 0 };
        Self { reader, state: State::Before(from.map(<[u8]>::to_vec)), value: Bytes::new() }
    }

    /// Moves to the next entry. Returns false at the end.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] and [`Error::Io`]; the cursor is then at the end.
    pub fn advance(&mut self) -> Result<bool> {
        if let State::At(at) = &mut self.state
            && let Ok(true) = at.data.advance()
        {
            self.value = at.data.value();
            return Ok(true);
        }
        match self.advance_beyond_block() {
            Ok(Some(at)) => {
                self.value = at.data.value();
                self.state = State::At(at);
                Ok(true)
            }
            ended => {
                self.value = Bytes::new();
                ended.map(|_| false)
            }
        }
    }

    /// Returns the current entry's key; empty before the first entry and at the end.
    pub fn key(&self) -> &[u8] {
        match &self.state {
            State::At(at) => at.data.key(),
            State::Before(_) | State::Ended => &[],
        }
    }

    /// Returns the current entry's value; empty before the first entry and at the end. A value may keep up to 256 KiB of read-ahead alive.
    pub fn value(&self) -> &Bytes {
        &self.value
    }

    fn advance_beyond_block(&mut self) -> Result<Option<Box<Position>>> {
        let mut at = match std::mem::replace(&mut self.state, State::Ended) {
            State::Ended => return Ok(None),
            State::At(at) => at,
            State::Before(from) => match self.reader.seek(&from)? {
                None => return Ok(None),
                Some(at) => at,
            },
        };
        let is_at_entry = at.data.advance()? || self.reader.next_block(&mut at)?;
        Ok(is_at_entry.then_some(at))
    }
}

impl<S: Source> Sorted for Cursor<S> {
    fn advance(&mut self) -> Result<bool> {
        self.advance()
    }

    fn key(&self) -> &[u8] {
        self.key()
    }

    fn value(&self) -> &Bytes {
        self.value()
    }
}

/// Reads the blocks of a table in the order of their offsets.
#[derive(Debug)]
struct BlockReader<S> {
    table: Arc<Table<S>>,
    ahead: ReadAhead,
    /// Whether blocks that were read ahead go into the cache.
    fills_cache: bool,
    /// The number of data blocks read.
    blocks: u32,
    /// The end of the last data block. No block is read twice, even if a damaged index lists it twice.
    read_to: u64,
}

impl<S: Source> BlockReader<S> {
    /// Returns the position after which the entries within the lower bound `from` begin, if there are any; `None` if
    /// the table is empty.
    fn seek(&mut self, from: &Bound<Vec<u8>>) -> Result<Option<Box<Position>>> {
        if self.table.top().is_empty() {
            return Ok(None);
        }
        let key: &[u8] = match from {
            Bound::Included(key) | Bound::Excluded(key) => key,
            Bound::Unbounded => &[],
        };
        let top = seek_to_floor(self.table.top().clone(), key)?;
        let partition = Partition::decode(top.value_bytes(), top.block().at())?;
        let index = seek_to_floor(self.index(&partition)?, key)?;
        let block = self.data(&index, &partition)?;
        let floor = block.floor(key)?;
        let mut data = BlockCursor::before(block, floor.as_ref())?;
        if floor.is_some_and(|floor| !floor.is_equal || matches!(from, Bound::Excluded(_))) {
            data.advance()?;
        }
        Ok(Some(Box::new(Position { top, partition, index, data })))
    }

    /// Moves to the first entry of the next block. Returns false if there is no further block.
    fn next_block(&mut self, at: &mut Position) -> Result<bool> {
        if !at.index.advance()? {
            if !at.top.advance()? {
                return Ok(false);
            }
            at.partition = Partition::decode(at.top.value_bytes(), at.top.block().at())?;
            at.index = BlockCursor::new(self.index(&at.partition)?);
            at.index.advance()?;
        }
        let mut data = BlockCursor::new(self.data(&at.index, &at.partition)?);
        data.advance()?;
        let bound = at.index.key();
        if bound <= at.data.key() || data.key() < bound {
            return Err(Error::Corrupt {
                what: "a block's keys are not within its bounds",
                at: data.block().at(),
            });
        }
        at.data = data;
        Ok(true)
    }

    fn index(&mut self, partition: &Partition) -> Result<Block> {
        let handle = &partition.index;
        if self.fills_cache || self.blocks < CACHED_BLOCKS {
            return self.table.block(handle);
        }
        self.table.peek_block(handle)?.map_or_else(|| self.table.read_block(handle), Ok)
    }

    /// Reads the block to which the current entry of an index refers.
    fn data(&mut self, index: &BlockCursor, partition: &Partition) -> Result<Block> {
        let handle = BlockHandle::decode(index.value_bytes(), index.block().at())?;
        if handle.at < self.read_to {
            return Err(Error::Corrupt {
                what: "blocks are not in ascending order of their offsets",
                at: handle.at,
            });
        }
        self.read_to = handle.end();
        self.blocks = self.blocks.saturating_add(1);
        if self.fills_cache && self.blocks > 1 {
            return self.read_cached(index, partition, &handle);
        }
        if self.blocks <= CACHED_BLOCKS {
            return self.table.block(&handle);
        }
        if !self.ahead.has(&handle)
            && let Some(block) = self.table.peek_block(&handle)?
        {
            return Ok(block);
        }
        block_of(self.ahead.read(self.table.source(), &handle, partition.filter.at)?, &handle)
    }

    /// Returns a block from the cache. On a miss, reads it together with the following blocks and caches all of them. The reader also
    /// keeps the read-ahead buffer itself, because a cache may be too small for these blocks.
    fn read_cached(
        &mut self,
        index: &BlockCursor,
        partition: &Partition,
        handle: &BlockHandle,
    ) -> Result<Block> {
        if let Some(block) = self.table.peek_block(handle)? {
            return Ok(block);
        }
        let ahead = &mut self.ahead;
        let is_new = !ahead.has(handle);
        let block = self
            .table
            .insert_block(handle, &ahead.read(self.table.source(), handle, partition.filter.at)?)?;
        if !is_new {
            return Ok(block);
        }
        let mut rest = index.clone();
        while rest.advance()? {
            let next = BlockHandle::decode(rest.value_bytes(), rest.block().at())?;
            let Some(bytes) = ahead.slice_of(&next) else { break };
            // A damaged block is not cached. A scan that reaches it reads it again and reports the damage.
            if next.check(&bytes).is_ok() {
                self.table.insert_block(&next, &bytes)?;
            }
        }
        Ok(block)
    }
}

/// Returns a cursor at the last entry whose key is at most `key`, or at the first entry.
fn seek_to_floor(block: Block, key: &[u8]) -> Result<BlockCursor> {
    let floor = block.floor(key)?;
    let mut steps = BlockCursor::before(block, floor.as_ref())?;
    steps.advance()?;
    Ok(steps)
}

/// The read-ahead buffer: a range of a table that was read at once.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    at: u64,
    bytes: Bytes,
}

impl ReadAhead {
    fn has(&self, handle: &BlockHandle) -> bool {
        self.at <= handle.at && handle.end() <= self.at + self.bytes.len() as u64
    }

    /// Returns the bytes of a part. If the buffer lacks them, reads them together with the bytes that follow, up to the offset `end`.
    pub(crate) fn read(&mut self, source: &impl Source, handle: &BlockHandle, end: u64) -> Result<Bytes> {
        if handle.len as usize > BLOCK_LEN_MAX {
            return Err(Error::Corrupt { what: "a block is too long", at: handle.at });
        }
        if !self.has(handle) {
            let len = end.saturating_sub(handle.at).min(READ_AHEAD_LEN).max(u64::from(handle.len));
            let bytes = match read(source, handle.at, len as usize) {
                // The unreadable sector may lie in blocks that are only read ahead.
                Err(Error::Io(_)) if len > u64::from(handle.len) => {
                    read(source, handle.at, handle.len as usize)
                }
                read => read,
            };
            *self = Self { at: handle.at, bytes: bytes? };
        }
        handle.check_or_reread(source, self.slice_of(handle).unwrap_or_default())
    }

    /// Returns the bytes of a part if the buffer has them.
    fn slice_of(&self, handle: &BlockHandle) -> Option<Bytes> {
        let start = self.has(handle).then(|| (handle.at - self.at) as usize)?;
        Some(self.bytes.slice(start..start + handle.len as usize))
    }
}
