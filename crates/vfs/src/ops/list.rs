//! Operations that list directories.

use meta::{Ino, Kind};

use crate::names::directory_handle::DirectoryHandle;
use crate::names::handles::Handle;
use crate::ops::directory::DirectoryEntry;
use crate::{Error, Filesystem, Result};

impl Filesystem {
    /// Opens a directory for listing.
    pub async fn opendir(&self, ino: Ino) -> Result<Handle> {
        self.names.pending_merges().wait(self.names.tables(), ino).await;
        let kept = match self.views.derived.derived_at(ino) {
            Some(views) => Box::pin(self.views.open_derived(views, ino)).await?,
            None if self.names.tables().inode(ino)?.kind == Kind::Directory => None,
            None => return Err(Error::NOT_DIRECTORY),
        };
        self.bucket.lister.state().note_request(self.mount.moment());
        Ok(self.names.handles().add_directory(DirectoryHandle::new(ino, kept)))
    }

    /// Returns entries after `cookie` (0: from the beginning), `.` and `..` first; an empty result is the end. Entries
    /// created or removed meanwhile do not affect the others. With `plus` entries have attributes, which count as
    /// lookups.
    pub async fn readdir(
        &self,
        handle: Handle,
        cookie: u64,
        limit: usize,
        plus: bool,
    ) -> Result<Vec<DirectoryEntry>> {
        self.directories.read(handle, cookie, limit, plus).await
    }

    /// Determines the kind of entries whose kind is unknown, many at a time, for front ends that cannot express an unknown
    /// kind. Drops entries that are gone.
    pub async fn with_kinds(&self, listed: Vec<DirectoryEntry>) -> Result<Vec<DirectoryEntry>> {
        self.directories.with_kinds(listed).await
    }

    /// Closes a directory.
    pub fn releasedir(&self, handle: Handle) {
        if let Ok(open) = self.names.handles().directory(handle)
            && open.kept.is_some()
            && let Some(views) = self.views.derived.derived_at(open.ino)
        {
            views.listings.close(open.ino);
        }
        self.names.handles().remove_directory(handle);
    }
}
