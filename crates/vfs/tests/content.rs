//! Cost and correctness of edits of a file named by inode.

use crate::world::{Bucket, CHUNKED, MIB, World, errno, pattern};
use store::Entropy;
use store::wrap::{Fault, Operation, Rule};
use vfs::{Handle, Mapping, Whence};

/// Mounts with small parts, so that files of a few MiB have several.
async fn mounted(mapping: Mapping) -> World {
    Bucket::by_inode(mapping).await.mount(|config| config.part_size_bytes = MIB as u64).await
}

async fn objects(world: &World) -> usize {
    world.fs.sync().await.unwrap();
    world.bucket.keys().await.len()
}

#[tokio::test]
async fn s147_an_fsync_in_the_middle_costs_what_changed() {
    for mapping in [Mapping::Whole, CHUNKED] {
        let world = mounted(mapping).await;
        let mut body = pattern(8 * MIB);
        world.write_file("file", &body).await.unwrap();
        let handle = world.open_handle("file", libc::O_RDWR).await.unwrap();
        for at in [5 * MIB + 17, 100, 3 * MIB] {
            world.fs.write(handle, at as u64, b"edited").await.unwrap();
            body[at..at + 6].copy_from_slice(b"edited");
            // A delta that is merged into this one is deleted in the background.
            let requests = world.requests(world.fs.fsync(handle)).await;
            assert!(["Put 1", "Put 1, Delete 1"].contains(&requests.as_str()), "{requests}");
            assert_eq!(
                world.remount().await.read_file("file").await.unwrap(),
                body,
                "another mount sees what was fsynced"
            );
        }
        world.fs.sync().await.unwrap();
        let again = world.requests(async {
            world.fs.fsync(handle).await?;
            world.fs.flush(handle).await
        });
        assert_eq!(again.await, "nothing", "{mapping:?}: nothing to store");
        world.close(handle).await.unwrap();
        let expected = if mapping == Mapping::Whole { 1 } else { 8 };
        assert_eq!(objects(&world).await, expected, "{mapping:?}: the last close assembles");
        assert_eq!(world.read_file("file").await.unwrap(), body);
        world.assert_healthy().await;
    }
}

#[tokio::test]
async fn s148_each_chunk_is_an_object_and_an_edit_stores_only_its_chunks() {
    let world = mounted(CHUNKED).await;
    let mut body = pattern(5 * MIB + 10);
    let stored = world.requests(world.write_file("file", &body)).await;
    assert_eq!(stored, "Put 6");
    let edited = world.requests(async {
        let handle = world.open_handle("file", libc::O_RDWR).await?;
        world.fs.write(handle, 2 * MIB as u64, &[7; MIB]).await?;
        world.close(handle).await?;
        world.fs.sync().await
    });
    assert_eq!(edited.await, "Put 1, Delete 1");
    body[2 * MIB..3 * MIB].fill(7);
    assert_eq!(world.read_file("file").await.unwrap(), body);
    let cut = world.requests(async {
        world.truncate("file", MIB as u64 + 5).await?;
        world.fs.sync().await
    });
    assert_eq!(cut.await, "Delete 4", "a truncation deletes objects and stores nothing");
    assert_eq!(world.read_file("file").await.unwrap(), body[..MIB + 5]);
    assert_eq!(objects(&world).await, 2);
    world.assert_healthy().await;
}

#[tokio::test]
async fn s149_holes_are_not_stored() {
    for mapping in [Mapping::Whole, CHUNKED] {
        let world = mounted(mapping).await;
        let handle = world.create("sparse").await.unwrap();
        let far = 1 << 40;
        world.fs.write(handle, far, b"end").await.unwrap();
        world.fs.write(handle, 3 * MIB as u64, b"middle").await.unwrap();
        world.close(handle).await.unwrap();
        assert_eq!(world.stat("sparse").await.unwrap().size_bytes, far + 3);
        let stored: u64 = {
            let mut sum = 0;
            for key in world.bucket.keys().await {
                sum += world.bucket.head(&key).await.unwrap().size_bytes;
            }
            sum
        };
        assert!(stored < 256 << 10, "{mapping:?}: {stored} bytes are stored");
        let handle = world.open_handle("sparse", libc::O_RDONLY).await.unwrap();
        let data = world.fs.seek(handle, 0, Whence::Data).await.unwrap();
        assert!((2 * MIB as u64..=3 * MIB as u64).contains(&data), "{data}");
        assert_eq!(world.fs.seek(handle, 5, Whence::Hole).await.unwrap(), 5);
        assert_eq!(world.fs.seek(handle, far, Whence::Hole).await.unwrap(), far + 3);
        assert_eq!(errno(world.fs.seek(handle, far + 3, Whence::Data).await), libc::ENXIO);
        assert_eq!(world.fs.read(handle, far - 2, 100).await.unwrap(), b"\0\0end"[..]);
        assert_eq!(world.fs.read(handle, 3 * MIB as u64 - 1, 8).await.unwrap(), b"\0middle\0"[..]);
        assert_eq!(world.fs.read(handle, 0, MIB).await.unwrap(), vec![0; MIB]);
        world.close(handle).await.unwrap();
    }
}

#[tokio::test]
async fn s150_content_without_a_file_is_found_and_deleted() {
    for mapping in [Mapping::Whole, CHUNKED] {
        let world = mounted(mapping).await;
        let body = pattern(3 * MIB);
        world.write_file("file", &body).await.unwrap();
        world.bucket.put("inodes/notes.txt", "somebody else's").await;
        let used = objects(&world).await;
        for lost in ["inodes/0000000000000fff-00000000000000aa", "inodes/0000000000000001-00000000000000aa"] {
            world.bucket.put(lost, "lost").await;
        }
        let writing = world.create("writing").await.unwrap();
        world.write_all(writing, &pattern(4 * MIB)).await.unwrap();
        assert_eq!(
            world.fs.admin().collect_garbage(true).await.unwrap().len(),
            2,
            "content being written is not garbage"
        );
        assert_eq!(world.fs.admin().collect_garbage(false).await.unwrap().len(), 2);
        assert_eq!(world.fs.admin().collect_garbage(false).await.unwrap(), []);
        world.close(writing).await.unwrap();
        world.unlink("writing").await.unwrap();
        assert_eq!(objects(&world).await, used);
        assert_eq!(world.read_file("file").await.unwrap(), body);
    }
}

#[tokio::test]
async fn a_commit_that_fails_keeps_the_writes_and_leaves_no_object() {
    for mapping in [Mapping::Whole, CHUNKED] {
        let world = mounted(mapping).await;
        world.write_file("file", pattern(4 * MIB)).await.unwrap();
        let before = objects(&world).await;
        let handle = world.open_handle("file", libc::O_RDWR).await.unwrap();
        world.fs.write(handle, 0, &vec![9; 3 * MIB]).await.unwrap();
        for operation in [Operation::Put, Operation::PutPart] {
            world.bucket.faults.add(Rule::new(Fault::unavailable()).on(operation).after(1).always());
        }
        assert_eq!(errno(world.fs.fsync(handle).await), libc::EIO);
        world.bucket.faults.clear();
        assert_eq!(objects(&world).await, before, "a failed commit must leave no object");
        world.close(handle).await.unwrap();
        let expected = [vec![9; 3 * MIB], pattern(4 * MIB)[3 * MIB..].to_vec()].concat();
        assert_eq!(world.read_file("file").await.unwrap(), expected);
        world.assert_healthy().await;
    }
}

/// A file and its expected content.
struct Edited {
    world: World,
    handle: Handle,
    body: Vec<u8>,
    entropy: Entropy,
}

impl Edited {
    fn below(&self, bound: usize) -> usize {
        self.entropy.below(bound as u64) as usize
    }

    /// Returns lengths and offsets of all magnitudes, some at the ends of chunks and pages.
    fn size(&self, bound: usize) -> usize {
        let near = [1, 4096, MIB, 2 * MIB, 3 * MIB][self.below(5)];
        let at = match self.below(3) {
            0 => near + self.below(3) - 1,
            1 => self.below(near + 1),
            _ => self.below(bound + 1),
        };
        at.min(bound)
    }

    async fn step(&mut self) {
        match self.below(16) {
            0..=6 => {
                let at = self.size(4 * MIB);
                let data = pattern(self.size(MIB * 3 / 2).max(1));
                let salt = self.below(256) as u8;
                let data: Vec<u8> = data.iter().map(|byte| byte ^ salt).collect();
                self.world.fs.write(self.handle, at as u64, &data).await.unwrap();
                let end = at + data.len();
                self.body.resize(self.body.len().max(end), 0);
                self.body[at..end].copy_from_slice(&data);
            }
            7..=8 => {
                let size = self.size(5 * MIB);
                self.world.truncate("file", size as u64).await.unwrap();
                self.body.resize(size, 0);
            }
            9 => {
                let (at, len) = (self.size(4 * MIB), self.size(2 * MIB).max(1));
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                self.world.fs.fallocate(self.handle, mode, at as u64, len as u64).await.unwrap();
                let size = self.body.len();
                self.body[at.min(size)..(at + len).min(size)].fill(0);
            }
            10..=12 => self.world.fs.fsync(self.handle).await.unwrap(),
            13 => {
                self.world.close(self.handle).await.unwrap();
                self.handle = self.world.open_handle("file", libc::O_RDWR).await.unwrap();
            }
            14 => {
                let (at, len) = (self.size(5 * MIB), self.size(MIB));
                let read = self.world.fs.read(self.handle, at as u64, len).await.unwrap();
                let size = self.body.len();
                assert!(read == self.body[at.min(size)..(at + len).min(size)], "a read at {at} of {len}");
            }
            _ => {
                self.world.fs.fsync(self.handle).await.unwrap();
                let fresh = self.world.remount().await;
                assert!(fresh.read_file("file").await.unwrap() == self.body, "another mount after an fsync");
            }
        }
    }
}

#[tokio::test]
async fn random_edits_give_the_bytes_that_were_written() {
    for mapping in [Mapping::Whole, CHUNKED] {
        for seed in 0..12 {
            let world = mounted(mapping).await;
            let handle = world.create("file").await.unwrap();
            let mut edited = Edited { world, handle, body: Vec::new(), entropy: Entropy::new(seed) };
            for _ in 0..40 {
                edited.step().await;
            }
            let Edited { world, handle, body, .. } = edited;
            assert!(world.read_all(handle).await.unwrap() == body, "{mapping:?}, seed {seed}");
            world.close(handle).await.unwrap();
            assert!(
                world.remount().await.read_file("file").await.unwrap() == body,
                "{mapping:?}, seed {seed}"
            );
            world.assert_healthy().await;
            let most = if mapping == Mapping::Whole { 1 } else { body.len().div_ceil(MIB) };
            assert!(objects(&world).await <= most, "{mapping:?}, seed {seed}: pieces are left");
        }
    }
}
