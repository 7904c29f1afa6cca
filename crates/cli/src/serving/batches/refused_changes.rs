//! The records of the ops that merges have refused, and their retries.
//!
//! Invariant: a retry removes and replaces no file, since the job has not seen the file that has the name by now.

use super::{Unavailable, no_batch};
use crate::control::batch_protocol::{BatchAnswer, BatchConflict};
use crate::serving::batch_ops;
use crate::serving::open_volume::OpenVolume;
use anyhow::Result;
use batch::Refusal;
use meta::codec::decode_op;
use meta::{BatchId, Engine, FsError, Ino, Name, Namespace, Op, RefusedOp, RenameHow, namespace};

/// Refused ops in one answer.
const CONFLICTS_PAGE: usize = 256;

/// A refused change, for programs that use the library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedChange {
    /// Index of the change in the batch.
    pub index: u64,
    /// The change, as text.
    pub change: String,
    /// The reason.
    pub reason: String,
    /// Path of the file that keeps the bytes, from the root of the volume; `None` if nothing is kept, or the file is gone.
    pub kept_as: Option<Vec<u8>>,
}

/// Returns the first refused change of a batch from an index on; `None` if there is none.
pub(super) fn next_refused(opened: &OpenVolume, id: BatchId, from: u64) -> Result<Option<RefusedChange>> {
    let names = opened.fs.admin().batches().names().engine();
    let refused = read_refused(&**names, id, from, 1)?;
    let path_of = |ino: Ino| {
        let path = namespace::read_path(&**names, ino).ok()?;
        Some(path.iter().map(Name::as_bytes).collect::<Vec<_>>().join(&b'/'))
    };
    Ok(refused.into_iter().next().map(|(index, refused)| RefusedChange {
        index,
        change: batch_ops::describe(&**names, &refused.op),
        reason: refused.why.into(),
        kept_as: refused.kept.and_then(path_of),
    }))
}

/// Returns the first refused ops of a batch from an index on.
fn read_refused(names: &dyn Engine, id: BatchId, from: u64, limit: usize) -> Result<Vec<(u64, RefusedOp)>> {
    if namespace::read_batch(names, id)?.is_none() {
        return Err(no_batch(id));
    }
    Ok(namespace::read_refused_ops(names, id, from, limit)?)
}

/// Returns a page of the refused ops of a batch, from an index on.
pub(super) fn conflicts(opened: &OpenVolume, id: BatchId, from: u64) -> Result<BatchAnswer> {
    let names = opened.fs.admin().batches().names().engine();
    let refused = read_refused(&**names, id, from, CONFLICTS_PAGE)?;
    let conflicts = refused.into_iter().map(|(index, refused)| BatchConflict {
        index,
        op: batch_ops::describe(&**names, &refused.op),
        why: refused.why.into(),
        kept_as: refused.kept.and_then(|ino| batch_ops::path_of(&**names, ino)),
    });
    Ok(BatchAnswer::Conflicts { conflicts: conflicts.collect() })
}

/// Removes the records of all refused ops of a batch.
pub(super) fn forget_refused(opened: &OpenVolume, batch: BatchId) -> Result<()> {
    let batches = opened.fs.admin().batches();
    let names = batches.names();
    loop {
        let page = namespace::read_refused_ops(&**names.engine(), batch, 0, CONFLICTS_PAGE)?;
        if page.is_empty() {
            return Ok(());
        }
        let ops = page.iter().map(|(index, _)| forgotten(batch, *index));
        names.commit_together(&batches.context(), &ops.collect::<Vec<_>>())?;
    }
}

/// Makes a refused op again on the present names, and removes its record in the same commit. Returns a description of the op. Fails if the op
/// is refused again, or would remove or replace a file that the batch has not seen.
pub(super) async fn retry(opened: &OpenVolume, id: BatchId, index: u64) -> Result<BatchAnswer> {
    let (batches, refused) = (opened.fs.admin().batches(), refused_op(opened, id, index)?);
    let names = batches.names();
    let not_again = |why: String| Unavailable::not_again(libc::EOPNOTSUPP, why);
    let op =
        decode_op(&refused.op).map_err(|_| not_again("the change is one of a newer Tenon".to_owned()))?;
    let described = batch_ops::describe(&**names.engine(), &refused.op);
    let acts_on_entry = matches!(op, Op::Rename { .. } | Op::Rmdir { .. });
    if acts_on_entry && *refused.why == *Refusal::OtherFile.to_string() {
        return Err(not_again(format!(
            "{described}: {}; make the change yourself if it is right",
            refused.why
        )));
    }
    let again =
        op_to_retry(names, id, op, refused.kept).map_err(|why| not_again(format!("{described}: {why}")))?;
    let before = names.engine().head();
    let ops: Vec<_> = again.into_iter().chain([forgotten(id, index)]).collect();
    let applied =
        names.commit_together(&batches.context(), &ops).map_err(|why| refused_again(&described, why))?;
    batches.merged(before, applied.into_iter().flat_map(|applied| applied.released).collect()).await;
    batches.sync_names().await?;
    Ok(BatchAnswer::Resolved { op: described })
}

/// Removes the record of a refused op, without a change of the names. Returns a description of the op.
pub(super) async fn forget(opened: &OpenVolume, id: BatchId, index: u64) -> Result<BatchAnswer> {
    let (batches, refused) = (opened.fs.admin().batches(), refused_op(opened, id, index)?);
    let described = batch_ops::describe(&**batches.names().engine(), &refused.op);
    batches.names().commit(&batches.context(), &forgotten(id, index))?;
    batches.sync_names().await?;
    Ok(BatchAnswer::Resolved { op: described })
}

/// Returns the op that does what a refused one should have done, by now; `None` if nothing is left to do. Fails with the reason why that is
/// not possible.
fn op_to_retry(names: &Namespace, id: BatchId, op: Op, kept: Option<Ino>) -> Result<Option<Op>, String> {
    let text = |error: FsError| error.to_string();
    let how = RenameHow::NoReplace;
    Ok(match (op, kept) {
        (Op::Create { parent, name, .. }, Some(kept)) => {
            let home = names.inode(kept).map_err(text)?.home;
            let from = home.ok_or("the file that was kept is gone")?;
            Some(Op::Rename { from, to: (parent, name), how, keep: true })
        }
        (Op::Link { parent, name, ino }, kept) => {
            let ino = kept.unwrap_or(ino);
            let all = names.names(ino).map_err(text)?;
            let suffix = batch::kept_suffix(id);
            let is_substitute = |(dir, other): &(Ino, Name)| {
                *dir == parent && String::from_utf8_lossy(other.as_bytes()).contains(&suffix)
            };
            Some(match all.into_iter().find(is_substitute) {
                Some(from) => Op::Rename { from, to: (parent, name), how, keep: true },
                None => Op::Link { ino, parent, name },
            })
        }
        (Op::Rename { from, to, how: wanted, .. }, Some(kept)) => {
            let there = names.entry(from.0, &from.1).map_err(text)?;
            if there.is_none_or(|there| there.ino != kept) {
                return Err("the name refers to another file by now; move the file yourself".to_owned());
            }
            let how = if wanted == RenameHow::Exchange { wanted } else { how };
            Some(Op::Rename { from, to, how, keep: true })
        }
        // The file that has the name by now is not the one that the job has removed.
        (Op::Unlink { parent, name, .. }, _) => {
            match names.entry(parent, &name).map_err(text)? {
                None => None,
                Some(_) => {
                    return Err("the name refers to another file than in the batch; remove it yourself if it should go".to_owned());
                }
            }
        }
        (op @ (Op::Rmdir { .. } | Op::SetAttr { .. } | Op::SetXattr { .. } | Op::RemoveXattr { .. }), _) => {
            Some(op)
        }
        (Op::Publish { .. } | Op::Splice { .. }, Some(_)) => {
            return Err(
                "the file was removed; move the file that keeps the content where it should be".to_owned()
            );
        }
        _ => return Err("the change cannot be made again, as the batch has kept nothing of it".to_owned()),
    })
}

fn refused_op(opened: &OpenVolume, id: BatchId, index: u64) -> Result<RefusedOp> {
    let names = opened.fs.admin().batches().names().engine();
    let found = namespace::read_refused_ops(&**names, id, index, 1)?.pop();
    let found = found.filter(|(found, _)| *found == index).map(|(_, refused)| refused);
    found.ok_or_else(|| {
        let why =
            format!("batch {id} has no refused change {index}; `tenon batch conflicts` lists the changes");
        Unavailable::not_found(why)
    })
}

/// Returns the error for a change that does not fit the present names either.
fn refused_again(described: &str, why: FsError) -> anyhow::Error {
    let text = format!("{described}: refused again: {why}");
    Unavailable::not_again(vfs::Error::from(why).errno(), text)
}

/// Returns the op that removes the record of a refused one.
fn forgotten(batch: BatchId, index: u64) -> Op {
    Op::SetRefusedOp { batch, index, record: None }
}
