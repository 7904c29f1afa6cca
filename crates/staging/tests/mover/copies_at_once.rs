//! Renames over a store that copies at once, such as a write-back log.

use super::*;

#[tokio::test]
async fn a_refused_rename_over_an_object_leaves_one_of_the_two() {
    let (memory, dir) = (MemoryStore::new(Arc::new(SystemClock)), TempDir::new().unwrap());
    let options = MoverOptions { copies_at_once: true, ..options() };
    let store = Arc::new(memory.clone());
    let mover = Mover::open(&dir.path().join("moves"), store, options, Arc::new(Entropy::new(1))).unwrap();
    let (a, b) = (put(&memory, "a", "one").await, put(&memory, "b", "two").await);
    for (to, at_target) in [("b", Precondition::Matches(b.etag)), ("c", Precondition::Absent)] {
        let refused = |_: &ObjectRef| Err::<(), _>(StoreError::Denied("no".into()));
        assert!(mover.rename_object(&a, &key(to), &at_target, false, refused).await.is_err());
    }
    assert_eq!(contents(&memory).await, expected(&[("a", "one"), ("b", "one")]));
}

/// The rename of a file with unpublished writes failed when its new name was committed already: the next publication took the file's own
/// object for another client's, and moved the file to `lost+found` (world of files 30078132).
#[tokio::test(start_paused = true)]
async fn a_rename_succeeds_although_the_old_object_cannot_be_deleted_yet() {
    let (memory, dir) = (MemoryStore::new(Arc::new(SystemClock)), TempDir::new().unwrap());
    let faults = Faults::new();
    let store = Arc::new(Faulty::new(memory.clone(), faults.clone()));
    let options = MoverOptions { copies_at_once: true, ..options() };
    let mover = Mover::open(&dir.path().join("moves"), store, options, Arc::new(Entropy::new(1))).unwrap();
    let a = put(&memory, "a", "one").await;
    faults.add(Rule::new(Fault::unavailable()).on(Operation::Delete).always());
    let named = |_: &ObjectRef| Ok::<_, StoreError>(());
    mover.rename_object(&a, &key("b"), &Precondition::Absent, false, named).await.unwrap();
    assert_eq!(contents(mover.as_ref()).await, expected(&[("b", "one")]));
    assert_eq!(contents(&memory).await, expected(&[("a", "one"), ("b", "one")]));
    faults.clear();
    mover.wait_until_all_moved().await;
    assert_eq!(contents(&memory).await, expected(&[("b", "one")]));
}

/// A rename was lost with its copy, but its deletion was in the journal, and the next mount made it: the file was gone (world of files
/// 65014060).
#[tokio::test(start_paused = true)]
async fn an_object_that_the_namespace_still_has_is_not_deleted() {
    for keeps in [true, false] {
        let (memory, dir) = (MemoryStore::new(Arc::new(SystemClock)), TempDir::new().unwrap());
        let faults = Faults::new();
        let open = || {
            let store = Arc::new(Faulty::new(memory.clone(), faults.clone()));
            let options = MoverOptions { copies_at_once: true, ..options() };
            Mover::open(&dir.path().join("moves"), store, options, Arc::new(Entropy::new(1))).unwrap()
        };
        let mover = open();
        let a = put(&memory, "a", "one").await;
        faults.add(Rule::new(Fault::unavailable()).on(Operation::Delete).always());
        let named = |_: &ObjectRef| Ok::<_, StoreError>(());
        mover.rename_object(&a, &key("b"), &Precondition::Absent, false, named).await.unwrap();
        mover.sync_journal().await.unwrap();
        drop(mover);
        memory.delete(&key("b"), Precondition::None).await.unwrap();
        faults.clear();
        let mover = open();
        let is_named = |from: &[u8], etag: &ETag| {
            assert_eq!((from, etag), (b"a".as_slice(), &a.etag));
            Ok::<_, StoreError>(keeps)
        };
        mover.compare_with_names(is_named).unwrap();
        mover.resume();
        mover.wait_until_all_moved().await;
        let left = if keeps { expected(&[("a", "one")]) } else { expected(&[]) };
        assert_eq!((contents(mover.as_ref()).await, contents(&memory).await), (left.clone(), left));
    }
}
