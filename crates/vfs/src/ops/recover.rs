//! What a mount that died left behind.

use crate::{Filesystem, Result};

/// Orphans looked at in one step.
const BATCH: usize = 256;

impl Filesystem {
    /// Removes files that had lost their names but were still open when the last mount of this metadata ended. How
    /// many there were.
    pub async fn recover(&self) -> Result<usize> {
        let (mut after, mut found) = (None, 0);
        loop {
            let orphans = self.names.orphans(after, BATCH)?;
            let Some(last) = orphans.last() else { return Ok(found) };
            after = Some(*last);
            for ino in orphans {
                if self.files.get(ino).is_none() {
                    self.purge(&self.names.inode(ino)?).await?;
                    found += 1;
                }
            }
        }
    }
}
