//! Files of a volume named by path whose object is temporarily not at their path because the store failed, and objects that
//! crashes and lost answers leave at paths.

use crate::world::{Bucket, MIB, World, errno, pattern};
use store::wrap::{Fault, Operation, Rule};
use vfs::{Changes, Handle};

/// Returns a world with exchanged files `a` and `b`. The request that should store `b` (earlier `a`, with the bytes `one`) at
/// its path had this fault.
async fn exchange_with_fault(fault: Fault) -> World {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    world.write_file("a", b"one").await.unwrap();
    world.write_file("b", b"two").await.unwrap();
    let puts = Rule::new(fault).on(Operation::Put);
    world.bucket.faults.add(puts.at(&"b".try_into().unwrap()));
    world.rename_with("a", "b", libc::RENAME_EXCHANGE).await.unwrap();
    world
}

/// Syncs, and returns the keys that other clients see.
async fn sync_and_list_keys(world: &World) -> Vec<String> {
    world.fs.sync().await.unwrap();
    world.bucket.keys().await.into_iter().filter(|key| !key.starts_with(".tenon/")).collect()
}

/// Regression: the headers went to the new file at the old name.
#[tokio::test]
async fn s77_an_exchange_keeps_foreign_headers() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    world.bucket.put_with("a", "one", &[("project", "apollo")]).await;
    world.bucket.put("b", "two").await;
    world.rename_with("a", "b", libc::RENAME_EXCHANGE).await.unwrap();
    assert_eq!(world.bucket.object("b").await.unwrap(), b"one");
    assert_eq!(world.bucket.header("b", "project").await.as_deref(), Some("apollo"));
    assert_eq!(world.bucket.header("a", "project").await, None);
    world.assert_healthy().await;
}

#[tokio::test]
async fn s77_a_detached_object_is_stored_at_its_path_by_the_next_sync() {
    for fault in [Fault::unavailable(), Fault::lost_reply()] {
        let world = exchange_with_fault(fault).await;
        assert_eq!(sync_and_list_keys(&world).await, ["a", "b"]);
        assert_eq!(world.bucket.object("b").await.unwrap(), b"one");
        world.assert_healthy().await;
        assert!(world.bucket.keys().await.iter().all(|key| !key.starts_with(".tenon/")));
    }
}

/// Regression: an object whose PUT had succeeded without an answer was left when its file was renamed or removed, and
/// reappeared as a new file (worlds of files 20998 and 28651).
#[tokio::test]
async fn s77_an_object_of_an_ambiguous_put_goes_with_its_name() {
    let world = exchange_with_fault(Fault::lost_reply()).await;
    world.rename("b", "c").await.unwrap();
    assert_eq!(sync_and_list_keys(&world).await, ["a", "c"]);
    assert_eq!(world.read_file("c").await.unwrap(), b"one");
    world.assert_healthy().await;

    let world = exchange_with_fault(Fault::lost_reply()).await;
    world.unlink("b").await.unwrap();
    assert_eq!(sync_and_list_keys(&world).await, ["a"]);
    world.assert_healthy().await;
}

/// Regression: a listing showed an object where the file should be, and removed the file's name. Later writes to the file were
/// lost (world of files 90522).
#[tokio::test]
async fn s77_an_object_of_an_ambiguous_put_is_not_taken_for_another_file() {
    let world = exchange_with_fault(Fault::lost_reply()).await;
    let handle = world.open_handle("b", libc::O_RDWR).await.unwrap();
    world.fs.write(handle, 3, b" more").await.unwrap();
    world.expire();
    assert_eq!(world.names("/").await.unwrap(), ["a", "b"]);
    world.close(handle).await.unwrap();
    assert_eq!(world.bucket.object("b").await.unwrap(), b"one more");
    assert_eq!(sync_and_list_keys(&world).await, ["a", "b"]);
    world.assert_healthy().await;
}

/// Regression: the file was preserved in `lost+found` again and again, and its name never led to the bucket's object (world of
/// files 85034).
#[tokio::test]
async fn s77_a_foreign_object_wins_over_a_detached_one() {
    let world = exchange_with_fault(Fault::unavailable()).await;
    world.bucket.put("b", "theirs").await;
    let kept = |keys: Vec<String>| keys.iter().filter(|key| key.starts_with("lost+found/")).count();
    assert_eq!(kept(sync_and_list_keys(&world).await), 1);
    assert_eq!(kept(sync_and_list_keys(&world).await), 1);
    assert_eq!(world.read_file("b").await.unwrap(), b"theirs");
    world.assert_healthy().await;
}

/// Regression: the state from the first lookup decided what was deleted. The object of a file that had been stored since was
/// left, and its replacement was taken for a conflict (world of files 42125).
#[tokio::test]
async fn s77_a_file_with_a_detached_object_replaces_another() {
    let world = exchange_with_fault(Fault::unavailable()).await;
    let new = world.create("new").await.unwrap();
    world.bucket.faults.add(Rule::new(Fault::lost_reply()).on(Operation::Put));
    assert_eq!(errno(world.fs.fsync(new).await), libc::EIO);
    world.rename("b", "new").await.unwrap();
    assert_eq!(sync_and_list_keys(&world).await, ["a", "new"]);
    assert_eq!(world.bucket.object("new").await.unwrap(), b"one");
    world.close(new).await.unwrap();
    world.assert_healthy().await;
}

/// Regression: the rename was committed first, and then the object of the replaced file could not be deleted. It was taken for
/// another client's, and the file went to `lost+found` (world of files 144934).
#[tokio::test]
async fn s77_a_detached_object_replaces_another_when_deletes_fail() {
    let world = exchange_with_fault(Fault::unavailable()).await;
    world.bucket.faults.add(Rule::new(Fault::unavailable()).on(Operation::Delete).always());
    world.rename("b", "a").await.unwrap();
    world.bucket.faults.clear();
    assert_eq!(sync_and_list_keys(&world).await, ["a"]);
    assert_eq!(world.bucket.object("a").await.unwrap(), b"one");
    world.assert_healthy().await;
}

/// Regression: the link's object was still at its path, but older than its new times, and every sync failed (world of files
/// 20816).
#[tokio::test]
async fn s77_a_symbolic_link_is_recognized_at_its_path() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    world.write_file("a", b"one").await.unwrap();
    world.symlink("b", b"target").await.unwrap();
    for operation in [Operation::Delete, Operation::Head] {
        let fault = Rule::new(Fault::unavailable()).on(operation).at(&"b".try_into().unwrap());
        world.bucket.faults.add(fault.always());
    }
    assert_eq!(errno(world.rename_with("b", "a", libc::RENAME_EXCHANGE).await), libc::EIO);
    world.bucket.faults.clear();
    let atime = Some(vfs::Time::Now);
    world.set("b", Changes { atime, ..Changes::default() }).await.unwrap();
    assert_eq!(sync_and_list_keys(&world).await, ["a", "b"]);
    world.assert_healthy().await;
}

/// Regression: the answer to the copy with new headers was lost. Its etag was taken for another client's, and open handles
/// could not read on (world of files 47120).
#[tokio::test]
async fn s52_an_ambiguous_header_update_is_not_taken_for_another_file() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    let body = pattern(300_000);
    world.write_file("file", &body).await.unwrap();
    let handle = world.open_handle("file", libc::O_RDONLY).await.unwrap();
    world.fs.read(handle, 0, 10).await.unwrap();
    world.chmod("file", 0o600).await.unwrap();
    world.bucket.faults.add(Rule::new(Fault::lost_reply()).on(Operation::Copy));
    world.bucket.faults.add(Rule::new(Fault::unavailable()).on(Operation::Head).after(1));
    assert_eq!(errno(world.fs.fsync(handle).await), libc::EIO);
    world.expire();
    assert_eq!(world.names("/").await.unwrap(), ["file"]);
    assert_eq!(world.read_all(handle).await.unwrap(), body);
    world.close(handle).await.unwrap();
    world.assert_healthy().await;
    assert_eq!(world.bucket.header("file", "file-permissions").await.unwrap(), "0100600");
}

/// Returns a world with a closed `file`, for which the answer to a copy with new headers was lost.
async fn with_ambiguous_headers() -> World {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    world.write_file("file", b"one").await.unwrap();
    world.write_file("other", b"two").await.unwrap();
    let handle = world.open_handle("file", libc::O_RDONLY).await.unwrap();
    world.chmod("file", 0o600).await.unwrap();
    world.bucket.faults.add(Rule::new(Fault::lost_reply()).on(Operation::Copy));
    world.bucket.faults.add(Rule::new(Fault::unavailable()).on(Operation::Head).after(1));
    assert_eq!(errno(world.fs.fsync(handle).await), libc::EIO);
    world.close(handle).await.unwrap();
    world.bucket.faults.clear();
    world
}

/// Regression: the namespace had the old etag. A rename took the object for a foreign one, and later headers were not exported
/// (worlds of files 1402, 53429 and 182972).
#[tokio::test]
async fn s18_s77_an_ambiguous_header_update_blocks_neither_renames_nor_exports() {
    let world = with_ambiguous_headers().await;
    world.rename("file", "moved").await.unwrap();
    assert_eq!(world.bucket.object("moved").await.unwrap(), b"one");
    world.assert_healthy().await;

    let world = with_ambiguous_headers().await;
    world.rename_with("other", "file", libc::RENAME_EXCHANGE).await.unwrap();
    assert_eq!(world.bucket.object("other").await.unwrap(), b"one");
    world.assert_healthy().await;

    let world = with_ambiguous_headers().await;
    world.chmod("file", 0o700).await.unwrap();
    world.fs.sync().await.unwrap();
    assert_eq!(world.bucket.header("file", "file-permissions").await.unwrap(), "0100700");
}

/// Regression: pending attributes were lost with one of the file's names (world of files 127500).
#[tokio::test]
async fn s18_attributes_are_exported_although_one_link_was_replaced() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    world.write_file("file", b"one").await.unwrap();
    world.link("file", "second").await.unwrap();
    world.write_file("other", b"two").await.unwrap();
    world.chmod("file", 0o600).await.unwrap();
    world.rename("other", "second").await.unwrap();
    world.fs.sync().await.unwrap();
    assert_eq!(world.bucket.header("file", "file-permissions").await.unwrap(), "0100600");
}

/// Regression: the first upload of a file was stored, but a power cut lost its commit. The next mount took the object for another file, and the
/// other links of the file were gone (world of files 52,062,529). Now a file is stored before it gets a second name.
#[tokio::test(start_paused = true)]
async fn a_file_whose_first_upload_outlived_its_commit_keeps_its_links() {
    let bucket = Bucket::with_metadata();
    let killed = bucket.mount(|_| {}).await;
    let _created = killed.create("a").await.unwrap();
    bucket.faults.add(Rule::new(Fault::unavailable()).on(Operation::Put).always());
    assert_eq!(errno(killed.link("a", "c").await), libc::EIO);
    bucket.faults.clear();
    assert_eq!(errno(killed.stat("c").await), libc::ENOENT);
    killed.link("a", "c").await.unwrap();
    bucket.put("a", "bytes").await;
    drop(killed);
    let world = bucket.mount(|_| {}).await;
    assert_eq!(world.names("").await.unwrap(), ["a", "c"]);
    assert_eq!(world.read_file("c").await.unwrap(), b"bytes");
    assert_eq!(world.ino("a").await.unwrap(), world.ino("c").await.unwrap());
    world.assert_healthy().await;
}

/// Regression: a file that had been created but never stored was mistaken for the next file of its name (world of files 154531).
#[tokio::test]
async fn s144_a_file_that_was_never_stored_is_not_taken_for_the_next_of_its_name() {
    let bucket = Bucket::with_metadata();
    let world = bucket.mount(|_| {}).await;
    world.create("file").await.unwrap();
    let ino = world.ino("file").await.unwrap();
    let again = bucket.mount(|_| {}).await;
    bucket.put("file", "theirs").await;
    again.expire();
    assert_eq!(again.read_file("file").await.unwrap(), b"theirs");
    assert_eq!(again.names("/").await.unwrap(), ["file"]);
    assert_ne!(again.ino("file").await.unwrap(), ino);
}

/// Regression: an additional link was only as fresh as the last look at its own directory (worlds of files 27415 and 70013).
#[tokio::test]
async fn s93_every_name_of_a_file_is_as_fresh_as_its_key() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    world.mkdir("dir").await.unwrap();
    world.write_file("dir/first", b"one").await.unwrap();
    world.link("dir/first", "second").await.unwrap();
    world.bucket.put("dir/first", "theirs").await;
    world.expire();
    assert_eq!(world.stat("second").await.unwrap().size_bytes, 6);
    assert_eq!(world.read_file("second").await.unwrap(), b"theirs");
}

/// Regression: a rename moved an object without the delta that an `fsync` had stored. After a crash the object at the old path
/// was older than the synced data (world of files 35343).
#[tokio::test]
async fn s21_a_file_is_complete_before_it_moves() {
    for (from, to) in [("dir/file", "file"), ("dir", "moved")] {
        let world = Bucket::with_metadata().mount(|_| {}).await;
        world.mkdir("dir").await.unwrap();
        let (handle, body) = with_a_delta(&world).await;
        world.bucket.faults.add(Rule::new(Fault::unavailable()).on(Operation::Delete).always());
        world.rename(from, to).await.unwrap();
        world.bucket.faults.clear();
        assert!(world.bucket.object("dir/file").await.unwrap() == body);
        assert!(world.read_all(handle).await.unwrap() == body);
        world.close(handle).await.unwrap();
    }
}

/// Regression: the last close failed, and then only the attributes were written to the object. It lacked the data of the
/// `fsync` until the file was written again (world of both sides 11520).
#[tokio::test]
async fn s21_synced_data_reaches_the_object_although_the_last_close_failed() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    world.mkdir("dir").await.unwrap();
    let (handle, body) = with_a_delta(&world).await;
    world.fs.write(handle, 2000, b"lost").await.unwrap();
    world.bucket.faults.add(Rule::new(Fault::unavailable()).on(Operation::Put).always());
    world.bucket.faults.add(Rule::new(Fault::unavailable()).on(Operation::BeginMultipart).always());
    assert_eq!(errno(world.close(handle).await), libc::EIO);
    world.bucket.faults.clear();
    world.fs.sync().await.unwrap();
    assert!(world.bucket.object("dir/file").await.unwrap() == body);
    assert!(world.read_file("dir/file").await.unwrap() == body);
    world.assert_healthy().await;
}

/// Returns an open `dir/file` with a delta, so that no single object has all its bytes.
async fn with_a_delta(world: &World) -> (Handle, Vec<u8>) {
    let mut body = pattern(1 << 20);
    world.write_file("dir/file", &body).await.unwrap();
    let handle = world.open_handle("dir/file", libc::O_RDWR).await.unwrap();
    world.fs.write(handle, 1000, b"new").await.unwrap();
    body[1000..1003].copy_from_slice(b"new");
    world.fs.fsync(handle).await.unwrap();
    assert!(world.bucket.object("dir/file").await.unwrap() != body);
    (handle, body)
}

/// Regression: an earlier attempt had left a copy with older headers under the key of the promoted link. All later attempts
/// failed with EBUSY (world of files 104471).
#[tokio::test]
async fn s93_a_link_is_removed_although_an_earlier_attempt_left_a_copy() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    world.write_file("first", b"one").await.unwrap();
    world.link("first", "second").await.unwrap();
    world.bucket.faults.add(Rule::new(Fault::lost_reply()).on(Operation::Copy));
    world.unlink("first").await.unwrap();
    world.chmod("second", 0o600).await.unwrap();
    world.fs.sync().await.unwrap();
    assert_eq!(sync_and_list_keys(&world).await, ["second"]);
    assert_eq!(world.read_file("second").await.unwrap(), b"one");
    world.assert_healthy().await;
}

/// Regression: a write that replaced all bytes knew only its own times, and took its earlier object for another client's (world
/// of files 22434).
#[tokio::test]
async fn s77_an_object_of_an_ambiguous_put_is_overwritten() {
    let world = exchange_with_fault(Fault::lost_reply()).await;
    let handle = world.open_handle("b", libc::O_RDWR).await.unwrap();
    world.fs.write(handle, 0, b"something longer").await.unwrap();
    world.close(handle).await.unwrap();
    assert_eq!(sync_and_list_keys(&world).await, ["a", "b"]);
    assert_eq!(world.bucket.object("b").await.unwrap(), b"something longer");
    world.assert_healthy().await;
}

/// Regression: writes that were stored by `fsync` in an object beside the path were lost when an earlier upload was found at the path, whose
/// answer had been lost (world of files 65094575).
#[tokio::test]
async fn s77_an_earlier_object_of_an_ambiguous_put_does_not_replace_synced_writes() {
    for end in ["b", "c"] {
        let world = Bucket::with_metadata().mount(|_| {}).await;
        let mut body = pattern(MIB);
        world.write_file("a", &body).await.unwrap();
        world.write_file("b", b"two").await.unwrap();
        let handle = world.open_handle("a", libc::O_RDWR).await.unwrap();
        let puts = Rule::new(Fault::lost_reply()).on(Operation::Put);
        world.bucket.faults.add(puts.at(&"b".try_into().unwrap()));
        world.rename_with("a", "b", libc::RENAME_EXCHANGE).await.unwrap();
        assert_eq!(world.bucket.object("b").await.unwrap(), body);
        for at in [MIB / 2, MIB] {
            world.fs.write(handle, at as u64, b"synced").await.unwrap();
            body.resize(body.len().max(at + 6), 0);
            body[at..at + 6].copy_from_slice(b"synced");
        }
        world.fs.fsync(handle).await.unwrap();
        if end != "b" {
            world.rename("b", end).await.unwrap();
        }
        world.close(handle).await.unwrap();
        assert_eq!(sync_and_list_keys(&world).await, ["a", end]);
        assert_eq!(world.read_file(end).await.unwrap(), body, "{end}");
        assert_eq!(world.remount().await.read_file(end).await.unwrap(), body, "{end}");
        world.assert_healthy().await;
    }
}

/// Regression: a file that ends in a hole lost the hole with its name. Data written after the hole was read in its place (world
/// of files 3200371).
#[tokio::test]
async fn a_hole_at_the_end_survives_unlink() {
    let bucket = Bucket::in_memory();
    let world = bucket.mount(|_| {}).await;
    let mut body = pattern(MIB);
    world.write_file("file", &body).await.unwrap();
    let handle = world.open_handle("file", libc::O_RDWR).await.unwrap();
    world.fs.write(handle, MIB as u64, b"more").await.unwrap();
    world.fs.fallocate(handle, 0, 0, 3 * MIB as u64).await.unwrap();
    world.fs.fsync(handle).await.unwrap();
    let ino = world.ino("file").await.unwrap();
    world.unlink("file").await.unwrap();
    assert_eq!(world.fs.getattr(ino).await.unwrap().size_bytes, 3 * MIB as u64);
    world.fs.write(handle, 3 * MIB as u64, b"end").await.unwrap();
    body.extend(b"more");
    body.resize(3 * MIB, 0);
    body.extend(b"end");
    assert_eq!(world.read_all(handle).await.unwrap(), body);
    world.close(handle).await.unwrap();
    world.assert_healthy().await;
}

/// Regression: the object of a renamed file gets another etag when it arrives. When the object could not be deleted before an
/// exchange, that etag was taken for another client's, and the other file went to `lost+found` (world of files 3314686).
#[tokio::test]
async fn an_exchange_that_fails_right_after_a_rename_changes_nothing() {
    let bucket = Bucket::with_metadata();
    let world = bucket.mount(|_| {}).await;
    world.write_file("a", b"one").await.unwrap();
    world.write_file("c", b"two").await.unwrap();
    world.rename_at_once("a", "b", 0).await.unwrap();
    bucket.faults.add(Rule::new(Fault::unavailable()).on(Operation::Delete).at(&"b".try_into().unwrap()));
    assert_eq!(errno(world.rename_at_once("b", "c", libc::RENAME_EXCHANGE).await), libc::EIO);
    for (name, body) in [("b", b"one"), ("c", b"two")] {
        assert_eq!(world.read_file(name).await.unwrap(), body);
        assert_eq!(bucket.object(name).await.unwrap(), body);
    }
    world.assert_healthy().await;
}
