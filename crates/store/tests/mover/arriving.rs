//! What happens to objects at the moment at which they arrive.

use super::{World, contents, expected, key, put};
use std::time::Duration;
use store::wrap::{Fault, Operation, Rule};
use store::{ObjectStore as _, Precondition, StoreError};

/// Who deleted an object as it arrived deleted what somebody had stored at its old place since (world 4320 of both sides).
#[tokio::test(start_paused = true)]
async fn what_is_deleted_as_it_arrives_is_deleted_there() {
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
        world.mover.arrived().await;
        assert_eq!(contents(&world.memory).await, expected(&[("d/a", "theirs")]), "after {wait} ms");
    }
}

/// What had replaced another, and was only not known to have arrived, could not be deleted there; it was said to be gone, as
/// what it had replaced was to go, and showed again when that turned out to be gone already (world 9966 of both sides).
#[tokio::test(start_paused = true)]
async fn what_could_not_be_deleted_where_it_arrived_still_shows() {
    let world = World::new();
    let (a, b) = (world.put("a", "newer").await, world.put("b", "older").await);
    world.faults.add(Rule::new(Fault::lost_reply()).on(Operation::Delete).at(&key("a")));
    world.faults.add(Rule::new(Fault::unavailable()).on(Operation::Delete).at(&key("b")));
    world.rename(&a, "b", Precondition::Matches(b.etag)).await.unwrap();
    world.mover.rests().await;
    let deleted = world.mover.delete(&key("b"), Precondition::None).await;
    assert!(matches!(deleted, Err(StoreError::Unavailable(_))));
    assert_eq!(contents(&*world.mover).await, expected(&[("b", "newer")]));
    world.mover.delete(&key("b"), Precondition::None).await.unwrap();
    assert_eq!(contents(&*world.mover).await, expected(&[]));
    world.mover.arrived().await;
    assert_eq!(contents(&world.memory).await, expected(&[]));
}
