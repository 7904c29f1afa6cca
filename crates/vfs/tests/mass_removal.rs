//! Removal of many names by another client.

use crate::world::{Bucket, World, errno};
use meta::{Engine as _, MemoryEngine};
use std::sync::Arc;
use vfs::{Invalidation, Kind};

const COUNT: usize = 20_000;

/// Regression: each missing name was removed by its own commit, and no name of the mount could change before the last one. `ls`
/// of a directory from which another client had deleted 100,000 objects blocked a `create` in another directory for 7.5 s.
#[tokio::test]
async fn s417_removing_many_names_blocks_no_other_change() {
    let engine = Arc::new(MemoryEngine::default());
    let bucket = Bucket::with_metadata_on(engine.clone());
    for n in 0..COUNT {
        bucket.put(format!("dir/sub/{n:05}"), "x").await;
    }
    bucket.put("dir/stays", "y").await;
    let world = bucket.mount(|_| {}).await;
    world.mkdir("other").await.unwrap();
    assert_eq!(world.names("dir/sub").await.unwrap().len(), COUNT);
    for n in 0..COUNT {
        bucket.delete(format!("dir/sub/{n:05}")).await;
    }
    world.expire();
    let before = engine.head().0;
    let create = async {
        while engine.head().0 < before + 4 {
            tokio::task::yield_now().await;
        }
        world.mknod("other/new", Kind::Fifo).await.unwrap();
        engine.head().0
    };
    let (left, created_at) = tokio::join!(world.names("dir"), create);
    assert_eq!(left.unwrap(), ["stays"]);
    let commits = engine.head().0 - before;
    assert!(commits < COUNT as u64 / 50, "{commits} commits");
    assert!(created_at < engine.head().0 - 4, "the other change waited for the end of the removal");
    assert_eq!(errno(world.stat("dir/sub").await), libc::ENOENT);
    world.assert_healthy().await;
}

/// A directory that was removed from the bucket keeps files that this mount has not stored yet.
#[tokio::test]
async fn s417_unstored_files_outlive_their_directory_in_the_bucket() {
    let bucket = Bucket::in_memory();
    for n in 0..600 {
        bucket.put(format!("dir/sub/{n:03}"), "x").await;
    }
    bucket.put("stays", "y").await;
    let world = bucket.mount(|_| {}).await;
    assert_eq!(world.names("dir/sub").await.unwrap().len(), 600);
    let ours = world.create("dir/sub/ours").await.unwrap();
    world.write_all(ours, b"ours").await.unwrap();
    for n in 0..600 {
        bucket.delete(format!("dir/sub/{n:03}")).await;
    }
    world.expire();
    assert_eq!(world.names("").await.unwrap(), ["dir", "stays"]);
    assert_eq!(world.names("dir/sub").await.unwrap(), ["ours"]);
    world.close(ours).await.unwrap();
    assert_eq!(bucket.object("dir/sub/ours").await.unwrap(), b"ours");
    world.assert_healthy().await;
}

/// Regression: invalidations beyond a front end's queue were dropped "since every cached answer expires by itself". With a long
/// `--metadata-ttl` the kernel showed removed files for that long.
#[tokio::test]
async fn s418_a_front_end_whose_queue_overflows_drops_everything() {
    let bucket = Bucket::in_memory();
    for n in 0..5000 {
        bucket.put(format!("dir/{n:04}"), "x").await;
    }
    let world: World = bucket.mount(|_| {}).await;
    assert_eq!(world.names("dir").await.unwrap().len(), 5000);
    let kept = world.stat("dir/4999").await.unwrap();
    let mut news = world.fs.kernel_caches().invalidations();
    assert!(news.try_recv().is_err());
    for n in 0..4999 {
        bucket.delete(format!("dir/{n:04}")).await;
    }
    bucket.put("dir/4999", "changed").await;
    world.expire();
    assert_eq!(world.names("dir").await.unwrap(), ["4999"]);
    assert_eq!(news.try_recv().unwrap(), Invalidation::Everything);
    assert_ne!(news.recv().await.unwrap(), Invalidation::Everything, "the overflow is reported once");
    let (mut after, mut held) = (None, Vec::new());
    while let Some((last, some)) = world.fs.kernel_caches().everything_held(after) {
        after = Some(last);
        held.extend(some);
    }
    let parent = world.ino("dir").await.unwrap();
    let name = Invalidation::Entry { parent, name: "4999".into() };
    assert!(held.contains(&Invalidation::Inode(kept.ino)) && held.contains(&name), "{held:?}");
}
