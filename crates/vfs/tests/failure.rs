//! Stores that are down or answer wrongly: the errors that callers get, and that no data is lost.

use crate::world::{Bucket, MIB, World, errno, pattern, program};
use std::sync::Arc;
use store::StoreError;
use store::wrap::{Fault, Operation, Rule};
use vfs::{Kind, Mapping};

/// A mount whose store went down after some files were created.
async fn down() -> World {
    let world = World::with(|config| config.part_size_bytes = MIB as u64).await;
    world.mkdir("dir").await.unwrap();
    world.write_file("dir/file", pattern(3 * MIB)).await.unwrap();
    world.write_file("small", b"small").await.unwrap();
    world.expire();
    world.bucket.faults.set_down(true);
    world
}

#[tokio::test]
async fn s110_s112_a_store_that_is_down_is_an_error_and_nothing_else() {
    let world = down().await;
    for round in 0..2 {
        let outcomes = [
            world.stat("dir").await.map(drop),
            world.names("/").await.map(drop),
            world.read_file("small").await.map(drop),
            world.write_file("new", b"x").await,
            world.mkdir("newdir").await.map(drop),
            world.symlink("link", b"x").await.map(drop),
            world.mknod("node", Kind::File).await.map(drop),
            world.unlink("small").await,
            world.rmdir("dir").await,
            world.rename("small", "moved").await,
            world.rename("dir", "moved").await,
            world.truncate("small", 1).await.map(drop),
        ];
        for (index, outcome) in outcomes.into_iter().enumerate() {
            assert_eq!(errno(outcome), libc::EIO, "call {index} of round {round}");
        }
    }
    world.bucket.faults.set_down(false);
    assert_eq!(world.names("/").await.unwrap(), ["dir", "small"]);
    assert_eq!(world.read_file("small").await.unwrap(), b"small");
    assert_eq!(world.read_file("dir/file").await.unwrap(), pattern(3 * MIB));
    world.write_file("new", b"x").await.unwrap();
    world.assert_healthy().await;
}

#[tokio::test]
async fn s112_calls_that_fail_midway_change_nothing() {
    let world = World::new().await;
    world.mkdir("dir").await.unwrap();
    world.write_file("small", b"small").await.unwrap();
    world.names("dir").await.unwrap();
    // Cached names are still valid, so the calls get as far as the change itself.
    world.bucket.faults.set_down(true);
    assert_eq!(errno(world.mkdir("newdir").await), libc::EIO);
    assert_eq!(errno(world.symlink("link", b"x").await), libc::EIO);
    assert_eq!(errno(world.mknod("node", Kind::File).await), libc::EIO);
    assert_eq!(errno(world.unlink("small").await), libc::EIO);
    assert_eq!(errno(world.rmdir("dir").await), libc::EIO);
    world.bucket.faults.set_down(false);
    assert_eq!(world.names("/").await.unwrap(), ["dir", "small"]);
    assert_eq!(world.read_file("small").await.unwrap(), b"small");
    world.assert_healthy().await;
    world.rename("small", "dir/small").await.unwrap();
    world.rename("dir", "moved").await.unwrap();
    world.unlink("moved/small").await.unwrap();
    world.rmdir("moved").await.unwrap();
    assert_eq!(world.bucket.keys().await, Vec::<String>::new());
}

#[tokio::test]
async fn s111_permanent_errors_are_returned_at_once() {
    let faults: [(fn() -> StoreError, i32); 3] = [
        (|| StoreError::Denied("no".into()), libc::EACCES),
        (|| StoreError::Full("no".into()), libc::ENOSPC),
        (|| StoreError::Throttled("slowly".into()), libc::EIO),
    ];
    for (error, expected) in faults {
        let world = World::new().await;
        world.write_file("file", b"x").await.unwrap();
        world.bucket.faults.add(Rule::new(Fault::Before(error)).always());
        assert_eq!(errno(world.write_file("new", b"x").await), expected);
        assert_eq!(errno(world.read_file("file").await), expected);
        assert_eq!(errno(world.mkdir("dir").await), expected);
        assert_eq!(errno(world.unlink("file").await), expected);
    }
}

#[tokio::test]
async fn s113_s114_a_failed_fsync_reports_it_and_a_later_one_may_succeed() {
    for len in [5, 3 * MIB + 5] {
        for operation in [Operation::Put, Operation::PutPart, Operation::Complete, Operation::BeginMultipart]
        {
            let world = World::with(|config| config.part_size_bytes = MIB as u64).await;
            world.write_file("first", b"").await.unwrap();
            let handle = world.create("file").await.unwrap();
            let body = pattern(len);
            world.bucket.faults.add(Rule::new(Fault::unavailable()).on(operation).times(1));
            let written = world.write_all(handle, &body).await;
            let is_struck = |world: &World| world.bucket.faults.struck(operation) > 0;
            if written.is_err() {
                // A program that goes on after a failed write writes the same bytes again.
                assert!(is_struck(&world), "{operation:?}");
                world.write_all(handle, &body).await.unwrap();
            }
            let synced = world.fs.fsync(handle).await;
            // A part that fails before any call waits for it is sent once more.
            let is_made_up_for = operation == Operation::PutPart && synced.is_ok();
            let is_told = synced.is_err() == (is_struck(&world) && written.is_ok());
            assert!(is_told || is_made_up_for, "{operation:?} {len}: {synced:?}");
            assert_eq!(
                world.fs.fsync(handle).await.map_err(|error| error.errno()),
                Ok(()),
                "{operation:?} {len}"
            );
            assert!(world.bucket.object("file").await.unwrap() == body, "{operation:?} {len}");
            world.close(handle).await.unwrap();
            assert_eq!(world.fs.status().write_bytes, 0);
            world.assert_healthy().await;
        }
    }
}

#[tokio::test]
async fn s113_s114_close_reports_writes_that_are_dropped() {
    for len in [5, 3 * MIB] {
        let world = World::with(|config| config.part_size_bytes = MIB as u64).await;
        world.write_file("file", b"old").await.unwrap();
        let new = world.create("new").await.unwrap();
        let over = world.open_handle("file", libc::O_WRONLY | libc::O_TRUNC).await.unwrap();
        world.write_all(new, &pattern(len)).await.unwrap();
        world.write_all(over, &pattern(len)).await.unwrap();
        world.bucket.faults.set_down(true);
        for handle in [new, over] {
            assert_eq!(errno(world.fs.flush(handle).await), libc::EIO);
            world.fs.release(handle).await.ok();
        }
        world.bucket.faults.set_down(false);
        assert_eq!(world.read_file("file").await.unwrap(), b"old");
        assert_eq!(world.stat("file").await.unwrap().size_bytes, 3);
        assert_eq!(world.names("/").await.unwrap(), ["file"], "a file that was never stored disappears");
        assert_eq!(errno(world.stat("new").await), libc::ENOENT);
        world.write_file("new", b"again").await.unwrap();
        assert_eq!(world.fs.status().write_bytes, 0);
        world.assert_healthy().await;
    }
}

#[tokio::test]
async fn s113_a_lost_reply_is_no_lost_file() {
    for operation in [Operation::Put, Operation::Complete] {
        let world = World::with(|config| config.part_size_bytes = MIB as u64).await;
        world.write_file("first", b"").await.unwrap();
        let body = if operation == Operation::Put { pattern(9) } else { pattern(3 * MIB) };
        world.bucket.faults.add(Rule::new(Fault::lost_reply()).on(operation));
        assert!(
            world.write_file("file", &body).await.is_err()
                || world.bucket.object("file").await.unwrap() == body
        );
        world.expire();
        assert!(world.read_file("file").await.unwrap() == body, "{operation:?}");
        assert!(!world.names("/").await.unwrap().contains(&"lost+found".to_owned()), "{operation:?}");
        world.assert_healthy().await;
    }
}

/// The answer to a completion was lost, and the program wrote on into an upload that no longer existed.
#[tokio::test]
async fn s114_a_stream_goes_on_after_a_completion_whose_answer_was_lost() {
    for bucket in [Bucket::in_memory(), Bucket::by_inode(vfs::Mapping::Whole).await] {
        let world = bucket.mount(|config| config.part_size_bytes = MIB as u64).await;
        let handle = world.create("file").await.unwrap();
        let body = pattern(4 * MIB);
        world.write_all(handle, &body[..3 * MIB]).await.unwrap();
        bucket.faults.add(Rule::new(Fault::lost_reply()).on(Operation::Complete));
        assert_eq!(errno(world.fs.fsync(handle).await), libc::EIO);
        for at in (3 * MIB..4 * MIB).step_by(MIB / 4) {
            world.fs.write(handle, at as u64, &body[at..at + MIB / 4]).await.unwrap();
        }
        world.close(handle).await.unwrap();
        assert!(world.read_file("file").await.unwrap() == body);
        assert!(!world.names("/").await.unwrap().contains(&"lost+found".to_owned()));
        world.assert_healthy().await;
    }
}

#[tokio::test]
async fn s115_wrong_answers_are_never_returned_as_data() {
    for fault in [Fault::CutBody(1000), Fault::CutBody(0), Fault::OtherEtag] {
        for len in [100_000, 3 * MIB] {
            let bucket = Bucket::in_memory();
            let body = pattern(len);
            bucket.put("file", &body).await;
            let world = bucket.mount(|_| {}).await;
            let handle = world.open_handle("file", libc::O_RDONLY).await.unwrap();
            bucket.faults.add(Rule::new(fault).times(1));
            match world.read_all(handle).await {
                Ok(read) => assert!(read == body),
                Err(error) => assert!([libc::EIO, libc::ESTALE].contains(&error.errno()), "{error}"),
            }
            bucket.faults.clear();
            assert!(
                world.read_file("file").await.unwrap() == body,
                "the file is readable once the store answers correctly"
            );
            world.close(handle).await.unwrap();
        }
    }
}

#[tokio::test]
async fn s115_an_object_that_changes_while_an_edited_file_is_read() {
    let world = World::with(|config| config.part_size_bytes = MIB as u64).await;
    world.write_file("file", pattern(3 * MIB)).await.unwrap();
    let handle = world.open_handle("file", libc::O_RDWR).await.unwrap();
    world.fs.write(handle, 0, b"edit").await.unwrap();
    world.bucket.put("file", vec![1; 3 * MIB]).await;
    assert_eq!(errno(world.fs.read(handle, MIB as u64, 100).await), libc::ESTALE);
    assert_eq!(world.fs.read(handle, 0, 4).await.unwrap(), b"edit"[..]);
    assert_eq!(errno(world.close(handle).await), libc::ESTALE);
    world.assert_healthy().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s112_random_failures_lose_no_acknowledged_file() {
    let world = Arc::new(World::with(|config| config.part_size_bytes = 64 << 10).await);
    world.write_file("first", b"").await.unwrap();
    let faults = vec![Fault::unavailable(), Fault::CutBody(7)];
    world.bucket.faults.at_random(Arc::new(store::Entropy::new(11)), 60, faults);
    let mut tasks = Vec::new();
    for task in 0..4 {
        let world = world.clone();
        tasks.push(program(move || async move {
            let mut stored = Vec::new();
            for n in 0..60 {
                let name = format!("{task}-{n}");
                let body = pattern(n * 5_000 + task);
                if world.write_file(name.clone(), body.clone()).await.is_ok() {
                    stored.push((name.clone(), body));
                }
                if n % 3 == 0 && world.rename(name.clone(), format!("{name}-moved")).await.is_ok() {
                    stored.iter_mut().filter(|(at, _)| *at == name).for_each(|(at, _)| at.push_str("-moved"));
                }
            }
            stored
        }));
    }
    let mut stored = Vec::new();
    for task in tasks {
        stored.extend(task.await.unwrap());
    }
    world.bucket.faults.clear();
    assert!(stored.len() > 100, "{}", stored.len());
    world.expire();
    for (name, body) in stored {
        let moved = format!("{name}-moved");
        let found = match world.read_file(&name).await {
            Ok(found) => found,
            Err(_) => world.read_file(&moved).await.unwrap_or_else(|error| panic!("{name}: {error}")),
        };
        assert!(found == body, "{name}");
    }
    world.assert_healthy().await;
}

/// The answer to an upload was lost and the client gave up: the next `fsync` took its own bytes for foreign ones, failed with
/// ESTALE, and put the newer ones into `lost+found` (worlds of files 139, 221 and 584).
#[tokio::test]
async fn s114_an_upload_with_a_lost_answer_is_not_foreign() {
    for before in [&b""[..], b"before, and longer"] {
        let world = World::new().await;
        world.write_file("file", before).await.unwrap();
        let handle = world.open_handle("file", libc::O_RDWR).await.unwrap();
        world.fs.write(handle, 3, b"one").await.unwrap();
        world.bucket.faults.add(Rule::new(Fault::lost_reply()).on(Operation::Put));
        assert_eq!(errno(world.fs.fsync(handle).await), libc::EIO);
        let mut body = world.read_all(handle).await.unwrap();
        assert_eq!(body[3..6], *b"one", "unchanged bytes are read from the new object");
        world.fs.write(handle, 4, b"two").await.unwrap();
        body.resize(body.len().max(7), 0);
        body[4..7].copy_from_slice(b"two");
        world.close(handle).await.unwrap();
        assert_eq!(world.bucket.object("file").await.unwrap(), body);
        assert_eq!(world.bucket.keys().await, ["file"]);
        world.assert_healthy().await;
    }
}

/// An open file was unlinked, and the answer to the deletion was lost: the call failed, and the copy preserved for open handles
/// was dropped, although nothing else was left of the file (world of files 1198).
#[tokio::test]
async fn s41_an_unlink_whose_answer_is_lost_keeps_the_bytes_of_open_files() {
    let world = World::new().await;
    world.write_file("file", b"body").await.unwrap();
    let handle = world.open_handle("file", libc::O_RDONLY).await.unwrap();
    world.bucket.faults.add(Rule::new(Fault::lost_reply()).on(Operation::Delete));
    world.unlink("file").await.unwrap();
    assert_eq!(world.read_all(handle).await.unwrap(), b"body");
    world.close(handle).await.unwrap();
    assert_eq!(world.bucket.keys().await, Vec::<String>::new());
    world.assert_healthy().await;
}

/// A removal failed, and the bucket did not tell whether the object was still there. The next sync took the file's own object for another
/// client's, and put the bytes into `lost+found` (world of files 73229713).
#[tokio::test]
async fn s55_a_file_whose_removal_failed_is_stored_in_place_of_its_object() {
    let world = Bucket::with_metadata().mount(|_| {}).await;
    world.write_file("a", b"object").await.unwrap();
    let handle = world.open_handle("a", libc::O_RDWR).await.unwrap();
    world.fs.write(handle, 200_000, b"end").await.unwrap();
    for operation in [Operation::Delete, Operation::Head] {
        world
            .bucket
            .faults
            .add(Rule::new(Fault::unavailable()).on(operation).at(&"a".try_into().unwrap()).always());
    }
    world.unlink("a").await.unwrap_err();
    world.bucket.faults.clear();
    world.fs.fsync(handle).await.unwrap();
    world.close(handle).await.unwrap();
    let body = world.bucket.object("a").await.unwrap();
    assert!(body.len() == 200_003 && body.starts_with(b"object\0") && body.ends_with(b"\0end"));
    assert!(!world.names("/").await.unwrap().contains(&"lost+found".to_owned()));
    world.assert_healthy().await;
}

/// An unlink failed without an answer although it had deleted the object: the next attempt to save the file ended in
/// `lost+found` (world 13842 of both sides).
#[tokio::test]
async fn s228_a_deletion_by_a_failed_unlink_is_not_foreign() {
    for is_open in [false, true] {
        let bucket = Bucket::in_memory();
        let world = bucket.mount(|_| {}).await;
        world.write_file("file", b"old").await.unwrap();
        let open = match is_open {
            true => Some(world.open_handle("file", libc::O_RDWR | libc::O_TRUNC).await.unwrap()),
            false => None,
        };
        bucket.faults.add(Rule::new(Fault::lost_reply()).on(Operation::Delete));
        bucket.faults.add(Rule::new(Fault::unavailable()).on(Operation::Head));
        assert_eq!(errno(world.unlink("file").await), libc::EIO);
        bucket.faults.clear();
        match open {
            Some(handle) => {
                world.fs.write(handle, 0, b"new").await.unwrap();
                world.close(handle).await.unwrap();
            }
            None => world.write_file("file", b"new").await.unwrap(),
        }
        assert_eq!(bucket.object("file").await.unwrap(), b"new");
        assert_eq!(bucket.keys().await, ["file"]);
        assert!(world.fs.conflicts().list().is_empty());
        world.assert_healthy().await;
    }
}

/// A new file whose first upload had succeeded without an answer was unlinked: as no object of it was known, none was deleted,
/// and the file was back at the next listing (worlds of files 2321 and 3520).
#[tokio::test]
async fn s31_an_upload_with_a_lost_answer_is_unlinked_too() {
    let world = World::new().await;
    let handle = world.create("file").await.unwrap();
    world.fs.write(handle, 0, b"body").await.unwrap();
    world
        .bucket
        .faults
        .add(Rule::new(Fault::lost_reply()).on(Operation::Put).at(&"file".try_into().unwrap()));
    assert_eq!(errno(world.fs.fsync(handle).await), libc::EIO);
    world.unlink("file").await.unwrap();
    assert_eq!(world.bucket.keys().await.iter().filter(|key| *key == "file").count(), 0);
    world.close(handle).await.unwrap();
    world.expire();
    assert_eq!(world.names("/").await.unwrap(), Vec::<String>::new());
    world.assert_healthy().await;
}

/// A `chmod` during unpublished writes was left for their commit to export. The writes were then dropped, and the change was
/// never exported (world of files 1328).
#[tokio::test]
async fn s18_attributes_are_exported_also_if_the_writes_are_dropped() {
    let world = World::new().await;
    world.write_file("file", b"body").await.unwrap();
    let handle = world.open_handle("file", libc::O_RDWR).await.unwrap();
    world.fs.write(handle, 0, b"B").await.unwrap();
    world.chmod("file", 0o600).await.unwrap();
    world.bucket.faults.set_down(true);
    assert_eq!(errno(world.close(handle).await), libc::EIO);
    world.bucket.faults.set_down(false);
    world.fs.sync().await.unwrap();
    assert_eq!(world.bucket.header("file", "file-permissions").await.unwrap(), "0100600");
    world.assert_healthy().await;
}

/// The last part of a stream was sent short for an `fsync` and failed. It was filled up and sent again, and then the short one
/// was sent once more and replaced it: bytes were missing in the middle of the file (worlds of files 17374, 49980, 63407 and
/// 98166).
#[tokio::test]
async fn s114_a_part_that_failed_short_does_not_replace_the_full_one() {
    let [whole, chunked] = Bucket::by_inode_each().await;
    for bucket in [Bucket::in_memory(), whole, chunked] {
        let world = bucket.mount(|config| config.part_size_bytes = MIB as u64).await;
        world.write_file("first", b"").await.unwrap();
        let body = pattern(3 * MIB + 100);
        let handle = world.create("stream").await.unwrap();
        world.write_all(handle, &body[..2 * MIB + 100]).await.unwrap();
        // Lets the full parts go out.
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        for operation in [Operation::PutPart, Operation::Put] {
            world.bucket.faults.add(Rule::new(Fault::unavailable()).on(operation).always());
        }
        assert_eq!(errno(world.fs.fsync(handle).await), libc::EIO);
        world.bucket.faults.clear();
        for operation in [Operation::PutPart, Operation::Put] {
            world.bucket.faults.add(Rule::new(Fault::unavailable()).on(operation));
        }
        let at = 2 * MIB + 100;
        world.fs.write(handle, at as u64, &body[at..]).await.unwrap();
        world.fs.flush(handle).await.ok();
        world.close(handle).await.unwrap();
        assert_eq!(world.remount().await.read_file("stream").await.unwrap(), body);
    }
}

/// An S3 client disconnected while the endpoint stored a file that a program had open, and the writes were lost (dual world 68,003,724).
#[tokio::test]
async fn writes_are_kept_when_the_call_that_stores_them_is_dropped() {
    const PART: usize = 256 << 10;
    for bucket in [Bucket::in_memory(), Bucket::by_inode(Mapping::Whole).await] {
        for (len, operation) in [(100, Operation::Put), (4 * PART, Operation::Complete)] {
            let world = bucket.mount(|config| config.part_size_bytes = PART as u64).await;
            world.write_file("first", b"so that the volume is recorded").await.unwrap();
            let name = format!("{len}");
            let mut body = pattern(len);
            let handle = world.create(&name).await.unwrap();
            world.write_all(handle, &body).await.unwrap();
            let held = world.bucket.late.hold(operation);
            tokio::select! {
                _ = world.fs.fsync(handle) => panic!("the answer is held back"),
                _ = held.done() => {}
            }
            assert_eq!(world.read_all(handle).await.unwrap(), body);
            world.fs.write(handle, 10, b"more").await.unwrap();
            body[10..14].copy_from_slice(b"more");
            world.close(handle).await.unwrap();
            assert_eq!(world.read_file(&name).await.unwrap(), body);
            world.assert_healthy().await;
        }
    }
}
