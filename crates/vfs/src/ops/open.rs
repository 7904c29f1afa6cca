//! Opening and closing of files.

use meta::{Ino, Kind};

use crate::content::publishing::check_not_lost;
use crate::content::write::When;
use crate::layout::etag;
use crate::names::handles::{Handle, Opened};
use crate::{Attr, Error, Filesystem, Result};

impl Filesystem {
    /// Opens a file after checking whether its object is unchanged.
    pub async fn open(&self, ino: Ino, flags: i32) -> Result<Opened> {
        if flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0 {
            self.mount.check_writable()?;
            self.bucket.conflicts.check_not_in_conflict(ino)?;
        }
        let inode = self.names.tables().inode(ino)?;
        match inode.kind {
            Kind::File => {}
            Kind::Directory => return Err(Error::IS_DIRECTORY),
            _ => return Err(Error::new(libc::ELOOP, "not a regular file")),
        }
        let mut was_replaced = false;
        if let Some((parent, name)) = &inode.home {
            let asked_at = self.mount.moment();
            let found = self.bucket.discovery.find(*parent, name).await?;
            let mut found = self.bucket.discovery.must(found.filter(|found| found.ino == ino))?;
            if !self.volume.is_recent(*parent, &found, asked_at) {
                found = self.bucket.discovery.revalidate(&found).await?;
            }
            was_replaced = etag(&found) != etag(&inode);
        }
        let file = self.io.opener.open_file(ino)?;
        // An inode without a name and without other users is being removed together with its bytes.
        if self.names.tables().inode(ino)?.nlink == 0 && self.content.files().users(ino) == 1 {
            file.close().await?;
            return Err(Error::NOT_FOUND);
        }
        if flags & libc::O_TRUNC != 0
            && let Err(error) = self.io.editor.truncate(&file, 0).await
        {
            file.close().await?;
            return Err(error);
        }
        let opened = self.io.opener.new_handle(file.into_open_file(), flags);
        Ok(Opened { was_replaced: was_replaced || opened.was_replaced, ..opened })
    }

    /// Publishes all unpublished writes of the file: `close` returns once they are stored and named. Does nothing for
    /// a handle that is open for reading only. Fails if writes were lost to a conflict.
    pub async fn flush(&self, handle: Handle) -> Result<()> {
        let handle = self.names.handles().file(handle)?;
        if !handle.is_writable {
            return Ok(());
        }
        self.io.publisher.commit(&handle.file, When::Closed).await?;
        check_not_lost(&handle)?;
        self.bucket.conflicts.check_not_in_conflict(handle.file.ino)
    }

    /// Publishes all unpublished writes of the file and its pending attributes, and makes objects and names durable.
    /// Fails through a writable handle whose writes were lost to a conflict.
    pub async fn fsync(&self, handle: Handle) -> Result<()> {
        let handle = self.names.handles().file(handle)?;
        self.io.publisher.commit(&handle.file, When::Open).await?;
        if handle.is_writable {
            check_not_lost(&handle)?;
            self.bucket.conflicts.check_not_in_conflict(handle.file.ino)?;
        }
        self.bucket.exporter.export_now(handle.file.ino).await?;
        self.volume.sync_objects().await?;
        self.names.sync_names().await
    }

    /// Closes a handle whose last reference is gone.
    pub async fn release(&self, handle: Handle) -> Result<()> {
        self.io.editor.release(handle).await
    }

    /// Returns the attributes for a read that reached the end of the file as the front end knows it. Fails with ESTALE if that
    /// end belongs to other bytes than the handle has read.
    pub async fn getattr_through(&self, handle: Handle, ino: Ino) -> Result<Attr> {
        let attr = self.getattr(ino).await?;
        match self.names.handles().file(handle) {
            Ok(handle) if handle.is_stale() || handle.has_other_length(attr.size_bytes) => {
                Err(Error::Stale("it was overwritten in the bucket while it was read; open it again".into()))
            }
            _ => Ok(attr),
        }
    }
}
