//! The entries of a table in ascending order.

use crate::block::{Block, Steps};
use crate::layout::{BLOCK_LEN_MAX, Partition, Place, read};
use crate::merge::Sorted;
use crate::source::Source;
use crate::table::block_of;
use crate::{Error, Result, Table};
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;

/// How much is read at once by who goes on in order, in bytes.
const AHEAD_LEN: u64 = 256 << 10;

/// So many blocks are read by the cache. Who goes on further is not likely to come back, and reads past it.
const NEAR_BLOCKS: u32 = 4;

/// A place between entries of a table, or at one; before the first, when it is new.
///
/// It checks what it reads: whatever the bytes are, keys that it shows ascend.
#[derive(Debug)]
pub struct Cursor<S> {
    reader: Reader<S>,
    state: State,
    value: Bytes,
}

#[derive(Debug)]
enum State {
    Before(Bound<Vec<u8>>),
    At(Box<At>),
    Ended,
}

/// Entries of the top, of an index, and of a block that they name.
#[derive(Debug)]
struct At {
    top: Steps,
    partition: Partition,
    index: Steps,
    data: Steps,
}

impl<S: Source> Cursor<S> {
    pub(crate) fn new(table: Arc<Table<S>>, from: Bound<&[u8]>, keeps: bool) -> Self {
        let reader = Reader { table, ahead: Ahead::default(), keeps, blocks: 0, read_to: 0 };
        Self { reader, state: State::Before(from.map(<[u8]>::to_vec)), value: Bytes::new() }
    }

    /// Goes to the next entry; false behind the last.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] and [`Error::Io`]; the cursor is then behind the last.
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

    /// The present entry's key; empty before the first and behind the last.
    pub fn key(&self) -> &[u8] {
        match &self.state {
            State::At(at) => at.data.key(),
            State::Before(_) | State::Ended => &[],
        }
    }

    /// The present entry's value; empty before the first and behind the last. It keeps up to 256 KiB around it in memory.
    pub fn value(&self) -> &Bytes {
        &self.value
    }

    fn advance_beyond_block(&mut self) -> Result<Option<Box<At>>> {
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

/// Reads blocks in the order in which they lie.
#[derive(Debug)]
struct Reader<S> {
    table: Arc<Table<S>>,
    ahead: Ahead,
    /// Whether what is read ahead stays in the cache.
    keeps: bool,
    /// How many it has read.
    blocks: u32,
    /// Where the last one ended: none is read twice, however often a damaged index names it.
    read_to: u64,
}

impl<S: Source> Reader<S> {
    /// Before the first entry that is within the bound.
    fn seek(&mut self, from: &Bound<Vec<u8>>) -> Result<Option<Box<At>>> {
        if self.table.top().is_empty() {
            return Ok(None);
        }
        let key: &[u8] = match from {
            Bound::Included(key) | Bound::Excluded(key) => key,
            Bound::Unbounded => &[],
        };
        let top = at_floor(self.table.top().clone(), key)?;
        let partition = Partition::decode(top.value_bytes(), top.block().at())?;
        let index = at_floor(self.index(&partition)?, key)?;
        let block = self.data(&index, &partition)?;
        let floor = block.floor(key)?;
        let mut data = Steps::before(block, floor.as_ref())?;
        if floor.is_some_and(|floor| !floor.is_equal || matches!(from, Bound::Excluded(_))) {
            data.advance()?;
        }
        Ok(Some(Box::new(At { top, partition, index, data })))
    }

    /// Goes to the first entry of the next block; false if there is none.
    fn next_block(&mut self, at: &mut At) -> Result<bool> {
        if !at.index.advance()? {
            if !at.top.advance()? {
                return Ok(false);
            }
            at.partition = Partition::decode(at.top.value_bytes(), at.top.block().at())?;
            at.index = Steps::new(self.index(&at.partition)?);
            at.index.advance()?;
        }
        let mut data = Steps::new(self.data(&at.index, &at.partition)?);
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
        let place = &partition.index;
        if self.keeps || self.blocks < NEAR_BLOCKS {
            return self.table.block(place);
        }
        self.table.kept_block(place)?.map_or_else(|| self.table.read_block(place), Ok)
    }

    /// The block that the present entry of an index names.
    fn data(&mut self, index: &Steps, partition: &Partition) -> Result<Block> {
        let place = Place::decode(index.value_bytes(), index.block().at())?;
        if place.at < self.read_to {
            return Err(Error::Corrupt {
                what: "a block does not lie after the one before it",
                at: place.at,
            });
        }
        self.read_to = place.end();
        self.blocks = self.blocks.saturating_add(1);
        if self.keeps && self.blocks > 1 {
            return self.kept(index, partition, &place);
        }
        if self.blocks <= NEAR_BLOCKS {
            return self.table.block(&place);
        }
        if !self.ahead.has(&place)
            && let Some(block) = self.table.kept_block(&place)?
        {
            return Ok(block);
        }
        block_of(self.ahead.read(self.table.source(), &place, partition.filter.at)?, &place)
    }

    /// A block by the cache; where that has not got it, with those behind it that one read takes. They are this reader's too:
    /// a cache may be too small for them.
    fn kept(&mut self, index: &Steps, partition: &Partition, place: &Place) -> Result<Block> {
        if let Some(block) = self.table.kept_block(place)? {
            return Ok(block);
        }
        let ahead = &mut self.ahead;
        let is_new = !ahead.has(place);
        let block =
            self.table.keep_block(place, &ahead.read(self.table.source(), place, partition.filter.at)?)?;
        if !is_new {
            return Ok(block);
        }
        let mut rest = index.clone();
        while rest.advance()? {
            let next = Place::decode(rest.value_bytes(), rest.block().at())?;
            let Some(bytes) = ahead.bytes_of(&next) else { break };
            // Whoever comes to one that is damaged reads it again, and says so.
            if next.check(&bytes).is_ok() {
                self.table.keep_block(&next, &bytes)?;
            }
        }
        Ok(block)
    }
}

/// At the last entry that is not after `key`, or at the first.
fn at_floor(block: Block, key: &[u8]) -> Result<Steps> {
    let floor = block.floor(key)?;
    let mut steps = Steps::before(block, floor.as_ref())?;
    steps.advance()?;
    Ok(steps)
}

/// What was read of a table beyond what was asked for.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    at: u64,
    bytes: Bytes,
}

impl Ahead {
    fn has(&self, place: &Place) -> bool {
        self.at <= place.at && place.end() <= self.at + self.bytes.len() as u64
    }

    /// The bytes of a place; others of those after it, up to `end`, are worth to be read with them.
    pub(crate) fn read(&mut self, source: &impl Source, place: &Place, end: u64) -> Result<Bytes> {
        if place.len as usize > BLOCK_LEN_MAX {
            return Err(Error::Corrupt { what: "a block is too long", at: place.at });
        }
        if !self.has(place) {
            let len = end.saturating_sub(place.at).min(AHEAD_LEN).max(u64::from(place.len));
            let bytes = match read(source, place.at, len as usize) {
                // The unreadable sector may lie in blocks that are only read ahead.
                Err(Error::Io(_)) if len > u64::from(place.len) => read(source, place.at, place.len as usize),
                read => read,
            };
            *self = Self { at: place.at, bytes: bytes? };
        }
        place.checked(source, self.bytes_of(place).unwrap_or_default())
    }

    /// The bytes of a place, if they were read.
    fn bytes_of(&self, place: &Place) -> Option<Bytes> {
        let start = self.has(place).then(|| (place.at - self.at) as usize)?;
        Some(self.bytes.slice(start..start + place.len as usize))
    }
}
