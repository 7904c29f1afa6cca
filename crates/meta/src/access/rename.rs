//! Access checks of rename(2).

use super::permission::{EXECUTE, WRITE};
use super::{Check, Result};
use crate::{FsError, Ino, Inode, Name, RenameHow, namespace};

/// Checks in the order of `do_renameat2` and `vfs_rename`.
pub(super) fn check(check: &Check<'_>, from: &(Ino, Name), to: &(Ino, Name), how: RenameHow) -> Result<()> {
    let (old_parent, new_parent) = (check.directory(from.0)?, check.directory(to.0)?);
    let source = check.entry(&old_parent, &from.1)?.ok_or(FsError::NotFound)?;
    let target = check.entry(&new_parent, &to.1)?;
    match (&target, how) {
        (Some(_), RenameHow::NoReplace) => return Err(FsError::Exists.into()),
        (None, RenameHow::Exchange) => return Err(FsError::NotFound.into()),
        _ => {}
    }
    if is_at_or_above(check, &source, &new_parent)? {
        return Err(FsError::CrossesItself.into());
    }
    if let Some(target) = &target
        && is_at_or_above(check, target, &old_parent)?
    {
        let error = if how == RenameHow::Exchange { FsError::CrossesItself } else { FsError::NotEmpty };
        return Err(error.into());
    }
    if target.as_ref().is_some_and(|target| target.ino == source.ino) {
        return Ok(());
    }
    check.require_removable(&old_parent, &source)?;
    match &target {
        None => check.require(&new_parent, WRITE | EXECUTE)?,
        Some(target) => {
            check.require_removable(&new_parent, target)?;
            require_same_type(&source, target, how)?;
        }
    }
    // A directory that changes its parent is written to: its entry `..` changes.
    if old_parent.ino != new_parent.ino {
        if source.is_dir() {
            check.require(&source, WRITE)?;
        }
        if let Some(target) = target.filter(|target| how == RenameHow::Exchange && target.is_dir()) {
            check.require(&target, WRITE)?;
        }
    }
    Ok(())
}

/// Fails if a directory would replace another inode, or the reverse.
fn require_same_type(source: &Inode, target: &Inode, how: RenameHow) -> Result<()> {
    match (source.is_dir(), target.is_dir()) {
        _ if how == RenameHow::Exchange => Ok(()),
        (true, false) => Err(FsError::NotDirectory.into()),
        (false, true) => Err(FsError::IsDirectory.into()),
        _ => Ok(()),
    }
}

/// Returns whether a directory is `below` or one of the directories above it.
fn is_at_or_above(check: &Check<'_>, dir: &Inode, below: &Inode) -> Result<bool> {
    let line = namespace::read_line(check.state, below.ino)?;
    Ok(dir.ino == Ino::ROOT || line.iter().any(|inode| inode.ino == dir.ino))
}
