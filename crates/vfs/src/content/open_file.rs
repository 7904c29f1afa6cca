//! Open files: one per inode with an open handle, shared by all its handles.
//!
//! A clean file is read through its [`Pin`]; a file with unpublished writes through its [`WriteState`], whose lock
//! orders operations, so that descriptors see each other's writes.
//!
//! Invariant: `pending.is_edited` is set exactly while `write_state` is not `Clean`; while the file's path is not locked for a store,
//! `pending.is_stream` is set exactly while `write_state` is a stream.

use meta::{Ino, Inode, Moment, Name};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use store::{Attributes, ETag, Timestamp};

use crate::bucket::headers;
use crate::bucket::metadata::Described;
use crate::content::pin::Pin;
use crate::content::read::readahead::Readahead;
use crate::content::version::{Begin, Reading, Version};
use crate::content::write::WriteState;
use crate::fail_fast::FailFastSemaphore;
use crate::{Atime, Error, Result};

/// Minimum interval between checks of the access time by reads of one handle.
const ATIME_CHECK_INTERVAL_NS: i64 = 1_000_000_000;

/// State of unpublished writes that programs can observe.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pending {
    /// Whether the write state is not clean: there are unpublished writes, or published ones in deltas of the open
    /// file.
    pub(crate) is_edited: bool,
    /// Whether some of these writes are not published yet.
    pub(crate) is_dirty: bool,
    /// Whether a multipart upload is in progress under the file's key.
    pub(crate) is_stream: bool,
    /// Length of the file with these writes.
    pub(crate) size_bytes: u64,
    /// Upper bound of the bytes that are not holes.
    pub(crate) data_bytes: u64,
    /// Time of the last write, unless a program has set a time since.
    pub(crate) touched: Option<Timestamp>,
}

/// The state that all handles of one inode share.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) ino: Ino,
    /// Unpublished writes; the lock serializes writes, truncations and commits.
    pub(crate) write_state: tokio::sync::Mutex<WriteState>,
    /// Queue of commits, so that many callers share one failing attempt.
    pub(crate) publishing: FailFastSemaphore,
    /// State that is locked only briefly, apart from the write state.
    shared: Mutex<Shared>,
    /// Whether content was named by an op that need not survive the loss of power yet.
    has_unsynced_names: AtomicBool,
    /// Whether all handles bypass the page cache above, because one of them writes past it.
    bypasses_page_cache: AtomicBool,
    /// The lineage that began when writes last lost in a conflict. Handles opened before it may have made these writes.
    lost_lineage: AtomicU64,
    /// Whether another machine has changed the file, and its newest content could not be read.
    is_outdated: AtomicBool,
}

#[derive(Debug, Default)]
struct Shared {
    /// The stored content that the file has; `None` before any is stored.
    pin: Option<Arc<Pin>>,
    /// Number of replacements of the bytes by foreign ones: a handle that has read bytes of an older lineage must not
    /// read on.
    lineage: u64,
    /// The versions that open handles read.
    versions: Vec<Weak<Version>>,
    /// The unpublished writes, as programs see them.
    pending: Pending,
    /// Time of the first unpublished write, or of the last background attempt to store these writes.
    edited_since: Option<Timestamp>,
    /// Whether the file was created by an open handle and has not been published yet.
    is_new: bool,
    /// Whether the file was created without a name (`O_TMPFILE`) and may get one.
    is_linkable: bool,
    /// The bucket that the file was last seen in, if the directories at the root are buckets.
    bucket: Option<Name>,
    /// The headers and tags of the object that this mount stored last, which saves a HEAD.
    stored_description: Option<StoredDescription>,
    /// The id of the last conflict in which the file's writes lost.
    conflict: Option<String>,
    /// Whether a foreign object was seen under the file's name while it had unpublished writes.
    is_concurrently_modified: bool,
    /// Length and user metadata of uploads that may have succeeded although their answer was lost.
    unconfirmed_uploads: Vec<(u64, BTreeMap<String, String>)>,
    /// Whether a deletion of the file's object may have succeeded although its answer was lost.
    may_be_removed: bool,
}

/// The headers and tags of an object that this mount stored.
#[derive(Debug)]
struct StoredDescription {
    /// The etag of the object.
    of: ETag,
    described: Described,
    stored_at: Moment,
}

/// Maximum unconfirmed uploads to remember; the newest are kept.
const UNCONFIRMED_UPLOADS_MAX: usize = 16;
/// Maximum files to remember whose last upload or deletion is unconfirmed. Beyond that the lowest inode numbers are forgotten,
/// and their changes look foreign.
const UNCONFIRMED_FILES_MAX: usize = 1 << 16;

impl OpenFile {
    fn new(ino: Ino) -> Self {
        let (publishing, shared, has_unsynced_names, bypasses_page_cache) = Default::default();
        let (lost_lineage, is_outdated) = Default::default();
        let write_state = tokio::sync::Mutex::new(WriteState::Clean);
        Self {
            ino,
            write_state,
            publishing,
            shared,
            has_unsynced_names,
            bypasses_page_cache,
            lost_lineage,
            is_outdated,
        }
    }

    /// Returns whether another machine has changed the file, and its newest content could not be read.
    pub(crate) fn is_outdated(&self) -> bool {
        self.is_outdated.load(Ordering::Acquire)
    }

    /// Notes whether the newest content could not be read.
    pub(crate) fn set_outdated(&self, is_outdated: bool) {
        self.is_outdated.store(is_outdated, Ordering::Release);
    }

    /// Makes all handles bypass the page cache above, until the last one is closed.
    pub(crate) fn bypass_page_cache(&self) {
        self.bypasses_page_cache.store(true, Ordering::Relaxed);
    }

    /// Returns whether a new handle must bypass the page cache above, because another handle writes past it.
    pub(crate) fn bypasses_page_cache(&self) -> bool {
        self.bypasses_page_cache.load(Ordering::Relaxed)
    }

    /// Returns the published bytes, `None` for a file without any, and their lineage.
    pub(crate) fn pin(&self) -> (Option<Arc<Pin>>, u64) {
        let shared = self.shared();
        (shared.pin.clone(), shared.lineage)
    }

    /// Replaces the pin by bytes written here, or by the same bytes elsewhere: handles read on. `pin` runs under the
    /// lock, so that no other pin comes in between.
    pub(crate) fn repin<E>(&self, pin: impl FnOnce() -> Result<Option<Pin>, E>) -> Result<(), E> {
        let mut shared = self.shared();
        shared.pin = pin()?.map(Arc::new);
        Ok(())
    }

    /// Replaces the pin by foreign bytes: handles that have read must not mix them with older ones.
    pub(crate) fn replace<E>(&self, pin: impl FnOnce() -> Result<Option<Pin>, E>) -> Result<(), E> {
        let mut shared = self.shared();
        let pin = pin()?.map(Arc::new);
        if shared.pin.as_ref().map(|old| old.identity()) != pin.as_ref().map(|new| new.identity()) {
            shared.lineage += 1;
        }
        shared.pin = pin;
        Ok(())
    }

    /// Returns the version that a new handle reads; `None` if the file has another lineage by now. `is_in_page_cache`
    /// says that the page cache above holds pages of these bytes and of no others.
    pub(crate) fn join(&self, lineage: u64, is_in_page_cache: bool) -> Option<Arc<Version>> {
        let mut shared = self.shared();
        if shared.lineage != lineage {
            return None;
        }
        shared.versions.retain(|version| version.strong_count() > 0);
        let open_versions: Vec<Arc<Version>> = shared.versions.iter().filter_map(Weak::upgrade).collect();
        let has_cache = open_versions.iter().all(|version| version.lineage() == lineage);
        if let Some(cached) = open_versions.into_iter().find(|version| version.is_cached && has_cache) {
            return Some(cached);
        }
        let version = Arc::new(Version::new(lineage, has_cache, has_cache && is_in_page_cache));
        shared.versions.push(Arc::downgrade(&version));
        Some(version)
    }

    /// Returns whether the page cache above belongs to open handles that read bytes of an older lineage.
    pub(crate) fn has_older_readers(&self) -> bool {
        let shared = self.shared();
        let open = shared.versions.iter().filter_map(Weak::upgrade);
        open.into_iter().any(|version| version.is_cached && version.lineage() != shared.lineage)
    }

    /// Begins a read of a version: returns the pin to read, if the version may read it.
    fn begin_read(&self, version: &Version) -> (Begin, Option<Arc<Pin>>) {
        let shared = self.shared();
        // Pages that another handle mapped could otherwise be mixed with the bytes of the new lineage.
        let is_only_version =
            || shared.versions.iter().filter(|version| version.strong_count() > 0).count() == 1;
        let may_follow = !version.is_cached || is_only_version();
        (version.begin(shared.lineage, may_follow), shared.pin.clone())
    }

    /// Returns the state of the unpublished writes that programs see.
    pub(crate) fn pending(&self) -> Pending {
        self.shared().pending
    }

    /// Sets the state of the unpublished writes that programs see.
    pub(crate) fn set_pending(&self, pending: Pending) {
        let mut shared = self.shared();
        shared.is_concurrently_modified &= pending.is_edited;
        let since = shared.edited_since.or(pending.touched);
        shared.edited_since = since.filter(|_| pending.is_edited);
        shared.pending = pending;
    }

    /// Notes that a foreign object was seen under the file's name, if the file has unpublished writes.
    pub(crate) fn mark_concurrently_modified(&self) {
        let mut shared = self.shared();
        shared.is_concurrently_modified = shared.pending.is_edited;
    }

    /// Returns whether a foreign object was seen under the file's name while it had unpublished writes.
    pub(crate) fn is_concurrently_modified(&self) -> bool {
        self.shared().is_concurrently_modified
    }

    /// Returns the time of the first unpublished write, or of the last background attempt to store these writes.
    pub(crate) fn edited_since(&self) -> Option<Timestamp> {
        self.shared().edited_since
    }

    /// Notes that a background attempt to store the writes has ended.
    pub(crate) fn restart_age(&self, until: Timestamp) {
        let mut shared = self.shared();
        shared.edited_since = shared.edited_since.map(|_| until);
    }

    /// Notes that a multipart upload has begun under the file's key.
    pub(crate) fn mark_streaming(&self) {
        self.shared().pending.is_stream = true;
    }

    pub(crate) fn set_new(&self, is_new: bool) {
        self.shared().is_new = is_new;
    }

    /// Returns whether the file was created by an open handle and has not been published yet.
    pub(crate) fn is_new(&self) -> bool {
        self.shared().is_new
    }

    pub(crate) fn set_linkable(&self, is_linkable: bool) {
        self.shared().is_linkable = is_linkable;
    }

    /// Returns whether the file was created without a name and may get one.
    pub(crate) fn is_linkable(&self) -> bool {
        self.shared().is_linkable
    }

    /// Notes the bucket that the file is in, if it has a name. Returns the bucket that was noted last.
    pub(crate) fn keep_bucket(&self, bucket: Option<Name>) -> Option<Name> {
        let mut shared = self.shared();
        if bucket.is_some() {
            shared.bucket = bucket;
        }
        shared.bucket.clone()
    }

    /// Notes that content was named: the next `close` or `fsync` syncs the names.
    pub(crate) fn mark_names_unsynced(&self) {
        self.has_unsynced_names.store(true, Ordering::Release);
    }

    /// Returns whether content was named by an op that need not survive the loss of power yet.
    pub(crate) fn has_unsynced_names(&self) -> bool {
        self.has_unsynced_names.load(Ordering::Acquire)
    }

    /// Notes that the names are synced. The caller holds `write_state`.
    pub(crate) fn mark_names_synced(&self) {
        self.has_unsynced_names.store(false, Ordering::Release);
    }

    /// Notes the headers and tags stored with an object.
    pub(crate) fn set_stored_description(&self, etag: &ETag, described: Described, stored_at: Moment) {
        self.shared().stored_description = Some(StoredDescription { of: etag.clone(), described, stored_at });
    }

    /// Returns the headers and tags of an object and when they were stored; `None` unless this mount stored that object
    /// last.
    pub(crate) fn stored_description(&self, etag: &ETag) -> Option<(Described, Moment)> {
        let shared = self.shared();
        let stored_description =
            shared.stored_description.as_ref().filter(|stored_description| stored_description.of == *etag)?;
        Some((stored_description.described.clone(), stored_description.stored_at))
    }

    /// Notes the id of the conflict in which the file's writes lost.
    pub(crate) fn set_conflict(&self, conflict: &str) {
        self.shared().conflict = Some(conflict.to_owned());
    }

    /// Notes that writes lost in a conflict: writable handles that are open now fail with ESTALE until it is reported to them.
    pub(crate) fn mark_lost(&self) {
        let mut shared = self.shared();
        shared.lineage += 1;
        self.lost_lineage.store(shared.lineage, Ordering::Release);
    }

    /// Returns the id of the last conflict in which the file's writes lost.
    pub(crate) fn conflict(&self) -> Option<String> {
        self.shared().conflict.clone()
    }

    /// Notes that an upload begins; its answer may be lost.
    pub(crate) fn record_upload(&self, attributes: &Attributes, size_bytes: u64) {
        let mut shared = self.shared();
        let surplus = (shared.unconfirmed_uploads.len() + 1).saturating_sub(UNCONFIRMED_UPLOADS_MAX);
        shared.unconfirmed_uploads.drain(..surplus);
        shared.unconfirmed_uploads.push((size_bytes, attributes.user.clone()));
    }

    /// Returns whether an object has the length and user metadata of an unconfirmed upload.
    pub(crate) fn is_unconfirmed_upload(&self, attributes: &Attributes, size_bytes: u64) -> bool {
        let is = |(size, user): &(u64, _)| *size == size_bytes && *user == attributes.user;
        // An object without a write time in its headers may have been stored by anybody.
        headers::has_mtime(attributes) && self.shared().unconfirmed_uploads.iter().any(is)
    }

    /// Returns whether any upload is unconfirmed.
    pub(crate) fn has_unconfirmed_upload(&self) -> bool {
        !self.shared().unconfirmed_uploads.is_empty()
    }

    /// Notes that a deletion of the file's object begins; its answer may be lost.
    pub(crate) fn record_removal(&self) {
        self.shared().may_be_removed = true;
    }

    /// Returns whether an unconfirmed deletion may have removed the file's object.
    pub(crate) fn may_be_removed(&self) -> bool {
        self.shared().may_be_removed
    }

    /// Forgets unconfirmed uploads and deletions, once the state of the bucket is known.
    pub(crate) fn clear_unconfirmed(&self) {
        let mut shared = self.shared();
        shared.unconfirmed_uploads.clear();
        shared.may_be_removed = false;
    }

    /// Notes that a program set a time, which holds until the next write.
    pub(crate) fn clear_touched(&self) {
        self.shared().pending.touched = None;
    }

    /// Returns `inode` with the unpublished writes, as programs see it.
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

/// All open files of the mount.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles {
    /// Open files by inode, each with its number of users.
    open: Mutex<BTreeMap<Ino, (Arc<OpenFile>, usize)>>,
    /// Files without a handle, or with a kept name, whose last upload or deletion is unconfirmed. At most [`UNCONFIRMED_FILES_MAX`].
    unconfirmed: Mutex<BTreeSet<Ino>>,
}

impl OpenFiles {
    /// Opens a file once more; `pin` runs if it has no handle yet.
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

    /// Returns the open file of an inode; `None` if it has no user.
    pub(crate) fn get(&self, ino: Ino) -> Option<Arc<OpenFile>> {
        self.lock().get(&ino).map(|(file, _)| file.clone())
    }

    /// Returns how many users have the inode open: handles, and operations that need its open file for a moment.
    pub(crate) fn users(&self, ino: Ino) -> usize {
        self.lock().get(&ino).map_or(0, |(_, count)| *count)
    }

    /// Closes a file once; returns whether that was its last user.
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

    /// Notes that the outcome of a file's last upload or deletion is unknown.
    pub(crate) fn mark_unconfirmed(&self, ino: Ino) {
        let mut unconfirmed = self.unconfirmed.lock().unwrap_or_else(PoisonError::into_inner);
        unconfirmed.insert(ino);
        if unconfirmed.len() > UNCONFIRMED_FILES_MAX {
            unconfirmed.pop_first();
        }
    }

    /// Returns whether the outcome of a file's last upload or deletion was unknown, and clears that: the caller
    /// resolves it.
    pub(crate) fn take_unconfirmed(&self, ino: Ino) -> bool {
        self.unconfirmed.lock().unwrap_or_else(PoisonError::into_inner).remove(&ino)
    }

    pub(crate) fn all(&self) -> Vec<Arc<OpenFile>> {
        self.lock().values().map(|(file, _)| file.clone()).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Ino, (Arc<OpenFile>, usize)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One `open` of a file.
#[derive(Debug)]
pub(crate) struct FileHandle {
    pub(crate) file: Arc<OpenFile>,
    pub(crate) is_writable: bool,
    pub(crate) is_readable: bool,
    /// Whether reads leave the access time alone (`O_NOATIME`).
    is_noatime: bool,
    /// When a read last checked the access time.
    atime_checked_at: AtomicI64,
    pub(crate) readahead: Mutex<Readahead>,
    /// The version that reads through this handle see.
    pub(crate) version: Arc<Version>,
    /// The lineage at open or, if it is later, when a loss of writes was last reported through this handle.
    known_lineage: AtomicU64,
}

impl FileHandle {
    /// Creates a handle; `flags` are those of `open`.
    pub(crate) fn new(file: Arc<OpenFile>, version: Arc<Version>, flags: i32) -> Self {
        let known_lineage = AtomicU64::new(version.lineage());
        Self {
            file,
            is_writable: flags & libc::O_ACCMODE != libc::O_RDONLY,
            is_readable: flags & libc::O_ACCMODE != libc::O_WRONLY,
            is_noatime: flags & libc::O_NOATIME != 0,
            atime_checked_at: AtomicI64::new(i64::MIN),
            readahead: Mutex::default(),
            version,
            known_lineage,
        }
    }

    /// Begins a read: returns the bytes to read, and a guard that records whether they were returned. ESTALE if the
    /// bytes were replaced after this handle had read some.
    pub(crate) async fn begin_read(&self) -> Result<(Reading<'_>, Option<Arc<Pin>>)> {
        match self.version.wait(|| self.file.begin_read(&self.version)).await {
            (Begin::Now, pin) => Ok((Reading::of(&self.version), pin)),
            (Begin::Later | Begin::Stale, _) => Err(Error::Stale(
                "the object was overwritten in the bucket after this handle had read it; open the file again"
                    .into(),
            )),
        }
    }

    /// Notes a write through this handle: its pages may be in the page cache above, as if they had been read.
    pub(crate) fn note_write(&self) {
        if !self.version.is_read()
            && let (Begin::Now, _) = self.file.begin_read(&self.version)
        {
            Reading::of(&self.version).succeed();
        }
    }

    /// Returns whether this handle has read bytes of another length: the namespace has a new length shortly before the
    /// file is pinned to the new bytes.
    pub(crate) fn has_other_length(&self, size_bytes: u64) -> bool {
        let pin = self.file.pin().0;
        !self.file.pending().is_edited
            && self.version.is_read()
            && pin.is_some_and(|pin| pin.size_bytes != size_bytes)
    }

    /// Returns whether the next read fails with ESTALE because the bytes were replaced.
    pub(crate) fn is_stale(&self) -> bool {
        let (_, lineage) = self.file.pin();
        self.version.is_read() && self.version.lineage() != lineage
    }

    /// Returns whether a read at `now` must check the access time, and notes the check. Most reads closely follow another one.
    pub(crate) fn take_atime_check(&self, atime: Atime, now: Timestamp) -> bool {
        let last = self.atime_checked_at.load(Ordering::Relaxed);
        match atime {
            _ if self.is_noatime => false,
            Atime::Off => false,
            Atime::Strict => true,
            Atime::Relatime if now.0.saturating_sub(last) < ATIME_CHECK_INTERVAL_NS => false,
            Atime::Relatime => {
                self.atime_checked_at.store(now.0, Ordering::Relaxed);
                true
            }
        }
    }

    /// Returns whether writes through this handle may have lost in a conflict that was not reported to it.
    pub(crate) fn has_unreported_loss(&self) -> bool {
        self.known_lineage.load(Ordering::Acquire) < self.file.lost_lineage.load(Ordering::Acquire)
    }

    /// Notes that a loss of writes is reported if this outcome of a call through the handle is ESTALE. Returns the outcome.
    pub(crate) fn note_reported<T>(&self, outcome: Result<T>) -> Result<T> {
        if let Err(Error::Stale(_)) = &outcome {
            let lost = self.file.lost_lineage.load(Ordering::Acquire);
            self.known_lineage.fetch_max(lost, Ordering::AcqRel);
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s228_the_number_of_unconfirmed_files_is_bounded() {
        let files = OpenFiles::default();
        let last = UNCONFIRMED_FILES_MAX as u64 + 2;
        (2..=last).for_each(|ino| files.mark_unconfirmed(Ino(ino)));
        assert!(!files.take_unconfirmed(Ino(2)), "one too many");
        assert!(files.take_unconfirmed(Ino(3)) && files.take_unconfirmed(Ino(last)));
    }
}
