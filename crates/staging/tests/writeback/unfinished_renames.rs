//! Renames that a crash interrupts between the copy to the new key and the deletion at the old one.

use super::{Duration, LATER, World, key, options};
use staging::writeback::UnfinishedRename;
use store::{CopyOptions, ObjectRef, ObjectStore, Precondition, PutOptions};

/// Regression: a kill between the commit of a rename and the deletion at the old key left the file under both names (worlds of files
/// 20017673 and 30031062).
#[tokio::test]
async fn a_crash_in_a_rename_is_known_until_the_old_object_is_gone() {
    let mut world = World::new(options(LATER));
    world.memory.put(&key("stored"), "one".into(), PutOptions::default()).await.unwrap();
    world.put("pending", "one", Precondition::None).await.unwrap();
    for old in ["stored", "pending"] {
        let a = world.writeback.head(&key(old)).await.unwrap().object;
        let copied = CopyOptions { is_rename: true, ..CopyOptions::default() };
        let b = world.writeback.copy(&a, &key("b"), copied).await.unwrap();
        let copied = world.writeback.copy(&a, &key("c"), CopyOptions::default()).await.unwrap();
        for _ in 0..2 {
            world.reopen();
            let known = world.writeback.unfinished_renames();
            let reference = |object: &ObjectRef| ObjectRef::new(object.key.clone(), object.etag.clone());
            let expected = UnfinishedRename {
                from: reference(&a),
                from_uploaded: None,
                copy: reference(&b),
                copy_uploaded: None,
            };
            assert_eq!(known, [expected]);
        }
        world.writeback.delete(&a.key, Precondition::None).await.unwrap();
        assert_eq!(world.writeback.unfinished_renames(), []);
        world.reopen();
        assert_eq!(world.writeback.unfinished_renames(), []);
        world.writeback.delete(&copied.key, Precondition::None).await.unwrap();
    }
}

#[tokio::test]
async fn the_copy_of_an_unfinished_rename_is_known_by_both_its_etags() {
    let mut world = World::new(options(Duration::ZERO));
    world.memory.put(&key("a"), "one".into(), PutOptions::default()).await.unwrap();
    let a = world.writeback.head(&key("a")).await.unwrap().object;
    let copied = CopyOptions { is_rename: true, ..CopyOptions::default() };
    let b = world.writeback.copy(&a, &key("b"), copied).await.unwrap();
    world.writeback.drained().await;
    world.reopen();
    let there = world.memory.head(&key("b")).await.unwrap().object.etag;
    let [rename] = &world.writeback.unfinished_renames()[..] else { panic!("one rename is unfinished") };
    assert!(rename.has_copy(&b.etag) && rename.has_copy(&there) && !rename.has_copy(&a.etag));
}

#[tokio::test]
async fn a_rename_is_over_when_its_old_key_has_another_object() {
    let mut world = World::new(options(LATER));
    let a = world.put("a", "one", Precondition::None).await.unwrap();
    let copied = CopyOptions { is_rename: true, ..CopyOptions::default() };
    world.writeback.copy(&a, &key("b"), copied).await.unwrap();
    world.put("a", "two", Precondition::None).await.unwrap();
    assert_eq!(world.writeback.unfinished_renames(), []);
    world.reopen();
    assert_eq!(world.writeback.unfinished_renames(), []);
}

/// Regression: the rename failed, and its copy, which had replaced an object, stayed. The next mount completed the rename, and would have lost
/// the object if the copy had been replaced in between (world of both sides 62,007,751).
#[tokio::test(start_paused = true)]
async fn a_change_of_the_copy_ends_a_rename() {
    let mut world = World::new(options(LATER));
    for is_copied in [true, false] {
        let a = world.put("a", "old", Precondition::None).await.unwrap();
        let options = CopyOptions { is_rename: true, ..CopyOptions::default() };
        let b = world.writeback.copy(&a, &key("b"), options).await.unwrap();
        assert_eq!(world.writeback.unfinished_renames().len(), 1);
        match is_copied {
            true => {
                let attributes = Some(world.writeback.head(&b.key).await.unwrap().attributes);
                let options = CopyOptions { attributes, ..CopyOptions::default() };
                world.writeback.copy(&b, &b.key, options).await.unwrap();
            }
            false => drop(world.put("b", "newer", Precondition::None).await.unwrap()),
        }
        assert_eq!(world.writeback.unfinished_renames(), []);
        world.reopen();
        assert_eq!(world.writeback.unfinished_renames(), []);
    }
}
