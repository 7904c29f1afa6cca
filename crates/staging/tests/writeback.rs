//! Tests of the write-back log in front of a bucket.

mod damage_and_conflicts;
mod early_uploads;
mod etags;
mod random_changes;
mod readers;
mod unfinished_renames;

use bytes::Bytes;
use futures_util::TryStreamExt;
use staging::writeback::{Backlog, Writeback, WritebackOptions};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;
use store::conformance::{self, Capabilities};
use store::memory::{MemoryLimits, MemoryStore};
use store::wrap::{Call, Fault, Faults, Faulty, Layer, Operation, Rule, Trace, Traced, Wrapped};
use store::{
    Attributes, CopyOptions, Entropy, GetOptions, ListEntry, ListRequest, ListedObject, ObjectKey, ObjectRef,
    ObjectStore, Pages, Payload, Precondition, PutOptions, Result, StoreError, SystemClock, Tags,
};
use tempfile::TempDir;
use tokio::time::Instant;

const LATER: Duration = Duration::from_secs(3600);

fn options(delay: Duration) -> WritebackOptions {
    WritebackOptions {
        limit_bytes: 1 << 30,
        limit_changes: 1 << 20,
        patience: LATER,
        delay,
        checks_at_once: true,
        shared: Arc::new(|key| key.as_bytes().starts_with(b"shared/")),
        keys_are_used_once: false,
        lost: Arc::new(|lost, _| key([b"lost/", lost.as_bytes()].concat())),
        early_bytes: 1 << 40,
        memory_bytes: 64 << 20,
    }
}

fn key(text: impl AsRef<[u8]>) -> ObjectKey {
    ObjectKey::try_from(text.as_ref()).unwrap()
}

/// A bucket with fault injection, with a log in front of it.
struct World {
    memory: MemoryStore,
    faults: Faults,
    trace: Trace,
    dir: TempDir,
    options: WritebackOptions,
    writeback: Arc<Writeback>,
}

impl World {
    fn new(options: WritebackOptions) -> Self {
        let limits = MemoryLimits { part_bytes_min: 1, ..MemoryLimits::default() };
        let memory = MemoryStore::with_limits(Arc::new(SystemClock), limits);
        let (faults, trace) = (Faults::new(), Trace::new());
        let dir = TempDir::new().unwrap();
        let writeback = open(dir.path(), &memory, &faults, &trace, &options);
        Self { memory, faults, trace, dir, options, writeback }
    }

    /// Simulates a crash with requests in flight, and opens a new store with a copy of the log.
    fn reopen(&mut self) {
        self.faults.set_down(true);
        self.faults = Faults::new();
        let dir = TempDir::new().unwrap();
        for entry in std::fs::read_dir(self.dir.path()).unwrap() {
            let path = entry.unwrap().path();
            // A segment that is no longer needed may be removed meanwhile.
            std::fs::copy(&path, dir.path().join(path.file_name().unwrap())).ok();
        }
        self.writeback = open(dir.path(), &self.memory, &self.faults, &self.trace, &self.options);
        self.dir = dir;
    }

    async fn put(&self, name: &str, body: &'static str, precondition: Precondition) -> Result<ObjectRef> {
        let options = PutOptions { precondition, ..PutOptions::default() };
        self.writeback.put(&key(name), body.into(), options).await
    }
}

fn open(
    dir: &Path,
    memory: &MemoryStore,
    faults: &Faults,
    trace: &Trace,
    options: &WritebackOptions,
) -> Arc<Writeback> {
    let bucket = Arc::new(Traced::new(Faulty::new(memory.clone(), faults.clone()), trace.clone()));
    let entropy = Arc::new(Entropy::new(dir.as_os_str().len() as u64));
    Writeback::open(dir, bucket, options.clone(), Arc::new(SystemClock), entropy).unwrap()
}

async fn read(store: &dyn ObjectStore, name: &str) -> Result<Bytes> {
    let object = store.get(&key(name), GetOptions::default()).await?;
    Ok(object.body.try_collect::<Vec<_>>().await?.concat().into())
}

/// Returns all keys with their bytes.
async fn contents(store: &dyn ObjectStore) -> BTreeMap<String, Bytes> {
    let mut found = BTreeMap::new();
    let mut pages = Pages::new(store, ListRequest { limit: 3, ..ListRequest::default() });
    while let Some(entries) = pages.next().await.unwrap() {
        for entry in entries {
            let ListEntry::Object(ListedObject { object, size_bytes, .. }) = entry else {
                panic!("no delimiter was given")
            };
            let name = String::from_utf8(object.key.as_bytes().to_vec()).unwrap();
            let body = read(store, &name).await.unwrap();
            assert_eq!(body.len() as u64, size_bytes);
            found.insert(name, body);
        }
    }
    found
}

async fn conforms(delay: Duration) {
    let kept: Mutex<Vec<TempDir>> = Mutex::default();
    let fresh = || async {
        let dir = TempDir::new().unwrap();
        let bucket = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
        let entropy = Arc::new(Entropy::new(9));
        let writeback = Writeback::open(dir.path(), bucket, options(delay), Arc::new(SystemClock), entropy);
        kept.lock().unwrap().push(dir);
        Ok(writeback.unwrap() as Arc<dyn ObjectStore>)
    };
    conformance::run(fresh, Capabilities::ALL).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn writeback_conforms_while_changes_wait() {
    conforms(LATER).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writeback_conforms_while_changes_are_uploaded() {
    conforms(Duration::ZERO).await;
}

#[tokio::test]
async fn s152_acknowledged_changes_survive_a_crash_and_are_uploaded() {
    let mut world = World::new(options(Duration::ZERO));
    world.faults.set_down(true);
    world.put("a", "one", Precondition::None).await.unwrap();
    world.put("b", "two", Precondition::None).await.unwrap();
    world.writeback.delete(&key("a"), Precondition::None).await.unwrap();
    assert_eq!(read(&*world.writeback, "b").await.unwrap(), "two");
    world.reopen();
    assert_eq!(contents(&*world.writeback).await, BTreeMap::from([("b".to_owned(), "two".into())]));
    world.writeback.drained().await;
    assert_eq!(world.writeback.backlog(), Backlog::default());
    assert_eq!(contents(&world.memory).await, BTreeMap::from([("b".to_owned(), "two".into())]));
    world.reopen();
    assert_eq!(world.writeback.backlog(), Backlog::default(), "an uploaded change is not uploaded again");
}

#[tokio::test]
async fn s155_only_the_newest_change_of_a_key_is_uploaded() {
    let world = World::new(WritebackOptions { checks_at_once: false, ..options(LATER) });
    let mut etag = world.put("kept", "0", Precondition::Absent).await.unwrap().etag;
    for body in ["1", "2", "3"] {
        etag = world.put("kept", body, Precondition::Matches(etag)).await.unwrap().etag;
    }
    world.put("gone", "soon", Precondition::Absent).await.unwrap();
    world.writeback.delete(&key("gone"), Precondition::None).await.unwrap();
    world.writeback.drained().await;
    assert_eq!(world.trace.counts().to_string(), "Put 1");
    assert_eq!(contents(&world.memory).await, BTreeMap::from([("kept".to_owned(), "3".into())]));
    let options = GetOptions { if_match: Some(etag), ..GetOptions::default() };
    world.writeback.get(&key("kept"), options).await.expect("the tag that was given still names it");
}

#[tokio::test]
async fn s153_the_object_that_loses_a_conflict_is_kept_in_lost_and_found() {
    let world = World::new(options(LATER));
    world.put("file", "ours", Precondition::Absent).await.unwrap();
    world.memory.put(&key("file"), "theirs".into(), PutOptions::default()).await.unwrap();
    world.writeback.drained().await;
    let expected = [("file", "theirs"), ("lost/file", "ours")];
    let expected = expected.map(|(name, body)| (name.to_owned(), Bytes::from(body)));
    assert_eq!(contents(&*world.writeback).await, BTreeMap::from(expected));
}

/// Regression: after a lost conflict, the etag of our bytes referred to the other client's bytes. A reader of our object got
/// a mixture of both, and a mount, which saw the same etag, kept showing our length.
#[tokio::test]
async fn s153_the_etag_of_a_losing_object_refers_to_no_other_bytes() {
    let world = World::new(options(LATER));
    let ours = world.put("file", "ours", Precondition::Absent).await.unwrap();
    world.memory.put(&key("file"), "theirs".into(), PutOptions::default()).await.unwrap();
    world.writeback.drained().await;
    let theirs = world.memory.head(&key("file")).await.unwrap().object.etag;
    assert_eq!(world.writeback.head(&key("file")).await.unwrap().object.etag, theirs);
    let options = GetOptions { if_match: Some(ours.etag), ..GetOptions::default() };
    let read = world.writeback.get(&key("file"), options).await;
    assert!(matches!(read, Err(StoreError::PreconditionFailed(_))), "{:?}", read.err());
}

/// Regression: a PUT or DELETE without a precondition, which may wait for hours in an outage, overwrote newer changes of
/// another client.
#[tokio::test]
async fn s153_unconditional_changes_do_not_overwrite_newer_changes_of_another_client() {
    for was_there in [false, true] {
        let world = World::new(options(LATER));
        for name in ["shared/put", "shared/deleted", "shared/copied"] {
            if was_there {
                world.memory.put(&key(name), "old".into(), PutOptions::default()).await.unwrap();
            }
        }
        let source = world.put("source", "ours", Precondition::None).await.unwrap();
        world.put("shared/put", "first", Precondition::None).await.unwrap();
        world.put("shared/put", "ours", Precondition::None).await.unwrap();
        world.writeback.copy(&source, &key("shared/copied"), CopyOptions::default()).await.unwrap();
        world.writeback.delete(&key("shared/deleted"), Precondition::None).await.unwrap();
        for name in ["shared/put", "shared/deleted", "shared/copied"] {
            world.memory.put(&key(name), "theirs".into(), PutOptions::default()).await.unwrap();
        }
        world.writeback.drained().await;
        let expected = [
            ("lost/shared/copied", "ours"),
            ("lost/shared/put", "ours"),
            ("shared/copied", "theirs"),
            ("shared/deleted", "theirs"),
            ("shared/put", "theirs"),
            ("source", "ours"),
        ];
        let expected = expected.map(|(name, body)| (name.to_owned(), Bytes::from(body)));
        assert_eq!(contents(&world.memory).await, BTreeMap::from(expected));
    }
}

#[tokio::test]
async fn s153_an_object_stored_and_deleted_by_another_client_is_no_conflict() {
    let world = World::new(options(LATER));
    world.put("shared/new", "ours", Precondition::Absent).await.unwrap();
    world.memory.put(&key("shared/new"), "theirs".into(), PutOptions::default()).await.unwrap();
    world.memory.delete(&key("shared/new"), Precondition::None).await.unwrap();
    world.writeback.drained().await;
    assert_eq!(contents(&world.memory).await, BTreeMap::from([("shared/new".to_owned(), "ours".into())]));
}

/// Regression: a directory that two clients made was kept in `lost+found` as an empty file (world 1968 of both sides).
#[tokio::test]
async fn s153_directory_markers_are_not_kept_in_lost_and_found() {
    let world = World::new(options(LATER));
    world.put("dir/", "", Precondition::Absent).await.unwrap();
    world.put("empty", "", Precondition::Absent).await.unwrap();
    let attributes = Attributes { user: [("by".into(), "them".into())].into(), ..Attributes::default() };
    for name in ["dir/", "empty"] {
        let options = PutOptions { attributes: attributes.clone(), ..PutOptions::default() };
        world.memory.put(&key(name), "".into(), options).await.unwrap();
    }
    world.writeback.drained().await;
    let found = contents(&world.memory).await;
    assert_eq!(found.keys().collect::<Vec<_>>(), ["dir/", "empty", "lost/empty"]);
}

/// Regression: if another client removed the source of a waiting copy, the copy was retried for ever, so that the log never
/// became empty and unmounting always reported changes left.
#[tokio::test]
async fn s153_a_copy_ends_although_another_client_removed_its_source() {
    let world = World::new(options(LATER));
    let body: Vec<u8> = (0..9 << 20).map(|at| (at >> 16) as u8 | 1).collect();
    world.memory.put(&key("shared/source"), body.clone().into(), PutOptions::default()).await.unwrap();
    let source = world.writeback.head(&key("shared/source")).await.unwrap().object;
    world.writeback.copy(&source, &key("shared/copy"), CopyOptions::default()).await.unwrap();
    let upload =
        world.writeback.multipart(&key("shared/source"), Attributes::default(), Tags::new()).await.unwrap();
    upload.copy_part(1, &source, 0..(9 << 20) - 4).await.unwrap();
    upload.put_part(2, "ours".into()).await.unwrap();
    upload.complete(Precondition::Matches(source.etag)).await.unwrap();
    world.memory.put(&key("shared/source"), "theirs".into(), PutOptions::default()).await.unwrap();
    tokio::time::timeout(Duration::from_secs(60), world.writeback.drained()).await.unwrap();
    let mut ours = vec![0; (9 << 20) - 4];
    ours.extend_from_slice(b"ours");
    let found = contents(&world.memory).await;
    assert_eq!(found.keys().collect::<Vec<_>>(), ["lost/shared/source", "shared/source"]);
    assert!(found["lost/shared/source"] == ours && found["shared/source"] == "theirs");
}

#[tokio::test]
async fn changes_of_shared_keys_replace_existing_objects() {
    let world = World::new(options(LATER));
    for name in ["shared/put", "shared/deleted"] {
        world.memory.put(&key(name), "old".into(), PutOptions::default()).await.unwrap();
        world.put(name, "new", Precondition::None).await.unwrap();
    }
    world.writeback.delete(&key("shared/deleted"), Precondition::None).await.unwrap();
    world.writeback.delete(&key("shared/absent"), Precondition::None).await.unwrap();
    world.writeback.drained().await;
    assert_eq!(contents(&world.memory).await, BTreeMap::from([("shared/put".to_owned(), "new".into())]));
}

/// Regression: the second deletion found no waiting put, and cancelled the first deletion as unnecessary.
#[tokio::test]
async fn a_second_deletion_does_not_cancel_the_first() {
    let world = World::new(WritebackOptions { keys_are_used_once: true, ..options(LATER) });
    world.memory.put(&key("a"), "old".into(), PutOptions::default()).await.unwrap();
    for _ in 0..2 {
        world.writeback.delete(&key("a"), Precondition::None).await.unwrap();
    }
    world.writeback.drained().await;
    assert_eq!(contents(&world.memory).await, BTreeMap::new());
}

#[tokio::test]
async fn a_lost_response_is_no_conflict() {
    let world = World::new(options(Duration::ZERO));
    world.faults.add(Rule::new(Fault::lost_reply()).times(1));
    world.put("file", "ours", Precondition::None).await.unwrap();
    world.writeback.drained().await;
    assert_eq!(contents(&world.memory).await, BTreeMap::from([("file".to_owned(), "ours".into())]));
}

#[tokio::test]
async fn s119_a_full_log_makes_writers_wait_for_an_upload() {
    let world = World::new(WritebackOptions { limit_bytes: 1 << 20, ..options(Duration::ZERO) });
    world.faults.set_down(true);
    for name in ["a", "b"] {
        let body = Payload::from(vec![1; 600 << 10]);
        let name_key = key(name);
        let put = world.writeback.put(&name_key, body, PutOptions::default());
        if name == "a" {
            put.await.unwrap();
            continue;
        }
        let mut put = std::pin::pin!(put);
        let waits = tokio::time::timeout(Duration::from_millis(300), &mut put).await;
        assert!(waits.is_err(), "the log is full");
        world.faults.set_down(false);
        put.await.unwrap();
    }
    world.writeback.drained().await;
    assert_eq!(contents(&world.memory).await.len(), 2);
}

#[tokio::test]
async fn s119_many_small_changes_wait_as_well() {
    let world = World::new(WritebackOptions { limit_changes: 3, ..options(Duration::ZERO) });
    world.faults.set_down(true);
    for name in ["a", "b", "c"] {
        world.put(name, "x", Precondition::None).await.unwrap();
    }
    let mut put = std::pin::pin!(world.put("d", "x", Precondition::None));
    assert!(tokio::time::timeout(Duration::from_millis(200), &mut put).await.is_err(), "the log is full");
    world.faults.set_down(false);
    put.await.unwrap();
}

#[tokio::test]
async fn s119_a_full_log_without_uploads_is_an_error_after_a_timeout() {
    let patience = Duration::from_millis(100);
    let world = World::new(WritebackOptions { limit_changes: 1, patience, ..options(Duration::ZERO) });
    world.faults.set_down(true);
    world.put("a", "x", Precondition::None).await.unwrap();
    let full = world.put("b", "x", Precondition::None).await.unwrap_err();
    assert!(
        matches!(&full, StoreError::Full(text) if text.contains("no change reaches the bucket")),
        "{full}"
    );
    world.faults.set_down(false);
    world.writeback.drained().await;
    world.put("b", "x", Precondition::None).await.unwrap();
}

/// Regression: a change was uploaded before its record was synced. After a power failure only an older record of the key
/// was left, and the bucket's newer object was taken for another client's (world of files 300).
#[tokio::test]
async fn s154_changes_are_uploaded_after_their_records_are_synced() {
    let world = World::new(options(Duration::ZERO));
    world.put("a", "one", Precondition::None).await.unwrap();
    let end = std::fs::metadata(world.dir.path().join(format!("{:016x}.log", 1))).unwrap().len();
    world.writeback.drained().await;
    assert!(world.writeback.synced().iter().any(|(_, synced)| *synced >= end));
}

/// A layer that records how much of the log was synced when an object was stored in the bucket.
#[derive(Debug, Clone, Default)]
struct SyncedAtPut {
    writeback: Arc<OnceLock<Weak<Writeback>>>,
    bytes: Arc<Mutex<Vec<u64>>>,
}

impl Layer for SyncedAtPut {
    async fn around<T: Send>(&self, call: &Call, work: impl Future<Output = Result<T>> + Send) -> Result<T> {
        if let (Operation::Put, Some(writeback)) =
            (call.operation, self.writeback.get().and_then(Weak::upgrade))
        {
            let synced = writeback.synced();
            self.bytes.lock().unwrap().push(synced.iter().map(|(_, bytes)| bytes).sum());
        }
        work.await
    }
}

/// Regression: a waiting copy was deleted, and its source overwritten. The bucket got the new source before the log was
/// synced. After a power failure the copy waited again, but its source was gone (world of files 31190).
#[tokio::test]
async fn s154_an_object_is_replaced_after_records_that_release_it_are_synced() {
    let memory = MemoryStore::new(Arc::new(SystemClock));
    memory.put(&key("source"), "old".into(), PutOptions::default()).await.unwrap();
    let (dir, seen) = (TempDir::new().unwrap(), SyncedAtPut::default());
    let bucket = Arc::new(Wrapped::new(memory.clone(), seen.clone()));
    let (clock, entropy) = (Arc::new(SystemClock), Arc::new(Entropy::new(1)));
    let writeback = Writeback::open(dir.path(), bucket, options(LATER), clock, entropy).unwrap();
    seen.writeback.set(Arc::downgrade(&writeback)).unwrap();
    let source = writeback.head(&key("source")).await.unwrap().object;
    writeback.copy(&source, &key("copy"), CopyOptions::default()).await.unwrap();
    writeback.put(&key("source"), "new".into(), PutOptions::default()).await.unwrap();
    writeback.sync().await.unwrap();
    writeback.delete(&key("copy"), Precondition::None).await.unwrap();
    let end = std::fs::metadata(dir.path().join(format!("{:016x}.log", 1))).unwrap().len();
    writeback.drained().await;
    assert_eq!(read(&memory, "source").await.unwrap(), "new");
    assert!(seen.bytes.lock().unwrap().iter().all(|synced| *synced >= end));
}

/// Regression: new headers are stored by a copy of an object onto itself. The copy was made, but the process crashed before
/// it recorded that. The source of the waiting change was gone, so that it could neither be read nor copied (world of files
/// 7312).
#[tokio::test]
async fn s152_a_change_that_replaced_its_own_source_can_be_read() {
    let mut world = World::new(options(LATER));
    world.memory.put(&key("a"), "body".into(), PutOptions::default()).await.unwrap();
    let object = world.writeback.head(&key("a")).await.unwrap().object;
    let attributes = Attributes { user: [("k".into(), "v".into())].into(), ..Attributes::default() };
    let options = CopyOptions { attributes: Some(attributes), ..CopyOptions::default() };
    world.writeback.copy(&object, &key("a"), options.clone()).await.unwrap();
    world.memory.copy(&object, &key("a"), options).await.unwrap();
    world.reopen();
    world.faults.set_down(false);
    let waiting = world.writeback.head(&key("a")).await.unwrap().object;
    world.writeback.copy(&waiting, &key("b"), CopyOptions::default()).await.unwrap();
    assert_eq!(read(&*world.writeback, "a").await.unwrap(), "body");
    world.writeback.drained().await;
    assert_eq!(read(&world.memory, "b").await.unwrap(), "body");
}

/// Regression: each failed attempt restarted the timeout of a minute, so that writers hung as long as the bucket was
/// unreachable.
#[tokio::test(start_paused = true)]
async fn s119_attempts_that_fail_do_not_keep_a_writer_waiting() {
    let patience = Duration::from_secs(60);
    let world = World::new(WritebackOptions { limit_changes: 1, patience, ..options(Duration::ZERO) });
    world.faults.set_down(true);
    world.put("a", "x", Precondition::None).await.unwrap();
    let began = Instant::now();
    let put = tokio::time::timeout(10 * patience, world.put("b", "x", Precondition::None)).await;
    assert!(matches!(put, Ok(Err(StoreError::Full(_)))), "{put:?}");
    assert_eq!(began.elapsed().as_secs(), 60);
}

/// Regression: each failed change caused a pause of up to thirty seconds, during which nothing was uploaded although the
/// bucket was reachable again.
#[tokio::test(start_paused = true)]
async fn s122_changes_are_uploaded_soon_after_an_outage() {
    let world = World::new(options(Duration::ZERO));
    world.faults.set_down(true);
    for n in 0..40 {
        world.put(&n.to_string(), "x", Precondition::None).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(603)).await;
    let attempts = world.trace.counts().of(Operation::Put);
    assert!(attempts < 16 * 600 / 5 + 100, "{attempts} attempts in ten minutes");
    world.faults.set_down(false);
    let began = Instant::now();
    world.writeback.drained().await;
    assert!(began.elapsed() <= Duration::from_secs(6), "{:?}", began.elapsed());
    assert_eq!(contents(&world.memory).await.len(), 40);
}

/// A reader of an object whose attributes are being uploaded waits for the end of the attempt, successful or not.
/// Regression: with several threads the reader could be notified just before the end, and then waited for the next attempt.
#[tokio::test(start_paused = true)]
async fn s122_a_reader_does_not_wait_for_the_end_of_an_outage() {
    let world = World::new(options(Duration::ZERO));
    world.memory.put(&key("file"), "text".into(), PutOptions::default()).await.unwrap();
    let stored = world.writeback.head(&key("file")).await.unwrap().object;
    let attributes =
        Some(Attributes { user: [("mode".into(), "0600".into())].into(), ..Attributes::default() });
    let options = CopyOptions { attributes, ..CopyOptions::default() };
    world.writeback.copy(&stored, &key("file"), options).await.unwrap();
    world.faults.add(Rule::new(Fault::InVain(Duration::from_secs(30))).always());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    let got = tokio::time::timeout(Duration::from_secs(600), read(&*world.writeback, "file")).await;
    assert!(matches!(got, Ok(Err(StoreError::Unavailable(_)))), "{got:?}");
    assert!(began.elapsed() <= Duration::from_secs(65), "{:?}", began.elapsed());
    world.faults.clear();
    world.writeback.drained().await;
    assert_eq!(read(&*world.writeback, "file").await.unwrap(), "text");
}

/// Regression: tags that were set on a waiting copy, or replaced by it, were lost on upload, because the object was copied
/// inside the bucket with the tags of its source.
#[tokio::test]
async fn s552_tags_of_a_waiting_copy_are_uploaded() {
    let world = World::new(options(LATER));
    let tags = |value: &str| Tags::from([("tag".to_owned(), value.to_owned())]);
    let described = PutOptions { tags: tags("source"), ..PutOptions::default() };
    world.memory.put(&key("from"), "body".into(), described).await.unwrap();
    let from = world.writeback.head(&key("from")).await.unwrap().object;
    for name in ["set", "removed", "kept", "replaced"] {
        let replaced = (name == "replaced").then(|| tags("copy"));
        let options = CopyOptions { tags: replaced, ..CopyOptions::default() };
        world.writeback.copy(&from, &key(name), options).await.unwrap();
    }
    world.writeback.set_tags(&key("set"), tags("later")).await.unwrap();
    world.writeback.set_tags(&key("removed"), Tags::new()).await.unwrap();
    world.writeback.drained().await;
    let stored = async |name: &str| world.memory.tags(&key(name)).await.unwrap();
    assert_eq!((stored("set").await, stored("removed").await), (tags("later"), Tags::new()));
    assert_eq!((stored("kept").await, stored("replaced").await), (tags("source"), tags("copy")));
}

/// Two objects are exchanged: the source of each waiting copy is the object that the other would replace.
#[tokio::test]
async fn changes_that_wait_for_each_other_are_uploaded() {
    let world = World::new(options(LATER));
    for (name, body) in [("a", "one"), ("b", "two")] {
        world.memory.put(&key(name), body.into(), PutOptions::default()).await.unwrap();
    }
    let copy = async |from: &str, to: &str| {
        let from = world.writeback.head(&key(from)).await.unwrap().object;
        world.writeback.copy(&from, &key(to), CopyOptions::default()).await.unwrap();
    };
    copy("a", "spare").await;
    copy("b", "a").await;
    copy("spare", "b").await;
    world.writeback.delete(&key("spare"), Precondition::None).await.unwrap();
    world.writeback.drained().await;
    let expected = [("a", "two"), ("b", "one")].map(|(name, body)| (name.to_owned(), Bytes::from(body)));
    assert_eq!(contents(&world.memory).await, BTreeMap::from(expected));
}

/// Regression: two objects are exchanged, and the oldest change is a deletion of the source of one copy. The deletion was
/// retried without a pause, so that nothing else ran (world of files 5937).
#[tokio::test]
async fn a_deletion_waits_for_changes_that_wait_for_each_other() {
    let world = World::new(options(LATER));
    for (name, body) in [("a", "one"), ("b", "two"), ("x", "x")] {
        world.memory.put(&key(name), body.into(), PutOptions::default()).await.unwrap();
    }
    let copy = async |from: &str, to: &str| {
        let from = world.writeback.head(&key(from)).await.unwrap().object;
        world.writeback.copy(&from, &key(to), CopyOptions::default()).await.unwrap();
    };
    let delete = async |name: &str| world.writeback.delete(&key(name), Precondition::None).await.unwrap();
    let both = world.writeback.multipart(&key("both"), Attributes::default(), Tags::new()).await.unwrap();
    for (number, name) in [(1, "a"), (2, "x")] {
        let from = world.writeback.head(&key(name)).await.unwrap();
        both.copy_part(number, &from.object, 0..from.size_bytes).await.unwrap();
    }
    both.complete(Precondition::None).await.unwrap();
    delete("x").await;
    copy("b", "spare").await;
    copy("both", "b").await;
    copy("spare", "a").await;
    delete("both").await;
    delete("spare").await;
    world.writeback.drained().await;
    let expected = [("a", "two"), ("b", "onex")].map(|(name, body)| (name.to_owned(), Bytes::from(body)));
    assert_eq!(contents(&world.memory).await, BTreeMap::from(expected));
}

/// A power failure at any time leaves a prefix of the log, which contains everything that was synced.
#[tokio::test]
async fn s154_a_truncated_log_keeps_its_beginning() {
    let world = World::new(options(LATER));
    world.faults.set_down(true);
    let log = world.dir.path().join(format!("{:016x}.log", 1));
    let mut ends = vec![0];
    for number in 0..20u8 {
        let body = Payload::from(vec![number; 1000 * usize::from(number)]);
        let name = format!("{:02}", number % 7);
        world.writeback.put(&key(name), body, PutOptions { ..PutOptions::default() }).await.unwrap();
        world.writeback.sync().await.unwrap();
        ends.push(std::fs::metadata(&log).unwrap().len() as usize);
    }
    let whole = std::fs::read(&log).unwrap();
    for cut in (0..whole.len()).step_by(997).chain(ends.clone()) {
        let after = TempDir::new().unwrap();
        std::fs::write(after.path().join(log.file_name().unwrap()), &whole[..cut]).unwrap();
        let writeback = open(after.path(), &world.memory, &world.faults, &world.trace, &world.options);
        let changes = ends.iter().filter(|end| **end <= cut).count() - 1;
        assert_eq!(writeback.backlog().changes, changes.min(7), "cut at {cut}");
        for number in changes.saturating_sub(7)..changes {
            let found = read(&*writeback, &format!("{:02}", number % 7)).await.unwrap();
            assert_eq!(found, vec![number as u8; 1000 * number]);
        }
    }
}
