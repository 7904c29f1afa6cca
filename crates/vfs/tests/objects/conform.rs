//! Every kind of volume, and its directories, pass the conformance tests of stores and buckets.

use crate::hooked_engine::interleaving_engine;
use crate::world::{Bucket, CHUNKED, World};
use std::sync::{Arc, Mutex};
use store::conformance::{self, Capabilities};
use store::memory::MemoryStore;
use store::{Entropy, ListRequest, ObjectKey, ObjectStore, Pages, Precondition, PutOptions, StoreError};
use vfs::{Mapping, directory_buckets};

async fn conforms(make: impl AsyncFn() -> World, base: &str, capabilities: Capabilities) {
    let kept: Mutex<Vec<World>> = Mutex::default();
    let fresh = || async {
        let world = make().await;
        let objects = vfs::objects(&world.fs, base.as_bytes());
        kept.lock().unwrap().push(world);
        Ok(objects)
    };
    conformance::run(fresh, capabilities).await.unwrap();
    conformance::run_uploads(fresh, capabilities).await.unwrap();
    let worlds = std::mem::take(&mut *kept.lock().unwrap());
    for world in worlds {
        world.settle().await;
        assert_eq!(world.fs.check().unwrap(), [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s180_objects_named_by_inode_conform() {
    let make = async || Bucket::by_inode(Mapping::Whole).await.mount(|_| {}).await;
    conforms(make, "", Capabilities::ALL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s180_objects_in_chunks_conform() {
    let make = async || Bucket::by_inode(CHUNKED).await.mount(|_| {}).await;
    conforms(make, "", Capabilities::ALL).await;
}

/// Regression: of objects that were put into a new directory at the same time, some lost their names.
#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn s180_objects_conform_while_threads_overtake_each_other() {
    let whole = async || Bucket::by_inode_on(Mapping::Whole, interleaving_engine()).await.mount(|_| {}).await;
    conforms(whole, "", Capabilities::ALL).await;
    let chunked = async || Bucket::by_inode_on(CHUNKED, interleaving_engine()).await.mount(|_| {}).await;
    conforms(chunked, "", Capabilities::ALL).await;
    let by_path = async || Bucket::with_metadata_on(interleaving_engine()).mount(|_| {}).await;
    conforms(by_path, "", Capabilities { lists_attributes: false, ..Capabilities::ALL }).await;
}

/// Objects that wait in the write-back log count as stored.
#[tokio::test(flavor = "multi_thread")]
async fn objects_behind_a_log_conform() {
    let make = async || Bucket::by_inode(Mapping::Whole).await.mount(|config| config.write_back = true).await;
    conforms(make, "", Capabilities::ALL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_a_directory_conform() {
    let make = async || {
        let world = Bucket::by_inode(Mapping::Whole).await.mount(|_| {}).await;
        world.mkdir("a-bucket").await.unwrap();
        world
    };
    conforms(make, "a-bucket/", Capabilities::ALL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s180_objects_named_by_path_conform() {
    let make = async || Bucket::listing_attributes().mount(|_| {}).await;
    conforms(make, "", Capabilities::ALL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_in_a_directory_conform() {
    let make = async || Bucket::in_directory().mount(|_| {}).await;
    conforms(make, "", Capabilities::ALL).await;
}

#[tokio::test]
async fn directories_as_buckets_conform() {
    for by_inode in [true, false] {
        let kept: Mutex<Vec<World>> = Mutex::default();
        let fresh = || async {
            let bucket = match by_inode {
                true => Bucket::by_inode(Mapping::Whole).await,
                false => Bucket::in_memory(),
            };
            let world = bucket.mount(|_| {}).await;
            let buckets = directory_buckets(&world.fs);
            kept.lock().unwrap().push(world);
            Ok(buckets as Arc<dyn store::Buckets>)
        };
        conformance::run_buckets(fresh).await.unwrap();
    }
}

/// Returns keys of few distinct characters, so that they collide in many ways; some are too long for a name.
fn any_text(entropy: &Entropy, pieces_max: u64) -> Vec<u8> {
    let long = vec![b'x'; 250 + entropy.below(8) as usize];
    let pieces: [&[u8]; 12] = [b"a", b"a", b"b", b"/", b"/", b"-", b".", b"%", b"%=", b"\0", b"\xff", &long];
    let count = 1 + entropy.below(pieces_max) as usize;
    (0..count).flat_map(|_| pieces[entropy.below(12) as usize].to_vec()).take(1024).collect()
}

async fn texts(store: &dyn ObjectStore, request: &ListRequest) -> Vec<Vec<u8>> {
    let entries = Pages::new(store, request.clone()).collect().await.unwrap();
    entries.iter().map(|entry| entry.text().to_vec()).collect()
}

/// The namespace orders names by directory, a listing orders keys: listings must equal those of a store that keeps keys.
#[tokio::test]
async fn listings_are_those_of_a_store_of_keys() {
    for seed in 0..20 {
        let entropy = Entropy::new(seed);
        let world = Bucket::by_inode(Mapping::Whole).await.mount(|_| {}).await;
        let objects = vfs::objects(&world.fs, b"");
        let model = MemoryStore::new(world.bucket.clock.clone());
        let mut keys = Vec::new();
        for _ in 0..40 {
            let key = ObjectKey::new(any_text(&entropy, 6)).unwrap();
            let put = objects.put(&key, "x".into(), PutOptions::default()).await;
            if !matches!(put, Err(StoreError::InvalidKey { .. })) {
                put.unwrap();
                model.put(&key, "x".into(), PutOptions::default()).await.unwrap();
                keys.push(key);
            }
        }
        for _ in 0..10 {
            let key = &keys[entropy.below(keys.len() as u64) as usize];
            objects.delete(key, Precondition::None).await.unwrap();
            model.delete(key, Precondition::None).await.unwrap();
        }
        for _ in 0..60 {
            let prefix = match entropy.below(3) {
                0 => Vec::new(),
                1 => any_text(&entropy, 2),
                _ => {
                    let key = keys[entropy.below(keys.len() as u64) as usize].as_bytes();
                    key[..entropy.below(key.len() as u64 + 1) as usize].to_vec()
                }
            };
            let start_after = (entropy.below(2) == 0).then(|| any_text(&entropy, 4).into());
            let delimiter = [None, Some(b'/'), Some(b'/'), Some(b'-'), Some(b'x')][entropy.below(5) as usize];
            let limit = 1 + entropy.below(5) as usize;
            let request = ListRequest {
                prefix: prefix.into(),
                delimiter,
                start_after,
                limit,
                ..ListRequest::default()
            };
            let (found, expected) = (texts(&objects, &request).await, texts(&model, &request).await);
            assert_eq!(found, expected, "seed {seed}, {request:?}");
        }
        for key in keys {
            objects.delete(&key, Precondition::None).await.unwrap();
        }
        assert_eq!(world.names("/").await.unwrap(), [""; 0], "seed {seed}");
        assert_eq!(world.fs.check().unwrap(), [""; 0]);
    }
}
