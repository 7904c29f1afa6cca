//! Tests of uploads that begin while the object is written, and of uploads before the log is synced.

use super::{LATER, World, contents, key, options, read};
use bytes::Bytes;
use staging::writeback::WritebackOptions;
use std::sync::Arc;
use std::time::Duration;
use store::wrap::{Fault, Operation, Rule};
use store::{Attributes, Multipart, ObjectStore, Payload, Precondition, StoreError, Tags};

const PART_BYTES: usize = 100_000;

fn early() -> WritebackOptions {
    WritebackOptions { early_bytes: 1, ..options(LATER) }
}

fn part(number: u32) -> Payload {
    Payload::from(vec![number as u8; PART_BYTES])
}

fn whole(parts: u32) -> Bytes {
    (1..=parts).flat_map(|number| vec![number as u8; PART_BYTES]).collect()
}

async fn begin(world: &World) -> Arc<dyn Multipart> {
    world.writeback.multipart(&key("long"), Attributes::default(), Tags::new()).await.unwrap()
}

/// Waits until the bucket has received this many calls of an operation.
async fn until(world: &World, operation: Operation, count: u64) {
    while world.trace.counts().of(operation) < count {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Regression: a file of 10 GB was written to the log first and uploaded after it was closed, which doubled the time until
/// the bucket had it.
#[tokio::test]
async fn s541_parts_are_uploaded_while_later_parts_are_written() {
    let world = World::new(early());
    let upload = begin(&world).await;
    for number in 1..=3 {
        upload.put_part(number, part(number)).await.unwrap();
        until(&world, Operation::PutPart, number.into()).await;
    }
    assert_eq!(contents(&world.memory).await.len(), 0);
    upload.complete(Precondition::Absent).await.unwrap();
    assert_eq!(read(&*world.writeback, "long").await.unwrap(), whole(3));
    assert_eq!(world.trace.counts().of(Operation::Complete), 0);
    world.writeback.drained().await;
    let counts = world.trace.counts();
    assert_eq!((counts.of(Operation::PutPart), counts.of(Operation::Complete)), (3, 1));
    assert_eq!(read(&world.memory, "long").await.unwrap(), whole(3));
}

/// The log has every byte: if the upload of a part fails, the early upload is aborted and the object is uploaded from the
/// log.
#[tokio::test(start_paused = true)]
async fn a_failed_part_aborts_only_the_early_upload() {
    for operation in [Operation::BeginMultipart, Operation::PutPart, Operation::Complete] {
        let world = World::new(early());
        world.faults.add(Rule::new(Fault::unavailable()).on(operation).times(1));
        let upload = begin(&world).await;
        for number in 1..=3 {
            upload.put_part(number, part(number)).await.unwrap();
        }
        upload.complete(Precondition::Absent).await.unwrap();
        world.writeback.drained().await;
        assert_eq!(world.faults.struck(operation), 1);
        assert_eq!(read(&world.memory, "long").await.unwrap(), whole(3));
    }
}

/// Regression: later parts held all memory while earlier parts in the queue waited for memory, so that none was uploaded.
#[tokio::test]
async fn parts_are_uploaded_with_memory_for_one() {
    let world = World::new(WritebackOptions { memory_bytes: PART_BYTES as u64, ..early() });
    let upload = begin(&world).await;
    for number in 1..=12 {
        upload.put_part(number, part(number)).await.unwrap();
    }
    upload.complete(Precondition::Absent).await.unwrap();
    tokio::time::timeout(LATER, world.writeback.drained()).await.unwrap();
    assert_eq!(world.trace.counts().of(Operation::PutPart), 12);
    assert_eq!(read(&world.memory, "long").await.unwrap(), whole(12));
}

/// A crash leaves parts in the bucket and the object in the log.
#[tokio::test]
async fn an_interrupted_early_upload_is_repeated_from_the_log() {
    let mut world = World::new(early());
    let upload = begin(&world).await;
    for number in 1..=3 {
        upload.put_part(number, part(number)).await.unwrap();
    }
    until(&world, Operation::PutPart, 2).await;
    upload.complete(Precondition::Absent).await.unwrap();
    world.reopen();
    world.writeback.drained().await;
    assert_eq!(read(&world.memory, "long").await.unwrap(), whole(3));
}

/// Parts of abandoned uploads are removed from the bucket, because they cost money.
#[tokio::test]
async fn s541_an_abandoned_early_upload_is_aborted() {
    let world = World::new(early());
    let upload = begin(&world).await;
    upload.put_part(1, part(1)).await.unwrap();
    until(&world, Operation::PutPart, 1).await;
    upload.abort().await.unwrap();
    until(&world, Operation::Abort, 1).await;

    let upload = begin(&world).await;
    upload.put_part(1, part(1)).await.unwrap();
    until(&world, Operation::PutPart, 2).await;
    upload.complete(Precondition::Absent).await.unwrap();
    drop(upload);
    world.writeback.delete(&key("long"), Precondition::None).await.unwrap();
    until(&world, Operation::Abort, 2).await;
    world.writeback.drained().await;
    assert_eq!(contents(&world.memory).await.len(), 0);
}

/// A part that is written again replaces the earlier part, whose upload may be in flight.
#[tokio::test]
async fn a_part_written_again_replaces_the_earlier_one() {
    let world = World::new(early());
    let upload = begin(&world).await;
    for number in [1, 2, 9, 2] {
        let bytes = part(number);
        upload.put_part(number.min(3), bytes).await.unwrap();
    }
    upload.put_part(1, part(7)).await.unwrap();
    upload.put_part(3, part(3)).await.unwrap();
    upload.complete(Precondition::Absent).await.unwrap();
    world.writeback.drained().await;
    let expected: Bytes = [7, 2, 3].into_iter().flat_map(|fill| vec![fill; PART_BYTES]).collect();
    assert_eq!(read(&world.memory, "long").await.unwrap(), expected);
}

/// Returns a world whose log has a blocked change, so that the log is not removed.
async fn with_blocked_change() -> World {
    let world = World::new(options(LATER));
    let denied = Fault::Before(|| StoreError::Denied("by a policy".into()));
    world.faults.add(Rule::new(denied).on(Operation::Put).at(&key("held")).always());
    world.put("held", "held", Precondition::Absent).await.unwrap();
    world
}

fn is_anything_synced(world: &World) -> bool {
    world.writeback.synced().iter().any(|(_, bytes)| *bytes > 0)
}

/// Regression: every object was synced to the log before its upload, so that each byte was written twice to one disk and the
/// durable throughput was half of that without write-back. A new object needs no synced record: after a power failure the
/// bucket has the object, and the log has nothing that contradicts it.
#[tokio::test]
async fn s542_a_new_object_is_uploaded_without_a_sync_of_the_log() {
    let world = with_blocked_change().await;
    for number in 0..10 {
        world.put(&format!("new {number}"), "one", Precondition::Absent).await.unwrap();
    }
    world.writeback.drained().await;
    assert_eq!(contents(&world.memory).await.len(), 10);
    assert!(!is_anything_synced(&world));
}

/// A change that replaces or deletes an object is uploaded after a sync of the log, as is a new object at a key with earlier
/// changes in the log. Otherwise these could reappear after a power failure and overwrite the object or cause a conflict.
#[tokio::test]
async fn s542_changes_that_the_log_could_contradict_are_uploaded_after_a_sync() {
    for step in ["replaced before it goes up", "deleted before it goes up", "deleted by others"] {
        let world = with_blocked_change().await;
        world.put("a", "one", Precondition::Absent).await.unwrap();
        if step == "replaced before it goes up" {
            world.put("a", "two", Precondition::None).await.unwrap();
        } else if step == "deleted before it goes up" {
            world.writeback.delete(&key("a"), Precondition::None).await.unwrap();
            world.put("a", "two", Precondition::Absent).await.unwrap();
        } else {
            world.writeback.drained().await;
            world.memory.delete(&key("a"), Precondition::None).await.unwrap();
            world.put("a", "two", Precondition::Absent).await.unwrap();
        }
        world.writeback.drained().await;
        assert_eq!(read(&world.memory, "a").await.unwrap(), "two");
        assert!(is_anything_synced(&world), "{step}");
    }
}
