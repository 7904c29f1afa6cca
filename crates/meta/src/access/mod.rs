//! Access checks: which ops a caller may carry out in a state of the namespace, and how.
//!
//! Follows the rules of Linux for a file system with POSIX ACLs: path_resolution(7), acl(5), and the functions of the kernel's `fs/namei.c`,
//! `fs/attr.c` and `fs/xattr.c` that are named below. Also checks what the kernel checks before permissions, so that the first error is the
//! same. What [`apply`](crate::namespace::apply) checks afterwards is not repeated.
//!
//! Pure: reads a state and changes nothing. Does not know open files, whose operations the kernel allows by how they were opened.

mod creation;
mod permission;
mod rename;
mod setattr;

pub use creation::CreationRight;
pub use permission::Caller;

use crate::acl::{self, Acl};
use crate::{AttrChanges, FsError, Ino, Inode, Kind, Name, Op, Reader, SETGID, namespace, schema};
use permission::{EXECUTE, GROUP_EXECUTE, READ, SETUID, WRITE};
use store::Timestamp;

const STICKY: u16 = 0o1000;

/// Errors of an access check.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// The permissions of a directory or an inode do not allow the op (EACCES).
    #[error("permission denied")]
    Denied,
    /// Only the owner of an inode or the superuser may do it (EPERM).
    #[error("operation not permitted")]
    NotPermitted,
    /// An error that comes before the permissions are checked, or a failure of the engine.
    #[error(transparent)]
    Fs(#[from] FsError),
}

type Result<T, E = AccessError> = std::result::Result<T, E>;

/// Returns the op as the caller may carry it out: without set-id bits that Linux would remove.
///
/// `now` is the time that utimes(2) without a time would set. Ops that no user asks for, such as those that record what the store has, are
/// permitted to nobody. An access ACL that somebody outside the group sets removes the set-group-id bit in Linux; that is a change of the mode,
/// which the front end adds.
///
/// # Errors
///
/// [`AccessError`] if the caller may not carry out the op.
pub fn authorize(state: &dyn Reader, caller: &Caller, now: Timestamp, op: &Op) -> Result<Op> {
    let check = Check { state, caller };
    let mut op = op.clone();
    match &mut op {
        Op::Create { parent, name, kind, mode, uid, gid, .. } => {
            let parent = check.directory(*parent)?;
            check.require_free_name(&parent, name)?;
            *mode = CreationRight::of(&check, caller, parent)?.mode_of(*kind, *mode, *uid, *gid)?;
        }
        Op::CreateOrphan { parent, mode, uid, gid, .. } => {
            let right = CreationRight::of(&check, caller, check.directory(*parent)?)?;
            *mode = right.mode_of(Kind::File, *mode, *uid, *gid)?;
        }
        Op::Link { ino, parent, name } => {
            let inode = check.reachable(*ino)?;
            let parent = check.directory(*parent)?;
            check.require_free_name(&parent, name)?;
            check.require_linkable(&inode)?;
            check.require(&parent, WRITE | EXECUTE)?;
            if inode.is_dir() {
                return Err(AccessError::NotPermitted);
            }
        }
        Op::Unlink { parent, name, .. } | Op::Rmdir { parent, name } => {
            let parent = check.directory(*parent)?;
            let victim = check.entry(&parent, name)?.ok_or(FsError::NotFound)?;
            check.require_removable(&parent, &victim)?;
        }
        Op::Rename { from, to, how, .. } => rename::check(&check, from, to, *how)?,
        Op::SetAttr { ino, changes } => {
            let inode = check.reachable(*ino)?;
            setattr::check(&check, &inode, now, changes)?;
        }
        Op::SetXattr { ino, name, .. } => {
            let inode = check.reachable(*ino)?;
            check.require_xattr_rights(&inode, name, true)?;
        }
        Op::RemoveXattr { ino, name } => {
            let inode = check.reachable(*ino)?;
            check.require_xattr_rights(&inode, name, false)?;
        }
        Op::Publish { ino, .. } | Op::Splice { ino, .. } => {
            let inode = check.reachable(*ino)?;
            check.require(&inode, WRITE)?;
        }
        Op::Accessed { ino, .. } => {
            let inode = check.reachable(*ino)?;
            check.require(&inode, READ)?;
        }
        Op::Root { .. }
        | Op::Lease { .. }
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
        | Op::SetRefusedOp { .. } => return Err(AccessError::NotPermitted),
    }
    Ok(op)
}

/// Like [`authorize`] for [`Op::SetAttr`], for an inode that the caller can reach.
///
/// # Errors
///
/// [`AccessError`] if the caller may not change the attributes.
pub fn authorize_attributes(
    state: &dyn Reader,
    caller: &Caller,
    now: Timestamp,
    inode: &Inode,
    changes: &AttrChanges,
) -> Result<AttrChanges> {
    let mut changes = *changes;
    setattr::check(&Check { state, caller }, inode, now, &mut changes)?;
    Ok(changes)
}

/// A state and the caller whose rights are checked in it.
struct Check<'a> {
    state: &'a dyn Reader,
    caller: &'a Caller,
}

impl Check<'_> {
    /// Returns an inode. Fails with `NotFound` if it does not exist.
    fn inode(&self, ino: Ino) -> Result<Inode> {
        Ok(namespace::read_inode(self.state, ino)?.ok_or(FsError::NotFound)?)
    }

    /// Returns a directory that the caller can search, with all directories above it.
    fn directory(&self, ino: Ino) -> Result<Inode> {
        self.require_search(ino)?;
        self.inode(ino)
    }

    /// Returns an inode that the caller can reach by one of its names. An orphan is reached by its open file.
    fn reachable(&self, ino: Ino) -> Result<Inode> {
        let inode = self.inode(ino)?;
        let Some((parent, _)) = &inode.home else { return Ok(inode) };
        let Err(error) = self.require_search(*parent) else { return Ok(inode) };
        let range = schema::hard_links(ino);
        let (from, to) = range.bounds();
        let links = self.state.scan(from, to, usize::MAX).map_err(FsError::from)?;
        for (key, _) in links {
            let (parent, _) = schema::link_of(&key).map_err(FsError::from)?;
            if self.require_search(parent).is_ok() {
                return Ok(inode);
            }
        }
        Err(error)
    }

    /// Fails unless the caller may search a directory and all directories above it. The error is that of the uppermost
    /// one that fails.
    fn require_search(&self, dir: Ino) -> Result<()> {
        let line = namespace::read_line(self.state, dir)?;
        let is_below_root = line.last().is_none_or(|uppermost| uppermost.home.is_some());
        let root = if is_below_root { Some(self.inode(Ino::ROOT)?) } else { None };
        for inode in root.iter().chain(line.iter().rev()) {
            if !inode.is_dir() {
                return Err(FsError::NotDirectory.into());
            }
            self.require(inode, EXECUTE)?;
        }
        Ok(())
    }

    /// Returns the inode of a name; `None` if there is no such name.
    fn entry(&self, parent: &Inode, name: &Name) -> Result<Option<Inode>> {
        let found = namespace::read_entry(self.state, parent.ino, name)?;
        found.map(|dentry| self.inode(dentry.ino)).transpose()
    }

    /// Fails with `Exists` if a name is taken.
    fn require_free_name(&self, parent: &Inode, name: &Name) -> Result<()> {
        match self.entry(parent, name)? {
            Some(_) => Err(FsError::Exists.into()),
            None => Ok(()),
        }
    }

    fn acl(&self, inode: &Inode) -> Result<Option<Acl>> {
        let found = self.state.get(&schema::xattr(inode.ino, acl::ACCESS)).map_err(FsError::from)?;
        Ok(found.and_then(|found| Acl::parse(&found.value)))
    }

    /// Fails unless the caller has the wanted permissions (`generic_permission`).
    fn require(&self, inode: &Inode, wanted: u16) -> Result<()> {
        let acl = self.acl(inode)?;
        if self.caller.has_permission(inode, acl.as_ref(), wanted) {
            Ok(())
        } else {
            Err(AccessError::Denied)
        }
    }

    /// Fails unless the caller owns the inode or is the superuser (`inode_owner_or_capable`).
    fn require_owner(&self, inode: &Inode) -> Result<()> {
        if self.caller.owns(inode) { Ok(()) } else { Err(AccessError::NotPermitted) }
    }

    /// Fails unless the caller may remove an entry of a directory (`may_delete`), without the checks of its type.
    fn require_removable(&self, parent: &Inode, victim: &Inode) -> Result<()> {
        self.require(parent, WRITE | EXECUTE)?;
        let is_sticky = parent.mode & STICKY != 0;
        if is_sticky && self.caller.uid != parent.uid && !self.caller.owns(victim) {
            return Err(AccessError::NotPermitted);
        }
        Ok(())
    }

    /// Fails unless the caller may give an inode a further name, with `fs.protected_hardlinks` set (`may_linkat`).
    fn require_linkable(&self, inode: &Inode) -> Result<()> {
        let is_set_id =
            inode.mode & SETUID != 0 || inode.mode & (SETGID | GROUP_EXECUTE) == SETGID | GROUP_EXECUTE;
        let is_safe = inode.kind == Kind::File && !is_set_id && self.require(inode, READ | WRITE).is_ok();
        if is_safe || self.caller.owns(inode) { Ok(()) } else { Err(AccessError::NotPermitted) }
    }

    /// Fails unless the caller may set or remove an extended attribute (`xattr_permission`, `set_posix_acl`).
    fn require_xattr_rights(&self, inode: &Inode, name: &[u8], sets: bool) -> Result<()> {
        if Acl::is_name(name) {
            return match name == acl::DEFAULT && !inode.is_dir() && sets {
                true => Err(AccessError::Denied),
                false => self.require_owner(inode),
            };
        }
        if !name.starts_with(b"user.") {
            return if self.caller.is_superuser() { Ok(()) } else { Err(AccessError::NotPermitted) };
        }
        let is_sticky_directory = inode.is_dir() && inode.mode & STICKY != 0;
        if !matches!(inode.kind, Kind::File | Kind::Directory)
            || is_sticky_directory && !self.caller.owns(inode)
        {
            return Err(AccessError::NotPermitted);
        }
        self.require(inode, WRITE)
    }
}

#[cfg(test)]
mod tests;
