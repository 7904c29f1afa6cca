//! Verification of a batch by replay: its ops are checked and applied to the present state, one by one.
//!
//! The state after an op is the effect of `apply` on the ops accepted so far, whoever wrote the batch. So it suffices to check each op as a
//! server checks a request: the user may do it (`meta::access`), it is a kind of op that a user can ask for, and its context and inode
//! numbers are those that the server has granted. An op that fails is refused alone. A batch that cannot come from the library is rejected as
//! a whole.

use crate::base::Base;
use crate::local_map::LocalMap;
use crate::op_log::LogDamage;
use crate::overlay::Overlay;
use crate::sealed::SealedBatch;
use meta::access::{AccessError, Caller, authorize};
use meta::{
    Applied, Effect, EngineError, FsError, Ino, Inode, Kind, Moment, Op, OpContext, OpRecord, Origin, Reader,
    SETGID, acl, namespace,
};
use sst::FileTable;
use std::ops::{Bound, Range, RangeInclusive};
use std::path::Path;
use std::sync::Arc;
use store::{ObjectKey, Timestamp};

/// Memory for the changes of a batch that is being verified, in bytes.
pub(crate) const MEMORY_BYTES_MAX: usize = 128 << 20;

/// The terms of a batch, which the server knows from elsewhere than the batch.
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
}

/// An op that was not added to the volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The index of the op in the batch; see [`SealedBatch::for_each_op`].
    pub index: u64,
    /// The reason.
    pub why: Refusal,
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
}

/// The reason why a whole batch was rejected. Nothing of it was added.
#[derive(Debug, thiserror::Error)]
pub enum Rejected {
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] LogDamage),
    /// An op has a user, a group, a time or a moment that does not belong to the batch.
    #[error("op {0} of the batch has a context that is not the batch's")]
    Context(u64),
    /// An op is not one that a batch may contain.
    #[error("op {0} of the batch is of a kind that a batch cannot contain")]
    Kind(u64),
    /// An op uses an inode number that was not leased for the batch.
    #[error("op {0} of the batch uses an inode number that was not leased for it")]
    Lease(u64),
    /// An op keeps a set-id bit that the user may not set.
    #[error("op {0} of the batch sets a set-id bit that its user may not set")]
    SetId(u64),
    /// An op stores content that is not the batch's.
    #[error("op {0} of the batch refers to objects that are not the batch's")]
    Content(u64),
    /// The volume has inodes with numbers of the lease. A lease serves one batch.
    #[error("the inode numbers leased for the batch are in use: the batch has been merged before")]
    Used,
    /// The rows are not those that follow from the ops.
    #[error("the rows of the batch do not follow from its ops")]
    Rows,
    /// The state could not be read.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// A batch whose accepted ops have been applied to a snapshot.
pub(crate) struct Verified {
    pub(crate) overlay: Overlay,
    pub(crate) accepted: u64,
    pub(crate) refused: Vec<Refused>,
    /// Objects to which no inode refers any longer.
    pub(crate) released: Vec<ObjectKey>,
    /// Effects of accepted ops that the ops do not tell, by the ops' indexes, ascending. Those in the batch's log are not believed.
    pub(crate) effects: Vec<(u64, Effect)>,
    /// Whether a directory was moved to another directory. Such an op depends on all directories above.
    pub(crate) moves_directories: bool,
    /// The claimed rows, if they were proven. The overlay then has not all changes.
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
    let overlay = Overlay { base, local: LocalMap::new(scratch, MEMORY_BYTES_MAX) };
    let mut verified = Verified::new(overlay);
    let mut ops = batch.ops()?;
    let mut index = 0;
    while let Some(page) = ops.next_page()? {
        for OpRecord { context, op, .. } in page {
            terms.admit(index, &context, &op)?;
            match verified.apply(terms, index, &context, &op)? {
                Ok(applied) => verified.accept(index, &op, applied),
                Err(why) => verified.refused.push(Refused { index, why }),
            }
            index += 1;
        }
    }
    if verified.refused.is_empty() {
        verified.require_claimed_rows(batch)?;
    }
    Ok(verified)
}

impl Terms {
    /// Checks what does not depend on the state. An op that fails here does not come from the library.
    pub(crate) fn admit(&self, index: u64, context: &OpContext, op: &Op) -> Result<(), Rejected> {
        let is_own = context.uid == self.caller.uid && self.caller.is_in(context.gid);
        // An op is told to all caches, because no front end has shown it yet.
        let is_granted = context.at == self.at && context.origin == Origin::Other;
        if !is_own || !is_granted || !self.times.contains(&context.now) {
            return Err(Rejected::Context(index));
        }
        match op {
            Op::Create { ino, .. } if !self.lease.contains(ino) => Err(Rejected::Lease(index)),
            Op::Unlink { keep, .. } | Op::Rename { keep, .. } if *keep => Err(Rejected::Kind(index)),
            Op::Publish { content, .. } | Op::Splice { content, .. } if !content.is_empty() => {
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
            | Op::Purge { .. } => Err(Rejected::Kind(index)),
        }
    }
}

impl Verified {
    pub(crate) fn new(overlay: Overlay) -> Self {
        Self {
            overlay,
            accepted: 0,
            refused: Vec::new(),
            released: Vec::new(),
            effects: Vec::new(),
            moves_directories: false,
            claimed: None,
        }
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
                // A batch has no open files, and only by these could it reach an orphan.
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

    fn accept(&mut self, index: u64, op: &Op, applied: Applied) {
        let effect = Effect::of(op, &applied);
        if effect != Effect::default() {
            self.effects.push((index, effect));
        }
        self.accepted += 1;
        self.released.extend(applied.released);
    }

    /// Fails unless the rows that the batch claims are those that its ops have made. They are compared if all that the job says to have read is
    /// unchanged, since the same ops then have the same effect.
    fn require_claimed_rows(&self, batch: &SealedBatch) -> Result<(), Rejected> {
        if !batch.reads_are_current(self.overlay.base.reader())? {
            return Ok(());
        }
        let mut claimed = batch.changes();
        let mut own = self.overlay.local.range(Bound::Unbounded, Bound::Unbounded);
        loop {
            match (own.next()?, claimed.next()?) {
                (None, None) => return Ok(()),
                (own, claimed) if own == claimed => {}
                _ => return Err(Rejected::Rows),
            }
        }
    }
}

/// Returns the inode that an op names by its number.
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

/// Returns whether Linux would remove the set-group-id bit when the op sets an access ACL. The library sets the mode first.
fn acl_removes_set_id(caller: &Caller, op: &Op, inode: &Inode) -> bool {
    matches!(op, Op::SetXattr { name, .. } if **name == *acl::ACCESS)
        && inode.mode & SETGID != 0
        && !caller.is_superuser()
        && !caller.is_in(inode.gid)
}

fn is_move_of_directory(op: &Op, applied: &Applied) -> bool {
    matches!(op, Op::Rename { from, to, .. } if from.0 != to.0)
        && applied.inode.as_ref().is_some_and(|inode| inode.kind == Kind::Directory)
}

/// Returns a refusal, or fails if the state could not be read.
fn refuse<T>(why: Refusal) -> Result<Result<T, Refusal>, Rejected> {
    match why {
        Refusal::Fs(FsError::Engine(error)) | Refusal::Access(AccessError::Fs(FsError::Engine(error))) => {
            Err(error.into())
        }
        Refusal::Access(AccessError::Fs(error)) => Ok(Err(error.into())),
        why => Ok(Err(why)),
    }
}
