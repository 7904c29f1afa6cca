//! Objects and trees that are renamed again, or removed, before they have moved.

use super::*;

/// A file was lost: it replaced another file of a tree, and the tree was renamed back. The deletion of the replaced file at its old key ran
/// after the new file had arrived there (world of files 10015080).
#[tokio::test(start_paused = true)]
async fn a_tree_that_is_renamed_back_keeps_an_object_that_replaced_one_of_its_own() {
    let world = World::new();
    let new = world.put("new", "new").await;
    let old = world.put("d/x", "old").await;
    world.rename_tree("d/", "e/").await;
    world.rename(&new, "e/x", Precondition::Matches(old.etag)).await.unwrap();
    world.rename_tree("e/", "d/").await;
    world.mover.wait_until_all_moved().await;
    assert_eq!(contents(&world.memory).await, expected(&[("d/x", "new")]));
}

/// A removed file came back: its directory was renamed while the file was being copied over another one. The pending deletion of the replaced
/// file hid the copy from the removal (world of files 10066729).
#[tokio::test(start_paused = true)]
async fn an_object_is_deleted_after_its_new_directory_was_renamed_while_it_was_copied() {
    for millis in 0..60 {
        let world = World::new();
        let (file, old) = (world.put("file", "new").await, world.put("d/x", "old").await);
        world.rename(&file, "d/x", Precondition::Matches(old.etag)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(millis)).await;
        world.rename_tree("d/", "e/").await;
        world.mover.delete(&key("e/x"), Precondition::None).await.unwrap();
        world.mover.wait_until_all_moved().await;
        assert_eq!(contents(&world.memory).await, expected(&[]), "renamed after {millis} ms");
    }
}

/// A directory had the attributes of a directory that it had replaced, because the marker of the replaced one was moved after its own (world
/// of files 10000458).
#[tokio::test(start_paused = true)]
async fn the_marker_of_a_replaced_directory_does_not_come_along() {
    for millis in 0..60 {
        let mut world = World::new();
        let marker = |mode: &str| {
            let user = [("mode".to_owned(), mode.to_owned())].into();
            PutOptions { attributes: Attributes { user, ..Attributes::default() }, ..PutOptions::default() }
        };
        for (name, mode) in [("d/", "700"), ("e/", "755")] {
            world.mover.put(&key(name), Bytes::new().into(), marker(mode)).await.unwrap();
        }
        let replaced = Precondition::Matches(world.mover.head(&key("e/")).await.unwrap().object.etag);
        let named = || Ok::<_, StoreError>(());
        world.mover.rename_tree(b"d/", b"e/", &replaced, false, named).await.unwrap();
        tokio::time::sleep(Duration::from_millis(millis)).await;
        world.rename_tree("e/", "f/").await;
        tokio::time::sleep(Duration::from_millis(millis / 2)).await;
        world.reopen();
        world.mover.wait_until_all_moved().await;
        let found = world.memory.head(&key("f/")).await.unwrap();
        assert_eq!(found.attributes.user["mode"], "700", "renamed again after {millis} ms");
        assert_eq!(contents(&world.memory).await, expected(&[("f/", "")]));
    }
}

/// Regression: a range beyond the end of an object that a move was still to delete was refused, as if the object had been visible (world of
/// both sides 82027646). Its tags were shown, too.
#[tokio::test(start_paused = true)]
async fn an_object_that_is_still_to_be_deleted_has_no_length_and_no_tags() {
    let world = World::new();
    let a = world.put("a", "short").await;
    world.faults.add(Rule::new(Fault::unavailable()).on(Operation::Delete).always());
    world.mover.delete_later(&a).unwrap();
    let range = GetOptions { range: Some(100..200), ..GetOptions::default() };
    let read = world.mover.get(&key("a"), range).await.map(drop);
    assert!(matches!(read, Err(StoreError::NotFound(_))), "{read:?}");
    let tags = world.mover.tags(&key("a")).await;
    assert!(matches!(tags, Err(StoreError::NotFound(_))), "{tags:?}");
}
