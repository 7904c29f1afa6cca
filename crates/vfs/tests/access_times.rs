//! Access times: when reads change them, and the cost.

use crate::world::{Bucket, World};
use std::time::Duration;
use vfs::{Atime, Changes, Mapping, Time, Timestamp};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

async fn by_inode(atime: Atime) -> World {
    Bucket::by_inode(Mapping::Whole).await.mount(|config| config.atime = atime).await
}

impl World {
    async fn atime(&self, path: &str) -> Timestamp {
        self.stat(path).await.unwrap().atime
    }

    fn ops(&self) -> u64 {
        self.fs.status().ops
    }

    fn wait(&self, time: Duration) {
        self.bucket.clock.advance(time);
    }
}

#[tokio::test]
async fn s103_relatime_is_renewed_after_a_change_and_after_a_day() {
    let world = by_inode(Atime::Relatime).await;
    world.write_file("file", b"text").await.unwrap();
    let made = world.stat("file").await.unwrap();
    world.wait(Duration::from_secs(5));
    world.read_file("file").await.unwrap();
    let first = world.stat("file").await.unwrap();
    assert!(first.atime > made.mtime && (first.mtime, first.ctime) == (made.mtime, made.ctime));
    world.wait(Duration::from_secs(5));
    world.read_file("file").await.unwrap();
    assert_eq!(world.atime("file").await, first.atime, "nothing has changed since");
    world.wait(DAY);
    world.read_file("file").await.unwrap();
    assert!(world.atime("file").await > first.atime);
    world.mkdir("dir").await.unwrap();
    world.write_file("dir/entry", b"").await.unwrap();
    world.wait(Duration::from_secs(5));
    world.names("dir").await.unwrap();
    assert!(world.atime("dir").await > world.stat("dir").await.unwrap().mtime);
}

#[tokio::test]
async fn s103_strict_and_off_change_times_always_and_never() {
    let world = by_inode(Atime::Strict).await;
    world.write_file("file", b"text").await.unwrap();
    let handle = world.open_handle("file", libc::O_RDONLY).await.unwrap();
    let mut last = world.atime("file").await;
    for _ in 0..3 {
        world.fs.read(handle, 0, 4).await.unwrap();
        let now = world.atime("file").await;
        assert!(now > last);
        last = now;
    }
    world.close(handle).await.unwrap();
    assert!(
        !world.open("file", libc::O_RDONLY).await.unwrap().keep_cache,
        "reads from the page cache would not be seen"
    );
    let unseen = world.open_handle("file", libc::O_RDONLY | libc::O_NOATIME).await.unwrap();
    world.fs.read(unseen, 0, 4).await.unwrap();
    assert_eq!(world.atime("file").await, last);

    let world = by_inode(Atime::Off).await;
    world.write_file("file", b"text").await.unwrap();
    let made = world.atime("file").await;
    world.wait(DAY + DAY);
    world.read_file("file").await.unwrap();
    world.names("").await.unwrap();
    assert_eq!(world.atime("file").await, made);
}

/// Reads are not committed one by one: their times are committed in batches, and at the end.
#[tokio::test]
async fn s103_access_times_are_kept_without_a_change_for_each_read() {
    let world = by_inode(Atime::Strict).await;
    for file in 0..20 {
        world.write_file(format!("{file}"), b"text").await.unwrap();
    }
    let before = world.ops();
    for _ in 0..10 {
        for file in 0..20 {
            world.read_file(format!("{file}")).await.unwrap();
        }
    }
    assert_eq!(world.ops(), before);
    let read = world.atime("7").await;
    world.fs.sync().await.unwrap();
    assert_eq!(world.ops(), before + 1, "one commit for all of them");
    assert_eq!(world.remount().await.atime("7").await, read);
}

#[tokio::test]
async fn s103_a_time_set_by_a_program_is_kept() {
    let world = by_inode(Atime::Strict).await;
    world.write_file("file", b"text").await.unwrap();
    world.read_file("file").await.unwrap();
    let set = Changes { atime: Some(Time::At(Timestamp(7))), ..Changes::default() };
    assert_eq!(world.set("file", set).await.unwrap().atime, Timestamp(7));
    world.fs.sync().await.unwrap();
    assert_eq!(world.atime("file").await, Timestamp(7));
}

/// In a volume named by path a read sends no request to the bucket: only this mount knows its time until the object is stored
/// again.
#[tokio::test]
async fn s103_by_path_access_times_are_not_exported_by_themselves() {
    let world = World::new().await;
    world.write_file("file", b"text").await.unwrap();
    world.wait(Duration::from_secs(2));
    let made = world.stat("file").await.unwrap();
    world.read_file("file").await.unwrap();
    let read = world.atime("file").await;
    assert!(read > made.mtime);
    let requests = world.requests(world.fs.sync()).await;
    assert_eq!(requests, "nothing", "a read stores nothing");
    world.chmod("file", 0o600).await.unwrap();
    world.fs.sync().await.unwrap();
    assert_eq!(world.bucket.header("file", "file-atime").await, Some(format!("{}ns", read.0)));
}
