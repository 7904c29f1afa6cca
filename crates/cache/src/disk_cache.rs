//! The disk cache: segments of objects as files of one directory.

use rustix::fs::{Mode, OFlags, fstatvfs};
use std::fmt;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use store::{Clock, ETag, ObjectKey};

use crate::eviction::evict;
use crate::identity::{ObjectId, SegmentId};
use crate::segment::{Found, PAGE_BYTES, SEGMENT_BYTES, Segment};

/// Name of the directory with the files. Another version of their format gets another name.
const FORMAT: &str = "segments-1";
/// Number of directories in it, each with an equal share of the limit.
const SHARDS: u64 = 16;
/// A file's time of last use is updated when it is older than this.
const USE_RECORDED_EVERY: Duration = Duration::from_secs(60);
/// The cache leaves one `FREE_SHARE`th of the disk free.
const FREE_SHARE: u64 = 20;
/// A directory is measured again after other processes may have added as much as one `MEASURED_SHARE`th of its limit.
const MEASURED_SHARE: u64 = 8;
/// Value of `used` before the first measurement, and while the disk is full: more than any limit.
const UNMEASURED: u64 = u64::MAX;

/// A cache on the local disk. All calls block.
pub struct DiskCache {
    shards: Vec<Shard>,
    /// The server and bucket of the objects.
    source: String,
    clock: Arc<dyn Clock>,
    figures: Figures,
    has_warned: AtomicBool,
}

/// One of the directories.
#[derive(Debug)]
struct Shard {
    dir: PathBuf,
    limit_bytes: u64,
    /// Bytes of its files when they were last measured, and what this process has added since.
    used: AtomicU64,
    added: AtomicU64,
    /// Held during a measurement, so that one thread at a time measures.
    measuring: Mutex<()>,
}

#[derive(Debug, Default)]
struct Figures {
    hit_bytes: AtomicU64,
    stored_bytes: AtomicU64,
    evicted_bytes: AtomicU64,
    damaged: AtomicU64,
    failures: AtomicU64,
}

/// Figures of a cache since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes that were read.
    pub hit_bytes: u64,
    /// Bytes that were stored, in whole pages.
    pub stored_bytes: u64,
    /// Bytes of the files that this process deleted to stay within the limit.
    pub evicted_bytes: u64,
    /// Segments with a page that had a wrong checksum. They were deleted.
    pub damaged: u64,
    /// Calls of the disk that failed. What could not be read is read from the store.
    pub failures: u64,
    /// Bytes of all files, those of other processes included, as far as they have been measured.
    pub used_bytes: u64,
    /// Limit of these bytes.
    pub limit_bytes: u64,
}

impl fmt::Debug for DiskCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskCache")
            .field("source", &self.source)
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

impl DiskCache {
    /// Opens the cache in a directory, which is created if it is missing, and which any number of processes may use. `source` names the server
    /// and the bucket: objects of one source with equal keys and etags have equal bytes. Fails if other users could change the
    /// directory.
    pub fn open(dir: &Path, limit_bytes: u64, source: &str, clock: Arc<dyn Clock>) -> io::Result<Self> {
        // The process may change its working directory.
        let dir = std::path::absolute(dir)?.join(FORMAT);
        let shard_dirs: Vec<_> = (0..SHARDS).map(|number| dir.join(format!("{number:x}"))).collect();
        for shard in &shard_dirs {
            DirBuilder::new().recursive(true).mode(0o700).create(shard)?;
        }
        check_owner(&dir)?;
        let shard = |dir| Shard {
            dir,
            limit_bytes: limit_bytes / SHARDS,
            used: AtomicU64::new(UNMEASURED),
            added: AtomicU64::new(0),
            measuring: Mutex::new(()),
        };
        Ok(Self {
            shards: shard_dirs.into_iter().map(shard).collect(),
            source: source.to_owned(),
            clock,
            figures: Figures::default(),
            has_warned: AtomicBool::new(false),
        })
    }

    /// Returns the identity of an object; `etag` is `None` if its key alone identifies it. Returns `None` for an object that is not in its
    /// bucket yet, and gets another etag there.
    pub fn object(&self, key: &ObjectKey, etag: Option<&ETag>) -> Option<ObjectId> {
        let is_stored = !etag.is_some_and(ETag::is_provisional);
        is_stored.then(|| ObjectId::new(&self.source, key, etag))
    }

    /// Returns the figures.
    pub fn counts(&self) -> Counts {
        let read = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        Counts {
            hit_bytes: read(&self.figures.hit_bytes),
            stored_bytes: read(&self.figures.stored_bytes),
            evicted_bytes: read(&self.figures.evicted_bytes),
            damaged: read(&self.figures.damaged),
            failures: read(&self.figures.failures),
            limit_bytes: self.shards.iter().map(|shard| shard.limit_bytes).sum(),
            used_bytes: self.shards.iter().filter_map(Shard::used_bytes).sum(),
        }
    }

    /// Measures all directories, and evicts files if they take more than the limit, which may have been lowered. Otherwise a directory is
    /// measured when something is stored in it.
    pub fn measure_all(&self) {
        for shard in &self.shards {
            self.ok_or_count(self.measure_if(shard, |_| true));
        }
    }

    /// Reads a range of an object into `into`, which has its length. Returns whether all of it was there; otherwise the content of `into`
    /// has no meaning.
    pub fn read(&self, object: ObjectId, range: Range<u64>, into: &mut [u8]) -> bool {
        let mut rest = into;
        for (id, within) in segments(object, range.clone()) {
            let (part, behind) = rest.split_at_mut(within.len());
            if !self.read_segment(id, &within, part) {
                return false;
            }
            rest = behind;
        }
        self.figures.hit_bytes.fetch_add(range.end - range.start, Ordering::Relaxed);
        true
    }

    /// Returns a segment of an object if all `len` bytes of it are there, for another cache.
    pub fn segment(&self, object: ObjectId, number: u64, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.read_segment(object.segment(number), &(0..len), &mut bytes).then_some(bytes)
    }

    /// Returns whether a range is there. Reads none of it, so it may turn out to be damaged.
    pub fn contains(&self, object: ObjectId, range: Range<u64>) -> bool {
        segments(object, range).all(|(id, within)| {
            let found = self.open_to_read(id).and_then(|segment| match segment {
                Some(segment) => segment.contains(&within),
                None => Ok(false),
            });
            self.ok_or_count(found).unwrap_or(false)
        })
    }

    /// Stores bytes of an object that begin at an offset. Returns whether they are there now: a full or failing disk is not an error of the caller.
    pub fn store(&self, object: ObjectId, start: u64, data: &[u8]) -> bool {
        let mut rest = data;
        segments(object, start..start + data.len() as u64).all(|(id, within)| {
            let (part, behind) = rest.split_at(within.len());
            rest = behind;
            self.ok_or_count(self.store_segment(id, within.start, part)).unwrap_or(false)
        })
    }

    fn read_segment(&self, id: SegmentId, within: &Range<usize>, into: &mut [u8]) -> bool {
        let read = self.open_to_read(id).and_then(|segment| {
            let Some(segment) = segment else { return Ok(Found::Missing) };
            let found = segment.read(within, into)?;
            if found == Found::All {
                self.record_use(segment.file())?;
            }
            Ok(found)
        });
        match self.ok_or_count(read) {
            Some(Found::All) => true,
            Some(Found::Damaged) => {
                self.discard_damaged(id);
                false
            }
            Some(Found::Missing) | None => false,
        }
    }

    fn store_segment(&self, id: SegmentId, start: usize, data: &[u8]) -> io::Result<bool> {
        let shard = self.shard(id);
        if !self.make_room(shard)? {
            return Ok(false);
        }
        let path = shard.dir.join(id.file_name());
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = File::from(rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?);
        match Segment::new(id, file).write(start, data) {
            Ok(pages) => {
                let added_bytes = pages * PAGE_BYTES as u64;
                shard.added.fetch_add(added_bytes, Ordering::Relaxed);
                self.figures.stored_bytes.fetch_add(added_bytes, Ordering::Relaxed);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                self.measure_if(shard, |_| true)?;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns whether a directory has room. Evicts files if not.
    fn make_room(&self, shard: &Shard) -> io::Result<bool> {
        if !shard.has_room() {
            // Another thread may measure it meanwhile.
            self.measure_if(shard, |shard| !shard.has_room())?;
        }
        Ok(shard.used.load(Ordering::Relaxed) <= shard.limit_bytes)
    }

    /// Measures a directory, and evicts files if they take more than its limit or if the disk is nearly full; one thread at a time, and only
    /// if `is_needed` holds when it is this thread's turn.
    fn measure_if(&self, shard: &Shard, is_needed: impl FnOnce(&Shard) -> bool) -> io::Result<()> {
        let _measuring = shard.measuring.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_needed(shard) {
            return Ok(());
        }
        let lacking = lacking_bytes(&shard.dir)?;
        let evicted = evict(&shard.dir, |held| shard.limit_bytes.min(held.saturating_sub(lacking / SHARDS)))?;
        self.figures.evicted_bytes.fetch_add(evicted.deleted_bytes, Ordering::Relaxed);
        // A disk that is still too full has no room, whatever the limit is.
        let is_full = lacking > 0 && lacking_bytes(&shard.dir)? > 0;
        shard.used.store(if is_full { UNMEASURED } else { evicted.left_bytes }, Ordering::Relaxed);
        shard.added.store(0, Ordering::Relaxed);
        Ok(())
    }

    fn shard(&self, id: SegmentId) -> &Shard {
        &self.shards[id.shard(SHARDS)]
    }

    fn open_to_read(&self, id: SegmentId) -> io::Result<Option<Segment>> {
        let path = self.shard(id).dir.join(id.file_name());
        match rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(file) => Ok(Some(Segment::new(id, File::from(file)))),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Sets a file's time of last use, unless it was set a short while ago.
    fn record_use(&self, file: &File) -> io::Result<()> {
        let now = self.clock.now().to_system_time();
        let is_recent =
            file.metadata()?.modified()?.checked_add(USE_RECORDED_EVERY).is_some_and(|until| until > now);
        if is_recent { Ok(()) } else { file.set_modified(now) }
    }

    /// Deletes a segment with a wrong checksum. Its bytes are stored again when they are next read from the store.
    fn discard_damaged(&self, id: SegmentId) {
        self.figures.damaged.fetch_add(1, Ordering::Relaxed);
        let path = self.shard(id).dir.join(id.file_name());
        tracing::warn!("deleted {} from the disk cache: its checksum is wrong", path.display());
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => drop(self.ok_or_count::<()>(Err(error))),
            _ => {}
        }
    }

    /// Returns the value of a successful call. Counts a failed call, and logs the first one.
    fn ok_or_count<T>(&self, outcome: io::Result<T>) -> Option<T> {
        outcome
            .inspect_err(|error| {
                self.figures.failures.fetch_add(1, Ordering::Relaxed);
                if !self.has_warned.swap(true, Ordering::Relaxed) {
                    tracing::warn!("the disk cache fails, so that data is read from the store: {error}");
                }
            })
            .ok()
    }
}

impl Shard {
    /// Returns whether a segment may be stored before the directory is measured again.
    fn has_room(&self) -> bool {
        let (used, added) = (self.used.load(Ordering::Relaxed), self.added.load(Ordering::Relaxed));
        used.saturating_add(added) <= self.limit_bytes && added <= self.limit_bytes / MEASURED_SHARE
    }

    fn used_bytes(&self) -> Option<u64> {
        let used = self.used.load(Ordering::Relaxed);
        (used != UNMEASURED).then(|| used + self.added.load(Ordering::Relaxed))
    }
}

/// Returns the segments of a range of an object, each with the part of the segment that the range covers.
fn segments(object: ObjectId, range: Range<u64>) -> impl Iterator<Item = (SegmentId, Range<usize>)> {
    let end = if range.is_empty() { 0 } else { range.end.div_ceil(SEGMENT_BYTES) };
    (range.start / SEGMENT_BYTES..end).map(move |number| {
        let base = number * SEGMENT_BYTES;
        let within = range.start.max(base) - base..range.end.min(base + SEGMENT_BYTES) - base;
        (object.segment(number), within.start as usize..within.end as usize)
    })
}

/// Returns how many bytes must be freed on the disk of a directory so that one [`FREE_SHARE`]th of it is free.
fn lacking_bytes(dir: &Path) -> io::Result<u64> {
    let space = fstatvfs(File::open(dir)?)?;
    let reserve = space.f_blocks / FREE_SHARE;
    Ok(reserve.saturating_sub(space.f_bavail) * space.f_frsize)
}

/// Refuses a directory that other users could change: a checksum is no protection against intent.
fn check_owner(dir: &Path) -> io::Result<()> {
    let found = fs::metadata(dir)?;
    if found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o022 != 0 {
        let reason = format!("{} belongs to another user or can be written by others", dir.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    }
    Ok(())
}
