//! Mounts whose directories at the root are buckets.

use crate::world::{Bucket, MIB, World, errno};
use store::wrap::{Fault, Operation, Rule};
use vfs::ConflictPolicy;

async fn mount(bucket: &Bucket) -> World {
    bucket.mount(|config| config.joins_buckets = true).await
}

/// Returns the keys of Tenon's own objects in a bucket.
async fn own_keys(bucket: &Bucket, name: &str) -> Vec<String> {
    bucket.keys_below(&format!("{name}/.tenon/")).await
}

/// Regression: content under keys of its own was outside any bucket, so that an fsync of a small change failed with EACCES.
#[tokio::test]
async fn s12_a_changed_range_is_stored_in_the_bucket_of_its_file() {
    let bucket = Bucket::several().await;
    let world = mount(&bucket).await;
    let body = vec![b'a'; 9 * MIB];
    world.write_file("two-bucket/long", &body).await.unwrap();
    let handle = world.open_handle("two-bucket/long", libc::O_RDWR).await.unwrap();
    world.fs.write(handle, 5, b"changed").await.unwrap();
    world.fs.fsync(handle).await.unwrap();
    let kept = own_keys(&bucket, "two-bucket").await;
    assert!(kept.iter().all(|key| key.starts_with("two-bucket/.tenon/inodes/")), "{kept:?}");
    assert_eq!(kept.len(), 1);
    // As after a crash: the next mount stores the file at its path.
    drop(world);
    let again = mount(&bucket).await;
    again.fs.recover().await.unwrap();
    let expected = [b"aaaaachanged", &body[12..]].concat();
    assert!(bucket.object("two-bucket/long").await.unwrap() == expected);
    assert!(again.read_file("two-bucket/long").await.unwrap() == expected);
    assert_eq!(own_keys(&bucket, "two-bucket").await, Vec::<String>::new());
}

/// Regression: writes to a file whose name was removed failed with EACCES.
#[tokio::test]
async fn s30_a_removed_file_stays_in_its_bucket_while_it_is_open() {
    let bucket = Bucket::several().await;
    let world = mount(&bucket).await;
    for (path, stored) in [("two-bucket/stored", &b"stored"[..]), ("two-bucket/new", b"")] {
        if !stored.is_empty() {
            world.write_file(path, stored).await.unwrap();
        }
        let handle = match stored.is_empty() {
            true => world.create(path).await.unwrap(),
            false => world.open_handle(path, libc::O_RDWR).await.unwrap(),
        };
        world.unlink(path).await.unwrap();
        assert_eq!(world.read_all(handle).await.unwrap(), stored);
        world.write_all(handle, b"later").await.unwrap();
        world.fs.fsync(handle).await.unwrap();
        assert!(world.read_all(handle).await.unwrap().starts_with(b"later"));
        assert_eq!(own_keys(&bucket, "one-bucket").await, Vec::<String>::new());
        assert!(bucket.object(path).await.is_none());
        world.close(handle).await.unwrap();
        world.fs.sync().await.unwrap();
        assert_eq!(own_keys(&bucket, "two-bucket").await, Vec::<String>::new(), "{path}");
    }
}

#[tokio::test]
async fn a_file_that_is_open_while_it_moves_to_another_bucket_is_stored_there() {
    let bucket = Bucket::several().await;
    let world = mount(&bucket).await;
    world.write_file("one-bucket/a", vec![b'a'; 9 * MIB]).await.unwrap();
    let handle = world.open_handle("one-bucket/a", libc::O_RDWR).await.unwrap();
    world.rename("one-bucket/a", "two-bucket/b").await.unwrap();
    world.fs.write(handle, 0, b"b").await.unwrap();
    world.fs.fsync(handle).await.unwrap();
    assert_eq!(own_keys(&bucket, "two-bucket").await.len(), 1);
    world.unlink("two-bucket/b").await.unwrap();
    world.fs.write(handle, 1, b"b").await.unwrap();
    world.fs.fsync(handle).await.unwrap();
    assert!(world.read_all(handle).await.unwrap().starts_with(b"bba"));
    assert_eq!(own_keys(&bucket, "one-bucket").await, Vec::<String>::new());
    world.close(handle).await.unwrap();
    world.fs.sync().await.unwrap();
    assert_eq!(own_keys(&bucket, "two-bucket").await, Vec::<String>::new());
}

#[tokio::test]
async fn unused_content_of_all_buckets_is_collected() {
    let bucket = Bucket::several().await;
    let world = mount(&bucket).await;
    for path in ["one-bucket/a", "two-bucket/a"] {
        world.write_file(path, vec![b'a'; 9 * MIB]).await.unwrap();
        let handle = world.open_handle(path, libc::O_RDWR).await.unwrap();
        world.fs.write(handle, 0, b"b").await.unwrap();
        world.fs.fsync(handle).await.unwrap();
        bucket.faults.add(Rule::new(Fault::unavailable()).on(Operation::Delete).always());
        world.close(handle).await.unwrap();
    }
    drop(world);
    bucket.faults.clear();
    let again = mount(&bucket).await;
    let collected = again.fs.admin().collect_garbage(false).await.unwrap();
    assert_eq!(collected.len(), 2, "{collected:?}");
    for name in ["one-bucket", "two-bucket"] {
        assert_eq!(own_keys(&bucket, name).await, Vec::<String>::new());
    }
}

/// Regression: the losing side of a conflict could not be stored, as `lost+found` at the root is in no bucket.
#[tokio::test]
async fn the_losing_side_of_a_conflict_is_kept_in_its_bucket() {
    let bucket = Bucket::several().await;
    let world = bucket
        .mount(|config| {
            config.joins_buckets = true;
            config.conflicts = ConflictPolicy::FileWins;
        })
        .await;
    world.mkdir("one-bucket/dir").await.unwrap();
    world.write_file("one-bucket/dir/file", "first").await.unwrap();
    let handle = world.open_handle("one-bucket/dir/file", libc::O_WRONLY | libc::O_TRUNC).await.unwrap();
    world.fs.write(handle, 0, b"ours").await.unwrap();
    bucket.put("one-bucket/dir/file", "theirs").await;
    world.close(handle).await.unwrap();
    assert_eq!(bucket.object("one-bucket/dir/file").await.unwrap(), b"ours");
    let lost = bucket.keys_below("one-bucket/lost+found/").await;
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert!(lost[0].starts_with("one-bucket/lost+found/dir_file."), "{lost:?}");
    assert_eq!(bucket.object(&lost[0]).await.unwrap(), b"theirs");
    assert_eq!(world.names("one-bucket/lost+found").await.unwrap().len(), 1);
}

/// Tenon's own objects are not reachable as files, by no name.
#[tokio::test]
async fn own_objects_have_no_path() {
    let bucket = Bucket::several().await;
    bucket.put("one-bucket/.tenon/volume", "{}").await;
    let world = mount(&bucket).await;
    assert_eq!(errno(world.stat("one-bucket/.tenon").await), libc::ENOENT);
    assert_eq!(world.names("one-bucket").await.unwrap(), Vec::<String>::new());
    assert_eq!(errno(world.mkdir("one-bucket/.tenon").await), libc::EPERM);
    world.mkdir("one-bucket/dir").await.unwrap();
    assert_eq!(errno(world.rename("one-bucket/dir", "one-bucket/.tenon").await), libc::EPERM);
    world.mkdir("one-bucket/dir/.tenon").await.unwrap();
    assert_eq!(world.names("one-bucket/dir").await.unwrap(), [".tenon"]);
}
