//! Opening and closing files.

use meta::{FsError, Ino, Kind, Moment, Name, Op};
use std::sync::{Arc, PoisonError};

use crate::bucket::reconcile::etag;
use crate::content::open_file::{FileHandle, FileUser, OpenFile};
use crate::content::publishing::must_not_have_lost;
use crate::content::write::{Dirty, When};
use crate::layout::content_keys;
use crate::names::handles::{Handle, Opened};
use crate::{Atime, Attr, Error, Filesystem, Result};

impl Filesystem {
    /// Opens a file after looking whether its object is still the same.
    pub async fn open(&self, ino: Ino, flags: i32) -> Result<Opened> {
        if flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0 {
            self.writable()?;
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
        // An inode without a name that nobody else has open is being removed, and its bytes with it.
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
        let opened = self.opened(file.keep(), flags);
        Ok(Opened { was_replaced: was_replaced || opened.was_replaced, ..opened })
    }

    /// Whether what is known of a file is no older than the revalidation time, or where other machines mount the bucket too
    /// than the question. A directory that took many pages to list is believed longer, but not by who opens a file.
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

    /// Publishes what was written through any handle: `close` returns when it is stored and named.
    pub async fn flush(&self, handle: Handle) -> Result<()> {
        let handle = self.handles.file(handle)?;
        if !handle.is_writable {
            return Ok(());
        }
        self.commit(&handle.file, When::Closed).await?;
        must_not_have_lost(&handle)?;
        self.check_not_in_conflict(handle.file.ino)
    }

    /// Publishes what was written and the attributes that wait to be exported.
    pub async fn fsync(&self, handle: Handle) -> Result<()> {
        let handle = self.handles.file(handle)?;
        self.commit(&handle.file, When::Open).await?;
        if handle.is_writable {
            must_not_have_lost(&handle)?;
            self.check_not_in_conflict(handle.file.ino)?;
        }
        self.export_now(handle.file.ino).await?;
        if self.layout.follows_paths() {
            self.store.sync().await?;
        }
        self.sync_names().await
    }

    /// The last reference to a handle is gone.
    pub async fn release(&self, handle: Handle) -> Result<()> {
        let handle = self.handles.remove_file(handle).ok_or(Error::BAD_HANDLE)?;
        let outcome = if handle.is_writable { self.commit(&handle.file, When::Closed).await } else { Ok(()) };
        if outcome.is_ok()
            && let Err(error) = self.assemble_closed(&handle.file).await
        {
            tracing::warn!(ino = %handle.file.ino, %error, "a file stays in the pieces in which it was written: nothing is lost");
        }
        let end = handle.ahead.lock().unwrap_or_else(PoisonError::into_inner).read_in_order();
        self.was_read(&handle.file, end);
        if !handle.version.is_cached {
            self.references.mark_mixed(handle.file.ino);
        }
        self.close_file(&handle.file).await?;
        outcome
    }

    /// A reader in order has left behind what lies before `end`.
    pub(crate) fn was_read(&self, file: &OpenFile, end: u64) {
        let (true, (Some(pin), _)) = (self.config.page_cache_above && end > 0, file.pin()) else { return };
        // What lies further behind was dropped when the reader passed it.
        for piece in pin.last_two_before(end).unwrap_or_default() {
            let until = piece.within(&(piece.range.start..end.min(piece.range.end))).end;
            self.blocks.passed(file.ino, &piece.object.etag, until);
        }
    }

    /// Counts one more user of an inode's shared state.
    pub(crate) fn open_file(&self, ino: Ino) -> Result<FileUser> {
        let file = self.files.open(ino, || self.pin_of(ino))?;
        Ok(FileUser::new(self.me.clone(), file))
    }

    /// Counts one user less; the last one takes unpublished writes and an orphan's bytes along.
    pub(crate) async fn close_file(&self, file: &OpenFile) -> Result<()> {
        if !self.files.close(file.ino) {
            return Ok(());
        }
        if self.config.is_uncached {
            self.blocks.forget(file.ino);
        }
        let dropped = std::mem::replace(&mut *file.work.lock().await, Dirty::Clean);
        let inode = self.names.inode(file.ino);
        let is_orphan = inode.as_ref().is_ok_and(|inode| inode.home.is_none());
        let is_dropped = !dropped.is_published();
        if is_dropped && !is_orphan {
            tracing::error!(path = %self.shown(file.ino), size = dropped.size_bytes(), "writes that could not be stored are dropped with the last handle");
        }
        if let Dirty::Stream(stream) = dropped {
            // Under a key that is its path the object is a file; under one of its own nobody names it any more.
            if let Some(object) = stream.completed().filter(|object| self.layout.owner(&object.key).is_some())
            {
                self.discard(object.key).await;
            }
            stream.abort().await;
        }
        match inode {
            Ok(inode) if is_orphan => self.purge(&inode).await,
            Ok(inode) if is_dropped => self.lose_writes(file, &inode),
            _ => Ok(()),
        }
    }

    /// A file's writes go with its last handle, and by path the file, if it was never stored. Of what was tried something may have
    /// got there: who asks for the file next looks, before anybody takes that for somebody else's.
    fn lose_writes(&self, file: &OpenFile, inode: &meta::Inode) -> Result<()> {
        let may_be_there = file.has_tried_any();
        match &inode.home {
            Some((parent, name)) if inode.object().is_none() && self.layout.follows_paths() => {
                if may_be_there {
                    self.directories.get(*parent).forget();
                }
                self.unmake(*parent, name, inode)?;
                self.invalidations.entry(*parent, name.as_bytes());
                Ok(())
            }
            _ => {
                if may_be_there {
                    self.files.went_unheard(inode.ino);
                }
                // The attributes were to go with the writes.
                self.export_later(inode.ino)
            }
        }
    }

    /// A file's path for the log; its number where it has none.
    pub(crate) fn shown(&self, ino: Ino) -> String {
        let text = |name: &Name| String::from_utf8_lossy(name.as_bytes()).into_owned();
        let path = self.names.path(ino).map(|path| path.iter().map(text).collect::<Vec<_>>().join("/"));
        path.unwrap_or_else(|_| format!("inode {ino}"))
    }

    pub(crate) fn opened(&self, file: Arc<OpenFile>, flags: i32) -> Opened {
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
        // The pages above are those of the older handles.
        let is_beside = !is_cached;
        let keep_cache = is_beside || holds && self.config.atime != Atime::Strict;
        let handle = FileHandle::new(file, version, flags);
        // No read may ever come, and nothing else tells the kernel that the time has changed.
        if keep_cache
            && !is_beside
            && handle.is_readable
            && handle.notes_read(self.config.atime, self.now())
            && self.record_access(ino)
        {
            self.invalidations.attributes(ino);
        }
        let handle = self.handles.add_file(handle);
        let is_uncached = self.config.is_uncached;
        let keep_cache = keep_cache && !is_uncached;
        Opened { handle, keep_cache, is_uncached: is_uncached || is_beside, was_replaced }
    }

    /// What an inode is, for a read that has come to the end of the file as a front end knows it. ESTALE if that is the end of other bytes
    /// than the handle has read.
    pub async fn getattr_through(&self, handle: Handle, ino: Ino) -> Result<Attr> {
        let attr = self.getattr(ino).await?;
        match self.handles.file(handle) {
            Ok(handle) if handle.is_stale() || handle.has_other_length(attr.size_bytes) => {
                Err(Error::Stale("it was overwritten in the bucket while it was read".into()))
            }
            _ => Ok(attr),
        }
    }

    /// Whether a front end must not keep these attributes, but ask again each time: its page cache holds pages of an older version,
    /// whose readers would take the end of the newer one for theirs. The names give the length of the newer version a moment before
    /// the open file is pinned to it, so that another length than the open file's counts as well.
    pub fn misleads_readers(&self, attr: &Attr) -> bool {
        self.files.get(attr.ino).is_some_and(|file| {
            file.has_older_readers()
                || !file.pending().is_edited
                    && file.pin().0.is_some_and(|pin| pin.size_bytes != attr.size_bytes)
        })
    }

    /// Whether handles that read an older version through the page cache are open.
    pub fn has_older_readers(&self, ino: Ino) -> bool {
        self.files.get(ino).is_some_and(|file| file.has_older_readers())
    }

    pub(crate) async fn purge(&self, orphan: &meta::Inode) -> Result<()> {
        self.blocks.forget(orphan.ino);
        self.metadata_cache.forget(orphan.ino);
        self.renamed.forget(orphan.ino);
        let content = match self.names.content(orphan.ino) {
            Ok((_, content)) => content_keys(&content),
            Err(FsError::NotFound) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let (content, aside): (Vec<_>, Vec<_>) =
            content.into_iter().partition(|key| self.layout.owner(key).is_some());
        // Set aside by this mount alone.
        for key in aside {
            self.delete(&key).await?;
        }
        match self.names.commit(&self.ctx(), &Op::Purge { ino: orphan.ino }) {
            // Two who closed it last both do this.
            Ok(_) | Err(FsError::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
        for key in content {
            self.discard(key).await;
        }
        Ok(())
    }
}
