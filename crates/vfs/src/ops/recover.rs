//! Recovery from a mount that died.

use crate::objects::uploads::is_upload;
use crate::{Filesystem, Result};

/// Inodes without a name to read from the tables at once.
const BATCH: usize = 256;

impl Filesystem {
    /// Removes files that lost their names but were open when the last mount of this metadata ended, and assembles
    /// files that were being written. Resumes renames and exports, and cleans leases. Multipart uploads in progress
    /// stay. Files of mounts on other machines stay. Returns how many files were removed.
    pub async fn recover(&self) -> Result<usize> {
        self.bucket.moves.resume_moves()?;
        self.bucket.exports.resume_exports()?;
        if self.bucket.known.sharing().is_some() {
            self.content.clean_leases();
        }
        self.volume.complete_interrupted().await?;
        let (mut after, mut found) = (None, 0);
        loop {
            let orphans = self.names.tables().orphans(after, BATCH)?;
            let Some(last) = orphans.last() else { return Ok(found) };
            after = Some(*last);
            // They were listed before this is asked, so those of an open session are none of them.
            if !self.names.tables().engine().is_alone().map_err(meta::FsError::from)? {
                return Ok(found);
            }
            for ino in orphans {
                if self.content.files().get(ino).is_none() && !is_upload(&self.names, ino)? {
                    self.io.opener.purge(&self.names.tables().inode(ino)?).await?;
                    found += 1;
                }
            }
        }
    }
}
