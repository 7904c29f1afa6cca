//! Reads a whole table and checks it.

use crate::block::{Block, BlockCursor};
use crate::cursor::ReadAhead;
use crate::filter::{self, Filter};
use crate::layout::{BlockHandle, Partition};
use crate::source::Source;
use crate::table::block_of;
use crate::{Error, Result, Table};

/// Implements [`Table::verify`].
pub(crate) fn verify<S: Source>(table: &Table<S>) -> Result<()> {
    let mut verifier = Verifier { table, ahead: ReadAhead::default(), at: 0, entries: 0, last: Vec::new() };
    table.top().check()?;
    let mut top = BlockCursor::new(table.top().clone());
    while top.advance()? {
        verifier.check_partition(top.key(), &Partition::decode(top.value_bytes(), top.block().at())?)?;
    }
    verifier.check_end()
}

struct Verifier<'a, S> {
    table: &'a Table<S>,
    ahead: ReadAhead,
    /// The offset up to which the table has been checked, in bytes.
    at: u64,
    entries: u64,
    /// The last key that was checked, so that keys can be seen to ascend.
    last: Vec<u8>,
}

impl<S: Source> Verifier<'_, S> {
    fn check_partition(&mut self, bound: &[u8], partition: &Partition) -> Result<()> {
        let filter = self.table.read_filter(&partition.filter)?;
        let index = self.table.read_block(&partition.index)?;
        index.check()?;
        let mut index = BlockCursor::new(index);
        let mut is_first = true;
        while index.advance()? {
            if is_first && index.key() != bound {
                return Err(self.corrupt("the top-level index and an index disagree on a bound"));
            }
            is_first = false;
            let handle = BlockHandle::decode(index.value_bytes(), index.block().at())?;
            self.advance_over(&handle)?;
            let bytes = self.ahead.read(self.table.source(), &handle, partition.filter.at)?;
            self.check_block(index.key(), block_of(bytes, &handle)?, &filter)?;
        }
        self.advance_over(&partition.filter)?;
        self.advance_over(&partition.index)
    }

    /// Checks that a part begins where the previous part ended, and moves past it.
    fn advance_over(&mut self, handle: &BlockHandle) -> Result<()> {
        if handle.at != self.at {
            return Err(self.corrupt("there is a gap or an overlap between parts"));
        }
        self.at = handle.end();
        Ok(())
    }

    fn check_block(&mut self, bound: &[u8], block: Block, filter: &Filter) -> Result<()> {
        block.check()?;
        let mut data = BlockCursor::new(block);
        let mut is_first = true;
        while data.advance()? {
            if is_first {
                self.check_first_key(bound, data.key())?;
            }
            is_first = false;
            if !filter.may_hold(filter::hash(data.key())) {
                return Err(self.corrupt("a filter excludes a key that the table holds"));
            }
            self.entries += 1;
        }
        self.last.clear();
        self.last.extend_from_slice(data.key());
        Ok(())
    }

    /// Checks the first key of a block against the block's bound and the keys before it.
    fn check_first_key(&self, bound: &[u8], key: &[u8]) -> Result<()> {
        let is_after = if self.entries == 0 { bound.is_empty() } else { bound > self.last.as_slice() };
        if !is_after || key < bound {
            return Err(self.corrupt("a block's keys are not within its bounds"));
        }
        if self.entries == 0 && key != self.table.first() {
            return Err(self.corrupt("the table states another first key"));
        }
        Ok(())
    }

    fn check_end(&self) -> Result<()> {
        let tail_at = self.table.top().at() - (self.table.first().len() + self.table.last().len()) as u64;
        match () {
            () if self.at != tail_at => Err(self.corrupt("there is a gap or an overlap between parts")),
            () if self.entries != self.table.entries() => {
                Err(self.corrupt("the footer states another number of entries"))
            }
            () if self.last != self.table.last() => Err(self.corrupt("the table states another last key")),
            () => Ok(()),
        }
    }

    fn corrupt(&self, what: &'static str) -> Error {
        Error::Corrupt { what, at: self.at }
    }
}
