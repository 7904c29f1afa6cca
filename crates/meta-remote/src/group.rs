//! Groups of commits that the database decides independently of each other, in one transaction.
//!
//! A commit fits into a group if its outcome does not depend on the group's other commits: it reads and writes no key that one of them
//! writes, except that any number of commits may merge into one record.

use crate::mergeable::Change;
use meta::{Commit, Condition, EngineError, KeyRange, schema};
use std::collections::BTreeSet;
use std::ops::Bound;

/// Maximum commits in a group.
const COMMITS_MAX: usize = 256;

/// Maximum bytes of the keys and records that a group puts. A single commit may have more.
const BYTES_MAX: usize = 4 << 20;

/// Commits of one transaction. The first one has the number 1. A commit that changes something gets the sequence number `head + number`,
/// with the head before the group.
#[derive(Debug, Clone, Default)]
pub struct Group {
    commits: Vec<Commit>,
    /// Keys that the commits put or delete.
    written: BTreeSet<Vec<u8>>,
    /// Keys of the records into which they merge.
    merged: BTreeSet<Vec<u8>>,
    /// Bytes of the keys and records that they put.
    bytes: usize,
}

impl Group {
    /// Returns whether a commit fits into the group. Every commit fits into an empty one.
    pub(crate) fn has_room_for(&self, commit: &Commit) -> bool {
        self.commits.is_empty()
            || self.commits.len() < COMMITS_MAX
                && self.bytes + bytes_of(commit) <= BYTES_MAX
                && self.is_independent_of(commit)
    }

    /// Adds a commit. Fails, and adds nothing, if a key may not be written or a merge does not fit its key.
    pub(crate) fn add(&mut self, commit: Commit) -> Result<(), EngineError> {
        commit.written_keys().try_for_each(schema::check_writable)?;
        commit.merges.iter().try_for_each(|(key, merge)| Change::of(key, *merge).map(drop))?;
        self.bytes += bytes_of(&commit);
        self.merged.extend(commit.merges.iter().map(|(key, _)| key.clone()));
        self.written.extend(commit.written_keys().map(<[u8]>::to_vec));
        self.commits.push(commit);
        Ok(())
    }

    /// Returns the commits, each with its number.
    pub fn numbered(&self) -> impl Iterator<Item = (i32, &Commit)> {
        (1..).zip(&self.commits)
    }

    /// Returns the number of commits.
    pub fn count(&self) -> usize {
        self.commits.len()
    }

    /// Returns groups of one commit each.
    pub(crate) fn split(self) -> impl Iterator<Item = Self> {
        self.commits.into_iter().map(|commit| Self { commits: vec![commit], ..Self::default() })
    }

    /// Returns whether the outcome of a commit does not depend on the commits of the group.
    fn is_independent_of(&self, commit: &Commit) -> bool {
        let reads_old_state = commit.conditions.iter().all(|condition| match condition {
            Condition::Version { key, .. } => !self.written.contains(key) && !self.merged.contains(key),
            Condition::Present { key } | Condition::Absent { key } => !self.written.contains(key),
            Condition::RangeEmpty(range) => !self.writes_into(range),
        });
        let mut written = commit.written_keys();
        let mut merged = commit.merges.iter().map(|(key, _)| key);
        reads_old_state
            && written.all(|key| !self.written.contains(key) && !self.merged.contains(key))
            && merged.all(|key| !self.written.contains(key))
    }

    /// Returns whether the group puts or deletes a key of a range.
    fn writes_into(&self, range: &KeyRange) -> bool {
        let bounds = (Bound::Included(range.from.as_slice()), Bound::Excluded(range.to.as_slice()));
        range.from < range.to && self.written.range::<[u8], _>(bounds).next().is_some()
    }
}

/// Returns the bytes of the keys and records that a commit puts.
fn bytes_of(commit: &Commit) -> usize {
    commit.puts.iter().map(|(key, value)| key.len() + value.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use meta::{Ino, Merge, Seqno};
    use store::Timestamp;

    fn put(key: &str) -> Commit {
        Commit { puts: vec![(key.into(), key.as_bytes().into())], ..Commit::default() }
    }

    fn only_if(condition: Condition) -> Commit {
        Commit { conditions: vec![condition], ..Commit::default() }
    }

    fn create(name: &str) -> Commit {
        let (dir, key) = (schema::inode(Ino(1)), name.as_bytes().to_vec());
        Commit {
            conditions: vec![Condition::Absent { key }, Condition::Present { key: dir.clone() }],
            merges: vec![(dir, Merge::entry(Timestamp(1), 0))],
            ..put(name)
        }
    }

    /// Returns whether the second commit can be decided together with the first.
    fn fit(first: Commit, second: &Commit) -> bool {
        let mut group = Group::default();
        group.add(first).unwrap();
        group.has_room_for(second)
    }

    #[test]
    fn creates_in_one_directory_fit_together() {
        assert!(fit(create("a"), &create("b")));
        assert!(!fit(create("a"), &create("a")), "the second one fails");
    }

    #[test]
    fn a_commit_that_depends_on_another_one_waits() {
        let (key, version) = (b"a".to_vec(), Seqno(1));
        assert!(!fit(put("a"), &only_if(Condition::Version { key: key.clone(), version })));
        assert!(!fit(put("a"), &only_if(Condition::Absent { key: key.clone() })));
        assert!(!fit(put("a"), &put("a")));
        assert!(!fit(put("a"), &Commit { deletes: vec![key], ..Commit::default() }));
        let range = |from: &str, to: &str| {
            only_if(Condition::RangeEmpty(KeyRange { from: from.into(), to: to.into() }))
        };
        assert!(
            !fit(put("a"), &range("a", "b"))
                && fit(put("a"), &range("b", "c"))
                && fit(put("a"), &range("b", "a"))
        );
        let dir = schema::inode(Ino(1));
        assert!(
            !fit(create("a"), &only_if(Condition::Version { key: dir.clone(), version })),
            "a merge gives a version"
        );
        let remove = Commit { deletes: vec![dir], ..Commit::default() };
        assert!(!fit(create("a"), &remove) && !fit(remove.clone(), &create("a")));
    }

    #[test]
    fn a_group_is_bounded() {
        let mut group = Group::default();
        let full = (0..).find(|number| {
            !group.has_room_for(&put(&number.to_string())) || group.add(put(&number.to_string())).is_err()
        });
        assert_eq!(full, Some(COMMITS_MAX));
        let large = Commit { puts: vec![(b"l".to_vec(), vec![0; BYTES_MAX].into())], ..Commit::default() };
        assert!(Group::default().has_room_for(&large) && !fit(put("a"), &large));
    }
}
