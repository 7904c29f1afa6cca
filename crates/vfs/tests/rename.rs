//! Rename: what is visible at once, what moves later, what is refused, and the state after failures.

use crate::world::{Bucket, MIB, World, errno, pattern};
use store::wrap::{Fault, Operation, Rule};
use vfs::{Changes, Time, Timestamp};

#[tokio::test]
async fn s75_a_rename_moves_every_object() {
    for bucket in [Bucket::in_memory(), Bucket::in_directory()] {
        for n in 0..50 {
            bucket.put(format!("from/sub-{}/file-{n}", n % 7), n.to_string()).await;
        }
        bucket.put("from/sub-0", "beside").await;
        let world = bucket.mount(|_| {}).await;
        world.names("from").await.unwrap();
        let before = world.tree().await;
        world.mkdir("into").await.unwrap();
        world.rename("from", "into/to").await.unwrap();
        let keys = bucket.keys().await;
        assert_eq!(keys.len(), 52);
        assert!(keys.iter().all(|key| key.starts_with("into/")), "{keys:?}");
        let moved = world.tree().await;
        let expected: Vec<_> = before
            .into_iter()
            .map(|(path, kind, body)| (path.replace("/from", "/into/to"), kind, body))
            .collect();
        assert_eq!(moved[1..], expected);
        world.write_file("file", b"x").await.unwrap();
        world.rename("file", "into/file").await.unwrap();
        assert_eq!(bucket.object("into/file").await.unwrap(), b"x");
        assert!(bucket.object("file").await.is_none());
        world.assert_healthy().await;
    }
}

#[tokio::test]
async fn s75_a_rename_of_a_file_is_a_copy_and_a_delete() {
    let world = World::new().await;
    world.write_file("a", b"x").await.unwrap();
    assert_eq!(world.requests(world.rename("a", "b")).await, "Copy 1, Delete 1");
    world.chmod("b", 0o600).await.unwrap();
    assert_eq!(world.requests(world.rename("b", "c")).await, "Copy 1, Delete 1");
    assert_eq!(world.requests(world.fs.sync()).await, "Head 1, Copy 1", "the attributes are exported later");
    assert_eq!(world.bucket.header("c", "file-permissions").await.unwrap(), "0100600");
}

/// A copy has another etag than its source, but the same bytes.
#[tokio::test]
async fn s225_cached_data_of_a_file_stays_valid_when_its_object_has_moved() {
    let world = World::new().await;
    let body = pattern(3 * MIB);
    world.write_file("a", &body).await.unwrap();
    assert!(world.read_file("a").await.unwrap() == body);
    let before = world.bucket.head("a").await.unwrap().object.etag;
    let reader = world.open_handle("a", libc::O_RDONLY).await.unwrap();
    world.rename("a", "b").await.unwrap();
    assert_ne!(world.bucket.head("b").await.unwrap().object.etag, before);
    world.expire();
    let (read, counts) = world.counting(world.read_file("b")).await;
    assert!(read.unwrap() == body);
    assert_eq!(counts.of(Operation::Get), 0, "{counts}");
    assert_eq!(world.fs.read(reader, 0, 9).await.unwrap(), body[..9]);
    world.close(reader).await.unwrap();
    assert!(world.fs.conflicts().list().is_empty());
    world.assert_healthy().await;
}

#[tokio::test]
async fn s76_a_rename_over_a_file_replaces_it() {
    let world = World::new().await;
    world.write_file("old", b"old").await.unwrap();
    world.write_file("new", b"new").await.unwrap();
    let unstored = world.create("unstored").await.unwrap();
    world.fs.write(unstored, 0, b"unstored").await.unwrap();
    world.rename("new", "old").await.unwrap();
    assert_eq!(world.read_file("old").await.unwrap(), b"new");
    assert_eq!(world.bucket.keys().await, ["old"]);
    world.rename("unstored", "old").await.unwrap();
    assert_eq!(world.bucket.object("old").await.unwrap(), b"unstored");
    world.close(unstored).await.unwrap();
    assert_eq!(world.bucket.keys().await, ["old"]);
    world.assert_healthy().await;
}

#[tokio::test]
async fn s77_flags() {
    let world = World::new().await;
    for name in ["a", "b"] {
        world.write_file(name, name).await.unwrap();
    }
    assert_eq!(errno(world.rename_with("a", "b", libc::RENAME_NOREPLACE).await), libc::EEXIST);
    world.rename_with("a", "c", libc::RENAME_NOREPLACE).await.unwrap();
    world.bucket.put("d", "theirs").await;
    world.expire();
    assert_eq!(errno(world.rename_with("c", "d", libc::RENAME_NOREPLACE).await), libc::EEXIST);
    assert_eq!(world.bucket.object("d").await.unwrap(), b"theirs");
    assert_eq!(world.read_file("c").await.unwrap(), b"a");
    // This mount does not know the object yet: the object stays, and the file is preserved in `lost+found`.
    world.bucket.put("e", "theirs too").await;
    world.rename_with("c", "e", libc::RENAME_NOREPLACE).await.unwrap();
    world.expire();
    assert_eq!(world.read_file("e").await.unwrap(), b"theirs too");
    let kept = world.names("lost+found").await.unwrap();
    assert_eq!(world.read_file(format!("lost+found/{}", kept[0])).await.unwrap(), b"a");
    world.assert_healthy().await;
}

#[tokio::test]
async fn s78_invalid_renames_are_refused() {
    let world = World::new().await;
    world.mkdir("dir").await.unwrap();
    world.mkdir("dir/sub").await.unwrap();
    world.mkdir("full").await.unwrap();
    world.mkdir("empty").await.unwrap();
    world.write_file("full/file", b"x").await.unwrap();
    assert_eq!(errno(world.rename("dir", "full").await), libc::ENOTEMPTY);
    assert_eq!(errno(world.rename("dir", "dir/sub/in").await), libc::EINVAL);
    assert_eq!(errno(world.rename("dir", "full/file").await), libc::ENOTDIR);
    assert_eq!(errno(world.rename("full/file", "dir").await), libc::EISDIR);
    assert_eq!(errno(world.rename("none", "dir/none").await), libc::ENOENT);
    world.rename("dir", "dir").await.unwrap();
    world.rename("dir", "empty").await.unwrap();
    assert_eq!(world.names("/").await.unwrap(), ["empty", "full"]);
    assert_eq!(world.names("empty").await.unwrap(), ["sub"]);
    world.assert_healthy().await;
}

#[tokio::test]
async fn s79_attributes_and_descriptors_are_kept() {
    let world = World::with(|config| config.part_size_bytes = MIB as u64).await;
    let at = Timestamp::from_secs(1_000_000_000, 123_456_789);
    for directory in [false, true] {
        world.mkdir("dir").await.unwrap();
        world.write_file("dir/file", pattern(3 * MIB)).await.unwrap();
        let times =
            Changes { mtime: Some(Time::At(at)), mode: Some(0o4711), uid: Some(5), ..Changes::default() };
        let before = world.set("dir/file", times).await.unwrap();
        let clean = world.open_handle("dir/file", libc::O_RDONLY).await.unwrap();
        let stream = world.create("dir/stream").await.unwrap();
        world.write_all(stream, &pattern(2 * MIB + 5)).await.unwrap();
        world.write_file("dir/edited", pattern(3 * MIB)).await.unwrap();
        let edited = world.open_handle("dir/edited", libc::O_RDWR).await.unwrap();
        world.fs.write(edited, 9, b"edit").await.unwrap();
        if directory {
            world.rename("dir", "moved").await.unwrap();
        } else {
            world.mkdir("moved").await.unwrap();
            for name in ["file", "stream", "edited"] {
                world.rename(format!("dir/{name}"), format!("moved/{name}")).await.unwrap();
            }
        }
        let after = world.stat("moved/file").await.unwrap();
        assert_eq!((after.ino, after.mode, after.mtime, after.uid), (before.ino, 0o4711, at, 5));
        assert_eq!(world.read_all(clean).await.unwrap(), pattern(3 * MIB));
        let mut expected = pattern(3 * MIB);
        expected[9..13].copy_from_slice(b"edit");
        assert_eq!(world.read_all(edited).await.unwrap(), expected);
        world.fs.write(stream, 2 * MIB as u64 + 5, b"more").await.unwrap();
        for handle in [clean, stream, edited] {
            world.close(handle).await.unwrap();
        }
        assert_eq!(world.bucket.object("moved/edited").await.unwrap(), expected);
        let streamed = [&pattern(2 * MIB + 5)[..], b"more"].concat();
        assert_eq!(world.bucket.object("moved/stream").await.unwrap(), streamed);
        world.fs.sync().await.unwrap();
        assert_eq!(world.bucket.header("moved/file", "file-permissions").await.unwrap(), "0104711");
        let elsewhere = world.remount().await;
        assert_eq!(elsewhere.stat("moved/file").await.unwrap().mtime, at);
        world.assert_healthy().await;
        for name in ["moved/file", "moved/stream", "moved/edited"] {
            world.unlink(name).await.unwrap();
        }
        world.rmdir("moved").await.unwrap();
        if !directory {
            world.rmdir("dir").await.unwrap();
        }
        assert!(
            world.bucket.keys().await.iter().all(|key| !key.starts_with("moved") && !key.starts_with("dir"))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn s80_objects_that_cannot_move_are_visible_at_their_new_names() {
    for operation in [Operation::List, Operation::Copy, Operation::Delete] {
        for after in [0, 1, 5] {
            let place = format!("{operation:?} after {after}");
            let bucket = Bucket::in_memory();
            for n in 0..9 {
                bucket.put(format!("from/file-{n}"), n.to_string()).await;
            }
            let world = bucket.mount(|_| {}).await;
            assert_eq!(world.names("from").await.unwrap().len(), 9);
            bucket.faults.add(Rule::new(Fault::unavailable()).on(operation).after(after).times(3));
            world.rename("from", "to").await.unwrap();
            bucket.faults.clear();
            world.expire();
            assert_eq!(errno(world.stat("from").await), libc::ENOENT, "{place}");
            for n in 0..9 {
                let body = n.to_string().into_bytes();
                let there = [format!("from/file-{n}"), format!("to/file-{n}")];
                let objects = [bucket.object(&there[0]).await, bucket.object(&there[1]).await];
                assert!(objects.contains(&Some(body.clone())), "{place}: {n} is lost");
                assert_eq!(world.read_file(&there[1]).await.unwrap(), body, "{place}");
            }
            world.assert_healthy().await;
            assert!(bucket.keys().await.iter().all(|key| key.starts_with("to/")), "{place}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn s80_a_file_that_cannot_move_has_its_new_name_and_moves_later() {
    for operation in [Operation::Copy, Operation::Delete] {
        let world = World::new().await;
        world.write_file("a", b"a").await.unwrap();
        world.write_file("b", b"b").await.unwrap();
        let open = world.open_handle("b", libc::O_RDONLY).await.unwrap();
        let skipped = u64::from(operation == Operation::Copy);
        world.bucket.faults.add(Rule::new(Fault::unavailable()).on(operation).after(skipped).always());
        world.rename("a", "b").await.unwrap();
        assert!(world.fs.status().moving.failure.is_some());
        assert_eq!(world.read_file("b").await.unwrap(), b"a", "{operation:?}");
        assert_eq!(world.fs.read(open, 0, 9).await.unwrap(), b"b"[..], "{operation:?}");
        world.close(open).await.ok();
        world.expire();
        assert_eq!(world.names("/").await.unwrap(), ["b"]);
        world.bucket.faults.clear();
        world.assert_healthy().await;
        assert_eq!(world.bucket.object("b").await.unwrap(), b"a");
        assert_eq!(world.bucket.object("a").await, None);
    }
}

/// The requests for which the caller of a rename waits.
#[tokio::test]
async fn s81_a_rename_sends_no_request() {
    let bucket = Bucket::in_memory();
    for n in 0..200 {
        bucket.put(format!("dir/file-{n}"), n.to_string()).await;
    }
    let world = bucket.mount(|_| {}).await;
    world.write_file("file", pattern(3 * MIB)).await.unwrap();
    world.stat("dir").await.unwrap();
    // The directory has no marker; only its contents make it exist.
    world.names("/").await.unwrap();
    bucket.faults.set_down(true);
    world.rename_at_once("file", "renamed", 0).await.unwrap();
    world.rename_at_once("dir", "directory", 0).await.unwrap();
    world.rename_at_once("directory", "again", 0).await.unwrap();
    bucket.faults.set_down(false);
    assert_eq!(world.names("/").await.unwrap(), ["again", "renamed"]);
    assert_eq!(world.names("again").await.unwrap().len(), 200, "a directory that was never listed moves too");
    assert_eq!(world.read_file("again/file-7").await.unwrap(), b"7");
    world.write_file("again/new", b"new").await.unwrap();
    world.unlink("again/file-3").await.unwrap();
    world.assert_healthy().await;
    let keys = bucket.keys().await;
    assert_eq!(keys.len(), 201);
    assert!(keys.iter().all(|key| key == "renamed" || key.starts_with("again/")), "{keys:?}");
    assert_eq!(world.fs.status().moving.renames, 0);
}

/// The process ends before anything has moved, and so does the next one.
#[tokio::test]
async fn s81_renames_survive_the_mount() {
    let bucket = Bucket::with_metadata();
    let moves = tempfile::NamedTempFile::new().unwrap();
    let keep = |config: &mut vfs::Config| config.moves_path = moves.path().to_owned();
    let world = bucket.mount(keep).await;
    world.mkdir("dir").await.unwrap();
    world.write_file("dir/file", b"inside").await.unwrap();
    world.write_file("old", b"new bytes").await.unwrap();
    world.write_file("there", b"replaced").await.unwrap();
    bucket.faults.set_down(true);
    world.rename_at_once("dir", "moved", 0).await.unwrap();
    world.rename_at_once("old", "there", 0).await.unwrap();
    world.fs.sync_names().await.unwrap();
    drop(world);
    wait_for_journal(moves.path()).await;
    let again = bucket.mount(keep).await;
    bucket.faults.set_down(false);
    assert_eq!(again.names("/").await.unwrap(), ["moved", "there"]);
    assert_eq!(again.read_file("there").await.unwrap(), b"new bytes");
    assert_eq!(again.read_file("moved/file").await.unwrap(), b"inside");
    again.fs.recover().await.unwrap();
    again.assert_healthy().await;
    assert_eq!(bucket.keys().await, ["moved/", "moved/file", "there"]);
}

/// Regression: the end of a read-only mount moved objects that an earlier mount had renamed.
#[tokio::test]
async fn s81_s90_a_read_only_mount_shows_renames_and_moves_nothing() {
    let bucket = Bucket::with_metadata();
    let moves = tempfile::NamedTempFile::new().unwrap();
    let world = bucket.mount(|config| config.moves_path = moves.path().to_owned()).await;
    world.write_file("old", b"bytes").await.unwrap();
    bucket.faults.set_down(true);
    world.rename_at_once("old", "new", 0).await.unwrap();
    drop(world);
    wait_for_journal(moves.path()).await;
    bucket.faults.set_down(false);
    let reading =
        bucket.mount(|config| (config.moves_path, config.read_only) = (moves.path().to_owned(), true)).await;
    assert_eq!(reading.names("/").await.unwrap(), ["new"]);
    assert_eq!(reading.read_file("new").await.unwrap(), b"bytes");
    reading.fs.shutdown(std::time::Duration::from_secs(10)).await.unwrap();
    assert_eq!(bucket.keys().await, ["old"]);
}

/// Waits until the previous mount has released the journal, after its last attempt.
async fn wait_for_journal(moves: &std::path::Path) {
    let file = std::fs::File::open(moves).unwrap();
    while rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// Regression: with write-back a kill between the log's copy and the commit of the names left two files, and the mount after the next one
/// removed the older of them (world of files 51,047,062).
#[tokio::test(start_paused = true)]
async fn with_write_back_a_rename_that_a_kill_interrupted_is_completed() {
    use store::{CopyOptions, ObjectKey, ObjectStore as _, Precondition};
    let bucket = Bucket::with_metadata();
    let world = bucket.mount(|config| config.write_back = true).await;
    bucket.faults.add(Rule::new(Fault::unavailable()).on(Operation::Put).always());
    world.write_file("old", b"bytes").await.unwrap();
    world.write_file("new", b"replaced").await.unwrap();
    let (ino, log) = (world.ino("old").await.unwrap(), world.log.as_ref().unwrap());
    let [from, replaced] = ["old", "new"].map(|name| ObjectKey::try_from(name.as_bytes()).unwrap());
    let [from, replaced] = [log.head(&from).await.unwrap().object, log.head(&replaced).await.unwrap().object];
    let precondition = Precondition::Matches(replaced.etag);
    let options = CopyOptions { precondition, is_rename: true, ..CopyOptions::default() };
    log.copy(&from, &replaced.key, options).await.unwrap();
    // As the next mount does.
    world.fs.moves().connect_writeback(log);
    assert_eq!(world.names("").await.unwrap(), ["new"]);
    assert_eq!(
        (world.ino("new").await.unwrap(), world.read_file("new").await.unwrap()),
        (ino, b"bytes".to_vec())
    );
    bucket.faults.clear();
    world.settle().await;
    assert_eq!(bucket.keys().await, ["new"]);
    assert_eq!(bucket.object("new").await.unwrap(), b"bytes");
    world.assert_healthy().await;
}

/// Regression: the file had the name of a directory, so the names were not renamed, and the mount after the next one removed the file's old name
/// (world of both sides 65,004,740).
#[tokio::test(start_paused = true)]
async fn with_write_back_the_rename_of_a_file_beside_a_directory_of_its_name_is_completed() {
    use store::{CopyOptions, ObjectKey, ObjectStore as _};
    let bucket = Bucket::with_metadata();
    bucket.put("old", "bytes").await;
    bucket.put("old/inside", "x").await;
    let world = bucket.mount(|config| config.write_back = true).await;
    assert_eq!(world.names("").await.unwrap(), ["%=old", "old"]);
    let (ino, log) = (world.ino("%=old").await.unwrap(), world.log.as_ref().unwrap());
    let from = log.head(&ObjectKey::try_from("old").unwrap()).await.unwrap().object;
    let options = CopyOptions { is_rename: true, ..CopyOptions::default() };
    log.copy(&from, &ObjectKey::try_from("new").unwrap(), options).await.unwrap();
    // As the next mount does.
    world.fs.moves().connect_writeback(log);
    assert_eq!(world.names("").await.unwrap(), ["new", "old"]);
    assert_eq!(world.ino("new").await.unwrap(), ino);
    world.settle().await;
    assert_eq!(bucket.keys().await, ["new", "old/inside"]);
    world.assert_healthy().await;
}
