//! Tests of the directory store.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bytes::Bytes;
use futures_util::TryStreamExt;
use proptest::prelude::{Just, ProptestConfig, Strategy, prop_oneof, proptest};
use proptest::sample::select;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use store::conformance::{self, Capabilities};
use store::memory::MemoryStore;
use store::{
    Attributes, Buckets, Entropy, GetOptions, ListRequest, ObjectKey, ObjectRef, ObjectStore, Pages,
    Precondition, PutOptions, StoreError, SystemClock, Tags,
};
use store_dir::{DirBuckets, DirOptions, DirStore, Durability};
use tempfile::TempDir;

const QUICK: DirOptions = DirOptions { durability: Durability::None, read_only: false };

fn open(path: &Path, options: DirOptions) -> store::Result<DirStore> {
    DirStore::open(path, options, Arc::new(SystemClock), Arc::new(Entropy::new(7)))
}

#[tokio::test(flavor = "multi_thread")]
async fn dir_conforms() {
    let kept: Mutex<Vec<TempDir>> = Mutex::default();
    let fresh = || async {
        let dir = TempDir::new().unwrap();
        let store = open(dir.path(), QUICK);
        kept.lock().unwrap().push(dir);
        store.map(|store| Arc::new(store) as Arc<dyn ObjectStore>)
    };
    conformance::run(fresh, Capabilities::ALL).await.unwrap();
}

#[tokio::test]
async fn dir_buckets_conform() {
    let kept: Mutex<Vec<TempDir>> = Mutex::default();
    let fresh = || async {
        let dir = TempDir::new().unwrap();
        let buckets = DirBuckets::open(dir.path(), QUICK, Arc::new(SystemClock), Arc::new(Entropy::new(7)));
        kept.lock().unwrap().push(dir);
        buckets.map(|buckets| Arc::new(buckets) as Arc<dyn Buckets>)
    };
    conformance::run_buckets(fresh).await.unwrap();
}

#[tokio::test]
async fn a_completion_may_be_repeated() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path(), QUICK).unwrap();
    let upload = store.multipart(&key("big"), Attributes::default(), Tags::new()).await.unwrap();
    upload.put_part(1, "whole".into()).await.unwrap();
    let stored = upload.complete(Precondition::None).await.unwrap();
    assert_eq!(upload.complete(Precondition::None).await.unwrap(), stored);
    put(&store, "big", "another's").await;
    let replaced = upload.complete(Precondition::None).await;
    assert!(matches!(replaced, Err(StoreError::PreconditionFailed(_))), "{replaced:?}");
}

fn key(text: impl AsRef<[u8]>) -> ObjectKey {
    ObjectKey::try_from(text.as_ref()).unwrap()
}

async fn put(store: &dyn ObjectStore, name: impl AsRef<[u8]>, body: &'static str) -> ObjectRef {
    store.put(&key(name), body.into(), PutOptions::default()).await.unwrap()
}

async fn read(store: &dyn ObjectStore, name: impl AsRef<[u8]>) -> store::Result<Bytes> {
    let object = store.get(&key(name), GetOptions::default()).await?;
    Ok(object.body.try_collect::<Vec<Bytes>>().await?.concat().into())
}

/// Returns all keys and prefixes of a listing.
async fn texts(store: &dyn ObjectStore, request: ListRequest) -> Vec<String> {
    let entries = Pages::new(store, request).collect().await.unwrap();
    entries.iter().map(|entry| String::from_utf8_lossy(entry.text()).into_owned()).collect()
}

fn everything() -> ListRequest {
    ListRequest { limit: 1000, ..ListRequest::default() }
}

fn level(prefix: &str) -> ListRequest {
    ListRequest { prefix: Bytes::copy_from_slice(prefix.as_bytes()), delimiter: Some(b'/'), ..everything() }
}

#[tokio::test]
async fn files_of_other_programs_are_objects() {
    let dir = TempDir::new().unwrap();
    fs::create_dir_all(dir.path().join("sub/empty")).unwrap();
    fs::create_dir(dir.path().join("alone")).unwrap();
    fs::write(dir.path().join("sub/a.txt"), "by hand").unwrap();
    fs::write(dir.path().join("100%"), "percent").unwrap();
    symlink("sub", dir.path().join("link")).unwrap();
    symlink("sub/a.txt", dir.path().join("sub/link")).unwrap();
    let _socket = UnixListener::bind(dir.path().join("socket")).unwrap();
    let store = open(dir.path(), QUICK).unwrap();
    assert_eq!(texts(&store, everything()).await, ["100%", "sub/a.txt"]);
    assert_eq!(texts(&store, level("")).await, ["100%", "sub/"]);
    assert_eq!(read(&store, "sub/a.txt").await.unwrap(), "by hand");
    for unreachable in ["link/a.txt", "sub/link", "link", "socket", ".tenon-store", ".tenon-store/x"] {
        assert!(matches!(store.head(&key(unreachable)).await, Err(StoreError::NotFound(_))), "{unreachable}");
    }
    let refused = store.put(&key("link/x"), "x".into(), PutOptions::default()).await;
    assert!(matches!(refused, Err(StoreError::Denied(_))));
    let refused = store.put(&key("sub/link"), "x".into(), PutOptions::default()).await;
    assert!(matches!(refused, Err(StoreError::Denied(_))));
}

/// Files whose names are no key's escape are not objects.
#[tokio::test]
async fn files_with_invalid_escapes_are_ignored() {
    let dir = TempDir::new().unwrap();
    for name in ["%=", "%=%!x", "%+short", "%!", "%=.."] {
        fs::write(dir.path().join(name), "x").unwrap();
    }
    fs::create_dir_all(dir.path().join("%=dir")).unwrap();
    fs::write(dir.path().join("%=dir/file"), "x").unwrap();
    fs::create_dir_all(dir.path().join("%+head")).unwrap();
    fs::write(dir.path().join("%+head/file"), "x").unwrap();
    fs::write(dir.path().join("%=beside"), "x").unwrap();
    let store = open(dir.path(), QUICK).unwrap();
    let found = texts(&store, everything()).await;
    for text in &found {
        read(&store, text).await.unwrap();
    }
    assert_eq!(found, ["%!x", "beside"]);
    assert_eq!(texts(&store, level("")).await, ["%!x", "beside"]);
}

#[tokio::test]
async fn a_file_changed_in_place_is_another_object() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path(), QUICK).unwrap();
    let attributes = Attributes { content_type: Some("text/plain".into()), ..Attributes::default() };
    let options = PutOptions { attributes, ..PutOptions::default() };
    let stored = store.put(&key("a"), "stored".into(), options).await.unwrap();
    fs::write(dir.path().join("a"), "changed by hand").unwrap();
    let found = store.head(&key("a")).await.unwrap();
    assert_ne!(found.object.etag, stored.etag);
    assert_eq!(found.size_bytes, 15);
    assert_eq!(found.attributes.content_type.as_deref(), Some("text/plain"));
    let old = GetOptions { if_match: Some(stored.etag.clone()), ..GetOptions::default() };
    assert!(matches!(store.get(&key("a"), old).await, Err(StoreError::PreconditionFailed(_))));
    let old = Precondition::Matches(stored.etag);
    assert!(matches!(store.delete(&key("a"), old).await, Err(StoreError::PreconditionFailed(_))));
    store.delete(&key("a"), Precondition::Matches(found.object.etag)).await.unwrap();
}

#[tokio::test]
async fn tags_do_not_change_the_etag() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("a"), "by hand").unwrap();
    let store = open(dir.path(), QUICK).unwrap();
    let before = store.head(&key("a")).await.unwrap().object;
    store.set_tags(&key("a"), Tags::from([("k".into(), "v".into())])).await.unwrap();
    assert_eq!(store.head(&key("a")).await.unwrap().object, before);
    assert_eq!(store.tags(&key("a")).await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_open_reader_keeps_its_bytes() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path(), QUICK).unwrap();
    let (old, new) = (Bytes::from(vec![1; 3_000_000]), Bytes::from(vec![2; 3_000_000]));
    store.put(&key("a"), old.clone().into(), PutOptions::default()).await.unwrap();
    let replaced = store.get(&key("a"), GetOptions::default()).await.unwrap();
    store.put(&key("a"), new.clone().into(), PutOptions::default()).await.unwrap();
    assert!(replaced.body.try_collect::<Vec<Bytes>>().await.unwrap().concat() == old);
    let changed = store.get(&key("a"), GetOptions::default()).await.unwrap();
    fs::OpenOptions::new().append(true).open(dir.path().join("a")).unwrap().write_all(b"x").unwrap();
    let result = changed.body.try_collect::<Vec<Bytes>>().await;
    assert!(matches!(result, Err(StoreError::Corrupt(_))));
}

#[tokio::test]
async fn directories_are_removed_with_their_last_object() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path(), QUICK).unwrap();
    for name in ["a/b/c/d", "a/b/e", "a/b/c/f/"] {
        put(&store, name, "x").await;
    }
    for name in ["a/b/c/d", "a/b/c/f/"] {
        store.delete(&key(name), Precondition::None).await.unwrap();
    }
    assert!(dir.path().join("a/b").is_dir() && !dir.path().join("a/b/c").exists());
    store.delete(&key("a/b/e"), Precondition::None).await.unwrap();
    assert!(!dir.path().join("a").exists() && dir.path().is_dir());
}

#[tokio::test]
async fn an_object_and_a_directory_can_have_one_name() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path(), QUICK).unwrap();
    let stored = put(&store, "a", "object").await;
    put(&store, "a/b", "inside").await;
    assert_eq!(fs::read(dir.path().join("%=a")).unwrap(), b"object");
    assert_eq!(store.head(&key("a")).await.unwrap().object.etag, stored.etag);
    let taken = PutOptions { precondition: Precondition::Absent, ..PutOptions::default() };
    assert!(matches!(store.put(&key("a"), "x".into(), taken).await, Err(StoreError::PreconditionFailed(_))));
}

/// Names of 254 and 255 bytes leave no room for the prefix of an object whose name a directory has too.
#[tokio::test]
async fn the_longest_names_can_be_objects_and_directories() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path(), QUICK).unwrap();
    for len in [253, 254, 255, 256] {
        for first in ["object", "inside"] {
            let name = "n".repeat(len);
            let inside = format!("{name}/x");
            let names = if first == "object" { [&name, &inside] } else { [&inside, &name] };
            put(&store, names[0], "1").await;
            put(&store, names[1], "2").await;
            assert_eq!(read(&store, names[0]).await.unwrap(), "1", "{len} {first}");
            assert_eq!(read(&store, names[1]).await.unwrap(), "2", "{len} {first}");
            assert_eq!(texts(&store, everything()).await, [&*name, &*inside], "{len} {first}");
            assert_eq!(texts(&store, level("")).await, [name.clone(), format!("{name}/")], "{len} {first}");
            for name in names {
                store.delete(&key(name), Precondition::None).await.unwrap();
            }
            assert_eq!(texts(&store, everything()).await, [""; 0], "{len} {first}");
        }
    }
}

/// Two stores of one directory share no lock, like two processes: the file system decides.
#[tokio::test(flavor = "multi_thread")]
async fn one_creator_wins_among_processes() {
    let dir = TempDir::new().unwrap();
    let stores = [1, 2].map(|seed| {
        DirStore::open(dir.path(), QUICK, Arc::new(SystemClock), Arc::new(Entropy::new(seed))).unwrap()
    });
    for round in 0..50 {
        let name = key(format!("dir/{round}"));
        let create = |store: &DirStore| {
            let (store, name) = (store.clone(), name.clone());
            let options = PutOptions { precondition: Precondition::Absent, ..PutOptions::default() };
            tokio::spawn(async move { store.put(&name, "x".into(), options).await.is_ok() })
        };
        let (first, second) = (create(&stores[0]), create(&stores[1]));
        assert!(first.await.unwrap() != second.await.unwrap());
    }
}

#[tokio::test]
async fn read_only_writes_nothing() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("a"), "x").unwrap();
    let store = open(dir.path(), DirOptions { read_only: true, ..QUICK }).unwrap();
    assert_eq!(read(&store, "a").await.unwrap(), "x");
    assert!(matches!(
        store.put(&key("b"), "x".into(), PutOptions::default()).await,
        Err(StoreError::Denied(_))
    ));
    assert!(matches!(store.delete(&key("a"), Precondition::None).await, Err(StoreError::Denied(_))));
    assert!(matches!(
        store.multipart(&key("a"), Attributes::default(), Tags::new()).await,
        Err(StoreError::Denied(_))
    ));
    assert!(matches!(store.set_tags(&key("a"), Tags::new()).await, Err(StoreError::Denied(_))));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn the_staging_directory_is_left_empty() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path(), DirOptions::default()).unwrap();
    put(&store, "a", "x").await;
    let taken = PutOptions { precondition: Precondition::Absent, ..PutOptions::default() };
    store.put(&key("a"), "y".into(), taken.clone()).await.unwrap_err();
    let upload = store.multipart(&key("b"), Attributes::default(), Tags::new()).await.unwrap();
    upload.put_part(2, "2".into()).await.unwrap();
    upload.put_part(1, "1".into()).await.unwrap();
    upload.complete(Precondition::None).await.unwrap();
    let dropped = store.multipart(&key("c"), Attributes::default(), Tags::new()).await.unwrap();
    dropped.put_part(1, "1".into()).await.unwrap();
    drop(dropped);
    let user = [("k".to_owned(), "v".repeat(70_000))].into();
    let heavy =
        PutOptions { attributes: Attributes { user, ..Attributes::default() }, ..PutOptions::default() };
    assert!(matches!(store.put(&key("d"), "x".into(), heavy).await, Err(StoreError::Invalid(_))));
    assert_eq!(fs::read_dir(dir.path().join(".tenon-store")).unwrap().count(), 0);
    assert_eq!(texts(&store, everything()).await, ["a", "b"]);
}

#[test]
fn a_missing_directory_is_refused() {
    let dir = TempDir::new().unwrap();
    let missing = open(&dir.path().join("missing"), QUICK).unwrap_err();
    assert!(matches!(missing, StoreError::NoSuchBucket(_)));
    fs::write(dir.path().join("file"), "x").unwrap();
    open(&dir.path().join("file"), QUICK).unwrap_err();
    fs::write(dir.path().join(".tenon-store"), "x").unwrap();
    assert!(open(dir.path(), QUICK).unwrap_err().to_string().contains("rename it"));
}

#[test]
fn a_file_system_without_extended_attributes_is_refused() {
    let Err(refused) = open(Path::new("/proc/self"), QUICK) else { panic!("/proc was accepted") };
    assert!(!refused.to_string().contains('\n'));
}

#[derive(Debug, Clone)]
struct Wanted {
    prefix: Vec<u8>,
    start_after: Option<Vec<u8>>,
    delimiter: Option<u8>,
    limit: usize,
}

fn some_key() -> impl Strategy<Value = Vec<u8>> {
    let long = || vec![(251..258usize).prop_map(|len| vec![b'n'; len]).boxed(), Just(b"n".to_vec()).boxed()];
    let short = proptest::collection::vec(select(b"a-0/%.!=+".to_vec()), 1..7);
    let component = proptest::strategy::Union::new(long());
    prop_oneof![
        4 => short.clone(),
        1 => (component, short).prop_map(|(long, short)| [long, short].concat()),
    ]
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let text = || proptest::collection::vec(select(b"a-0/%n".to_vec()), 0..4);
    let long = (250..257usize).prop_map(|len| vec![b'n'; len]);
    let prefix = prop_oneof![6 => text(), 1 => long];
    let delimiter = prop_oneof![3 => Just(Some(b'/')), 3 => Just(None), 1 => Just(Some(b'-'))];
    let start_after = proptest::option::of(prop_oneof![text(), some_key()]);
    (prefix, start_after, delimiter, 1..6usize).prop_map(|(prefix, start_after, delimiter, limit)| Wanted {
        prefix,
        start_after,
        delimiter,
        limit,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// For any keys and any request, a directory returns the same listing as the model.
    #[test]
    fn listings_are_those_of_the_model(
        keys in proptest::collection::btree_set(some_key(), 0..40),
        requests in proptest::collection::vec(wanted(), 10),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let dir = TempDir::new().unwrap();
            let store = open(dir.path(), QUICK).unwrap();
            let model = MemoryStore::new(Arc::new(SystemClock));
            for name in &keys {
                put(&store, name, "x").await;
                put(&model, name, "x").await;
            }
            for wanted in requests {
                let request = ListRequest {
                    prefix: wanted.prefix.clone().into(),
                    start_after: wanted.start_after.clone().map(Bytes::from),
                    delimiter: wanted.delimiter,
                    limit: wanted.limit,
                    ..ListRequest::default()
                };
                let expected = texts(&model, request.clone()).await;
                assert_eq!(texts(&store, request).await, expected, "{wanted:?}");
            }
        });
    }
}

/// Parts of any size, sent in any order and some of them twice, are joined in order of their numbers.
#[tokio::test]
async fn parts_are_joined_wherever_they_were_written() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path(), QUICK).unwrap();
    let uploads: [&[(u32, &str)]; 9] = [
        &[(1, "aaaa"), (2, "bbbb"), (3, "c")],
        &[(3, "cccc"), (1, "aaaa"), (2, "bbbb")],
        &[(3, "c"), (1, "aaaa"), (2, "bbbb")],
        &[(1, "aaaa"), (2, "b"), (3, "cccc")],
        &[(1, "aa"), (2, "bb"), (3, "cccc"), (4, "dddddd"), (5, "e")],
        &[(1, "aaaa"), (2, "xxxx"), (3, "cc"), (2, "bbbb")],
        &[(1, "xxxx"), (1, "aaaa"), (2, "bbbb")],
        &[(2, "bbbb"), (5, "eeee"), (9, "")],
        &[(1, ""), (2, "bb"), (3, "")],
    ];
    for parts in uploads {
        let upload = store.multipart(&key("a"), Attributes::default(), Tags::new()).await.unwrap();
        let mut expected = std::collections::BTreeMap::new();
        for (number, body) in parts {
            upload.put_part(*number, (*body).into()).await.unwrap();
            expected.insert(number, *body);
        }
        let other = Precondition::Matches(store::ETag::new("other"));
        assert!(matches!(upload.complete(other).await, Err(StoreError::PreconditionFailed(_))), "{parts:?}");
        upload.put_part(20, "late".into()).await.unwrap();
        upload.complete(Precondition::None).await.unwrap();
        let expected: String = expected.into_values().chain(["late"]).collect();
        assert_eq!(read(&store, "a").await.unwrap(), expected, "{parts:?}");
    }
    assert_eq!(fs::read_dir(dir.path().join(".tenon-store")).unwrap().count(), 0);
}
