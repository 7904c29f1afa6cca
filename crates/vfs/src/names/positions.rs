//! The positions of an open directory, as `telldir` gives them.
//!
//! POSIX lets a program return to any position that it was given until it calls `rewinddir`, and a rewound directory cannot be told
//! from one whose first position is returned to. So every position of an open directory stays what it was until the directory is
//! closed. Texts of a listing come in ascending order and mostly share their beginnings: each is kept as what differs from the one
//! before it, so that a position costs a few bytes.
//!
//! Invariant: texts of the run ascend; a position is never given to a second text.

use std::collections::{BTreeMap, HashMap};

/// `.` and `..` have the first two positions.
pub(crate) const DOTS: u64 = 2;
/// Texts between two that are kept whole.
const GROUP: usize = 16;
/// Positions of entries that came between others which had theirs. Directories have fewer entries.
const INSERTED: u64 = 1 << 48;

/// Positions of one open directory. A position stands after its entry.
#[derive(Debug, Default)]
pub(crate) struct Positions {
    /// Entries before the run, of which another open directory knows the texts.
    first: u64,
    run: Run,
    inserted: BTreeMap<Vec<u8>, u64>,
    inserted_keys: HashMap<u64, Vec<u8>>,
}

/// Ascending texts.
#[derive(Debug, Default)]
struct Run {
    /// For each text how many bytes it shares with the one before, how many follow, and these.
    bytes: Vec<u8>,
    /// Where each group begins, whose first text shares nothing.
    groups: Vec<usize>,
    len: usize,
    last: Vec<u8>,
}

impl Positions {
    /// The text of the entry before a position; the empty text before the first. `None` if the position was not given here.
    pub(crate) fn text(&self, position: u64) -> Option<Vec<u8>> {
        if position <= DOTS {
            return Some(Vec::new());
        }
        if position > INSERTED {
            return self.inserted_keys.get(&position).cloned();
        }
        let index = (position - DOTS - 1).checked_sub(self.first)?;
        self.run.get(usize::try_from(index).ok()?)
    }

    /// Goes on at a position that another open directory was given.
    pub(crate) fn begin_at(&mut self, position: u64) {
        *self = Self { first: position - DOTS, ..Self::default() };
    }

    /// The position after the entry with this text.
    pub(crate) fn after(&mut self, text: &[u8]) -> u64 {
        if self.run.len == 0 || self.run.last.as_slice() < text {
            self.run.push(text);
            return DOTS + self.first + self.run.len as u64;
        }
        if let Some(index) = self.run.find(text) {
            return DOTS + self.first + index as u64 + 1;
        }
        let next = INSERTED + 1 + self.inserted.len() as u64;
        let position = *self.inserted.entry(text.to_vec()).or_insert(next);
        self.inserted_keys.entry(position).or_insert_with(|| text.to_vec());
        position
    }

    /// How many entries come before a position in an unchanged directory; `None` for entries that came later.
    pub(crate) fn rank(position: u64) -> Option<usize> {
        usize::try_from(position - DOTS).ok().filter(|_| position < INSERTED)
    }
}

impl Run {
    fn push(&mut self, text: &[u8]) {
        let is_first = self.len.is_multiple_of(GROUP);
        if is_first {
            self.groups.push(self.bytes.len());
        }
        let shared = self.last.iter().zip(text).take_while(|(a, b)| a == b).count();
        let shared = if is_first { 0 } else { shared.min(usize::from(u8::MAX)) };
        let rest = &text[shared..];
        self.bytes.push(shared as u8);
        // Texts are no longer than keys.
        self.bytes.extend_from_slice(&(rest.len() as u16).to_le_bytes());
        self.bytes.extend_from_slice(rest);
        self.len += 1;
        text.clone_into(&mut self.last);
    }

    fn get(&self, index: usize) -> Option<Vec<u8>> {
        if index >= self.len {
            return None;
        }
        let mut text = Vec::new();
        let mut at = self.groups[index / GROUP];
        for _ in 0..=index % GROUP {
            at = self.next(at, &mut text);
        }
        Some(text)
    }

    fn find(&self, wanted: &[u8]) -> Option<usize> {
        let begins_before = |at: &usize| {
            let mut text = Vec::new();
            self.next(*at, &mut text);
            text.as_slice() <= wanted
        };
        let group = self.groups.partition_point(begins_before).checked_sub(1)?;
        let (mut at, mut text) = (self.groups[group], Vec::new());
        for index in group * GROUP..self.len.min((group + 1) * GROUP) {
            at = self.next(at, &mut text);
            if text == wanted {
                return Some(index);
            }
        }
        None
    }

    /// Turns the text before the one at `at` into that one; returns where the next begins.
    fn next(&self, at: usize, text: &mut Vec<u8>) -> usize {
        let shared = usize::from(self.bytes[at]);
        let len = usize::from(u16::from_le_bytes([self.bytes[at + 1], self.bytes[at + 2]]));
        text.truncate(shared);
        text.extend_from_slice(&self.bytes[at + 3..at + 3 + len]);
        at + 3 + len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that returned to an earlier position and read on there got EINVAL for positions that it had been given further ahead:
    /// the entries read again had taken their numbers.
    #[test]
    fn s430_a_position_is_given_to_one_entry() {
        let mut positions = Positions::default();
        let names: Vec<Vec<u8>> = (0..40_000).map(|n| format!("file-{n:06}").into_bytes()).collect();
        let given: Vec<u64> = names.iter().map(|name| positions.after(name)).collect();
        assert_eq!((given[0], given[39_999]), (3, 40_002));
        assert_eq!(positions.text(DOTS), Some(Vec::new()));
        for at in [0, 15, 16, 17, 12_345, 39_999] {
            assert_eq!(positions.text(given[at]).as_ref(), Some(&names[at]));
            assert_eq!(
                positions.after(&names[at]),
                given[at],
                "an entry that is read again has its position"
            );
        }
        let inserted = positions.after(b"file-000007-new");
        assert!(!given.contains(&inserted));
        assert_eq!(positions.after(b"file-000007-new"), inserted);
        assert_eq!(positions.text(inserted), Some(b"file-000007-new".to_vec()));
        assert_eq!(positions.text(given[8]).as_ref(), Some(&names[8]));
        assert!(positions.run.bytes.len() < 40_000 * 6, "{} bytes", positions.run.bytes.len());
        assert_eq!(positions.text(40_003), None);
    }
}
