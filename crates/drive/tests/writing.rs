//! Streaming writers: several senders at the same time.

use crate::fixture::{bucket_of, formatted, open};
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use futures_util::future::{join_all, poll_immediate};
use sim::device::OperationKind;
use std::time::Duration;
use store::{GetOptions, ObjectKey, ObjectStore, ObjectWriter, PutOptions, StoreError};

const MIB: usize = 1 << 20;

fn key(number: usize) -> ObjectKey {
    ObjectKey::new(Bytes::from(number.to_string().into_bytes())).unwrap()
}

fn piece(number: usize, at: usize) -> Bytes {
    vec![(number * 31 + at) as u8; 64 << 10].into()
}

async fn writers(store: &dyn ObjectStore, count: usize, len: usize) -> Vec<Box<dyn ObjectWriter>> {
    let writer = async |number| store.writer(&key(number), Some(len as u64)).await.unwrap().unwrap();
    join_all((0..count).map(writer)).await
}

#[tokio::test]
async fn s349_concurrent_streams_are_stored_contiguously() {
    let device = formatted();
    let drive = open(&device).unwrap();
    let store = bucket_of(&drive).await;
    let (count, pieces) = (8, 160);
    let mut writing = writers(&*store, count, pieces * (64 << 10)).await;
    drop(device.take_operations());
    for at in 0..pieces {
        for (number, writer) in writing.iter_mut().enumerate() {
            writer.write(piece(number, at)).await.unwrap();
        }
    }
    for writer in writing {
        writer.finish(PutOptions::default()).await.unwrap();
    }
    let done = device.take_operations().into_iter().filter(|done| done.kind == OperationKind::Write);
    let mut ranges: Vec<(u64, u64)> = done.map(|done| (done.at, done.at + done.len)).collect();
    ranges.sort_unstable();
    ranges.dedup_by(|next, one| {
        let follows = one.1 == next.0;
        one.1 = if follows { next.1 } else { one.1 };
        follows
    });
    let long = ranges.iter().filter(|(from, to)| to - from >= 10 * MIB as u64).count();
    assert!((1..=count).contains(&long), "{ranges:?}");
    assert!(ranges.len() <= count + 2, "one range for each object, and some for frames: {ranges:?}");
    for number in 0..count {
        let object = store.get(&key(number), GetOptions::default()).await.unwrap();
        let bytes: Vec<Bytes> = object.body.try_collect().await.unwrap();
        let expected: Vec<Bytes> = (0..pieces).map(|at| piece(number, at)).collect();
        assert!(bytes.concat() == expected.concat(), "object {number}");
    }
}

#[tokio::test]
async fn s349_abandoned_streams_take_no_space() {
    let device = formatted();
    let drive = open(&device).unwrap();
    let store = bucket_of(&drive).await;
    // Together they are twice as long as the drive.
    for round in 0..16 {
        for writer in &mut writers(&*store, 4, 8 * MIB).await {
            for at in 0..100 {
                writer.write(piece(round, at)).await.unwrap();
            }
        }
    }
    tokio::task::yield_now().await;
    let mut writer = writers(&*store, 1, 150 * MIB).await.remove(0);
    for at in 0..150 * 16 {
        writer.write(piece(0, at)).await.unwrap();
    }
    let object = writer.finish(PutOptions::default()).await.unwrap();
    assert_eq!(store.head(&object.key).await.unwrap().size_bytes, 150 * MIB as u64);
}

#[tokio::test(start_paused = true)]
async fn s190_slow_senders_take_bounded_memory() {
    let device = formatted();
    let drive = open(&device).unwrap();
    let store = bucket_of(&drive).await;
    let mut slow = Vec::new();
    let refused = loop {
        let mut writer = store.writer(&key(slow.len()), Some(3 * MIB as u64)).await.unwrap().unwrap();
        match writer.write(vec![1; 300 << 10].into()).await {
            Ok(()) => slow.push(writer),
            Err(error) => {
                // Regression: the object was stored without the refused bytes.
                writer.finish(PutOptions::default()).await.unwrap_err();
                break error;
            }
        }
    };
    assert!(matches!(refused, StoreError::Throttled(_)), "{refused}");
    assert!((16..=64).contains(&slow.len()), "{}", slow.len());
    let mut waiting = store.writer(&key(1000), None).await.unwrap().unwrap();
    let mut write = Box::pin(waiting.write(vec![2; 300 << 10].into()));
    assert!(poll_immediate(&mut write).await.is_none());
    drop(slow.pop());
    tokio::time::timeout(Duration::from_secs(1), write).await.unwrap().unwrap();
    // A writer whose bytes are in memory does not wait for them.
    store.put(&key(1001), vec![3; 3 * MIB].into(), PutOptions::default()).await.unwrap();
}
