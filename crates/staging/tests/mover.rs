//! Tests of the mover: renames return at once, and the objects are moved later.

mod after_restart;
mod arrival;
mod copies_at_once;
mod lost_responses;
mod renamed_again;
mod renamed_trees;

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use staging::conflict::{ConflictCallbacks, Outcome, Resolution};
use staging::mover::{MoveObserver, Mover, MoverOptions, NamingError, Renamed};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::conformance::{self, Capabilities};
use store::memory::{MemoryLimits, MemoryStore};
use store::wrap::{
    Call, Fault, Faults, Faulty, Latency, Layer, Operation, Rule, Slow, Trace, Traced, Wrapped,
};
use store::{
    Attributes, CopyOptions, ETag, Entropy, GetOptions, ListEntry, ListRequest, ListedObject, ObjectKey,
    ObjectRef, ObjectStore, Pages, Precondition, PutOptions, Result, StoreError, SystemClock,
};
use tempfile::TempDir;

use super::bucket_of_a_server;

fn key(text: impl AsRef<[u8]>) -> ObjectKey {
    ObjectKey::try_from(text.as_ref()).unwrap()
}

fn options() -> MoverOptions {
    MoverOptions {
        copies_at_once: false,
        is_shared: false,
        lost: Arc::new(|lost, _| key([b"lost/", lost.as_bytes()].concat())),
    }
}

/// A bucket with latency and fault injection, with a mover in front of it.
struct World {
    memory: MemoryStore,
    faults: Faults,
    trace: Trace,
    dir: TempDir,
    mover: Arc<Mover>,
}

impl World {
    fn new() -> Self {
        let limits = MemoryLimits { part_bytes_min: 1, ..MemoryLimits::default() };
        let memory = MemoryStore::with_limits(Arc::new(SystemClock), limits);
        let (faults, trace) = (Faults::new(), Trace::new());
        let dir = TempDir::new().unwrap();
        let mover = open(dir.path(), &memory, &faults, &trace);
        Self { memory, faults, trace, dir, mover }
    }

    /// Simulates a crash with requests in flight, and opens a new mover with a copy of the journal.
    fn reopen(&mut self) {
        self.faults.set_down(true);
        self.faults = Faults::new();
        let dir = TempDir::new().unwrap();
        std::fs::copy(self.dir.path().join("moves"), dir.path().join("moves")).unwrap();
        self.mover = open(dir.path(), &self.memory, &self.faults, &self.trace);
        self.mover.resume();
        self.dir = dir;
    }

    async fn put(&self, name: &str, body: &str) -> ObjectRef {
        put(&*self.mover, name, body).await
    }

    async fn rename(&self, from: &ObjectRef, to: &str, at_target: Precondition) -> Result<ObjectRef> {
        self.mover.rename_object(from, &key(to), &at_target, false, |renamed| Ok(renamed.clone())).await
    }

    async fn rename_tree(&self, from: &str, to: &str) {
        self.mover
            .rename_tree(from.as_bytes(), to.as_bytes(), &Precondition::Absent, false, || {
                Ok::<_, StoreError>(())
            })
            .await
            .unwrap();
    }
}

fn open(dir: &Path, memory: &MemoryStore, faults: &Faults, trace: &Trace) -> Arc<Mover> {
    let bucket = Slow::new(memory.clone(), Latency::new(Duration::from_millis(10)));
    let bucket = Arc::new(Traced::new(Faulty::new(bucket, faults.clone()), trace.clone()));
    Mover::open(&dir.join("moves"), bucket, options(), Arc::new(Entropy::new(1))).unwrap()
}

async fn put(store: &dyn ObjectStore, name: &str, body: &str) -> ObjectRef {
    let body = Bytes::copy_from_slice(body.as_bytes());
    store.put(&key(name), body.into(), PutOptions::default()).await.unwrap()
}

async fn read(store: &dyn ObjectStore, name: &str) -> Result<String> {
    let object = store.get(&key(name), GetOptions::default()).await?;
    assert_eq!(object.meta.object.key, key(name));
    let bytes = object.body.try_collect::<Vec<_>>().await?.concat();
    Ok(String::from_utf8(bytes).unwrap())
}

/// Returns all keys with their bytes.
async fn contents(store: &dyn ObjectStore) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let request = ListRequest { limit: 3, ..ListRequest::default() };
    for entry in Pages::new(store, request).collect().await.unwrap() {
        let ListEntry::Object(ListedObject { object, size_bytes, .. }) = entry else {
            panic!("no delimiter was given")
        };
        let name = String::from_utf8(object.key.as_bytes().to_vec()).unwrap();
        let body = read(store, &name).await.unwrap();
        assert_eq!(body.len() as u64, size_bytes);
        assert_eq!(store.head(&object.key).await.unwrap().object.etag, object.etag);
        assert!(found.insert(name, body).is_none(), "nothing is listed twice");
    }
    found
}

fn expected(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, body)| ((*name).to_owned(), (*body).to_owned())).collect()
}

#[tokio::test]
async fn a_mover_without_moves_conforms() {
    let kept: Mutex<Vec<TempDir>> = Mutex::default();
    let fresh = || async {
        let dir = TempDir::new().unwrap();
        let bucket = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
        let mover = Mover::open(&dir.path().join("moves"), bucket, options(), Arc::new(Entropy::new(1)));
        kept.lock().unwrap().push(dir);
        Ok(mover.unwrap() as Arc<dyn ObjectStore>)
    };
    conformance::run(fresh, Capabilities::ALL).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_rename_sends_no_request_and_is_visible_at_once() {
    let world = World::new();
    let a = world.put("a", "one").await;
    world.put("d/x", "two").await;
    world.put("d/y/z", "three").await;
    let before = world.trace.counts();
    let b = world.rename(&a, "b", Precondition::Absent).await.unwrap();
    world.rename_tree("d/", "e/").await;
    assert_eq!(world.trace.counts().since(&before).total(), 0);
    let after = expected(&[("b", "one"), ("e/x", "two"), ("e/y/z", "three")]);
    assert_eq!(contents(&*world.mover).await, after);
    assert_eq!(b.etag, a.etag);
    assert!(matches!(read(&*world.mover, "a").await, Err(StoreError::NotFound(_))));
    assert!(matches!(read(&*world.mover, "d/x").await, Err(StoreError::NotFound(_))));
    world.mover.wait_until_all_moved().await;
    assert_eq!(contents(&world.memory).await, after);
    assert_eq!(contents(&*world.mover).await, after);
    assert_eq!(
        world.mover.head(&key("b")).await.unwrap().object.etag,
        a.etag,
        "the tag that was given stays"
    );
    assert_eq!(world.mover.moving().renames, 0);
}

#[tokio::test(start_paused = true)]
async fn an_object_renamed_twice_is_moved_once() {
    let world = World::new();
    let a = world.put("a", "one").await;
    let b = world.rename(&a, "b", Precondition::Absent).await.unwrap();
    let c = world.rename(&b, "c", Precondition::Absent).await.unwrap();
    assert_eq!(world.mover.moving().renames, 1);
    world.rename(&c, "a", Precondition::Absent).await.unwrap();
    assert_eq!(world.mover.moving().renames, 0, "it is where it was");
    assert_eq!(world.trace.counts().of(Operation::Copy), 0);
    world.faults.add(Rule::new(Fault::unavailable()).on(Operation::Copy).always());
    let b = world.rename(&a, "b", Precondition::Absent).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(world.mover.moving().failure.is_some());
    world.rename(&b, "c", Precondition::Absent).await.unwrap();
    assert_eq!(contents(&*world.mover).await, expected(&[("c", "one")]));
    world.faults.clear();
    world.mover.wait_until_all_moved().await;
    assert_eq!(world.mover.moving().failure, None);
    assert_eq!(contents(&world.memory).await, expected(&[("c", "one")]));
}

/// Regression: after a failed move the next attempt is half a minute away, and later renames waited for it.
#[tokio::test(start_paused = true)]
async fn moves_do_not_wait_for_failing_moves() {
    let world = World::new();
    let (stuck, next) = (world.put("stuck", "one").await, world.put("next", "two").await);
    world.faults.add(Rule::new(Fault::unavailable()).on(Operation::Copy).at(&key("stuck.moved")).always());
    world.rename(&stuck, "stuck.moved", Precondition::Absent).await.unwrap();
    tokio::time::sleep(Duration::from_secs(95)).await;
    let tries = world.trace.counts().of(Operation::Copy);
    // Waiting alone does not cause additional attempts.
    let arrived = tokio::time::timeout(Duration::from_secs(10), world.mover.wait_until_all_moved()).await;
    assert!(arrived.is_err() && world.trace.counts().of(Operation::Copy) == tries);
    world.rename(&next, "next.moved", Precondition::Absent).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(contents(&world.memory).await, expected(&[("stuck", "one"), ("next.moved", "two")]));
}

/// Regression: an object that a rename was to replace moved with its directory and arrived first, so that the renamed
/// object went to `lost+found` (world 4700 of both sides).
#[tokio::test(start_paused = true)]
async fn a_replaced_object_does_not_move_with_its_directory() {
    let world = World::new();
    let (old, other) = (world.put("d/f", "old").await, world.put("d/g", "other").await);
    let new = world.put("d/new", "new").await;
    world.rename(&new, "d/f", Precondition::Matches(old.etag)).await.unwrap();
    world.rename_tree("d/", "e/").await;
    world.rename(&ObjectRef { key: key("e/g"), ..other }, "d/g", Precondition::Absent).await.unwrap();
    let after = expected(&[("d/g", "other"), ("e/f", "new")]);
    assert_eq!(contents(&*world.mover).await, after);
    world.mover.wait_until_all_moved().await;
    assert_eq!(contents(&world.memory).await, after);
    assert_eq!(contents(&*world.mover).await, after);
}

/// After a rename over an object, readers see the new object at once, and the old object is removed.
#[tokio::test(start_paused = true)]
async fn a_rename_removes_the_replaced_object_but_not_another_clients() {
    let world = World::new();
    let (old, new) = (world.put("f", "old").await, world.put("f.tmp", "new").await);
    world.rename(&new, "f", Precondition::Matches(old.etag)).await.unwrap();
    assert_eq!(contents(&*world.mover).await, expected(&[("f", "new")]));
    world.mover.wait_until_all_moved().await;
    assert_eq!(contents(&world.memory).await, expected(&[("f", "new")]));
    let again = world.put("g.tmp", "ours").await;
    world.rename(&again, "g", Precondition::Absent).await.unwrap();
    put(&world.memory, "g", "theirs").await;
    world.mover.wait_until_all_moved().await;
    let both = expected(&[("f", "new"), ("g", "theirs"), ("lost/g", "ours")]);
    assert_eq!(contents(&world.memory).await, both);
}

/// Regression: if a path was too long for `lost+found`, the kept key was the object's own key, so that our object replaced
/// another client's object without a copy.
#[tokio::test(start_paused = true)]
async fn s450_a_conflicting_object_without_another_key_stays_at_its_old_key() {
    let (dir, memory) = (TempDir::new().unwrap(), MemoryStore::new(Arc::new(SystemClock)));
    let options = MoverOptions { lost: Arc::new(|key, _| key.clone()), ..options() };
    let bucket = Arc::new(memory.clone());
    let mover = Mover::open(&dir.path().join("moves"), bucket, options, Arc::new(Entropy::new(1))).unwrap();
    let ours = put(&*mover, "a", "ours").await;
    put(&memory, "b", "theirs").await;
    let renamed = |renamed: &ObjectRef| Ok::<_, StoreError>(renamed.clone());
    mover.rename_object(&ours, &key("b"), &Precondition::Absent, false, renamed).await.unwrap();
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(contents(&memory).await, expected(&[("a", "ours"), ("b", "theirs")]));
    assert_eq!(read(&*mover, "b").await.unwrap(), "ours");
    memory.delete(&key("b"), Precondition::None).await.unwrap();
    mover.wait_until_all_moved().await;
    assert_eq!(contents(&memory).await, expected(&[("b", "ours")]));
}

/// If another client replaces an object that was renamed but not moved yet, its new object keeps the old name.
#[tokio::test(start_paused = true)]
async fn another_clients_object_at_the_old_key_stays() {
    let world = World::new();
    let a = world.put("a", "ours").await;
    put(&world.memory, "a", "theirs").await;
    world.rename(&a, "b", Precondition::Absent).await.unwrap();
    world.mover.wait_until_all_moved().await;
    assert_eq!(contents(&*world.mover).await, expected(&[("a", "theirs")]));
}

/// Regression: if another client deleted the source of a rename over an object, the target was deleted too, and both
/// were lost.
#[tokio::test(start_paused = true)]
async fn s80_the_target_of_a_rename_stays_when_another_client_deletes_the_source() {
    let world = World::new();
    let (new, old) = (world.put("new", "new").await, world.put("f", "old").await);
    world.faults.set_down(true);
    world.rename(&new, "f", Precondition::Matches(old.etag)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    world.memory.delete(&key("new"), Precondition::None).await.unwrap();
    world.faults.set_down(false);
    world.mover.wait_until_all_moved().await;
    assert_eq!(contents(&*world.mover).await, expected(&[("f", "old")]));
    assert_eq!(contents(&world.memory).await, expected(&[("f", "old")]));
}

/// Regression: if etags are hashes of the bytes, a copy over an equal object has the etag of the replaced object. When the
/// response to the deletion of its source was lost, the copy was taken for the replaced object and deleted: both were lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_over_an_equal_object_is_not_taken_for_the_replaced_object() {
    let bucket = bucket_of_a_server().await;
    let (dir, faults) = (TempDir::new().unwrap(), Faults::new());
    let faulty = Arc::new(Faulty::new(bucket.clone(), faults.clone()));
    let mover = Mover::open(&dir.path().join("moves"), faulty, options(), Arc::new(Entropy::new(1))).unwrap();
    let (new, old) = (put(&*mover, "new", "same").await, put(&*mover, "f", "same").await);
    assert_eq!(new.etag, old.etag);
    faults.add(Rule::new(Fault::lost_reply()).on(Operation::Delete).at(&key("new")));
    let to = key("f");
    let at_target = Precondition::Matches(old.etag);
    mover.rename_object(&new, &to, &at_target, false, |_| Ok::<_, StoreError>(())).await.unwrap();
    mover.wait_until_idle().await;
    assert!(mover.moving().failure.is_some());
    assert_eq!(contents(&*mover).await, expected(&[("f", "same")]), "it is there all the time");
    mover.wait_until_all_moved().await;
    assert_eq!(contents(&bucket).await, expected(&[("f", "same")]));
}

/// A layer that delays the results of listings, so that they are stale.
#[derive(Debug, Clone)]
struct LateLists;

impl Layer for LateLists {
    async fn around<T: Send>(&self, call: &Call, work: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let done = work.await;
        if call.operation == Operation::List {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        done
    }
}

/// Regression: a listing that began before an object was moved and ended after that showed the object at its old key
/// (world 2383 of both sides).
#[tokio::test(start_paused = true)]
async fn an_object_moved_during_a_listing_is_not_listed_at_its_old_key() {
    let (memory, dir) = (MemoryStore::new(Arc::new(SystemClock)), TempDir::new().unwrap());
    let slow = Slow::new(memory.clone(), Latency::new(Duration::from_millis(10)));
    let bucket = Arc::new(Wrapped::new(slow, LateLists));
    let path = dir.path().join("moves");
    let mover = Mover::open(&path, bucket, options(), Arc::new(Entropy::new(1))).unwrap();
    let a = put(&*mover, "d/a", "one").await;
    put(&*mover, "d/s/x", "two").await;
    let list = async |prefix: &str, delimiter| {
        let prefix = Bytes::copy_from_slice(prefix.as_bytes());
        let request = ListRequest { prefix, delimiter, limit: 9, ..ListRequest::default() };
        mover.list(request).await.unwrap().entries
    };
    mover
        .rename_object(&a, &key("a"), &Precondition::Absent, false, |_| Ok::<_, StoreError>(()))
        .await
        .unwrap();
    assert_eq!(list("d/a", None).await, []);
    assert_eq!(mover.moving().renames, 0);
    let (new, old) = (put(&*mover, "f/new", "new").await, put(&*mover, "f/old", "old").await);
    // A listing that began before a rename returns one of the two objects (world 6120 of both sides).
    mover.rename_tree(b"g/", b"h/", &Precondition::Absent, false, || Ok::<_, StoreError>(())).await.unwrap();
    let (at_old, to) = (Precondition::Matches(old.etag), key("f/old"));
    let renamed = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        mover.rename_object(&new, &to, &at_old, false, |_| Ok::<_, StoreError>(())).await.unwrap();
    };
    let (found, ()) = futures_util::join!(list("f/old", None), renamed);
    assert_eq!(found.len(), 1);
    mover.wait_until_all_moved().await;
    mover.delete(&to, Precondition::None).await.unwrap();
    mover.rename_tree(b"d/", b"e/", &Precondition::Absent, false, || Ok::<_, StoreError>(())).await.unwrap();
    tokio::time::sleep(Duration::from_millis(450)).await;
    assert_eq!(list("d", Some(b'/')).await, []);
    mover.wait_until_all_moved().await;
    assert_eq!(contents(&memory).await, expected(&[("a", "one"), ("e/s/x", "two")]));
}

#[tokio::test(start_paused = true)]
async fn a_new_object_waits_for_the_one_that_leaves_its_place() {
    let world = World::new();
    let log = world.put("log", "first").await;
    world.put("d/x", "one").await;
    world.rename(&log, "log.1", Precondition::Absent).await.unwrap();
    world.put("log", "second").await;
    world.rename_tree("d/", "d.old/").await;
    world.put("d/x", "two").await;
    let all = expected(&[("log", "second"), ("log.1", "first"), ("d/x", "two"), ("d.old/x", "one")]);
    assert_eq!(contents(&*world.mover).await, all);
    world.mover.wait_until_all_moved().await;
    assert_eq!(contents(&world.memory).await, all);
}

/// Regression: a client that kept storing objects below the old name of a directory kept its move from completing.
#[tokio::test(start_paused = true)]
async fn objects_stored_at_the_old_key_do_not_delay_a_move() {
    let world = World::new();
    world.put("d/x", "ours").await;
    world.rename_tree("d/", "e/").await;
    let memory = world.memory.clone();
    let theirs = tokio::spawn(async move {
        for n in 0.. {
            put(&memory, &format!("d/{n}"), "theirs").await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    tokio::time::timeout(Duration::from_secs(60), world.mover.wait_until_all_moved()).await.unwrap();
    theirs.abort();
    assert_eq!(read(&*world.mover, "e/x").await.unwrap(), "ours");
    assert!(contents(&*world.mover).await.keys().any(|name| name.starts_with("d/")));
}

#[tokio::test]
async fn a_refused_rename_has_no_effect() {
    let world = World::new();
    let a = world.put("a", "one").await;
    let refused = || Err::<(), _>(StoreError::Denied("no".into()));
    let outcome = world.mover.rename_object(&a, &key("b"), &Precondition::Absent, true, |_| refused()).await;
    assert!(matches!(outcome, Err(StoreError::Denied(_))));
    assert!(world.mover.rename_tree(b"d/", b"e/", &Precondition::Absent, false, refused).await.is_err());
    world.mover.wait_until_all_moved().await;
    assert_eq!(contents(&*world.mover).await, expected(&[("a", "one")]));
    let mut world = world;
    world.reopen();
    assert_eq!(world.mover.moving().renames, 0);
}

/// Regression: over a store that copies at once, a refused rename deleted its copy, which had replaced another object. So neither object was
/// left (worlds of both sides 40012007 and 40015241).
#[derive(Debug)]
struct Uncertain;

impl From<StoreError> for Uncertain {
    fn from(error: StoreError) -> Self {
        panic!("{error}")
    }
}

impl NamingError for Uncertain {
    fn is_uncertain(&self) -> bool {
        true
    }
}

/// Regression: after an uncertain error of naming, the object was not moved, although its new name may have been stored
/// (world of files 3207099).
#[tokio::test]
async fn an_object_whose_new_name_may_be_stored_is_moved() {
    let mut world = World::new();
    let a = world.put("a", "one").await;
    world.put("d/x", "two").await;
    let in_doubt = || Err::<(), _>(Uncertain);
    world.mover.rename_object(&a, &key("b"), &Precondition::Absent, false, |_| in_doubt()).await.unwrap_err();
    world.mover.rename_tree(b"d/", b"e/", &Precondition::Absent, false, in_doubt).await.unwrap_err();
    world.reopen();
    world.mover.wait_until_all_moved().await;
    assert_eq!(contents(&world.memory).await, expected(&[("b", "one"), ("e/x", "two")]));
}

#[tokio::test(start_paused = true)]
async fn moves_wait_until_the_keeper_is_safe() {
    let world = World::new();
    let is_safe = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let may_move = is_safe.clone();
    world.mover.set_observer(MoveObserver {
        make_safe: Box::new(move || {
            let outcome = match may_move.load(std::sync::atomic::Ordering::SeqCst) {
                true => Ok(()),
                false => Err(StoreError::Unavailable("not yet".into())),
            };
            Box::pin(std::future::ready(outcome))
        }),
        ..observer()
    });
    let a = world.put("a", "one").await;
    world.rename(&a, "b", Precondition::Absent).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(contents(&world.memory).await, expected(&[("a", "one")]));
    assert_eq!(contents(&*world.mover).await, expected(&[("b", "one")]));
    is_safe.store(true, std::sync::atomic::Ordering::SeqCst);
    world.mover.wait_until_all_moved().await;
    assert_eq!(contents(&world.memory).await, expected(&[("b", "one")]));
}

/// Returns an observer that knows no object, ignores notifications and allows moves at any time.
fn observer() -> MoveObserver {
    MoveObserver {
        make_safe: Box::new(|| Box::pin(std::future::ready(Ok(())))),
        knows: Box::new(|_, _| false),
        has_arrived: Box::new(|_, _, _| true),
        has_left: Box::new(|_| {}),
        is_void: Box::new(|_, _| {}),
        conflicts: callbacks_keeping_ours(Arc::default()),
    }
}

/// Returns callbacks that keep our object at the key, and record the outcomes.
fn callbacks_keeping_ours(noted: Arc<Mutex<Vec<Outcome>>>) -> ConflictCallbacks {
    ConflictCallbacks {
        decide: Arc::new(|conflict| Resolution::TheirsTo(key(format!("kept/{}", conflict.key)))),
        record: Arc::new(move |outcome| {
            noted.lock().unwrap().push(outcome);
            Box::pin(std::future::ready(Ok(())))
        }),
        resolved: Arc::new(|_| {}),
    }
}

/// Regression: while the bucket refused deletions, each attempt made another copy of the conflicting object.
#[tokio::test(start_paused = true)]
async fn a_conflict_is_resolved_once() {
    let world = World::new();
    let noted = Arc::<Mutex<Vec<Outcome>>>::default();
    world.mover.set_observer(MoveObserver { conflicts: callbacks_keeping_ours(noted.clone()), ..observer() });
    let a = world.put("a", "ours").await;
    world.put("d/x", "ours too").await;
    world.faults.set_down(true);
    world.rename(&a, "b", Precondition::Absent).await.unwrap();
    world.rename_tree("d/", "e/").await;
    put(&world.memory, "b", "theirs").await;
    put(&world.memory, "e/x", "theirs too").await;
    world.faults.set_down(false);
    world.faults.add(Rule::new(Fault::unavailable()).on(Operation::Delete).always());
    tokio::time::sleep(Duration::from_secs(600)).await;
    world.faults.clear();
    world.mover.wait_until_all_moved().await;
    let all = [("b", "ours"), ("e/x", "ours too"), ("kept/b", "theirs"), ("kept/e/x", "theirs too")];
    assert_eq!(contents(&world.memory).await, expected(&all));
    let noted: Vec<_> = noted.lock().unwrap().iter().map(|noted| noted.ours.is_some()).collect();
    assert_eq!(noted, [false, true, false, true], "before theirs goes, and when all is done");
}

/// Names, some of which are below others, and which sort before and after `/`.
const NAMES: [&str; 14] =
    ["a", "a-", "a/x", "a/y", "a/s/x", "a/s/z", "b", "b/x", "b/s/x", "b/s/t/u", "c", "c/x", "c/y/z", "d/s/x"];
const TREES: [&str; 8] = ["a/", "a/s/", "b/", "b/s/", "c/", "c/y/", "d/", "e/"];

/// The expected contents of a bucket with instant renames.
#[derive(Default, Clone)]
struct Model(BTreeMap<String, (String, ETag)>);

impl Model {
    fn bodies(&self) -> BTreeMap<String, String> {
        self.0.iter().map(|(name, (body, _))| (name.clone(), body.clone())).collect()
    }

    fn has_below(&self, prefix: &str) -> bool {
        self.0.keys().any(|name| name.starts_with(prefix))
    }
}

async fn run_random_changes(seed: u64) {
    let entropy = Entropy::new(seed);
    let below = |bound: usize| entropy.below(bound as u64) as usize;
    let (mut world, mut model) = (World::new(), Model::default());
    for step in 0..60 {
        let place = format!("world {seed}, step {step}");
        let (name, other) = (NAMES[below(NAMES.len())], NAMES[below(NAMES.len())]);
        match below(12) {
            0..=3 => {
                let body = format!("{seed}.{step}");
                let stored = world.put(name, &body).await;
                model.0.insert(name.to_owned(), (body, stored.etag));
            }
            4 => {
                world.mover.delete(&key(name), Precondition::None).await.unwrap();
                model.0.remove(name);
            }
            5..=7 if name != other => {
                let Some((body, etag)) = model.0.remove(name) else { continue };
                let from = ObjectRef::new(key(name), etag.clone());
                let at_target = match model.0.get(other) {
                    Some((_, there)) => Precondition::Matches(there.clone()),
                    None => Precondition::Absent,
                };
                let renamed = world.rename(&from, other, at_target).await.unwrap();
                assert_eq!(renamed.etag, etag, "{place}");
                model.0.insert(other.to_owned(), (body, etag));
            }
            8..=9 => {
                let (from, to) = (TREES[below(TREES.len())], TREES[below(TREES.len())]);
                if to.starts_with(from) || from.starts_with(to) || model.has_below(to) {
                    continue;
                }
                world.rename_tree(from, to).await;
                let all = std::mem::take(&mut model.0).into_iter();
                let moved = |name: String| match name.strip_prefix(from) {
                    Some(rest) => format!("{to}{rest}"),
                    None => name,
                };
                model.0 = all.map(|(name, object)| (moved(name), object)).collect();
            }
            10 if name != other => {
                let Some((body, etag)) = model.0.get(name).cloned() else { continue };
                let from = ObjectRef::new(key(name), etag);
                let copy = world.mover.copy(&from, &key(other), CopyOptions::default()).await.unwrap();
                model.0.insert(other.to_owned(), (body, copy.etag));
            }
            _ => {
                world.reopen();
                for (name, (body, etag)) in &mut model.0 {
                    let found = world.mover.head(&key(name)).await;
                    let found = found.unwrap_or_else(|error| panic!("{place}: '{name}' ({body}): {error}"));
                    // An etag known to the mover is valid only for the lifetime of the process.
                    *etag = found.object.etag;
                }
            }
        }
        if below(3) == 0 {
            tokio::time::sleep(Duration::from_millis(entropy.below(60))).await;
        }
        assert_eq!(contents(&*world.mover).await, model.bodies(), "{place}");
        for (name, (_, etag)) in &model.0 {
            assert_eq!(world.mover.head(&key(name)).await.unwrap().object.etag, *etag, "{place}: {name}");
        }
        let request = ListRequest { delimiter: Some(b'/'), limit: 1 + below(4), ..ListRequest::default() };
        let folded = Pages::new(&*world.mover, request).collect().await.unwrap();
        let folded: Vec<_> =
            folded.iter().map(|entry| String::from_utf8_lossy(entry.text()).into_owned()).collect();
        let fold = |name: &String| match name.split_once('/') {
            Some((first, _)) => format!("{first}/"),
            None => name.clone(),
        };
        let expected: std::collections::BTreeSet<_> = model.0.keys().map(fold).collect();
        assert_eq!(folded, expected.into_iter().collect::<Vec<_>>(), "{place}");
    }
    world.mover.wait_until_all_moved().await;
    assert_eq!(contents(&world.memory).await, model.bodies(), "world {seed}, at its end");
}

#[test]
fn random_changes_with_crashes_end_like_instant_renames() {
    for seed in 0..100 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(run_random_changes(seed));
    }
}

#[tokio::test(start_paused = true)]
async fn headers_and_tags_move_along() {
    let world = World::new();
    let attributes = Attributes { content_type: Some("text/plain".into()), ..Attributes::default() };
    let tags = BTreeMap::from([("k".to_owned(), "v".to_owned())]);
    let options = PutOptions { attributes: attributes.clone(), tags: tags.clone(), ..PutOptions::default() };
    let a = world.mover.put(&key("a"), Bytes::from_static(b"x").into(), options).await.unwrap();
    world.rename(&a, "b", Precondition::Absent).await.unwrap();
    for _ in 0..2 {
        assert_eq!(world.mover.head(&key("b")).await.unwrap().attributes, attributes);
        assert_eq!(world.mover.tags(&key("b")).await.unwrap(), tags);
        world.mover.wait_until_all_moved().await;
    }
    assert_eq!(world.memory.tags(&key("b")).await.unwrap(), tags);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_an_arrival_returns_when_the_object_has_moved() {
    let world = World::new();
    let a = world.put("a", "one").await;
    world.put("d/x", "two").await;
    world.put("d/y", "three").await;
    world.rename(&a, "b", Precondition::Absent).await.unwrap();
    world.mover.arrive(&key("b")).await.unwrap();
    assert_eq!(contents(&world.memory).await, expected(&[("b", "one"), ("d/x", "two"), ("d/y", "three")]));
    world.rename_tree("d/", "e/").await;
    world.mover.arrive_tree(b"e/").await.unwrap();
    assert_eq!(contents(&world.memory).await, expected(&[("b", "one"), ("e/x", "two"), ("e/y", "three")]));
    world.faults.set_down(true);
    let b = world.memory.head(&key("b")).await.unwrap().object;
    world.rename(&b, "c", Precondition::Absent).await.unwrap();
    assert!(matches!(world.mover.arrive(&key("c")).await, Err(StoreError::Unavailable(_))));
    world.faults.set_down(false);
    world.mover.arrive(&key("c")).await.unwrap();
    assert_eq!(read(&world.memory, "c").await.unwrap(), "one");
}

/// A caller that waits for a rename can retry it with the present object, so a rename without effect is not a conflict.
#[tokio::test(start_paused = true)]
async fn waiting_for_a_rename_without_effect_reports_no_conflict() {
    for is_shared in [false, true] {
        let memory = MemoryStore::new(Arc::new(SystemClock));
        let dir = TempDir::new().unwrap();
        let options = MoverOptions { is_shared, ..options() };
        let bucket = Arc::new(memory.clone());
        let mover =
            Mover::open(&dir.path().join("moves"), bucket, options, Arc::new(Entropy::new(1))).unwrap();
        let noted = Arc::default();
        mover.set_observer(MoveObserver {
            conflicts: callbacks_keeping_ours(Arc::clone(&noted)),
            ..observer()
        });
        let from = put(&*mover, "from", "ours").await;
        mover
            .rename_object(&from, &key("to"), &Precondition::Absent, false, |_| Ok::<_, StoreError>(()))
            .await
            .unwrap();
        put(&memory, "from", "theirs").await;
        mover.arrive(&key("to")).await.unwrap();
        assert_eq!(contents(&memory).await, expected(&[("from", "theirs")]));
        assert_eq!(noted.lock().unwrap().is_empty(), is_shared);
    }
}
