//! A block: entries in key order, with prefix-compressed keys.
//!
//! A block begins with all that a search by key touches: two numbers (the length of the keys and the number of restart
//! points), the restart points, the keys. The values follow. The keys' part holds for each entry three varints (bytes shared with
//! the previous key, remaining bytes of the key, bytes of the value) and the remaining bytes of the key. At regular intervals an
//! entry is a *restart point*: it shares nothing with its predecessor, and the block records the offsets of its key and value. A
//! key that is no restart point shares as many bytes as possible with its predecessor. Comparing one byte is therefore enough to
//! check the order of two keys, and a search that moves from entry to entry compares no byte twice.

use crate::layout::u32_at;
use crate::{Error, KEY_LEN_MAX, Result};
use bytes::Bytes;
use std::ops::Range;

/// A block that is being read. [`Block::new`] checks that its parts lie within it; entries are checked when they are read.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    bytes: Bytes,
    keys_at: usize,
    /// The offset at which the keys end and the values begin.
    values_at: usize,
    /// The offset of the block in the table.
    at: u64,
}

/// The length of the two numbers at the beginning of a block.
const HEAD_LEN: usize = 8;

/// The length of a restart point's two numbers.
const RESTART_LEN: usize = 8;

/// One entry, as the keys' part of a block describes it.
#[derive(Debug)]
struct Entry {
    shared: usize,
    rest: Range<usize>,
    value_len: usize,
}

/// The offsets of an entry and of its value within the block.
#[derive(Debug, Clone, Copy)]
struct Restart {
    entry_at: usize,
    value_at: usize,
}

/// The last entry whose key is less than or equal to the key searched for.
#[derive(Debug)]
pub(crate) struct Floor {
    /// The restart point at or before the entry.
    restart: Restart,
    entry_at: usize,
    value: Range<usize>,
    /// Whether the entry's key equals the key searched for.
    pub(crate) is_equal: bool,
}

impl Block {
    /// Wraps the bytes of the block at offset `at` of the table. The block may be empty.
    pub(crate) fn new(bytes: Bytes, at: u64) -> Result<Self> {
        let corrupt = |what| Error::Corrupt { what, at };
        if bytes.len() < HEAD_LEN {
            return Err(corrupt("a block is too short"));
        }
        let (keys_len, restarts) = (u32_at(&bytes, 0) as usize, u32_at(&bytes, 4) as usize);
        let keys_at = HEAD_LEN + RESTART_LEN * restarts;
        let values_at = keys_at + keys_len;
        if values_at > bytes.len() {
            return Err(corrupt("the keys or restart points of a block exceed its length"));
        }
        if (keys_len == 0) != (restarts == 0) {
            return Err(corrupt("a block has entries without restart points, or the reverse"));
        }
        Ok(Self { bytes, keys_at, values_at, at })
    }

    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys_at == self.values_at
    }

    /// Returns the number of bytes that the block occupies in memory.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the last entry whose key is at most `key`; `None` if all keys are greater.
    pub(crate) fn floor(&self, key: &[u8]) -> Result<Option<Floor>> {
        let Some(last) = self.restarts_up_to(key)?.checked_sub(1) else { return Ok(None) };
        let restart = self.restart(last);
        let end = if last + 1 < self.restarts() { self.restart(last + 1).entry_at } else { self.values_at };
        let first = self.entry(restart.entry_at)?;
        let mut matched = common_len(&self.bytes[first.rest.clone()], key);
        let mut floor = (restart.entry_at, restart.value_at, first.value_len);
        let mut next = first.rest.end;
        // Every entry up to the floor is less than `key`. An entry that shares more bytes with its predecessor than the
        // predecessor shares with `key` is also less than `key`; an entry that shares fewer is greater.
        while next < end && matched < key.len() {
            let entry = self.entry(next)?;
            if entry.shared < matched {
                break;
            }
            if entry.shared == matched {
                let (rest, wanted) = (&self.bytes[entry.rest.clone()], &key[matched..]);
                let common = common_len(rest, wanted);
                if rest.get(common) > wanted.get(common) {
                    break;
                }
                matched += common;
            }
            floor = (next, floor.1 + floor.2, entry.value_len);
            next = entry.rest.end;
        }
        let (entry_at, value_at, value_len) = floor;
        let value = self.value_range(value_at, value_len)?;
        Ok(Some(Floor { restart, entry_at, value, is_equal: matched == key.len() }))
    }

    /// Returns the number of restart points whose key is at most `key`.
    fn restarts_up_to(&self, key: &[u8]) -> Result<usize> {
        self.restarts_while(|restart| restart <= key)
    }

    /// Returns the number of restart points whose key fulfils a condition, which must be false for every key after the
    /// first for which it is false.
    fn restarts_while(&self, is_before: impl Fn(&[u8]) -> bool) -> Result<usize> {
        // Invariant: restart points below `low` fulfil the condition, those from `high` on do not.
        let (mut low, mut high) = (0, self.restarts());
        while low < high {
            let middle = low + (high - low) / 2;
            let entry = self.entry(self.restart(middle).entry_at)?;
            if is_before(&self.bytes[entry.rest]) { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }

    fn restarts(&self) -> usize {
        (self.keys_at - HEAD_LEN) / RESTART_LEN
    }

    fn restart(&self, number: usize) -> Restart {
        let at = HEAD_LEN + RESTART_LEN * number;
        let (entry, value) = (u32_at(&self.bytes, at) as usize, u32_at(&self.bytes, at + 4) as usize);
        Restart { entry_at: self.keys_at + entry, value_at: self.values_at + value }
    }

    /// Returns the entry at offset `at` and checks that its key ends within the block.
    fn entry(&self, at: usize) -> Result<Entry> {
        self.parse_entry(at).ok_or_else(|| self.corrupt("a key does not end within its block"))
    }

    fn parse_entry(&self, at: usize) -> Option<Entry> {
        let bytes = self.bytes.get(at..self.values_at)?;
        let (shared, rest_len, value_len, header_len) = match *bytes {
            [shared, rest, value, ..] if shared | rest | value < 128 => {
                (usize::from(shared), usize::from(rest), usize::from(value), 3)
            }
            _ => parse_long_header(bytes)?,
        };
        let rest = at + header_len..at + header_len + rest_len;
        (rest.end <= self.values_at).then_some(Entry { shared, rest, value_len })
    }

    /// Returns the range of a value and checks that it ends within the block.
    fn value_range(&self, at: usize, len: usize) -> Result<Range<usize>> {
        if at + len > self.bytes.len() {
            return Err(self.corrupt("a value does not end within its block"));
        }
        Ok(at..at + len)
    }

    /// Checks what a search relies on besides the order of the keys: restart points share no bytes, all other entries share as
    /// many as possible, and every byte of the values belongs to an entry.
    pub(crate) fn check(&self) -> Result<()> {
        let (mut at, mut value_at, mut seen, mut lead) = (self.keys_at, self.values_at, 0, None);
        while at < self.values_at {
            let entry = self.entry(at)?;
            let restart =
                (seen < self.restarts()).then(|| self.restart(seen)).filter(|restart| restart.entry_at == at);
            let rest = self.bytes[entry.rest.clone()].first();
            if restart.is_some_and(|restart| entry.shared > 0 || restart.value_at != value_at) {
                return Err(self.corrupt(
                    "a restart point shares bytes with its predecessor or has a wrong value offset",
                ));
            }
            if restart.is_none()
                && (at == self.keys_at || entry.shared == 0 && lead.is_some() && rest == lead)
            {
                return Err(self.corrupt("a key does not share all possible bytes with its predecessor"));
            }
            seen += usize::from(restart.is_some());
            lead = if entry.shared == 0 { rest } else { lead };
            value_at += entry.value_len;
            at = entry.rest.end;
        }
        if seen < self.restarts() || value_at != self.bytes.len() {
            return Err(self.corrupt("a restart point or a value belongs to no entry"));
        }
        Ok(())
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

/// Parses an entry's three varints when one of them is longer than a byte; the fourth number is the length of the three.
#[cold]
fn parse_long_header(bytes: &[u8]) -> Option<(usize, usize, usize, usize)> {
    let mut rest = bytes;
    let (shared, key, value) = (take_varint(&mut rest)?, take_varint(&mut rest)?, take_varint(&mut rest)?);
    Some((shared, key, value, bytes.len() - rest.len()))
}

/// Takes a varint below 2^28, which exceeds every length in a table. `None`: it is longer or cut off.
fn take_varint(bytes: &mut &[u8]) -> Option<usize> {
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

/// Returns the length of the common prefix in bytes.
pub(crate) fn common_len(a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let (a, b) = (&a[..len], &b[..len]);
    let same = |(a, b): &(&[u8], &[u8])| a == b;
    let whole = 8 * a.chunks_exact(8).zip(b.chunks_exact(8)).take_while(same).count();
    whole + a[whole..].iter().zip(&b[whole..]).take_while(|(a, b)| a == b).count()
}

/// A cursor over the entries of one block. Each step checks that keys ascend.
#[derive(Debug, Clone)]
pub(crate) struct BlockCursor {
    block: Block,
    next: Restart,
    /// Whether no entry has been read yet.
    is_before_first: bool,
    key: Vec<u8>,
    value: Range<usize>,
}

impl BlockCursor {
    /// Returns a cursor before the first entry.
    pub(crate) fn new(block: Block) -> Self {
        let next = Restart { entry_at: block.keys_at, value_at: block.values_at };
        Self { block, next, is_before_first: true, key: Vec::new(), value: 0..0 }
    }

    /// Returns a cursor before the last restart point whose key is less than `key`; `None` if there is none.
    pub(crate) fn at_restart_before(block: Block, key: &[u8]) -> Result<Option<Self>> {
        let Some(last) = block.restarts_while(|restart| restart < key)?.checked_sub(1) else {
            return Ok(None);
        };
        let next = block.restart(last);
        Ok(Some(Self { next, ..Self::new(block) }))
    }

    /// Returns a cursor before the entry `floor`, or before the first entry if there is none.
    pub(crate) fn before(block: Block, floor: Option<&Floor>) -> Result<Self> {
        let mut cursor = Self::new(block);
        if let Some(floor) = floor {
            cursor.next = floor.restart;
            while cursor.next.entry_at < floor.entry_at {
                cursor.advance()?;
            }
        }
        Ok(cursor)
    }

    /// Moves to the next entry. Returns false at the end.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        if self.next.entry_at >= self.block.values_at {
            return Ok(false);
        }
        let entry = self.block.entry(self.next.entry_at)?;
        let value = self.block.value_range(self.next.value_at, entry.value_len)?;
        let rest = &self.block.bytes[entry.rest.clone()];
        if entry.shared > self.key.len() || entry.shared + rest.len() > KEY_LEN_MAX {
            return Err(self.block.corrupt("a key has an impossible length"));
        }
        let before = &self.key[entry.shared..];
        // A key that shares bytes shares as many as possible, so its next byte decides; otherwise all bytes are compared.
        let is_after = if entry.shared == 0 { rest > before } else { rest.first() > before.first() };
        if !is_after && !self.is_before_first {
            return Err(self.block.corrupt("keys are not in ascending order"));
        }
        self.key.truncate(entry.shared);
        self.key.extend_from_slice(rest);
        self.is_before_first = false;
        self.next = Restart { entry_at: entry.rest.end, value_at: self.next.value_at + entry.value_len };
        self.value = value;
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

    /// Returns the range of the value within the block.
    #[cfg(feature = "fuzz")]
    pub(crate) fn value_range(&self) -> Range<usize> {
        self.value.clone()
    }

    pub(crate) fn block(&self) -> &Block {
        &self.block
    }
}

/// A block that is being written.
#[derive(Debug)]
pub(crate) struct BlockBuilder {
    /// The encoded bytes of the block that was finished last; a buffer that is reused.
    ended: Vec<u8>,
    keys: Vec<u8>,
    values: Vec<u8>,
    restarts: Vec<[u32; 2]>,
    interval: usize,
    entries: usize,
    /// The last key added, which may belong to the previous block.
    last: Vec<u8>,
}

impl BlockBuilder {
    /// Returns a builder that writes a restart point every `interval` entries.
    pub(crate) fn new(interval: usize) -> Self {
        let (ended, keys, values, restarts, last) = Default::default();
        Self { ended, keys, values, restarts, interval, entries: 0, last }
    }

    /// Adds an entry. Its key must be greater than the last one, with which it shares `shared` bytes.
    pub(crate) fn add(&mut self, key: &[u8], shared: usize, value: &[u8]) {
        let mut written = shared;
        if self.entries.is_multiple_of(self.interval) {
            self.restarts.push([self.keys.len() as u32, self.values.len() as u32]);
            written = 0;
        }
        put_varint(&mut self.keys, written);
        put_varint(&mut self.keys, key.len() - written);
        put_varint(&mut self.keys, value.len());
        self.keys.extend_from_slice(&key[written..]);
        self.values.extend_from_slice(value);
        self.last.truncate(shared);
        self.last.extend_from_slice(&key[shared..]);
        self.entries += 1;
    }

    pub(crate) fn last(&self) -> &[u8] {
        &self.last
    }

    pub(crate) fn entries(&self) -> usize {
        self.entries
    }

    /// Returns the length that the block would have if it were finished now, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.keys.len() + self.values.len() + RESTART_LEN * self.restarts.len() + HEAD_LEN
    }

    /// Finishes the block, returns its bytes and begins the next block.
    pub(crate) fn finish(&mut self) -> &[u8] {
        self.ended.clear();
        let head = [self.keys.len() as u32, self.restarts.len() as u32];
        for number in [head].iter().chain(&self.restarts).flatten() {
            self.ended.extend_from_slice(&number.to_le_bytes());
        }
        self.ended.extend_from_slice(&self.keys);
        self.ended.extend_from_slice(&self.values);
        self.keys.clear();
        self.values.clear();
        self.restarts.clear();
        self.entries = 0;
        &self.ended
    }
}
