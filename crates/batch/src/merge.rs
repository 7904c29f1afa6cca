//! Merge: a verified batch becomes part of the volume.
//!
//! The batch is verified on a snapshot, its rows and ops are built into a run outside of the commit turn, and one commit adds the run,
//! under the condition that nothing has changed on which the verification depends. If a directory has changed, only its owner, its
//! permissions and the names that the batch changes are compared again; if one of these has changed too, the batch is verified again on a
//! newer snapshot.

use crate::change::Change;
use crate::proof::Proof;
use crate::reduced;
use crate::run_rows::{EngineRun, RunRows};
use crate::sealed::{ClaimedChanges, SealedBatch};
use crate::table_error::table_error;
use crate::verdict_error::VerdictError;
use crate::verify::{Refused, Rejected, Terms, Verified, replay};
use meta::codec::{decode_extent, decode_inode, decode_quota};
use meta::{
    BatchOutcome, CommitError, Condition, Content, Effect, Engine, EngineError, Extent, FsError, Ino, Inode,
    KeyRange, Kind, Merge, OpRecord, Reader, Run, RunRecord, Seqno, acl, namespace, schema,
};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use store::ObjectKey;

/// Maximum verifications of a batch, each on a newer snapshot, before a merge fails with [`MergeError::Busy`].
const REPLAYS_MAX: usize = 8;

/// Attempts to add a verified batch before it is verified again.
const ATTEMPTS_MAX: usize = 16;

/// Maximum conditions that replace those on whole directories. The engine checks them while other commits wait: some 50 ms for so many.
const NAMES_MAX: usize = 10_000;

/// The steps of a merge, which may be repeated if others change the volume meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergeStep {
    /// The batch is verified on a snapshot.
    Verify,
    /// The verified batch is added to the volume.
    Add,
}

/// The result of a merge.
#[derive(Debug)]
pub struct Merged {
    /// The outcome of an earlier merge of the batch; this one has changed nothing then.
    pub earlier: Option<BatchOutcome>,
    /// The proof by which the batch was accepted; `None` after an earlier merge.
    pub proof: Option<Proof>,
    /// The commit that added the batch; `None` after an earlier merge.
    pub seqno: Option<Seqno>,
    /// The number of ops that were added: those of the batch, or its canonical ops.
    pub accepted: u64,
    /// The ops that were not added, or only under another name, in the order of the batch; empty after an earlier merge.
    pub refused: Vec<Refused>,
    /// Objects to which no inode refers any longer. The caller deletes them.
    pub released: Vec<ObjectKey>,
    /// Objects of the batch that files use, apart from those whose key has the inode of the only file that uses them: packs, and the content
    /// of refused changes that was kept as another file. `None` after an earlier merge, when these objects are no longer known.
    pub shared: Option<BTreeSet<ObjectKey>>,
}

/// Errors of a merge. Nothing was added, except possibly after [`EngineError::Uncertain`].
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// The verdict of another server cannot be used.
    #[error(transparent)]
    Verdict(#[from] VerdictError),
    /// The batch was rejected, or it could not be verified ([`Rejected::Engine`], [`Rejected::Log`]).
    #[error("the batch was rejected: {0}")]
    Rejected(#[from] Rejected),
    /// Other clients kept changing what the batch depends on, such as the same names.
    #[error("the batch conflicts with changes that others keep making; submit it again")]
    Busy,
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Verifies a batch and adds it to a volume in one commit. `proof` says how to verify it. `scratch` is a directory for temporary files. The
/// files of the batch must not change meanwhile.
pub fn merge(
    engine: &dyn Engine,
    batch: &SealedBatch,
    terms: &Terms,
    scratch: &Path,
    proof: Proof,
) -> Result<Merged, MergeError> {
    merge_in_steps(engine, batch, terms, (scratch, proof), &mut |_| {})
}

/// Like [`merge`]. Calls `begins` at the beginning of each step.
pub fn merge_in_steps(
    engine: &dyn Engine,
    batch: &SealedBatch,
    terms: &Terms,
    (scratch, proof): (&Path, Proof),
    begins: &mut dyn FnMut(MergeStep),
) -> Result<Merged, MergeError> {
    for _ in 0..REPLAYS_MAX {
        if let Some(outcome) = earlier_outcome(engine, terms)? {
            return Ok(Merged::earlier(outcome));
        }
        let begin = |_| engine.begin_run().map(EngineRun);
        begins(MergeStep::Verify);
        let (verified, run) = build_into(&engine.snapshot()?, batch, terms, scratch, proof, begin)?;
        begins(MergeStep::Add);
        if let Some(merged) = Built::conclude(verified, run, batch, terms)?.add(engine)? {
            return Ok(merged);
        }
    }
    Err(MergeError::Busy)
}

/// Verifies a batch on a snapshot. The rows and ops that are accepted go to a receiver that `begin` makes for a proof.
pub(crate) fn build_into<R: RunRows>(
    snapshot: &Arc<dyn Reader>,
    batch: &SealedBatch,
    terms: &Terms,
    scratch: &Path,
    proof: Proof,
    begin: impl Fn(Proof) -> Result<R, EngineError>,
) -> Result<(Verified, R), Rejected> {
    if proof == Proof::Reduced {
        let mut run = begin(Proof::Reduced)?;
        if let Some(verified) = reduced::check(snapshot, batch, terms, scratch, &mut run)? {
            return Ok((verified, run));
        }
    }
    let mut verified = replay(snapshot, batch, terms, scratch)?;
    let mut run = begin(Proof::Replay)?;
    add_replayed(batch, terms, &mut verified, &mut run)?;
    Ok((verified, run))
}

/// Adds the rows and ops that a replay has accepted.
fn add_replayed(
    batch: &SealedBatch,
    terms: &Terms,
    verified: &mut Verified,
    run: &mut dyn RunRows,
) -> Result<(), Rejected> {
    let mut changes = verified.overlay.local.range(Bound::Unbounded, Bound::Unbounded);
    while let Some((key, change)) = changes.next()? {
        match change {
            Change::Put(value) => {
                run.put(&key, &value)?;
                terms.note_packs(&extents_of(&key, &value)?, &mut verified.shared);
            }
            Change::Delete if verified.overlay.base.is_fresh(&key) => {}
            Change::Delete => run.delete(&key)?,
            Change::Merge(_) => {}
        }
    }
    let mut refused = verified.refused.iter().map(|refused| refused.index).peekable();
    let mut effects = verified.effects.iter().copied().peekable();
    let mut ops = batch.ops()?;
    let mut index = 0;
    while let Some(page) = ops.next_page()? {
        for OpRecord { context, op, .. } in page {
            if let Some(replaced) = verified.replaced.get(&index) {
                refused.next_if_eq(&index);
                replaced.iter().try_for_each(|record| run.log(record))?;
            } else if refused.next_if_eq(&index).is_none() {
                let effect = effects
                    .next_if(|(of, _)| *of == index)
                    .map_or_else(Effect::default, |(_, effect)| effect);
                run.log(&OpRecord { context, op, effect })?;
            }
            index += 1;
        }
    }
    Ok(())
}

/// A verified batch, its run, and the conditions and merges that are committed with the run.
pub(crate) struct Built<'e> {
    verified: Verified,
    run: Box<dyn Run + 'e>,
    record: RunRecord,
}

impl<'e> Built<'e> {
    /// Completes the run of a verified batch with the record of its outcome, and those of refused ops.
    pub(crate) fn conclude(
        mut verified: Verified,
        mut run: EngineRun<'e>,
        batch: &SealedBatch,
        terms: &Terms,
    ) -> Result<Self, MergeError> {
        let records = verified.conclude(batch, terms)?;
        let range = schema::batches();
        let (from, to) = range.bounds();
        let mut changes = verified.overlay.local.range(from, to);
        while let Some((key, change)) = changes.next()? {
            if let Change::Put(value) = change {
                run.put(&key, &value)?;
            }
        }
        drop(changes);
        records.iter().try_for_each(|record| run.log(record))?;
        let record = verified.record()?;
        Ok(Self { verified, run: run.0.finish()?, record })
    }

    /// Adds the run to the volume. Returns `None` if others have changed something on which the verification depends.
    pub(crate) fn add(mut self, engine: &dyn Engine) -> Result<Option<Merged>, MergeError> {
        for _ in 0..ATTEMPTS_MAX {
            match self.run.ingest(&self.record) {
                Ok(seqno) => return Ok(Some(self.verified.merged(seqno))),
                Err(CommitError::Engine(error)) => return Err(error.into()),
                Err(CommitError::Conflict) => {}
            }
            match self.verified.conditions_at(&*engine.snapshot()?)? {
                Some(conditions) => self.record.conditions = conditions,
                None => break,
            }
        }
        Ok(None)
    }
}

impl Merged {
    /// Returns the result for a batch that was merged before.
    pub(crate) fn earlier(outcome: BatchOutcome) -> Self {
        let (refused, released) = Default::default();
        Self {
            earlier: Some(outcome),
            proof: None,
            seqno: None,
            accepted: outcome.accepted,
            refused,
            released,
            shared: None,
        }
    }
}

/// Returns the outcome of an earlier merge of the batch; `None` if it was not merged yet.
pub(crate) fn earlier_outcome(
    engine: &dyn Engine,
    terms: &Terms,
) -> Result<Option<BatchOutcome>, MergeError> {
    let found = namespace::read_batch(engine, terms.id()).map_err(FsError::into_engine_error)?;
    Ok(found.ok_or(Rejected::Unknown(terms.id()))?.outcome)
}

impl Verified {
    /// Returns the result of the merge whose commit is `seqno`.
    fn merged(self, seqno: Seqno) -> Merged {
        let Self { proof, accepted, refused, released, shared, .. } = self;
        Merged {
            earlier: None,
            proof: Some(proof),
            seqno: Some(seqno),
            accepted,
            refused,
            released,
            shared: Some(shared),
        }
    }

    /// Returns the parts of the commit that are not in the run.
    fn record(&self) -> Result<RunRecord, EngineError> {
        let mut record = RunRecord { conditions: self.overlay.base.conditions()?, ..RunRecord::default() };
        let mut changes = self.overlay.local.range(Bound::Unbounded, Bound::Unbounded);
        while let Some((key, change)) = changes.next()? {
            if let Change::Merge(merge) = change {
                record.merges.push((key, merge));
            }
        }
        Ok(record)
    }

    /// Returns the change that the batch makes to a record; `None` if it makes none.
    fn change_of(&self, key: &[u8]) -> Result<Option<Change>, EngineError> {
        if let Some(change) = self.overlay.local.get(key)? {
            return Ok(Some(change));
        }
        let Some(rows) = &self.claimed else { return Ok(None) };
        let found = rows.get(key).map_err(table_error)?;
        Ok(found.map(|bytes| Change::decode(&bytes)).transpose()?)
    }

    /// Visits the keys of a range that the batch changes, until `visit` returns `false`. Returns `false` if it did, and `true` otherwise.
    fn for_each_changed_key(
        &self,
        range: &KeyRange,
        mut visit: impl FnMut(Vec<u8>) -> Result<bool, EngineError>,
    ) -> Result<bool, EngineError> {
        if let Some(rows) = &self.claimed {
            let mut rows = ClaimedChanges::of(rows, range);
            while let Some((key, _)) = rows.next()? {
                if !visit(key)? {
                    return Ok(false);
                }
            }
        }
        let (from, to) = range.bounds();
        let mut changes = self.overlay.local.range(from, to);
        while let Some((key, _)) = changes.next()? {
            if !visit(key)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the conditions under which the accepted ops have the effect on a newer state that they had on the snapshot; `None` if the
    /// newer state differs in something on which they depend.
    fn conditions_at(&self, state: &dyn Reader) -> Result<Option<Vec<Condition>>, EngineError> {
        let mut conditions = Vec::new();
        let mut names_left = NAMES_MAX;
        for condition in self.overlay.base.conditions()? {
            let holds = match &condition {
                Condition::Version { key, version } => match state.get(key)? {
                    Some(found) if found.version == *version => true,
                    Some(found) if self.is_compatible(state, key)? => {
                        let condition = Condition::Version { key: key.clone(), version: found.version };
                        match self.conditions_of_entries(state, key, names_left)? {
                            // A further change of other names of the directory must not be a conflict again.
                            Some(of_entries) => {
                                names_left -= of_entries.len();
                                conditions.extend(of_entries);
                            }
                            None => conditions.push(condition),
                        }
                        continue;
                    }
                    _ => false,
                },
                Condition::Absent { key } => state.get(key)?.is_none(),
                Condition::Present { key } => state.get(key)?.is_some(),
                Condition::RangeEmpty(range) => {
                    let (from, to) = range.bounds();
                    state.scan(from, to, 1)?.is_empty()
                }
            };
            if !holds {
                return Ok(None);
            }
            conditions.push(condition);
        }
        Ok(Some(conditions))
    }

    /// Returns whether the ops still have the same effect although others have changed the record of `key`. That is so for a quota that
    /// still has space for the batch, and for a directory of which others have changed only entries that the batch does not change, unless
    /// the batch itself changes more of the directory than its entries, or moves directories.
    fn is_compatible(&self, state: &dyn Reader, key: &[u8]) -> Result<bool, EngineError> {
        if let Some(Change::Merge(Merge::Usage(more))) = self.overlay.local.get(key)? {
            let quota = value(state, key)?.map(|value| decode_quota(&value)).transpose()?;
            return Ok(quota.is_some_and(|quota| quota.has_room(more)));
        }
        let Some(dir) = inode_of(key).filter(|_| !self.moves_directories) else { return Ok(false) };
        let snapshot = self.overlay.base.reader();
        let is_only_merged = matches!(self.change_of(key)?, None | Some(Change::Merge(_)));
        Ok(is_only_merged
            && has_same_rules(snapshot, state, dir)?
            && !self.has_changes_in(&schema::xattrs(dir))?
            && self.has_same_entries(snapshot, state, dir)?)
    }

    /// Returns conditions on the entries that the batch changes in a directory, and on the rules for new entries. They hold as long as no client
    /// changes these entries or rules, whatever else happens in the directory. `None` if the key is not that of an inode, or for more than
    /// `limit` conditions.
    fn conditions_of_entries(
        &self,
        state: &dyn Reader,
        key: &[u8],
        limit: usize,
    ) -> Result<Option<Vec<Condition>>, EngineError> {
        let Some(dir) = inode_of(key) else { return Ok(None) };
        let mut conditions = vec![Condition::Present { key: key.to_vec() }];
        for key in [schema::set_group(dir), schema::xattr(dir, acl::DEFAULT)] {
            conditions.push(unchanged(state, key)?);
        }
        let are_few = self.for_each_changed_key(&schema::dentries(dir), |key| {
            conditions.push(unchanged(state, key)?);
            Ok(conditions.len() <= limit)
        })?;
        Ok((are_few && conditions.len() <= limit).then_some(conditions))
    }

    /// Returns whether the batch changes a record of the range.
    fn has_changes_in(&self, range: &KeyRange) -> Result<bool, EngineError> {
        Ok(!self.for_each_changed_key(range, |_| Ok(false))?)
    }

    /// Returns whether the names that the batch changes in a directory refer to the same inodes in both states.
    fn has_same_entries(&self, one: &dyn Reader, other: &dyn Reader, dir: Ino) -> Result<bool, EngineError> {
        self.for_each_changed_key(&schema::dentries(dir), |key| Ok(value(one, &key)? == value(other, &key)?))
    }
}

/// Returns whether both states have the same rules for new entries of a directory: its owner, its group, its mode and its ACLs. `false` if
/// it is no directory in one of them.
fn has_same_rules(one: &dyn Reader, other: &dyn Reader, dir: Ino) -> Result<bool, EngineError> {
    let inode = |state: &dyn Reader| -> Result<Option<Inode>, EngineError> {
        let found = value(state, &schema::inode(dir))?;
        Ok(found.map(|value| decode_inode(dir, &value)).transpose()?.map(|record| record.inode))
    };
    let (Some(before), Some(after)) = (inode(one)?, inode(other)?) else { return Ok(false) };
    let is_same = before.kind == Kind::Directory
        && after.kind == Kind::Directory
        && (before.mode, before.uid, before.gid) == (after.mode, after.uid, after.gid);
    let mut have_same_acls = true;
    for name in [acl::ACCESS, acl::DEFAULT] {
        let key = schema::xattr(dir, name);
        have_same_acls &= value(one, &key)? == value(other, &key)?;
    }
    Ok(is_same && have_same_acls)
}

/// Returns the condition that a record, or its absence, is as in a state.
fn unchanged(state: &dyn Reader, key: Vec<u8>) -> Result<Condition, EngineError> {
    Ok(match state.get(&key)? {
        Some(found) => Condition::Version { key, version: found.version },
        None => Condition::Absent { key },
    })
}

/// Returns the extents in a record, which may be that of an inode or of an extent.
fn extents_of(key: &[u8], value: &[u8]) -> Result<Vec<Extent>, EngineError> {
    if let Some(ino) = inode_of(key) {
        return Ok(match decode_inode(ino, value)?.inode.content {
            Content::Inline(extents) => extents,
            Content::Rows(_) => Vec::new(),
        });
    }
    if !schema::all_extents().contains(key) {
        return Ok(Vec::new());
    }
    Ok(vec![decode_extent(schema::offset_of(key)?, value)?])
}

/// Returns the number in the key of an inode; `None` for the key of another record.
fn inode_of(key: &[u8]) -> Option<Ino> {
    schema::ino_of(key).ok().filter(|ino| key == schema::inode(*ino))
}

/// Returns the value of a record without its version; `None` if there is no record.
fn value(state: &dyn Reader, key: &[u8]) -> Result<Option<meta::Value>, EngineError> {
    Ok(state.get(key)?.map(|found| found.value))
}
