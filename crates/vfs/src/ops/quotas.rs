//! Quotas that operators set.

use meta::{Limits, Origin, Quota};

use crate::Result;
use crate::ops::admin::Admin;

impl Admin<'_> {
    /// Sets the quota of a directory, by its path below the volume's root. The root's quota is that of the whole volume. `None`
    /// removes the quota.
    pub async fn set_quota(&self, path: &[u8], limits: Option<Limits>) -> Result<()> {
        self.fs.mount.check_writable()?;
        self.fs.volume.check_has_quotas()?;
        let dir = self.fs.bucket.discovery.at_path(path).await?;
        Ok(self.fs.names.tables().set_quota(&self.fs.mount.context(Origin::Bookkeeping), dir.ino, limits)?)
    }

    /// Returns a directory's own quota; `None` if it has none.
    pub async fn quota(&self, path: &[u8]) -> Result<Option<Quota>> {
        let dir = self.fs.bucket.discovery.at_path(path).await?;
        Ok(self.fs.names.tables().quota(dir.ino)?)
    }
}
