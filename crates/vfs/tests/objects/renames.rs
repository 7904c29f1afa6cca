//! RenameObject in a volume named by path.

use super::{delete, get, key, keys, objects, put};
use crate::world::{Bucket, errno};
use store::wrap::Operation;
use store::{ObjectStore as _, Precondition, StoreError};

/// It waited for a copy of the whole object, however large.
#[tokio::test]
async fn s228_by_path_an_object_is_moved_without_waiting_for_its_bytes() {
    for is_known in [true, false] {
        let bucket = Bucket::in_memory();
        for (name, body) in [("a/from", "bytes"), ("a/stays", "other"), ("b/to", "old")] {
            bucket.put(name, body).await;
        }
        let world = bucket.mount(|_| {}).await;
        let objects = objects(&world);
        if is_known {
            assert_eq!(world.read_file("a/from").await.unwrap(), b"bytes");
            assert_eq!(world.read_file("b/to").await.unwrap(), b"old");
        }
        let source = objects.head(&key("a/from")).await.unwrap().object;
        let held = bucket.late.hold(Operation::Copy);
        let (moved, counts) = world.counting(objects.rename(&source, &key("b/to"), Precondition::None)).await;
        moved.unwrap();
        // The copy belongs to nobody who waits.
        let asked = counts.total() - counts.of(Operation::Copy);
        assert_eq!(asked, counts.of(Operation::Head), "known {is_known}: {counts}");
        assert!(asked <= 4, "known {is_known}: {counts}");
        assert_eq!(get(&objects, "b/to").await.unwrap(), b"bytes");
        assert_eq!(get(&objects, "a/from").await, None);
        assert_eq!(world.read_file("b/to").await.unwrap(), b"bytes", "known {is_known}");
        assert_eq!(errno(world.stat("a/from").await), libc::ENOENT, "known {is_known}");
        drop(held.done().await);
        world.settle().await;
        assert_eq!(bucket.keys().await, ["a/stays", "b/to"], "known {is_known}");
        let last = objects.head(&key("a/stays")).await.unwrap().object;
        objects.rename(&last, &key("b/stays"), Precondition::None).await.unwrap();
        assert_eq!(errno(world.stat("a").await), libc::ENOENT, "nobody had made the directory");
        world.assert_healthy().await;
    }
}

/// Who has the file open goes on under the new name.
#[tokio::test]
async fn s228_a_file_that_a_program_has_open_is_moved_with_it() {
    let world = Bucket::in_memory().mount(|_| {}).await;
    let objects = objects(&world);
    let source = put(&objects, "from", "bytes").await;
    let handle = world.open_handle("from", libc::O_RDWR).await.unwrap();
    assert_eq!(world.fs.read(handle, 0, 10).await.unwrap(), "bytes");
    objects.rename(&source, &key("to"), Precondition::Absent).await.unwrap();
    world.fs.write(handle, 5, b" more").await.unwrap();
    world.close(handle).await.unwrap();
    world.settle().await;
    assert_eq!(get(&objects, "to").await.unwrap(), b"bytes more");
    assert_eq!(keys(&objects).await, ["to"]);
    world.assert_healthy().await;
}

#[tokio::test]
async fn s228_conditions_of_a_move_hold() {
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

/// It has two names: the object goes to its new key, and the file stays under the other.
#[tokio::test]
async fn s228_a_file_with_several_names_keeps_the_others() {
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
