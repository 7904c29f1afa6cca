//! Descriptions of the refused ops of batches.

use meta::codec::decode_op;
use meta::namespace::read_path;
use meta::{Ino, Name, Op, Reader};

/// Describes an encoded op in one line.
pub(crate) fn describe(names: &(impl Reader + ?Sized), op: &[u8]) -> String {
    let Ok(op) = decode_op(op) else { return "an op of a newer Tenon".to_owned() };
    let entry = |parent: Ino, name: &Name| {
        let dir = path_of(names, parent).unwrap_or_else(|| format!("inode {parent}"));
        if dir.is_empty() { name.to_string() } else { format!("{dir}/{name}") }
    };
    let inode = |ino: Ino| path_of(names, ino).unwrap_or_else(|| format!("inode {ino}"));
    match op {
        Op::Create { parent, name, .. } => format!("create {}", entry(parent, &name)),
        Op::Link { parent, name, .. } => format!("link {}", entry(parent, &name)),
        Op::Unlink { parent, name, .. } => format!("unlink {}", entry(parent, &name)),
        Op::Rmdir { parent, name } => format!("rmdir {}", entry(parent, &name)),
        Op::Rename { from, to, .. } => {
            format!("rename {} to {}", entry(from.0, &from.1), entry(to.0, &to.1))
        }
        Op::SetAttr { ino, .. } | Op::Accessed { ino, .. } => format!("change attributes of {}", inode(ino)),
        Op::SetXattr { ino, .. } | Op::RemoveXattr { ino, .. } => {
            format!("change extended attributes of {}", inode(ino))
        }
        Op::Publish { ino, .. } | Op::Splice { ino, .. } => format!("write {}", inode(ino)),
        _ => "an op that a batch cannot contain".to_owned(),
    }
}

/// Returns the path of an inode from the volume's root, lossy where it is not text; `None` if the inode has no name.
pub(crate) fn path_of(names: &(impl Reader + ?Sized), ino: Ino) -> Option<String> {
    let path = read_path(names, ino).ok()?;
    Some(path.iter().map(ToString::to_string).collect::<Vec<_>>().join("/"))
}
