//! Access checks of changes of attributes: chmod(2), chown(2), truncate(2), utimensat(2).

use super::permission::{WRITE, without_set_id};
use super::{AccessError, Check, Result};
use crate::{AttrChanges, FsError, Inode, Kind, SETGID};
use store::Timestamp;

/// Checks in the order of `vfs_truncate` and `setattr_prepare`, and removes set-id bits from the new mode.
pub(super) fn check(
    check: &Check<'_>,
    inode: &Inode,
    now: Timestamp,
    changes: &mut AttrChanges,
) -> Result<()> {
    if changes.size_bytes.is_some() {
        require_truncatable(check, inode)?;
    }
    if changes.uid.is_some_and(|uid| !may_give_to(check, inode, uid))
        || changes.gid.is_some_and(|gid| !may_give_to_group(check, inode, gid))
    {
        return Err(AccessError::NotPermitted);
    }
    if changes.mode.is_some() {
        check.require_owner(inode)?;
    }
    require_time_rights(check, inode, now, changes)?;
    changes.mode = mode_after(check, inode, changes);
    Ok(())
}

/// Fails unless the caller may set the size of an inode.
fn require_truncatable(check: &Check<'_>, inode: &Inode) -> Result<()> {
    match inode.kind {
        Kind::Directory => Err(FsError::IsDirectory.into()),
        Kind::File => check.require(inode, WRITE),
        _ => Err(FsError::Invalid("only files have a size").into()),
    }
}

/// Returns whether the caller may set the owner to `uid`: only the superuser may give a file away (`chown_ok`).
fn may_give_to(check: &Check<'_>, inode: &Inode, uid: u32) -> bool {
    check.caller.is_superuser() || check.caller.uid == inode.uid && uid == inode.uid
}

/// Returns whether the caller may set the group to `gid`: the owner may give a file to one of the groups that they are
/// in (`chgrp_ok`).
fn may_give_to_group(check: &Check<'_>, inode: &Inode, gid: u32) -> bool {
    let is_own_group = gid == inode.gid || check.caller.is_in(gid);
    check.caller.is_superuser() || check.caller.uid == inode.uid && is_own_group
}

/// Fails unless the caller may set the times: the owner may set any time, a caller with write permission only the
/// present time. A change of the size sets times by itself.
fn require_time_rights(
    check: &Check<'_>,
    inode: &Inode,
    now: Timestamp,
    changes: &AttrChanges,
) -> Result<()> {
    let times = [changes.atime, changes.mtime];
    if times == [None, None] || check.caller.owns(inode) {
        return Ok(());
    }
    match times == [Some(now), Some(now)] {
        true => check.require(inode, WRITE),
        false => Err(AccessError::NotPermitted),
    }
}

/// Returns the mode to set: the requested one without bits that the caller may not set or, after a change of owner or
/// content, the present one without set-id bits. `None`: the mode stays.
fn mode_after(check: &Check<'_>, inode: &Inode, changes: &AttrChanges) -> Option<u16> {
    let gid = changes.gid.unwrap_or(inode.gid);
    let may_set_group_id = check.caller.may_set_group_id(gid);
    if let Some(mode) = changes.mode {
        return Some(if may_set_group_id { mode } else { mode & !SETGID });
    }
    let changes_owner = changes.uid.is_some() || changes.gid.is_some();
    let changes_content = changes.size_bytes.is_some() && !check.caller.is_superuser();
    if inode.is_dir() || !changes_owner && !changes_content {
        return None;
    }
    let mode = without_set_id(inode.mode);
    (mode != inode.mode).then_some(mode)
}
