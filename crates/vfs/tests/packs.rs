//! Packs of which files use less than half are rewritten by a garbage collection.

use crate::disk::Disk;
use crate::world::{Bucket, World};
use bytes::Bytes;
use meta::{Batch, BatchId, Extent, Moment, Op, Stored};
use std::sync::Arc;
use std::time::Duration;
use store::wrap::{Fault, Operation, Rule};
use store::{ETag, ListEntry, ListRequest, ObjectKey, Pages, Timestamp};
use vfs::{Audit, ExportMark, Ino, KeySpace, Mapping, PacksToRewrite, VolumeRecord};

/// Files in a pack.
const FILES: usize = 20;

/// Length of the content of a file.
const BYTES: usize = 1000;

/// Prefix of the keys of all batches' objects.
const BATCHES: &str = ".tenon/batches/";

fn name(pack: usize, file: usize) -> String {
    format!("{pack}-{file}")
}

fn body(pack: usize, file: usize) -> Vec<u8> {
    (0..BYTES).map(|at| (at * 7 + pack * 100 + file) as u8).collect()
}

impl World {
    fn commit(&self, op: &Op) {
        let batches = self.fs.admin().batches();
        batches.names().commit(&batches.context(), op).unwrap();
    }

    /// Makes a pack and the files that use it, as the merge of a batch leaves them.
    async fn make_pack(&self, pack: usize) {
        let key = format!("{BATCHES}0000000000000900/pack-{pack:08x}-0000000000000001");
        let bytes: Vec<u8> = (0..FILES).flat_map(|file| body(pack, file)).collect();
        self.bucket.put(&key, bytes).await;
        for file in 0..FILES {
            self.write_file(name(pack, file), b"").await.unwrap();
            let (etag, key) = (ETag::provisional((pack * FILES + file) as u64), ObjectKey::try_from(&*key));
            let object = Stored { key: Some(key.unwrap()), etag, version: None, last_modified: None };
            let (offset, len) = (0, BYTES as u64);
            let content = vec![Extent { offset, len, object, object_offset: (file * BYTES) as u64 }];
            let (ino, ranges, size_bytes) = (self.ino(name(pack, file)).await.unwrap(), vec![0..len], len);
            self.commit(&Op::Splice { ino, ranges, content, size_bytes, mtime: None });
        }
    }

    /// Opens a batch without changes.
    fn open_batch(&self) -> BatchId {
        let (id, at) = (BatchId(0x5000), Moment::default());
        let lease = Ino(id.0)..Ino(id.0 + 10);
        let record = Batch { dir: Ino::ROOT, lease, began: Timestamp(1), at, outcome: None };
        self.commit(&Op::SetBatch { id, record: Some(record) });
        id
    }

    /// Removes the files of a pack from the number `kept` on.
    async fn remove_from(&self, pack: usize, kept: usize) {
        for file in kept..FILES {
            self.unlink(name(pack, file)).await.unwrap();
        }
    }

    async fn assert_files(&self, pack: usize, files: usize) {
        for file in 0..files {
            assert_eq!(self.read_file(name(pack, file)).await.unwrap(), body(pack, file), "{pack}-{file}");
        }
    }

    /// Rewrites packs and collects garbage. Returns what was rewritten.
    async fn collect(&self) -> vfs::Result<PacksToRewrite> {
        let rewritten = self.fs.admin().rewrite_packs(false).await?;
        self.fs.admin().collect_garbage(false).await?;
        Ok(rewritten)
    }

    /// Fails if the metadata and the bucket disagree.
    async fn assert_sound(&self) {
        let record = VolumeRecord::read(self.bucket.store(), b"").await.unwrap();
        let engine = self.fs.admin().batches().names().engine();
        let keys = KeySpace { record: record.as_ref(), ..KeySpace::default() };
        let audit = Audit::make(&**engine, self.bucket.store(), keys).await.unwrap();
        assert_eq!(audit, Audit::default());
    }

    /// Returns the lengths of all packs.
    async fn packs(&self) -> Vec<u64> {
        let request = ListRequest {
            prefix: Bytes::from_static(BATCHES.as_bytes()),
            limit: 1000,
            ..ListRequest::default()
        };
        let entries = Pages::new(self.bucket.store(), request).collect().await.unwrap().into_iter();
        let sizes = entries.map(|entry| match entry {
            ListEntry::Object(found) => found.size_bytes,
            ListEntry::Prefix(prefix) => panic!("{prefix:?}"),
        });
        sizes.collect()
    }
}

async fn world() -> World {
    Bucket::by_inode(Mapping::Whole).await.mount(|_| {}).await
}

#[tokio::test]
async fn s620_packs_of_which_files_use_less_than_half_are_rewritten_as_one() {
    let world = world().await;
    for pack in 0..3 {
        world.make_pack(pack).await;
    }
    assert_eq!(world.collect().await.unwrap(), PacksToRewrite::default());
    world.remove_from(0, 8).await;
    world.remove_from(1, 3).await;
    world.remove_from(2, 12).await;
    let before = world.stat(name(0, 0)).await.unwrap();
    let found = world.fs.admin().rewrite_packs(true).await.unwrap();
    let full = (FILES * BYTES) as u64;
    assert_eq!(found, PacksToRewrite { count: 2, size_bytes: 2 * full, used_bytes: 11_000 });
    assert_eq!(world.packs().await, [full, full, full], "a dry run changes nothing");
    assert_eq!(world.collect().await.unwrap(), found);
    assert_eq!(world.packs().await, [11_000, full]);
    assert_eq!(world.stat(name(0, 0)).await.unwrap(), before, "no attribute has changed");
    for (pack, files) in [(0, 8), (1, 3), (2, 12)] {
        world.assert_files(pack, files).await;
        world.remount().await.assert_files(pack, files).await;
    }
    assert_eq!(world.collect().await.unwrap(), PacksToRewrite::default());
    world.assert_sound().await;
    // The new pack is like any other.
    for file in 1..8 {
        world.unlink(name(0, file)).await.unwrap();
    }
    assert_eq!(world.collect().await.unwrap().count, 1);
    assert_eq!(world.packs().await, [4000, full]);
    world.assert_files(1, 3).await;
    world.assert_healthy().await;
}

/// A file keeps its bytes in the old pack while it has unpublished writes, and a reader continues to read.
#[tokio::test]
async fn s621_open_files_are_read_and_written_on_while_their_pack_is_rewritten() {
    let world = world().await;
    world.make_pack(0).await;
    world.remove_from(0, 4).await;
    let reader = world.open_handle(name(0, 0), libc::O_RDONLY).await.unwrap();
    assert_eq!(world.fs.read(reader, 0, 10).await.unwrap(), body(0, 0)[..10]);
    let late = world.open_handle(name(0, 1), libc::O_RDONLY).await.unwrap();
    let writer = world.open_handle(name(0, 2), libc::O_RDWR).await.unwrap();
    world.fs.write(writer, 500, b"edited").await.unwrap();
    let orphan = world.open_handle(name(0, 3), libc::O_RDONLY).await.unwrap();
    world.unlink(name(0, 3)).await.unwrap();
    let answer = world.bucket.late.hold(Operation::Put);
    let fs = world.fs.clone();
    let rewriting = tokio::spawn(async move { fs.admin().rewrite_packs(false).await });
    let stored = answer.done().await;
    // The bytes are copied, and the files do not refer to the copies yet.
    world.write_file("other", b"other").await.unwrap();
    world.truncate(name(0, 1), 300).await.unwrap();
    drop(stored);
    assert_eq!(rewriting.await.unwrap().unwrap().count, 1);
    world.fs.admin().collect_garbage(false).await.unwrap();
    assert_eq!(world.read_all(reader).await.unwrap(), body(0, 0));
    assert_eq!(world.read_all(late).await.unwrap(), body(0, 1)[..300]);
    assert_eq!(world.read_all(orphan).await.unwrap(), body(0, 3));
    let edited = [&body(0, 2)[..500], b"edited", &body(0, 2)[506..]].concat();
    assert_eq!(world.read_all(writer).await.unwrap(), edited);
    for handle in [reader, late, writer, orphan] {
        world.close(handle).await.unwrap();
    }
    world.collect().await.unwrap();
    world.collect().await.unwrap();
    assert_eq!(world.read_file(name(0, 0)).await.unwrap(), body(0, 0));
    assert_eq!(world.read_file(name(0, 1)).await.unwrap(), body(0, 1)[..300]);
    assert_eq!(world.read_file(name(0, 2)).await.unwrap(), edited);
    assert!(world.packs().await.iter().sum::<u64>() <= 2 * 2300, "{:?}", world.packs().await);
    world.assert_sound().await;
    world.assert_healthy().await;
}

/// A collection that ends anywhere, at a request or a commit, loses nothing, and the next one finishes its work.
#[tokio::test]
async fn s622_a_collection_can_be_interrupted_anywhere() {
    let mut interrupted = 0;
    for step in 0..24 {
        let disk = Arc::new(Disk::default());
        let world = Bucket::by_inode_on(Mapping::Whole, disk.clone()).await.mount(|_| {}).await;
        for pack in 0..2 {
            world.make_pack(pack).await;
            world.remove_from(pack, 5).await;
        }
        world.fs.admin().wait_for_deletions().await;
        match step {
            0..12 => disk.fill_after(step + 1),
            12..15 => {
                world.bucket.faults.add(Rule::new(Fault::unavailable()).on(Operation::Get).after(step - 12))
            }
            15..18 => {
                world.bucket.faults.add(Rule::new(Fault::unavailable()).on(Operation::Put).after(step - 15))
            }
            18..20 => {
                world.bucket.faults.add(Rule::new(Fault::lost_reply()).on(Operation::Put).after(step - 18))
            }
            _ => {
                world.bucket.faults.add(Rule::new(Fault::unavailable()).on(Operation::List).after(step - 20))
            }
        }
        interrupted += u64::from(world.collect().await.is_err());
        disk.fill_after(0);
        world.bucket.faults.clear();
        // The process is gone, and with it all that only its memory had.
        let world = world.remount().await;
        for pack in 0..2 {
            world.assert_files(pack, 5).await;
        }
        world.collect().await.unwrap();
        world.collect().await.unwrap();
        for pack in 0..2 {
            world.assert_files(pack, 5).await;
        }
        assert!(
            world.packs().await.iter().sum::<u64>() <= 2 * 10 * BYTES as u64,
            "{step}: {:?}",
            world.packs().await
        );
        world.assert_sound().await;
    }
    assert!(interrupted >= 14, "only {interrupted} collections were interrupted");
}

/// An open batch sees the volume as it was when it began, so packs that files no longer use stay.
#[tokio::test]
async fn s623_packs_stay_while_a_batch_is_open() {
    let world = world().await;
    for pack in 0..2 {
        world.make_pack(pack).await;
    }
    let id = world.open_batch();
    world.remove_from(0, 3).await;
    world.remove_from(1, 0).await;
    assert_eq!(world.collect().await.unwrap(), PacksToRewrite::default());
    assert_eq!(world.packs().await.len(), 2);
    world.commit(&Op::SetBatch { id, record: None });
    assert_eq!(world.collect().await.unwrap().count, 1);
    assert_eq!(world.packs().await, [3000]);
    world.assert_files(0, 3).await;
    world.assert_sound().await;
}

/// Regression: the wait for deletions never ended. An object that a backup released after the wait had begun was kept for the open batch, and
/// kept again each minute.
#[tokio::test(start_paused = true)]
async fn the_wait_for_deletions_ends_while_a_batch_is_open() {
    let world = world().await;
    let mark = Arc::new(ExportMark::default());
    world.fs.admin().delete_after_export(Arc::clone(&mark));
    world.open_batch();
    let export = || mark.advance(world.fs.admin().batches().names().engine().head());
    for number in 0..2 {
        world.write_file(name(0, number), &body(0, number)).await.unwrap();
    }
    let moment = || tokio::time::sleep(Duration::from_secs(1));
    world.unlink(name(0, 0)).await.unwrap();
    moment().await;
    export();
    world.unlink(name(0, 1)).await.unwrap();
    moment().await;
    let export_later = async {
        moment().await;
        export();
    };
    let wait = async { world.fs.admin().wait_for_deletions().await };
    let both = async { tokio::join!(wait, export_later) };
    tokio::time::timeout(Duration::from_secs(600), both).await.expect("the wait ends");
}
