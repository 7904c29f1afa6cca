//! What `docs/semantics.md` says of the drive.

use crate::start::{DEVICE_BYTES, bucket_of, formatted, open};
use bytes::Bytes;
use drive::device::BLOCK_BYTES;
use futures_util::TryStreamExt as _;
use sim::device::{OperationKind, SimDevice};
use store::{
    Attributes, CopyOptions, GetOptions, ObjectKey, ObjectStore, Payload, Precondition, PutOptions,
    StoreError, Tags,
};

fn key(text: &str) -> ObjectKey {
    ObjectKey::new(Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

fn body(len: usize) -> Bytes {
    (0..len).map(|at| (at as u32).wrapping_mul(2_654_435_761) as u8).collect()
}

/// How many bytes were written to the device since it was asked last.
fn written(device: &SimDevice) -> u64 {
    device
        .take_operations()
        .into_iter()
        .filter(|done| done.kind == OperationKind::Write)
        .map(|done| done.len)
        .sum()
}

async fn read(store: &dyn ObjectStore, name: &str) -> Bytes {
    let object = store.get(&key(name), GetOptions::default()).await.unwrap();
    object.body.try_collect::<Vec<Bytes>>().await.unwrap().concat().into()
}

#[tokio::test(flavor = "multi_thread")]
async fn s302_a_copy_and_a_completion_move_no_data() {
    let device = formatted();
    let drive = open(&device).unwrap();
    let store = bucket_of(&drive).await;
    let bytes = body(20 << 20);
    let large = store.put(&key("large"), bytes.clone().into(), PutOptions::default()).await.unwrap();
    let upload = store.multipart(&key("joined"), Attributes::default(), Tags::new()).await.unwrap();
    upload.put_part(1, bytes.clone().into()).await.unwrap();
    upload.copy_part(2, &large, 5_000_000..6_000_000).await.unwrap();
    written(&device);
    store.copy(&large, &key("copy"), CopyOptions::default()).await.unwrap();
    upload.complete(Precondition::None).await.unwrap();
    assert!(written(&device) <= 4 * BLOCK_BYTES, "two small frames");
    store.delete(&key("large"), Precondition::None).await.unwrap();
    assert_eq!(read(&*store, "copy").await, bytes);
    assert_eq!(read(&*store, "joined").await, [&bytes[..], &bytes[5_000_000..6_000_000]].concat());
}

/// Puts objects of one length until the drive is full; their names.
async fn fill(store: &dyn ObjectStore, len: usize) -> Vec<String> {
    let bytes: Payload = body(len).into();
    let mut names = Vec::new();
    loop {
        let name = format!("{len}-{:06}", names.len());
        match store.put(&key(&name), bytes.clone(), PutOptions::default()).await {
            Ok(_) => names.push(name),
            Err(StoreError::Full(_)) => return names,
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s303_a_full_drive_takes_deletions_and_has_their_room_again() {
    for len in [100_000, 3 << 20] {
        let device = formatted();
        let drive = open(&device).unwrap();
        let store = bucket_of(&drive).await;
        let names = fill(&*store, len).await;
        let held = names.len() * len;
        assert!(held as u64 > DEVICE_BYTES * 3 / 4, "{len}: full with {held} bytes");
        for name in &names {
            assert_eq!(read(&*store, name).await.len(), len);
        }
        for name in names.iter().step_by(2) {
            store.delete(&key(name), Precondition::None).await.unwrap();
        }
        let again = fill(&*store, len).await;
        assert!(again.len() * 3 > names.len(), "{len}: {} of {} again", again.len(), names.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s304_opening_reads_no_object() {
    let device = formatted();
    let drive = open(&device).unwrap();
    let store = bucket_of(&drive).await;
    for number in 0..500 {
        store.put(&key(&format!("{number:06}")), body(150_000).into(), PutOptions::default()).await.unwrap();
    }
    drive.close().await.unwrap();
    drop((store, drive));
    device.take_operations();
    drop(open(&device).unwrap());
    let read: u64 = device
        .take_operations()
        .into_iter()
        .filter(|done| done.kind == OperationKind::Read)
        .map(|done| done.len)
        .sum();
    assert!(read < 20 << 20, "{read} bytes of 75 MB were read");
}
