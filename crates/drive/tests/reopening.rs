//! The contents of a drive after it is opened again.

use crate::fixture::{formatted, open};
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use sim::device::SimDevice;
use std::collections::BTreeMap;
use store::{
    Buckets, GetOptions, ListEntry, ListRequest, ListedObject, ObjectKey, ObjectStore, Precondition,
    PutOptions,
};

fn key(text: &str) -> ObjectKey {
    ObjectKey::new(Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

fn body(seed: u32, len: usize) -> Bytes {
    (0..len).map(|at| (at as u32).wrapping_mul(2_654_435_761).wrapping_add(seed) as u8).collect()
}

/// Returns key and bytes of every object.
async fn contents(store: &dyn ObjectStore) -> BTreeMap<String, Bytes> {
    let page = store.list(ListRequest { limit: 1000, ..ListRequest::default() }).await.unwrap();
    let mut found = BTreeMap::new();
    for entry in page.entries {
        let ListEntry::Object(ListedObject { object, .. }) = entry else { continue };
        let read = store.get(&object.key, GetOptions::default()).await.unwrap();
        assert_eq!(read.meta.object.etag, object.etag);
        let pieces: Vec<Bytes> = read.body.try_collect().await.unwrap();
        found.insert(String::from_utf8_lossy(object.key.as_bytes()).into_owned(), pieces.concat().into());
    }
    found
}

async fn reopened(device: &SimDevice) -> BTreeMap<String, Bytes> {
    let drive = open(device).unwrap();
    contents(&*Buckets::open(&drive, "photos").await.unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn s300_everything_acknowledged_is_there_after_a_power_cut_and_after_a_checkpoint() {
    let device = formatted();
    let drive = open(&device).unwrap();
    drive.create("photos").await.unwrap();
    let store = Buckets::open(&drive, "photos").await.unwrap();
    let mut expected = BTreeMap::new();
    for (number, len) in [0, 1, 4096, 5000, 70_000, 300_000, 5 << 20, 12 << 20].into_iter().enumerate() {
        let (name, bytes) = (format!("object-{number}"), body(number as u32, len));
        store.put(&key(&name), bytes.clone().into(), PutOptions::default()).await.unwrap();
        expected.insert(name, bytes);
    }
    for name in ["object-1", "object-6"] {
        store.delete(&key(name), Precondition::None).await.unwrap();
        expected.remove(name);
    }
    assert_eq!(contents(&*store).await, expected);
    drop((store, drive));
    device.crash(1);
    assert_eq!(reopened(&device).await, expected);
    let drive = open(&device).unwrap();
    drive.close().await.unwrap();
    drop(drive);
    device.crash(2);
    assert_eq!(reopened(&device).await, expected);
}
