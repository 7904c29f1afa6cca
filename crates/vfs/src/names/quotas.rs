//! Quotas for programs: a write that exceeds a quota fails at once, although the namespace checks again when the file is
//! stored.

use meta::{FsError, Ino, Quota, Usage};

use crate::Result;
use crate::names::Names;

impl Names {
    /// Fails with ENOSPC or EDQUOT if the quota of the volume or of the inode's tree has no space for a file of
    /// `size_bytes`. Unpublished writes of other files do not count, so storing the file may still fail.
    pub(crate) fn check_quota(&self, ino: Ino, size_bytes: u64) -> Result<()> {
        if !self.tables.has_quotas() {
            return Ok(());
        }
        let inode = self.tables.inode(ino)?;
        let bytes = i64::try_from(size_bytes.saturating_sub(inode.size_bytes)).unwrap_or(i64::MAX);
        let lacks_room =
            |quota: Option<Quota>| quota.is_some_and(|quota| !quota.has_room(Usage { bytes, files: 0 }));
        if lacks_room(self.tables.quota(Ino::ROOT)?) {
            return Err(FsError::VolumeFull.into());
        }
        match self.tables.tree(&inode)? {
            Some(tree) if lacks_room(self.tables.quota(tree)?) => Err(FsError::OverQuota.into()),
            _ => Ok(()),
        }
    }

    /// Returns the quota that applies to an inode: that of its tree, or else that of the volume; `None` if neither has
    /// one.
    pub(crate) fn quota_at(&self, ino: Ino) -> Result<Option<Quota>> {
        if !self.tables.has_quotas() {
            return Ok(None);
        }
        match self.tables.tree(&self.tables.inode(ino)?)? {
            Some(tree) => Ok(self.tables.quota(tree)?),
            None => Ok(self.tables.quota(Ino::ROOT)?),
        }
    }
}
