//! The background lister: the changes it finds, and its cost.

use crate::world::{Bucket, World};
use meta::{MemoryEngine, Reader as _};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use vfs::{Invalidation, InvalidationQueue};

const EVERY: Duration = Duration::from_secs(1);

/// Mounts a bucket with this many directories of one file each, which a program has looked up.
async fn mount_with_known_names(bucket: &Bucket, directories: usize) -> World {
    for number in 0..directories {
        bucket.put(format!("dir{number:02}/file"), "old").await;
    }
    let world = bucket.mount(|config| config.metadata_ttl = Duration::from_secs(3600)).await;
    for number in 0..directories {
        world.stat(format!("dir{number:02}/file")).await.unwrap();
    }
    world
}

fn queued(news: &mut InvalidationQueue) -> Vec<Invalidation> {
    std::iter::from_fn(|| news.try_recv().ok()).collect()
}

#[tokio::test(start_paused = true)]
async fn s200_changes_of_known_names_are_found_without_lookups() {
    let bucket = Bucket::in_memory();
    bucket.put("dir03/sub/deep", "old").await;
    let world = mount_with_known_names(&bucket, 5).await;
    let deep = world.ino("dir03/sub/deep").await.unwrap();
    let (gone, sub) = (world.ino("dir01").await.unwrap(), world.ino("dir03/sub").await.unwrap());
    let mut news = world.fs.kernel_caches().invalidations();
    world.fs.admin().list_in_background(EVERY);
    sleep(EVERY * 20).await;
    assert_eq!(world.fs.status().lister.changes, 0);
    assert!(world.fs.status().lister.finished_at.is_some());
    queued(&mut news);
    bucket.put("dir03/sub/deep", "changed").await;
    bucket.delete("dir01/file").await;
    bucket.put("dir02/file/below", "a file became a directory").await;
    bucket.delete("dir02/file").await;
    sleep(EVERY * 20).await;
    let news = queued(&mut news);
    let entry = |parent, name: &'static str| Invalidation::Entry { parent, name: name.into() };
    for expected in [Invalidation::Inode(deep), entry(vfs::Ino::ROOT, "dir01")] {
        assert!(news.contains(&expected), "{expected:?}: {news:?}");
    }
    assert_ne!(gone, sub);
    let (stat, requests) = world.counting(world.stat("dir03/sub/deep")).await;
    assert_eq!((stat.unwrap().size_bytes, requests.to_string()), (7, "nothing".to_owned()));
    assert_eq!(world.stat("dir02/file").await.unwrap().kind, vfs::Kind::Directory);
    assert!(world.fs.status().lister.changes >= 3, "{:?}", world.fs.status().lister);
    world.expire();
    world.assert_healthy().await;
}

#[tokio::test(start_paused = true)]
async fn s201_requests_stay_within_the_budget_and_stop_in_an_idle_mount() {
    let bucket = Bucket::in_memory();
    let world = mount_with_known_names(&bucket, 5).await;
    let (_, none) = world.counting(sleep(EVERY * 100)).await;
    assert_eq!(none.to_string(), "nothing", "the lister is off by default");
    world.fs.admin().list_in_background(EVERY);
    let (_, counts) = world.counting(sleep(EVERY * 100)).await;
    let asked = world.fs.status().lister.requests;
    assert!((60..=101).contains(&asked), "{asked}");
    assert_eq!(counts.to_string(), format!("List {asked}"));
    assert!(!world.fs.status().lister.is_idle);
    // The kernel may answer for an hour without a request; a minute after that the mount is idle.
    bucket.clock.advance(Duration::from_secs(3600 + 61));
    sleep(EVERY * 3).await;
    assert!(world.fs.status().lister.is_idle);
    let (_, idle) = world.counting(sleep(EVERY * 100)).await;
    assert_eq!(idle.to_string(), "nothing");
    world.stat("dir01/file").await.unwrap();
    sleep(EVERY * 10).await;
    assert!(world.fs.status().lister.requests > asked);
}

#[tokio::test(start_paused = true)]
async fn s202_a_round_continues_at_the_position_of_the_last_mount() {
    let bucket = Bucket::with_metadata();
    let world = mount_with_known_names(&bucket, 40).await;
    world.fs.admin().list_in_background(EVERY);
    sleep(EVERY * 25).await;
    let before = world.fs.status().lister;
    assert!(before.finished_at.is_none() && before.dir.starts_with(b"dir"), "{before:?}");
    drop(world);
    bucket.put("dir00/file", "changed").await;
    bucket.put("dir39/file", "changed").await;
    let world = bucket.mount(|_| {}).await;
    world.fs.admin().list_in_background(EVERY);
    world.names("/").await.unwrap();
    sleep(EVERY * 2).await;
    let after = world.fs.status().lister;
    // The position is written every ten requests.
    assert!(after.dir >= b"dir10".to_vec() && after.dir <= before.dir, "{before:?} {after:?}");
    while world.fs.status().lister.finished_at.is_none() {
        sleep(EVERY).await;
    }
    let ended = world.fs.status().lister;
    assert!(
        (15..35).contains(&ended.requests) && ended.changes == 1,
        "only directories after the saved position: {ended:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn s203_only_known_names_are_compared_and_none_are_learned() {
    let engine = Arc::new(MemoryEngine::default());
    let bucket = Bucket::with_metadata_on(engine.clone());
    let world = mount_with_known_names(&bucket, 2).await;
    let names = || engine.scan(Bound::Included(b"D"), Bound::Excluded(b"E"), usize::MAX).unwrap().len();
    let before = names();
    for number in 0..2500 {
        bucket.put(format!("dir01/a{number}"), "new").await;
        bucket.put(format!("unknown/{number}"), "new").await;
    }
    bucket.put("dir01/file", "changed").await;
    world.fs.admin().list_in_background(EVERY);
    sleep(EVERY * 8).await;
    let status = world.fs.status().lister;
    assert!(status.finished_at.is_some() && status.changes == 1, "{status:?}");
    assert_eq!(names(), before, "no name was learned");
    assert_eq!(world.stat("dir01/file").await.unwrap().size_bytes, 7);
    world.expire();
    assert_eq!(world.names("dir01").await.unwrap().len(), 2501);
}

#[tokio::test(start_paused = true)]
async fn s204_an_unreachable_bucket_removes_no_names() {
    let bucket = Bucket::in_memory();
    let world = mount_with_known_names(&bucket, 5).await;
    bucket.faults.set_down(true);
    world.fs.admin().list_in_background(EVERY);
    let (_, counts) = world.counting(sleep(Duration::from_secs(3000))).await;
    assert!(counts.total() < 20, "{counts}");
    world.stat("dir04/file").await.unwrap();
    assert_eq!(world.fs.status().lister.changes, 0);
    bucket.delete("dir04/file").await;
    bucket.faults.set_down(false);
    sleep(Duration::from_secs(400)).await;
    assert_eq!(world.fs.status().lister.changes, 1, "a directory is removed with its last entry");
    world.expire();
    world.assert_healthy().await;
}
