//! Groups of commits that the database decides independently of each other, in one transaction.
//!
//! A commit fits into a group if its outcome does not depend on the group's other commits: it reads and writes no key that one of them
//! writes, except that any number of commits may merge into one record. Reads and writes nothing itself.

use crate::mergeable::{Change, Sums};
use meta::codec::append_to_log_page;
use meta::{Commit, Condition, EngineError, KeyRange, LoggedRun, Merge, RunRecord, Seqno, schema};
use std::collections::BTreeSet;
use std::error::Error;
use std::ops::Bound;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

/// Maximum commits in a group.
const COMMITS_MAX: usize = 256;

/// Maximum bytes of the records in a group. A single commit may have more.
const BYTES_MAX: usize = 4 << 20;

/// The kinds of conditions on a key, as the statement knows them.
const AT_VERSION: i32 = 0;
const PRESENT: i32 = 1;
const ABSENT: i32 = 2;

/// Commits of one transaction. The first one has the number 1, and a commit that changes something becomes the commit `head + number`.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub(crate) checks: Checks,
    pub(crate) writes: Writes,
    count: i32,
    written: BTreeSet<Vec<u8>>,
    merged: BTreeSet<Vec<u8>>,
    bytes: usize,
}

/// Conditions and merges of commits, in the form of the statement's parameters. `nr` is the number of a commit.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    pub(crate) keys: KeyConditions,
    pub(crate) ranges: EmptyRanges,
    pub(crate) own: OwnKeys,
    pub(crate) merges: Merges,
}

/// Conditions on keys.
#[derive(Debug, Default)]
pub(crate) struct KeyConditions {
    pub(crate) nr: Vec<i32>,
    pub(crate) key: Vec<Vec<u8>>,
    pub(crate) kind: Vec<i32>,
    pub(crate) version: Vec<i64>,
}

/// Conditions on empty ranges.
#[derive(Debug, Default)]
pub(crate) struct EmptyRanges {
    pub(crate) nr: Vec<i32>,
    pub(crate) from: Vec<Vec<u8>>,
    pub(crate) to: Vec<Vec<u8>>,
}

/// Keys that a commit with a condition on a range writes, which do not count for the condition.
#[derive(Debug, Default)]
pub(crate) struct OwnKeys {
    pub(crate) nr: Vec<i32>,
    pub(crate) key: Vec<Vec<u8>>,
}

/// Merges into records.
#[derive(Debug, Default)]
pub(crate) struct Merges {
    pub(crate) nr: Vec<i32>,
    pub(crate) key: Vec<Vec<u8>>,
    pub(crate) sum1: Vec<i64>,
    pub(crate) sum2: Vec<i64>,
    pub(crate) max1: Vec<i64>,
    pub(crate) max2: Vec<i64>,
}

/// Writes and ops of commits, in the form of the statement's parameters.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    pub(crate) put_nr: Vec<i32>,
    pub(crate) put_key: Vec<Vec<u8>>,
    pub(crate) put_value: Vec<Bytes>,
    pub(crate) put_sum1: Vec<Option<i64>>,
    pub(crate) put_sum2: Vec<Option<i64>>,
    pub(crate) delete_nr: Vec<i32>,
    pub(crate) delete_key: Vec<Vec<u8>>,
    pub(crate) log_nr: Vec<i32>,
    pub(crate) log_ops: Vec<i64>,
    pub(crate) log_page: Vec<Vec<u8>>,
    /// The commits that change something.
    pub(crate) changing: Vec<i32>,
}

/// A record's bytes as a parameter.
#[derive(Debug, Clone)]
pub(crate) struct Bytes(pub(crate) meta::Value);

impl ToSql for Bytes {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        (&*self.0).to_sql(ty, out)
    }

    fn accepts(ty: &Type) -> bool {
        <&[u8] as ToSql>::accepts(ty)
    }

    to_sql_checked!();
}

impl Group {
    /// Returns whether a commit fits into the group. Every commit fits into an empty one.
    pub(crate) fn has_room_for(&self, commit: &Commit) -> bool {
        self.count == 0
            || (self.count as usize) < COMMITS_MAX
                && self.bytes + bytes_of(commit) <= BYTES_MAX
                && self.is_independent_of(commit)
    }

    /// Adds a commit and returns its number. After an error nothing is added.
    pub(crate) fn add(&mut self, commit: &Commit) -> Result<i32, EngineError> {
        commit.written_keys().try_for_each(schema::check_writable)?;
        let nr = self.count + 1;
        self.checks.add(nr, &commit.conditions, &commit.merges)?;
        self.count = nr;
        self.bytes += bytes_of(commit);
        if self.checks.ranges.nr.last() == Some(&nr) {
            for key in commit.written_keys() {
                self.checks.own.nr.push(nr);
                self.checks.own.key.push(key.to_vec());
            }
        }
        self.merged.extend(commit.merges.iter().map(|(key, _)| key.clone()));
        self.written.extend(commit.written_keys().map(<[u8]>::to_vec));
        self.writes.add(nr, commit);
        Ok(nr)
    }

    /// Returns the number of commits.
    pub(crate) fn count(&self) -> i32 {
        self.count
    }

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

    fn writes_into(&self, range: &KeyRange) -> bool {
        let bounds = (Bound::Included(range.from.as_slice()), Bound::Excluded(range.to.as_slice()));
        range.from < range.to && self.written.range::<[u8], _>(bounds).next().is_some()
    }
}

impl Checks {
    /// Returns the conditions and merges of the commit that adds a run.
    pub(crate) fn of_run(run: &LoggedRun, record: &RunRecord) -> Result<Self, EngineError> {
        let mut checks = Self::default();
        checks.add(number_of(run), &record.conditions, &record.merges)?;
        Ok(checks)
    }

    /// Adds the conditions and merges of a commit. After an error nothing is added.
    fn add(
        &mut self,
        nr: i32,
        conditions: &[Condition],
        merges: &[(Vec<u8>, Merge)],
    ) -> Result<(), EngineError> {
        let changes =
            merges.iter().map(|(key, merge)| Change::of(key, *merge)).collect::<Result<Vec<_>, _>>()?;
        conditions.iter().for_each(|condition| self.add_condition(nr, condition));
        for ((key, _), change) in merges.iter().zip(changes) {
            self.merges.nr.push(nr);
            self.merges.key.push(key.clone());
            self.merges.sum1.push(change.sum1);
            self.merges.sum2.push(change.sum2);
            self.merges.max1.push(change.max1);
            self.merges.max2.push(change.max2);
        }
        Ok(())
    }

    fn add_condition(&mut self, nr: i32, condition: &Condition) {
        let (key, kind, version) = match condition {
            Condition::Version { key, version } => (key, AT_VERSION, as_stored(*version)),
            Condition::Present { key } => (key, PRESENT, 0),
            Condition::Absent { key } => (key, ABSENT, 0),
            Condition::RangeEmpty(range) => {
                self.ranges.nr.push(nr);
                self.ranges.from.push(range.from.clone());
                self.ranges.to.push(range.to.clone());
                return;
            }
        };
        self.keys.nr.push(nr);
        self.keys.key.push(key.clone());
        self.keys.kind.push(kind);
        self.keys.version.push(version);
    }
}

impl Writes {
    fn add(&mut self, nr: i32, commit: &Commit) {
        if !commit.is_check() {
            self.changing.push(nr);
        }
        for (key, value) in &commit.puts {
            let Sums { sum1, sum2 } = Sums::of(key, value);
            self.put_nr.push(nr);
            self.put_key.push(key.clone());
            self.put_value.push(Bytes(value.clone()));
            self.put_sum1.push(sum1);
            self.put_sum2.push(sum2);
        }
        for key in &commit.deletes {
            self.delete_nr.push(nr);
            self.delete_key.push(key.clone());
        }
        if !commit.ops.is_empty() {
            let mut page = Vec::new();
            commit.ops.iter().for_each(|op| append_to_log_page(&mut page, op));
            self.log_nr.push(nr);
            self.log_ops.push(commit.ops.len() as i64);
            self.log_page.push(page);
        }
    }
}

/// Returns the number of the commit that adds a run, relative to the head before it.
pub(crate) fn number_of(run: &LoggedRun) -> i32 {
    i32::try_from(run.seqno_after(Seqno(0)).0).unwrap_or(i32::MAX)
}

/// Returns a sequence number as the database stores it.
pub(crate) fn as_stored(seqno: Seqno) -> i64 {
    i64::try_from(seqno.0).unwrap_or(i64::MAX)
}

fn bytes_of(commit: &Commit) -> usize {
    commit.puts.iter().map(|(key, value)| key.len() + value.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use meta::Ino;
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
        group.add(&first).unwrap();
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
            !group.has_room_for(&put(&number.to_string())) || group.add(&put(&number.to_string())).is_err()
        });
        assert_eq!(full, Some(COMMITS_MAX));
        let large = Commit { puts: vec![(b"l".to_vec(), vec![0; BYTES_MAX].into())], ..Commit::default() };
        assert!(Group::default().has_room_for(&large) && !fit(put("a"), &large));
    }
}
