//! A block: entries in the order of their keys, each key without what it shares with the one before.
//!
//! An entry is three numbers (varints: the bytes shared with the key before, the bytes of the key that follow, the bytes of
//! the value), the rest of the key, the value. Every so many entries a *restart* shares nothing; where those are stands
//! behind the entries (32 bits each), and last how many there are. A key shares all that it can, unless it restarts: so order
//! is checked by one byte, and a search compares no byte twice.

use crate::layout::u32_at;
use crate::{Error, KEY_LEN_MAX, Result};
use bytes::Bytes;
use std::cmp::Ordering;
use std::ops::Range;

/// A block that is read: its restarts are within it; its entries are checked as they are read.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    bytes: Bytes,
    entries_len: usize,
    /// Where it begins in the table.
    at: u64,
}

/// Where the parts of an entry are.
#[derive(Debug)]
struct Entry {
    shared: usize,
    rest: Range<usize>,
    value: Range<usize>,
}

/// The last entry that is not after a key.
#[derive(Debug)]
pub(crate) struct Floor {
    /// The restart at or before it.
    restart: usize,
    entry: usize,
    value: Range<usize>,
    /// Whether it has that key.
    pub(crate) is_equal: bool,
}

impl Block {
    /// The block that lies at `at`, which may be empty.
    pub(crate) fn new(bytes: Bytes, at: u64) -> Result<Self> {
        let corrupt = |what| Error::Corrupt { what, at };
        let count_at = bytes.len().checked_sub(4).ok_or(corrupt("a block is too short"))?;
        let restarts_len = (u32_at(&bytes, count_at) as usize).checked_mul(4);
        let entries_len = restarts_len.and_then(|len| count_at.checked_sub(len));
        let entries_len = entries_len.ok_or(corrupt("a block has more restarts than bytes"))?;
        if (entries_len == 0) != (entries_len == count_at) {
            return Err(corrupt("a block has entries without restarts or restarts without entries"));
        }
        Ok(Self { bytes, entries_len, at })
    }

    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries_len == 0
    }

    /// How many bytes it keeps.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The last entry that is not after `key`.
    pub(crate) fn floor(&self, key: &[u8]) -> Result<Option<Floor>> {
        let Some((restart, end)) = self.restart_before(key)? else { return Ok(None) };
        let first = self.entry(restart)?;
        let mut matched = common_len(&self.bytes[first.rest.clone()], key);
        let mut floor = self.floor_at(restart, restart, &first, matched == key.len());
        // Every entry up to the floor is before the key: one that shares more with its predecessor than that does with
        // the key is before it as well, one that shares less is after it.
        let mut at = first.value.end;
        while at < end && !floor.is_equal {
            let entry = self.entry(at)?;
            let next = entry.value.end;
            match entry.shared.cmp(&matched) {
                Ordering::Greater => {}
                Ordering::Less => break,
                Ordering::Equal => {
                    let (rest, wanted) = (&self.bytes[entry.rest.clone()], &key[matched..]);
                    let common = common_len(rest, wanted);
                    if rest.get(common) > wanted.get(common) {
                        break;
                    }
                    matched += common;
                }
            }
            floor = self.floor_at(restart, at, &entry, matched == key.len());
            at = next;
        }
        Ok(Some(floor))
    }

    fn floor_at(&self, restart: usize, at: usize, entry: &Entry, is_equal: bool) -> Floor {
        Floor { restart, entry: at, value: entry.value.clone(), is_equal }
    }

    /// The last restart that is not after `key`, and where the next one is.
    fn restart_before(&self, key: &[u8]) -> Result<Option<(usize, usize)>> {
        // The first `low` restarts are not after the key, those from `high` on are.
        let (mut low, mut high) = (0, self.restarts());
        while low < high {
            let middle = low + (high - low) / 2;
            let entry = self.entry(self.restart(middle))?;
            if self.bytes[entry.rest] <= *key { low = middle + 1 } else { high = middle }
        }
        let end = if low < self.restarts() { self.restart(low) } else { self.entries_len };
        Ok(low.checked_sub(1).map(|last| (self.restart(last), end)))
    }

    fn restarts(&self) -> usize {
        (self.bytes.len() - 4 - self.entries_len) / 4
    }

    fn restart(&self, index: usize) -> usize {
        u32_at(&self.bytes, self.entries_len + 4 * index) as usize
    }

    /// The entry at `at`, its lengths checked.
    fn entry(&self, at: usize) -> Result<Entry> {
        self.parse_entry(at).ok_or_else(|| self.corrupt("an entry does not end within its block"))
    }

    fn parse_entry(&self, at: usize) -> Option<Entry> {
        let bytes = self.bytes.get(at..self.entries_len)?;
        let (shared, rest, value, header) = match *bytes {
            [shared, rest, value, ..] if shared | rest | value < 128 => {
                (usize::from(shared), usize::from(rest), usize::from(value), 3)
            }
            _ => long_header(bytes)?,
        };
        let rest_at = at + header;
        let value_at = rest_at + rest;
        let end = value_at + value;
        (end <= self.entries_len).then_some(Entry { shared, rest: rest_at..value_at, value: value_at..end })
    }

    /// Checks what a search relies on beyond the order of the keys: restarts are entries that share nothing, and the others
    /// share all that they can.
    pub(crate) fn check_restarts(&self) -> Result<()> {
        let (mut at, mut seen, mut lead) = (0, 0, None);
        while at < self.entries_len {
            let entry = self.entry(at)?;
            let is_restart = seen < self.restarts() && self.restart(seen) == at;
            seen += usize::from(is_restart);
            if is_restart && entry.shared > 0 {
                return Err(self.corrupt("a restart shares bytes with the key before it"));
            }
            let rest = self.bytes[entry.rest].first();
            if !is_restart && (at == 0 || entry.shared == 0 && lead.is_some() && rest == lead) {
                return Err(self.corrupt("a key shares less than it can with the one before it"));
            }
            lead = if entry.shared == 0 { rest } else { lead };
            at = entry.value.end;
        }
        if seen < self.restarts() { Err(self.corrupt("a restart is no entry")) } else { Ok(()) }
    }

    fn corrupt(&self, what: &'static str) -> Error {
        Error::Corrupt { what, at: self.at }
    }

    pub(crate) fn value(&self, floor: &Floor) -> Bytes {
        self.bytes.slice(floor.value.clone())
    }

    pub(crate) fn value_bytes(&self, floor: &Floor) -> &[u8] {
        &self.bytes[floor.value.clone()]
    }
}

/// The three numbers before an entry, and how many bytes they take.
#[cold]
fn long_header(bytes: &[u8]) -> Option<(usize, usize, usize, usize)> {
    let mut rest = bytes;
    let (shared, key, value) = (varint(&mut rest)?, varint(&mut rest)?, varint(&mut rest)?);
    Some((shared, key, value, bytes.len() - rest.len()))
}

/// A number below 2^28: more than any length in a table.
fn varint(bytes: &mut &[u8]) -> Option<usize> {
    let mut number = 0;
    for shift in [0, 7, 14, 21] {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= usize::from(first & 127) << shift;
        if *first < 128 {
            return Some(number);
        }
    }
    None
}

fn put_varint(bytes: &mut Vec<u8>, mut number: usize) {
    while number >= 128 {
        bytes.push(number as u8 | 128);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// How many bytes both begin with.
pub(crate) fn common_len(a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let (a, b) = (&a[..len], &b[..len]);
    let same = |(a, b): &(&[u8], &[u8])| a == b;
    let whole = 8 * a.chunks_exact(8).zip(b.chunks_exact(8)).take_while(same).count();
    whole + a[whole..].iter().zip(&b[whole..]).take_while(|(a, b)| a == b).count()
}

/// The entries of a block one after the other, each checked to be after the one before.
#[derive(Debug)]
pub(crate) struct Steps {
    block: Block,
    next: usize,
    /// Whether no entry was read yet.
    is_fresh: bool,
    key: Vec<u8>,
    value: Range<usize>,
}

impl Steps {
    /// Before the first entry.
    pub(crate) fn new(block: Block) -> Self {
        Self { block, next: 0, is_fresh: true, key: Vec::new(), value: 0..0 }
    }

    /// Before an entry of the block, or before the first.
    pub(crate) fn before(block: Block, floor: Option<&Floor>) -> Result<Self> {
        let mut steps = Self::new(block);
        if let Some(floor) = floor {
            steps.next = floor.restart;
            while steps.next < floor.entry {
                steps.advance()?;
            }
        }
        Ok(steps)
    }

    /// Goes to the next entry; false behind the last.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        if self.next >= self.block.entries_len {
            return Ok(false);
        }
        let entry = self.block.entry(self.next)?;
        let rest = &self.block.bytes[entry.rest];
        if entry.shared > self.key.len() || entry.shared + rest.len() > KEY_LEN_MAX {
            return Err(self.block.corrupt("an entry's key has an impossible length"));
        }
        let before = &self.key[entry.shared..];
        // Keys share all they can, or nothing, where all the bytes are compared.
        let is_after = if entry.shared == 0 { rest > before } else { rest.first() > before.first() };
        if !is_after && !self.is_fresh {
            return Err(self.block.corrupt("a key is not after the one before it"));
        }
        self.key.truncate(entry.shared);
        self.key.extend_from_slice(rest);
        self.is_fresh = false;
        self.next = entry.value.end;
        self.value = entry.value;
        Ok(true)
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(crate) fn value(&self) -> Bytes {
        self.block.bytes.slice(self.value.clone())
    }

    pub(crate) fn value_bytes(&self) -> &[u8] {
        &self.block.bytes[self.value.clone()]
    }

    pub(crate) fn block(&self) -> &Block {
        &self.block
    }
}

/// A block that is being written.
#[derive(Debug)]
pub(crate) struct BlockBuilder {
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    interval: usize,
    /// Entries since the last restart.
    since: usize,
    entries: usize,
    /// The last key added, also of the block before.
    last: Vec<u8>,
}

impl BlockBuilder {
    /// With a restart every `interval` entries.
    pub(crate) fn new(interval: usize) -> Self {
        Self { bytes: Vec::new(), restarts: Vec::new(), interval, since: 0, entries: 0, last: Vec::new() }
    }

    /// Adds an entry whose key shares `shared` bytes with the last one and is after it.
    pub(crate) fn add(&mut self, key: &[u8], shared: usize, value: &[u8]) {
        let is_restart = self.entries == 0 || self.since == self.interval;
        if is_restart {
            self.restarts.push(self.bytes.len() as u32);
            self.since = 0;
        }
        let written = if is_restart { 0 } else { shared };
        put_varint(&mut self.bytes, written);
        put_varint(&mut self.bytes, key.len() - written);
        put_varint(&mut self.bytes, value.len());
        self.bytes.extend_from_slice(&key[written..]);
        self.bytes.extend_from_slice(value);
        self.last.truncate(shared);
        self.last.extend_from_slice(&key[shared..]);
        self.since += 1;
        self.entries += 1;
    }

    pub(crate) fn last(&self) -> &[u8] {
        &self.last
    }

    pub(crate) fn entries(&self) -> usize {
        self.entries
    }

    /// How long it would be if it ended now, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + 4 * self.restarts.len() + 4
    }

    /// Ends the block.
    pub(crate) fn finish(&mut self) -> &[u8] {
        for restart in &self.restarts {
            self.bytes.extend_from_slice(&restart.to_le_bytes());
        }
        self.bytes.extend_from_slice(&(self.restarts.len() as u32).to_le_bytes());
        &self.bytes
    }

    /// Begins the next.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.restarts.clear();
        self.since = 0;
        self.entries = 0;
    }
}
