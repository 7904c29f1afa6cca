//! Tests of the wrappers.

use bytes::Bytes;
use futures_util::TryStreamExt;
use std::sync::Arc;
use std::time::Duration;
use store::conformance::{self, Capabilities};
use store::memory::MemoryStore;
use store::wrap::{Fault, Faults, Faulty, Latency, Operation, Rule, Slow, Trace, Traced};
use store::{
    Entropy, GetOptions, ListRequest, ObjectKey, ObjectStore, Payload, Precondition, PutOptions, StoreError,
    SystemClock,
};
use tokio::time::Instant;

fn memory() -> MemoryStore {
    MemoryStore::new(Arc::new(SystemClock))
}

fn key(text: &str) -> ObjectKey {
    ObjectKey::try_from(text).unwrap()
}

async fn put(store: &dyn ObjectStore, name: &str, body: impl Into<Payload>) -> store::Result<()> {
    store.put(&key(name), body.into(), PutOptions::default()).await.map(drop)
}

async fn read(store: &dyn ObjectStore, name: &str) -> store::Result<Bytes> {
    let object = store.get(&key(name), GetOptions::default()).await?;
    Ok(object.body.try_collect::<Vec<Bytes>>().await?.concat().into())
}

/// Layers without rules do not change the store's behaviour, also around a shared store.
#[tokio::test(flavor = "multi_thread")]
async fn idle_layers_conform() {
    let fresh = || async {
        let shared: Arc<dyn ObjectStore> = Arc::new(memory());
        let traced = Traced::new(Slow::new(shared, Latency::new(Duration::ZERO)), Trace::new());
        Ok(Arc::new(Faulty::new(traced, Faults::new())) as Arc<dyn ObjectStore>)
    };
    conformance::run(fresh, Capabilities::ALL).await.unwrap();
}

#[tokio::test]
async fn rules_affect_only_matching_calls() {
    let store = Faulty::new(memory(), Faults::new());
    let faults = store.layer().clone();
    faults.add(Rule::new(Fault::throttled()).on(Operation::Put).at(&key("a")).after(1).times(2));
    put(&store, "a", "1").await.unwrap();
    put(&store, "b", "1").await.unwrap();
    for _ in 0..2 {
        assert!(matches!(put(&store, "a", "2").await, Err(StoreError::Throttled(_))));
    }
    assert_eq!(read(&store, "a").await.unwrap(), "1");
    put(&store, "a", "3").await.unwrap();
    assert_eq!(faults.struck(Operation::Put), 2);
    faults.add(Rule::new(Fault::unavailable()).below(b"dir/").always());
    assert!(put(&store, "dir/x", "1").await.unwrap_err().is_retryable());
    assert!(store.head(&key("dir/y")).await.unwrap_err().is_retryable());
    faults.clear();
    put(&store, "dir/x", "1").await.unwrap();
}

#[tokio::test]
async fn a_call_with_lost_response_has_taken_effect() {
    let store = Faulty::new(memory(), Faults::new());
    store.layer().add(Rule::new(Fault::lost_reply()).on(Operation::Put));
    assert!(matches!(put(&store, "a", "1").await, Err(StoreError::Unavailable(_))));
    assert_eq!(read(&store, "a").await.unwrap(), "1");
    store.layer().add(Rule::new(Fault::lost_reply()).on(Operation::Delete));
    store.delete(&key("a"), Precondition::None).await.unwrap_err();
    assert!(matches!(store.head(&key("a")).await, Err(StoreError::NotFound(_))));
}

#[tokio::test]
async fn bodies_break_off_or_change() {
    let store = Faulty::new(memory(), Faults::new());
    let rope: Payload = ["0123", "4567", "89"].into_iter().map(Bytes::from).collect();
    put(&store, "a", rope).await.unwrap();
    for after in [0, 3, 4, 5, 10] {
        store.layer().add(Rule::new(Fault::CutBody(after)));
        let mut body = store.get(&key("a"), GetOptions::default()).await.unwrap().body;
        let mut seen = Vec::new();
        let error = loop {
            match body.try_next().await {
                Ok(Some(chunk)) => seen.extend_from_slice(&chunk),
                Ok(None) => panic!("no error after {after} bytes"),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, StoreError::Corrupt(_)));
        assert_eq!(seen, b"0123456789"[..after as usize]);
    }
    store.layer().add(Rule::new(Fault::WrongByte(5)));
    assert_eq!(&read(&store, "a").await.unwrap()[..], b"01234\xca6789");
    store.layer().add(Rule::new(Fault::OtherEtag));
    let read_etag = store.get(&key("a"), GetOptions::default()).await.unwrap().meta.object.etag;
    assert_ne!(read_etag, store.head(&key("a")).await.unwrap().object.etag);
    assert_eq!(read(&store, "a").await.unwrap(), "0123456789");
}

#[tokio::test]
async fn a_stalled_call_waits_for_its_release() {
    let store = Arc::new(Faulty::new(memory(), Faults::new()));
    store.layer().add(Rule::new(Fault::Stall).on(Operation::Put));
    let stalled = tokio::spawn({
        let store = store.clone();
        async move { put(&store, "a", "late").await }
    });
    while store.layer().struck(Operation::Put) == 0 {
        tokio::task::yield_now().await;
    }
    put(&store, "a", "early").await.unwrap();
    assert_eq!(read(&store, "a").await.unwrap(), "early");
    store.layer().release();
    stalled.await.unwrap().unwrap();
    assert_eq!(read(&store, "a").await.unwrap(), "late");
}

#[tokio::test]
async fn nothing_works_while_the_store_is_down() {
    let store = Faulty::new(memory(), Faults::new());
    put(&store, "a", "1").await.unwrap();
    store.layer().set_down(true);
    assert!(matches!(put(&store, "a", "2").await, Err(StoreError::Unavailable(_))));
    assert!(matches!(store.list(ListRequest::default()).await, Err(StoreError::Unavailable(_))));
    store.layer().set_down(false);
    assert_eq!(read(&store, "a").await.unwrap(), "1");
}

#[tokio::test]
async fn one_seed_strikes_the_same_calls() {
    let outcomes = |seed| async move {
        let store = Faulty::new(memory(), Faults::new());
        let faults = vec![Fault::unavailable(), Fault::lost_reply()];
        store.layer().at_random(Arc::new(Entropy::new(seed)), 300, faults);
        let mut failed = Vec::new();
        for _ in 0..100 {
            failed.push(put(&store, "a", "x").await.is_err());
        }
        failed
    };
    let first = outcomes(1).await;
    assert_eq!(first, outcomes(1).await);
    assert_ne!(first, outcomes(2).await);
    assert!((10..50).contains(&first.iter().filter(|failed| **failed).count()));
}

#[tokio::test(start_paused = true)]
async fn latency_and_bandwidth_take_their_time() {
    let latency = Latency::new(Duration::from_millis(10))
        .with_operation(Operation::Put, Duration::from_millis(50))
        .with_bandwidth(1_000_000);
    let store = Slow::new(memory(), latency);
    let began = Instant::now();
    put(&store, "a", vec![0; 100_000]).await.unwrap();
    assert_eq!(began.elapsed().as_millis(), 150);
    read(&store, "a").await.unwrap();
    assert_eq!(began.elapsed().as_millis(), 260);
    store.head(&key("a")).await.unwrap();
    assert_eq!(began.elapsed().as_millis(), 270);
    let both = tokio::join!(read(&store, "a"), read(&store, "a"));
    assert!(both.0.is_ok() && both.1.is_ok());
    assert_eq!(began.elapsed().as_millis(), 480);
}

#[tokio::test]
async fn every_call_is_counted() {
    let store = Traced::new(memory(), Trace::new());
    put(&store, "a", "12345").await.unwrap();
    let before = store.layer().counts();
    read(&store, "a").await.unwrap();
    read(&store, "missing").await.unwrap_err();
    let upload = store.multipart(&key("b"), Default::default(), Default::default()).await.unwrap();
    upload.put_part(1, "123".into()).await.unwrap();
    upload.complete(Precondition::None).await.unwrap();
    let counts = store.layer().counts().since(&before);
    assert_eq!(counts.to_string(), "Get 2, BeginMultipart 1, PutPart 1, Complete 1");
    assert_eq!((counts.total(), counts.failures), (5, 1));
    assert_eq!((counts.sent_bytes, counts.received_bytes), (3, 5));
    assert_eq!(before.to_string(), "Put 1");
}

/// A regression test: bodies that the store refused were counted as sent.
#[tokio::test]
async fn s726_only_accepted_bodies_are_counted_as_sent() {
    let traced = Traced::new(memory(), Trace::new());
    put(&traced, "a", "123").await.unwrap();
    let options = PutOptions { precondition: Precondition::Absent, ..PutOptions::default() };
    let refused = traced.put(&key("a"), "12345".into(), options).await;
    assert!(matches!(refused, Err(StoreError::PreconditionFailed(_))));
    let counts = traced.layer().counts();
    assert_eq!((counts.sent_bytes, counts.failures, counts.of(Operation::Put)), (3, 1, 2));
}
