//! Observations of keys in the bucket that arrive late, twice, in any order, or never.

use crate::world::{Bucket, World, errno};
use std::collections::BTreeMap;
use std::time::Duration;
use store::wrap::{Fault, Operation, Rule};
use store::{ObjectKey, ObjectMeta};

/// An observation: the key, its object, and the time of the look.
struct Observation(ObjectKey, Option<ObjectMeta>, Duration);

const KEYS: [&str; 5] = ["dir/a", "dir/b", "dir/deep/c", "top", "gone/x"];

async fn observe(bucket: &Bucket, key: &str) -> Observation {
    let looked_at = store::Clock::monotonic(&*bucket.clock);
    Observation(ObjectKey::try_from(key).unwrap(), bucket.head(key).await, looked_at)
}

async fn reconcile(world: &World, observation: &Observation) {
    world
        .fs
        .reconcile(&observation.0, observation.1.as_ref(), world.fs.moment_at(observation.2))
        .await
        .unwrap();
}

async fn visible_files(world: &World) -> BTreeMap<String, Vec<u8>> {
    let tree = world.tree().await.into_iter();
    tree.filter(|(_, kind, _)| *kind == vfs::Kind::File).map(|(path, _, body)| (path, body)).collect()
}

/// A directory was taken for empty as of its creation, although only an older listing had shown its name to be free. An object that
/// had been put below the name since that listing stayed hidden.
#[tokio::test]
async fn s39_an_object_seen_before_its_directory_was_created_is_shown() {
    let bucket = Bucket::in_memory();
    let world = bucket.mount(|_| {}).await;
    assert_eq!(world.names("").await.unwrap(), [""; 0]);
    bucket.put("d/new", "new").await;
    let observation = observe(&bucket, "d/new").await;
    world.mkdir("d").await.unwrap();
    reconcile(&world, &observation).await;
    assert_eq!(world.names("d").await.unwrap(), ["new"]);
    world.assert_healthy().await;
}

/// A directory appeared beside an open file, and went again. The file was taken for removed, so what was written to it was lost at close
/// (world 79,003,257 of both sides).
#[tokio::test]
async fn s62_an_open_file_gets_its_name_back_when_the_directory_of_that_name_goes() {
    for is_listed in [false, true] {
        let bucket = Bucket::in_memory();
        bucket.put("d", "object").await;
        let world = bucket.mount(|_| {}).await;
        let handle = world.open_handle("d", libc::O_RDWR).await.unwrap();
        let ino = world.ino("d").await.unwrap();
        let show = async || match is_listed {
            false => reconcile(&world, &observe(&bucket, "d/b").await).await,
            true => {
                world.expire();
                world.names("").await.unwrap();
            }
        };
        bucket.put("d/b", "inside").await;
        show().await;
        assert_eq!(world.ino("%=d").await.unwrap(), ino);
        bucket.delete("d/b").await;
        show().await;
        assert_eq!(world.ino("d").await.unwrap(), ino, "listed: {is_listed}");
        assert_eq!(errno(world.stat("%=d").await), libc::ENOENT);
        world.fs.write(handle, 0, b"OB").await.unwrap();
        world.close(handle).await.unwrap();
        assert_eq!(bucket.object("d").await.unwrap(), b"OBject");
        world.assert_healthy().await;
    }
}

/// Observations in several orders, some lost and others repeated, lead to the state of the bucket.
#[tokio::test]
async fn s56_lost_late_repeated_and_reordered_events_lead_to_the_same_state() {
    let mut ends = Vec::new();
    for order in 0..12 {
        let bucket = Bucket::in_memory();
        for key in KEYS {
            bucket.put(key, format!("{key} at first")).await;
        }
        let world = bucket.mount(|_| {}).await;
        visible_files(&world).await;
        let mut observations = Vec::new();
        for (step, key) in KEYS.iter().cycle().take(20).enumerate() {
            match (step * 7 + 3) % 5 {
                0 | 1 => bucket.delete(key).await,
                _ => bucket.put(key, format!("{key} at step {step}")).await,
            }
            observations.push(observe(&bucket, key).await);
        }
        match order % 4 {
            0 => {}
            1 => observations.reverse(),
            2 => observations.rotate_left(order),
            _ => observations.sort_by_key(|observation| observation.0.as_bytes().last().copied()),
        }
        for (index, observation) in observations.iter().enumerate() {
            let times = (index + order) % 3;
            for _ in 0..times {
                reconcile(&world, observation).await;
            }
        }
        world.expire();
        ends.push(visible_files(&world).await);
        for (path, body) in &ends[order] {
            assert_eq!(bucket.object(path.trim_start_matches('/')).await.as_ref(), Some(body), "{path}");
        }
        world.assert_healthy().await;
    }
    assert!(!ends[0].is_empty() && ends.iter().all(|end| *end == ends[0]), "{ends:?}");
}

/// A timely observation is visible at once, before the revalidation time has passed.
#[tokio::test]
async fn s56_an_event_is_seen_at_once() {
    let bucket = Bucket::in_memory();
    bucket.put("dir/a", "one").await;
    let world = bucket.mount(|_| {}).await;
    assert_eq!(world.read_file("dir/a").await.unwrap(), b"one");
    bucket.put("dir/a", "second").await;
    reconcile(&world, &observe(&bucket, "dir/a").await).await;
    assert_eq!(world.read_file("dir/a").await.unwrap(), b"second");
    bucket.put("dir/b", "new").await;
    reconcile(&world, &observe(&bucket, "dir/b").await).await;
    assert_eq!(world.names("dir").await.unwrap(), ["a", "b"]);
    bucket.delete("dir/a").await;
    reconcile(&world, &observe(&bucket, "dir/a").await).await;
    assert_eq!(errno(world.stat("dir/a").await), libc::ENOENT);
}

/// Regression: removed and renamed files were shown again, and opening them failed as if another client had removed them
/// (worlds 6920 and 6710 of both sides).
#[tokio::test]
async fn s56_an_old_look_does_not_bring_back_removed_names() {
    let bucket = Bucket::with_metadata();
    bucket.put("dir/removed", "foreign").await;
    let world = bucket.mount(|_| {}).await;
    world.write_file("dir/old", b"ours").await.unwrap();
    let removed = observe(&bucket, "dir/removed").await;
    bucket.delete("dir/removed").await;
    world.expire();
    assert_eq!(world.names("dir").await.unwrap(), ["old"]);
    reconcile(&world, &removed).await;
    assert_eq!(world.names("dir").await.unwrap(), ["old"], "a newer listing does not have the name");

    let moving = bucket.late.hold(Operation::Copy);
    world.rename_at_once("dir/old", "dir/new", 0).await.unwrap();
    bucket.clock.advance(Duration::from_millis(1));
    let renamed = observe(&bucket, "dir/old").await;
    assert!(renamed.1.is_some(), "the object has not moved yet");
    drop(moving.done().await);
    world.fs.moves().wait_until_complete().await;
    reconcile(&world, &renamed).await;
    assert_eq!(errno(world.stat("dir/old").await), libc::ENOENT);
    world.assert_healthy().await;
}

/// Regression: with write-back the bucket does not have the newest change yet, and an observation of it brought back the old
/// state (world 688 of both sides).
#[tokio::test]
async fn s56_an_event_does_not_hide_pending_writes() {
    let bucket = Bucket::in_memory();
    bucket.put("dir/a", "old").await;
    let world = bucket.mount(|config| config.write_back = true).await;
    bucket.faults.add(Rule::new(Fault::unavailable()).on(Operation::Put).always());
    world.write_file("dir/a", "newer").await.unwrap();
    reconcile(&world, &observe(&bucket, "dir/a").await).await;
    assert_eq!(world.read_file("dir/a").await.unwrap(), b"newer");
    bucket.faults.clear();
    world.settle().await;
    assert_eq!(bucket.object("dir/a").await.unwrap(), b"newer");
    bucket.put("dir/a", "theirs").await;
    reconcile(&world, &observe(&bucket, "dir/a").await).await;
    assert_eq!(world.read_file("dir/a").await.unwrap(), b"theirs");
}
