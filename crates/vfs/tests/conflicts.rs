//! Conflicts: an object changed in the bucket while a file with the same name was written here.

use crate::world::{Bucket, CALLER, MIB, World, errno, pattern};
use store::wrap::{Fault, Operation, Rule};
use store::{ObjectKey, StoreError};
use vfs::{Changes, Conflict, ConflictPolicy, Handle, Keep};

use ConflictPolicy::{BucketWins, Fail, FileWins, KeepBoth};

const POLICIES: [ConflictPolicy; 4] = [BucketWins, FileWins, KeepBoth, Fail];

/// The way in which an open file is dirty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    /// Short new contents, kept in memory.
    Memory,
    /// Long new contents, streamed to the store.
    Stream,
    /// An edit at the beginning; the rest is in the cache.
    Edit,
    /// An append; the rest is in the cache.
    Append,
    /// A truncation; the rest is in the cache.
    Cut,
    /// An edit at the beginning; the rest is only in the bucket.
    Uncached,
}

const ALL: [Written; 6] =
    [Written::Memory, Written::Stream, Written::Edit, Written::Append, Written::Cut, Written::Uncached];

async fn world(policy: ConflictPolicy) -> World {
    World::with(|config| {
        config.conflicts = policy;
        config.part_size_bytes = MIB as u64;
    })
    .await
}

/// Returns a file open for write, and the contents that it is to have.
async fn dirty(world: &World, written: Written) -> (Handle, Vec<u8>) {
    world.mkdir("dir").await.unwrap();
    let old = pattern(3 * MIB);
    world.bucket.put("dir/file.txt", &old).await;
    world.expire();
    if written != Written::Uncached {
        assert!(world.read_file("dir/file.txt").await.unwrap() == old);
    }
    let is_new = matches!(written, Written::Memory | Written::Stream);
    let flags = libc::O_RDWR | if is_new { libc::O_TRUNC } else { 0 };
    let handle = world.open_handle("dir/file.txt", flags).await.unwrap();
    let ours = match written {
        Written::Memory => b"ours".to_vec(),
        Written::Stream => vec![7; 3 * MIB + 5],
        Written::Edit | Written::Uncached => [&[7; 100], &old[100..]].concat(),
        Written::Append => [&old[..], &[7; 100]].concat(),
        Written::Cut => old[..MIB].to_vec(),
    };
    match written {
        Written::Memory | Written::Stream => world.write_all(handle, &ours).await.unwrap(),
        Written::Edit | Written::Uncached => world.write_all(handle, &ours[..100]).await.unwrap(),
        Written::Append => world.fs.write(handle, old.len() as u64, &[7; 100]).await.unwrap(),
        Written::Cut => {
            let changes = Changes { size_bytes: Some(MIB as u64), ..Changes::default() };
            let ino = world.ino("dir/file.txt").await.unwrap();
            world.fs.setattr(CALLER, ino, changes, Some(handle)).await.unwrap();
        }
    }
    (handle, ours)
}

/// Replaces or deletes the object as another client, while the file is open.
async fn change_object_meanwhile(world: &World, is_put: bool) {
    match is_put {
        true => world.bucket.put("dir/file.txt", "theirs").await,
        false => world.bucket.delete("dir/file.txt").await,
    }
}

/// Returns the objects whose keys begin with a prefix, with their bytes.
async fn objects_below(world: &World, prefix: &str) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for key in world.bucket.keys().await.into_iter().filter(|key| key.starts_with(prefix)) {
        found.push((key.clone(), world.bucket.object(&key).await.unwrap()));
    }
    found
}

fn only_conflict(world: &World) -> Conflict {
    let conflicts = world.fs.conflicts().list();
    let [conflict] = conflicts.as_slice() else { panic!("{conflicts:?}") };
    assert_eq!(conflict.path, b"dir/file.txt");
    assert_eq!(world.fs.status().conflicts, 1);
    conflict.clone()
}

async fn bytes(world: &World, side: Option<&vfs::Side>) -> Option<Vec<u8>> {
    world.bucket.object(side?.key.as_bytes()).await
}

#[tokio::test]
async fn s52_s55_no_policy_loses_bytes() {
    for policy in POLICIES {
        for written in ALL {
            for is_put in [true, false] {
                let what = format!("{policy:?} {written:?} {is_put}");
                let world = world(policy).await;
                let (handle, mut ours) = dirty(&world, written).await;
                change_object_meanwhile(&world, is_put).await;
                let closed = world.fs.flush(handle).await;
                let has_won = matches!(policy, FileWins | KeepBoth) && written != Written::Uncached;
                if has_won {
                    closed.unwrap_or_else(|error| panic!("{what}: {error}"));
                    assert!(
                        world.fs.read(handle, 0, 8 << 20).await.unwrap() == ours,
                        "{what}: the handle still reads its own bytes"
                    );
                } else {
                    assert_eq!(errno(closed), libc::ESTALE, "{what}");
                }
                world.fs.release(handle).await.unwrap();
                if written == Written::Uncached {
                    ours[100..].fill(0);
                }
                let conflict = only_conflict(&world);
                assert_eq!(conflict.policy, policy, "{what}");
                assert_eq!(conflict.is_complete, written != Written::Uncached, "{what}");
                assert!(bytes(&world, conflict.file.as_ref()).await.unwrap() == ours, "{what}");
                let theirs = is_put.then(|| b"theirs".to_vec());
                assert_eq!(bytes(&world, conflict.bucket.as_ref()).await, theirs, "{what}");
                let file_has_name = has_won && (policy == FileWins || !is_put);
                let named = if file_has_name { Some(ours.clone()) } else { theirs.clone() };
                assert!(world.bucket.object("dir/file.txt").await == named, "{what}");
                match named {
                    Some(named) => assert!(world.read_file("dir/file.txt").await.unwrap() == named, "{what}"),
                    None => assert_eq!(errno(world.stat("dir/file.txt").await), libc::ENOENT, "{what}"),
                }
                let lost = objects_below(&world, "lost+found/").await.len();
                let is_beside = has_won && policy == KeepBoth && is_put;
                assert_eq!(lost, usize::from(!is_beside && (is_put || !file_has_name)), "{what}");
                assert_eq!(
                    objects_below(&world, "dir/file.conflict-2026").await.len(),
                    usize::from(is_beside),
                    "{what}"
                );
                assert_eq!(objects_below(&world, ".tenon/").await, [], "{what}");
                world.assert_healthy().await;
            }
        }
    }
}

/// A stream is completed under the file's key before it is copied away. Until the foreign object is restored, a record says where
/// it is; without the record, a crash in between lost the place. If an attempt is interrupted, the next one restores the object; before, the
/// file kept the name, as if it had won (dual world 66,003,353).
#[tokio::test]
async fn s55_a_record_says_where_the_foreign_object_is_while_a_stream_has_its_key() {
    let world = world(BucketWins).await;
    let (handle, ours) = dirty(&world, Written::Stream).await;
    change_object_meanwhile(&world, true).await;
    let fails = Rule::new(Fault::unavailable()).on(Operation::Copy).below(b"lost+found/").after(1).always();
    world.bucket.faults.add(fails);
    assert_eq!(errno(world.fs.flush(handle).await), libc::EIO);
    assert_eq!(world.bucket.object("dir/file.txt").await.unwrap(), ours);
    let conflict = only_conflict(&world);
    assert_eq!(bytes(&world, conflict.bucket.as_ref()).await.unwrap(), b"theirs");
    world.bucket.faults.clear();
    assert_eq!(errno(world.fs.flush(handle).await), libc::ESTALE);
    assert_eq!(world.bucket.object("dir/file.txt").await.unwrap(), b"theirs");
    let conflict = only_conflict(&world);
    assert_eq!(bytes(&world, conflict.file.as_ref()).await.unwrap(), ours);
    assert_eq!(bytes(&world, conflict.bucket.as_ref()).await.unwrap(), b"theirs");
    assert_eq!(world.bucket.keys_below("lost+found/").await.len(), 1);
    world.fs.release(handle).await.unwrap();
    assert_eq!(world.read_file("dir/file.txt").await.unwrap(), b"theirs");
    world.assert_healthy().await;
}

/// Regression: bytes that another client had deleted were to be kept in `lost+found` as zeros. That upload failed, and the next attempt stored
/// the zeros at the path (dual world 75,001,147).
#[tokio::test]
async fn s55_zeros_for_lost_bytes_never_get_the_name() {
    for policy in POLICIES {
        let world = world(policy).await;
        let (handle, ours) = dirty(&world, Written::Uncached).await;
        change_object_meanwhile(&world, false).await;
        let fails = Rule::new(Fault::unavailable()).on(Operation::Complete).below(b"lost+found/").always();
        world.bucket.faults.add(fails);
        assert_eq!(errno(world.fs.flush(handle).await), libc::EIO, "{policy:?}");
        world.bucket.faults.clear();
        assert_eq!(errno(world.fs.flush(handle).await), libc::ESTALE, "{policy:?}");
        world.fs.release(handle).await.unwrap();
        assert_eq!(world.bucket.object("dir/file.txt").await, None, "{policy:?}");
        let kept = bytes(&world, only_conflict(&world).file.as_ref()).await.unwrap();
        assert!(kept[..100] == ours[..100] && kept[100..].iter().all(|byte| *byte == 0), "{policy:?}");
        world.assert_healthy().await;
    }
}

/// A read through another handle, or a `sync`, stored the file and got the only error: the writer's `close` succeeded (dual world 67,005,849).
#[tokio::test]
async fn s52_a_loss_that_another_call_found_is_reported_to_the_writer() {
    for is_read in [true, false] {
        let world = world(BucketWins).await;
        let (handle, _) = dirty(&world, Written::Stream).await;
        let reader = world.open_handle("dir/file.txt", libc::O_RDONLY).await.unwrap();
        change_object_meanwhile(&world, true).await;
        let found =
            if is_read { world.fs.read(reader, 0, 10).await.map(drop) } else { world.fs.sync().await };
        assert_eq!(errno(found), libc::ESTALE, "{is_read}");
        assert_eq!(errno(world.fs.flush(handle).await), libc::ESTALE, "{is_read}");
        world.fs.release(handle).await.unwrap();
        world.close(reader).await.unwrap();
        let handle = world.open_handle("dir/file.txt", libc::O_RDWR).await.unwrap();
        world.fs.write(handle, 0, b"x").await.unwrap();
        world.close(handle).await.unwrap();
        assert_eq!(world.read_file("dir/file.txt").await.unwrap(), b"xheirs");
    }
}

#[tokio::test]
async fn s53_s55_two_clients_that_create_one_file_both_keep_their_bytes() {
    for policy in POLICIES {
        for ours in [&b"ours"[..], &pattern(3 * MIB), b""] {
            let world = world(policy).await;
            world.mkdir("dir").await.unwrap();
            let handle = world.create("dir/file.txt").await.unwrap();
            world.write_all(handle, ours).await.unwrap();
            change_object_meanwhile(&world, true).await;
            let closed = world.close(handle).await;
            assert_eq!(closed.is_ok(), matches!(policy, FileWins | KeepBoth), "{policy:?}: {closed:?}");
            let conflict = only_conflict(&world);
            assert!(bytes(&world, conflict.file.as_ref()).await.unwrap() == ours);
            assert_eq!(bytes(&world, conflict.bucket.as_ref()).await.unwrap(), b"theirs");
            let named = if policy == FileWins { ours } else { b"theirs" };
            assert!(world.read_file("dir/file.txt").await.unwrap() == named, "{policy:?}");
            world.assert_healthy().await;
        }
    }
}

#[tokio::test]
async fn s55_a_conflict_copy_stays_open_for_further_writes() {
    let world = world(KeepBoth).await;
    let (handle, _) = dirty(&world, Written::Memory).await;
    change_object_meanwhile(&world, true).await;
    world.fs.fsync(handle).await.unwrap();
    world.fs.write(handle, 4, b" and more").await.unwrap();
    world.close(handle).await.unwrap();
    let names = world.names("dir").await.unwrap();
    assert!(names.len() == 2 && names[0].starts_with("file.conflict-20260101-12"), "{names:?}");
    assert!(names[0].ends_with(".txt") && names[1] == "file.txt", "{names:?}");
    assert_eq!(world.read_file(format!("dir/{}", names[0])).await.unwrap(), b"ours and more");
    assert_eq!(world.read_file("dir/file.txt").await.unwrap(), b"theirs");
    world.assert_healthy().await;
}

#[tokio::test]
async fn s55_a_path_in_conflict_takes_no_writes_until_it_is_resolved() {
    for is_put in [true, false] {
        let world = world(Fail).await;
        let (handle, ours) = dirty(&world, Written::Memory).await;
        change_object_meanwhile(&world, is_put).await;
        for _ in 0..2 {
            assert_eq!(errno(world.fs.fsync(handle).await), libc::ESTALE);
            assert_eq!(errno(world.fs.write(handle, 0, b"x").await), libc::ESTALE);
            assert_eq!(errno(world.fs.flush(handle).await), libc::ESTALE);
        }
        world.fs.release(handle).await.unwrap();
        match is_put {
            true => {
                assert_eq!(errno(world.open("dir/file.txt", libc::O_RDWR).await), libc::ESTALE);
                assert_eq!(errno(world.truncate("dir/file.txt", 1).await), libc::ESTALE);
                assert_eq!(world.read_file("dir/file.txt").await.unwrap(), b"theirs");
            }
            false => assert_eq!(errno(world.create("dir/file.txt").await), libc::ESTALE),
        }
        world.write_file("dir/other", "is free").await.unwrap();
        world.fs.conflict_resolver().resolve(&only_conflict(&world).id, Keep::File).await.unwrap();
        assert_eq!(world.read_file("dir/file.txt").await.unwrap(), ours);
        world.write_file("dir/file.txt", "written").await.unwrap();
        assert_eq!(world.fs.conflicts().list(), []);
        world.assert_healthy().await;
    }
}

#[tokio::test]
async fn s55_resolving_a_conflict_keeps_the_chosen_side() {
    for policy in POLICIES {
        for is_put in [true, false] {
            for keep in [Keep::Bucket, Keep::File, Keep::Both] {
                let what = format!("{policy:?} {is_put} {keep:?}");
                let world = world(policy).await;
                let (handle, ours) = dirty(&world, Written::Edit).await;
                change_object_meanwhile(&world, is_put).await;
                world.close(handle).await.ok();
                let id = only_conflict(&world).id;
                assert_eq!(errno(world.fs.conflict_resolver().resolve("none", keep).await), libc::ENOENT);
                world
                    .fs
                    .conflict_resolver()
                    .resolve(&id, keep)
                    .await
                    .unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!(
                    (world.fs.conflicts().list(), world.fs.status().conflicts),
                    (Vec::new(), 0),
                    "{what}"
                );
                let theirs = is_put.then(|| b"theirs".to_vec());
                assert_eq!(objects_below(&world, "lost+found/").await, [], "{what}");
                let mut left: Vec<_> =
                    objects_below(&world, "dir/file").await.into_iter().map(|(_, body)| body).collect();
                let mut wanted: Vec<_> = match keep {
                    Keep::Bucket => theirs.into_iter().collect(),
                    Keep::File => vec![ours],
                    Keep::Both => theirs.into_iter().chain([ours]).collect(),
                };
                left.sort();
                wanted.sort();
                assert!(left == wanted, "{what}");
                world.assert_healthy().await;
            }
        }
    }
}

#[tokio::test]
async fn s55_a_side_that_has_changed_since_is_not_deleted() {
    for policy in [BucketWins, FileWins] {
        let world = world(policy).await;
        let (handle, ours) = dirty(&world, Written::Memory).await;
        change_object_meanwhile(&world, true).await;
        world.close(handle).await.ok();
        world.bucket.put("dir/file.txt", "newer").await;
        let id = only_conflict(&world).id;
        let other = if policy == FileWins { Keep::Bucket } else { Keep::File };
        assert_eq!(errno(world.fs.conflict_resolver().resolve(&id, other).await), libc::ESTALE);
        assert_eq!(world.bucket.object("dir/file.txt").await.unwrap(), b"newer");
        only_conflict(&world);
        world.fs.conflict_resolver().resolve(&id, Keep::Both).await.unwrap();
        let kept = objects_below(&world, "dir/file.conflict-").await;
        let kept_bytes = if policy == FileWins { b"theirs".to_vec() } else { ours };
        assert!(kept.len() == 1 && kept[0].1 == kept_bytes, "{kept:?}");
        world.expire();
        assert_eq!(world.read_file("dir/file.txt").await.unwrap(), b"newer");
        world.assert_healthy().await;
    }
}

/// Regression: an upload that was carried out twice found its own object the second time. `close` failed with EEXIST, and a
/// second close stored the file over the other client's object (world of both sides 2001201).
#[tokio::test]
async fn s52_an_upload_to_lost_and_found_may_be_carried_out_twice() {
    for written in [Written::Memory, Written::Edit, Written::Append, Written::Cut] {
        let world = world(BucketWins).await;
        let (handle, ours) = dirty(&world, written).await;
        change_object_meanwhile(&world, true).await;
        for operation in [Operation::Put, Operation::Complete] {
            let is_there = || StoreError::PreconditionFailed(ObjectKey::new("lost").unwrap());
            world.bucket.faults.add(Rule::new(Fault::After(is_there)).on(operation).below(b"lost+found/"));
        }
        assert_eq!(errno(world.close(handle).await), libc::ESTALE, "{written:?}");
        let struck =
            world.bucket.faults.struck(Operation::Put) + world.bucket.faults.struck(Operation::Complete);
        assert_eq!(struck, 1, "{written:?}");
        assert_eq!(bytes(&world, only_conflict(&world).file.as_ref()).await.unwrap(), ours, "{written:?}");
        assert_eq!(objects_below(&world, "lost+found/").await.len(), 1, "{written:?}");
    }
}

#[tokio::test]
async fn s55_the_file_replaces_only_the_object_that_was_preserved() {
    let world = world(FileWins).await;
    let (handle, ours) = dirty(&world, Written::Memory).await;
    change_object_meanwhile(&world, true).await;
    // The other client replaces its object again between our copy of it and our PUT.
    let copied = world.bucket.late.hold(Operation::Copy);
    let fs = world.fs.clone();
    let closing = tokio::spawn(async move { fs.flush(handle).await });
    let answer = copied.done().await;
    world.bucket.put("dir/file.txt", "theirs again").await;
    drop(answer);
    closing.await.unwrap().unwrap();
    world.fs.release(handle).await.unwrap();
    assert_eq!(world.bucket.object("dir/file.txt").await.unwrap(), ours);
    assert_eq!(bytes(&world, only_conflict(&world).bucket.as_ref()).await.unwrap(), b"theirs again");
    assert_eq!(
        objects_below(&world, "lost+found/").await.len(),
        1,
        "an object that the other client replaced is not preserved"
    );
    world.assert_healthy().await;
}

#[tokio::test]
async fn s55_an_outage_in_the_middle_of_a_conflict_loses_nothing() {
    for policy in POLICIES {
        for operation in [Operation::Head, Operation::Copy, Operation::Put] {
            for after in [false, true] {
                let what = format!("{policy:?} {operation:?} {after}");
                let world = world(policy).await;
                let (handle, ours) = dirty(&world, Written::Memory).await;
                change_object_meanwhile(&world, true).await;
                let fault = if after { Fault::lost_reply() } else { Fault::unavailable() };
                world.bucket.faults.add(Rule::new(fault).on(operation));
                drop(world.fs.fsync(handle).await);
                let second = world.fs.fsync(handle).await;
                let is_refused = policy == Fail;
                assert!(second.is_ok() != is_refused || policy == BucketWins, "{what}: {second:?}");
                world.fs.release(handle).await.unwrap();
                let all: Vec<_> = objects_below(&world, "").await.into_iter().map(|(_, body)| body).collect();
                assert!(all.contains(&ours) && all.contains(&b"theirs".to_vec()), "{what}: {all:?}");
                assert!(!world.fs.conflicts().list().is_empty(), "{what}");
                world.assert_healthy().await;
            }
        }
    }
}

#[tokio::test]
async fn s55_a_crash_in_the_middle_of_a_conflict_loses_nothing() {
    for policy in POLICIES {
        let bucket = Bucket::with_metadata();
        let world = bucket.mount(|config| config.conflicts = policy).await;
        let (handle, ours) = dirty(&world, Written::Memory).await;
        change_object_meanwhile(&world, true).await;
        // The first request is refused; the second has taken effect when the mount ends.
        let (refused, stored) = (bucket.late.hold(Operation::Put), bucket.late.hold(Operation::Put));
        let fs = world.fs.clone();
        let closing = tokio::spawn(async move { fs.flush(handle).await });
        drop(refused.done().await);
        let answer = stored.done().await;
        closing.abort();
        assert!(closing.await.unwrap_err().is_cancelled());
        drop((answer, world));
        let world = bucket.mount(|_| {}).await;
        world.fs.recover().await.unwrap();
        let all: Vec<_> = objects_below(&world, "").await.into_iter().map(|(_, body)| body).collect();
        assert!(all.contains(&ours) && all.contains(&b"theirs".to_vec()), "{policy:?}: {all:?}");
        let named = if policy == FileWins { ours } else { b"theirs".to_vec() };
        assert_eq!(world.read_file("dir/file.txt").await.unwrap(), named, "{policy:?}");
        if policy == FileWins {
            world.fs.conflict_resolver().resolve(&only_conflict(&world).id, Keep::Bucket).await.unwrap();
            assert_eq!(world.read_file("dir/file.txt").await.unwrap(), b"theirs");
            assert_eq!(objects_below(&world, "lost+found/").await, []);
        }
        world.assert_healthy().await;
    }
}

#[tokio::test]
async fn s55_conflicts_outlast_the_mount() {
    let bucket = Bucket::with_metadata();
    let world = bucket.mount(|config| config.conflicts = Fail).await;
    let (handle, _) = dirty(&world, Written::Memory).await;
    change_object_meanwhile(&world, true).await;
    assert_eq!(errno(world.close(handle).await), libc::ESTALE);
    let again = bucket.mount(|_| {}).await;
    assert_eq!(again.fs.conflicts().list(), world.fs.conflicts().list());
    assert_eq!(
        errno(again.open("dir/file.txt", libc::O_WRONLY).await),
        libc::ESTALE,
        "the path is still in conflict"
    );
    again.fs.conflict_resolver().resolve(&only_conflict(&again).id, Keep::Bucket).await.unwrap();
    assert_eq!(bucket.mount(|_| {}).await.fs.conflicts().list(), []);
}

#[tokio::test]
async fn s55_a_renamed_file_takes_its_conflict_along() {
    for policy in POLICIES {
        let world = world(policy).await;
        let (handle, ours) = dirty(&world, Written::Memory).await;
        world.rename("dir/file.txt", "dir/new.txt").await.unwrap();
        world.bucket.put("dir/new.txt", "theirs").await;
        let closed = world.close(handle).await;
        assert_eq!(closed.is_ok(), matches!(policy, FileWins | KeepBoth), "{policy:?}: {closed:?}");
        assert_eq!(world.fs.conflicts().list()[0].path, b"dir/new.txt");
        let all: Vec<_> = objects_below(&world, "").await.into_iter().map(|(_, body)| body).collect();
        assert!(all.contains(&ours), "{policy:?}: {all:?}");
        assert!(all.contains(&b"theirs".to_vec()), "{policy:?}: {all:?}");
        world.assert_healthy().await;
    }
}

#[tokio::test]
async fn s55_old_versions_complete_what_was_edited_in_place() {
    let world = world(FileWins).await;
    world.bucket.store().versions().unwrap().set_state(store::Versioning::Enabled).await.unwrap();
    world.write_file("file", pattern(3 * MIB)).await.unwrap();
    let handle = world.open_handle("file", libc::O_RDWR).await.unwrap();
    world.fs.write(handle, 5, b"ours").await.unwrap();
    world.bucket.put("file", "theirs").await;
    world.close(handle).await.unwrap();
    let mut ours = pattern(3 * MIB);
    ours[5..9].copy_from_slice(b"ours");
    assert!(world.bucket.object("file").await.unwrap() == ours);
    assert_eq!(world.fs.conflicts().list().len(), 1);
    world.assert_healthy().await;
}

#[tokio::test]
async fn s55_the_policy_is_in_the_volumes_record() {
    let world = world(KeepBoth).await;
    world.write_file("file", "x").await.unwrap();
    let record = vfs::VolumeRecord::read(world.bucket.store(), b"").await.unwrap().unwrap();
    assert_eq!(record.conflicts, KeepBoth);
    let changed = record.with_conflicts(Fail).unwrap();
    changed.rewrite(world.bucket.store(), b"").await.unwrap();
    assert_eq!(vfs::VolumeRecord::read(world.bucket.store(), b"").await.unwrap().unwrap(), changed);
}

#[tokio::test]
async fn s55_the_number_of_conflicts_is_bounded() {
    let world = world(BucketWins).await;
    world.write_file("file", "first").await.unwrap();
    for number in 0..1005 {
        let handle = world.open_handle("file", libc::O_WRONLY | libc::O_TRUNC).await.unwrap();
        world.fs.write(handle, 0, b"ours").await.unwrap();
        world.bucket.put("file", number.to_string()).await;
        assert_eq!(errno(world.close(handle).await), libc::ESTALE);
    }
    let known = world.fs.conflicts().list();
    assert_eq!(known.len(), 1000);
    assert!(known.is_sorted_by_key(|conflict| conflict.at));
    let lost = objects_below(&world, "lost+found/").await;
    assert_eq!(lost.len(), 1005, "the bytes of dropped conflicts stay");
    assert_eq!(
        bytes(&world, known[999].bucket.as_ref()).await.unwrap(),
        b"1004",
        "the oldest records were dropped"
    );
}

/// Returns a world with a file that was closed while the bucket was unreachable, and the file's contents.
async fn closed_while_unreachable(policy: ConflictPolicy, written: Written) -> (World, Vec<u8>) {
    let world = World::with(|config| {
        (config.conflicts, config.write_back, config.part_size_bytes) = (policy, true, MIB as u64);
    })
    .await;
    let (handle, ours) = dirty(&world, written).await;
    // Uploads fail; reads succeed.
    for operation in [Operation::Put, Operation::Complete] {
        world
            .bucket
            .faults
            .add(Rule::new(Fault::unavailable()).on(operation).below(b"dir/file.txt").always());
    }
    world.close(handle).await.unwrap();
    (world, ours)
}

#[tokio::test(start_paused = true)]
async fn s153_s55_changes_in_the_write_back_log_follow_the_policy_too() {
    for policy in POLICIES {
        for written in [Written::Memory, Written::Stream, Written::Uncached] {
            for is_put in [true, false] {
                let what = format!("{policy:?} {written:?} {is_put}");
                let (world, mut ours) = closed_while_unreachable(policy, written).await;
                change_object_meanwhile(&world, is_put).await;
                world.bucket.faults.clear();
                world.settle().await;
                let has_won = matches!(policy, FileWins | KeepBoth) && written != Written::Uncached;
                if written == Written::Uncached {
                    // The last part was to be copied inside the bucket.
                    ours[2 * MIB..].fill(0);
                }
                let conflict = only_conflict(&world);
                assert!(bytes(&world, conflict.file.as_ref()).await.unwrap() == ours, "{what}");
                let theirs = is_put.then(|| b"theirs".to_vec());
                assert_eq!(bytes(&world, conflict.bucket.as_ref()).await, theirs, "{what}");
                let file_has_name = has_won && (policy == FileWins || !is_put);
                let named = if file_has_name { Some(ours.clone()) } else { theirs.clone() };
                assert!(world.bucket.object("dir/file.txt").await == named, "{what}");
                world.expire();
                match named {
                    Some(named) => assert!(world.read_file("dir/file.txt").await.unwrap() == named, "{what}"),
                    None => assert_eq!(errno(world.stat("dir/file.txt").await), libc::ENOENT, "{what}"),
                }
                world.fs.conflict_resolver().resolve(&conflict.id, Keep::File).await.unwrap();
                world.settle().await;
                assert!(world.bucket.object("dir/file.txt").await.unwrap() == ours, "{what}");
                assert_eq!(objects_below(&world, "lost+found/").await, [], "{what}");
                world.assert_healthy().await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn s153_a_newer_change_does_not_replace_the_object_that_an_older_one_lost_to() {
    let (world, _) = closed_while_unreachable(BucketWins, Written::Memory).await;
    change_object_meanwhile(&world, true).await;
    // A newer change arrives while the older one is being uploaded.
    let found = world.bucket.late.hold(Operation::Head);
    world.bucket.faults.clear();
    let answer = found.done().await;
    let handle = world.open_handle("dir/file.txt", libc::O_WRONLY | libc::O_TRUNC).await.unwrap();
    world.write_all(handle, b"newer").await.unwrap();
    world.close(handle).await.unwrap();
    drop(answer);
    world.settle().await;
    assert_eq!(world.bucket.object("dir/file.txt").await.unwrap(), b"theirs");
    let mut kept: Vec<_> =
        objects_below(&world, "lost+found/").await.into_iter().map(|(_, body)| body).collect();
    kept.sort();
    assert_eq!(kept, [b"newer".to_vec(), b"ours".to_vec()]);
    world.expire();
    assert_eq!(world.read_file("dir/file.txt").await.unwrap(), b"theirs");
    world.assert_healthy().await;
}

/// Regression: another client stored changed bytes with the length and the headers that it had read. They were taken for the bytes of the
/// edited file, which was stored with both edits, and no conflict was recorded (worlds of both sides 100196 and 101232).
#[tokio::test]
async fn s52_changed_bytes_of_equal_length_and_headers_are_another_clients() {
    let world = World::new().await;
    world.mkdir("dir").await.unwrap();
    world.write_file("dir/file.txt", b"before").await.unwrap();
    let handle = world.open_handle("dir/file.txt", libc::O_RDWR).await.unwrap();
    world.fs.write(handle, 6, b" and ours").await.unwrap();
    let headers = world.bucket.head("dir/file.txt").await.unwrap().attributes.user;
    let headers: Vec<(&str, &str)> =
        headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert!(headers.iter().any(|(name, _)| *name == "file-mtime"));
    world.bucket.put_with("dir/file.txt", b"theirs", &headers).await;
    assert_eq!(errno(world.close(handle).await), libc::ESTALE);
    assert_eq!(world.bucket.object("dir/file.txt").await.unwrap(), b"theirs");
    only_conflict(&world);
}

/// A change of attributes gives the object another etag and keeps its bytes, so it is no conflict with an edit.
#[tokio::test]
async fn s52_an_edit_outlives_four_changes_of_attributes_by_another_mount() {
    let bucket = Bucket::in_memory();
    let (here, there) = (bucket.mount(|_| {}).await, bucket.mount(|_| {}).await);
    here.write_file("file", b"before").await.unwrap();
    let handle = here.open_handle("file", libc::O_RDWR).await.unwrap();
    here.fs.write(handle, 6, b" and after").await.unwrap();
    let etag = bucket.head("file").await.unwrap().object.etag;
    for (mode, copies) in (0o600..).zip(1..=4) {
        there.chmod("file", mode).await.unwrap();
        there.fs.sync().await.unwrap();
        let found = bucket.head("file").await.unwrap();
        let before: Vec<&str> = found.attributes.user["tenon-copy-of"].split(' ').collect();
        assert_eq!((before.len(), before.last()), (copies, Some(&etag.as_str())));
        assert_ne!(found.object.etag, etag);
    }
    here.close(handle).await.unwrap();
    assert_eq!(bucket.object("file").await.unwrap(), b"before and after");
    assert_eq!(bucket.header("file", "tenon-copy-of").await, None, "the bytes are others");
    assert_eq!(here.fs.conflicts().list(), []);
    here.assert_healthy().await;
}
