//! Versions: the cost of finding them in the index.

use crate::fixture::{bucket_of, formatted, open, open_with};
use bytes::Bytes;
use drive::OpenOptions;
use futures_util::TryStreamExt as _;
use sim::device::{OperationKind, SimDevice};
use std::collections::BTreeMap;
use store::{
    Attributes, Buckets, GetOptions, ListVersions, ObjectKey, ObjectStore, PutOptions, Removal, VersionEntry,
    Versioning,
};

/// So small that almost nothing of the index is cached.
const INDEX_BYTES: usize = 64 << 10;

fn key(text: &str) -> ObjectKey {
    ObjectKey::new(Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

/// Makes a drive whose keys have several versions each, spread over several tables. Returns the length of all tables in bytes.
async fn drive_of_versions(keys: usize, versions: usize) -> (SimDevice, u64) {
    let device = formatted();
    let drive = open(&device).unwrap();
    let store = bucket_of(&drive).await;
    store.versions().unwrap().set_state(Versioning::Enabled).await.unwrap();
    for version in 0..versions {
        for number in 0..keys {
            let user = BTreeMap::from([("note".to_owned(), format!("{version}").repeat(300))]);
            let attributes = Attributes { user, ..Attributes::default() };
            let options = PutOptions { attributes, ..PutOptions::default() };
            let body = Bytes::from(version.to_string());
            store.put(&key(&format!("{number:05}")), body.into(), options).await.unwrap();
        }
        if version % (versions / 2) == 0 {
            drive.close().await.unwrap();
        }
    }
    drive.close().await.unwrap();
    let tables = drive.info().tables;
    assert!(tables.len() > 1, "{tables:?}");
    (device, tables.iter().map(|(len_bytes, _)| len_bytes).sum())
}

fn read_bytes(device: &SimDevice) -> u64 {
    let done = device.take_operations().into_iter();
    done.filter(|done| done.kind == OperationKind::Read).map(|done| done.len).sum()
}

/// Each key of a page was searched in every table, and then its versions were searched in every table once more.
#[tokio::test]
async fn s350_a_page_of_versions_is_one_scan_of_the_index() {
    let (device, index_bytes) = drive_of_versions(500, 6).await;
    let drive =
        open_with(&device, OpenOptions { index_bytes: INDEX_BYTES, ..OpenOptions::default() }).unwrap();
    let store = Buckets::open(&drive, "photos").await.unwrap();
    device.take_operations();
    let mut listed: Vec<(ObjectKey, bool, store::VersionId)> = Vec::new();
    let mut pages = 0;
    loop {
        let last = listed.last();
        let request = ListVersions {
            after: last.map(|(key, ..)| Bytes::copy_from_slice(key.as_bytes())),
            after_version: last.map(|(.., id)| id.clone()),
            limit: 500,
            ..ListVersions::default()
        };
        let page = store.versions().unwrap().list(request).await.unwrap();
        pages += 1;
        if page.is_empty() {
            break;
        }
        listed.extend(page.into_iter().map(|entry| match entry {
            VersionEntry::Version(version) => (version.key, version.is_newest, version.id),
            VersionEntry::Prefix(prefix) => panic!("{prefix:?}"),
        }));
    }
    assert_eq!(listed.len(), 3000);
    assert!(listed.chunk_by(|one, next| one.0 == next.0).all(|versions| {
        let newest = versions.iter().map(|(_, is_newest, _)| *is_newest);
        versions.len() == 6 && newest.eq([true, false, false, false, false, false])
    }));
    let read = read_bytes(&device);
    assert!(read < pages * index_bytes, "{read} bytes were read of {index_bytes} for {pages} pages");
}

/// All versions of the key were read and decoded to find one.
#[tokio::test]
async fn s351_finding_a_version_does_not_depend_on_their_number() {
    let (device, index_bytes) = drive_of_versions(1, 1500).await;
    let drive =
        open_with(&device, OpenOptions { index_bytes: INDEX_BYTES, ..OpenOptions::default() }).unwrap();
    let store = Buckets::open(&drive, "photos").await.unwrap();
    let request = ListVersions { limit: 1000, ..ListVersions::default() };
    let Some(VersionEntry::Version(found)) = store.versions().unwrap().list(request).await.unwrap().pop()
    else {
        panic!("no versions")
    };
    device.take_operations();
    let options = GetOptions { version: Some(found.id), ..GetOptions::default() };
    let object = store.get(&key("00000"), options).await.unwrap();
    let bytes = object.body.try_collect::<Vec<Bytes>>().await.unwrap().concat();
    assert_eq!(bytes, b"500");
    let read = read_bytes(&device);
    assert!(read < index_bytes / 3, "{read} bytes were read of {index_bytes}");
}

async fn bytes_of(store: &dyn ObjectStore, name: &ObjectKey, id: &str) -> store::Result<Bytes> {
    let options = GetOptions { version: Some(id.into()), ..GetOptions::default() };
    let object = store.get(name, options).await?;
    Ok(object.body.try_collect::<Vec<Bytes>>().await?.concat().into())
}

/// Checks that a version can be read by each kind of call and has its bytes, after other tasks had `turns` turns.
async fn assert_version(store: &dyn ObjectStore, name: &ObjectKey, id: &str, way: usize, turns: usize) {
    for _ in 0..turns {
        tokio::task::yield_now().await;
    }
    let versions = store.versions().unwrap();
    match way {
        0 => assert_eq!(bytes_of(store, name, id).await.unwrap(), "first", "{turns} turns"),
        1 => assert_eq!(versions.tags(name, id).await.unwrap()["of"], "first", "{turns} turns"),
        _ => assert_eq!(&*versions.find(name, Some(id)).await.unwrap().id, id, "{turns} turns"),
    }
}

/// A reader of the current object got a later one, or "not found". The entries of versions move when the key is overwritten, and when the
/// newest version is deleted.
#[tokio::test]
async fn s352_a_version_is_read_while_others_are_added_and_removed() {
    const TURNS: usize = 40;
    let device = formatted();
    let drive = open_with(&device, OpenOptions { index_bytes: 4 << 10, ..OpenOptions::default() }).unwrap();
    let store = bucket_of(&drive).await;
    let versions = store.versions().unwrap();
    versions.set_state(Versioning::Enabled).await.unwrap();
    let put = async |name: &ObjectKey, body: &'static str| {
        let tags = BTreeMap::from([("of".to_owned(), body.to_owned())]);
        let options = PutOptions { tags, ..PutOptions::default() };
        let put = store.put(name, Bytes::from_static(body.as_bytes()).into(), options).await.unwrap();
        put.version.unwrap()
    };
    let cases = || (0..3).flat_map(|way| (0..TURNS).map(move |turns| (way, turns)));
    let name = |(way, turns): (usize, usize)| key(&format!("{way}-{turns}"));
    let mut firsts = Vec::new();
    for case in cases() {
        firsts.push(put(&name(case), "first").await);
    }
    // From here on lookups in the index read the device, so other tasks run meanwhile.
    drive.close().await.unwrap();
    let mut seconds = Vec::new();
    for (case, first) in cases().zip(&firsts) {
        let key = name(case);
        seconds
            .push(tokio::join!(assert_version(&*store, &key, first, case.0, case.1), put(&key, "second")).1);
    }
    drive.close().await.unwrap();
    for ((case, first), second) in cases().zip(&firsts).zip(&seconds) {
        let key = name(case);
        let removed = versions.remove(&key, second, Removal::default());
        tokio::join!(assert_version(&*store, &key, first, case.0, case.1), removed).1.unwrap();
    }
}

/// In a bucket with suspended versioning each PUT and DELETE read all versions of the key, under the key's lock, to find the one with the
/// id `null`: 28 ms for 20,000 versions. The version may be at any place among them.
#[tokio::test]
async fn s530_a_change_of_a_suspended_bucket_reads_a_single_version() {
    const VERSIONS: usize = 1000;
    for null_lies_below in [false, true] {
        let device = formatted();
        let drive = open(&device).unwrap();
        let store = bucket_of(&drive).await;
        let versions = store.versions().unwrap();
        let name = key("00000");
        let user = BTreeMap::from([("note".to_owned(), "n".repeat(300))]);
        let put = async |store: &dyn ObjectStore, body: &str| {
            let attributes = Attributes { user: user.clone(), ..Attributes::default() };
            let options = PutOptions { attributes, ..PutOptions::default() };
            store.put(&name, Bytes::copy_from_slice(body.as_bytes()).into(), options).await.unwrap()
        };
        if null_lies_below {
            put(&*store, "null").await;
        }
        versions.set_state(Versioning::Enabled).await.unwrap();
        for version in 0..VERSIONS {
            put(&*store, &version.to_string()).await;
        }
        versions.set_state(Versioning::Suspended).await.unwrap();
        drive.close().await.unwrap();
        let index_bytes = drive.info().table_bytes();
        drop((store, drive));

        let options = OpenOptions { index_bytes: INDEX_BYTES, ..OpenOptions::default() };
        let drive = open_with(&device, options).unwrap();
        let store = Buckets::open(&drive, "photos").await.unwrap();
        let versions = store.versions().unwrap();
        device.take_operations();
        if null_lies_below {
            assert_eq!(bytes_of(&*store, &name, "null").await.unwrap(), "null");
            assert!(!versions.find(&name, Some("null")).await.unwrap().is_newest);
        }
        // The first change replaces the older version `null`, the second finds it current, the third finds a delete marker, the fourth
        // finds a newest version that is no delete marker.
        put(&*store, "one").await;
        put(&*store, "two").await;
        store.delete(&name, Default::default()).await.unwrap();
        assert!(versions.find(&name, None).await.unwrap().stored.is_none());
        versions.remove(&name, "null", Removal::default()).await.unwrap();
        put(&*store, "three").await;
        versions.remove(&name, "null", Removal::default()).await.unwrap();
        put(&*store, "four").await;
        let read = read_bytes(&device);
        assert!(read < index_bytes / 3, "{read} bytes were read of {index_bytes}");
        // Exactly one version has the id `null`, and no other version is lost.
        let page =
            versions.list(ListVersions { limit: VERSIONS + 1, ..ListVersions::default() }).await.unwrap();
        let ids: Vec<_> = page
            .iter()
            .map(|entry| match entry {
                VersionEntry::Version(version) => version.id.to_string(),
                VersionEntry::Prefix(_) => panic!("{entry:?}"),
            })
            .collect();
        assert_eq!(ids.len(), VERSIONS + 1);
        assert_eq!(ids.iter().position(|id| id == "null"), Some(0));
        assert_eq!(ids.iter().filter(|id| *id == "null").count(), 1);
        assert_eq!(bytes_of(&*store, &name, "null").await.unwrap(), "four");
        assert!(drive.check().await.unwrap().problems.is_empty());
    }
}
