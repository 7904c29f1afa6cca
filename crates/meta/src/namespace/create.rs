//! Ops that create inodes or add names: create, create an orphan, link.

use super::attr::LINKS_MAX;
use super::records::{self, parent_links, put_entry, require_dir, require_free_name, require_unused_ino};
use super::{quota, xattr};
use crate::codec::decode_number;
use crate::{
    Applied, Content, Dentry, FsError, Ino, Inode, Kind, Merge, Name, OpContext, SETGID, Txn, acl, schema,
};

/// Returns a new inode without name, owner and permissions.
pub(super) fn blank(context: &OpContext, ino: Ino, kind: Kind) -> Inode {
    Inode {
        ino,
        kind,
        mode: 0,
        uid: 0,
        gid: 0,
        nlink: if kind == Kind::Directory { 2 } else { 1 },
        rdev: 0,
        size_bytes: 0,
        atime: context.now,
        mtime: context.now,
        ctime: context.now,
        btime: context.now,
        home: None,
        content: Content::EMPTY,
        target: None,
        exact: true,
        observed_at: context.at,
    }
}

pub(super) fn create(
    txn: &mut impl Txn,
    context: &OpContext,
    (parent, name): (Ino, &Name),
    mut inode: Inode,
    umask: u16,
) -> Result<Applied, FsError> {
    require_dir(txn, parent)?;
    require_free_name(txn, parent, name)?;
    require_unused_ino(txn, inode.ino)?;
    if (inode.kind == Kind::Symlink) != inode.target.is_some() {
        return Err(FsError::Invalid("a symbolic link must have a target, and no other file may have one"));
    }
    inode.mode &= 0o7777;
    inode.size_bytes = inode.target.as_ref().map_or(0, |target| target.len() as u64);
    inherit_acl(txn, parent, &mut inode, umask)?;
    inherit_group(txn, parent, &mut inode)?;
    add(txn, parent, name, &mut inode)?;
    txn.merge(schema::inode(parent), Merge::entry(context.now, parent_links(inode.kind)))?;
    Ok(Applied { inode: Some(inode), ..Applied::default() })
}

pub(super) fn create_orphan(
    txn: &mut impl Txn,
    parent: Ino,
    mut inode: Inode,
    umask: u16,
) -> Result<Applied, FsError> {
    require_dir(txn, parent)?;
    require_unused_ino(txn, inode.ino)?;
    inode.mode &= 0o7777;
    inode.nlink = 0;
    inherit_acl(txn, parent, &mut inode, umask)?;
    inherit_group(txn, parent, &mut inode)?;
    records::save(txn, None, &inode)?;
    txn.put(schema::orphan(inode.ino), Vec::new());
    Ok(Applied { inode: Some(inode), ..Applied::default() })
}

/// Sets the permissions of a new inode, by the directory's default ACL or else by the umask.
fn inherit_acl(txn: &mut impl Txn, parent: Ino, inode: &mut Inode, umask: u16) -> Result<(), FsError> {
    if inode.kind == Kind::Symlink {
        return Ok(());
    }
    let Some(default) = xattr::load_acl(txn, parent, acl::DEFAULT)? else {
        inode.mode &= !umask;
        return Ok(());
    };
    let access = default.inherited(inode.mode);
    inode.mode = access.on_mode(inode.mode);
    if !access.is_minimal() {
        txn.put(schema::xattr(inode.ino, acl::ACCESS), access.to_value().to_vec());
    }
    if inode.is_dir() {
        txn.put(schema::xattr(inode.ino, acl::DEFAULT), default.to_value().to_vec());
    }
    Ok(())
}

/// Gives a new inode the group of a directory with the set-group-id bit, and that bit to a new directory.
fn inherit_group(txn: &mut impl Txn, parent: Ino, inode: &mut Inode) -> Result<(), FsError> {
    if let Some(group) = txn.get(&schema::set_group(parent))? {
        inode.gid = decode_number(&group)? as u32;
        if inode.is_dir() {
            inode.mode |= SETGID;
        }
    }
    Ok(())
}

/// Writes a new inode and its first name, which becomes its primary name.
pub(super) fn add(txn: &mut impl Txn, parent: Ino, name: &Name, inode: &mut Inode) -> Result<(), FsError> {
    inode.home = Some((parent, name.clone()));
    put_entry(txn, parent, name, Dentry { ino: inode.ino, kind: inode.kind });
    records::save(txn, None, inode)
}

pub(super) fn link(
    txn: &mut impl Txn,
    context: &OpContext,
    ino: Ino,
    parent: Ino,
    name: &Name,
) -> Result<Applied, FsError> {
    let before = records::load(txn, ino)?;
    if before.is_dir() {
        return Err(FsError::IsDirectory);
    }
    require_dir(txn, parent)?;
    require_free_name(txn, parent, name)?;
    if let Some((primary_parent, _)) = &before.home {
        quota::require_same_tree(txn, *primary_parent, parent)?;
    }
    if before.nlink >= LINKS_MAX {
        return Err(FsError::TooManyLinks);
    }
    let mut inode = Inode { nlink: before.nlink + 1, ctime: context.now, ..before.clone() };
    put_entry(txn, parent, name, Dentry { ino, kind: inode.kind });
    if before.is_orphan() {
        inode.home = Some((parent, name.clone()));
        txn.delete(schema::orphan(ino));
    } else {
        txn.put(schema::hard_link(ino, parent, name), Vec::new());
    }
    records::save(txn, Some(&before), &inode)?;
    txn.merge(schema::inode(parent), Merge::entry(context.now, 0))?;
    Ok(Applied { inode: Some(inode), ..Applied::default() })
}
