//! Transactions: the state that [`apply`](crate::namespace::apply) reads and writes, and how its writes become a [`Commit`].

use crate::engine::{Commit, Condition, OpRecord, Reader};
use crate::error::EngineError;
use crate::record::{KeyRange, Value, Versioned};
use crate::{Applied, Effect, Merge, Op, OpContext};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The state to which an op is applied.
///
/// An op depends on what it reads with [`Txn::get`] and [`Txn::require_empty`]: if that changes before the commit, the commit
/// fails with a conflict and the op is applied again. An op does not depend on what it reads with [`Txn::peek`], [`Txn::scan`]
/// and [`Txn::last`], so these may read only records that change only together with a record that the op depends on.
pub trait Txn {
    /// Returns the record of a key, `None` if there is none, and makes the op depend on the answer.
    fn get(&mut self, key: &[u8]) -> Result<Option<Value>, EngineError>;

    /// Returns the record of a key; `None` if there is none. The op does not depend on the answer.
    fn peek(&mut self, key: &[u8]) -> Result<Option<Value>, EngineError>;

    /// Returns the first `limit` records of a range, in ascending order of their keys. The op does not depend on them.
    fn scan(&mut self, range: &KeyRange, limit: usize) -> Result<Vec<(Vec<u8>, Value)>, EngineError>;

    /// Returns all records of a range that is empty for most inodes. The op may depend on that.
    fn scan_sparse(&mut self, range: &KeyRange) -> Result<Vec<(Vec<u8>, Value)>, EngineError> {
        self.scan(range, usize::MAX)
    }

    /// Returns the key and value of the last record of a range; `None` if the range is empty. The op does not depend on
    /// it.
    fn last(&mut self, range: &KeyRange) -> Result<Option<(Vec<u8>, Value)>, EngineError>;

    /// Makes the op depend on the existence of the key, but not on its record.
    fn require_present(&mut self, key: Vec<u8>);

    /// Returns whether the range is empty. If it is, the op depends on that.
    fn require_empty(&mut self, range: &KeyRange) -> Result<bool, EngineError>;

    /// Writes a record.
    fn put(&mut self, key: Vec<u8>, value: Vec<u8>);

    /// Removes a record, if there is one.
    fn delete(&mut self, key: Vec<u8>);

    /// Merges into a record. The op depends on the existence of the record, but not on its value. Fails if this
    /// transaction has removed the record.
    fn merge(&mut self, key: Vec<u8>, merge: Merge) -> Result<(), EngineError>;
}

/// A transaction that buffers writes over a reader. Reads see the transaction's own writes; all ops become one [`Commit`].
pub struct Staged<'r, R: Reader + ?Sized> {
    base: &'r R,
    reads: BTreeMap<Vec<u8>, Read>,
    present: BTreeSet<Vec<u8>>,
    empty: BTreeSet<KeyRange>,
    /// Whether ranges that are probably empty are not read. The commit fails with a conflict if one is not.
    is_optimistic: bool,
    writes: BTreeMap<Vec<u8>, Write>,
    /// The writes that the current op has replaced, oldest first.
    undo: Vec<(Vec<u8>, Option<Write>)>,
    ops: Vec<OpRecord>,
}

/// The result of the first read of a key from the base.
#[derive(Debug, Clone)]
struct Read {
    /// The record; `None` if there was none.
    found: Option<Versioned>,
    /// Whether an op depends on the record.
    is_condition: bool,
}

/// A buffered write to one key.
#[derive(Debug, Clone)]
enum Write {
    Put(Value),
    Delete,
    Merge(Merge),
}

impl<'r, R: Reader + ?Sized> Staged<'r, R> {
    /// Starts a transaction over the state of `base`.
    pub fn new(base: &'r R) -> Self {
        Self {
            base,
            reads: BTreeMap::new(),
            present: BTreeSet::new(),
            empty: BTreeSet::new(),
            is_optimistic: false,
            writes: BTreeMap::new(),
            undo: Vec::new(),
            ops: Vec::new(),
        }
    }

    /// Reads records that ops will read, together. Does not make an op depend on them.
    pub fn read_ahead(&mut self, keys: Vec<Vec<u8>>) -> Result<(), EngineError> {
        let keys: Vec<_> = keys.into_iter().filter(|key| !self.reads.contains_key(key)).collect();
        let found = self.base.multi_get(&keys)?;
        for (key, found) in keys.into_iter().zip(found) {
            self.reads.entry(key).or_insert(Read { found, is_condition: false });
        }
        Ok(())
    }

    /// Assumes that keys have no records, and that ranges that are probably empty are. This saves reads across a network. The conditions of
    /// the commit check it.
    pub fn assume_absent(&mut self, keys: Vec<Vec<u8>>) {
        self.is_optimistic = true;
        for key in keys {
            self.reads.entry(key).or_insert(Read { found: None, is_condition: false });
        }
    }

    /// Keeps the writes of the op that was just applied, and adds the op to the commit.
    pub fn keep_op(&mut self, context: &OpContext, op: &Op, applied: &Applied) {
        self.undo.clear();
        self.ops.push(OpRecord { context: *context, op: op.clone(), effect: Effect::of(op, applied) });
    }

    /// Undoes the writes since the last [`Staged::keep_op`]. The conditions of the reads stay, since the failure of the op depends
    /// on them.
    pub fn drop_op(&mut self) {
        while let Some((key, before)) = self.undo.pop() {
            match before {
                Some(write) => self.writes.insert(key, write),
                None => self.writes.remove(&key),
            };
        }
    }

    /// Undoes all writes and removes all ops. The conditions of the reads stay.
    pub fn drop_all(&mut self) {
        self.undo.clear();
        self.writes.clear();
        self.ops.clear();
    }

    /// Converts the transaction into a commit.
    pub fn into_commit(self) -> Commit {
        let mut commit = Commit { ops: self.ops, ..Commit::default() };
        let conditions = self.reads.into_iter().filter(|(_, read)| read.is_condition);
        commit.conditions.extend(conditions.map(|(key, read)| match read.found {
            Some(found) => Condition::Version { key, version: found.version },
            None => Condition::Absent { key },
        }));
        commit.conditions.extend(self.present.into_iter().map(|key| Condition::Present { key }));
        commit.conditions.extend(self.empty.into_iter().map(Condition::RangeEmpty));
        for (key, write) in self.writes {
            match write {
                Write::Put(value) => commit.puts.push((key, value)),
                Write::Delete => commit.deletes.push(key),
                Write::Merge(merge) => commit.merges.push((key, merge)),
            }
        }
        commit
    }

    /// Returns the value of a key with the writes so far. With `is_condition`, the commit requires that the record has
    /// not changed.
    fn read(&mut self, key: &[u8], is_condition: bool) -> Result<Option<Value>, EngineError> {
        let merge = match self.writes.get(key) {
            Some(Write::Put(value)) => return Ok(Some(value.clone())),
            Some(Write::Delete) => return Ok(None),
            Some(Write::Merge(merge)) => *merge,
            None => return Ok(self.read_base(key, is_condition)?.map(|found| found.value.clone())),
        };
        match self.read_base(key, is_condition)? {
            Some(found) => Ok(Some(merge.apply(&found.value)?)),
            None => Ok(None),
        }
    }

    /// Returns the record of a key as it was before the transaction.
    fn read_base(&mut self, key: &[u8], is_condition: bool) -> Result<Option<&Versioned>, EngineError> {
        if !self.reads.contains_key(key) {
            let found = self.base.get(key)?;
            self.reads.insert(key.to_vec(), Read { found, is_condition: false });
        }
        Ok(self.reads.get_mut(key).and_then(|read| {
            read.is_condition |= is_condition;
            read.found.as_ref()
        }))
    }

    /// Makes the op depend on a range being empty apart from its own writes, instead of reading it.
    fn assume_empty(&mut self, range: &KeyRange) {
        if self.is_optimistic {
            self.empty.insert(range.clone());
        }
    }

    /// Adds a write, which [`Staged`] can undo if its op fails.
    fn write(&mut self, key: Vec<u8>, write: Write) {
        let before = self.writes.insert(key.clone(), write);
        self.undo.push((key, before));
    }

    /// Scans the base and leaves out keys that this transaction has written. Returns at least `limit` rows if there are
    /// as many, so the caller has to cut the rest off.
    fn scan_base(&self, range: &KeyRange, limit: usize) -> Result<Vec<(Vec<u8>, Versioned)>, EngineError> {
        if self.is_optimistic && self.empty.contains(range) {
            return Ok(Vec::new());
        }
        let written = self.writes.range(range.from.clone()..range.to.clone()).count();
        let (from, to) = range.bounds();
        let mut rows = self.base.scan(from, to, limit.saturating_add(written))?;
        rows.retain(|(key, _)| !self.writes.contains_key(key));
        Ok(rows)
    }
}

impl<R: Reader + ?Sized> Txn for Staged<'_, R> {
    fn get(&mut self, key: &[u8]) -> Result<Option<Value>, EngineError> {
        self.read(key, true)
    }

    fn peek(&mut self, key: &[u8]) -> Result<Option<Value>, EngineError> {
        self.read(key, false)
    }

    fn scan(&mut self, range: &KeyRange, limit: usize) -> Result<Vec<(Vec<u8>, Value)>, EngineError> {
        let base = self.scan_base(range, limit)?;
        let mut rows: Vec<_> = base.into_iter().map(|(key, found)| (key, found.value)).collect();
        let written: Vec<_> =
            self.writes.range(range.from.clone()..range.to.clone()).map(|(key, _)| key.clone()).collect();
        for key in written {
            if let Some(value) = self.read(&key, false)? {
                rows.push((key, value));
            }
        }
        rows.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        rows.truncate(limit);
        Ok(rows)
    }

    fn scan_sparse(&mut self, range: &KeyRange) -> Result<Vec<(Vec<u8>, Value)>, EngineError> {
        self.assume_empty(range);
        self.scan(range, usize::MAX)
    }

    fn last(&mut self, range: &KeyRange) -> Result<Option<(Vec<u8>, Value)>, EngineError> {
        let mut range = range.clone();
        loop {
            let base = self.base.last(&range)?;
            let written = self.writes.range(range.from.clone()..range.to.clone()).next_back();
            let written = written.map(|(key, _)| key.clone());
            let key = match (base, written) {
                (Some((key, found)), written) if written.as_ref().is_none_or(|written| *written < key) => {
                    return Ok(Some((key, found.value)));
                }
                (_, Some(written)) => written,
                (_, None) => return Ok(None),
            };
            match self.read(&key, false)? {
                Some(value) => return Ok(Some((key, value))),
                None => range.to = key,
            }
        }
    }

    fn require_present(&mut self, key: Vec<u8>) {
        if !matches!(self.writes.get(&key), Some(Write::Put(_))) {
            self.present.insert(key);
        }
    }

    fn require_empty(&mut self, range: &KeyRange) -> Result<bool, EngineError> {
        self.assume_empty(range);
        let empty = self.scan(range, 1)?.is_empty();
        if empty {
            self.empty.insert(range.clone());
        }
        Ok(empty)
    }

    fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.write(key, Write::Put(value.into()));
    }

    fn delete(&mut self, key: Vec<u8>) {
        self.write(key, Write::Delete);
    }

    fn merge(&mut self, key: Vec<u8>, merge: Merge) -> Result<(), EngineError> {
        let write = match self.writes.get(&key) {
            Some(Write::Put(value)) => Write::Put(merge.apply(value)?),
            Some(Write::Delete) => return Err(EngineError::Corrupt("a merge into a removed record".into())),
            Some(Write::Merge(earlier)) => Write::Merge(earlier.then(merge)),
            None => {
                self.present.insert(key.clone());
                Write::Merge(merge)
            }
        };
        self.write(key, write);
        Ok(())
    }
}

impl<R: Reader + ?Sized> fmt::Debug for Staged<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Staged").field("writes", &self.writes).field("ops", &self.ops).finish_non_exhaustive()
    }
}
