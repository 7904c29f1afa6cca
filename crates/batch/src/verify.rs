//! Verification of a batch by replay: its ops are checked and applied to the present state, one by one.
//!
//! The state after an op is the effect of `apply` on the ops accepted so far, no matter who wrote the batch. So it suffices to check each op as a
//! server checks a request: the user may do it (`meta::access`), it is a kind of op that a user can ask for, and its context and inode
//! numbers are those that the server has granted. An op that the user may not do, or that does not fit the state, is refused alone. A batch
//! that this crate's private namespace does not make is rejected as a whole.

use crate::base::Base;
use crate::change::Change;
use crate::local_map::LocalMap;
use crate::op_log::LogDamage;
use crate::overlay::Overlay;
use crate::private_engine::batch_context;
use crate::proof::Proof;
use crate::rescue::{Outcome, Rescue};
use crate::sealed::SealedBatch;
use meta::access::{AccessError, Caller, authorize};
use meta::codec::encode_op;
use meta::namespace::read_batch;
use meta::{
    Applied, Batch, BatchId, BatchOutcome, Effect, EngineError, Extent, FsError, Ino, Inode, Kind, Moment,
    Op, OpContext, OpRecord, Origin, Reader, RefusedOp, SETGID, acl, namespace,
};
use sst::FileTable;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Range, RangeInclusive};
use std::path::Path;
use std::sync::Arc;
use store::{ObjectKey, Timestamp};

/// Memory for the changes of a batch that is being verified, in bytes.
pub(crate) const MEMORY_BYTES_MAX: usize = 128 << 20;

/// The terms of a batch: facts that the server knows from another source than the batch's files.
#[derive(Debug, Clone)]
pub struct Terms {
    /// The user who submits the batch.
    pub caller: Caller,
    /// The inode numbers that were leased for the batch.
    pub lease: Range<Ino>,
    /// The moment at which the batch was begun, which all its ops have.
    pub at: Moment,
    /// The times that ops may have: from the beginning of the batch until it was submitted.
    pub times: RangeInclusive<Timestamp>,
    /// Prefix of the keys of the batch's objects; `None` for a batch without content.
    pub content: Option<Box<[u8]>>,
    /// Prefix of the keys of the batch's packs, which hold the content of many files; `None` for a batch without packs.
    pub packs: Option<Box<[u8]>>,
    /// Whether refused files keep their bytes under other names.
    pub keeps_refused: bool,
    /// The time at which the batch was submitted.
    pub submitted: Timestamp,
}

/// An op that was not added to the volume, or only under another name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The index of the op in the batch; see [`SealedBatch::for_each_op`].
    pub index: u64,
    /// The reason.
    pub why: Refusal,
    /// The inode that keeps the bytes under another name; `None` if there is nothing to keep or refused files are not kept.
    pub kept: Option<Ino>,
}

/// The reason why an op was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The user may not carry out the op, or no longer.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The op does not fit the present state.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// The name now refers to another file, so that the op would move or remove a file that the job has not seen.
    #[error("the name refers to another file than in the batch")]
    OtherFile,
    /// The name has become the last one of a file that had others in the job.
    #[error("the file has no other name any more")]
    LastName,
    /// The reason that another server has given.
    #[error("{0}")]
    Reported(Box<str>),
}

/// The reason why a whole batch was rejected, or could not be verified. Nothing of it was added.
#[derive(Debug, thiserror::Error)]
pub enum Rejected {
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] LogDamage),
    /// An op has a user, a group, a time, a moment or an origin that does not belong to the batch.
    #[error("op {0} of the batch has a user, a group, a time or an origin that its batch does not permit")]
    Context(u64),
    /// An op is not one that a batch may contain.
    #[error("op {0} of the batch is of a kind that a batch cannot contain")]
    Kind(u64),
    /// An op creates an inode with a number that was not leased for the batch.
    #[error("op {0} of the batch creates an inode with a number that was not leased for the batch")]
    Lease(u64),
    /// An op sets or keeps a set-user-id or set-group-id bit that Linux would remove when this user does it.
    #[error("op {0} of the batch sets or keeps a set-id bit that its user may not set")]
    SetId(u64),
    /// An op stores content that is not the batch's.
    #[error("op {0} of the batch refers to objects that are not the batch's")]
    Content(u64),
    /// The volume does not know the batch.
    #[error("the volume has no batch {0}")]
    Unknown(BatchId),
    /// The volume has inodes with numbers of the lease, which is for one batch only.
    #[error(
        "the inode numbers leased for the batch are in use: the batch, or another one with this lease, has been merged before"
    )]
    Used,
    /// A quota has no room for the batch.
    #[error("{0}; raise it with `tenon quota set`, and end the batch again")]
    Quota(FsError),
    /// An op was refused, and no place was found for the bytes of its file.
    #[error("op {index} of the batch was refused, and its file cannot be kept under another name: {why}")]
    NoPlace {
        /// The index of the op.
        index: u64,
        /// The reason why the file cannot be created in `lost+found`.
        why: FsError,
    },
    /// The rows are not those that follow from the ops.
    #[error("the rows of the batch do not follow from its ops")]
    Rows,
    /// The state or a table of the batch could not be read, or temporary files could not be written.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// A batch whose accepted ops have been applied to a snapshot.
pub(crate) struct Verified {
    pub(crate) proof: Proof,
    pub(crate) overlay: Overlay,
    /// Number of accepted ops.
    pub(crate) accepted: u64,
    pub(crate) refused: Vec<Refused>,
    /// Objects to which no inode refers any longer.
    pub(crate) released: Vec<ObjectKey>,
    /// Objects of the batch that files use, apart from those whose key has the inode of the only file that uses them.
    pub(crate) shared: BTreeSet<ObjectKey>,
    /// Effects of accepted ops that do not follow from the ops alone, by the ops' indexes, ascending. The effects in the batch's log are not
    /// trusted.
    pub(crate) effects: Vec<(u64, Effect)>,
    /// The records to log for ops that were not applied as they are in the batch, by the ops' indexes.
    pub(crate) replaced: BTreeMap<u64, Vec<OpRecord>>,
    /// Whether a directory was moved to another directory. Such an op depends on all directories above.
    pub(crate) moves_directories: bool,
    /// The rows that are not in the overlay: the claimed ones, if canonical ops have proven them, or those of another server's verdict.
    pub(crate) claimed: Option<Arc<FileTable>>,
}

/// Replays a batch on a snapshot. `scratch` is a directory for temporary files.
pub(crate) fn replay(
    snapshot: &Arc<dyn Reader>,
    batch: &SealedBatch,
    terms: &Terms,
    scratch: &Path,
) -> Result<Verified, Rejected> {
    let base = Base::new(snapshot.clone(), &terms.lease)?;
    if !base.has_fresh_lease(&terms.lease) {
        return Err(Rejected::Used);
    }
    let overlay = Overlay::new(base, LocalMap::new(scratch, MEMORY_BYTES_MAX));
    let (mut verified, mut rescue) = (Verified::new(overlay, Proof::Replay), Rescue::new(terms));
    let mut ops = batch.ops()?;
    let mut index = 0;
    while let Some(page) = ops.next_page()? {
        for record in page {
            terms.admit(index, &record.context, &record.op)?;
            verified.replay(&mut rescue, terms, index, &record)?;
            index += 1;
        }
    }
    if verified.refused.is_empty() && verified.replaced.is_empty() {
        verified.require_claimed_rows(batch)?;
    }
    Ok(verified)
}

impl Terms {
    /// Returns the identity of the batch.
    pub fn id(&self) -> BatchId {
        BatchId(self.lease.start.0)
    }

    /// Returns whether extents are in objects of the batch.
    pub(crate) fn owns(&self, content: &[Extent]) -> bool {
        let is_own =
            |key: &ObjectKey| self.content.as_ref().is_some_and(|prefix| key.as_bytes().starts_with(prefix));
        content.iter().all(|extent| extent.object.key.as_ref().is_some_and(is_own))
    }

    /// Adds the packs of a content to `shared`.
    pub(crate) fn note_packs(&self, content: &[Extent], shared: &mut BTreeSet<ObjectKey>) {
        let Some(packs) = &self.packs else { return };
        for key in content.iter().filter_map(|extent| extent.object.key.as_ref()) {
            if key.as_bytes().starts_with(packs) && !shared.contains(key) {
                shared.insert(key.clone());
            }
        }
    }

    /// Checks what does not depend on the state of the volume. An op that fails here does not come from a private namespace of this crate.
    pub(crate) fn admit(&self, index: u64, context: &OpContext, op: &Op) -> Result<(), Rejected> {
        let is_own = context.uid == self.caller.uid && self.caller.is_in(context.gid);
        // `Origin::Other` makes all caches drop what the op changes, because no front end has made the change.
        let is_granted = context.at == self.at && context.origin == Origin::Other;
        if !is_own || !is_granted || !self.times.contains(&context.now) {
            return Err(Rejected::Context(index));
        }
        match op {
            Op::Create { ino, .. } if !self.lease.contains(ino) => Err(Rejected::Lease(index)),
            Op::Unlink { keep, .. } | Op::Rename { keep, .. } if *keep => Err(Rejected::Kind(index)),
            Op::Publish { content, .. } | Op::Splice { content, .. } if !self.owns(content) => {
                Err(Rejected::Content(index))
            }
            Op::Create { .. }
            | Op::Link { .. }
            | Op::Unlink { .. }
            | Op::Rmdir { .. }
            | Op::Rename { .. }
            | Op::SetAttr { .. }
            | Op::Accessed { .. }
            | Op::SetXattr { .. }
            | Op::RemoveXattr { .. }
            | Op::Publish { .. }
            | Op::Splice { .. } => Ok(()),
            Op::Root { .. }
            | Op::Lease { .. }
            | Op::CreateOrphan { .. }
            | Op::HandOn { .. }
            | Op::Import { .. }
            | Op::Refresh { .. }
            | Op::Vanish { .. }
            | Op::Evict { .. }
            | Op::SetQuota { .. }
            | Op::AwaitExport { .. }
            | Op::Exported { .. }
            | Op::Purge { .. }
            | Op::SetBatch { .. }
            | Op::SetRefusedOp { .. } => Err(Rejected::Kind(index)),
        }
    }
}

impl Verified {
    pub(crate) fn new(overlay: Overlay, proof: Proof) -> Self {
        Self {
            proof,
            overlay,
            accepted: 0,
            refused: Vec::new(),
            released: Vec::new(),
            shared: BTreeSet::new(),
            effects: Vec::new(),
            replaced: BTreeMap::new(),
            moves_directories: false,
            claimed: None,
        }
    }

    /// Applies an op of the batch, or keeps what it would have made.
    fn replay(
        &mut self,
        rescue: &mut Rescue,
        terms: &Terms,
        index: u64,
        record: &OpRecord,
    ) -> Result<(), Rejected> {
        let OpRecord { context, op, effect } = record;
        let redirected = rescue.redirect(op);
        let op = redirected.as_ref().unwrap_or(op);
        let applied = match rescue.refusal(&self.overlay, op, effect)? {
            Some(why) => Err(why),
            None => self.apply(terms, index, context, op)?,
        };
        let why = match applied {
            Ok(applied) => {
                rescue.accepted(op);
                if redirected.is_some() {
                    let effect = Effect::of(op, &applied);
                    self.note_shared(op);
                    self.replaced.insert(index, vec![OpRecord { context: *context, op: op.clone(), effect }]);
                }
                self.accept(index, op, applied);
                return Ok(());
            }
            Err(why) => why,
        };
        if !terms.keeps_refused {
            self.refused.push(Refused { index, why, kept: None });
            return Ok(());
        }
        let error = match &why {
            Refusal::Fs(error) if is_quota(error) => return Err(Rejected::Quota(error.clone())),
            Refusal::Fs(error) => error,
            Refusal::Access(_) | Refusal::OtherFile | Refusal::LastName | Refusal::Reported(_) => {
                &FsError::NotFound
            }
        };
        let rescued = rescue
            .keep(&mut self.overlay, terms, (index, context), (op, error))
            .map_err(|error| not_kept(index, error))?;
        let mut records = Vec::with_capacity(rescued.ops.len());
        for (context, op, applied) in rescued.ops {
            self.released.extend_from_slice(&applied.released);
            self.note_shared(&op);
            records.push(OpRecord { context, effect: Effect::of(&op, &applied), op });
        }
        self.replaced.insert(index, records);
        match rescued.outcome {
            Outcome::Exists => {}
            Outcome::Kept(ino) => self.refused.push(Refused { index, why, kept: Some(ino) }),
            Outcome::NothingToKeep => self.refused.push(Refused { index, why, kept: None }),
        }
        Ok(())
    }

    /// Adds the content of an op that was made for another inode to the shared objects.
    fn note_shared(&mut self, op: &Op) {
        if let Op::Publish { content, .. } | Op::Splice { content, .. } = op {
            self.shared.extend(content.iter().filter_map(|extent| extent.object.key.clone()));
        }
    }

    /// Records the outcome of the merge, and the refused ops. Returns the ops that do this.
    pub(crate) fn conclude(&mut self, batch: &SealedBatch, terms: &Terms) -> Result<Vec<OpRecord>, Rejected> {
        let outcome = BatchOutcome {
            merged: terms.submitted,
            accepted: self.accepted,
            refused: self.refused.len() as u64,
        };
        let found = read_batch(&self.overlay, terms.id()).map_err(FsError::into_engine_error)?;
        let record = found.ok_or(Rejected::Unknown(terms.id()))?;
        let record = Some(Batch { outcome: Some(outcome), ..record });
        let mut ops = vec![Op::SetBatch { id: terms.id(), record }];
        let mut refused = self.refused.iter().peekable();
        if refused.peek().is_some() {
            batch.for_each_op(|index, _, op| {
                if let Some(Refused { why, kept, .. }) = refused.next_if(|refused| refused.index == index) {
                    let record =
                        RefusedOp { op: encode_op(op).into(), why: why.to_string().into(), kept: *kept };
                    ops.push(Op::SetRefusedOp { batch: terms.id(), index, record: Some(record) });
                }
            })?;
        }
        let context = OpContext { now: terms.submitted, ..batch_context(terms.at) };
        let mut records = Vec::with_capacity(ops.len());
        for op in ops {
            let (_, changes) = self.overlay.apply(&context, &op).map_err(FsError::into_engine_error)?;
            self.overlay.commit(changes);
            records.push(OpRecord { context, op, effect: Effect::default() });
        }
        Ok(records)
    }

    /// Checks the user's rights and applies an op. The inner error refuses the op.
    pub(crate) fn apply(
        &mut self,
        terms: &Terms,
        index: u64,
        context: &OpContext,
        op: &Op,
    ) -> Result<Result<Applied, Refusal>, Rejected> {
        self.overlay.make_room()?;
        match authorize(&self.overlay, &terms.caller, context.now, op) {
            Ok(authorized) if authorized == *op => {}
            Ok(_) => return Err(Rejected::SetId(index)),
            Err(error) => return refuse(error.into()),
        }
        if let Some(ino) = changed_by_number(op) {
            match namespace::read_inode(&self.overlay, ino) {
                // An orphan has no name, and can be reached only by an open file, which a batch does not have.
                Ok(Some(inode)) if inode.is_orphan() => return refuse(FsError::NotFound.into()),
                Ok(Some(inode)) if acl_removes_set_id(&terms.caller, op, &inode) => {
                    return Err(Rejected::SetId(index));
                }
                Ok(_) => {}
                Err(error) => return refuse(error.into()),
            }
        }
        match self.overlay.apply(context, op) {
            Ok((applied, changes)) => {
                self.moves_directories |= is_move_of_directory(op, &applied);
                self.overlay.commit(changes);
                Ok(Ok(applied))
            }
            Err(error) => refuse(error.into()),
        }
    }

    /// Counts an accepted op, and notes its effect and the objects that it has released.
    fn accept(&mut self, index: u64, op: &Op, applied: Applied) {
        let effect = Effect::of(op, &applied);
        if effect != Effect::default() && !self.replaced.contains_key(&index) {
            self.effects.push((index, effect));
        }
        self.accepted += 1;
        self.released.extend(applied.released);
    }

    /// Fails unless the rows that the batch claims are those that its ops have made. They are compared only if all records that the job
    /// says to have read are unchanged, since the ops then have the same effect as in the job. No op may have been refused.
    fn require_claimed_rows(&self, batch: &SealedBatch) -> Result<(), Rejected> {
        if !batch.reads_are_current(self.overlay.base.reader())? {
            return Ok(());
        }
        let mut claimed = batch.changes();
        let mut made = self.overlay.local.range(Bound::Unbounded, Bound::Unbounded);
        loop {
            let made = next_effective(&self.overlay, || made.next())?;
            // A sealed batch has only effective changes.
            match (made, claimed.next()?) {
                (None, None) => return Ok(()),
                (made, claimed) if made == claimed => {}
                _ => return Err(Rejected::Rows),
            }
        }
    }
}

/// Returns whether an error is that of a quota, which the operator can raise.
fn is_quota(error: &FsError) -> bool {
    matches!(error, FsError::OverQuota | FsError::VolumeFull)
}

/// Returns the reason to reject a batch of whose op the bytes could not be kept.
fn not_kept(index: u64, error: FsError) -> Rejected {
    match error {
        FsError::Engine(error) => error.into(),
        error if is_quota(&error) => Rejected::Quota(error),
        why => Rejected::NoPlace { index, why },
    }
}

/// Returns the next change that is not a removal of nothing.
fn next_effective(
    overlay: &Overlay,
    mut next: impl FnMut() -> Result<Option<(Vec<u8>, Change)>, EngineError>,
) -> Result<Option<(Vec<u8>, Change)>, EngineError> {
    loop {
        match next()? {
            Some((key, change)) if !overlay.is_effective(&key, &change) => {}
            found => return Ok(found),
        }
    }
}

/// Returns the inode that an op changes by its number; `None` for an op that names an entry of a directory.
fn changed_by_number(op: &Op) -> Option<Ino> {
    match op {
        Op::Link { ino, .. }
        | Op::SetAttr { ino, .. }
        | Op::Accessed { ino, .. }
        | Op::SetXattr { ino, .. }
        | Op::RemoveXattr { ino, .. }
        | Op::Publish { ino, .. }
        | Op::Splice { ino, .. } => Some(*ino),
        _ => None,
    }
}

/// Returns whether Linux would remove the set-group-id bit when the op sets an access ACL. An honest job clears the bit before, by an op of
/// its own, so a batch without that op is rejected.
fn acl_removes_set_id(caller: &Caller, op: &Op, inode: &Inode) -> bool {
    matches!(op, Op::SetXattr { name, .. } if **name == *acl::ACCESS)
        && inode.mode & SETGID != 0
        && !caller.is_superuser()
        && !caller.is_in(inode.gid)
}

/// Returns whether the op has moved a directory to another directory.
fn is_move_of_directory(op: &Op, applied: &Applied) -> bool {
    matches!(op, Op::Rename { from, to, .. } if from.0 != to.0)
        && applied.inode.as_ref().is_some_and(|inode| inode.kind == Kind::Directory)
}

/// Returns a reason as the inner error of [`Verified::apply`]; as the outer error if the state could not be read.
fn refuse<T>(why: Refusal) -> Result<Result<T, Refusal>, Rejected> {
    match why {
        Refusal::Fs(FsError::Engine(error)) | Refusal::Access(AccessError::Fs(FsError::Engine(error))) => {
            Err(error.into())
        }
        Refusal::Access(AccessError::Fs(error)) => Ok(Err(error.into())),
        why => Ok(Err(why)),
    }
}
