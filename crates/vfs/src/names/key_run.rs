//! A sequence of keys or names in little memory.
//!
//! Keys mostly arrive in ascending order and share prefixes. Each is stored as its difference from the previous one.

/// Number of keys in a group; the first one of a group is stored in full.
const GROUP: usize = 16;

/// A sequence of keys by number.
#[derive(Debug, Default)]
pub(crate) struct KeyRun {
    /// Encoded keys: for each one the number of bytes shared with the previous key, the number of remaining bytes, and
    /// these bytes.
    bytes: Vec<u8>,
    /// Offset of each group in `bytes`. The first key of a group shares no bytes.
    groups: Vec<usize>,
    /// Number of keys, and the last key.
    len: usize,
    last: Vec<u8>,
}

impl KeyRun {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the last key; empty if there is none.
    pub(crate) fn last(&self) -> &[u8] {
        &self.last
    }

    /// Returns the bytes of memory that the keys take.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.groups.capacity() * size_of::<usize>() + self.last.capacity()
    }

    /// Adds a key. Keys may be added in any order, but only ascending ones are found by [`KeyRun::find`].
    pub(crate) fn push(&mut self, sort_key: &[u8]) {
        let is_first = self.len.is_multiple_of(GROUP);
        if is_first {
            self.groups.push(self.bytes.len());
        }
        let shared = self.last.iter().zip(sort_key).take_while(|(a, b)| a == b).count();
        let shared = if is_first { 0 } else { shared.min(usize::from(u8::MAX)) };
        let rest = &sort_key[shared..];
        self.bytes.push(shared as u8);
        // Sort keys are at most as long as object keys.
        self.bytes.extend_from_slice(&(rest.len() as u16).to_le_bytes());
        self.bytes.extend_from_slice(rest);
        self.len += 1;
        sort_key.clone_into(&mut self.last);
    }

    /// Returns the key with this number; `None` if there are fewer keys.
    pub(crate) fn get(&self, index: usize) -> Option<Vec<u8>> {
        if index >= self.len {
            return None;
        }
        let mut sort_key = Vec::new();
        let mut at = self.groups[index / GROUP];
        for _ in 0..=index % GROUP {
            at = self.next(at, &mut sort_key);
        }
        Some(sort_key)
    }

    /// Returns the number of a key; `None` if it was not added. All keys must have been added in ascending order.
    pub(crate) fn find(&self, wanted: &[u8]) -> Option<usize> {
        let begins_before = |at: &usize| {
            let mut sort_key = Vec::new();
            self.next(*at, &mut sort_key);
            sort_key.as_slice() <= wanted
        };
        let group = self.groups.partition_point(begins_before).checked_sub(1)?;
        let (mut at, mut sort_key) = (self.groups[group], Vec::new());
        for index in group * GROUP..self.len.min((group + 1) * GROUP) {
            at = self.next(at, &mut sort_key);
            if sort_key == wanted {
                return Some(index);
            }
        }
        None
    }

    /// Turns the key before the one at the offset `at` into that one. Returns the offset of the next key.
    fn next(&self, at: usize, sort_key: &mut Vec<u8>) -> usize {
        let shared = usize::from(self.bytes[at]);
        let len = usize::from(u16::from_le_bytes([self.bytes[at + 1], self.bytes[at + 2]]));
        sort_key.truncate(shared);
        sort_key.extend_from_slice(&self.bytes[at + 3..at + 3 + len]);
        at + 3 + len
    }
}
