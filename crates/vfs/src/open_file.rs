//! Open files: one per inode with an open handle, shared by all its handles.
//!
//! A clean file is read through its [`Pin`]; a file with unpublished writes through its [`Dirty`] state, one
//! operation at a time, so that descriptors see each other's writes.
//!
//! Invariant: `pending` says edited exactly while `work` is not `Clean`; while nobody may store under a path it says
//! stream exactly while `work` is one.

use meta::{Ino, Inode};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::{Attributes, ETag, Timestamp};

use crate::pin::Pin;
use crate::read::readahead::Readahead;
use crate::turns::Turns;
use crate::write::Dirty;

/// What programs see of writes that are not published yet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pending {
    /// There are bytes beside those it is pinned to.
    pub(crate) is_edited: bool,
    /// Some of them are in no object yet.
    pub(crate) is_dirty: bool,
    /// Parts lie under the file's key.
    pub(crate) is_stream: bool,
    pub(crate) size_bytes: u64,
    /// When it was last written, unless a time was set since.
    pub(crate) touched: Option<Timestamp>,
}

/// The state all handles of one inode share.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) ino: Ino,
    /// Unpublished writes; one write, truncation or commit at a time.
    pub(crate) work: tokio::sync::Mutex<Dirty>,
    /// Taken by who wants its writes published, so that many share an attempt that fails.
    pub(crate) publishing: Turns,
    shared: Mutex<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    pin: Option<Arc<Pin>>,
    /// Counts foreign overwrites: a handle that has read bytes of an older one must not read on.
    lineage: u64,
    pending: Pending,
    /// The headers of the object we stored last, which need not be asked for.
    carried: Option<(ETag, Attributes)>,
}

impl OpenFile {
    fn new(ino: Ino) -> Self {
        Self {
            ino,
            work: tokio::sync::Mutex::new(Dirty::Clean),
            publishing: Turns::default(),
            shared: Mutex::default(),
        }
    }

    pub(crate) fn pin(&self) -> (Option<Arc<Pin>>, u64) {
        let shared = self.shared();
        (shared.pin.clone(), shared.lineage)
    }

    /// Our own bytes, or the same bytes elsewhere: handles read on. `pin` is asked while no other pin can come in
    /// between.
    pub(crate) fn repin<E>(&self, pin: impl FnOnce() -> Result<Option<Pin>, E>) -> Result<(), E> {
        let mut shared = self.shared();
        shared.pin = pin()?.map(Arc::new);
        Ok(())
    }

    /// Somebody else's bytes: handles that have read must not mix.
    pub(crate) fn replace<E>(&self, pin: impl FnOnce() -> Result<Option<Pin>, E>) -> Result<(), E> {
        let mut shared = self.shared();
        let pin = pin()?.map(Arc::new);
        if shared.pin.as_ref().map(|old| old.identity()) != pin.as_ref().map(|new| new.identity()) {
            shared.lineage += 1;
        }
        shared.pin = pin;
        Ok(())
    }

    pub(crate) fn pending(&self) -> Pending {
        self.shared().pending
    }

    pub(crate) fn set_pending(&self, pending: Pending) {
        self.shared().pending = pending;
    }

    /// Parts go out under the file's key from now on.
    pub(crate) fn set_stream(&self) {
        self.shared().pending.is_stream = true;
    }

    /// Notes the headers stored with an object.
    pub(crate) fn carries(&self, etag: &ETag, attributes: Attributes) {
        self.shared().carried = Some((etag.clone(), attributes));
    }

    /// The headers of an object, if it is the one we stored last.
    pub(crate) fn carried(&self, etag: &ETag) -> Option<Attributes> {
        self.shared().carried.as_ref().filter(|(of, _)| of == etag).map(|(_, attributes)| attributes.clone())
    }

    /// A time was set: it stands until the next write.
    pub(crate) fn untouch(&self) {
        self.shared().pending.touched = None;
    }

    /// `inode` as programs see it with the unpublished writes.
    pub(crate) fn overlay(&self, mut inode: Inode) -> Inode {
        let pending = self.pending();
        if pending.is_edited {
            inode.size_bytes = pending.size_bytes;
        }
        if let Some(at) = pending.touched {
            (inode.mtime, inode.ctime) = (at, inode.ctime.max(at));
        }
        inode
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Every open file of the mount.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles(Mutex<HashMap<Ino, (Arc<OpenFile>, usize)>>);

impl OpenFiles {
    /// Opens once more; `pin` is asked for when nobody has it open yet.
    pub(crate) fn open<E>(
        &self,
        ino: Ino,
        pin: impl FnOnce() -> Result<Option<Pin>, E>,
    ) -> Result<Arc<OpenFile>, E> {
        let mut files = self.lock();
        if let Some((file, count)) = files.get_mut(&ino) {
            *count += 1;
            return Ok(file.clone());
        }
        let file = Arc::new(OpenFile::new(ino));
        file.repin(pin)?;
        files.insert(ino, (file.clone(), 1));
        Ok(file)
    }

    pub(crate) fn get(&self, ino: Ino) -> Option<Arc<OpenFile>> {
        self.lock().get(&ino).map(|(file, _)| file.clone())
    }

    /// How often the inode is open.
    pub(crate) fn users(&self, ino: Ino) -> usize {
        self.lock().get(&ino).map_or(0, |(_, count)| *count)
    }

    /// Closes once; true if that was the last.
    pub(crate) fn close(&self, ino: Ino) -> bool {
        let mut files = self.lock();
        let Some((_, count)) = files.get_mut(&ino) else { return false };
        *count -= 1;
        let is_last = *count == 0;
        if is_last {
            files.remove(&ino);
        }
        is_last
    }

    pub(crate) fn all(&self) -> Vec<Arc<OpenFile>> {
        self.lock().values().map(|(file, _)| file.clone()).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Ino, (Arc<OpenFile>, usize)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One `open` of a file.
#[derive(Debug)]
pub(crate) struct FileHandle {
    pub(crate) file: Arc<OpenFile>,
    pub(crate) is_writable: bool,
    pub(crate) ahead: Mutex<Readahead>,
    lineage: AtomicU64,
    has_read: AtomicBool,
}

impl FileHandle {
    pub(crate) fn new(file: Arc<OpenFile>, is_writable: bool) -> Self {
        let (_, lineage) = file.pin();
        Self {
            file,
            is_writable,
            ahead: Mutex::default(),
            lineage: AtomicU64::new(lineage),
            has_read: AtomicBool::new(false),
        }
    }

    /// Whether this handle may read bytes of `lineage`: its own, or any while it has read nothing.
    pub(crate) fn accepts(&self, lineage: u64) -> bool {
        if !self.has_read.load(Ordering::Acquire) {
            self.lineage.store(lineage, Ordering::Release);
        }
        self.lineage.load(Ordering::Acquire) == lineage
    }

    pub(crate) fn mark_read(&self) {
        self.has_read.store(true, Ordering::Release);
    }
}
