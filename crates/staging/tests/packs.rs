//! Packs of small contents.

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use staging::packs::{Packed, Packs, is_pack};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use store::memory::MemoryStore;
use store::{
    Entropy, GetOptions, ObjectKey, ObjectStore, Payload, Precondition, PutOptions, StoreError, SystemClock,
};

const PREFIX: &[u8] = b".tenon/batches/0000000000000007/";

fn open(bucket: &Arc<MemoryStore>, dir: &Path, seed: u64) -> Arc<Packs> {
    let entropy = Arc::new(Entropy::new(seed));
    Packs::open(bucket.clone(), dir, PREFIX, entropy, Box::new(|| Ok(()))).unwrap()
}

async fn read(store: &dyn ObjectStore, packed: &Packed, len: u64) -> Bytes {
    let range = Some(packed.offset..packed.offset + len);
    let object = store.get(&packed.object.key, GetOptions { range, ..GetOptions::default() }).await.unwrap();
    object.body.try_collect::<Vec<_>>().await.unwrap().concat().into()
}

#[tokio::test]
async fn contents_keep_their_places_when_packs_are_uploaded() {
    let (bucket, dir) = (Arc::new(MemoryStore::new(Arc::new(SystemClock))), tempfile::tempdir().unwrap());
    let packs = open(&bucket, dir.path(), 1);
    let contents: Vec<Bytes> = (0..400_u32).map(|number| vec![number as u8; 60_000].into()).collect();
    let append = |content: &Bytes| packs.append(&Payload::from(content.clone())).unwrap();
    let places: Vec<Packed> = contents.iter().map(append).collect();
    let keys: std::collections::BTreeSet<_> = places.iter().map(|packed| &packed.object.key).collect();
    assert_eq!(keys.len(), 3, "packs of 8 MiB");
    assert!(keys.iter().all(|key| is_pack(key)));
    assert_eq!(read(&*packs, &places[7], 60_000).await, contents[7]);
    assert!(matches!(bucket.head(&places[7].object.key).await, Err(StoreError::NotFound(_))));
    // Another process continues, with packs of its own.
    drop(packs);
    let packs = open(&bucket, dir.path(), 2);
    let more = packs.append(&Payload::from("more")).unwrap();
    assert!(!keys.contains(&more.object.key));
    packs.upload().await.unwrap();
    for (packed, content) in places.iter().zip(&contents) {
        assert_eq!(read(&*bucket, packed, 60_000).await, content);
    }
    assert_eq!(read(&*bucket, &more, 4).await, "more");
}

#[tokio::test]
async fn nothing_is_deleted_and_names_are_synced_after_contents() {
    let (bucket, dir) = (Arc::new(MemoryStore::new(Arc::new(SystemClock))), tempfile::tempdir().unwrap());
    let key = ObjectKey::new(b"inodes/1".to_vec()).unwrap();
    bucket.put(&key, Payload::from("kept"), PutOptions::default()).await.unwrap();
    let synced = Arc::new(AtomicU32::new(0));
    let counter = synced.clone();
    let sync_names = Box::new(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    let entropy = Arc::new(Entropy::new(3));
    let packs = Packs::open(bucket.clone(), dir.path(), PREFIX, entropy, sync_names).unwrap();
    packs.delete(&key, Precondition::None).await.unwrap();
    bucket.head(&key).await.unwrap();
    packs.append(&Payload::from("a")).unwrap();
    packs.sync().await.unwrap();
    assert_eq!(synced.load(Ordering::Relaxed), 1);
}

/// A regression test: a later process uploaded all packs again, and each pack kept a file open.
#[tokio::test]
async fn stored_packs_are_not_stored_again_and_few_files_are_open() {
    let (bucket, dir) = (Arc::new(MemoryStore::new(Arc::new(SystemClock))), tempfile::tempdir().unwrap());
    let packs = open(&bucket, dir.path(), 1);
    let content = |number: usize| Bytes::from(vec![number as u8; 64 << 10]);
    let append = |number| packs.append(&Payload::from(content(number))).unwrap();
    let places: Vec<Packed> = (0..12 * 128).map(append).collect();
    let open_files = || {
        let open = std::fs::read_dir("/proc/self/fd")
            .unwrap()
            .filter_map(|entry| entry.unwrap().path().read_link().ok());
        open.filter(|path| path.starts_with(dir.path())).count()
    };
    assert!(open_files() <= 8, "{} files are open", open_files());
    packs.upload().await.unwrap();
    for (number, packed) in places.iter().enumerate().step_by(100) {
        assert_eq!(read(&*packs, packed, 64 << 10).await, content(number));
    }
    assert!(open_files() <= 8, "{} files are open", open_files());
    drop(packs);
    let key = places[0].object.key.clone();
    bucket.delete(&key, Precondition::None).await.unwrap();
    let packs = open(&bucket, dir.path(), 2);
    packs.upload().await.unwrap();
    assert!(matches!(bucket.head(&key).await, Err(StoreError::NotFound(_))), "the pack was uploaded twice");
    assert_eq!(read(&*packs, &places[0], 64 << 10).await, content(0));
}

/// Other objects may have names that begin like those of packs.
#[test]
fn only_objects_of_batches_are_packs() {
    let is = |key: &str| is_pack(&ObjectKey::new(key.as_bytes().to_vec()).unwrap());
    assert!(is(".tenon/batches/0000000000000007/pack-00000001-00") && is("p/.tenon/batches/7/pack-1-2"));
    assert!(!is("pack-1") && !is("batches/7/pack-1") && !is(".tenon/batches/7/0000000000000001-02"));
}
