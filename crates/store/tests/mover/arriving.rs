//! What happens to objects at the moment at which they arrive.

use super::{World, contents, expected, key, put};
use std::time::Duration;
use store::{ObjectStore as _, Precondition};

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
