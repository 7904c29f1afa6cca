//! Open files: one per inode with an open handle, shared by all its handles.
//!
//! A clean file is read through its [`Pin`]; a file with unpublished writes through its [`Dirty`] state, one
//! operation at a time, so that descriptors see each other's writes.
//!
//! Invariant: `pending` says edited exactly while `work` is not `Clean`; while nobody may store under a path it says
//! stream exactly while `work` is one.

use meta::{Ino, Inode, Moment};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use store::{Attributes, ETag, Timestamp};

use crate::bucket::headers;
use crate::bucket::metadata::Described;
use crate::content::pin::Pin;
use crate::content::read::readahead::Readahead;
use crate::content::version::{Begin, Reading, Version};
use crate::content::write::Dirty;
use crate::turns::Turns;
use crate::{Atime, Error, Filesystem, Result};

/// How often reads through one handle look at the access time.
const ATIME_LOOK_EVERY_NS: i64 = 1_000_000_000;

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
    /// How much of them is no hole, at most.
    pub(crate) data_bytes: u64,
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
    /// Content was named, which need not survive the loss of power yet.
    names_wait: AtomicBool,
    /// Handles of an older lineage may have writes that lost in a conflict when nobody had asked for them to be stored.
    lost_before: AtomicU64,
}

#[derive(Debug, Default)]
struct Shared {
    pin: Option<Arc<Pin>>,
    /// Counts foreign overwrites: a handle that has read bytes of an older one must not read on.
    lineage: u64,
    /// The versions that open handles read.
    versions: Vec<Weak<Version>>,
    pending: Pending,
    /// When the first of these writes was made, or an attempt to store them for others ended.
    edited_since: Option<Timestamp>,
    /// It was made by who has it open, and nothing of it was published yet.
    is_new: bool,
    /// It was made without a name, and may get one.
    is_linkable: bool,
    /// The headers of the object we stored last, which need not be asked for.
    carried: Option<Carried>,
    /// The conflict in which its writes lost.
    conflict: Option<String>,
    /// Somebody else stored an object under its name while it was written, as far as was seen.
    is_overtaken: bool,
    /// Length and user metadata of uploads that may have got there, though nobody heard of it.
    tried: Vec<(u64, BTreeMap<String, String>)>,
    /// Its object may have been deleted here, though nobody heard of it.
    may_be_removed: bool,
}

#[derive(Debug)]
struct Carried {
    of: ETag,
    described: Described,
    stored_at: Moment,
}

/// So many uploads that may have got there are remembered, the newest.
const TRIED_MAX: usize = 16;
/// So many files of which nobody heard what became of them; of more those with the lowest numbers seem changed by others.
const UNHEARD_MAX: usize = 1 << 16;

impl OpenFile {
    fn new(ino: Ino) -> Self {
        let (publishing, shared, names_wait, lost_before) = Default::default();
        let work = tokio::sync::Mutex::new(Dirty::Clean);
        Self { ino, work, publishing, shared, names_wait, lost_before }
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

    /// The version that a new handle reads, if the file's bytes are still of `lineage`. `is_above`: the page cache above holds pages
    /// of these bytes, and none of others.
    pub(crate) fn join(&self, lineage: u64, is_above: bool) -> Option<Arc<Version>> {
        let mut shared = self.shared();
        if shared.lineage != lineage {
            return None;
        }
        shared.versions.retain(|version| version.strong_count() > 0);
        let open: Vec<Arc<Version>> = shared.versions.iter().filter_map(Weak::upgrade).collect();
        let has_cache = open.iter().all(|version| version.lineage() == lineage);
        if let Some(cached) = open.into_iter().find(|version| version.is_cached && has_cache) {
            return Some(cached);
        }
        let version = Arc::new(Version::new(lineage, has_cache, has_cache && is_above));
        shared.versions.push(Arc::downgrade(&version));
        Some(version)
    }

    /// Whether the page cache above belongs to handles that are open and read bytes of an older lineage.
    pub(crate) fn has_older_readers(&self) -> bool {
        let shared = self.shared();
        let open = shared.versions.iter().filter_map(Weak::upgrade);
        open.into_iter().any(|version| version.is_cached && version.lineage() != shared.lineage)
    }

    /// Begins a read of a version: what the file is pinned to, if that is it.
    fn begin_read(&self, version: &Version) -> (Begin, Option<Arc<Pin>>) {
        let shared = self.shared();
        // Pages that another handle mapped could lie beside what this version would follow to.
        let is_alone = || shared.versions.iter().filter(|version| version.strong_count() > 0).count() == 1;
        let may_follow = !version.is_cached || is_alone();
        (version.begin(shared.lineage, may_follow), shared.pin.clone())
    }

    pub(crate) fn pending(&self) -> Pending {
        self.shared().pending
    }

    pub(crate) fn set_pending(&self, pending: Pending) {
        let mut shared = self.shared();
        shared.is_overtaken &= pending.is_edited;
        let since = shared.edited_since.or(pending.touched);
        shared.edited_since = since.filter(|_| pending.is_edited);
        shared.pending = pending;
    }

    /// Another object than it was based on was seen under its name.
    pub(crate) fn overtake(&self) {
        let mut shared = self.shared();
        shared.is_overtaken = shared.pending.is_edited;
    }

    /// Whether somebody else stored an object under its name while it was written, as far as was seen.
    pub(crate) fn is_overtaken(&self) -> bool {
        self.shared().is_overtaken
    }

    /// Since when there are bytes beside those it is pinned to, or since the last attempt to store them for others.
    pub(crate) fn edited_since(&self) -> Option<Timestamp> {
        self.shared().edited_since
    }

    /// Such an attempt has ended.
    pub(crate) fn put_off(&self, until: Timestamp) {
        let mut shared = self.shared();
        shared.edited_since = shared.edited_since.map(|_| until);
    }

    /// Parts go out under the file's key from now on.
    pub(crate) fn set_stream(&self) {
        self.shared().pending.is_stream = true;
    }

    pub(crate) fn set_new(&self, is_new: bool) {
        self.shared().is_new = is_new;
    }

    /// Whether it was made by who has it open, and nothing of it was published yet.
    pub(crate) fn is_new(&self) -> bool {
        self.shared().is_new
    }

    pub(crate) fn set_linkable(&self, is_linkable: bool) {
        self.shared().is_linkable = is_linkable;
    }

    pub(crate) fn is_linkable(&self) -> bool {
        self.shared().is_linkable
    }

    /// Content was named: the next `close` or `fsync` makes sure that it stays so.
    pub(crate) fn has_named(&self) {
        self.names_wait.store(true, Ordering::Release);
    }

    /// Whether content was named that need not survive the loss of power yet.
    pub(crate) fn names_wait(&self) -> bool {
        self.names_wait.load(Ordering::Acquire)
    }

    /// The names survive. Said by who holds the work.
    pub(crate) fn names_are_synced(&self) {
        self.names_wait.store(false, Ordering::Release);
    }

    /// Notes the headers and tags stored with an object.
    pub(crate) fn carries(&self, etag: &ETag, described: Described, stored_at: Moment) {
        self.shared().carried = Some(Carried { of: etag.clone(), described, stored_at });
    }

    /// The headers and tags of an object, if it is the one we stored last, and when that was.
    pub(crate) fn carried(&self, etag: &ETag) -> Option<(Described, Moment)> {
        let shared = self.shared();
        let carried = shared.carried.as_ref().filter(|carried| carried.of == *etag)?;
        Some((carried.described.clone(), carried.stored_at))
    }

    /// Its writes lost in a conflict with this id.
    pub(crate) fn lost_in(&self, conflict: &str) {
        self.shared().conflict = Some(conflict.to_owned());
    }

    /// Its writes lost in a conflict, and who made them does not know: whoever has it open must not go on.
    pub(crate) fn lost_unheard(&self) {
        let mut shared = self.shared();
        shared.lineage += 1;
        self.lost_before.store(shared.lineage, Ordering::Release);
    }

    /// The conflict in which its writes lost last.
    pub(crate) fn conflict(&self) -> Option<String> {
        self.shared().conflict.clone()
    }

    /// An upload begins.
    pub(crate) fn tries(&self, attributes: &Attributes, size_bytes: u64) {
        let mut shared = self.shared();
        let surplus = (shared.tried.len() + 1).saturating_sub(TRIED_MAX);
        shared.tried.drain(..surplus);
        shared.tried.push((size_bytes, attributes.user.clone()));
    }

    /// Whether an object is of an upload that was not heard of.
    pub(crate) fn has_tried(&self, attributes: &Attributes, size_bytes: u64) -> bool {
        let is = |(size, user): &(u64, _)| *size == size_bytes && *user == attributes.user;
        // What does not say when it was written may be anybody's.
        headers::has_mtime(attributes) && self.shared().tried.iter().any(is)
    }

    /// Whether any upload was not heard of.
    pub(crate) fn has_tried_any(&self) -> bool {
        !self.shared().tried.is_empty()
    }

    /// Its object is being deleted.
    pub(crate) fn tries_removal(&self) {
        self.shared().may_be_removed = true;
    }

    /// Whether its object may have been deleted here, and nobody heard of it.
    pub(crate) fn may_be_removed(&self) -> bool {
        self.shared().may_be_removed
    }

    /// Whatever was tried, it is known what lies there now.
    pub(crate) fn forget_tried(&self) {
        let mut shared = self.shared();
        shared.tried.clear();
        shared.may_be_removed = false;
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
pub(crate) struct OpenFiles {
    open: Mutex<BTreeMap<Ino, (Arc<OpenFile>, usize)>>,
    /// Files that were closed, or kept their name, though something was stored or deleted of which nobody heard. No more
    /// than [`UNHEARD_MAX`].
    unheard: Mutex<BTreeSet<Ino>>,
}

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

    /// A file was stored or deleted, and nobody heard whether that succeeded.
    pub(crate) fn went_unheard(&self, ino: Ino) {
        let mut unheard = self.unheard.lock().unwrap_or_else(PoisonError::into_inner);
        unheard.insert(ino);
        if unheard.len() > UNHEARD_MAX {
            unheard.pop_first();
        }
    }

    /// Whether that was so, until now: who asks looks.
    pub(crate) fn take_unheard(&self, ino: Ino) -> bool {
        self.unheard.lock().unwrap_or_else(PoisonError::into_inner).remove(&ino)
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

/// One user of an open file. Dropping it closes the file as well: a call that is cut off, as its client disconnects,
/// leaves nothing open.
#[derive(Debug)]
pub(crate) struct FileUser {
    fs: Weak<Filesystem>,
    file: Arc<OpenFile>,
    is_open: bool,
}

impl FileUser {
    pub(crate) fn new(fs: Weak<Filesystem>, file: Arc<OpenFile>) -> Self {
        Self { fs, file, is_open: true }
    }

    /// Closes the file, and returns when that is done.
    pub(crate) async fn close(mut self) -> Result<()> {
        self.is_open = false;
        match self.fs.upgrade() {
            Some(fs) => fs.close_file(&self.file).await,
            None => Ok(()),
        }
    }

    /// Hands the file over to a handle, whose release closes it.
    pub(crate) fn keep(mut self) -> Arc<OpenFile> {
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
        let Some(fs) = self.fs.upgrade().filter(|_| self.is_open) else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            fs.files.close(self.file.ino);
            return;
        };
        let file = self.file.clone();
        runtime.spawn(async move {
            if let Err(error) = fs.close_file(&file).await {
                tracing::warn!(ino = %file.ino, %error, "a file could not be closed");
            }
        });
    }
}

/// One `open` of a file.
#[derive(Debug)]
pub(crate) struct FileHandle {
    pub(crate) file: Arc<OpenFile>,
    pub(crate) is_writable: bool,
    pub(crate) is_readable: bool,
    /// Its reads change no access time (`O_NOATIME`).
    is_unseen: bool,
    /// When its reads last made somebody look at the access time.
    looked_at_atime: AtomicI64,
    pub(crate) ahead: Mutex<Readahead>,
    /// The version that its reads are of.
    pub(crate) version: Arc<Version>,
    /// The lineage when it was opened.
    opened_at: u64,
}

impl FileHandle {
    /// `flags` are `open`'s.
    pub(crate) fn new(file: Arc<OpenFile>, version: Arc<Version>, flags: i32) -> Self {
        let opened_at = version.lineage();
        Self {
            file,
            is_writable: flags & libc::O_ACCMODE != libc::O_RDONLY,
            is_readable: flags & libc::O_ACCMODE != libc::O_WRONLY,
            is_unseen: flags & libc::O_NOATIME != 0,
            looked_at_atime: AtomicI64::new(i64::MIN),
            ahead: Mutex::default(),
            version,
            opened_at,
        }
    }

    /// Begins a read: the bytes to read, and the guard that says whether they were handed out.
    pub(crate) async fn begin_read(&self) -> Result<(Reading<'_>, Option<Arc<Pin>>)> {
        match self.version.wait(|| self.file.begin_read(&self.version)).await {
            (Begin::Now, pin) => Ok((Reading::of(&self.version), pin)),
            (Begin::Later | Begin::Stale, _) => Err(Error::Stale(
                "it was overwritten in the bucket after it had been read through this handle".into(),
            )),
        }
    }

    /// Bytes were written through this handle: pages of them may lie in the page cache above, as if they had been read.
    pub(crate) fn wrote(&self) {
        if !self.version.is_read()
            && let (Begin::Now, _) = self.file.begin_read(&self.version)
        {
            Reading::of(&self.version).succeed();
        }
    }

    /// Whether a length is that of other bytes than it reads: the names say so a moment before the file is pinned to them.
    pub(crate) fn has_other_length(&self, size_bytes: u64) -> bool {
        let pin = self.file.pin().0;
        !self.file.pending().is_edited
            && self.version.is_read()
            && pin.is_some_and(|pin| pin.size_bytes != size_bytes)
    }

    /// Whether its next read gives ESTALE, as other bytes took the place of those that it reads.
    pub(crate) fn is_stale(&self) -> bool {
        let (_, lineage) = self.file.pin();
        self.version.is_read() && self.version.lineage() != lineage
    }

    /// Whether a read at `now` is worth a look at the access time: most reads follow another closely.
    pub(crate) fn notes_read(&self, atime: Atime, now: Timestamp) -> bool {
        let last = self.looked_at_atime.load(Ordering::Relaxed);
        match atime {
            _ if self.is_unseen => false,
            Atime::Off => false,
            Atime::Strict => true,
            Atime::Relatime if now.0.saturating_sub(last) < ATIME_LOOK_EVERY_NS => false,
            Atime::Relatime => {
                self.looked_at_atime.store(now.0, Ordering::Relaxed);
                true
            }
        }
    }

    /// Whether writes through it may have lost in a conflict that it has not heard of.
    pub(crate) fn has_lost(&self) -> bool {
        self.opened_at < self.file.lost_before.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s228_of_files_that_nobody_heard_of_so_many_are_remembered() {
        let files = OpenFiles::default();
        let last = UNHEARD_MAX as u64 + 2;
        (2..=last).for_each(|ino| files.went_unheard(Ino(ino)));
        assert!(!files.take_unheard(Ino(2)), "one too many");
        assert!(files.take_unheard(Ino(3)) && files.take_unheard(Ino(last)));
    }
}
