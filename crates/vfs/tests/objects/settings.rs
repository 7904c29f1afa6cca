//! Settings of buckets that are directories belong to the directory, not to its name.

use crate::world::{Bucket, World};
use bytes::Bytes;
use vfs::{Mapping, directory_buckets};

async fn policy(world: &World, bucket: &str) -> Option<Bytes> {
    let bucket = vfs::objects(&world.fs, bucket.as_bytes());
    bucket.settings().unwrap().get("policy").await.unwrap()
}

async fn set(world: &World, bucket: &str, policy: &'static str) {
    let bucket = vfs::objects(&world.fs, bucket.as_bytes());
    bucket.settings().unwrap().set("policy", Some(Bytes::from_static(policy.as_bytes()))).await.unwrap();
}

/// After `rmdir` and `mkdir` in the mount, users admitted by the old directory's policy could read the new one's files. `mv`
/// lost a policy that denied access.
#[tokio::test]
async fn s480_settings_belong_to_the_directory() {
    let world = Bucket::by_inode(Mapping::Whole).await.mount(|_| {}).await;
    world.mkdir("scratch").await.unwrap();
    set(&world, "scratch", "open").await;
    world.rmdir("scratch").await.unwrap();
    assert_eq!(policy(&world, "scratch").await, None);
    world.mkdir("scratch").await.unwrap();
    assert_eq!(policy(&world, "scratch").await, None);
    set(&world, "scratch", "closed").await;
    world.rename("scratch", "moved").await.unwrap();
    world.mkdir("scratch").await.unwrap();
    assert_eq!(policy(&world, "moved").await.unwrap(), "closed");
    assert_eq!(policy(&world, "scratch").await, None);
    let again = world.remount().await;
    assert_eq!(policy(&again, "moved").await.unwrap(), "closed");
}

/// By path, settings are stored under the name: a new bucket must not inherit them.
#[tokio::test]
async fn s480_a_new_bucket_has_no_settings() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    let buckets = directory_buckets(&world.fs);
    buckets.create("scratch").await.unwrap();
    set(&world, "scratch", "open").await;
    world.rmdir("scratch").await.unwrap();
    buckets.create("scratch").await.unwrap();
    assert_eq!(policy(&world, "scratch").await, None);
}

/// By path, `mv closed moved` through the mount lost a policy that denied access, and after `rmdir` and `mkdir` the new
/// directory had the old one's policy.
#[tokio::test]
async fn s550_settings_follow_a_renamed_directory_by_path() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    world.mkdir("one-bucket").await.unwrap();
    set(&world, "one-bucket", "open").await;
    world.rmdir("one-bucket").await.unwrap();
    world.mkdir("one-bucket").await.unwrap();
    assert_eq!(policy(&world, "one-bucket").await, None);
    set(&world, "one-bucket", "one").await;
    world.mkdir("two-bucket").await.unwrap();
    set(&world, "two-bucket", "two").await;
    world.rename("two-bucket", "moved").await.unwrap();
    assert_eq!(policy(&world, "moved").await.unwrap(), "two");
    world.mkdir("two-bucket").await.unwrap();
    assert_eq!(policy(&world, "two-bucket").await, None);
    assert_eq!(policy(&world, "one-bucket").await.unwrap(), "one");
    set(&world, "two-bucket", "new").await;
    let again = world.remount().await;
    assert_eq!(policy(&again, "moved").await.unwrap(), "two");
    assert_eq!(policy(&again, "two-bucket").await.unwrap(), "new");
}

/// Several renames before any settings are read, including two directories that swap names.
#[tokio::test]
async fn s550_settings_follow_several_renames() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    for name in ["aaa", "bbb", "ccc", "ddd"] {
        world.mkdir(name).await.unwrap();
        set(&world, name, name).await;
    }
    world.rename("aaa", "spare").await.unwrap();
    world.rename("bbb", "aaa").await.unwrap();
    world.rename("spare", "bbb").await.unwrap();
    world.rmdir("ddd").await.unwrap();
    world.rename("ccc", "ddd").await.unwrap();
    world.mkdir("spare").await.unwrap();
    let world = world.remount().await;
    let found = |name| policy(&world, name);
    assert_eq!((found("aaa").await.unwrap(), found("bbb").await.unwrap()), ("bbb".into(), "aaa".into()));
    assert_eq!((found("ddd").await.unwrap(), found("spare").await), ("ccc".into(), None));
    assert_eq!(found("ccc").await, None);
    let mut left = world.bucket.keys().await;
    left.retain(|key| key.starts_with(".tenon/buckets/"));
    assert_eq!(left.len(), 3, "{left:?}");
}

/// Creating or deleting a bucket through the endpoint must not affect a directory that had its name before.
#[tokio::test]
async fn s550_a_new_bucket_leaves_the_settings_of_a_renamed_one() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    let buckets = directory_buckets(&world.fs);
    buckets.create("first").await.unwrap();
    set(&world, "first", "closed").await;
    world.rename("first", "second").await.unwrap();
    buckets.create("first").await.unwrap();
    assert_eq!(policy(&world, "first").await, None);
    set(&world, "first", "open").await;
    buckets.delete("first").await.unwrap();
    buckets.create("first").await.unwrap();
    assert_eq!(
        (policy(&world, "first").await, policy(&world, "second").await),
        (None, Some("closed".into()))
    );
}

/// A rename to a place that is not a bucket, and back.
#[tokio::test]
async fn s550_a_directory_that_is_no_bucket_has_no_settings() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    world.mkdir("archive").await.unwrap();
    world.mkdir("closed").await.unwrap();
    set(&world, "closed", "closed").await;
    world.rename("closed", "archive/closed").await.unwrap();
    assert_eq!(policy(&world, "closed").await, None);
    world.rename("archive/closed", "closed").await.unwrap();
    assert_eq!(policy(&world, "closed").await, None);
}

/// Earlier versions stored settings under the directory's name.
#[tokio::test]
async fn settings_by_name_are_found_and_moved() {
    let world = Bucket::by_inode(Mapping::Whole).await.mount(|_| {}).await;
    world.mkdir("a-bucket").await.unwrap();
    world.bucket.put(".tenon/buckets/a-bucket/policy", "by name").await;
    assert_eq!(policy(&world, "a-bucket").await.unwrap(), "by name");
    assert_eq!(world.bucket.object(".tenon/buckets/a-bucket/policy").await, None);
    world.rename("a-bucket", "b-bucket").await.unwrap();
    assert_eq!(policy(&world, "b-bucket").await.unwrap(), "by name");
}

/// A policy that was revoked through one endpoint stayed in force at another one until its restart.
#[tokio::test(start_paused = true)]
async fn s480_settings_of_another_endpoint_are_seen_soon() {
    let bucket = Bucket::with_metadata();
    let (one, other) = (bucket.mount(|_| {}).await, bucket.elsewhere().mount(|_| {}).await);
    directory_buckets(&one.fs).create("shared").await.unwrap();
    set(&one, "shared", "open").await;
    assert_eq!(policy(&other, "shared").await.unwrap(), "open");
    set(&one, "shared", "closed").await;
    tokio::time::advance(std::time::Duration::from_secs(11)).await;
    assert_eq!(policy(&other, "shared").await.unwrap(), "closed");
}
