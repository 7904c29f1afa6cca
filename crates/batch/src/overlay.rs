//! A state that consists of a base and local changes.

use crate::base::Base;
use crate::change::Change;
use crate::local_map::LocalMap;
use meta::{
    Applied, EngineError, FsError, KeyRange, Merge, Op, OpContext, Reader, Rows, Seqno, Txn, Value,
    Versioned, namespace, schema,
};
use std::ops::Bound;

/// The version of the first local changes: greater than all versions of a base.
const FIRST_LOCAL: Seqno = Seqno(1 << 62);

/// A base and local changes.
#[derive(Debug)]
pub(crate) struct Overlay {
    pub(crate) base: Base,
    pub(crate) local: LocalMap,
    /// The version of the newest local changes.
    pub(crate) version: Seqno,
}

/// The changes of an op that was applied and is not part of the state yet.
pub(crate) struct Pending(pub(crate) Vec<(Vec<u8>, Change)>);

impl Overlay {
    /// Creates a state without local changes.
    pub(crate) fn new(base: Base, local: LocalMap) -> Self {
        Self { base, local, version: FIRST_LOCAL }
    }

    /// Applies an op. The state does not change before [`Overlay::commit`].
    pub(crate) fn apply(&self, context: &OpContext, op: &Op) -> Result<(Applied, Pending), FsError> {
        let mut txn = OverlayTxn { overlay: self, pending: Vec::with_capacity(8) };
        let applied = namespace::apply(&mut txn, context, op)?;
        Ok((applied, Pending(txn.pending)))
    }

    /// Makes the changes of an op part of the state.
    pub(crate) fn commit(&mut self, Pending(changes): Pending) {
        self.version.0 += 1;
        for (key, change) in changes {
            self.local.insert(key, change, self.version);
        }
    }

    /// Adds a local change that was found elsewhere.
    pub(crate) fn insert(&mut self, key: Vec<u8>, change: Change) {
        self.commit(Pending(vec![(key, change)]));
    }

    /// Returns whether a change is one of the ops' effects. The others are removals of records that never existed in the base, and the
    /// bookkeeping of an engine.
    pub(crate) fn is_effective(&self, key: &[u8], change: &Change) -> bool {
        let is_removal_of_nothing =
            *change == Change::Delete && (self.base.is_fresh(key) || schema::is_orphan(key));
        !is_removal_of_nothing && key != schema::next_ino()
    }

    /// Makes room in memory for the changes of the next op.
    pub(crate) fn make_room(&mut self) -> Result<(), EngineError> {
        self.local.spill_if_full()
    }

    /// Merges into records. The outcome then depends on their existence; for a quota, on its version.
    pub(crate) fn merge(&mut self, merges: Vec<(Vec<u8>, Merge)>) -> Result<(), EngineError> {
        let mut txn = OverlayTxn { overlay: self, pending: Vec::with_capacity(merges.len()) };
        merges.into_iter().try_for_each(|(key, merge)| txn.merge(key, merge))?;
        let pending = Pending(txn.pending);
        self.commit(pending);
        Ok(())
    }

    /// Returns the change of a record by a merge after an earlier change.
    pub(crate) fn merged(
        &self,
        key: &[u8],
        earlier: Option<Change>,
        merge: Merge,
    ) -> Result<Change, EngineError> {
        Ok(match earlier {
            Some(Change::Put(value)) => Change::Put(merge.apply(&value)?),
            Some(Change::Delete) => return Err(EngineError::Corrupt("a merge into a removed record".into())),
            Some(Change::Merge(earlier)) => Change::Merge(earlier.then(merge)),
            None => {
                match merge {
                    // The added usage must fit below the limit together with what others have added.
                    Merge::Usage(_) => self.base.note(key),
                    Merge::Inode { .. } => self.base.note_present(key.to_vec()),
                }
                Change::Merge(merge)
            }
        })
    }

    /// Returns the record of a key, on which the outcome depends if `is_noted`.
    pub(crate) fn read(&self, key: &[u8], is_noted: bool) -> Result<Option<Value>, EngineError> {
        Ok(self.find(key, is_noted)?.map(|found| found.value))
    }

    /// Returns the record of a key with the local changes. With `is_noted`, the batch depends on the record of the
    /// snapshot.
    pub(crate) fn find(&self, key: &[u8], is_noted: bool) -> Result<Option<Versioned>, EngineError> {
        match self.local.get_versioned(key)? {
            None => self.base.get(key, is_noted),
            Some((change, version)) => self.changed(key, change, version, is_noted),
        }
    }

    /// Returns the record of a key after a local change.
    fn changed(
        &self,
        key: &[u8],
        change: Change,
        version: Seqno,
        is_noted: bool,
    ) -> Result<Option<Versioned>, EngineError> {
        match change {
            Change::Put(value) => Ok(Some(Versioned { value, version })),
            Change::Delete => Ok(None),
            Change::Merge(merge) => match self.base.get(key, is_noted)? {
                Some(found) => Ok(Some(Versioned { value: merge.apply(&found.value)?, version })),
                None => Ok(None),
            },
        }
    }
}

impl Reader for Overlay {
    fn get(&self, key: &[u8]) -> Result<Option<Versioned>, EngineError> {
        self.find(key, false)
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Versioned>>, EngineError> {
        keys.iter().map(|key| self.get(key)).collect()
    }

    fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Rows, EngineError> {
        let mut changes = self.local.range(from, to);
        let mut base = BasePages {
            base: &self.base,
            from: from.map(<[u8]>::to_vec),
            to,
            limit,
            page: Vec::new().into_iter(),
        };
        let (mut change, mut row) = (changes.next()?, base.next()?);
        let mut rows = Rows::new();
        while rows.len() < limit {
            let is_changed = match (&change, &row) {
                (None, None) => break,
                (Some((changed, _)), Some((key, _))) => changed <= key,
                (change, _) => change.is_some(),
            };
            if !is_changed {
                rows.extend(row.take());
                row = base.next()?;
                continue;
            }
            if let Some((key, change)) = change.take() {
                if row.as_ref().is_some_and(|(found, _)| *found == key) {
                    row = base.next()?;
                }
                // Nothing depends on the versions of a scan.
                let changed = self.changed(&key, change, self.version, false)?;
                rows.extend(changed.map(|found| (key, found)));
            }
            change = changes.next()?;
        }
        Ok(rows)
    }

    fn last(&self, range: &KeyRange) -> Result<Option<(Vec<u8>, Versioned)>, EngineError> {
        let mut range = range.clone();
        loop {
            let base = self.base.last(&range)?.map(|(key, _)| key);
            let Some(key) = base.max(self.local.last_key(&range)?) else { return Ok(None) };
            match self.find(&key, false)? {
                Some(found) => return Ok(Some((key, found))),
                None => range.to = key,
            }
        }
    }
}

/// The rows of a range of the base, read page by page.
struct BasePages<'a> {
    base: &'a Base,
    /// The beginning of the next page.
    from: Bound<Vec<u8>>,
    to: Bound<&'a [u8]>,
    /// The number of rows that are wanted; a page has at least [`BASE_PAGE_ROWS`].
    limit: usize,
    page: std::vec::IntoIter<(Vec<u8>, Versioned)>,
}

/// Minimum rows of the base that are read at a time, so that a scan with many local removals does not read row by row.
const BASE_PAGE_ROWS: usize = 64;

impl BasePages<'_> {
    fn next(&mut self) -> Result<Option<(Vec<u8>, Versioned)>, EngineError> {
        if self.page.as_slice().is_empty() {
            let from = self.from.as_ref().map(Vec::as_slice);
            let rows = self.base.scan(from, self.to, self.limit.max(BASE_PAGE_ROWS))?;
            if let Some((last, _)) = rows.last() {
                self.from = Bound::Excluded(last.clone());
            }
            self.page = rows.into_iter();
        }
        Ok(self.page.next())
    }
}

/// A transaction of one op over an overlay.
struct OverlayTxn<'a> {
    overlay: &'a Overlay,
    /// The changes of the op, each key once: they are few.
    pending: Vec<(Vec<u8>, Change)>,
}

impl OverlayTxn<'_> {
    /// Returns the index of the op's change of a key.
    fn pending(&self, key: &[u8]) -> Option<usize> {
        self.pending.iter().rposition(|(pending, _)| pending == key)
    }

    /// Returns the record of a key with the changes of the op that is being applied.
    fn read(&self, key: &[u8], is_noted: bool) -> Result<Option<Value>, EngineError> {
        let found = match self.pending(key) {
            Some(at) => self.overlay.changed(key, self.pending[at].1.clone(), self.overlay.version, is_noted),
            None => self.overlay.find(key, is_noted),
        };
        Ok(found?.map(|found| found.value))
    }

    /// Adds a change of the op that is being applied, in place of an earlier one of the key.
    fn write(&mut self, key: Vec<u8>, change: Change) {
        match self.pending(&key) {
            Some(at) => self.pending[at].1 = change,
            None => self.pending.push((key, change)),
        }
    }

    /// Returns the number of the op's changes in a range.
    fn pending_in(&self, range: &KeyRange) -> usize {
        self.pending.iter().filter(|(key, _)| range.contains(key)).count()
    }
}

impl Txn for OverlayTxn<'_> {
    fn get(&mut self, key: &[u8]) -> Result<Option<Value>, EngineError> {
        self.read(key, true)
    }

    fn peek(&mut self, key: &[u8]) -> Result<Option<Value>, EngineError> {
        self.read(key, false)
    }

    fn scan(&mut self, range: &KeyRange, limit: usize) -> Result<Vec<(Vec<u8>, Value)>, EngineError> {
        let (from, to) = range.bounds();
        let pending = self.pending_in(range);
        let mut rows = self.overlay.scan(from, to, limit.saturating_add(pending))?;
        if pending > 0 {
            rows.retain(|(key, _)| self.pending(key).is_none());
            for (key, change) in self.pending.iter().filter(|(key, _)| range.contains(key)) {
                let changed = self.overlay.changed(key, change.clone(), self.overlay.version, false)?;
                rows.extend(changed.map(|found| (key.clone(), found)));
            }
            rows.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        }
        rows.truncate(limit);
        Ok(rows.into_iter().map(|(key, found)| (key, found.value)).collect())
    }

    fn last(&mut self, range: &KeyRange) -> Result<Option<(Vec<u8>, Value)>, EngineError> {
        let mut range = range.clone();
        loop {
            let below = self.overlay.last(&range)?.map(|(key, _)| key);
            let pending = self.pending.iter().map(|(key, _)| key).filter(|key| range.contains(key)).max();
            let Some(key) = below.max(pending.cloned()) else { return Ok(None) };
            match self.read(&key, false)? {
                Some(value) => return Ok(Some((key, value))),
                None => range.to = key,
            }
        }
    }

    fn require_present(&mut self, key: Vec<u8>) {
        self.overlay.base.note_present(key);
    }

    fn require_empty(&mut self, range: &KeyRange) -> Result<bool, EngineError> {
        self.overlay.base.note_range(range);
        Ok(self.scan(range, 1)?.is_empty())
    }

    fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.write(key, Change::Put(value.into()));
    }

    fn delete(&mut self, key: Vec<u8>) {
        self.write(key, Change::Delete);
    }

    fn merge(&mut self, key: Vec<u8>, merge: Merge) -> Result<(), EngineError> {
        let earlier = match self.pending(&key) {
            Some(at) => Some(self.pending[at].1.clone()),
            None => self.overlay.local.get(&key)?,
        };
        let change = self.overlay.merged(&key, earlier, merge)?;
        self.write(key, change);
        Ok(())
    }
}
