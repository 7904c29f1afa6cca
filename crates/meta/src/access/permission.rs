//! The permission bits and ACL of one inode.

use crate::acl::Acl;
use crate::{Inode, SETGID};

pub(super) const READ: u16 = 4;
pub(super) const WRITE: u16 = 2;
pub(super) const EXECUTE: u16 = 1;

pub(super) const SETUID: u16 = 0o4000;
pub(super) const GROUP_EXECUTE: u16 = 0o010;

const GROUP_CLASS: u16 = 0o070;
const EXECUTE_ANY: u16 = 0o111;

/// The identity with which a process accesses files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// User id. 0 is the superuser, who has all capabilities.
    pub uid: u32,
    /// Id of the primary group.
    pub gid: u32,
    /// Ids of the supplementary groups.
    pub groups: Box<[u32]>,
}

impl Caller {
    /// Returns whether the caller is the superuser.
    pub fn is_superuser(&self) -> bool {
        self.uid == 0
    }

    /// Returns whether the caller is in a group.
    pub fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Returns whether the caller has the rights of an inode's owner.
    pub(super) fn owns(&self, inode: &Inode) -> bool {
        self.uid == inode.uid || self.is_superuser()
    }

    /// Returns whether a file of a group may be a set-group-id file of the caller's.
    pub(super) fn may_set_group_id(&self, gid: u32) -> bool {
        self.is_in(gid) || self.is_superuser()
    }

    /// Returns whether the caller has all wanted permissions, if need be by the superuser's capabilities.
    pub(super) fn has_permission(&self, inode: &Inode, acl: Option<&Acl>, wanted: u16) -> bool {
        self.is_granted(inode, acl, wanted) || self.is_superuser() && may_override(inode, wanted)
    }

    /// Returns whether mode and ACL grant the wanted permissions (`acl_permission_check`).
    fn is_granted(&self, inode: &Inode, acl: Option<&Acl>, wanted: u16) -> bool {
        let granted = |class: u16| inode.mode >> class & wanted == wanted;
        if self.uid == inode.uid {
            return granted(6);
        }
        if let Some(acl) = acl.filter(|_| inode.mode & GROUP_CLASS != 0) {
            return acl.grants(self, inode, wanted);
        }
        if self.is_in(inode.gid) { granted(3) } else { granted(0) }
    }
}

/// Returns whether the superuser has permissions that the mode does not grant: all but the execution of a file that nobody may execute.
fn may_override(inode: &Inode, wanted: u16) -> bool {
    inode.is_dir() || wanted & EXECUTE == 0 || inode.mode & EXECUTE_ANY != 0
}

/// Returns the mode without the set-id bits that a change of content or owner removes. The set-group-id bit without group execution is kept, as
/// in the kernel's description of `FUSE_HANDLE_KILLPRIV_V2`.
pub(super) fn without_set_id(mode: u16) -> u16 {
    let removed = if mode & GROUP_EXECUTE != 0 { SETUID | SETGID } else { SETUID };
    mode & !removed
}
