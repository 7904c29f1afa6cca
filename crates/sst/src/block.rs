//! A block: entries in the order of their keys, each key without what it shares with the one before.
//!
//! What a search by key touches lies together: two numbers (the length of the keys and how many restarts there are), the
//! restarts, the keys; behind them the values. Of each entry the keys' part has three numbers (varints: the bytes shared
//! with the key before, the bytes of the key that follow, the bytes of the value) and the rest of the key. Every so many
//! entries a *restart* shares nothing: it says where the entry is among the keys and its value among the values. A key shares
//! all that it can, unless it restarts: so order is checked by one byte, and a search from entry to entry compares none twice.

use crate::layout::u32_at;
use crate::{Error, KEY_LEN_MAX, Result};
use bytes::Bytes;
use std::ops::Range;

/// A block that is read: its parts are within it; its entries are checked as they are read.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    bytes: Bytes,
    keys_at: usize,
    /// Where the keys end and the values begin.
    values_at: usize,
    /// Where it begins in the table.
    at: u64,
}

/// The two numbers that a block begins with.
const HEAD_LEN: usize = 8;

/// A restart's two numbers.
const RESTART_LEN: usize = 8;

/// What the keys' part has of an entry.
#[derive(Debug)]
struct Entry {
    shared: usize,
    rest: Range<usize>,
    value_len: usize,
}

/// Where in the block an entry is, and its value.
#[derive(Debug, Clone, Copy)]
struct Restart {
    entry_at: usize,
    value_at: usize,
}

/// The last entry that is not after a key.
#[derive(Debug)]
pub(crate) struct Floor {
    /// The restart at or before it.
    restart: Restart,
    entry_at: usize,
    value: Range<usize>,
    /// Whether it has that key.
    pub(crate) is_equal: bool,
}

impl Block {
    /// The block that lies at `at`, which may be empty.
    pub(crate) fn new(bytes: Bytes, at: u64) -> Result<Self> {
        let corrupt = |what| Error::Corrupt { what, at };
        if bytes.len() < HEAD_LEN {
            return Err(corrupt("a block is too short"));
        }
        let (keys_len, restarts) = (u32_at(&bytes, 0) as usize, u32_at(&bytes, 4) as usize);
        let keys_at = HEAD_LEN + RESTART_LEN * restarts;
        let values_at = keys_at + keys_len;
        if values_at > bytes.len() {
            return Err(corrupt("a block has more keys or restarts than bytes"));
        }
        if (keys_len == 0) != (restarts == 0) {
            return Err(corrupt("a block has entries without restarts or restarts without entries"));
        }
        Ok(Self { bytes, keys_at, values_at, at })
    }

    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys_at == self.values_at
    }

    /// How many bytes it keeps.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The last entry that is not after `key`.
    pub(crate) fn floor(&self, key: &[u8]) -> Result<Option<Floor>> {
        let Some(last) = self.restarts_up_to(key)?.checked_sub(1) else { return Ok(None) };
        let restart = self.restart(last);
        let end = if last + 1 < self.restarts() { self.restart(last + 1).entry_at } else { self.values_at };
        let first = self.entry(restart.entry_at)?;
        let mut matched = common_len(&self.bytes[first.rest.clone()], key);
        let mut floor = (restart.entry_at, restart.value_at, first.value_len);
        let mut next = first.rest.end;
        // Every entry up to the floor is before the key: one that shares more with its predecessor than that does with
        // the key is before it as well, one that shares less is after it.
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

    /// How many restarts are not after `key`.
    fn restarts_up_to(&self, key: &[u8]) -> Result<usize> {
        // The first `low` are not, those from `high` on are.
        let (mut low, mut high) = (0, self.restarts());
        while low < high {
            let middle = low + (high - low) / 2;
            let entry = self.entry(self.restart(middle).entry_at)?;
            if self.bytes[entry.rest] <= *key { low = middle + 1 } else { high = middle }
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

    /// The entry at `at`, its key's end checked.
    fn entry(&self, at: usize) -> Result<Entry> {
        self.parse_entry(at).ok_or_else(|| self.corrupt("a key does not end within its block"))
    }

    fn parse_entry(&self, at: usize) -> Option<Entry> {
        let bytes = self.bytes.get(at..self.values_at)?;
        let (shared, rest_len, value_len, header_len) = match *bytes {
            [shared, rest, value, ..] if shared | rest | value < 128 => {
                (usize::from(shared), usize::from(rest), usize::from(value), 3)
            }
            _ => long_header(bytes)?,
        };
        let rest = at + header_len..at + header_len + rest_len;
        (rest.end <= self.values_at).then_some(Entry { shared, rest, value_len })
    }

    /// Where a value is, its end checked.
    fn value_range(&self, at: usize, len: usize) -> Result<Range<usize>> {
        if at + len > self.bytes.len() {
            return Err(self.corrupt("a value does not end within its block"));
        }
        Ok(at..at + len)
    }

    /// Checks what a search relies on beyond the order of the keys: restarts are entries that share nothing, and the others
    /// share all that they can. And that every byte of the values is one's.
    pub(crate) fn check(&self) -> Result<()> {
        let (mut at, mut value_at, mut seen, mut lead) = (self.keys_at, self.values_at, 0, None);
        while at < self.values_at {
            let entry = self.entry(at)?;
            let restart =
                (seen < self.restarts()).then(|| self.restart(seen)).filter(|restart| restart.entry_at == at);
            let rest = self.bytes[entry.rest.clone()].first();
            if restart.is_some_and(|restart| entry.shared > 0 || restart.value_at != value_at) {
                return Err(
                    self.corrupt("a restart shares bytes with the key before it, or has another value")
                );
            }
            if restart.is_none()
                && (at == self.keys_at || entry.shared == 0 && lead.is_some() && rest == lead)
            {
                return Err(self.corrupt("a key shares less than it can with the one before it"));
            }
            seen += usize::from(restart.is_some());
            lead = if entry.shared == 0 { rest } else { lead };
            value_at += entry.value_len;
            at = entry.rest.end;
        }
        if seen < self.restarts() || value_at != self.bytes.len() {
            return Err(self.corrupt("a restart or a value is no entry's"));
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
#[derive(Debug, Clone)]
pub(crate) struct Steps {
    block: Block,
    next: Restart,
    /// Whether no entry was read yet.
    is_fresh: bool,
    key: Vec<u8>,
    value: Range<usize>,
}

impl Steps {
    /// Before the first entry.
    pub(crate) fn new(block: Block) -> Self {
        let next = Restart { entry_at: block.keys_at, value_at: block.values_at };
        Self { block, next, is_fresh: true, key: Vec::new(), value: 0..0 }
    }

    /// Before an entry of the block, or before the first.
    pub(crate) fn before(block: Block, floor: Option<&Floor>) -> Result<Self> {
        let mut steps = Self::new(block);
        if let Some(floor) = floor {
            steps.next = floor.restart;
            while steps.next.entry_at < floor.entry_at {
                steps.advance()?;
            }
        }
        Ok(steps)
    }

    /// Goes to the next entry; false behind the last.
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
        // Keys share all they can, or nothing, where all the bytes are compared.
        let is_after = if entry.shared == 0 { rest > before } else { rest.first() > before.first() };
        if !is_after && !self.is_fresh {
            return Err(self.block.corrupt("a key is not after the one before it"));
        }
        self.key.truncate(entry.shared);
        self.key.extend_from_slice(rest);
        self.is_fresh = false;
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

    /// Where in the block the value is.
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
    /// All of the last block that ended.
    ended: Vec<u8>,
    keys: Vec<u8>,
    values: Vec<u8>,
    restarts: Vec<[u32; 2]>,
    interval: usize,
    entries: usize,
    /// The last key added, also of the block before.
    last: Vec<u8>,
}

impl BlockBuilder {
    /// With a restart every `interval` entries.
    pub(crate) fn new(interval: usize) -> Self {
        let (ended, keys, values, restarts, last) = Default::default();
        Self { ended, keys, values, restarts, interval, entries: 0, last }
    }

    /// Adds an entry whose key shares `shared` bytes with the last one and is after it.
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

    /// How long it would be if it ended now, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.keys.len() + self.values.len() + RESTART_LEN * self.restarts.len() + HEAD_LEN
    }

    /// Ends the block and begins the next.
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
