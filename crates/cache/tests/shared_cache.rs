//! The cache that machines share.

use cache::{ObjectId, SEGMENT_BYTES, SharedCache};
use std::sync::Arc;
use std::time::Duration;
use store::memory::MemoryStore;
use store::wrap::{Latency, Wrapped};
use store::{ETag, ListEntry, ListRequest, ObjectKey, ObjectStore, Payload, PutOptions, SystemClock};

fn object() -> ObjectId {
    let key = ObjectKey::try_from(&b"key"[..]).unwrap();
    ObjectId::new("s3://bucket", &key, Some(&ETag::new("etag")))
}

/// Returns the only key of a store.
async fn only_key(store: &dyn ObjectStore) -> ObjectKey {
    let listed = store.list(ListRequest { limit: 10, ..ListRequest::default() }).await.unwrap();
    let [ListEntry::Object(one)] = &listed.entries[..] else { panic!("one object: {listed:?}") };
    one.object.key.clone()
}

#[tokio::test]
async fn s807_a_segment_is_read_by_another_machine() {
    let bucket = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
    let machines = [SharedCache::new(bucket.clone(), b"near/"), SharedCache::new(bucket.clone(), b"near/")];
    let segment: Vec<u8> = (0..SEGMENT_BYTES).map(|at| (at * 7 / 3) as u8).collect();
    assert_eq!(machines[1].read(object(), 3).await, None);
    machines[0].store(object(), 3, &segment).await;
    assert!(machines[1].read(object(), 3).await.unwrap() == segment);
    assert_eq!(machines[1].read(object(), 4).await, None);
    let counts = machines[1].counts();
    assert_eq!((counts.hit_bytes, counts.missed, counts.failures), (SEGMENT_BYTES, 2, 0));
    assert!(only_key(&*bucket).await.as_bytes().starts_with(b"near/"));
}

#[tokio::test]
async fn s807_damaged_segments_are_not_returned() {
    let bucket = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
    let cache = SharedCache::new(bucket.clone(), b"");
    cache.store(object(), 0, b"right bytes").await;
    let key = only_key(&*bucket).await;
    for wrong in [&b"wrong bytes\0\0\0\0"[..], b"", b"abc", &vec![0; SEGMENT_BYTES as usize + 5]] {
        let body = Payload::from(bytes::Bytes::copy_from_slice(wrong));
        bucket.put(&key, body, PutOptions::default()).await.unwrap();
        assert_eq!(cache.read(object(), 0).await, None);
    }
    assert_eq!(cache.counts().damaged, 4);
    cache.store(object(), 0, b"right bytes").await;
    assert_eq!(cache.read(object(), 0).await.unwrap(), &b"right bytes"[..]);
}

#[tokio::test(start_paused = true)]
async fn s807_a_cache_that_does_not_answer_is_left_alone_for_a_while() {
    let bucket = MemoryStore::new(Arc::new(SystemClock));
    let slow = Arc::new(Wrapped::new(bucket, Latency::new(Duration::from_secs(3600))));
    let cache = SharedCache::new(slow, b"");
    let began = tokio::time::Instant::now();
    for _ in 0..100 {
        assert_eq!(cache.read(object(), 0).await, None);
    }
    assert!(began.elapsed() < Duration::from_secs(3), "one time-out: {:?}", began.elapsed());
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(cache.read(object(), 0).await, None);
    assert_eq!(cache.counts().failures, 2, "it is tried again");
}
