//! Recovery from a mount that died.

use store::{ListEntry, ListRequest, Pages};

use crate::bucket::discovery::PAGE_ENTRIES;
use crate::{Filesystem, Result};

/// Orphans per step.
const BATCH: usize = 256;

impl Filesystem {
    /// Removes files that lost their names but were open when the last mount of this metadata ended, and assembles files that
    /// were being written. Multipart uploads in progress stay. Returns how many files were removed.
    pub async fn recover(&self) -> Result<usize> {
        self.resume_moves()?;
        self.resume_exports()?;
        if self.sharing.is_some() {
            self.clean_leases();
        }
        if self.layout.follows_paths() {
            self.assemble_interrupted().await?;
        }
        let (mut after, mut found) = (None, 0);
        loop {
            let orphans = self.names.orphans(after, BATCH)?;
            let Some(last) = orphans.last() else { return Ok(found) };
            after = Some(*last);
            for ino in orphans {
                if self.files.get(ino).is_none() && !self.is_upload(ino)? {
                    self.purge(&self.names.inode(ino)?).await?;
                    found += 1;
                }
            }
        }
    }

    /// Assembles files that have objects under keys of their own, found by listing these keys. Files that belong there are not
    /// changed.
    async fn assemble_interrupted(&self) -> Result<()> {
        let request = ListRequest {
            prefix: self.layout.content_prefix(),
            limit: PAGE_ENTRIES,
            ..ListRequest::default()
        };
        let mut pages = Pages::of(self.store.as_ref(), request);
        while let Some(entries) = pages.next().await? {
            for entry in entries {
                let ListEntry::Object { object, .. } = entry else { continue };
                let Some(ino) = self.layout.content_owner(&object.key) else { continue };
                if self.names.inode(ino).is_ok_and(|inode| !inode.is_orphan()) {
                    let file = self.open_file(ino)?;
                    let shown = self.show_at_path(&file, &mut *file.write_state.lock().await).await;
                    shown.and(file.close().await)?;
                }
            }
        }
        Ok(())
    }
}
