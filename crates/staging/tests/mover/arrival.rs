//! Tests of objects that are changed just as they arrive at their new keys.

use super::{World, contents, expected, key, observer, options, put};
use staging::mover::{MoveObserver, Mover};
use staging::writeback::{Writeback, WritebackOptions};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::memory::MemoryStore;
use store::wrap::{Fault, Operation, Rule};
use store::{
    CopyOptions, Entropy, ListEntry, ListRequest, ObjectKey, ObjectRef, ObjectStore as _, Pages,
    Precondition, StoreError, SystemClock,
};
use tempfile::TempDir;

/// Regression: deleting an object just as it arrived deleted an object that another client had stored at the old key
/// since (world 4320 of both sides).
#[tokio::test(start_paused = true)]
async fn deleting_an_arriving_object_deletes_it_at_the_new_key() {
    for wait in 0..40 {
        let world = World::new();
        let object = world.put("d/a", "ours").await;
        world.rename(&object, "e/b", Precondition::Absent).await.unwrap();
        tokio::time::sleep(Duration::from_millis(wait)).await;
        let to = key("e/b");
        let theirs = async {
            while world.memory.find(&key("d/a")).await.unwrap().is_some() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            put(&world.memory, "d/a", "theirs").await;
        };
        let (deleted, ()) = futures_util::join!(world.mover.delete(&to, Precondition::None), theirs);
        deleted.unwrap();
        world.mover.wait_until_all_moved().await;
        assert_eq!(contents(&world.memory).await, expected(&[("d/a", "theirs")]), "after {wait} ms");
    }
}

/// Regression: an object had replaced another, but its arrival was not known yet, and deleting it failed. It was reported
/// as deleted, because the replaced object was to be deleted, and became visible again when that object was found to be
/// gone already (world 9966 of both sides).
#[tokio::test(start_paused = true)]
async fn an_arriving_object_that_could_not_be_deleted_stays_visible() {
    let world = World::new();
    let (a, b) = (world.put("a", "newer").await, world.put("b", "older").await);
    world.faults.add(Rule::new(Fault::lost_reply()).on(Operation::Delete).at(&key("a")));
    world.faults.add(Rule::new(Fault::unavailable()).on(Operation::Delete).at(&key("b")));
    world.rename(&a, "b", Precondition::Matches(b.etag)).await.unwrap();
    world.mover.wait_until_idle().await;
    let deleted = world.mover.delete(&key("b"), Precondition::None).await;
    assert!(matches!(deleted, Err(StoreError::Unavailable(_))));
    assert_eq!(contents(&*world.mover).await, expected(&[("b", "newer")]));
    world.mover.delete(&key("b"), Precondition::None).await.unwrap();
    assert_eq!(contents(&*world.mover).await, expected(&[]));
    world.mover.wait_until_all_moved().await;
    assert_eq!(contents(&world.memory).await, expected(&[]));
}

/// Regression: a directory was renamed again while its objects moved. The arrival of an object was reported for a key
/// by which the namespace no longer knew it; the namespace kept the old etag, and its next request was refused as if
/// another client had changed the object (world of files 3202281).
#[tokio::test(start_paused = true)]
async fn the_etag_of_an_object_renamed_again_while_it_moves_is_translated() {
    for wait in 0..80 {
        let world = World::new();
        let object = world.put("d/x", "one").await;
        let names = Arc::new(Mutex::new((key("d/x"), object.etag)));
        let reported = names.clone();
        world.mover.set_observer(MoveObserver {
            has_arrived: Box::new(move |key, issued, bucket| {
                let mut known = reported.lock().unwrap();
                let is_known = known.0 == *key;
                if is_known && known.1 == *issued {
                    known.1 = bucket.clone();
                }
                is_known
            }),
            ..observer()
        });
        let rename = async |from: &str, to: &str| {
            let commit = || {
                names.lock().unwrap().0 = key(format!("{to}x"));
                Ok::<_, StoreError>(())
            };
            world
                .mover
                .rename_tree(from.as_bytes(), to.as_bytes(), &Precondition::Absent, false, commit)
                .await
                .unwrap();
        };
        rename("d/", "e/").await;
        tokio::time::sleep(Duration::from_millis(wait)).await;
        rename("e/", "f/").await;
        tokio::time::sleep(Duration::from_millis(wait)).await;
        let (known, etag) = names.lock().unwrap().clone();
        let copied =
            world.mover.copy(&ObjectRef::new(known, etag), &key("copy"), CopyOptions::default()).await;
        assert!(copied.is_ok(), "after {wait} ms: {copied:?}");
        world.mover.wait_until_all_moved().await;
        assert_eq!(contents(&world.memory).await, expected(&[("copy", "one"), ("f/x", "one")]));
        let known = names.lock().unwrap().clone();
        assert_eq!(world.memory.head(&known.0).await.unwrap().object.etag, known.1);
    }
}

/// Regression: the journal recorded a move as done before the write-back log below, which had the copy and the deletion,
/// was synced. After a power failure the object was at its old key, and the rename was forgotten (world of files 444).
#[tokio::test(start_paused = true)]
async fn a_move_is_done_when_the_log_below_is_synced() {
    let dir = TempDir::new().unwrap();
    let (moves, log) = (dir.path().join("moves"), dir.path().join("log"));
    let memory = MemoryStore::new(Arc::new(SystemClock));
    let a = put(&memory, "a", "one").await;
    let options_below = WritebackOptions {
        limit_bytes: 1 << 30,
        limit_changes: 1 << 20,
        patience: Duration::from_secs(60),
        delay: Duration::from_secs(3600),
        checks_at_once: true,
        shared: Arc::new(|_| false),
        keys_are_used_once: false,
        lost: Arc::new(|key, _| key.clone()),
        early_bytes: 1 << 20,
        memory_bytes: 1 << 20,
    };
    let (clock, entropy) = (Arc::new(SystemClock), Arc::new(Entropy::new(2)));
    let below = Writeback::open(&log, Arc::new(memory.clone()), options_below, clock, entropy).unwrap();
    let mover = Mover::open(&moves, below.clone(), options(), Arc::new(Entropy::new(1))).unwrap();
    mover
        .rename_object(&a, &key("b"), &Precondition::Absent, false, |renamed| {
            Ok::<_, StoreError>(renamed.clone())
        })
        .await
        .unwrap();
    mover.wait_until_all_moved().await;
    while mover.synced() < std::fs::metadata(&moves).unwrap().len() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for (number, synced) in below.synced() {
        assert_eq!(synced, std::fs::metadata(log.join(format!("{number:016x}.log"))).unwrap().len());
    }
}

/// Regression: an object that had arrived and could then not be deleted kept another etag here than in the bucket
/// (world 1010 of both sides).
#[tokio::test(start_paused = true)]
async fn an_arrived_object_that_could_not_be_deleted_keeps_its_etag() {
    let world = World::new();
    let arrived: Arc<Mutex<Vec<ObjectKey>>> = Arc::default();
    let recorder = arrived.clone();
    world.mover.set_observer(MoveObserver {
        has_arrived: Box::new(move |key, _, _| {
            recorder.lock().unwrap().push(key.clone());
            true
        }),
        ..observer()
    });
    let a = world.put("a", "one").await;
    world.faults.add(Rule::new(Fault::unavailable()).on(Operation::Delete).at(&key("a")).times(2));
    world.rename(&a, "b", Precondition::Absent).await.unwrap();
    world.mover.wait_until_idle().await;
    let deleted = world.mover.delete(&key("b"), Precondition::None).await;
    assert!(matches!(deleted, Err(StoreError::Unavailable(_))));
    world.mover.wait_until_all_moved().await;
    let (here, there) =
        (world.mover.head(&key("b")).await.unwrap(), world.memory.head(&key("b")).await.unwrap());
    assert_eq!(here.object.etag, there.object.etag);
    assert_eq!(*arrived.lock().unwrap(), [key("b")]);
}

/// Regression: the process ended after the object at the old key was deleted. Nothing told the next one that the object at the new key
/// is the renamed one. It counted as another client's, and attributes that waited to be stored with it were lost (world of files
/// 10,063,043).
#[tokio::test(start_paused = true)]
async fn a_copy_is_recognized_after_the_end_of_the_process() {
    let mut world = World::new();
    let object = world.put("a", "ours").await;
    world.faults.add(Rule::new(Fault::lost_reply()).on(Operation::Delete).at(&key("a")));
    world.rename(&object, "b", Precondition::Absent).await.unwrap();
    world.mover.wait_until_idle().await;
    let copy = world.memory.head(&key("b")).await.unwrap().object;
    assert!(world.memory.find(&key("a")).await.unwrap().is_none());
    assert_ne!(copy.etag, object.etag);
    world.reopen();
    let reported: Arc<Mutex<Vec<_>>> = Arc::default();
    let recorder = reported.clone();
    world.mover.set_observer(MoveObserver {
        has_arrived: Box::new(move |key, issued, bucket| {
            recorder.lock().unwrap().push((key.clone(), issued.clone(), bucket.clone()));
            true
        }),
        ..observer()
    });
    assert_eq!(*reported.lock().unwrap(), [(key("b"), object.etag, copy.etag)]);
    world.mover.wait_until_all_moved().await;
    assert_eq!(contents(&world.memory).await, expected(&[("b", "ours")]));
}

/// Returns an object that was renamed to `b`, and has moved there.
async fn object_moved_to_b(world: &World) -> ObjectRef {
    let object = world.put("a", "ours").await;
    world.rename(&object, "b", Precondition::Absent).await.unwrap();
    world.mover.wait_until_all_moved().await;
    world.memory.head(&key("b")).await.unwrap().object
}

/// Regression: an object came to its key by a rename, was renamed again, and the process ended between the copy and the deletion. The next
/// one reported the etag of the copy, and still listed the object by the etag that it has at its old key. The namespace took it for another
/// client's and replaced the attributes that waited to be stored (world of files 50,027,043).
#[tokio::test(start_paused = true)]
async fn a_half_moved_object_is_listed_by_the_etag_that_was_reported() {
    let mut world = World::new();
    let at_b = object_moved_to_b(&world).await;
    world.reopen();
    let deletion_fails = || Rule::new(Fault::unavailable()).on(Operation::Delete).at(&key("b")).always();
    world.mover.set_observer(observer());
    world.faults.add(deletion_fails());
    world.rename(&at_b, "c", Precondition::Absent).await.unwrap();
    world.mover.wait_until_idle().await;
    let copy = world.memory.head(&key("c")).await.unwrap().object;
    assert_ne!(copy.etag, at_b.etag);
    world.reopen();
    world.mover.set_observer(observer());
    world.faults.add(deletion_fails());
    let request = ListRequest { limit: 9, ..ListRequest::default() };
    let listed = Pages::new(&*world.mover, request).collect().await.unwrap();
    let listed = listed.into_iter().filter_map(ListEntry::into_object);
    let listed: Vec<_> = listed.map(|(object, size_bytes)| (object.key, object.etag, size_bytes)).collect();
    assert_eq!(listed, [(copy.key, copy.etag, 4)]);
}

/// Regression: damage hid the beginning of a move that was done, and so that the etag of its copy had been reported. The next move of the
/// object reported an etag that the namespace no longer knew (world of files 51,036,898).
#[tokio::test(start_paused = true)]
async fn the_etag_of_an_earlier_copy_counts_as_reported_after_damage() {
    let mut world = World::new();
    let at_b = object_moved_to_b(&world).await;
    world.faults.set_down(true);
    world.rename(&at_b, "c", Precondition::Absent).await.unwrap();
    let journal = world.dir.path().join("moves");
    let damage = staging::mover::rot(&journal, u64::MAX, |_| 0).unwrap();
    assert!(damage.is_some());
    world.reopen();
    let reported: Arc<Mutex<Vec<_>>> = Arc::default();
    let recorder = reported.clone();
    world.mover.set_observer(MoveObserver {
        // The namespace knows the object under its last name, by the etag that it had before.
        has_arrived: Box::new(move |key, issued, bucket| {
            recorder.lock().unwrap().push((key.clone(), issued.clone(), bucket.clone()));
            key.as_bytes() == b"c"
        }),
        ..observer()
    });
    world.mover.wait_until_all_moved().await;
    let copy = world.memory.head(&key("c")).await.unwrap().object;
    assert_eq!(*reported.lock().unwrap(), [(key("c"), at_b.etag, copy.etag)]);
}
