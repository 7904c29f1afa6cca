//! Positions in an open directory, for `telldir` and `seekdir`.
//!
//! POSIX lets a program return to any earlier position until it calls `rewinddir`, and a rewound directory cannot be told from
//! a return to the first position. So all positions stay valid until the directory is closed. Sort keys arrive in ascending
//! order, and are kept as a [`KeyRun`], in which a position takes a few bytes.
//!
//! Invariant: sort keys of the run ascend; a position is never assigned to a second sort key.

use std::collections::{BTreeMap, HashMap};

use crate::names::key_run::KeyRun;

/// The first two positions, of `.` and `..`.
pub(crate) const DOTS: u64 = 2;
/// First position for entries that were inserted between entries with positions. Directories have fewer entries than this.
const INSERTED: u64 = 1 << 48;

/// Positions of one open directory. A position is after its entry.
#[derive(Debug, Default)]
pub(crate) struct Positions {
    /// Number of entries before the run, whose sort keys only another open directory knows.
    first: u64,
    /// Sort keys of entries whose positions are consecutive.
    run: KeyRun,
    /// Positions of entries that were inserted between these, by sort key.
    inserted: BTreeMap<Vec<u8>, u64>,
    /// Sort keys of inserted entries, by position.
    inserted_keys: HashMap<u64, Vec<u8>>,
}

impl Positions {
    /// Returns the sort key of the entry before a position, empty for the first position. `None` if the position was not
    /// assigned here.
    pub(crate) fn sort_key(&self, position: u64) -> Option<Vec<u8>> {
        if position <= DOTS {
            return Some(Vec::new());
        }
        if position > INSERTED {
            return self.inserted_keys.get(&position).cloned();
        }
        let index = (position - DOTS - 1).checked_sub(self.first)?;
        self.run.get(usize::try_from(index).ok()?)
    }

    /// Continues at a position that was assigned by another open directory.
    pub(crate) fn begin_at(&mut self, position: u64) {
        *self = Self { first: position - DOTS, ..Self::default() };
    }

    /// Returns the position after the entry with this sort key, and assigns one if needed.
    pub(crate) fn after(&mut self, sort_key: &[u8]) -> u64 {
        if self.run.is_empty() || self.run.last() < sort_key {
            self.run.push(sort_key);
            return DOTS + self.first + self.run.len() as u64;
        }
        if let Some(index) = self.run.find(sort_key) {
            return DOTS + self.first + index as u64 + 1;
        }
        let next = INSERTED + 1 + self.inserted.len() as u64;
        let position = *self.inserted.entry(sort_key.to_vec()).or_insert(next);
        self.inserted_keys.entry(position).or_insert_with(|| sort_key.to_vec());
        position
    }

    /// Returns the number of entries before a position in an unchanged directory; `None` for inserted entries.
    pub(crate) fn rank(position: u64) -> Option<usize> {
        usize::try_from(position - DOTS).ok().filter(|_| position < INSERTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a program that returned to an earlier position and read on from there got EINVAL for later positions,
    /// because the entries read again had taken their numbers.
    #[test]
    fn s430_a_position_is_given_to_one_entry() {
        let mut positions = Positions::default();
        let names: Vec<Vec<u8>> = (0..40_000).map(|n| format!("file-{n:06}").into_bytes()).collect();
        let given: Vec<u64> = names.iter().map(|name| positions.after(name)).collect();
        assert_eq!((given[0], given[39_999]), (3, 40_002));
        assert_eq!(positions.sort_key(DOTS), Some(Vec::new()));
        for at in [0, 15, 16, 17, 12_345, 39_999] {
            assert_eq!(positions.sort_key(given[at]).as_ref(), Some(&names[at]));
            assert_eq!(
                positions.after(&names[at]),
                given[at],
                "an entry that is read again has its position"
            );
        }
        let inserted = positions.after(b"file-000007-new");
        assert!(!given.contains(&inserted));
        assert_eq!(positions.after(b"file-000007-new"), inserted);
        assert_eq!(positions.sort_key(inserted), Some(b"file-000007-new".to_vec()));
        assert_eq!(positions.sort_key(given[8]).as_ref(), Some(&names[8]));
        assert!(positions.run.memory_bytes() < 40_000 * 8, "{} bytes", positions.run.memory_bytes());
        assert_eq!(positions.sort_key(40_003), None);
    }
}
