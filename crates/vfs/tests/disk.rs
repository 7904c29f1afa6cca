//! Failures of the disk that holds the metadata: it is full at times, and unsynced changes are lost with the power.

use crate::world::{Bucket, CHUNKED, MIB, errno, pattern};
use meta::{
    Commit, CommitError, Engine, EngineError, KeyRange, LogError, LoggedOp, MemoryEngine, Reader, Rows,
    RunBuilder, Seqno, Versioned,
};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vfs::Mapping;

/// An engine whose disk can be full, and that counts unsynced commits.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    tables: Arc<MemoryEngine>,
    is_full: AtomicBool,
    cannot_sync: AtomicBool,
    unsynced: AtomicU64,
    /// Commits until the disk is full; 0: unlimited.
    room: AtomicU64,
    /// Number of records read.
    read: Arc<AtomicU64>,
    /// Number of records written and deleted.
    written: AtomicU64,
    /// Maximum number of ops in one commit.
    largest_commit: AtomicU64,
}

/// Tables that count the records read.
struct Counted(Arc<dyn Reader>, Arc<AtomicU64>);

impl Reader for Counted {
    fn get(&self, key: &[u8]) -> Result<Option<Versioned>, EngineError> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.get(key)
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Versioned>>, EngineError> {
        self.1.fetch_add(keys.len() as u64, Ordering::SeqCst);
        self.0.multi_get(keys)
    }

    fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Rows, EngineError> {
        let rows = self.0.scan(from, to, limit)?;
        self.1.fetch_add(rows.len() as u64, Ordering::SeqCst);
        Ok(rows)
    }

    fn last(&self, range: &KeyRange) -> Result<Option<(Vec<u8>, Versioned)>, EngineError> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.last(range)
    }
}

impl Disk {
    /// Returns the number of records read, and of records written or deleted.
    pub(crate) fn records(&self) -> (u64, u64) {
        (self.read.load(Ordering::SeqCst), self.written.load(Ordering::SeqCst))
    }

    /// Returns the maximum number of ops in one commit.
    pub(crate) fn largest_commit(&self) -> u64 {
        self.largest_commit.load(Ordering::SeqCst)
    }

    fn fill(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::SeqCst);
    }

    /// Makes the disk full after a number of commits, from 1; 0: never.
    pub(crate) fn fill_after(&self, commits: u64) {
        self.room.store(commits, Ordering::SeqCst);
        self.fill(false);
    }

    fn counted(&self) -> Counted {
        Counted(self.tables.clone(), self.read.clone())
    }

    fn unsynced(&self) -> u64 {
        self.unsynced.load(Ordering::SeqCst)
    }
}

impl Reader for Disk {
    fn get(&self, key: &[u8]) -> Result<Option<Versioned>, EngineError> {
        self.counted().get(key)
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Versioned>>, EngineError> {
        self.counted().multi_get(keys)
    }

    fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Rows, EngineError> {
        self.counted().scan(from, to, limit)
    }

    fn last(&self, range: &KeyRange) -> Result<Option<(Vec<u8>, Versioned)>, EngineError> {
        self.counted().last(range)
    }
}

impl Engine for Disk {
    fn snapshot_with_head(&self) -> Result<(Arc<dyn Reader>, Seqno), EngineError> {
        let (snapshot, head) = self.tables.snapshot_with_head()?;
        Ok((Arc::new(Counted(snapshot, self.read.clone())), head))
    }

    fn commit(&self, commit: Commit) -> Result<Seqno, CommitError> {
        let room = self.room.load(Ordering::SeqCst);
        if room > 0 {
            self.room.store(room - 1, Ordering::SeqCst);
            self.fill(room == 1);
        }
        if self.is_full.load(Ordering::SeqCst) {
            return Err(EngineError::Unavailable("the disk is full on demand".into()).into());
        }
        self.unsynced.fetch_add(1, Ordering::SeqCst);
        let written = commit.puts.len() + commit.deletes.len() + commit.merges.len();
        self.written.fetch_add(written as u64, Ordering::SeqCst);
        self.largest_commit.fetch_max(commit.ops.len() as u64, Ordering::SeqCst);
        self.tables.commit(commit)
    }

    fn sync(&self) -> Result<(), EngineError> {
        if self.cannot_sync.load(Ordering::SeqCst) {
            return Err(EngineError::Unavailable("no sync on demand".into()));
        }
        self.unsynced.store(0, Ordering::SeqCst);
        Ok(())
    }

    fn log_after(&self, cursor: Seqno, limit: usize) -> Result<Vec<LoggedOp>, LogError> {
        self.tables.log_after(cursor, limit)
    }

    fn begin_run(&self) -> Result<Box<dyn RunBuilder<'_> + '_>, EngineError> {
        self.tables.begin_run()
    }

    fn register(&self, consumer: &str, at: Seqno) -> Result<(), LogError> {
        self.tables.register(consumer, at)
    }

    fn cursor(&self, consumer: &str) -> Result<Seqno, LogError> {
        self.tables.cursor(consumer)
    }

    fn advance(&self, consumer: &str, to: Seqno) -> Result<(), LogError> {
        self.tables.advance(consumer, to)
    }

    fn forget_consumer(&self, consumer: &str) -> Result<(), LogError> {
        self.tables.forget_consumer(consumer)
    }

    fn head(&self) -> Seqno {
        self.tables.head()
    }

    fn memory_bytes(&self) -> u64 {
        self.tables.memory_bytes()
    }
}

/// A new file's memory was released when its upload succeeded. When the metadata then could not name the object, a read of the
/// open file panicked, and the next close stored nothing under the file's length (worlds of files, in which the disk of the
/// metadata is full at times).
#[tokio::test]
async fn s114_a_stored_object_that_cannot_be_named_is_not_lost() {
    for mapping in [Mapping::Whole, CHUNKED] {
        let disk = Arc::new(Disk::default());
        let world = Bucket::by_inode_on(mapping, disk.clone()).await.mount(|_| {}).await;
        let body = pattern(2 * MIB + 5);
        let handle = world.create("file").await.unwrap();
        world.write_all(handle, &body).await.unwrap();
        disk.fill(true);
        assert_eq!(errno(world.fs.fsync(handle).await), libc::EIO);
        assert_eq!(world.read_all(handle).await.unwrap(), body);
        disk.fill(false);
        world.fs.write(handle, 5, b"more").await.unwrap();
        world.close(handle).await.unwrap();
        let expected = [&body[..5], b"more", &body[9..]].concat();
        assert_eq!(world.remount().await.read_file("file").await.unwrap(), expected);
        world.assert_healthy().await;
    }
}

/// A close had nothing to publish after a read had completed the stream, or after an earlier close had named the content and
/// failed to sync: it returned 0, although a loss of power could still lose the content (world of files 393).
#[tokio::test]
async fn s11_s113_a_close_syncs_content_named_before() {
    let disk = Arc::new(Disk::default());
    let world = Bucket::by_inode_on(Mapping::Whole, disk.clone()).await;
    let world = world.mount(|config| config.part_size_bytes = MIB as u64).await;
    let stream = world.create("stream").await.unwrap();
    world.write_all(stream, &pattern(3 * MIB)).await.unwrap();
    world.read_all(stream).await.unwrap();
    assert!(disk.unsynced() > 0);
    world.fs.flush(stream).await.unwrap();
    assert_eq!(disk.unsynced(), 0);

    let small = world.create("small").await.unwrap();
    world.fs.write(small, 0, b"x").await.unwrap();
    disk.cannot_sync.store(true, Ordering::SeqCst);
    assert_eq!(errno(world.fs.flush(small).await), libc::EIO);
    disk.cannot_sync.store(false, Ordering::SeqCst);
    world.fs.flush(small).await.unwrap();
    assert_eq!(disk.unsynced(), 0);
}

/// Removed names were not synced: a loss of power brought a name back, which then showed whatever was at the file's path by
/// then (worlds of files 80086 and 261346).
#[tokio::test]
async fn s93_removals_of_names_that_only_the_metadata_has_are_synced() {
    let disk = Arc::new(Disk::default());
    let world = Bucket::with_metadata_on(disk.clone()).mount(|_| {}).await;
    world.write_file("file", b"one").await.unwrap();
    world.link("file", "second").await.unwrap();
    world.rename_at_once("second", "third", 0).await.unwrap();
    assert_eq!(disk.unsynced(), 0);
    world.write_file("other", b"two").await.unwrap();
    world.rename_at_once("other", "third", 0).await.unwrap();
    assert_eq!(disk.unsynced(), 0);
    world.fs.moves().wait_until_complete().await;
    world.link("file", "fourth").await.unwrap();
    world.unlink("fourth").await.unwrap();
    assert_eq!(disk.unsynced(), 0);
}

/// After a failed promotion of another name the old object stayed and counted as the file's under that name, until the file was
/// written; then the name showed the old bytes again (world of files 33370).
#[tokio::test]
async fn s93_a_link_promotion_on_a_full_disk_changes_nothing() {
    let disk = Arc::new(Disk::default());
    let world = Bucket::with_metadata_on(disk.clone()).mount(|_| {}).await;
    world.write_file("first", b"one").await.unwrap();
    world.link("first", "second").await.unwrap();
    for room in [0, 1] {
        disk.room.store(room, Ordering::SeqCst);
        let unlinked = world.unlink("first").await;
        disk.fill(false);
        world.expire();
        if unlinked.is_ok() {
            assert_eq!(world.names("/").await.unwrap(), ["second"]);
            world.link("second", "first").await.unwrap();
        }
        assert_eq!(world.names("/").await.unwrap(), ["first", "second"]);
        assert_eq!(world.ino("first").await.unwrap(), world.ino("second").await.unwrap());
        world.write_file("second", b"two").await.unwrap();
        assert_eq!(world.read_file("first").await.unwrap(), b"two");
    }
    world.assert_healthy().await;
}

/// A new file lost a conflict, or its writes were dropped, while the disk was full. The file kept its name, which hid the other client's object;
/// when the name was removed, that object stayed in the bucket (world 20000632 of both sides).
#[tokio::test]
async fn s52_a_new_file_without_its_bytes_does_not_keep_its_name_after_a_full_disk() {
    for (room, is_removed) in (1..5).flat_map(|room| [(room, false), (room, true)]) {
        let disk = Arc::new(Disk::default());
        let bucket = Bucket::with_metadata_on(disk.clone());
        let world = bucket.mount(|_| {}).await;
        let handle = world.create("file").await.unwrap();
        world.fs.write(handle, 0, b"ours").await.unwrap();
        bucket.put("file", "theirs").await;
        disk.fill_after(room);
        let expected = if room == 1 { libc::EIO } else { libc::ESTALE };
        assert_eq!(errno(world.close(handle).await), expected, "{room}");
        disk.fill_after(0);
        match is_removed {
            true => world.unlink("file").await.unwrap(),
            false => assert_eq!(world.read_file("file").await.unwrap(), b"theirs", "{room}"),
        }
        assert_eq!(bucket.object("file").await.is_none(), is_removed, "{room}");
    }
}

/// The object that a failed close had stored counted as foreign: the next attempt to save the file ended in `lost+found`, and a
/// rename failed (world 8725 of both sides).
#[tokio::test]
async fn s228_an_object_stored_by_a_failed_close_is_not_foreign() {
    let disk = Arc::new(Disk::default());
    let bucket = Bucket::with_metadata_on(disk.clone());
    let world = bucket.mount(|_| {}).await;
    for (is_new, next) in [true, false]
        .into_iter()
        .flat_map(|is_new| ["rename", "write", "truncate", "unlink", "make anew"].map(|next| (is_new, next)))
    {
        let file = format!("{next} {is_new}");
        if !is_new {
            world.write_file(&file, b"old").await.unwrap();
        }
        let handle = match is_new {
            true => world.create(&file).await.unwrap(),
            false => world.open_handle(&file, libc::O_RDWR | libc::O_TRUNC).await.unwrap(),
        };
        world.fs.write(handle, 0, b"first attempt").await.unwrap();
        disk.fill(true);
        assert_eq!(errno(world.close(handle).await), libc::EIO);
        disk.fill(false);
        match next {
            "rename" => {
                world.rename_at_once(&file, "renamed", 0).await.unwrap();
                world.fs.moves().wait_until_complete().await;
                assert_eq!(world.read_file("renamed").await.unwrap(), b"first attempt", "{file}");
            }
            "write" => {
                world.write_file(&file, b"second attempt").await.unwrap();
                assert_eq!(bucket.object(&file).await.unwrap(), b"second attempt", "{file}");
            }
            "truncate" => {
                world.truncate(&file, 5).await.unwrap();
                assert_eq!(bucket.object(&file).await.unwrap(), b"first", "{file}");
            }
            "unlink" => {
                world.unlink(&file).await.unwrap();
                assert_eq!(bucket.object(&file).await, None, "{file}");
            }
            _ => {
                bucket.delete(&file).await;
                let handle = world.create(&file).await.unwrap();
                world.close(handle).await.unwrap();
                assert_eq!(bucket.object(&file).await.unwrap(), b"", "{file}");
            }
        }
    }
    assert!(world.fs.conflicts().list().is_empty());
    world.assert_healthy().await;
}

/// `stat` of a file of 256,000 chunks took 0.5 s, `open` 1.6 s, and an `fsync` of 4 KiB 0.8 s: each read all extents.
#[tokio::test]
async fn s576_costs_do_not_grow_with_the_number_of_chunks() {
    let costs = async |chunks: u64| {
        let disk = Arc::new(Disk::default());
        let world = Bucket::by_inode_on(CHUNKED, disk.clone()).await.mount(|_| {}).await;
        let Mapping::Chunked { bytes } = CHUNKED else { panic!("no chunks") };
        let handle = world.create("file").await.unwrap();
        for chunk in 0..chunks {
            world.fs.write(handle, chunk * bytes, b"x").await.unwrap();
        }
        world.close(handle).await.unwrap();
        let mut costs = Vec::new();
        let mut cost = |what: &'static str, before: u64| {
            costs.push((what, disk.read.load(Ordering::SeqCst) - before));
            disk.read.load(Ordering::SeqCst)
        };
        let mut at = cost("all so far", 0);
        let attr = world.stat("file").await.unwrap();
        assert_eq!(attr.size_bytes, (chunks - 1) * bytes + 1);
        at = cost("stat", at);
        world.chmod("file", 0o600).await.unwrap();
        at = cost("chmod", at);
        let handle = world.open_handle("file", libc::O_RDWR).await.unwrap();
        at = cost("open", at);
        let middle = chunks / 2 * bytes;
        assert_eq!(world.fs.read(handle, middle, 2).await.unwrap().as_ref(), b"x\0");
        at = cost("read", at);
        for _ in 0..3 {
            world.fs.write(handle, middle + 4096, &[7; 4096]).await.unwrap();
            world.fs.fsync(handle).await.unwrap();
        }
        cost("three fsyncs", at);
        world.close(handle).await.unwrap();
        let body = world.read_file("file").await.unwrap();
        assert_eq!(body[middle as usize..][..3], *b"x\0\0");
        assert_eq!(body[middle as usize + 4096..][..4097], *[&[7; 4096][..], &[0]].concat());
        world.assert_healthy().await;
        costs.split_off(1)
    };
    let (few, many) = (costs(8).await, costs(64).await);
    for ((what, few), (_, many)) in few.into_iter().zip(many) {
        assert!(many <= few + 4, "{what}: {few} records for 8 chunks, {many} for 64");
    }
}

/// Each step read the names of all objects beside a directory of the same name: 9.5 s for 64,000 of them, and one step returned
/// all of them.
#[tokio::test]
async fn objects_beside_directories_are_listed_in_bounded_steps() {
    let costs = async |count: usize| {
        let disk = Arc::new(Disk::default());
        let bucket = Bucket::with_metadata_on(disk.clone());
        for number in 0..count {
            bucket.put(format!("{number:04}"), b"x").await;
            bucket.put(format!("{number:04}/inside"), b"x").await;
        }
        let world = bucket.mount(|_| {}).await;
        assert_eq!(world.names("").await.unwrap().len(), 2 * count);
        let before = disk.read.load(Ordering::SeqCst);
        let handle = world.fs.opendir(vfs::Ino::ROOT).await.unwrap();
        let (mut cookie, mut listed) = (0, 0);
        loop {
            let batch = world.fs.readdir(handle, cookie, 40, false).await.unwrap();
            assert!(batch.len() <= 160, "one step returned {} entries", batch.len());
            let Some(last) = batch.last() else { break };
            (cookie, listed) = (last.cookie, listed + batch.len());
        }
        assert_eq!(listed, 2 + 2 * count, "with `.` and `..`");
        (disk.read.load(Ordering::SeqCst) - before) / count as u64
    };
    let (few, many) = (costs(200).await, costs(2000).await);
    assert!(many <= few + few / 4, "{few} records per name of 200 names, {many} per name of 2000");
}
