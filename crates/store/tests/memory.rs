//! Tests of the memory store.

use std::collections::BTreeMap;
use std::sync::Arc;
use store::conformance::{self, Capabilities};
use store::memory::{MemoryBuckets, MemoryStore};
use store::{
    Attributes, Buckets, ListRequest, ObjectKey, ObjectStore, Payload, PutOptions, StoreError, SystemClock,
    Tags,
};

#[tokio::test(flavor = "multi_thread")]
async fn memory_conforms() {
    let fresh = || async { Ok(Arc::new(MemoryStore::new(Arc::new(SystemClock))) as Arc<dyn ObjectStore>) };
    conformance::run(fresh, Capabilities::ALL).await.unwrap();
    conformance::run_uploads(fresh, Capabilities::ALL).await.unwrap();
    conformance::run_versions(fresh, Capabilities::ALL).await.unwrap();
}

#[tokio::test]
async fn memory_buckets_conform() {
    let fresh = || async { Ok(Arc::new(MemoryBuckets::new(Arc::new(SystemClock))) as Arc<dyn Buckets>) };
    conformance::run_buckets(fresh).await.unwrap();
}

#[tokio::test]
async fn limits_of_s3_are_enforced() {
    let store = MemoryStore::new(Arc::new(SystemClock));
    let key = ObjectKey::try_from("a").unwrap();
    let user = BTreeMap::from([("k".to_owned(), "v".repeat(2048))]);
    let attributes = Attributes { user, ..Attributes::default() };
    let heavy = PutOptions { attributes, ..PutOptions::default() };
    assert!(matches!(store.put(&key, "x".into(), heavy).await, Err(StoreError::Invalid(_))));
    let tags: Tags = (0..11).map(|n| (n.to_string(), String::new())).collect();
    let tagged = PutOptions { tags, ..PutOptions::default() };
    assert!(matches!(store.put(&key, "x".into(), tagged).await, Err(StoreError::Invalid(_))));
    let upload = store.multipart(&key, store::Attributes::default(), store::Tags::new()).await.unwrap();
    upload.put_part(1, "too small".into()).await.unwrap();
    upload.put_part(2, "last".into()).await.unwrap();
    assert!(matches!(upload.complete(store::Precondition::None).await, Err(StoreError::Invalid(_))));
    assert!(matches!(upload.put_part(0, "x".into()).await, Err(StoreError::Invalid(_))));
    assert!(matches!(upload.put_part(10_001, "x".into()).await, Err(StoreError::Invalid(_))));
    assert_eq!(store.object_count(), 0);
}

/// Listing a level with one directory of 200,000 keys seeks over these keys, so that a thousand listings are quick.
#[tokio::test]
async fn folded_prefixes_are_skipped() {
    let store = MemoryStore::new(Arc::new(SystemClock));
    for number in 0..200_000 {
        let key = ObjectKey::try_from(format!("dir/{number:06}").as_str()).unwrap();
        store.put(&key, Payload::default(), PutOptions::default()).await.unwrap();
    }
    for _ in 0..1000 {
        let level = ListRequest { delimiter: Some(b'/'), limit: 1000, ..ListRequest::default() };
        assert_eq!(store.list(level).await.unwrap().entries.len(), 1);
    }
}
