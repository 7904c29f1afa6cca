//! Access checks of new entries of a directory: open(2) with `O_CREAT`, mkdir(2), mknod(2), symlink(2).

use super::permission::{EXECUTE, GROUP_EXECUTE, WRITE};
use super::{AccessError, Caller, Check, Result};
use crate::{Ino, Inode, Kind, Reader, SETGID};

/// The right of a caller to create inodes in a directory. It holds as long as no attribute of this directory and of the directories above it
/// changes.
#[derive(Debug)]
pub struct CreationRight<'c> {
    caller: &'c Caller,
    parent: Inode,
}

impl<'c> CreationRight<'c> {
    /// Returns the right of a caller in a state.
    ///
    /// # Errors
    ///
    /// [`AccessError`] if the caller may not create entries in the directory.
    pub fn new(state: &dyn Reader, caller: &'c Caller, parent: Ino) -> Result<Self> {
        let check = Check { state, caller };
        Self::of(&check, caller, check.directory(parent)?)
    }

    /// Returns the right in a directory that the caller can search, with all directories above it.
    pub(super) fn of(check: &Check<'_>, caller: &'c Caller, parent: Inode) -> Result<Self> {
        check.require(&parent, WRITE | EXECUTE)?;
        Ok(Self { caller, parent })
    }

    /// Returns the mode of a new inode, without the set-group-id bit if Linux would remove it. The name must be free.
    ///
    /// # Errors
    ///
    /// [`AccessError::NotPermitted`] for a device or ids that only the superuser can use.
    pub fn mode_of(&self, kind: Kind, mode: u16, uid: u32, gid: u32) -> Result<u16> {
        if self.caller.is_superuser() {
            return Ok(mode);
        }
        let is_device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
        if is_device || uid != self.caller.uid || !self.caller.is_in(gid) {
            return Err(AccessError::NotPermitted);
        }
        Ok(if self.keeps_set_group_id(kind, mode) { mode } else { mode & !SETGID })
    }

    /// Returns whether a new inode keeps its set-group-id bit: in a set-group-id directory, only a member of its group can create a
    /// set-group-id program (`mode_strip_sgid`).
    fn keeps_set_group_id(&self, kind: Kind, mode: u16) -> bool {
        let is_program = mode & (SETGID | GROUP_EXECUTE) == SETGID | GROUP_EXECUTE;
        let inherits_group = self.parent.mode & SETGID != 0;
        kind == Kind::Directory
            || !is_program
            || !inherits_group
            || self.caller.may_set_group_id(self.parent.gid)
    }
}
