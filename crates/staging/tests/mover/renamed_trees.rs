//! Tests of objects that are being copied into a directory while it is renamed.

use super::{World, contents, expected, key, put};
use std::time::Duration;
use store::wrap::{Fault, Operation, Rule};
use store::{GetOptions, ObjectStore as _, Precondition, StoreError};

/// Regression: while an object was being copied into a directory, the directory was renamed and renamed back, and a new directory got the name
/// in between. The second move found nothing there, and the object ended up in the new directory (world of both sides 1043478).
#[tokio::test(start_paused = true)]
async fn an_object_in_flight_moves_back_with_its_directory() {
    let world = World::new();
    world.put("a/x", "one").await;
    world.put("a/y", "two").await;
    world.faults.add(Rule::new(Fault::Stall).on(Operation::Copy).at(&key("b/x")));
    world.rename_tree("a/", "b/").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mover = world.mover.clone();
    let changed = tokio::spawn(async move {
        mover
            .rename_tree(b"b/", b"a/", &Precondition::Absent, false, || Ok::<_, store::StoreError>(()))
            .await
            .unwrap();
        put(&*mover, "b/z", "newer").await;
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.faults.release();
    changed.await.unwrap();
    world.mover.wait_until_all_moved().await;
    let all = [("a/x", "one"), ("a/y", "two"), ("b/z", "newer")];
    assert_eq!(contents(&world.memory).await, expected(&all));
    assert_eq!(contents(&*world.mover).await, expected(&all));
}

/// A directory is renamed while objects are being copied into it. The objects follow it, although a new object below its old name makes its
/// move run at once.
#[tokio::test(start_paused = true)]
async fn an_object_in_flight_follows_its_directory() {
    for is_tree in [false, true] {
        let world = World::new();
        let a = world.put("a/x", "one").await;
        world.faults.add(Rule::new(Fault::Stall).on(Operation::Copy).at(&key("b/x")));
        match is_tree {
            true => world.rename_tree("a/", "b/").await,
            false => drop(world.rename(&a, "b/x", Precondition::Absent).await.unwrap()),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.rename_tree("b/", "c/").await;
        let mover = world.mover.clone();
        let stored = tokio::spawn(async move { put(&*mover, "b/z", "newer").await });
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.faults.release();
        stored.await.unwrap();
        world.mover.wait_until_all_moved().await;
        let all = [("b/z", "newer"), ("c/x", "one")];
        assert_eq!(contents(&world.memory).await, expected(&all), "is_tree: {is_tree}");
    }
}

/// The move of a tree waits for an object that is being moved into it, and a rename back ends both moves.
#[tokio::test(start_paused = true)]
async fn a_directory_is_renamed_back_while_its_move_waits_for_an_object() {
    let world = World::new();
    world.put("a/x", "one").await;
    let y = world.put("a/y", "two").await;
    world.faults.add(Rule::new(Fault::Stall).on(Operation::Copy).at(&key("b/y")));
    let away = world.rename(&y, "away", Precondition::Absent).await.unwrap();
    world.rename_tree("a/", "b/").await;
    world.rename(&away, "b/y", Precondition::Absent).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mover = world.mover.clone();
    let renamed = tokio::spawn(async move {
        let named = || Ok::<_, store::StoreError>(());
        mover.rename_tree(b"b/", b"a/", &Precondition::Absent, false, named).await.unwrap();
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.faults.release();
    tokio::time::timeout(Duration::from_secs(60), renamed).await.expect("the rename ends").unwrap();
    world.mover.wait_until_all_moved().await;
    assert_eq!(contents(&world.memory).await, expected(&[("a/x", "one"), ("a/y", "two")]));
}

/// The marker of a directory was copied again by an upload over it, before it was deleted at its old key. The copy had an etag that nobody knew
/// if its answer was lost (world of files 59,119,830).
#[tokio::test(start_paused = true)]
async fn a_marker_that_has_been_copied_is_not_copied_again() {
    let world = World::new();
    world.put("a/", "").await;
    world.put("a/x", "one").await;
    world.faults.add(Rule::new(Fault::Stall).on(Operation::Copy).at(&key("b/x")));
    // The first copy, and one that is made only if there is none.
    world.faults.add(Rule::new(Fault::unavailable()).on(Operation::Copy).at(&key("b/")).after(2).always());
    world.rename_tree("a/", "b/").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    put(&*world.mover, "b/", "").await;
    world.faults.release();
    world.mover.wait_until_all_moved().await;
    assert_eq!(contents(&world.memory).await, expected(&[("b/", ""), ("b/x", "one")]));
}

/// Regression: a read under a directory's new name got an object that was stored at the old name after the move had ended (world of both
/// sides 68007744).
#[tokio::test(start_paused = true)]
async fn a_read_does_not_get_an_object_stored_at_the_old_name_after_the_move() {
    let world = World::new();
    world.put("a/x", "one").await;
    world.faults.add(Rule::new(Fault::Stall).on(Operation::Get).at(&key("a/y")));
    world.rename_tree("a/", "b/").await;
    let mover = world.mover.clone();
    let read = tokio::spawn(async move { mover.get(&key("b/y"), GetOptions::default()).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    put(&*world.mover, "a/y", "newer").await;
    assert!(!read.is_finished());
    world.faults.release();
    let found = read.await.unwrap();
    assert!(matches!(found, Err(StoreError::NotFound(_))), "{:?}", found.map(|object| object.meta));
    assert_eq!(contents(&*world.mover).await, expected(&[("a/y", "newer"), ("b/x", "one")]));
}
