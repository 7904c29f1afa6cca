//! Round trips to a remote metadata engine for each POSIX call.

use crate::hooked_engine::HookedEngine;
use crate::world::{Bucket, CALLER, World};
use meta::{Ino, Reader as _};
use std::fmt::Debug;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vfs::{Changes, Mapping};

/// An engine in memory that behaves like one across a network, without a cache of records, and the number of its round trips: each call
/// is one.
fn remote() -> (Arc<HookedEngine>, Arc<AtomicU64>) {
    let round_trips = Arc::new(AtomicU64::new(0));
    let count = round_trips.clone();
    let engine = HookedEngine::remote(move || {
        count.fetch_add(1, Ordering::SeqCst);
    });
    (Arc::new(engine), round_trips)
}

/// The round trips of calls, in the order in which they were made.
#[derive(Debug, Default)]
struct Counts(Vec<(&'static str, u64)>);

impl Counts {
    async fn count<T: Debug>(
        &mut self,
        round_trips: &AtomicU64,
        call: &'static str,
        made: impl Future<Output = vfs::Result<T>>,
    ) -> T {
        let before = round_trips.load(Ordering::SeqCst);
        let outcome = made.await.unwrap();
        self.0.push((call, round_trips.load(Ordering::SeqCst) - before));
        outcome
    }
}

/// The table is printed with `--nocapture`. A lower number is an improvement: change it here.
#[tokio::test]
async fn each_call_makes_a_known_number_of_round_trips() {
    let (engine, round_trips) = remote();
    let world = Bucket::by_inode_on(Mapping::Whole, engine.clone()).await.mount(|_| {}).await;
    let counts = count_calls(&round_trips, &world).await;
    for (call, count) in &counts.0 {
        println!("{call:<28} {count:>3}");
    }
    assert_eq!(counts.0, EXPECTED);
    world.assert_healthy().await;
}

/// A commit to a remote engine assumes that a removed file has no extended attributes, and that a removed directory is empty.
#[tokio::test]
async fn wrong_assumptions_are_corrected() {
    let (engine, _) = remote();
    let world = Bucket::by_inode_on(Mapping::Whole, engine.clone()).await.mount(|_| {}).await;
    let dir = world.mkdir("dir").await.unwrap().ino;
    world.write_file("dir/file", "x").await.unwrap();
    let file = world.fs.lookup(dir, b"file").await.unwrap().ino;
    world.fs.setxattr(file, b"user.a", b"1", 0, |_| true).await.unwrap();
    let refused = world.fs.rmdir(Ino::ROOT, b"dir").await.unwrap_err();
    assert_eq!(refused.errno(), libc::ENOTEMPTY);
    world.fs.unlink(dir, b"file").await.unwrap();
    let left = engine.scan(Bound::Included(b"X"), Bound::Excluded(b"Y"), usize::MAX).unwrap();
    assert_eq!(left, []);
    world.fs.rmdir(Ino::ROOT, b"dir").await.unwrap();
    world.assert_healthy().await;
}

const EXPECTED: &[(&str, u64)] = &[
    ("mkdir", 4),
    ("create", 5),
    ("write", 0),
    ("flush (publish)", 3),
    ("release", 1),
    ("lookup", 3),
    ("getattr", 1),
    ("open for reading", 4),
    ("read", 1),
    ("release, clean", 1),
    ("setattr (chmod)", 4),
    ("opendir", 1),
    ("readdir of 100, attributes", 5),
    ("link", 8),
    ("rename", 4),
    ("unlink, one of two names", 3),
    ("unlink", 9),
    ("getattr of a directory", 1),
    ("rmdir", 7),
];

async fn count_calls(round_trips: &AtomicU64, world: &World) -> Counts {
    let (fs, mut counts) = (&world.fs, Counts::default());
    let flags = libc::O_RDWR | libc::O_CREAT;
    let dir = counts.count(round_trips, "mkdir", fs.mkdir(CALLER, Ino::ROOT, b"dir", 0o750)).await.ino;
    let (attr, opened) =
        counts.count(round_trips, "create", fs.create(CALLER, dir, b"file", 0o640, flags)).await;
    counts.count(round_trips, "write", fs.write(opened.handle, 0, b"some text")).await;
    counts.count(round_trips, "flush (publish)", fs.flush(opened.handle)).await;
    counts.count(round_trips, "release", fs.release(opened.handle)).await;
    counts.count(round_trips, "lookup", fs.lookup(dir, b"file")).await;
    counts.count(round_trips, "getattr", fs.getattr(attr.ino)).await;
    let opened = counts.count(round_trips, "open for reading", fs.open(attr.ino, libc::O_RDONLY)).await;
    counts.count(round_trips, "read", fs.read(opened.handle, 0, 9)).await;
    counts.count(round_trips, "release, clean", fs.release(opened.handle)).await;
    let mode = Changes { mode: Some(0o600), ..Changes::default() };
    counts.count(round_trips, "setattr (chmod)", fs.setattr(CALLER, attr.ino, mode, None)).await;
    for number in 0..100 {
        world.write_file(format!("dir/{number}"), "x").await.unwrap();
    }
    let handle = counts.count(round_trips, "opendir", fs.opendir(dir)).await;
    counts.count(round_trips, "readdir of 100, attributes", fs.readdir(handle, 0, 200, true)).await;
    fs.releasedir(handle);
    counts.count(round_trips, "link", fs.link(attr.ino, dir, b"other")).await;
    counts.count(round_trips, "rename", fs.rename((dir, b"file"), (Ino::ROOT, b"moved"), 0)).await;
    counts.count(round_trips, "unlink, one of two names", fs.unlink(dir, b"other")).await;
    counts.count(round_trips, "unlink", fs.unlink(Ino::ROOT, b"moved")).await;
    let empty = world.mkdir("empty").await.unwrap();
    counts.count(round_trips, "getattr of a directory", fs.getattr(empty.ino)).await;
    counts.count(round_trips, "rmdir", fs.rmdir(Ino::ROOT, b"empty")).await;
    counts
}
