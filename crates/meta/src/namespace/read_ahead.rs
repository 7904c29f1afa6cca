//! The records that an op reads, as far as the op names them. Over a network they are read together, in one round trip.

use crate::{Ino, Name, Op, acl, schema};

/// Returns the keys of records that applying an op reads. It may read others too, whose keys are in these records.
pub(super) fn keys_read_by(op: &Op) -> Vec<Vec<u8>> {
    match op {
        Op::Create { parent, name, ino, .. } => {
            [vec![schema::dentry(*parent, name)], keys_of_new_inode(*parent, *ino)].concat()
        }
        Op::CreateOrphan { parent, ino, .. } => keys_of_new_inode(*parent, *ino),
        Op::Link { ino, parent, name } => {
            [keys_of_entry(*parent, name), keys_of_change(*ino), vec![schema::tree(*parent)]].concat()
        }
        Op::Unlink { parent, name, .. } | Op::Rmdir { parent, name } | Op::Evict { parent, name } => {
            [keys_of_entry(*parent, name), vec![schema::quotas_set()]].concat()
        }
        Op::Rename { from, to, .. } => {
            [keys_of_entry(from.0, &from.1), keys_of_entry(to.0, &to.1), vec![schema::quotas_set()]].concat()
        }
        Op::SetAttr { ino, .. }
        | Op::Publish { ino, .. }
        | Op::Splice { ino, .. }
        | Op::Accessed { ino, .. } => keys_of_change(*ino),
        Op::SetXattr { ino, name, .. } | Op::RemoveXattr { ino, name } => {
            vec![schema::inode(*ino), schema::xattr(*ino, name)]
        }
        Op::Purge { ino } => [keys_of_change(*ino), vec![schema::orphan(*ino)]].concat(),
        Op::SetBatch { id, .. } | Op::SetRefusedOp { batch: id, .. } => vec![schema::batch(*id)],
        _ => Vec::new(),
    }
}

/// Returns the keys of records that applying an op reads, and that almost certainly do not exist: the inode of a new number, and the waiting
/// export of a removed file.
pub(super) fn keys_probably_absent(op: &Op) -> Vec<Vec<u8>> {
    match op {
        Op::Create { ino, .. } | Op::CreateOrphan { ino, .. } => vec![schema::inode(*ino)],
        Op::Purge { ino } => vec![schema::waiting_export(*ino)],
        _ => Vec::new(),
    }
}

fn keys_of_new_inode(parent: Ino, ino: Ino) -> Vec<Vec<u8>> {
    vec![
        schema::inode(parent),
        schema::inode(ino),
        schema::xattr(parent, acl::DEFAULT),
        schema::set_group(parent),
        schema::quotas_set(),
    ]
}

fn keys_of_entry(parent: Ino, name: &Name) -> Vec<Vec<u8>> {
    vec![schema::dentry(parent, name), schema::inode(parent)]
}

fn keys_of_change(ino: Ino) -> Vec<Vec<u8>> {
    vec![schema::inode(ino), schema::quotas_set()]
}
