//! The cache on the local disk.

use crate::world::{Bucket, MIB, World, pattern};
use cache::DiskCache;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;
use vfs::{Mapping, Warmed};

const CHUNKED: Mapping = Mapping::Chunked { bytes: MIB as u64 };
const LIMIT_BYTES: u64 = 256 << 20;

/// Mounts a bucket with a cache in a directory.
async fn mount(bucket: &Bucket, dir: &Path) -> World {
    let cache = DiskCache::open(dir, LIMIT_BYTES, "bucket", bucket.clock.clone()).unwrap();
    bucket.mount(|config| config.disk_cache = Some(Arc::new(cache))).await
}

/// Reads a file. Returns how many of its bytes came from the bucket.
async fn received(world: &World, path: &str, expected: &[u8]) -> u64 {
    let (read, counts) = world.counting(world.read_file(path)).await;
    assert!(read.unwrap() == expected, "{path}");
    settle().await;
    counts.received_bytes
}

/// Lets background tasks run.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn s804_what_one_mount_has_read_the_next_reads_from_disk() {
    let (bucket, dir) = (Bucket::in_memory(), TempDir::new().unwrap());
    let (small, big) = (pattern(10_000), pattern(40 * MIB + 77));
    bucket.put("small", &small).await;
    bucket.put("big", &big).await;
    let first = mount(&bucket, dir.path()).await;
    assert_eq!(received(&first, "small", &small).await, small.len() as u64);
    assert_eq!(received(&first, "big", &big).await, big.len() as u64);
    let second = mount(&bucket, dir.path()).await;
    assert_eq!(received(&second, "small", &small).await, 0);
    assert_eq!(received(&second, "big", &big).await, 0);
    assert_eq!(second.fs.status().disk_cache.unwrap().hit_bytes, (small.len() + big.len()) as u64);
}

#[tokio::test]
async fn s804_random_reads_take_from_disk_what_they_need() {
    let (bucket, dir) = (Bucket::in_memory(), TempDir::new().unwrap());
    let big = pattern(40 * MIB);
    bucket.put("big", &big).await;
    let first = mount(&bucket, dir.path()).await;
    received(&first, "big", &big).await;
    let second = mount(&bucket, dir.path()).await;
    let handle = second.open_handle("big", libc::O_RDONLY).await.unwrap();
    for number in 1..200 {
        let at = number * 7_919 * 4096 % big.len();
        let (read, counts) = second.counting(second.fs.read(handle, at as u64, 4096)).await;
        assert!(read.unwrap() == big[at..at + 4096]);
        assert_eq!(counts.received_bytes, 0);
    }
    let hit_bytes = second.fs.status().disk_cache.unwrap().hit_bytes;
    assert!(hit_bytes <= 300 * 4096, "nothing around them is read: {hit_bytes}");
}

#[tokio::test]
async fn s805_a_replaced_object_is_read_anew() {
    let (bucket, dir) = (Bucket::in_memory(), TempDir::new().unwrap());
    let (old, new) = (pattern(3 * MIB), vec![7; 3 * MIB]);
    bucket.put("file", &old).await;
    let world = mount(&bucket, dir.path()).await;
    received(&world, "file", &old).await;
    bucket.put("file", &new).await;
    world.expire();
    assert_eq!(received(&world, "file", &new).await, new.len() as u64);
    assert_eq!(received(&mount(&bucket, dir.path()).await, "file", &new).await, 0);
}

#[tokio::test]
async fn s801_damaged_files_of_the_cache_are_read_from_the_bucket() {
    let (bucket, dir) = (Bucket::in_memory(), TempDir::new().unwrap());
    let body = pattern(5 * MIB);
    bucket.put("file", &body).await;
    received(&mount(&bucket, dir.path()).await, "file", &body).await;
    let mut damaged = 0;
    for shard in fs::read_dir(dir.path().join("segments-1")).unwrap() {
        for file in fs::read_dir(shard.unwrap().path()).unwrap() {
            let file = fs::File::options().write(true).open(file.unwrap().path()).unwrap();
            file.write_all_at(b"damage", 4096 + 700_000).unwrap();
            damaged += 1;
        }
    }
    assert_eq!(damaged, 5);
    let world = mount(&bucket, dir.path()).await;
    // Pages that are read before the damage is found are right.
    let received_bytes = received(&world, "file", &body).await;
    assert!((damaged..=body.len() as u64).contains(&received_bytes), "{received_bytes}");
    assert_eq!(world.fs.status().disk_cache.unwrap().damaged, damaged);
    world.fs.admin().warm(world.ino("file").await.unwrap()).await.unwrap();
    assert_eq!(received(&mount(&bucket, dir.path()).await, "file", &body).await, 0);
}

#[tokio::test]
async fn s806_a_file_is_read_into_the_cache_ahead_of_readers() {
    for bucket in [Bucket::in_memory(), Bucket::by_inode(CHUNKED).await] {
        let dir = TempDir::new().unwrap();
        let world = mount(&bucket, dir.path()).await;
        let mut body = pattern(5 * MIB + 9);
        world.write_file("file", &body).await.unwrap();
        let handle = world.open_handle("file", libc::O_RDWR).await.unwrap();
        world.fs.write(handle, 3 * MIB as u64, b"changed").await.unwrap();
        world.close(handle).await.unwrap();
        body[3 * MIB..][..7].copy_from_slice(b"changed");
        let ino = world.ino("file").await.unwrap();
        let warmed = world.fs.admin().warm(ino).await.unwrap();
        assert_eq!(warmed, Warmed { file_bytes: body.len() as u64, read_bytes: body.len() as u64 });
        assert_eq!(world.fs.admin().warm(ino).await.unwrap().read_bytes, 0, "all of it is there");
        let other = mount(&bucket, dir.path()).await;
        assert_eq!(received(&other, "file", &body).await, 0);
        assert!(other.fs.admin().warm(vfs::Ino::ROOT).await.is_err());
    }
    let without = Bucket::in_memory().mount(|_| {}).await;
    without.write_file("file", b"x").await.unwrap();
    let refused = without.fs.admin().warm(without.ino("file").await.unwrap()).await.unwrap_err();
    assert!(refused.to_string().contains("no disk cache"), "{refused}");
}
