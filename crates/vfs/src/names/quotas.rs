//! Quotas for programs: a write that exceeds a quota fails at once, although the namespace checks again when the file is
//! stored.

use meta::{FsError, Ino, Inode, Limits, Quota, Usage};

use crate::filesystem::name;
use crate::{Error, Filesystem, Result};

impl Filesystem {
    /// Sets the quota of a directory, by its path below the volume's root. The root's quota is that of the whole volume. `None`
    /// removes the quota.
    pub async fn set_quota(&self, path: &[u8], limits: Option<Limits>) -> Result<()> {
        self.check_writable()?;
        if self.layout.follows_paths() {
            let why = "a volume named by path has no quotas, because other clients store objects in it";
            return Err(Error::new(libc::EOPNOTSUPP, why));
        }
        let dir = self.at_path(path).await?;
        Ok(self.names.set_quota(&self.ctx(), dir.ino, limits)?)
    }

    /// Returns a directory's own quota.
    pub async fn quota(&self, path: &[u8]) -> Result<Option<Quota>> {
        let dir = self.at_path(path).await?;
        Ok(self.names.quota(dir.ino)?)
    }

    /// Returns the inode at a path below the volume's root.
    pub(crate) async fn at_path(&self, path: &[u8]) -> Result<Inode> {
        let mut inode = self.names.inode(Ino::ROOT)?;
        for component in path.split(|byte| *byte == b'/').filter(|component| !component.is_empty()) {
            inode = self.must(self.find(inode.ino, &name(component)?).await?)?;
        }
        Ok(inode)
    }

    /// Returns an error if a quota has no space for a file of `size_bytes`. Unpublished writes of other files do not count;
    /// storing them may still fail.
    pub(crate) fn check_quota(&self, ino: Ino, size_bytes: u64) -> Result<()> {
        if !self.names.has_quotas() {
            return Ok(());
        }
        let inode = self.names.inode(ino)?;
        let bytes = i64::try_from(size_bytes.saturating_sub(inode.size_bytes)).unwrap_or(i64::MAX);
        let lacks_room =
            |quota: Option<Quota>| quota.is_some_and(|quota| !quota.has_room(Usage { bytes, files: 0 }));
        if lacks_room(self.names.quota(Ino::ROOT)?) {
            return Err(FsError::VolumeFull.into());
        }
        match self.names.tree(&inode)? {
            Some(tree) if lacks_room(self.names.quota(tree)?) => Err(FsError::OverQuota.into()),
            _ => Ok(()),
        }
    }

    /// Returns the quota that applies to an inode: that of its tree, or else that of the volume.
    pub(crate) fn quota_at(&self, ino: Ino) -> Result<Option<Quota>> {
        if !self.names.has_quotas() {
            return Ok(None);
        }
        let ino = if self.is_derived_directory(ino) { Ino::ROOT } else { ino };
        match self.names.tree(&self.names.inode(ino)?)? {
            Some(tree) => Ok(self.names.quota(tree)?),
            None => Ok(self.names.quota(Ino::ROOT)?),
        }
    }
}
