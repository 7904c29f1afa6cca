//! The bytes of files: open files, snapshots that handles read, unpublished writes, the memory for both, and the
//! deletion of objects that no file uses.

pub(crate) mod audit;
pub(crate) mod budget;
pub(crate) mod discards;
pub(crate) mod disk_space;
pub(crate) mod export_mark;
pub(crate) mod garbage;
pub(crate) mod invariants;
pub(crate) mod io;
pub(crate) mod open_file;
pub(crate) mod opener;
pub(crate) mod pack_census;
pub(crate) mod pin;
pub(crate) mod publishing;
pub(crate) mod ranges;
pub(crate) mod read;
pub(crate) mod slab;
pub(crate) mod storing;
pub(crate) mod version;
pub(crate) mod write;

use meta::{FsError, Ino, Inode, Name};
use std::sync::{Arc, Weak};
use store::{ETag, ObjectKey, ObjectRef, Precondition, StoreError};

use crate::content::budget::Budget;
use crate::content::discards::Discards;
use crate::content::disk_space::SpaceSource;
use crate::content::open_file::{OpenFile, OpenFiles, Pending};
use crate::content::read::blocks::Blocks;
use crate::content::read::tiers::Tiers;
use crate::content::slab::SlabPool;
use crate::content::storing::StoringInodes;
use crate::content::write::WriteState;
use crate::memory_limit::Share;
use crate::mount::Mount;
use crate::names::Names;
use crate::names::access_times::{PENDING_MAX, is_due};
use crate::{Atime, Attr, Result};

/// The bytes of files: open files, the block cache, the memory of writers, and objects that wait for deletion.
#[derive(Debug)]
pub(crate) struct Content {
    me: Weak<Self>,
    mount: Arc<Mount>,
    names: Arc<Names>,
    files: OpenFiles,
    slabs: SlabPool,
    blocks: Blocks,
    tiers: Arc<Tiers>,
    write_budget: Budget,
    discards: Discards,
    storing: Arc<StoringInodes>,
    disk_space: SpaceSource,
    /// Held by a garbage collection.
    collecting: tokio::sync::Mutex<()>,
}

impl Content {
    /// Creates the content of a mount without open files, which takes at most the memory that the settings allow.
    pub(crate) fn new(mount: Arc<Mount>, names: Arc<Names>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            slabs: SlabPool::new(mount.memory.clone()),
            tiers: Tiers::new(mount.config.disk_cache.clone(), mount.config.shared_cache.clone()),
            blocks: Blocks::new(Budget::new(mount.memory.clone(), Share::Reads)),
            write_budget: Budget::new(mount.memory.clone(), Share::Writes),
            mount,
            names,
            files: OpenFiles::default(),
            discards: Discards::default(),
            storing: Arc::default(),
            disk_space: SpaceSource::default(),
            collecting: tokio::sync::Mutex::default(),
        })
    }

    /// Drops cached bytes and free buffers beyond the shares of memory, which may have become smaller.
    pub(crate) fn trim(&self) {
        self.blocks.trim();
        self.slabs.trim();
    }

    /// Returns the block cache.
    pub(crate) fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// Returns the caches below memory.
    pub(crate) fn tiers(&self) -> &Arc<Tiers> {
        &self.tiers
    }

    /// Returns the queue of deletions.
    pub(crate) fn discards(&self) -> &Discards {
        &self.discards
    }

    /// Returns the measurement of the store's free space.
    pub(crate) fn disk_space(&self) -> &SpaceSource {
        &self.disk_space
    }

    /// Returns the open files.
    pub(crate) fn files(&self) -> &OpenFiles {
        &self.files
    }

    /// Returns the lock that a garbage collection holds.
    pub(crate) fn collecting(&self) -> &tokio::sync::Mutex<()> {
        &self.collecting
    }

    /// Returns the pool of buffers.
    pub(crate) fn slabs(&self) -> &SlabPool {
        &self.slabs
    }

    /// Returns the memory budget of writers.
    pub(crate) fn write_budget(&self) -> &Budget {
        &self.write_budget
    }

    /// Returns the inodes whose content is being stored.
    pub(crate) fn storing(&self) -> &Arc<StoringInodes> {
        &self.storing
    }
}

impl Content {
    /// Returns an unused key for content of an inode.
    pub(crate) fn new_key(&self, ino: Ino) -> Result<ObjectKey, StoreError> {
        let bucket = self.bucket_of(ino).map_err(|error| StoreError::Invalid(error.to_string()))?;
        self.mount.content_key(bucket.as_ref(), ino)
    }

    /// Returns the bucket that a file is in if the directories at the root are buckets. An open file that has lost its name stays in its
    /// bucket.
    pub(crate) fn bucket_of(&self, ino: Ino) -> Result<Option<Name>> {
        if !self.mount.layout.joins_buckets() {
            return Ok(None);
        }
        let bucket = match self.names.tables().path(ino) {
            Err(FsError::NotFound) => None,
            path => path?.into_iter().next(),
        };
        Ok(match self.files.get(ino) {
            Some(file) => file.keep_bucket(bucket),
            None => bucket,
        })
    }

    /// Returns the attributes that programs see, unpublished writes included.
    pub(crate) fn attr(&self, inode: Inode) -> Attr {
        let pending =
            self.files.get(inode.ino).map(|file| file.pending()).filter(|pending| pending.is_edited);
        let attr = Attr::from(&self.seen(inode));
        match pending {
            Some(pending) => attr.with_data_bytes(pending.data_bytes),
            None => attr,
        }
    }

    /// Returns the inode with the unpublished writes and the access time of its open file.
    pub(crate) fn seen(&self, inode: Inode) -> Inode {
        let inode = self.names.access_times().overlay(inode);
        match self.files.get(inode.ino) {
            Some(file) => file.overlay(inode),
            None => inode,
        }
    }

    /// Has the open file of an inode read its newest content, unless it has unpublished writes. A file that is being
    /// stored anew is left as it is: the next open takes in the newest content. After a failure the file is outdated.
    pub(crate) fn read_newest(&self, ino: Ino) -> Result<()> {
        let Some(file) = self.files().get(ino) else { return Ok(()) };
        let read = match file.pending().is_edited {
            false => file.repin(|| self.names.pin_of(ino)),
            true => match file.write_state.try_lock() {
                Ok(mut state) => self.drop_published_edits(&file, &mut state),
                Err(_) => Ok(()),
            },
        };
        file.set_outdated(read.is_err());
        read
    }

    /// Like [`Content::read_newest`], if an earlier attempt failed.
    pub(crate) fn read_newest_if_outdated(&self, ino: Ino) -> Result<()> {
        match self.files().get(ino) {
            Some(file) if file.is_outdated() => self.read_newest(ino),
            _ => Ok(()),
        }
    }

    /// Like [`Content::read_newest`], for an open: waits while the file is being stored anew, if it has other content
    /// by now.
    pub(crate) async fn read_newest_at_open(&self, ino: Ino) -> Result<()> {
        match self.files().get(ino).filter(|file| file.pending().is_edited && !file.pending().is_dirty) {
            Some(file) if file.pin().0.as_deref() != self.names.pin_of(ino)?.as_ref() => {
                self.drop_published_edits(&file, &mut *file.write_state.lock().await)
            }
            _ => self.read_newest(ino),
        }
    }

    /// Drops edits that are published and that other content has replaced.
    fn drop_published_edits(&self, file: &OpenFile, state: &mut WriteState) -> Result<()> {
        let newest = self.names.pin_of(file.ino)?;
        if !state.is_published() || file.pin().0.as_deref() == newest.as_ref() {
            return Ok(());
        }
        *state = WriteState::Clean;
        file.set_pending(Pending::default());
        file.repin(|| Ok(newest))
    }

    /// Drops cached blocks before `end`, which a sequential reader has passed, if a page cache above keeps their bytes.
    pub(crate) fn drop_passed_blocks(&self, file: &OpenFile, end: u64) {
        let (true, (Some(pin), _)) = (self.mount.config.page_cache_above && end > 0, file.pin()) else {
            return;
        };
        // Earlier pieces were dropped when the reader passed them.
        for piece in pin.last_two_before(end).unwrap_or_default() {
            let until = piece.within(&(piece.range.start..end.min(piece.range.end))).end;
            self.blocks.drop_before(file.ino, &piece.object.etag, until);
        }
    }

    /// Deletes an object. A missing object is no error.
    pub(crate) async fn delete(&self, key: &ObjectKey) -> Result<()> {
        match self.mount.store.delete(key, Precondition::None).await {
            Ok(()) | Err(StoreError::NotFound(_)) => Ok(()),
            // The object may have been deleted although the answer was lost.
            Err(error) => match self.mount.store.head(key).await {
                Err(StoreError::NotFound(_)) => Ok(()),
                _ => Err(error.into()),
            },
        }
    }

    /// Deletes an object that was moved, unless a new one was stored at its key. If only this machine's metadata has the new
    /// place, the caller syncs it first: otherwise the file would look removed.
    pub(crate) async fn delete_unless_replaced(&self, old: &ObjectRef) -> Result<()> {
        match self.mount.store.delete(&old.key, Precondition::Matches(old.etag.clone())).await {
            Ok(()) | Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Sets the function by which `statfs` and `fallocate` determine the free space of the backing store.
    pub(crate) fn measure_space_by(&self, measure: crate::MeasureDiskSpace) {
        self.disk_space.set(measure);
    }

    pub(crate) fn is_open(&self, ino: Ino) -> bool {
        self.files.get(ino).is_some()
    }

    /// Keeps valid what caches and an open file have of an object that has another etag now for the same bytes. The tables have it already.
    pub(crate) fn change_etag(&self, ino: Ino, before: &ETag, now: &ETag) -> Result<()> {
        self.names.references().change_etag(ino, before, now);
        self.blocks.retag(ino, before, now);
        match self.files.get(ino) {
            Some(file) => Ok(file.repin(|| self.names.pin_of(ino))?),
            None => Ok(()),
        }
    }

    /// Returns whether the file has a store request in flight, or one whose answer was lost: an observed object may be its
    /// result.
    pub(crate) fn has_write_in_doubt(&self, ino: Ino) -> bool {
        self.files.get(ino).is_some_and(|file| file.has_unconfirmed_upload())
    }

    /// Returns whether the file is open and its write state is not clean: it has unpublished writes, or published ones
    /// in deltas.
    pub(crate) fn has_unpublished_writes(&self, ino: Ino) -> bool {
        self.files.get(ino).is_some_and(|file| file.pending().is_edited)
    }

    /// Records a read of an inode. Returns whether it changes the access time, which the setting [`Atime`] decides.
    pub(crate) fn record_access(&self, ino: Ino) -> bool {
        let now = self.mount.now();
        let is_due = match self.mount.config.atime {
            _ if self.mount.config.read_only => false,
            Atime::Off => false,
            Atime::Strict => true,
            Atime::Relatime => {
                self.names.tables().inode(ino).is_ok_and(|inode| is_due(&self.seen(inode), now))
            }
        };
        if !is_due {
            return false;
        }
        match self.names.access_times().record(ino, now) {
            1 => self.names.flush_access_times_later(),
            pending if pending >= PENDING_MAX => drop(self.names.try_flush_access_times()),
            _ => {}
        }
        true
    }
}
