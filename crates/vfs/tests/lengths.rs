//! Maximum lengths of files, and the blocks of holes.

use crate::world::{Bucket, CHUNKED, MIB, World, errno, pattern};
use vfs::{Changes, DiskSpace, Handle, Mapping};

const TIB: u64 = 1 << 40;
const GIB: u64 = 1 << 30;

impl World {
    async fn set_len(&self, path: &str, handle: Handle, size_bytes: u64) -> vfs::Result<()> {
        let changes = Changes { size_bytes: Some(size_bytes), ..Changes::default() };
        let ino = self.ino(path).await?;
        self.fs.setattr(crate::world::CALLER, ino, changes, Some(handle)).await.map(drop)
    }

    async fn blocks(&self, path: &str) -> u64 {
        self.stat(path).await.unwrap().blocks
    }
}

/// By path, `truncate -s 999999999999999 f` succeeded, and the following close requested a part of 100 GB of zeros, which
/// crashed the mount.
#[tokio::test]
async fn s400_a_length_beyond_the_largest_object_is_refused_at_the_call() {
    let world = World::new().await;
    let handle = world.create("file").await.unwrap();
    world.fs.write(handle, 0, b"kept").await.unwrap();
    for too_long in [5 * TIB + 1, 999_999_999_999_999, i64::MAX as u64] {
        assert_eq!(errno(world.set_len("file", handle, too_long).await), libc::EFBIG);
        assert_eq!(errno(world.fs.write(handle, too_long - 1, b"x").await), libc::EFBIG);
        assert_eq!(errno(world.fs.fallocate(handle, 0, too_long - 1, 1).await), libc::EFBIG);
    }
    world.set_len("file", handle, 5 * TIB).await.unwrap();
    world.set_len("file", handle, 4).await.unwrap();
    world.close(handle).await.unwrap();
    assert_eq!(world.bucket.object("file").await.unwrap(), b"kept");
    assert_eq!(errno(world.truncate("file", 999_999_999_999_999).await), libc::EFBIG);
    world.assert_healthy().await;
}

/// The zeros of a hole took one buffer per part in flight, each of up to 100 MB.
#[tokio::test]
async fn s400_the_zeros_of_a_hole_take_no_memory() {
    let world = World::with(|config| config.memory_limit_bytes = 64 << 20).await;
    let handle = world.create("file").await.unwrap();
    world.fs.write(handle, 0, b"begin").await.unwrap();
    world.fs.write(handle, 20 * GIB, b"end").await.unwrap();
    world.close(handle).await.unwrap();
    let meta = world.bucket.head("file").await.unwrap();
    assert_eq!(meta.size_bytes, 20 * GIB + 3);
    let handle = world.open_handle("file", libc::O_RDONLY).await.unwrap();
    assert_eq!(world.fs.read(handle, 20 * GIB - 2, 9).await.unwrap(), b"\0\0end"[..]);
    world.close(handle).await.unwrap();
}

/// By path, the zeros of a hole are part of the object: they filled a drive of 512 MiB at the close.
#[tokio::test]
async fn s400_a_hole_larger_than_the_free_space_is_refused_where_objects_contain_holes() {
    const FREE: u64 = 1 << 20;
    let measure = || Some(DiskSpace { total_bytes: GIB, available_bytes: FREE });
    let world = World::new().await;
    world.fs.admin().measure_space_by(Box::new(measure));
    let handle = world.create("file").await.unwrap();
    world.fs.write(handle, 0, b"kept").await.unwrap();
    assert_eq!(errno(world.set_len("file", handle, FREE + 5).await), libc::ENOSPC);
    assert_eq!(errno(world.fs.write(handle, FREE + 5, b"x").await), libc::ENOSPC);
    world.set_len("file", handle, FREE).await.unwrap();
    world.set_len("file", handle, 4).await.unwrap();
    world.close(handle).await.unwrap();
    assert_eq!(errno(world.truncate("file", FREE + 5).await), libc::ENOSPC);
    assert_eq!(world.bucket.object("file").await.unwrap(), b"kept");
    world.assert_healthy().await;
    // By inode, a hole takes no space.
    let world = Bucket::by_inode(Mapping::Whole).await.mount(|_| {}).await;
    world.fs.admin().measure_space_by(Box::new(measure));
    let handle = world.create("file").await.unwrap();
    world.set_len("file", handle, GIB).await.unwrap();
    world.close(handle).await.unwrap();
}

/// A stream of more than 10,000 parts failed with EIO, after it had kept some bytes of the failing write.
#[tokio::test]
async fn s400_a_stream_beyond_the_maximum_number_of_parts_is_too_long() {
    const PART: usize = 512;
    let world = World::with(|config| {
        (config.part_size_bytes, config.memory_limit_bytes) = (PART as u64, 16 << 20);
    })
    .await;
    // The rest of the memory is in use, so that parts cannot become longer.
    let mut hogs = Vec::new();
    let handle = world.create("file").await.unwrap();
    world.fs.write(handle, 0, &[1; 2 * PART]).await.unwrap();
    for number in 0..64 {
        let name = format!("hog{number}");
        let hog = world.create(&name).await.unwrap();
        world.fs.write(hog, 0, b"x").await.unwrap();
        hogs.push(hog);
    }
    let mut at = 2 * PART as u64;
    let refused = loop {
        match world.fs.write(handle, at, &[1; 100 * PART]).await {
            Ok(()) => at += 100 * PART as u64,
            Err(error) => break error,
        }
        assert!(at < 1 << 30, "parts became longer");
    };
    assert_eq!(refused.errno(), libc::EFBIG);
    world.close(handle).await.unwrap();
    assert_eq!(world.bucket.object("file").await.unwrap().len() as u64, at, "acknowledged writes are stored");
    for hog in hogs {
        world.close(hog).await.unwrap();
    }
}

/// By inode ftruncate(2) accepted any length, and a write there then failed.
#[tokio::test]
async fn s401_a_length_that_is_accepted_can_be_written() {
    for bucket in Bucket::by_inode_each().await {
        let world = bucket.mount(|_| {}).await;
        let handle = world.create("file").await.unwrap();
        world.fs.write(handle, 0, b"begin").await.unwrap();
        for size_bytes in [TIB, 20 * TIB, 1 << 60, i64::MAX as u64] {
            match world.set_len("file", handle, size_bytes).await {
                Ok(()) => world.fs.write(handle, size_bytes - 1, b"x").await.unwrap(),
                Err(error) => {
                    assert_eq!(error.errno(), libc::EFBIG);
                    assert_eq!(errno(world.fs.write(handle, size_bytes - 1, b"x").await), libc::EFBIG);
                }
            }
        }
        world.set_len("file", handle, 5).await.unwrap();
        world.close(handle).await.unwrap();
        assert_eq!(world.read_file("file").await.unwrap(), b"begin");
        world.assert_healthy().await;
    }
}

/// `du` and `cp --sparse=auto` took a file of one 1 GiB hole for 1 GiB of data.
#[tokio::test]
async fn s402_holes_have_no_blocks() {
    for mapping in [Mapping::Whole, CHUNKED] {
        let world = Bucket::by_inode(mapping).await.mount(|_| {}).await;
        let handle = world.create("file").await.unwrap();
        world.set_len("file", handle, GIB).await.unwrap();
        assert_eq!(world.blocks("file").await, 0, "dirty, one hole");
        world.fs.write(handle, GIB / 2, &pattern(MIB)).await.unwrap();
        let dirty = world.blocks("file").await * 512;
        assert!((MIB as u64..2 * MIB as u64).contains(&dirty), "dirty: {dirty}");
        world.close(handle).await.unwrap();
        assert_eq!(world.blocks("file").await * 512, MIB as u64, "stored");
        let handle = world.open_handle("file", libc::O_RDWR).await.unwrap();
        world.fs.write(handle, GIB - MIB as u64, &pattern(MIB)).await.unwrap();
        let dirty = world.blocks("file").await * 512;
        assert!((2 * MIB as u64..3 * MIB as u64).contains(&dirty), "dirty over what is stored: {dirty}");
        world.close(handle).await.unwrap();
        assert_eq!(world.blocks("file").await * 512, 2 * MIB as u64);
        world.write_file("full", pattern(1000)).await.unwrap();
        assert_eq!(world.blocks("full").await, 2);
    }
    let world = World::new().await;
    let handle = world.create("file").await.unwrap();
    world.fs.write(handle, 20 * MIB as u64, b"x").await.unwrap();
    let dirty = world.blocks("file").await * 512;
    assert!((1..MIB as u64).contains(&dirty), "by path, dirty: {dirty}");
    world.close(handle).await.unwrap();
    assert_eq!(
        world.blocks("file").await,
        (20 * MIB as u64 + 1).div_ceil(512),
        "a stored object has no holes"
    );
}
