//! Opening and closing of files.

use meta::{Ino, Inode, Kind};

use crate::content::publishing::check_not_lost;
use crate::content::write::When;
use crate::followers::other_sessions::is_ahead_of_front_ends;
use crate::layout::etag;
use crate::names::handles::{Handle, Opened};
use crate::{Attr, Error, Filesystem, Result};

impl Filesystem {
    /// Opens a file. Asks the bucket for its object first, unless the known state is recent enough.
    pub async fn open(&self, ino: Ino, flags: i32) -> Result<Opened> {
        self.names.pending_merges().wait(self.names.tables(), ino).await;
        if flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0 {
            self.mount.check_writable()?;
            self.bucket.conflicts.check_not_in_conflict(ino)?;
        }
        let (inode, mut was_replaced) = newest_for_open(self, ino).await?;
        match inode.kind {
            Kind::File => {}
            Kind::Directory => return Err(Error::IS_DIRECTORY),
            _ => return Err(Error::new(libc::ELOOP, "not a regular file")),
        }
        if let Some((parent, name)) = &inode.home
            && self.mount.rules.follows_bucket
        {
            let asked_at = self.mount.moment();
            let found = self.bucket.discovery.find(*parent, name).await?;
            let mut found = self.bucket.discovery.must(found.filter(|found| found.ino == ino))?;
            if !self.volume.is_recent(*parent, &found, asked_at) {
                found = self.bucket.discovery.revalidate(&found).await?;
            }
            was_replaced = etag(&found) != etag(&inode);
        }
        let file = self.io.opener.open_named_file(ino)?;
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
    /// a handle that is open for reading only. Fails if writes were lost to a conflict, or an unresolved one blocks the
    /// file.
    pub async fn flush(&self, handle: Handle) -> Result<()> {
        let handle = self.names.handles().file(handle)?;
        if !handle.is_writable {
            return Ok(());
        }
        handle.note_reported(self.io.publisher.commit(&handle.file, When::Closed).await)?;
        check_not_lost(&handle)?;
        self.bucket.conflicts.check_not_in_conflict(handle.file.ino)
    }

    /// Publishes all unpublished writes of the file and its pending attributes, and makes objects and names durable.
    /// Fails through a writable handle whose writes were lost to a conflict, or whose file an unresolved one blocks.
    pub async fn fsync(&self, handle: Handle) -> Result<()> {
        self.locks().check_handle(handle)?;
        let handle = self.names.handles().file(handle)?;
        handle.note_reported(self.io.publisher.commit(&handle.file, When::Open).await)?;
        if handle.is_writable {
            check_not_lost(&handle)?;
            self.bucket.conflicts.check_not_in_conflict(handle.file.ino)?;
        }
        self.bucket.exporter.export_now(handle.file.ino).await?;
        self.volume.sync_objects().await?;
        self.names.sync_names().await
    }

    /// Closes a handle whose last descriptor was closed, and stores the file's writes if the handle is writable.
    pub async fn release(&self, handle: Handle) -> Result<()> {
        self.io.editor.release(handle).await
    }

    /// Returns the attributes for a read that reached the end of the file as the front end knows it. Fails with ESTALE if that
    /// end belongs to other bytes than the handle has read.
    pub async fn getattr_through(&self, handle: Handle, ino: Ino) -> Result<Attr> {
        let attr = self.getattr(ino).await?;
        match self.names.handles().file(handle) {
            Ok(handle) if handle.is_stale() || handle.has_other_length(attr.size_bytes) => Err(Error::Stale(
                "the object was overwritten in the bucket while it was read; open the file again".into(),
            )),
            _ => Ok(attr),
        }
    }
}

/// Returns the inode of a file that is being opened, and whether the front end may have attributes of another content.
/// On a shared engine the inode is the newest one, whose content the open file then reads.
async fn newest_for_open(fs: &Filesystem, ino: Ino) -> Result<(Inode, bool)> {
    let tables = fs.names.tables();
    let known = tables.inode(ino)?;
    if !tables.engine().is_shared() {
        return Ok((known, false));
    }
    let newest = tables.newest_inode(ino)?;
    // The cache of records may be newer than what the front end knows.
    let was_replaced = known.content != newest.content
        || known.size_bytes != newest.size_bytes
        || is_ahead_of_front_ends(&fs.names);
    fs.content.read_newest_at_open(ino).await?;
    Ok((newest, was_replaced))
}
