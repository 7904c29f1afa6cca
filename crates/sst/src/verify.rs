//! Reads a table to the last byte and checks it.

use crate::block::{Block, Steps};
use crate::cursor::Ahead;
use crate::filter::{self, Filter};
use crate::layout::{Partition, Place};
use crate::source::Source;
use crate::table::block_of;
use crate::{Error, Result, Table};

pub(crate) fn verify<S: Source>(table: &Table<S>) -> Result<()> {
    let mut check = Check { table, ahead: Ahead::default(), at: 0, entries: 0, last: Vec::new() };
    table.top().check()?;
    let mut top = Steps::new(table.top().clone());
    while top.advance()? {
        check.partition(top.key(), &Partition::decode(top.value_bytes(), top.block().at())?)?;
    }
    check.end()
}

struct Check<'a, S> {
    table: &'a Table<S>,
    ahead: Ahead,
    /// How far it has come, in bytes.
    at: u64,
    entries: u64,
    /// The last key.
    last: Vec<u8>,
}

impl<S: Source> Check<'_, S> {
    fn partition(&mut self, bound: &[u8], partition: &Partition) -> Result<()> {
        let filter = self.table.read_filter(&partition.filter)?;
        let index = self.table.read_block(&partition.index)?;
        index.check()?;
        let mut index = Steps::new(index);
        let mut is_first = true;
        while index.advance()? {
            if is_first && index.key() != bound {
                return Err(self.corrupt("the top and an index differ in a bound"));
            }
            is_first = false;
            let place = Place::decode(index.value_bytes(), index.block().at())?;
            self.reach(&place)?;
            let bytes = self.ahead.read(self.table.source(), &place, partition.filter.at)?;
            self.block(index.key(), block_of(bytes, &place)?, &filter)?;
        }
        self.reach(&partition.filter)?;
        self.reach(&partition.index)
    }

    /// Parts lie one after the other.
    fn reach(&mut self, place: &Place) -> Result<()> {
        if place.at != self.at {
            return Err(self.corrupt("bytes belong to no part, or to two"));
        }
        self.at = place.end();
        Ok(())
    }

    fn block(&mut self, bound: &[u8], block: Block, filter: &Filter) -> Result<()> {
        block.check()?;
        let mut data = Steps::new(block);
        let mut is_first = true;
        while data.advance()? {
            if is_first {
                self.first(bound, data.key())?;
            }
            is_first = false;
            if !filter.may_hold(filter::hash(data.key())) {
                return Err(self.corrupt("a filter excludes a key that is there"));
            }
            self.entries += 1;
        }
        self.last.clear();
        self.last.extend_from_slice(data.key());
        Ok(())
    }

    /// The first key of a block.
    fn first(&self, bound: &[u8], key: &[u8]) -> Result<()> {
        let is_after = if self.entries == 0 { bound.is_empty() } else { bound > self.last.as_slice() };
        if !is_after || key < bound {
            return Err(self.corrupt("a block's keys are not within its bounds"));
        }
        if self.entries == 0 && key != self.table.first() {
            return Err(self.corrupt("the first key is another"));
        }
        Ok(())
    }

    fn end(&self) -> Result<()> {
        let kept_at = self.table.top().at() - (self.table.first().len() + self.table.last().len()) as u64;
        match () {
            () if self.at != kept_at => Err(self.corrupt("bytes belong to no part, or to two")),
            () if self.entries != self.table.entries() => {
                Err(self.corrupt("there are more or fewer entries"))
            }
            () if self.last != self.table.last() => Err(self.corrupt("the last key is another")),
            () => Ok(()),
        }
    }

    fn corrupt(&self, what: &'static str) -> Error {
        Error::Corrupt { what, at: self.at }
    }
}
