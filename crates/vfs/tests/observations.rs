//! What is told of the bucket's keys: true observations, which may come late, twice, in any order, or never.

use crate::world::{Bucket, World, errno};
use std::collections::BTreeMap;
use std::time::Duration;
use store::wrap::{Fault, Operation, Rule};
use store::{ObjectKey, ObjectMeta};

/// What a key was seen to be, at a time.
struct Hint(ObjectKey, Option<ObjectMeta>, Duration);

const KEYS: [&str; 5] = ["dir/a", "dir/b", "dir/deep/c", "top", "gone/x"];

async fn observe(bucket: &Bucket, key: &str) -> Hint {
    let looked_at = store::Clock::monotonic(&*bucket.clock);
    Hint(ObjectKey::try_from(key).unwrap(), bucket.head(key).await, looked_at)
}

async fn tell(world: &World, hint: &Hint) {
    world.fs.reconcile(&hint.0, hint.1.as_ref(), world.fs.moment_at(hint.2)).await.unwrap();
}

async fn shown(world: &World) -> BTreeMap<String, Vec<u8>> {
    let tree = world.tree().await.into_iter();
    tree.filter(|(_, kind, _)| *kind == vfs::Kind::File).map(|(path, _, body)| (path, body)).collect()
}

/// Each of several orders of the same observations, and each with some lost and others told twice, ends in what the bucket
/// holds.
#[tokio::test]
async fn s56_events_that_are_lost_late_repeated_or_out_of_order_leave_the_same() {
    let mut ends = Vec::new();
    for order in 0..12 {
        let bucket = Bucket::in_memory();
        for key in KEYS {
            bucket.put(key, format!("{key} at first")).await;
        }
        let world = bucket.mount(|_| {}).await;
        shown(&world).await;
        let mut hints = Vec::new();
        for (step, key) in KEYS.iter().cycle().take(20).enumerate() {
            match (step * 7 + 3) % 5 {
                0 | 1 => bucket.delete(key).await,
                _ => bucket.put(key, format!("{key} at step {step}")).await,
            }
            hints.push(observe(&bucket, key).await);
        }
        match order % 4 {
            0 => {}
            1 => hints.reverse(),
            2 => hints.rotate_left(order),
            _ => hints.sort_by_key(|hint| hint.0.as_bytes().last().copied()),
        }
        for (index, hint) in hints.iter().enumerate() {
            let times = (index + order) % 3;
            for _ in 0..times {
                tell(&world, hint).await;
            }
        }
        world.expire();
        ends.push(shown(&world).await);
        for (path, body) in &ends[order] {
            assert_eq!(bucket.object(path.trim_start_matches('/')).await.as_ref(), Some(body), "{path}");
        }
        world.assert_healthy().await;
    }
    assert!(!ends[0].is_empty() && ends.iter().all(|end| *end == ends[0]), "{ends:?}");
}

/// What was told in time is seen at once, before the revalidation time has passed.
#[tokio::test]
async fn s56_an_event_is_seen_at_once() {
    let bucket = Bucket::in_memory();
    bucket.put("dir/a", "one").await;
    let world = bucket.mount(|_| {}).await;
    assert_eq!(world.read_file("dir/a").await.unwrap(), b"one");
    bucket.put("dir/a", "second").await;
    tell(&world, &observe(&bucket, "dir/a").await).await;
    assert_eq!(world.read_file("dir/a").await.unwrap(), b"second");
    bucket.put("dir/b", "new").await;
    tell(&world, &observe(&bucket, "dir/b").await).await;
    assert_eq!(world.names("dir").await.unwrap(), ["a", "b"]);
    bucket.delete("dir/a").await;
    tell(&world, &observe(&bucket, "dir/a").await).await;
    assert_eq!(errno(world.stat("dir/a").await), libc::ENOENT);
}

/// Both were shown again, and who opened them was told that somebody had removed them (worlds 6920 and 6710 of both sides).
#[tokio::test]
async fn s56_an_old_look_does_not_bring_back_what_is_known_to_be_gone() {
    let bucket = Bucket::with_metadata();
    bucket.put("dir/removed", "foreign").await;
    let world = bucket.mount(|_| {}).await;
    world.write_file("dir/old", b"ours").await.unwrap();
    let removed = observe(&bucket, "dir/removed").await;
    bucket.delete("dir/removed").await;
    world.expire();
    assert_eq!(world.names("dir").await.unwrap(), ["old"]);
    tell(&world, &removed).await;
    assert_eq!(world.names("dir").await.unwrap(), ["old"], "it was listed since");

    let moving = bucket.late.hold(Operation::Copy);
    world.rename_at_once("dir/old", "dir/new", 0).await.unwrap();
    bucket.clock.advance(Duration::from_millis(1));
    let renamed = observe(&bucket, "dir/old").await;
    assert!(renamed.1.is_some(), "it has not moved yet");
    drop(moving.done().await);
    world.fs.moves_end().await;
    tell(&world, &renamed).await;
    assert_eq!(errno(world.stat("dir/old").await), libc::ENOENT);
    world.assert_healthy().await;
}

/// With write-back the bucket does not have what was just put, and who had looked there brought back what was before (world
/// 688 of both sides).
#[tokio::test]
async fn s56_an_event_does_not_hide_what_waits_for_the_bucket() {
    let bucket = Bucket::in_memory();
    bucket.put("dir/a", "old").await;
    let world = bucket.mount(|config| config.write_back = true).await;
    bucket.faults.add(Rule::new(Fault::unavailable()).on(Operation::Put).always());
    world.write_file("dir/a", "newer").await.unwrap();
    tell(&world, &observe(&bucket, "dir/a").await).await;
    assert_eq!(world.read_file("dir/a").await.unwrap(), b"newer");
    bucket.faults.clear();
    world.settle().await;
    assert_eq!(bucket.object("dir/a").await.unwrap(), b"newer");
    bucket.put("dir/a", "theirs").await;
    tell(&world, &observe(&bucket, "dir/a").await).await;
    assert_eq!(world.read_file("dir/a").await.unwrap(), b"theirs");
}
