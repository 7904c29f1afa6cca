//! Canonical ops: the shortest ops of a job's user that lead to claimed records.
//!
//! Pure. Does not decide whether the ops are permitted, and does not know what they do: a wrong op is found later, when the records that
//! the ops make are compared with the claimed ones.

use crate::verify::Terms;
use meta::{AttrChanges, Content, Ino, Inode, Kind, Name, Op, OpContext, Origin, XattrHow};
use std::ops::Range;
use store::Timestamp;

/// Mode bits that a new inode has until its last op, so that its owner can read, write and search it. The last op sets the claimed mode.
const OWNER_ALL: u16 = 0o700;

/// Returns the context of an op of the batch's user at a time.
pub(crate) fn context(terms: &Terms, now: Timestamp) -> OpContext {
    OpContext { now, at: terms.at, uid: terms.caller.uid, gid: terms.caller.gid, origin: Origin::Other }
}

/// Returns the op that creates a claimed inode under its primary name.
pub(crate) fn creation(inode: &Inode, parent: Ino, name: &Name) -> Op {
    Op::Create {
        parent,
        name: name.clone(),
        ino: inode.ino,
        kind: inode.kind,
        mode: inode.mode,
        umask: 0,
        uid: inode.uid,
        gid: inode.gid,
        rdev: inode.rdev,
        target: inode.target.clone(),
    }
}

/// Returns the op that creates a claimed inode which further ops change: like [`creation`], but with all permissions for the owner.
pub(crate) fn changeable_creation(inode: &Inode, parent: Ino, name: &Name) -> Op {
    let mode = if inode.kind == Kind::Symlink { inode.mode } else { inode.mode | OWNER_ALL };
    creation(&Inode { mode, ..inode.clone() }, parent, name)
}

/// Returns the op that gives an inode its claimed attributes, if the context of the op has the claimed change time; `None` if the inode has
/// them already. Not all fields are examined, so the record after the op still has to be compared with the claimed one.
pub(crate) fn adjustment(present: &Inode, claimed: &Inode) -> Option<Op> {
    let differs = (present.mode, present.uid, present.gid, present.size_bytes)
        != (claimed.mode, claimed.uid, claimed.gid, claimed.size_bytes)
        || (present.atime, present.mtime, present.ctime) != (claimed.atime, claimed.mtime, claimed.ctime);
    let changes = AttrChanges {
        mode: (present.mode != claimed.mode).then_some(claimed.mode),
        uid: (present.uid != claimed.uid).then_some(claimed.uid),
        gid: (present.gid != claimed.gid).then_some(claimed.gid),
        size_bytes: (present.size_bytes != claimed.size_bytes).then_some(claimed.size_bytes),
        atime: (present.atime != claimed.atime).then_some(claimed.atime),
        // A change of the size would otherwise set the modification time to that of the op.
        mtime: (present.mtime != claimed.mtime || present.size_bytes != claimed.size_bytes)
            .then_some(claimed.mtime),
    };
    differs.then_some(Op::SetAttr { ino: claimed.ino, changes })
}

/// Returns the op that gives a file its claimed content; `None` for one without content.
pub(crate) fn content(claimed: &Inode) -> Option<Op> {
    let Content::Inline(extents) = &claimed.content else { return None };
    (claimed.kind == Kind::File && !extents.is_empty()).then(|| Op::Splice {
        ino: claimed.ino,
        ranges: vec![Range { start: 0, end: u64::MAX }],
        content: extents.clone(),
        size_bytes: claimed.size_bytes,
        mtime: Some(claimed.mtime),
    })
}

/// Returns the op that gives a file its claimed size and modification time.
pub(crate) fn resize(claimed: &Inode) -> Op {
    let (size_bytes, mtime) = (Some(claimed.size_bytes), Some(claimed.mtime));
    Op::SetAttr { ino: claimed.ino, changes: AttrChanges { size_bytes, mtime, ..AttrChanges::default() } }
}

/// Returns the op that sets an extended attribute.
pub(crate) fn set_xattr(ino: Ino, name: &[u8], value: &[u8]) -> Op {
    Op::SetXattr { ino, name: name.into(), value: value.to_vec().into(), how: XattrHow::Set }
}

/// Returns two ops that set a directory's times and nothing else: a name is created and removed again. They stand for all names that the job
/// has created and removed.
pub(crate) fn passing_name(terms: &Terms, parent: Ino, name: Name, ino: Ino) -> [Op; 2] {
    let (uid, gid) = (terms.caller.uid, terms.caller.gid);
    let create = Op::Create {
        parent,
        name: name.clone(),
        ino,
        kind: Kind::File,
        mode: OWNER_ALL,
        umask: 0,
        uid,
        gid,
        rdev: 0,
        target: None,
    };
    [create, Op::Unlink { parent, name, keep: false }]
}
