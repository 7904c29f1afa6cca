//! Tests of copies whose response was lost: the mover recognises such a copy as its own.

use super::{World, contents, expected, key, observer, put};
use staging::mover::MoveObserver;
use std::time::Duration;
use store::wrap::{Fault, Operation, Rule};
use store::{ObjectRef, ObjectStore as _, Payload, Precondition, PutOptions};

/// Renames an object; the response to the copy to its new key is lost.
async fn rename_with_lost_response(
    world: &World,
    from: &ObjectRef,
    to: &str,
    at_target: Precondition,
) -> ObjectRef {
    world.faults.add(Rule::new(Fault::lost_reply()).on(Operation::Copy));
    let renamed = world.rename(from, to, at_target).await.unwrap();
    world.mover.wait_until_idle().await;
    renamed
}

/// Regression: a copy whose response was lost stayed after its object was renamed again (world 497 of both sides).
#[tokio::test(start_paused = true)]
async fn a_copy_with_lost_response_is_removed_after_another_rename() {
    let world = World::new();
    let a = world.put("a", "one").await;
    let b = rename_with_lost_response(&world, &a, "b", Precondition::Absent).await;
    assert_eq!(contents(&world.memory).await, expected(&[("a", "one"), ("b", "one")]));
    world.rename(&b, "c", Precondition::Absent).await.unwrap();
    assert_eq!(contents(&*world.mover).await, expected(&[("c", "one")]));
    world.mover.wait_until_all_moved().await;
    assert_eq!(contents(&world.memory).await, expected(&[("c", "one")]));
}

/// Regression: a copy whose response was lost was taken for another client's object when another object was renamed to its
/// key, so that the newer object went to `lost+found` (world of files 2010891).
#[tokio::test(start_paused = true)]
async fn a_copy_with_lost_response_is_not_taken_for_another_clients() {
    let mut world = World::new();
    for has_crashed in [false, true] {
        let (older, newer) = (world.put("older", "one").await, world.put("newer", "two").await);
        let before = world.put("place", "zero").await;
        let older =
            rename_with_lost_response(&world, &older, "place", Precondition::Matches(before.etag)).await;
        assert_eq!(contents(&world.memory).await["place"], "one");
        world.rename(&newer, "place", Precondition::Matches(older.etag)).await.unwrap();
        if has_crashed {
            world.reopen();
        }
        assert_eq!(contents(&*world.mover).await, expected(&[("place", "two")]));
        world.mover.wait_until_all_moved().await;
        assert_eq!(contents(&world.memory).await, expected(&[("place", "two")]));
    }
}

/// The directory of an object is renamed, and the response to the object's copy is lost. The copy is not visible, even when
/// its key is free again.
#[tokio::test(start_paused = true)]
async fn a_copy_with_lost_response_is_not_visible_in_a_renamed_directory() {
    let world = World::new();
    world.put("from/a", "one").await;
    let newer = world.put("newer", "two").await;
    world.faults.add(Rule::new(Fault::lost_reply()).on(Operation::Copy));
    world.rename_tree("from/", "to/").await;
    world.mover.wait_until_idle().await;
    assert_eq!(contents(&world.memory).await["to/a"], "one");
    let newer = world.rename(&newer, "to/a", Precondition::None).await.unwrap();
    assert_eq!(contents(&*world.mover).await, expected(&[("to/a", "two")]));
    world.rename(&newer, "c", Precondition::Absent).await.unwrap();
    assert_eq!(contents(&*world.mover).await, expected(&[("c", "two")]));
    world.mover.wait_until_all_moved().await;
    assert_eq!(contents(&world.memory).await, expected(&[("c", "two")]));
}

/// Regression: a copy that was to be deleted hid the marker of its directory.
#[tokio::test(start_paused = true)]
async fn a_copy_with_lost_response_does_not_hide_its_directory() {
    let world = World::new();
    world.put("d/", "").await;
    let (older, newer) = (world.put("older", "one").await, world.put("newer", "two").await);
    let older = rename_with_lost_response(&world, &older, "d/a", Precondition::Absent).await;
    world.rename(&newer, "d/a", Precondition::Matches(older.etag)).await.unwrap();
    let shown = [("d/", ""), ("d/a", "two")];
    assert_eq!(contents(&*world.mover).await, expected(&shown));
    assert_eq!(world.mover.head(&key("d/")).await.unwrap().size_bytes, 0);
    world.mover.wait_until_all_moved().await;
    assert_eq!(contents(&world.memory).await, expected(&shown));
}

/// Regression: while the mover compared an arrived object with an older copy of it, it showed the copy, which has another
/// etag. The file was taken for another client's and lost its mode (world of files 2010510).
#[tokio::test(start_paused = true)]
async fn a_copy_with_lost_response_is_not_shown_for_its_arrived_object() {
    let world = World::new();
    // Like a volume, which recognises its objects by their headers.
    world.mover.set_observer(MoveObserver { knows: Box::new(|_, _| true), ..observer() });
    let a = world.put("a", "one").await;
    let b = rename_with_lost_response(&world, &a, "b", Precondition::Absent).await;
    world.faults.add(Rule::new(Fault::Stall).on(Operation::Get).at(&key("b")));
    world.rename(&b, "c", Precondition::Absent).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    // The copy at its last key is made, and the object is shown with the etag that callers know until it has left its first key.
    assert_eq!(contents(&world.memory).await["c"], "one");
    assert_eq!(world.mover.head(&key("c")).await.unwrap().object.etag, a.etag);
    assert_eq!(contents(&*world.mover).await, expected(&[("c", "one")]));
    world.faults.release();
    world.mover.wait_until_all_moved().await;
    assert_eq!(contents(&world.memory).await, expected(&[("c", "one")]));
}

/// Regression: another client replaced an object while it was compared with its copy, and a writer of the new name got
/// an error about the old name (world 1070 of both sides).
#[tokio::test(start_paused = true)]
async fn an_object_replaced_during_a_comparison_is_another_clients() {
    let world = World::new();
    let a = world.put("a", "ours").await;
    world.faults.add(Rule::new(Fault::Stall).on(Operation::Get).at(&key("a")));
    rename_with_lost_response(&world, &a, "b", Precondition::Absent).await;
    let mover = world.mover.clone();
    let written = tokio::spawn(async move { put(&*mover, "b", "newer").await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    put(&world.memory, "a", "theirs").await;
    world.faults.release();
    written.await.unwrap();
    world.mover.wait_until_all_moved().await;
    assert_eq!(contents(&world.memory).await, expected(&[("a", "theirs"), ("b", "newer")]));
}

/// Regression: an object was renamed over another, its copy failed, and it was renamed again: the object that it should have
/// replaced conflicted with the next file of this name (world of files 3111879).
#[tokio::test(start_paused = true)]
async fn a_replaced_object_is_removed_before_a_new_one_is_stored() {
    let mut world = World::new();
    for has_crashed in [false, true] {
        let newer = world.put("newer", "two").await;
        let older = world.put("place", "one").await;
        world.faults.add(Rule::new(Fault::unavailable()).on(Operation::Copy));
        let renamed = world.rename(&newer, "place", Precondition::Matches(older.etag)).await.unwrap();
        world.mover.wait_until_idle().await;
        world.rename(&renamed, "elsewhere", Precondition::Absent).await.unwrap();
        if has_crashed {
            world.reopen();
        }
        let absent = PutOptions { precondition: Precondition::Absent, ..PutOptions::default() };
        world.mover.put(&key("place"), Payload::from("three"), absent).await.unwrap();
        world.mover.wait_until_all_moved().await;
        let all = expected(&[("elsewhere", "two"), ("place", "three")]);
        assert_eq!(contents(&world.memory).await, all);
        for name in ["elsewhere", "place"] {
            world.mover.delete(&key(name), Precondition::None).await.unwrap();
        }
    }
}

/// Regression: an object was renamed, the response to its copy was lost, and it was renamed back: the copy stayed (world of
/// files 3428280).
#[tokio::test(start_paused = true)]
async fn a_copy_with_lost_response_is_removed_when_its_object_is_renamed_back() {
    let world = World::new();
    for is_deleted in [false, true] {
        let a = world.put("a", "one").await;
        let b = rename_with_lost_response(&world, &a, "b", Precondition::Absent).await;
        assert_eq!(contents(&world.memory).await, expected(&[("a", "one"), ("b", "one")]));
        world.rename(&b, "a", Precondition::Absent).await.unwrap();
        assert_eq!(contents(&*world.mover).await, expected(&[("a", "one")]));
        if is_deleted {
            world.mover.delete(&key("a"), Precondition::None).await.unwrap();
        }
        world.mover.wait_until_all_moved().await;
        let left: &[(&str, &str)] = if is_deleted { &[] } else { &[("a", "one")] };
        assert_eq!(contents(&world.memory).await, expected(left));
    }
}

/// Regression: the response to a copy was lost, the object was renamed back, and another one was renamed over it. The move of the copy, which
/// expected nothing at the key, decided on the condition, and the replaced object stayed (worlds of files 74651170 and 74730314).
#[tokio::test(start_paused = true)]
async fn an_object_whose_copy_may_be_elsewhere_is_replaced() {
    let world = World::new();
    let a = world.put("a", "replaced").await;
    let b = rename_with_lost_response(&world, &a, "b", Precondition::Absent).await;
    world.rename(&b, "a", Precondition::Absent).await.unwrap();
    let other = world.put("other", "two").await;
    world.rename(&other, "a", Precondition::Matches(a.etag)).await.unwrap();
    assert_eq!(contents(&*world.mover).await, expected(&[("a", "two")]));
    world.mover.wait_until_all_moved().await;
    let left = expected(&[("a", "two")]);
    assert_eq!((contents(&*world.mover).await, contents(&world.memory).await), (left.clone(), left));
}

/// Regression: the response to the deletion of a moved object's source was lost. When another object replaced the moved one, the moved
/// object stayed in the bucket, because it could not be compared with its source any more (world of both sides 102044).
#[tokio::test(start_paused = true)]
async fn a_moved_object_whose_source_is_gone_is_removed_when_it_is_replaced() {
    for is_source_stored_again in [false, true] {
        let world = World::new();
        let before = world.put("place", "zero").await;
        let (older, newer) = (world.put("older", "one").await, world.put("newer", "two").await);
        world.faults.add(Rule::new(Fault::lost_reply()).on(Operation::Delete).at(&key("older")));
        let older = world.rename(&older, "place", Precondition::Matches(before.etag)).await.unwrap();
        world.mover.wait_until_idle().await;
        assert_eq!(contents(&world.memory).await, expected(&[("newer", "two"), ("place", "one")]));
        if is_source_stored_again {
            put(&world.memory, "older", "theirs").await;
        }
        let newer = world.rename(&newer, "place", Precondition::Matches(older.etag)).await.unwrap();
        world.rename(&newer, "elsewhere", Precondition::Absent).await.unwrap();
        world.mover.wait_until_all_moved().await;
        let left: &[(&str, &str)] = match is_source_stored_again {
            true => &[("elsewhere", "two"), ("older", "theirs")],
            false => &[("elsewhere", "two")],
        };
        assert_eq!(contents(&world.memory).await, expected(left));
    }
}

/// Regression: an object was renamed twice, and the response to its first copy was lost. Another client stored an object under the
/// third name, so that ours went to `lost+found`. The first copy was compared only with the other client's object, and reappeared under the
/// second name (worlds of both sides 1013719 and 1045619).
#[tokio::test(start_paused = true)]
async fn a_copy_with_lost_response_is_removed_when_its_object_loses_a_conflict() {
    let world = World::new();
    let a = world.put("a", "ours").await;
    let b = rename_with_lost_response(&world, &a, "b", Precondition::Absent).await;
    put(&world.memory, "c", "theirs").await;
    world.rename(&b, "c", Precondition::Absent).await.unwrap();
    world.mover.wait_until_all_moved().await;
    assert_eq!(contents(&world.memory).await, expected(&[("c", "theirs"), ("lost/c", "ours")]));
}

/// Regression: the response to the first copy of an object was lost, it was renamed again, and another object replaced it. If its first name
/// was used again before its deletion was executed, its copy there was taken for another client's object (world of files 54,010,385).
#[tokio::test(start_paused = true)]
async fn a_copy_with_lost_response_is_removed_before_its_name_is_used_again() {
    let world = World::new();
    let (ours, newer) = (world.put("a", "ours").await, world.put("newer", "newer").await);
    let b = rename_with_lost_response(&world, &ours, "b", Precondition::Absent).await;
    let c = world.rename(&b, "c", Precondition::Absent).await.unwrap();
    world.rename(&newer, "c", Precondition::Matches(c.etag)).await.unwrap();
    let options = PutOptions { precondition: Precondition::Absent, ..PutOptions::default() };
    world.mover.put(&key("b"), Payload::from("again"), options).await.unwrap();
    world.mover.wait_until_all_moved().await;
    assert_eq!(contents(&world.memory).await, expected(&[("b", "again"), ("c", "newer")]));
}

/// Regression: an object was renamed twice, and the response to its first copy was lost. It reached its third name, where another client
/// replaced it before the first copy was looked at, so that nothing identified the copy: it reappeared under the second name (world of both
/// sides 184).
#[tokio::test(start_paused = true)]
async fn a_copy_with_lost_response_is_removed_when_its_object_is_replaced_after_it_has_arrived() {
    let world = World::new();
    let a = world.put("a", "ours").await;
    let b = rename_with_lost_response(&world, &a, "b", Precondition::Absent).await;
    world.faults.add(Rule::new(Fault::unavailable()).on(Operation::Copy).after(1));
    world.rename(&b, "c", Precondition::Absent).await.unwrap();
    while !contents(&world.memory).await.contains_key("c") {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    put(&world.memory, "c", "theirs").await;
    world.mover.wait_until_all_moved().await;
    assert_eq!(contents(&world.memory).await, expected(&[("c", "theirs")]));
}
