//! A group of commits, each checked against the tables and the changes of the commits before it.
//!
//! Reads the tables and writes nothing.

use crate::row::{self, Changes};
use crate::tables::Tables;
use meta::codec::{encode_log_record, encode_logged_run};
use meta::{
    Commit, CommitError, Condition, EngineError, KeyRange, LoggedRun, Merge, OpRecord, RunRecord, Seqno,
    schema,
};
use std::collections::BTreeSet;

/// The admitted commits of a group and their changes.
pub(crate) struct Group<'a> {
    tables: &'a Tables,
    pub(crate) changes: Changes,
    pub(crate) head: Seqno,
    pub(crate) logged: Vec<Logged>,
}

/// A commit in the log.
pub(crate) enum Logged {
    /// A commit with ops of its own, with their number and size.
    Ops { seqno: Seqno, ops: usize, bytes: u64 },
    /// A commit that adds a run with ops.
    Run { seqno: Seqno, run: LoggedRun },
}

impl<'a> Group<'a> {
    /// Returns an empty group whose commits follow the commit `head`.
    pub(crate) fn after(head: Seqno, tables: &'a Tables) -> Self {
        Self { tables, changes: Changes::new(), head, logged: Vec::new() }
    }

    /// Adds a commit. After an error nothing of the commit is added.
    pub(crate) fn admit(&mut self, commit: Commit) -> Result<Seqno, CommitError> {
        self.check_conditions(&commit)?;
        if commit.is_check() {
            return Ok(self.head);
        }
        let merged = self.apply_merges(&commit.merges)?;
        let seqno = Seqno(self.head.0 + 1);
        for (key, value) in commit.puts {
            self.changes.insert(key, Some(row::encode(seqno, &value)));
        }
        self.add_merged(seqno, merged);
        self.changes.extend(commit.deletes.into_iter().map(|key| (key, None)));
        self.add_log_records(seqno, &commit.ops);
        self.head = seqno;
        Ok(seqno)
    }

    /// Adds the commit of a run, without the rows of the run.
    pub(crate) fn admit_run(&mut self, run: &LoggedRun, record: &RunRecord) -> Result<Seqno, CommitError> {
        self.check_conditions(&Commit { conditions: record.conditions.clone(), ..Commit::default() })?;
        let merged = self.apply_merges(&record.merges)?;
        let seqno = run.seqno_after(self.head);
        self.add_merged(seqno, merged);
        if run.ops > 0 {
            self.changes.insert(schema::logged_run(seqno), Some(encode_logged_run(run)));
            self.logged.push(Logged::Run { seqno, run: *run });
        }
        self.head = seqno;
        Ok(seqno)
    }

    /// Adds the rows that the merges of a commit have made.
    fn add_merged(&mut self, seqno: Seqno, merged: Vec<(Vec<u8>, meta::Value)>) {
        self.changes.extend(merged.into_iter().map(|(key, value)| (key, Some(row::encode(seqno, &value)))));
    }

    /// Adds the log records of a commit's ops.
    fn add_log_records(&mut self, seqno: Seqno, ops: &[OpRecord]) {
        let mut bytes = 0;
        for (op, nr) in ops.iter().zip(0..) {
            let (key, record) = (schema::log_record(seqno, nr), encode_log_record(op));
            bytes += (key.len() + record.len()) as u64;
            self.changes.insert(key, Some(record));
        }
        if !ops.is_empty() {
            self.logged.push(Logged::Ops { seqno, ops: ops.len(), bytes });
        }
    }

    /// Fails with a conflict unless the conditions of a commit hold after the earlier commits of the group.
    fn check_conditions(&self, commit: &Commit) -> Result<(), CommitError> {
        commit.written_keys().try_for_each(schema::check_writable)?;
        let mut own = None;
        for condition in &commit.conditions {
            let holds = match condition {
                Condition::Version { key, version } => self.version(key)? == Some(*version),
                Condition::Present { key } => self.version(key)?.is_some(),
                Condition::Absent { key } => self.version(key)?.is_none(),
                Condition::RangeEmpty(range) => {
                    self.is_empty(range, own.get_or_insert_with(|| commit.written_keys().collect()))?
                }
            };
            if !holds {
                return Err(CommitError::Conflict);
            }
        }
        Ok(())
    }

    /// Returns the version of a record after the commits of the group; `None` if there is no such record, or it is the
    /// engine's own.
    fn version(&self, key: &[u8]) -> Result<Option<Seqno>, EngineError> {
        self.with_row(key, |row| Ok(row::split(row)?.0))
    }

    /// Calls `read` with the row of a key as the earlier commits of the group leave it; `None` if there is none.
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
    fn apply_merges(&self, merges: &[(Vec<u8>, Merge)]) -> Result<Vec<(Vec<u8>, meta::Value)>, CommitError> {
        let mut merged = Vec::with_capacity(merges.len());
        for (key, merge) in merges {
            let outcome = self.with_row(key, |row| Ok(merge.apply(row::split(row)?.1)))?;
            merged.push((key.clone(), outcome.ok_or(CommitError::Conflict)?));
        }
        let done = merged.into_iter().map(|(key, outcome)| Ok((key, outcome?)));
        Ok(done.collect::<Result<_, EngineError>>()?)
    }
}
