//! A group of commits, each checked against the tables and the changes of the commits before it.
//!
//! Reads the tables and writes nothing.

use crate::row;
use crate::tables::{Changes, Tables};
use meta::codec::encode_log_record;
use meta::{
    BatchRecord, Commit, CommitError, Condition, EngineError, KeyRange, OpRecord, Seqno, SortedRun, schema,
};
use std::collections::BTreeSet;

/// The admitted commits of a group and their changes.
pub(crate) struct Group<'a> {
    tables: &'a Tables,
    pub(crate) changes: Changes,
    pub(crate) head: Seqno,
    pub(crate) logged: Vec<Logged>,
}

/// The size of a commit's log records.
pub(crate) struct Logged {
    pub(crate) seqno: Seqno,
    pub(crate) ops: usize,
    pub(crate) bytes: u64,
}

impl<'a> Group<'a> {
    pub(crate) fn after(head: Seqno, tables: &'a Tables) -> Self {
        Self { tables, changes: Changes::new(), head, logged: Vec::new() }
    }

    /// Adds a commit. After an error nothing of the commit is added.
    pub(crate) fn admit(&mut self, commit: Commit) -> Result<Seqno, CommitError> {
        self.check_conditions(&commit)?;
        if commit.is_check() {
            return Ok(self.head);
        }
        let merged = self.apply_merges(&commit)?;
        let seqno = Seqno(self.head.0 + 1);
        for (key, value) in commit.puts {
            self.changes.insert(key, Some(row::encode(seqno, &value)));
        }
        self.changes.extend(merged.into_iter().map(|(key, value)| (key, Some(row::encode(seqno, &value)))));
        self.changes.extend(commit.deletes.into_iter().map(|key| (key, None)));
        self.add_log_records(seqno, &commit.ops);
        self.head = seqno;
        Ok(seqno)
    }

    /// Adds a sorted run of new keys.
    pub(crate) fn admit_run(&mut self, run: SortedRun, log: BatchRecord) -> Result<Seqno, CommitError> {
        if !self.has_only_new_keys(&run)? {
            return Err(CommitError::Conflict);
        }
        let BatchRecord { conditions, merges, ops } = log;
        self.admit(Commit { conditions, puts: run.into_rows(), deletes: Vec::new(), merges, ops })
    }

    fn add_log_records(&mut self, seqno: Seqno, ops: &[OpRecord]) {
        let mut bytes = 0;
        for (op, nr) in ops.iter().zip(0..) {
            let (key, record) = (schema::log_record(seqno, nr), encode_log_record(op));
            bytes += (key.len() + record.len()) as u64;
            self.changes.insert(key, Some(record));
        }
        if !ops.is_empty() {
            self.logged.push(Logged { seqno, ops: ops.len(), bytes });
        }
    }

    fn check_conditions(&self, commit: &Commit) -> Result<(), CommitError> {
        let mut keys = commit.puts.iter().map(|(key, _)| key).chain(&commit.deletes);
        if let Some(key) = keys.find(|key| schema::is_kept_by_engines(key)) {
            let text = format!("the key '{}' is reserved for the engine", key.escape_ascii());
            return Err(EngineError::Unavailable(text).into());
        }
        let mut own = None;
        for condition in &commit.conditions {
            let holds = match condition {
                Condition::Version { key, version } => self.version(key)? == Some(*version),
                Condition::Present { key } => self.version(key)?.is_some(),
                Condition::Absent { key } => self.version(key)?.is_none(),
                Condition::RangeEmpty(range) => {
                    self.is_empty(range, own.get_or_insert_with(|| keys_written_by(commit)))?
                }
            };
            if !holds {
                return Err(CommitError::Conflict);
            }
        }
        Ok(())
    }

    /// Returns the version of a record after the commits of the group.
    fn version(&self, key: &[u8]) -> Result<Option<Seqno>, EngineError> {
        self.with_row(key, |row| Ok(row::split(row)?.0))
    }

    fn with_row<T>(
        &self,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> Result<T, EngineError>,
    ) -> Result<Option<T>, EngineError> {
        match self.changes.get(key) {
            _ if schema::is_kept_by_engines(key) => Ok(None),
            Some(change) => change.as_deref().map(read).transpose(),
            None => self.tables.get_stored(key)?.map(|row| read(&row)).transpose(),
        }
    }

    /// Returns whether a range holds no keys other than a commit's own.
    fn is_empty(&self, range: &KeyRange, own: &BTreeSet<&[u8]>) -> Result<bool, EngineError> {
        if range.from >= range.to {
            return Ok(true);
        }
        let mut records = self.tables.iterate(range.from.clone(), Some(range.to.clone()));
        while let Some((key, _)) = records.item() {
            let is_deleted = matches!(self.changes.get(key), Some(None));
            if !is_deleted && !own.contains(key) {
                return Ok(false);
            }
            records.next();
        }
        records.finish()?;
        let (from, to) = range.bounds();
        let mut changed = self.changes.range::<[u8], _>((from, to));
        Ok(changed.all(|(key, row)| {
            row.is_none() || own.contains(key.as_slice()) || schema::is_kept_by_engines(key)
        }))
    }

    /// Computes the merged records before anything is added, so that a merge that fails changes nothing.
    fn apply_merges(&self, commit: &Commit) -> Result<Vec<(Vec<u8>, meta::Value)>, CommitError> {
        let mut merged = Vec::with_capacity(commit.merges.len());
        for (key, merge) in &commit.merges {
            let outcome = self.with_row(key, |row| Ok(merge.apply(row::split(row)?.1)))?;
            merged.push((key.clone(), outcome.ok_or(CommitError::Conflict)?));
        }
        let done = merged.into_iter().map(|(key, outcome)| Ok((key, outcome?)));
        Ok(done.collect::<Result<_, EngineError>>()?)
    }

    /// Returns whether no key of a run exists. Iterates over run and tables together and skips in each the keys below the other's next
    /// key, so that a run into empty ranges costs a few seeks. Reads only the tables, because a run is in a group of its own.
    fn has_only_new_keys(&self, run: &SortedRun) -> Result<bool, EngineError> {
        let rows = run.rows();
        let mut records = self.tables.iterate(Vec::new(), None);
        let mut at = 0;
        while let Some((key, _)) = rows.get(at) {
            records.seek(key);
            let Some((found, _)) = records.item() else { break };
            if found == key {
                return Ok(false);
            }
            at += rows[at..].partition_point(|(key, _)| key.as_slice() < found);
        }
        records.finish()?;
        Ok(true)
    }
}

fn keys_written_by(commit: &Commit) -> BTreeSet<&[u8]> {
    let puts = commit.puts.iter().map(|(key, _)| key.as_slice());
    puts.chain(commit.deletes.iter().map(Vec::as_slice)).collect()
}
