//! Opening and closing of the files behind handles.

use meta::{Applied, FsError, Ino, Op, Origin};
use staging::packs::is_pack;
use std::ops::Deref;
use std::sync::{Arc, Weak};

use crate::base::Base;
use crate::bucket::export_queue::ExportQueue;
use crate::bucket::known_state::KnownState;
use crate::bucket::metadata::object_metadata::Metadata;
use crate::bucket::parts::BucketParts;
use crate::content::Content;
use crate::content::open_file::{FileHandle, OpenFile};
use crate::content::pin::Pin;
use crate::content::write::WriteState;
use crate::followers::invalidation::Invalidation;
use crate::mount::Mount;
use crate::names::Names;
use crate::names::handles::Opened;
use crate::{Atime, Error, Result};

/// Opens and closes the files behind handles.
#[derive(Debug)]
pub(crate) struct FileOpener {
    pub(in crate::content) me: Weak<Self>,
    pub(in crate::content) mount: Arc<Mount>,
    pub(in crate::content) names: Arc<Names>,
    pub(in crate::content) content: Arc<Content>,
    pub(in crate::content) known: Arc<KnownState>,
    pub(in crate::content) metadata: Arc<Metadata>,
    pub(in crate::content) exports: Arc<ExportQueue>,
}

impl FileOpener {
    pub(crate) fn new(base: &Base, parts: &BucketParts) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            mount: base.mount.clone(),
            names: base.names.clone(),
            content: base.content.clone(),
            known: parts.known.clone(),
            metadata: parts.metadata.clone(),
            exports: parts.exports.clone(),
        })
    }
}

impl FileOpener {
    /// Adds a user of an inode's open file.
    pub(crate) fn open_file(&self, ino: Ino) -> Result<FileUser> {
        self.open_pinned(ino, || self.names.pin_of(ino))
    }

    /// Like [`FileOpener::open_file`], for a program. Fails with ENOENT for an inode without a name and without other users, which is
    /// being removed together with its bytes.
    ///
    /// The inode that is read for the pin says whether the file has a name. `OpenFiles` is locked meanwhile: a removal of the name either shows in
    /// that inode, or finds the new user and leaves the bytes to the last close.
    pub(crate) fn open_named_file(&self, ino: Ino) -> Result<FileUser> {
        self.open_pinned(ino, || {
            let (inode, pin) = self.names.inode_with_pin(ino)?;
            if inode.nlink == 0 { Err(Error::NOT_FOUND) } else { Ok(pin) }
        })
    }

    /// Adds a user of an inode's open file; `pin` runs if it is the only one.
    fn open_pinned(&self, ino: Ino, pin: impl FnOnce() -> Result<Option<Pin>>) -> Result<FileUser> {
        if self.names.tables().engine().is_remote() && self.content.files().get(ino).is_none() {
            // Other opens wait while `pin` reads the inode. The cache gets it here first, so that they do not wait for the network.
            self.names.tables().inode(ino)?;
        }
        let file = self.content.files().open(ino, pin)?;
        // Noted while the file has its name.
        self.content.bucket_of(ino)?;
        Ok(FileUser::new(self.me.clone(), file))
    }

    /// Removes a user of an open file. The last one drops unpublished writes and deletes the bytes of an orphan.
    pub(crate) async fn close_file(&self, file: &OpenFile) -> Result<()> {
        if !self.content.files().close(file.ino) {
            return Ok(());
        }
        if self.mount.config.is_uncached {
            self.content.blocks().forget(file.ino);
        }
        let dropped = std::mem::replace(&mut *file.write_state.lock().await, WriteState::Clean);
        let inode = self.names.tables().inode(file.ino);
        let is_orphan = inode.as_ref().is_ok_and(|inode| inode.home.is_none());
        let is_dropped = !dropped.is_published();
        if is_dropped && !is_orphan {
            tracing::error!(path = %self.names.path_for_log(file.ino), size = dropped.size_bytes(), "unpublished writes are lost: they could not be stored before the last handle was closed");
        }
        if let WriteState::Stream(stream) = dropped {
            // An object at the file's path is the file; an object under a key of its own now belongs to no file.
            if let Some(object) =
                stream.completed().filter(|object| self.mount.layout.content_owner(&object.key).is_some())
            {
                self.content.discard(object.key).await;
            }
            for key in stream.abort().await {
                self.content.discard(key).await;
            }
        }
        match inode {
            Ok(inode) if is_orphan => self.purge(&inode).await,
            Ok(inode) if is_dropped => {
                // Front ends have the attributes and the bytes with these writes.
                self.names.tell(Invalidation::Inode(file.ino));
                self.drop_writes(file, &inode)
            }
            _ => Ok(()),
        }
    }

    /// Handles the loss of a file's writes with its last handle; a file that was never stored may be removed too. An
    /// unconfirmed upload may have succeeded, so the next access looks at the bucket before its object counts as foreign.
    fn drop_writes(&self, file: &OpenFile, inode: &meta::Inode) -> Result<()> {
        let may_be_there = file.has_unconfirmed_upload();
        match &inode.home {
            Some((parent, name)) if inode.object().is_none() && self.mount.rules.removes_unstored_files => {
                if may_be_there {
                    self.known.directories().get(*parent).forget();
                }
                let rolled_back = self.known.roll_back_create(*parent, name, inode);
                // If this fails, the next access to the name removes it, because it may hide a foreign object.
                rolled_back.inspect_err(|_| self.content.files().mark_unconfirmed(inode.ino))
            }
            _ => {
                if may_be_there {
                    self.content.files().mark_unconfirmed(inode.ino);
                }
                // The pending attributes were to be stored together with the writes.
                self.exports.export_later(inode.ino)
            }
        }
    }

    /// Adds a handle of an open file. Decides whether the kernel may use its page cache for the handle, and keep its
    /// pages.
    pub(crate) fn new_handle(&self, file: Arc<OpenFile>, flags: i32) -> Opened {
        let ino = file.ino;
        let version = loop {
            let (pin, lineage) = file.pin();
            // Whether the page cache above holds pages of these bytes only.
            let is_in_page_cache = self.names.references().holds(ino, pin.map(|pin| pin.identity()).as_ref());
            if let Some(version) = file.join(lineage, is_in_page_cache) {
                break version;
            }
        };
        let (is_cached, holds) = (version.is_cached, version.is_read());
        let was_replaced = match is_cached {
            true if holds => false,
            true => self.names.references().drop_cached(ino),
            false => {
                self.names.references().mark_mixed(ino);
                false
            }
        };
        let bypasses = file.bypasses_page_cache();
        if bypasses && matches!(flags & libc::O_ACCMODE, libc::O_RDONLY | libc::O_RDWR) {
            // A memory mapping through this handle fills the page cache, which writes past it leave as it is.
            self.names.references().mark_mixed(ino);
        }
        // The page cache holds pages of older handles, so this handle bypasses it.
        let is_beside = !is_cached;
        let keep_cache = is_beside || holds && self.mount.config.atime != Atime::Strict;
        let handle = FileHandle::new(file, version, flags);
        // Reads from the page cache never reach this process, and nothing else tells the kernel that the access time
        // changed.
        if keep_cache
            && !is_beside
            && handle.is_readable
            && handle.take_atime_check(self.mount.config.atime, self.mount.now())
            && self.content.record_access(ino)
        {
            self.names.tell(Invalidation::Attributes(ino));
        }
        let handle = self.names.handles().add_file(handle);
        let is_uncached = self.mount.config.is_uncached;
        let keep_cache = keep_cache && !is_uncached;
        Opened { handle, keep_cache, is_uncached: is_uncached || is_beside || bypasses, was_replaced }
    }

    /// Deletes an inode without a name, and its objects.
    pub(crate) async fn purge(&self, orphan: &meta::Inode) -> Result<()> {
        self.content.blocks().forget(orphan.ino);
        self.metadata.cache().forget(orphan.ino);
        self.metadata.renamed().forget(orphan.ino);
        let objects = self.names.own_objects(orphan.ino)?;
        let (content, preserved): (Vec<_>, Vec<_>) = objects
            .into_iter()
            .partition(|key| self.mount.layout.content_owner(key).is_some() || is_pack(key));
        // Preserved copies of removed files belong to this mount alone and are deleted at once.
        for key in preserved {
            self.content.delete(&key).await?;
        }
        match self.names.commit(Origin::FrontEnd, &Op::Purge { ino: orphan.ino }) {
            Ok(_) => {
                for key in content {
                    self.content.discard(key).await;
                }
                Ok(())
            }
            // A concurrent last close has purged the inode and discards its content, or the inode has a name again.
            Err(FsError::NotFound) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes an inode that lost its last name by the op `removed`, unless it is open: then its last close deletes it.
    pub(crate) async fn release_orphan(&self, removed: &Applied) -> Result<()> {
        let Some(orphan) = removed.removed.as_ref().filter(|_| removed.orphaned) else { return Ok(()) };
        match self.open_file(orphan.ino) {
            Ok(file) => file.close().await,
            // The last handle was closed meanwhile, which deleted the inode.
            Err(Error::Namespace(FsError::NotFound)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// One user of an open file. Dropping it closes the file too, so that a call cancelled by a disconnecting client leaves nothing
/// open.
#[derive(Debug)]
pub(crate) struct FileUser {
    opener: Weak<FileOpener>,
    file: Arc<OpenFile>,
    /// Whether the file must be closed when this user is dropped.
    is_open: bool,
}

impl FileUser {
    pub(crate) fn new(opener: Weak<FileOpener>, file: Arc<OpenFile>) -> Self {
        Self { opener, file, is_open: true }
    }

    /// Closes the file and waits for that.
    pub(crate) async fn close(mut self) -> Result<()> {
        self.is_open = false;
        match self.opener.upgrade() {
            Some(opener) => opener.close_file(&self.file).await,
            None => Ok(()),
        }
    }

    /// Passes the file to a handle, whose release closes it.
    pub(crate) fn into_open_file(mut self) -> Arc<OpenFile> {
        self.is_open = false;
        self.file.clone()
    }
}

impl Deref for FileUser {
    type Target = Arc<OpenFile>;

    fn deref(&self) -> &Self::Target {
        &self.file
    }
}

impl Drop for FileUser {
    fn drop(&mut self) {
        let Some(opener) = self.opener.upgrade().filter(|_| self.is_open) else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            opener.content.files().close(self.file.ino);
            return;
        };
        let file = self.file.clone();
        let work = async move {
            if let Err(error) = opener.close_file(&file).await {
                tracing::warn!(ino = %file.ino, %error, "cannot clean up after the last use of a file: unused objects, the name of a file that was never stored, or attributes that are not exported may remain");
            }
        };
        runtime.spawn(store::work_for(store::current_cause(), work));
    }
}
