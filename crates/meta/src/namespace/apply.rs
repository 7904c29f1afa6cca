//! Dispatch of every op to the function that applies it.

use super::{attr, batch, create, export, foreign, publish, quota, rename, unlink, volume, xattr};
use crate::{Applied, FsError, Inode, Kind, Op, OpContext, Txn};

/// Applies an op to a transaction.
///
/// Deterministic: the outcome depends only on the op, its context and the state. After an error the transaction may contain some
/// of the op's writes; the caller must drop it or undo the op ([`Staged::drop_op`](crate::Staged::drop_op)).
pub fn apply(txn: &mut impl Txn, context: &OpContext, op: &Op) -> Result<Applied, FsError> {
    match op {
        Op::Root { mode, uid, gid } => volume::root(txn, context, *mode, *uid, *gid),
        Op::Lease { from, to } => volume::lease(txn, *from, *to),
        Op::Create { parent, name, ino, kind, mode, umask, uid, gid, rdev, target } => {
            let inode = Inode {
                mode: *mode,
                uid: *uid,
                gid: *gid,
                rdev: *rdev,
                target: target.clone(),
                ..create::blank(context, *ino, *kind)
            };
            create::create(txn, context, (*parent, name), inode, *umask)
        }
        Op::CreateOrphan { parent, ino, mode, umask, uid, gid } => {
            let inode =
                Inode { mode: *mode, uid: *uid, gid: *gid, ..create::blank(context, *ino, Kind::File) };
            create::create_orphan(txn, *parent, inode, *umask)
        }
        Op::Link { ino, parent, name } => create::link(txn, context, *ino, *parent, name),
        Op::Unlink { parent, name, keep } => unlink::unlink(txn, context, *parent, name, *keep),
        Op::HandOn { ino, parent, name } => unlink::set_primary_name(txn, *ino, *parent, name),
        Op::Rmdir { parent, name } => unlink::rmdir(txn, context, *parent, name),
        Op::Rename { from, to, how, keep } => rename::rename(txn, context, from, to, *how, *keep),
        Op::SetAttr { ino, changes } => attr::set(txn, context, *ino, changes),
        Op::Accessed { ino, atime } => attr::set_atime(txn, *ino, *atime),
        Op::SetXattr { ino, name, value, how } => xattr::set(txn, context, *ino, name, value, *how),
        Op::RemoveXattr { ino, name } => xattr::remove(txn, context, *ino, name),
        Op::Publish { ino, base, content, size_bytes, mtime } => {
            let new =
                publish::NewContent { base: base.as_ref(), content, size_bytes: *size_bytes, mtime: *mtime };
            publish::publish(txn, context, *ino, new)
        }
        Op::Splice { ino, ranges, content, size_bytes, mtime } => {
            let new = publish::NewContent { base: None, content, size_bytes: *size_bytes, mtime: *mtime };
            publish::splice(txn, context, *ino, ranges, new)
        }
        Op::Import { parent, name, ino, seen } => foreign::import(txn, context, *parent, name, *ino, seen),
        Op::Refresh { ino, seen } => foreign::refresh(txn, *ino, seen),
        Op::Vanish { parent, name, looked_at, keep } => {
            foreign::vanish(txn, context, (*parent, name), *looked_at, *keep)
        }
        Op::Evict { parent, name } => foreign::evict(txn, *parent, name),
        Op::SetQuota { dir, limits } => quota::set(txn, *dir, *limits),
        Op::AwaitExport { ino } => export::mark_waiting(txn, context, *ino),
        Op::Exported { ino, change } => export::mark_done(txn, *ino, *change),
        Op::Purge { ino } => unlink::purge(txn, *ino),
        Op::SetBatch { id, record } => batch::set(txn, *id, record.as_ref()),
        Op::SetRefusedOp { batch, index, record } => batch::set_refused(txn, *batch, *index, record.as_ref()),
    }
}
