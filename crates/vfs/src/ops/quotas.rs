//! Quotas that operators set.

use meta::{Limits, Quota};

use crate::{Filesystem, Result};

impl Filesystem {
    /// Sets the quota of a directory, by its path below the volume's root. The root's quota is that of the whole volume. `None`
    /// removes the quota.
    pub async fn set_quota(&self, path: &[u8], limits: Option<Limits>) -> Result<()> {
        self.mount.check_writable()?;
        self.volume.check_has_quotas()?;
        let dir = self.bucket.discovery.at_path(path).await?;
        Ok(self.names.tables().set_quota(&self.mount.ctx(), dir.ino, limits)?)
    }

    /// Returns a directory's own quota.
    pub async fn quota(&self, path: &[u8]) -> Result<Option<Quota>> {
        let dir = self.bucket.discovery.at_path(path).await?;
        Ok(self.names.tables().quota(dir.ino)?)
    }
}
