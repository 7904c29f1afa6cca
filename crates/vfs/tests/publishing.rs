//! Background publishing of open files: when it happens, its requests, and what others and the writer see.

use crate::world::{Bucket, MIB, World, errno, pattern};
use std::time::Duration;
use vfs::Mapping;

const INTERVAL: Duration = Duration::from_secs(10);

impl World {
    /// Lets time pass and publishes what is due; returns the requests.
    async fn after(&self, time: Duration) -> String {
        self.bucket.clock.advance(time);
        self.counting(self.fs.publisher().publish_written(INTERVAL)).await.1.to_string()
    }
}

#[tokio::test]
async fn s285_others_see_a_file_grow_while_it_is_written() {
    for bucket in [Bucket::in_memory(), Bucket::in_directory()] {
        let world = bucket.mount(|_| {}).await;
        world.write_file("first", b"").await.unwrap();
        let handle = world.create("log").await.unwrap();
        world.fs.write(handle, 0, b"one\n").await.unwrap();
        assert_eq!(world.after(INTERVAL / 2).await, "nothing", "not yet");
        assert_eq!(bucket.object("log").await, None);
        assert_eq!(world.after(INTERVAL / 2).await, "Put 1");
        assert_eq!(bucket.object("log").await.unwrap(), b"one\n");
        assert_eq!(world.after(INTERVAL * 2).await, "nothing", "nothing was written since");
        world.fs.write(handle, 4, b"two\n").await.unwrap();
        assert_eq!(
            world.after(INTERVAL / 2).await,
            "nothing",
            "the interval begins with the first unpublished write"
        );
        assert_eq!(world.after(INTERVAL / 2).await, "Get 1, Head 1, Put 1");
        assert_eq!(world.remount().await.read_file("log").await.unwrap(), b"one\ntwo\n");
        assert_eq!(world.requests(world.close(handle)).await, "nothing", "the file is stored already");
        world.assert_healthy().await;
    }
}

/// Unchanged parts are copied inside the store.
#[tokio::test]
async fn s285_a_large_file_grows_by_parts() {
    let bucket = Bucket::in_memory();
    let world = bucket.mount(|_| {}).await;
    world.write_file("first", b"").await.unwrap();
    let handle = world.create("film").await.unwrap();
    let body = pattern(44 * MIB);
    for (index, piece) in body.chunks(MIB).enumerate().take(20) {
        world.fs.write(handle, (index * MIB) as u64, piece).await.unwrap();
    }
    let requests = world.after(INTERVAL).await;
    assert!(requests.starts_with("PutPart") && requests.ends_with(", Complete 1"), "{requests}");
    assert_eq!(bucket.object("film").await.unwrap(), body[..20 * MIB]);
    for (index, piece) in body.chunks(MIB).enumerate().skip(20) {
        world.fs.write(handle, (index * MIB) as u64, piece).await.unwrap();
    }
    assert_eq!(
        world.after(INTERVAL).await,
        "Get 1, Head 1, BeginMultipart 1, PutPart 4, CopyPart 2, Complete 1"
    );
    assert_eq!(bucket.object("film").await.unwrap(), body);
    world.close(handle).await.unwrap();
    world.assert_healthy().await;
}

/// An `fsync` stores a delta under another key, which other clients do not see.
#[tokio::test]
async fn s285_deltas_of_an_fsync_are_published() {
    let bucket = Bucket::in_memory();
    let world = bucket.mount(|_| {}).await;
    let mut body = pattern(MIB);
    world.write_file("database", &body).await.unwrap();
    let handle = world.open_handle("database", libc::O_RDWR).await.unwrap();
    world.fs.write(handle, 5000, b"changed").await.unwrap();
    world.fs.fsync(handle).await.unwrap();
    assert_eq!(bucket.object("database").await.unwrap(), body);
    world.after(INTERVAL).await;
    body[5000..5007].copy_from_slice(b"changed");
    assert_eq!(bucket.object("database").await.unwrap(), body);
    assert_eq!(world.after(INTERVAL).await, "nothing");
    world.close(handle).await.unwrap();
    world.assert_healthy().await;
}

#[tokio::test]
async fn s285_by_inode_writes_are_stored_once() {
    for mapping in [Mapping::Whole, Mapping::Chunked { bytes: MIB as u64 }] {
        let bucket = Bucket::by_inode(mapping).await;
        let world = bucket.mount(|_| {}).await;
        let handle = world.create("file").await.unwrap();
        world.fs.write(handle, 0, &pattern(MIB)).await.unwrap();
        assert_eq!(world.after(INTERVAL).await, "Put 1");
        world.fs.write(handle, 10, b"changed").await.unwrap();
        assert_eq!(world.after(INTERVAL).await, "Put 1", "a delta");
        assert_eq!(
            (world.after(INTERVAL).await.as_str(), world.after(INTERVAL).await.as_str()),
            ("nothing", "nothing")
        );
        let mut body = pattern(MIB);
        body[10..17].copy_from_slice(b"changed");
        assert_eq!(world.remount().await.read_file("file").await.unwrap(), body);
        world.close(handle).await.unwrap();
        world.assert_healthy().await;
    }
}

/// As at a `close`, no side's bytes are lost. The writer did not ask for the commit, so its next call must fail instead of
/// writing into the foreign object.
#[tokio::test]
async fn s285_the_next_call_reports_a_lost_conflict() {
    let bucket = Bucket::in_memory();
    let world = bucket.mount(|_| {}).await;
    world.write_file("file", b"old").await.unwrap();
    let handle = world.open_handle("file", libc::O_RDWR).await.unwrap();
    world.fs.write(handle, 0, b"mine").await.unwrap();
    bucket.put("file", b"theirs").await;
    world.after(INTERVAL).await;
    assert_eq!(bucket.object("file").await.unwrap(), b"theirs");
    let kept = bucket.keys().await.into_iter().find(|key| key.starts_with("lost+found/")).unwrap();
    assert_eq!(bucket.object(&kept).await.unwrap(), b"mine");
    let late = world.open_handle("file", libc::O_RDWR).await.unwrap();
    assert_eq!(errno(world.fs.write(handle, 4, b", too").await), libc::ESTALE);
    assert_eq!(errno(world.fs.fsync(handle).await), libc::ESTALE);
    assert_eq!(errno(world.close(handle).await), libc::ESTALE);
    world.fs.write(late, 6, b", and mine").await.unwrap();
    world.close(late).await.unwrap();
    assert_eq!(bucket.object("file").await.unwrap(), b"theirs, and mine");
    world.assert_healthy().await;
}

#[tokio::test]
async fn s285_a_failed_attempt_is_retried_after_the_interval() {
    let bucket = Bucket::in_memory();
    let world = bucket.mount(|_| {}).await;
    let handle = world.create("file").await.unwrap();
    world.fs.write(handle, 0, b"kept").await.unwrap();
    bucket.faults.set_down(true);
    world.after(INTERVAL).await;
    bucket.faults.set_down(false);
    assert_eq!(bucket.object("file").await, None);
    assert_eq!(world.after(INTERVAL / 2).await, "nothing");
    world.after(INTERVAL / 2).await;
    assert_eq!(bucket.object("file").await.unwrap(), b"kept");
    world.close(handle).await.unwrap();
    world.assert_healthy().await;
}

/// A file without a name is invisible to others and is not published.
#[tokio::test]
async fn s285_a_file_without_a_name_is_not_stored() {
    let world = World::new().await;
    let handle = world.create("file").await.unwrap();
    world.fs.write(handle, 0, b"gone").await.unwrap();
    world.fs.unlink(vfs::Ino::ROOT, b"file").await.unwrap();
    assert_eq!(world.after(INTERVAL).await, "nothing");
    world.close(handle).await.unwrap();
    assert_eq!(world.bucket.keys().await, Vec::<String>::new());
}
