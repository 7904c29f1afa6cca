//! Conflicts of renamed objects that had not moved yet: another client stored an object at the destination, or replaced the one
//! at the source.

use crate::world::{Bucket, World, errno};
use store::wrap::{Fault, Operation, Rule};
use vfs::{Conflict, ConflictPolicy, Keep};

use ConflictPolicy::{BucketWins, Fail, FileWins, KeepBoth};

const POLICIES: [ConflictPolicy; 4] = [BucketWins, FileWins, KeepBoth, Fail];

/// The way in which the file gets its new name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Renamed {
    /// A rename to a free name.
    Freely,
    /// A rename over another file.
    Over,
    /// A rename of the file's directory.
    Within,
}

const ALL: [Renamed; 3] = [Renamed::Freely, Renamed::Over, Renamed::Within];

/// Returns a mount in which `new/file.txt` was renamed but its object has not moved, while another client has stored an object
/// at the new key.
async fn rename_into_conflict(bucket: &Bucket, policy: ConflictPolicy, renamed: Renamed) -> World {
    let world = bucket.mount(|config| config.conflicts = policy).await;
    world.mkdir("old").await.unwrap();
    world.write_file("old/file.txt", b"ours").await.unwrap();
    if renamed != Renamed::Within {
        world.mkdir("new").await.unwrap();
    }
    if renamed == Renamed::Over {
        world.write_file("new/file.txt", b"replaced").await.unwrap();
    }
    world.fs.sync().await.unwrap();
    bucket.faults.set_down(true);
    match renamed {
        Renamed::Within => world.rename_at_once("old", "new", 0).await.unwrap(),
        Renamed::Freely | Renamed::Over => {
            world.rename_at_once("old/file.txt", "new/file.txt", 0).await.unwrap();
        }
    }
    bucket.put("new/file.txt", "theirs").await;
    world
}

fn only_conflict(world: &World, path: &[u8]) -> Conflict {
    let conflicts = world.fs.conflicts().list();
    let [conflict] = conflicts.as_slice() else { panic!("{conflicts:?}") };
    assert_eq!(conflict.path, path);
    conflict.clone()
}

async fn bytes(bucket: &Bucket, side: Option<&vfs::Side>) -> Option<Vec<u8>> {
    bucket.object(side?.key.as_bytes()).await
}

async fn count_keys(bucket: &Bucket, prefix: &str) -> usize {
    bucket.keys().await.iter().filter(|key| key.starts_with(prefix)).count()
}

/// Regression: the bucket won under every policy, and no record told where the file's bytes were.
#[tokio::test(start_paused = true)]
async fn s226_an_object_at_the_destination_of_a_rename_is_resolved_by_the_policy() {
    for policy in POLICIES {
        for renamed in ALL {
            let what = format!("{policy:?} {renamed:?}");
            let bucket = Bucket::in_memory();
            let world = rename_into_conflict(&bucket, policy, renamed).await;
            bucket.faults.set_down(false);
            world.settle().await;
            let conflict = only_conflict(&world, b"new/file.txt");
            assert_eq!((conflict.policy, conflict.is_complete), (policy, true), "{what}");
            assert_eq!(bytes(&bucket, conflict.file.as_ref()).await.unwrap(), b"ours", "{what}");
            assert_eq!(bytes(&bucket, conflict.bucket.as_ref()).await.unwrap(), b"theirs", "{what}");
            let named = if policy == FileWins { &b"ours"[..] } else { b"theirs" };
            assert_eq!(bucket.object("new/file.txt").await.unwrap(), named, "{what}");
            assert_eq!(bucket.object("old/file.txt").await, None, "{what}");
            assert_eq!(count_keys(&bucket, "lost+found/").await, usize::from(policy != KeepBoth), "{what}");
            let copies = count_keys(&bucket, "new/file.conflict-2026").await;
            assert_eq!(copies, usize::from(policy == KeepBoth), "{what}");
            assert_eq!(world.read_file("new/file.txt").await.unwrap(), named, "{what}");
            let writes = world.write_file("new/file.txt", b"more").await;
            match policy {
                Fail => assert_eq!(errno(writes), libc::ESTALE, "{what}"),
                _ => writes.unwrap_or_else(|error| panic!("{what}: {error}")),
            }
            world.assert_healthy().await;
        }
    }
}

/// Regression: an object that another client stored at the destination of a moving directory, between the look at the destination and the
/// copy, was replaced.
#[tokio::test(start_paused = true)]
async fn s226_an_object_stored_just_before_the_copy_of_a_renamed_directory_gets_the_name() {
    let bucket = Bucket::in_memory();
    let world = bucket.mount(|_| {}).await;
    world.mkdir("old").await.unwrap();
    world.write_file("old/file.txt", b"ours").await.unwrap();
    world.fs.sync().await.unwrap();
    bucket.faults.set_down(true);
    world.rename_at_once("old", "new", 0).await.unwrap();
    let (source, destination) = (bucket.late.hold(Operation::List), bucket.late.hold(Operation::List));
    bucket.faults.set_down(false);
    drop(source.done().await);
    let looked = destination.done().await;
    bucket.put("new/file.txt", "theirs").await;
    drop(looked);
    world.settle().await;
    let conflict = only_conflict(&world, b"new/file.txt");
    assert_eq!(bytes(&bucket, conflict.file.as_ref()).await.unwrap(), b"ours");
    assert_eq!(bucket.object("new/file.txt").await.unwrap(), b"theirs");
    assert_eq!(bucket.object("old/file.txt").await, None);
    assert_eq!(world.read_file("new/file.txt").await.unwrap(), b"theirs");
    world.assert_healthy().await;
}

/// An object that was replaced just before it moved with its directory was known by its earlier version until the revalidation, and a rename
/// of it was refused (worlds of both sides 82022658 and 82057756).
#[tokio::test(start_paused = true)]
async fn an_object_that_is_replaced_before_it_moves_with_its_directory_is_shown() {
    let bucket = Bucket::in_memory();
    let world = bucket.mount(|_| {}).await;
    world.mkdir("old").await.unwrap();
    world.write_file("old/file.txt", b"ours").await.unwrap();
    world.fs.sync().await.unwrap();
    bucket.faults.set_down(true);
    world.rename_at_once("old", "new", 0).await.unwrap();
    bucket.put("old/file.txt", "theirs").await;
    bucket.faults.set_down(false);
    world.settle().await;
    world.rename("new/file.txt", "new/renamed.txt").await.unwrap();
    world.settle().await;
    assert_eq!(world.read_file("new/renamed.txt").await.unwrap(), b"theirs");
    assert_eq!(bucket.keys().await, ["new/", "new/renamed.txt"]);
    assert!(world.fs.conflicts().list().is_empty());
    world.assert_healthy().await;
}

#[tokio::test(start_paused = true)]
async fn s226_resolving_the_conflict_of_a_rename_keeps_the_chosen_side() {
    for policy in POLICIES {
        for keep in [Keep::Bucket, Keep::File, Keep::Both] {
            let what = format!("{policy:?} {keep:?}");
            let bucket = Bucket::in_memory();
            let world = rename_into_conflict(&bucket, policy, Renamed::Freely).await;
            bucket.faults.set_down(false);
            world.settle().await;
            let conflict = only_conflict(&world, b"new/file.txt");
            world.fs.conflict_resolver().resolve(&conflict.id, keep).await.unwrap();
            world.settle().await;
            let named = match (keep, policy) {
                (Keep::File, _) | (Keep::Both, FileWins) => b"ours".to_vec(),
                _ => b"theirs".to_vec(),
            };
            assert_eq!(bucket.object("new/file.txt").await.unwrap(), named, "{what}");
            assert_eq!(world.read_file("new/file.txt").await.unwrap(), named, "{what}");
            assert_eq!(count_keys(&bucket, "lost+found/").await, 0, "{what}");
            let copies = count_keys(&bucket, "new/file.conflict-").await;
            assert_eq!(copies, usize::from(keep == Keep::Both), "{what}");
            assert_eq!(world.names("new").await.unwrap().len(), 1 + copies, "{what}");
            assert!(world.fs.conflicts().list().is_empty());
            world.assert_healthy().await;
        }
    }
}

/// Only the object that replaced the old one is left: no policy can bring back the old one.
#[tokio::test(start_paused = true)]
async fn s227_a_rename_whose_object_was_replaced_before_it_moved_is_recorded() {
    for policy in POLICIES {
        let bucket = Bucket::in_memory();
        let world = bucket.mount(|config| config.conflicts = policy).await;
        world.write_file("old", b"ours").await.unwrap();
        world.fs.sync().await.unwrap();
        bucket.faults.set_down(true);
        world.rename_at_once("old", "new", 0).await.unwrap();
        bucket.put("old", "theirs").await;
        bucket.faults.set_down(false);
        world.settle().await;
        world.expire();
        assert_eq!(world.read_file("old").await.unwrap(), b"theirs", "{policy:?}");
        assert_eq!(errno(world.stat("new").await), libc::ENOENT, "{policy:?}");
        let conflict = only_conflict(&world, b"old");
        assert!(conflict.is_gone(), "{policy:?}");
        assert_eq!(bytes(&bucket, conflict.bucket.as_ref()).await.unwrap(), b"theirs");
        let kept = world.fs.conflict_resolver().resolve(&conflict.id, Keep::File).await;
        assert_eq!(errno(kept), libc::ENOENT, "{policy:?}");
        world.fs.conflict_resolver().resolve(&conflict.id, Keep::Bucket).await.unwrap();
        assert_eq!(bucket.keys().await, ["old"], "{policy:?}");
        assert_eq!(world.read_file("old").await.unwrap(), b"theirs", "{policy:?}");
        world.write_file("old", b"more").await.unwrap();
        assert!(world.fs.conflicts().list().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn s226_an_outage_in_the_middle_of_a_conflict_of_a_rename_loses_nothing() {
    for policy in POLICIES {
        for renamed in ALL {
            for operation in [Operation::Copy, Operation::Head, Operation::Delete] {
                for after in 0..4 {
                    let what = format!("{policy:?} {renamed:?} {operation:?} after {after}");
                    let bucket = Bucket::in_memory();
                    let world = rename_into_conflict(&bucket, policy, renamed).await;
                    bucket.faults.set_down(false);
                    let down = Rule::new(Fault::unavailable()).on(operation).after(after).times(2);
                    bucket.faults.add(down);
                    world.settle().await;
                    bucket.faults.clear();
                    world.settle().await;
                    let mut objects = Vec::new();
                    for key in bucket.keys().await {
                        objects.push(bucket.object(&key).await.unwrap());
                    }
                    assert!(objects.contains(&b"ours".to_vec()), "{what}: our bytes are lost");
                    assert!(objects.contains(&b"theirs".to_vec()), "{what}: their bytes are lost");
                    let conflict = only_conflict(&world, b"new/file.txt");
                    assert_eq!(bytes(&bucket, conflict.bucket.as_ref()).await.unwrap(), b"theirs", "{what}");
                    let is_healthy = world.is_healthy().await;
                    assert_eq!(
                        is_healthy,
                        Ok(()),
                        "{what} {:?} {:?}",
                        bucket.keys().await,
                        world.tree().await
                    );
                }
            }
        }
    }
}
