//! RenameObject in a volume named by path.

use super::{delete, get, key, keys, objects, put};
use crate::world::Bucket;
use store::{ObjectStore as _, Precondition, StoreError};

#[tokio::test]
async fn conditions_of_a_move_hold() {
    for is_known in [true, false] {
        let bucket = Bucket::in_memory();
        bucket.put("from", "bytes").await;
        bucket.put("taken", "other").await;
        let world = bucket.mount(|_| {}).await;
        let objects = objects(&world);
        if is_known {
            assert_eq!(world.names("/").await.unwrap(), ["from", "taken"]);
        }
        let source = objects.head(&key("from")).await.unwrap().object;
        let other = objects.head(&key("taken")).await.unwrap().object;
        let refused = |outcome: store::Result<()>| {
            assert!(matches!(outcome, Err(StoreError::PreconditionFailed(_))), "{outcome:?}");
        };
        refused(objects.rename(&source, &key("taken"), Precondition::Absent).await);
        refused(objects.rename(&source, &key("taken"), Precondition::Matches(source.etag.clone())).await);
        refused(objects.rename(&source, &key("free"), Precondition::Matches(other.etag.clone())).await);
        let stale = store::ObjectRef { etag: other.etag.clone(), ..source.clone() };
        refused(objects.rename(&stale, &key("free"), Precondition::None).await);
        let onto_itself = objects.rename(&source, &key("from"), Precondition::None).await;
        assert!(matches!(onto_itself, Err(StoreError::Invalid(_))), "{onto_itself:?}");
        assert_eq!(keys(&objects).await, ["from", "taken"]);
        objects.rename(&source, &key("taken"), Precondition::Matches(other.etag)).await.unwrap();
        assert_eq!(get(&objects, "taken").await.unwrap(), b"bytes");
        delete(&objects, "taken").await;
        let gone = objects.rename(&source, &key("free"), Precondition::None).await;
        assert!(matches!(gone, Err(StoreError::NotFound(_) | StoreError::PreconditionFailed(_))), "{gone:?}");
        world.settle().await;
        assert_eq!(bucket.keys().await, [""; 0]);
        world.assert_healthy().await;
    }
}

/// One of the file's two names is renamed: the object moves to the new key, and the other name stays.
#[tokio::test]
async fn a_file_with_several_names_keeps_the_others() {
    let world = Bucket::in_memory().mount(|_| {}).await;
    let objects = objects(&world);
    put(&objects, "from", "bytes").await;
    world.link("from", "other").await.unwrap();
    let source = objects.head(&key("from")).await.unwrap().object;
    objects.rename(&source, &key("to"), Precondition::None).await.unwrap();
    world.settle().await;
    assert_eq!(world.names("/").await.unwrap(), ["other", "to"]);
    assert_eq!(world.read_file("other").await.unwrap(), b"bytes");
    assert_eq!(get(&objects, "to").await.unwrap(), b"bytes");
    world.assert_healthy().await;
}
