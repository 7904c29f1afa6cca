//! What a mount that died left behind.

use store::{ListEntry, ListRequest, Pages};

use crate::bucket::discovery::PAGE_ENTRIES;
use crate::{Filesystem, Result};

/// Orphans looked at in one step.
const BATCH: usize = 256;

impl Filesystem {
    /// Removes files that had lost their names but were still open when the last mount of this metadata ended, and
    /// assembles those that were being written. Uploads under way stay. How many were removed.
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

    /// What lies beside the paths says which files, those among them that stay there included.
    async fn assemble_interrupted(&self) -> Result<()> {
        let request =
            ListRequest { prefix: self.layout.content(), limit: PAGE_ENTRIES, ..ListRequest::default() };
        let mut pages = Pages::of(self.store.as_ref(), request);
        while let Some(entries) = pages.next().await? {
            for entry in entries {
                let ListEntry::Object { object, .. } = entry else { continue };
                let Some(ino) = self.layout.owner(&object.key) else { continue };
                if self.names.inode(ino).is_ok_and(|inode| !inode.is_orphan()) {
                    let file = self.open_file(ino)?;
                    let shown = self.show(&file, &mut *file.work.lock().await).await;
                    shown.and(file.close().await)?;
                }
            }
        }
        Ok(())
    }
}
