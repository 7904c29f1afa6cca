//! The wall clock may be set at any time: it affects the times of files, not what a mount knows of the bucket.

use crate::world::{Bucket, World};

const HOUR: i64 = 3600;

/// Returns the files and their content as a program sees them.
async fn shown(world: &World) -> Vec<(String, Vec<u8>)> {
    let mut shown = Vec::new();
    for name in world.names("dir").await.unwrap() {
        let body = world.read_file(format!("dir/{name}")).await.unwrap();
        shown.push((name, body));
    }
    shown
}

fn expected(files: &[(&str, &str)]) -> Vec<(String, Vec<u8>)> {
    files.iter().map(|(name, body)| ((*name).to_owned(), body.as_bytes().to_vec())).collect()
}

/// Observations of the bucket were ordered and aged by the wall clock. When NTP set a clock back by an hour, all cached state
/// stayed fresh for that hour: a mount showed neither that another client had replaced an object nor that it had added one.
/// After a remount the names were still the old ones, and every `open` of the replaced file failed with ESTALE.
#[tokio::test]
async fn s415_setting_the_clock_hides_no_change_of_the_bucket() {
    for by in [-HOUR, HOUR, -24 * 365 * HOUR, 24 * 3650 * HOUR] {
        let bucket = Bucket::with_metadata();
        bucket.put("dir/a", "one").await;
        bucket.put("dir/gone", "two").await;
        let world = bucket.mount(|_| {}).await;
        world.write_file("dir/ours", "three").await.unwrap();
        assert_eq!(shown(&world).await, expected(&[("a", "one"), ("gone", "two"), ("ours", "three")]));
        bucket.clock.set(by);
        bucket.put("dir/a", "other").await;
        bucket.put("dir/b", "new").await;
        bucket.put("dir/ours", "theirs").await;
        bucket.delete("dir/gone").await;
        world.expire();
        let files = [("a", "other"), ("b", "new"), ("ours", "theirs")];
        assert_eq!(shown(&world).await, expected(&files), "set by {by} s");
        let world = world.remount().await;
        assert_eq!(shown(&world).await, expected(&files), "set by {by} s, after a remount");
    }
}

/// Observations that an earlier mount made while its clock was ahead outranked those of later mounts until their clock had
/// caught up: a machine that had once booted in 2036 never showed the bucket's changes again.
#[tokio::test]
async fn s415_observations_of_earlier_mounts_never_outrank_newer_ones() {
    let bucket = Bucket::with_metadata();
    bucket.put("dir/a", "one").await;
    bucket.clock.set(24 * 3650 * HOUR);
    let world = bucket.mount(|_| {}).await;
    world.write_file("dir/ours", "two").await.unwrap();
    assert_eq!(shown(&world).await, expected(&[("a", "one"), ("ours", "two")]));
    bucket.clock.set(-24 * 3650 * HOUR);
    bucket.put("dir/a", "other").await;
    bucket.delete("dir/ours").await;
    let world = world.remount().await;
    assert_eq!(shown(&world).await, expected(&[("a", "other")]));
}

/// The revalidation time is exact, whatever the wall clock does.
#[tokio::test]
async fn s415_cached_state_lives_for_the_revalidation_time() {
    let world = World::new().await;
    world.write_file("a", "one").await.unwrap();
    world.stat("a").await.unwrap();
    for by in [HOUR, -2 * HOUR] {
        world.bucket.clock.set(by);
        assert_eq!(world.requests(world.stat("a")).await, "nothing", "set by {by} s");
    }
    world.expire();
    assert_ne!(world.requests(world.stat("a")).await, "nothing");
}
