//! Quotas and writes: a refused write loses no data that was accepted, and leaves nothing behind.

use crate::world::{Bucket, MIB, World, errno, pattern};
use vfs::{Handle, Limits, Mapping};

const MIB_BYTES: u64 = MIB as u64;

impl World {
    async fn limit(&self, mebibytes: u64) {
        let limits = Limits { bytes: Some(mebibytes * MIB_BYTES), files: None };
        self.fs.admin().set_quota(b"", Some(limits)).await.unwrap();
    }

    async fn used(&self) -> i64 {
        self.fs.admin().quota(b"").await.unwrap().unwrap().used.bytes
    }

    /// Creates a file with unpublished writes.
    async fn written(&self, name: &str, body: &[u8]) -> Handle {
        let handle = self.create(name).await.unwrap();
        self.write_all(handle, body).await.unwrap();
        handle
    }

    async fn contents(&self) -> usize {
        self.fs.sync().await.ok();
        self.bucket.keys().await.iter().filter(|key| key.contains("inodes/")).count()
    }
}

/// Two files fit into the quota separately, but not together: the second is refused at its commit, keeps its bytes, and is
/// stored once there is room. Before, the bytes were released after the upload, and a second attempt would have named zeros
/// instead.
#[tokio::test]
async fn s114_s174_writes_refused_at_the_commit_are_kept() {
    for mapping in [Mapping::Whole, Mapping::Chunked { bytes: MIB_BYTES }] {
        for len in [2 * MIB, 20 * MIB] {
            let world = Bucket::by_inode(mapping).await.mount(|_| {}).await;
            let body = pattern(len);
            world.limit(len as u64 / MIB_BYTES + 1).await;
            let (one, two) = (world.written("one", &body).await, world.written("two", &body).await);
            world.fs.flush(one).await.unwrap();
            assert_eq!(errno(world.fs.flush(two).await), libc::ENOSPC);
            assert_eq!(errno(world.fs.fsync(two).await), libc::ENOSPC);
            if len < 8 * MIB {
                // A stream can be read only from the objects that it stores.
                assert!(world.read_all(two).await.unwrap() == body, "{mapping:?} {len}");
            }
            world.close(one).await.unwrap();
            world.unlink("one").await.unwrap();
            world.fs.flush(two).await.unwrap();
            world.close(two).await.unwrap();
            assert!(world.remount().await.read_file("two").await.unwrap() == body, "{mapping:?} {len}");
            assert_eq!(world.used().await, len as i64);
            world.assert_healthy().await;
        }
    }
}

#[tokio::test]
async fn s174_writes_refused_until_the_close_leave_nothing() {
    for len in [2 * MIB, 20 * MIB] {
        let world = Bucket::by_inode(Mapping::Whole).await.mount(|_| {}).await;
        world.limit(len as u64 / MIB_BYTES + 1).await;
        let body = pattern(len);
        let (one, two) = (world.written("one", &body).await, world.written("two", &body).await);
        world.fs.flush(one).await.unwrap();
        assert_eq!(errno(world.fs.flush(two).await), libc::ENOSPC);
        assert_eq!(errno(world.fs.write(two, len as u64 + 2 * MIB_BYTES, b"x").await), libc::ENOSPC);
        world.fs.release(two).await.ok();
        world.close(one).await.unwrap();
        assert_eq!((world.contents().await, world.used().await), (1, len as i64));
        assert_eq!(world.stat("two").await.unwrap().size_bytes, 0);
        let shown = world.fs.statfs(vfs::Ino(1)).unwrap();
        assert_eq!((shown.blocks, shown.blocks_free), ((len as u64 + MIB_BYTES) / 4096, MIB_BYTES / 4096));
        world.assert_healthy().await;
    }
}
