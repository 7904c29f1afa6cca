//! Tests of moves that an earlier process left, compared with a namespace that knows more or has lost some.

use super::*;

/// The etag of a copy had been reported before the object was renamed again. After a kill, the object was shown by its first etag, as if another
/// client had stored it, and a mode that waited was lost (world of files 69017546).
#[tokio::test(start_paused = true)]
async fn an_etag_that_was_reported_before_a_further_rename_is_shown_after_a_restart() {
    let (memory, dir) = (MemoryStore::new(Arc::new(SystemClock)), TempDir::new().unwrap());
    let faults = Faults::new();
    let open = |knows_copy: bool| {
        let store = Arc::new(Faulty::new(memory.clone(), faults.clone()));
        let mover =
            Mover::open(&dir.path().join("moves"), store, options(), Arc::new(Entropy::new(1))).unwrap();
        mover.set_observer(MoveObserver { has_arrived: Box::new(move |_, _, _| knows_copy), ..observer() });
        mover
    };
    let a = put(&memory, "a", "one").await;
    faults.add(Rule::new(Fault::unavailable()).on(Operation::Delete).always());
    let named = |_: &ObjectRef| Ok::<_, StoreError>(());
    let mover = open(false);
    mover.rename_object(&a, &key("b"), &Precondition::Absent, false, named).await.unwrap();
    mover.resume();
    mover.wait_until_idle().await;
    drop(mover);
    faults.clear();
    faults.set_down(true);
    let copy = memory.head(&key("b")).await.unwrap().object;
    assert_ne!(copy.etag, a.etag);
    let mover = open(true);
    mover.rename_object(&copy, &key("c"), &Precondition::Absent, false, named).await.unwrap();
    mover.sync_journal().await.unwrap();
    drop(mover);
    faults.set_down(false);
    let mover = open(false);
    let is_named = |at: &[u8], etag: &ETag| Ok::<_, StoreError>((at, etag) == (b"c".as_slice(), &copy.etag));
    mover.compare_with_names(is_named).unwrap();
    assert_eq!(mover.head(&key("c")).await.unwrap().object.etag, copy.etag);
    mover.resume();
    mover.wait_until_all_moved().await;
    assert_eq!(contents(&memory).await, expected(&[("c", "one")]));
}

/// A file's copy had not been reported when the directory that it had come to was renamed. After a kill it was shown by the etag of the copy,
/// which the namespace did not have (world of files 73203690).
#[tokio::test(start_paused = true)]
async fn a_copy_that_was_not_reported_keeps_its_etag_when_its_directory_is_renamed() {
    let (memory, dir) = (MemoryStore::new(Arc::new(SystemClock)), TempDir::new().unwrap());
    let faults = Faults::new();
    let open = || {
        let store = Arc::new(Faulty::new(memory.clone(), faults.clone()));
        let mover =
            Mover::open(&dir.path().join("moves"), store, options(), Arc::new(Entropy::new(1))).unwrap();
        mover.set_observer(MoveObserver { has_arrived: Box::new(|_, _, _| false), ..observer() });
        mover
    };
    let (a, replaced) = (put(&memory, "a", "one").await, put(&memory, "d/b", "replaced").await);
    let named = |_: &ObjectRef| Ok::<_, StoreError>(());
    faults.add(Rule::new(Fault::unavailable()).on(Operation::Delete).always());
    let mover = open();
    let over = Precondition::Matches(replaced.etag.clone());
    mover.rename_object(&a, &key("d/b"), &over, false, named).await.unwrap();
    mover.resume();
    mover.wait_until_idle().await;
    mover.rename_tree(b"d/", b"e/", &Precondition::Absent, false, || Ok::<_, StoreError>(())).await.unwrap();
    mover.sync_journal().await.unwrap();
    drop(mover);
    faults.clear();
    memory.delete(&a.key, Precondition::None).await.unwrap();
    let mover = open();
    assert_eq!(mover.head(&key("e/b")).await.unwrap().object.etag, a.etag);
    mover.resume();
    mover.wait_until_all_moved().await;
    assert_eq!(contents(&memory).await, expected(&[("e/b", "one")]));
}

/// Two renames were lost, of which the first had replaced the file. Its object was kept, under a key at which the second rename hid it, and was
/// taken for the renamed file later (world of files 67006549).
#[tokio::test(start_paused = true)]
async fn an_object_that_another_one_had_replaced_is_deleted() {
    let (memory, dir) = (MemoryStore::new(Arc::new(SystemClock)), TempDir::new().unwrap());
    let faults = Faults::new();
    let open = || {
        let store = Arc::new(Faulty::new(memory.clone(), faults.clone()));
        Mover::open(&dir.path().join("moves"), store, options(), Arc::new(Entropy::new(1))).unwrap()
    };
    let (a, b) = (put(&memory, "a", "one").await, put(&memory, "b", "replaced").await);
    faults.set_down(true);
    let named = |_: &ObjectRef| Ok::<_, StoreError>(());
    let replaced = Precondition::Matches(b.etag.clone());
    let mover = open();
    mover.rename_object(&a, &key("b"), &replaced, false, named).await.unwrap();
    mover.sync_journal().await.unwrap();
    drop(mover);
    let mover = open();
    let arrived = ObjectRef::new(key("b"), a.etag.clone());
    mover.rename_object(&arrived, &key("a"), &Precondition::Absent, false, named).await.unwrap();
    mover.sync_journal().await.unwrap();
    drop(mover);
    faults.set_down(false);
    let mover = open();
    mover.compare_with_names(|_, _| Ok::<_, StoreError>(true)).unwrap();
    mover.resume();
    mover.wait_until_all_moved().await;
    let left = expected(&[("a", "one")]);
    assert_eq!((contents(mover.as_ref()).await, contents(&memory).await), (left.clone(), left));
}

/// A rename brought an object back to its own key, and the process was killed before the names had it. The journal did not have the rename any
/// more, so the file vanished at the name that it had, and came back as a new one (worlds of files 74528236 and 76215528).
#[tokio::test(start_paused = true)]
async fn a_rename_back_that_a_kill_interrupts_is_left_in_the_journal() {
    for is_tree in [false, true] {
        let mut world = World::new();
        let a = world.put(if is_tree { "a/x" } else { "a" }, "one").await;
        let [a_name, b_name] = if is_tree { ["a/", "b/"] } else { ["a", "b"] };
        world.faults.add(Rule::new(Fault::unavailable()).on(Operation::Copy).always());
        let killed = TempDir::new().unwrap();
        let kill = || {
            std::fs::copy(world.dir.path().join("moves"), killed.path().join("moves")).unwrap();
            Err::<(), _>(StoreError::Unavailable("killed".into()))
        };
        if is_tree {
            world.rename_tree("a/", "b/").await;
            world.mover.rename_tree(b"b/", b"a/", &Precondition::Absent, false, kill).await.unwrap_err();
        } else {
            let b = world.rename(&a, "b", Precondition::Absent).await.unwrap();
            let (to, at_target) = (key("a"), Precondition::Absent);
            world.mover.rename_object(&b, &to, &at_target, false, |_| kill()).await.unwrap_err();
        }
        world.dir = killed;
        world.reopen();
        let etag = (!is_tree).then(|| a.etag.clone());
        let back = Renamed { from: vec![b_name.into()], to: a_name.into(), etag };
        // Objects of a tree can also have reached the other prefix, from where another move takes them back.
        assert_eq!(world.mover.pending(), vec![back; if is_tree { 2 } else { 1 }]);
        assert_eq!(contents(&*world.mover).await, contents(&world.memory).await);
        world.mover.wait_until_all_moved().await;
        assert_eq!(world.mover.head(&a.key).await.unwrap().object, a);
        world.reopen();
        assert_eq!(world.mover.pending(), []);
    }
}
