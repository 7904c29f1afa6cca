//! Opening and closing of files.

use meta::{FsError, Ino, Kind, Moment, Name, Op};
use std::sync::{Arc, PoisonError};

use crate::bucket::reconcile::etag;
use crate::content::open_file::{FileHandle, FileUser, OpenFile};
use crate::content::publishing::check_not_lost;
use crate::content::write::{When, WriteState};
use crate::names::handles::{Handle, Opened};
use crate::{Atime, Attr, Error, Filesystem, Result};

impl Filesystem {
    /// Opens a file after checking whether its object is unchanged.
    pub async fn open(&self, ino: Ino, flags: i32) -> Result<Opened> {
        if flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0 {
            self.check_writable()?;
            self.check_not_in_conflict(ino)?;
        }
        let inode = self.names.inode(ino)?;
        match inode.kind {
            Kind::File => {}
            Kind::Directory => return Err(Error::IS_DIRECTORY),
            _ => return Err(Error::new(libc::ELOOP, "not a regular file")),
        }
        let mut was_replaced = false;
        if let Some((parent, name)) = &inode.home {
            let asked_at = self.moment();
            let found = self.find(*parent, name).await?;
            let mut found = self.must(found.filter(|found| found.ino == ino))?;
            if !self.is_recent(*parent, &found, asked_at) {
                found = self.revalidate(&found).await?;
            }
            was_replaced = etag(&found) != etag(&inode);
        }
        let file = self.open_file(ino)?;
        // An inode without a name and without other users is being removed together with its bytes.
        if self.names.inode(ino)?.nlink == 0 && self.files.users(ino) == 1 {
            file.close().await?;
            return Err(Error::NOT_FOUND);
        }
        if flags & libc::O_TRUNC != 0
            && let Err(error) = self.truncate(&file, 0).await
        {
            file.close().await?;
            return Err(error);
        }
        let opened = self.new_handle(file.into_open_file(), flags);
        Ok(Opened { was_replaced: was_replaced || opened.was_replaced, ..opened })
    }

    /// Returns whether the known state of a file is new enough for an open: within the revalidation time, or on a shared bucket
    /// newer than the request. A directory whose listing took many pages is trusted longer, but not for an open.
    fn is_recent(&self, parent: Ino, inode: &meta::Inode, asked_at: Moment) -> bool {
        let (now, ttl) = (self.moment(), self.config.metadata_ttl);
        !self.layout.follows_paths()
            || inode.observed_at >= asked_at
            || self.has_unpublished_writes(inode.ino)
            || inode.object().is_none()
            || self.sharing.is_none() && self.is_trusted(parent, inode.observed_at)
            || self.sharing.is_none()
                && self.directories.get(parent).listed_range().is_recent(asked_at, now, ttl)
    }

    /// Publishes all unpublished writes of the file: `close` returns once they are stored and named.
    pub async fn flush(&self, handle: Handle) -> Result<()> {
        let handle = self.handles.file(handle)?;
        if !handle.is_writable {
            return Ok(());
        }
        self.commit(&handle.file, When::Closed).await?;
        check_not_lost(&handle)?;
        self.check_not_in_conflict(handle.file.ino)
    }

    /// Publishes all unpublished writes of the file and its pending attributes.
    pub async fn fsync(&self, handle: Handle) -> Result<()> {
        let handle = self.handles.file(handle)?;
        self.commit(&handle.file, When::Open).await?;
        if handle.is_writable {
            check_not_lost(&handle)?;
            self.check_not_in_conflict(handle.file.ino)?;
        }
        self.export_now(handle.file.ino).await?;
        if self.layout.follows_paths() {
            self.store.sync().await?;
        }
        self.sync_names().await
    }

    /// Closes a handle whose last reference is gone.
    pub async fn release(&self, handle: Handle) -> Result<()> {
        let handle = self.handles.remove_file(handle).ok_or(Error::BAD_HANDLE)?;
        let outcome = if handle.is_writable { self.commit(&handle.file, When::Closed).await } else { Ok(()) };
        if outcome.is_ok()
            && let Err(error) = self.assemble_closed(&handle.file).await
        {
            tracing::warn!(ino = %handle.file.ino, %error, "a file could not be assembled and stays in deltas; no data is lost");
        }
        let end = handle.readahead.lock().unwrap_or_else(PoisonError::into_inner).read_in_order();
        self.drop_passed_blocks(&handle.file, end);
        if !handle.version.is_cached {
            self.references.mark_mixed(handle.file.ino);
        }
        self.close_file(&handle.file).await?;
        outcome
    }

    /// Drops cached blocks that a sequential reader has passed.
    pub(crate) fn drop_passed_blocks(&self, file: &OpenFile, end: u64) {
        let (true, (Some(pin), _)) = (self.config.page_cache_above && end > 0, file.pin()) else { return };
        // Earlier pieces were dropped when the reader passed them.
        for piece in pin.last_two_before(end).unwrap_or_default() {
            let until = piece.within(&(piece.range.start..end.min(piece.range.end))).end;
            self.blocks.drop_before(file.ino, &piece.object.etag, until);
        }
    }

    /// Adds a user of an inode's open file.
    pub(crate) fn open_file(&self, ino: Ino) -> Result<FileUser> {
        let file = self.files.open(ino, || self.pin_of(ino))?;
        Ok(FileUser::new(self.me.clone(), file))
    }

    /// Removes a user of an open file. The last one drops unpublished writes and deletes the bytes of an orphan.
    pub(crate) async fn close_file(&self, file: &OpenFile) -> Result<()> {
        if !self.files.close(file.ino) {
            return Ok(());
        }
        if self.config.is_uncached {
            self.blocks.forget(file.ino);
        }
        let dropped = std::mem::replace(&mut *file.write_state.lock().await, WriteState::Clean);
        let inode = self.names.inode(file.ino);
        let is_orphan = inode.as_ref().is_ok_and(|inode| inode.home.is_none());
        let is_dropped = !dropped.is_published();
        if is_dropped && !is_orphan {
            tracing::error!(path = %self.path_for_log(file.ino), size = dropped.size_bytes(), "unpublished writes are lost: they could not be stored before the last handle was closed");
        }
        if let WriteState::Stream(stream) = dropped {
            // An object at the file's path is the file; an object under a key of its own now belongs to no file.
            if let Some(object) =
                stream.completed().filter(|object| self.layout.content_owner(&object.key).is_some())
            {
                self.discard(object.key).await;
            }
            stream.abort().await;
        }
        match inode {
            Ok(inode) if is_orphan => self.purge(&inode).await,
            Ok(inode) if is_dropped => self.drop_writes(file, &inode),
            _ => Ok(()),
        }
    }

    /// Handles the loss of a file's writes with its last handle; by path, a file that was never stored is removed too. An
    /// unconfirmed upload may have succeeded, so the next access looks at the bucket before its object counts as foreign.
    fn drop_writes(&self, file: &OpenFile, inode: &meta::Inode) -> Result<()> {
        let may_be_there = file.has_unconfirmed_upload();
        match &inode.home {
            Some((parent, name)) if inode.object().is_none() && self.layout.follows_paths() => {
                if may_be_there {
                    self.directories.get(*parent).forget();
                }
                self.roll_back_create(*parent, name, inode)?;
                self.invalidations.entry(*parent, name.as_bytes());
                Ok(())
            }
            _ => {
                if may_be_there {
                    self.files.mark_unconfirmed(inode.ino);
                }
                // The pending attributes were to be stored together with the writes.
                self.export_later(inode.ino)
            }
        }
    }

    /// Returns a file's path for the log, or its inode number if it has no name.
    pub(crate) fn path_for_log(&self, ino: Ino) -> String {
        let text = |name: &Name| String::from_utf8_lossy(name.as_bytes()).into_owned();
        let path = self.names.path(ino).map(|path| path.iter().map(text).collect::<Vec<_>>().join("/"));
        path.unwrap_or_else(|_| format!("inode {ino}"))
    }

    pub(crate) fn new_handle(&self, file: Arc<OpenFile>, flags: i32) -> Opened {
        let ino = file.ino;
        let version = loop {
            let (pin, lineage) = file.pin();
            let is_above = self.references.holds(ino, pin.map(|pin| pin.identity()).as_ref());
            if let Some(version) = file.join(lineage, is_above) {
                break version;
            }
        };
        let (is_cached, holds) = (version.is_cached, version.is_read());
        let was_replaced = match is_cached {
            true if holds => false,
            true => self.references.drop_cached(ino),
            false => {
                self.references.mark_mixed(ino);
                false
            }
        };
        // The page cache holds pages of older handles, so this handle bypasses it.
        let is_beside = !is_cached;
        let keep_cache = is_beside || holds && self.config.atime != Atime::Strict;
        let handle = FileHandle::new(file, version, flags);
        // Cached reads never reach us, and nothing else tells the kernel that the access time changed.
        if keep_cache
            && !is_beside
            && handle.is_readable
            && handle.take_atime_check(self.config.atime, self.now())
            && self.record_access(ino)
        {
            self.invalidations.attributes(ino);
        }
        let handle = self.handles.add_file(handle);
        let is_uncached = self.config.is_uncached;
        let keep_cache = keep_cache && !is_uncached;
        Opened { handle, keep_cache, is_uncached: is_uncached || is_beside, was_replaced }
    }

    /// Returns the attributes for a read that reached the end of the file as the front end knows it. Fails with ESTALE if that
    /// end belongs to other bytes than the handle has read.
    pub async fn getattr_through(&self, handle: Handle, ino: Ino) -> Result<Attr> {
        let attr = self.getattr(ino).await?;
        match self.handles.file(handle) {
            Ok(handle) if handle.is_stale() || handle.has_other_length(attr.size_bytes) => {
                Err(Error::Stale("it was overwritten in the bucket while it was read; open it again".into()))
            }
            _ => Ok(attr),
        }
    }

    /// Returns whether a front end must not cache these attributes: its page cache holds pages of an older version, whose
    /// readers would mistake the end of the newer version for theirs. The namespace has the newer length shortly before the
    /// open file is pinned to the newer bytes, so a length different from the open file's counts as well.
    pub fn misleads_readers(&self, attr: &Attr) -> bool {
        self.files.get(attr.ino).is_some_and(|file| {
            file.has_older_readers()
                || !file.pending().is_edited
                    && file.pin().0.is_some_and(|pin| pin.size_bytes != attr.size_bytes)
        })
    }

    /// Returns whether handles are open that read an older version through the page cache.
    pub fn has_older_readers(&self, ino: Ino) -> bool {
        self.files.get(ino).is_some_and(|file| file.has_older_readers())
    }

    pub(crate) async fn purge(&self, orphan: &meta::Inode) -> Result<()> {
        self.blocks.forget(orphan.ino);
        self.metadata_cache.forget(orphan.ino);
        self.renamed.forget(orphan.ino);
        let objects = self.own_objects(orphan.ino)?;
        let (content, aside): (Vec<_>, Vec<_>) =
            objects.into_iter().partition(|key| self.layout.content_owner(key).is_some());
        // Preserved copies of removed files belong to this mount alone and are deleted at once.
        for key in aside {
            self.delete(&key).await?;
        }
        match self.names.commit(&self.ctx(), &Op::Purge { ino: orphan.ino }) {
            // Concurrent last closes both purge.
            Ok(_) | Err(FsError::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
        for key in content {
            self.discard(key).await;
        }
        Ok(())
    }
}
