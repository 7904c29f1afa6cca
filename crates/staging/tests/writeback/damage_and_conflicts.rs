//! Tests of damaged logs, of changes that the bucket refuses, and of other clients' objects that look like ours.

use super::{LATER, World, contents, key, open, options, read};
use bytes::Bytes;
use staging::conflict::{ConflictCallbacks, Resolution};
use staging::writeback::{Backlog, WritebackOptions};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use store::memory::MemoryStore;
use store::wrap::{Fault, Faults, Operation, Rule, Trace};
use store::{
    Attributes, CopyOptions, GetOptions, ObjectStore, Payload, Precondition, PutOptions, StoreError,
    SystemClock, Tags,
};
use tokio::time::Instant;

/// Regression: after one byte of a synced segment was flipped while the bucket was unreachable, 97 of 100 changes that
/// `sync` had acknowledged were truncated, with a single warning.
#[tokio::test]
async fn s445_damage_affects_only_the_damaged_record_and_is_reported() {
    let mut world = World::new(options(LATER));
    world.faults.set_down(true);
    for number in 0..100 {
        let body = Payload::from(vec![number as u8; 1000]);
        world.writeback.put(&key(format!("{number:03}")), body, PutOptions::default()).await.unwrap();
    }
    world.writeback.sync().await.unwrap();
    let log = world.dir.path().join(format!("{:016x}.log", 1));
    let mut bytes = std::fs::read(&log).unwrap();
    let hit = bytes.windows(1000).position(|window| window == [3; 1000]).unwrap() + 500;
    bytes[hit] ^= 1;
    std::fs::write(&log, &bytes).unwrap();
    world.reopen();
    assert_eq!(world.writeback.backlog().changes, 99);
    let damage = world.writeback.damage();
    assert_eq!((damage.ranges, &damage.keys[..]), (1, &[key("003")][..]));
    world.writeback.drained().await;
    assert_eq!(contents(&world.memory).await.len(), 99);
    // The damaged segment is kept even when none of its records is needed.
    world.reopen();
    world.put("more", "x", Precondition::None).await.unwrap();
    world.writeback.drained().await;
    let kept = world.dir.path().join(format!("{:016x}.damaged", 1));
    assert_eq!(std::fs::read(kept).unwrap(), bytes);
    world.reopen();
    assert_eq!(world.writeback.damage().files, 1);
}

/// Regression (world 343 of files): a record was damaged whose change was in the bucket already. The older change of the key, which it had
/// replaced, was taken for pending and uploaded over the newer object.
#[tokio::test(start_paused = true)]
async fn s445_damage_of_an_uploaded_change_does_not_revive_an_older_one() {
    let mut world = World::new(options(LATER));
    let away = Fault::Before(|| StoreError::Denied("refused".into()));
    world.faults.add(Rule::new(away).on(Operation::Put).at(&key("waits")).always());
    world.put("waits", "x", Precondition::None).await.unwrap();
    for fill in [1, 2] {
        let body = Payload::from(vec![fill; 1000]);
        world.writeback.put(&key("replaced"), body, PutOptions::default()).await.unwrap();
    }
    world.writeback.drained().await;
    assert_eq!(world.writeback.backlog().changes, 1, "the other change is uploaded");
    world.writeback.sync().await.unwrap();
    let log = world.dir.path().join(format!("{:016x}.log", 1));
    let mut bytes = std::fs::read(&log).unwrap();
    let hit = bytes.windows(1000).position(|window| window == [2; 1000]).unwrap() + 500;
    bytes[hit] ^= 1;
    std::fs::write(&log, &bytes).unwrap();
    world.faults.clear();
    world.reopen();
    assert_eq!((world.writeback.damage().ranges, world.writeback.backlog().changes), (1, 1));
    world.writeback.drained().await;
    let found = contents(&world.memory).await;
    assert!(found["replaced"] == vec![2; 1000] && found["waits"] == "x");
}

/// If the record of an object's bytes is damaged, the object is not uploaded with zeros, and the bucket's object stays.
#[tokio::test]
async fn s445_a_damaged_object_is_not_uploaded() {
    let mut world = World::new(options(LATER));
    world.memory.put(&key("large"), "old".into(), PutOptions::default()).await.unwrap();
    world.faults.set_down(true);
    let large = WritebackOptions { checks_at_once: false, ..options(LATER) };
    world.options = large;
    world.reopen();
    world.faults.set_down(true);
    for (name, fill) in [("large", 7), ("other", 8)] {
        let body = Payload::from(vec![fill; 100_000]);
        world.writeback.put(&key(name), body, PutOptions::default()).await.unwrap();
    }
    world.writeback.sync().await.unwrap();
    for entry in std::fs::read_dir(world.dir.path()).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(1000).position(|window| window == [7; 1000]) {
            bytes[at] ^= 1;
            std::fs::write(&path, bytes).unwrap();
        }
    }
    world.reopen();
    assert!(world.writeback.damage().keys.contains(&key("large")));
    world.writeback.drained().await;
    let found = contents(&world.memory).await;
    assert!(found["large"] == "old" && found["other"].len() == 100_000);
}

/// Regression: twenty changes that the bucket denied permanently were always retried first, so that none of fifty other
/// changes was uploaded.
#[tokio::test(start_paused = true)]
async fn s448_refused_changes_do_not_block_others() {
    let world = World::new(options(Duration::ZERO));
    let denied = Fault::Before(|| StoreError::Denied("by a policy".into()));
    world.faults.add(Rule::new(denied).on(Operation::Put).below(b"protected/").always());
    for number in 0..20 {
        world.put(&format!("protected/{number}"), "x", Precondition::None).await.unwrap();
    }
    for number in 0..50 {
        world.put(&format!("good/{number}"), "x", Precondition::None).await.unwrap();
    }
    let began = Instant::now();
    tokio::time::timeout(LATER, world.writeback.drained())
        .await
        .expect("an unmount does not wait for refused changes");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(contents(&world.memory).await.len(), 50);
    assert_eq!((world.writeback.backlog().changes, world.writeback.backlog().refused), (20, 20));
    // The policy is corrected.
    world.faults.clear();
    world.writeback.drained().await;
    assert_eq!(contents(&world.memory).await.len(), 70);
    assert_eq!(world.writeback.backlog(), Backlog::default());
}

#[tokio::test(start_paused = true)]
async fn s448_permanently_refused_changes_are_kept_in_lost_and_found() {
    let world = World::new(options(Duration::ZERO));
    world.memory.put(&key("protected/kept"), "old".into(), PutOptions::default()).await.unwrap();
    let denied = || Fault::Before(|| StoreError::Denied("by a policy".into()));
    world.faults.add(Rule::new(denied()).on(Operation::Put).below(b"protected/").always());
    world.faults.add(Rule::new(denied()).on(Operation::Delete).below(b"protected/").always());
    world.put("protected/new", "ours", Precondition::None).await.unwrap();
    world.writeback.delete(&key("protected/kept"), Precondition::None).await.unwrap();
    tokio::time::sleep(LATER).await;
    assert_eq!(world.writeback.backlog(), Backlog::default());
    let expected = [("lost/protected/new", "ours"), ("protected/kept", "old")];
    let expected = expected.map(|(name, body)| (name.to_owned(), Bytes::from(body)));
    assert_eq!(contents(&*world.writeback).await, BTreeMap::from(expected));
}

/// With inode naming, names refer to the key, and its bytes are read from the log. So a refused change stays in the log.
#[tokio::test(start_paused = true)]
async fn s448_a_refused_change_of_a_unique_key_stays_in_the_log() {
    let world = World::new(WritebackOptions { keys_are_used_once: true, ..options(Duration::ZERO) });
    let denied = Fault::Before(|| StoreError::Denied("by a policy".into()));
    world.faults.add(Rule::new(denied).on(Operation::Put).always());
    world.put("content", "ours", Precondition::None).await.unwrap();
    tokio::time::sleep(24 * LATER).await;
    assert_eq!(world.writeback.backlog().refused, 1);
    assert_eq!(read(&*world.writeback, "content").await.unwrap(), "ours");
}

/// Regression: another client's object of equal length was taken for ours. Our bytes were dropped without a copy in
/// `lost+found`, and the etag of our object referred to theirs.
#[tokio::test]
async fn s449_an_object_of_equal_length_and_metadata_is_not_taken_for_ours() {
    for body in ["OURS!", ""] {
        let world = World::new(options(LATER));
        world.put("file", body, Precondition::Absent).await.unwrap();
        let theirs = if body.is_empty() { "" } else { "their" };
        world.memory.put(&key("file"), theirs.into(), PutOptions::default()).await.unwrap();
        world.writeback.drained().await;
        let mut expected = BTreeMap::from([("file".to_owned(), Bytes::from(theirs))]);
        if !body.is_empty() {
            expected.insert("lost/file".to_owned(), body.into());
        }
        assert_eq!(contents(&world.memory).await, expected);
    }
}

/// Regression: another client's object that looked like an earlier change of ours was replaced by our newer change and lost.
#[tokio::test(start_paused = true)]
async fn s449_an_object_that_looks_like_an_earlier_change_of_ours_is_not_replaced() {
    let world = World::new(options(Duration::ZERO));
    world.faults.add(Rule::new(Fault::unavailable()).on(Operation::Put).always());
    let first = world.put("file", "first", Precondition::Absent).await.unwrap();
    // The change is tried and fails.
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.put("file", "second", Precondition::Matches(first.etag)).await.unwrap();
    world.memory.put(&key("file"), "their".into(), PutOptions::default()).await.unwrap();
    world.faults.clear();
    world.writeback.drained().await;
    let expected = [("file", "their"), ("lost/file", "second")];
    let expected = expected.map(|(name, body)| (name.to_owned(), Bytes::from(body)));
    assert_eq!(contents(&world.memory).await, BTreeMap::from(expected));
}

/// Regression: if a path was too long for `lost+found`, our object replaced theirs, while the message said that the bucket's
/// object stays.
#[tokio::test(start_paused = true)]
async fn s450_a_conflict_without_another_key_does_not_replace_theirs() {
    let world = World::new(WritebackOptions { lost: Arc::new(|key, _| key.clone()), ..options(LATER) });
    world.put("file", "ours", Precondition::Absent).await.unwrap();
    world.memory.put(&key("file"), "theirs".into(), PutOptions::default()).await.unwrap();
    tokio::time::timeout(LATER, world.writeback.drained()).await.unwrap();
    assert_eq!(read(&world.memory, "file").await.unwrap(), "theirs");
    assert_eq!(world.writeback.backlog().refused, 1);
    assert_eq!(read(&*world.writeback, "file").await.unwrap(), "ours");
}

/// Regression: with the policy `file-wins`, their object was copied onto itself and then replaced.
#[tokio::test(start_paused = true)]
async fn s450_theirs_is_not_replaced_without_a_copy() {
    let world = World::new(options(LATER));
    world.writeback.set_conflict_callbacks(ConflictCallbacks {
        decide: Arc::new(|conflict| Resolution::TheirsTo(conflict.key.clone())),
        record: Arc::new(|_| Box::pin(async { Ok(()) })),
        resolved: Arc::new(|_| ()),
    });
    world.put("file", "ours", Precondition::Absent).await.unwrap();
    world.memory.put(&key("file"), "theirs".into(), PutOptions::default()).await.unwrap();
    tokio::time::timeout(LATER, world.writeback.drained()).await.unwrap();
    assert_eq!(read(&world.memory, "file").await.unwrap(), "theirs");
    assert_eq!(world.writeback.backlog().refused, 1);
}

/// Regression: an object longer than the log's disk failed with ENOSPC and left an empty file, although the log had been
/// uploaded long before.
#[tokio::test]
async fn s452_an_object_larger_than_the_disk_is_uploaded_in_parts() {
    let disk = servers::SmallDisk::with_room_for(30 << 20);
    let (memory, faults, trace) = (MemoryStore::new(Arc::new(SystemClock)), Faults::new(), Trace::new());
    let writeback = open(&disk.path().join("log"), &memory, &faults, &trace, &options(Duration::ZERO));
    writeback.put(&key("large"), "old".into(), PutOptions::default()).await.unwrap();
    let upload = writeback.multipart(&key("large"), Attributes::default(), Tags::new()).await.unwrap();
    for number in 1..=9u8 {
        upload.put_part(u32::from(number), vec![number; 8 << 20].into()).await.unwrap();
    }
    upload.complete(Precondition::None).await.unwrap();
    let found = read(&*writeback, "large").await.unwrap();
    assert_eq!(found.len(), 9 * (8 << 20));
    assert!(found.chunks(8 << 20).zip(1..).all(|(part, number)| part.iter().all(|byte| *byte == number)));
    writeback.put(&key("more"), vec![1; 8 << 20].into(), PutOptions::default()).await.unwrap();
    writeback.drained().await;
    assert_eq!(contents(&memory).await.len(), 2);
}

/// Regression: a GET of an object with waiting new attributes returned NotFound after another client had replaced the object
/// (world of both sides 2006722).
#[tokio::test]
async fn another_clients_object_is_read_while_new_attributes_wait() {
    let world = World::new(options(LATER));
    world.memory.put(&key("file"), "ours".into(), PutOptions::default()).await.unwrap();
    let file = world.writeback.head(&key("file")).await.unwrap().object;
    let attributes = Some(Attributes { content_type: Some("text/new".into()), ..Attributes::default() });
    let other = CopyOptions { attributes, ..CopyOptions::default() };
    let described = world.writeback.copy(&file, &key("file"), other).await.unwrap();
    assert_eq!(read(&*world.writeback, "file").await.unwrap(), "ours");
    world.memory.put(&key("file"), "theirs".into(), PutOptions::default()).await.unwrap();
    assert_eq!(read(&*world.writeback, "file").await.unwrap(), "theirs");
    let exactly = GetOptions { if_match: Some(described.etag), ..GetOptions::default() };
    let refused = world.writeback.get(&key("file"), exactly).await;
    assert!(matches!(refused, Err(StoreError::PreconditionFailed(_))), "{refused:?}");
    world.memory.delete(&key("file"), Precondition::None).await.unwrap();
    let gone = read(&*world.writeback, "file").await;
    assert!(matches!(gone, Err(StoreError::NotFound(_))), "{gone:?}");
}

/// A loss of power removed the record of an upload, however old it was. The object was uploaded again, although another client had deleted it
/// (world of dual 58).
#[tokio::test]
async fn the_record_of_an_upload_soon_survives_a_loss_of_power() {
    let world = World::new(options(LATER));
    world.put("a", "body", Precondition::Absent).await.unwrap();
    world.writeback.sync().await.unwrap();
    let before = world.writeback.synced();
    world.writeback.drained().await;
    let synced = async {
        while world.writeback.synced() == before {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), synced).await.unwrap();
}

/// Regression: another client replaced an empty object while it was copied onto itself with other headers. The copy then replaced what
/// the other client had stored (world of both sides 102622).
#[tokio::test(start_paused = true)]
async fn an_object_that_is_replaced_while_it_is_copied_onto_itself_is_another_clients() {
    let world = World::new(options(Duration::ZERO));
    let place = key("shared/a");
    world.put("shared/a", "", Precondition::None).await.unwrap();
    world.writeback.drained().await;
    let from = world.writeback.head(&place).await.unwrap().object;
    world.faults.add(Rule::new(Fault::Stall).on(Operation::GetTags).at(&place));
    let copy = tokio::spawn({
        let writeback = world.writeback.clone();
        let options = CopyOptions { attributes: Some(Attributes::default()), ..CopyOptions::default() };
        async move { writeback.copy(&from, &from.key, options).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.memory.put(&place, "theirs".into(), PutOptions::default()).await.unwrap();
    world.faults.release();
    assert!(matches!(copy.await.unwrap(), Err(StoreError::PreconditionFailed(_))));
    world.writeback.drained().await;
    assert_eq!(contents(&world.memory).await, BTreeMap::from([("shared/a".into(), Bytes::from("theirs"))]));
}

/// After a restart without the record of an upload, the object is recognized by the bytes of the earlier change. Before, these bytes were in
/// an object that the log had deleted, or the record of the earlier change was gone, and the newer change went to `lost+found` (worlds of
/// files 20056352 and 20096783).
#[tokio::test(start_paused = true)]
async fn an_earlier_change_whose_upload_was_not_recorded_is_recognised() {
    for is_copy in [false, true] {
        let mut world = World::new(options(Duration::ZERO));
        let old = world.put("old", "old", Precondition::None).await.unwrap();
        world.writeback.drained().await;
        world.faults.add(Rule::new(Fault::lost_reply()).at(&key("new")).always());
        match is_copy {
            true => {
                let old = world.writeback.head(&key("old")).await.unwrap().object;
                world.writeback.copy(&old, &key("new"), CopyOptions::default()).await.map(drop).unwrap();
            }
            false => world.put("new", "", Precondition::Absent).await.map(drop).unwrap(),
        }
        world.writeback.sync().await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(contents(&world.memory).await.len(), 2, "{old:?} and an upload without an answer");
        world.reopen();
        world.faults.set_down(true);
        world.writeback.delete(&key("old"), Precondition::None).await.unwrap();
        world.put("new", "new", Precondition::None).await.unwrap();
        world.writeback.sync().await.unwrap();
        for _ in 0..2 {
            world.reopen();
            world.faults.set_down(true);
            world.put("other", "x", Precondition::None).await.unwrap();
        }
        world.faults.set_down(false);
        world.writeback.drained().await;
        let expected =
            [("new", "new"), ("other", "x")].map(|(name, body)| (name.to_owned(), Bytes::from(body)));
        assert_eq!(contents(&world.memory).await, BTreeMap::from(expected), "copy: {is_copy}");
    }
}

/// Two objects that were exchanged wait for each other. Another client replaced both, and nothing was uploaded any more: the bytes to copy into the
/// log, so that one of them could go first, were gone (dual world 67,052,611).
#[tokio::test(start_paused = true)]
async fn exchanged_objects_whose_bytes_are_gone_do_not_stop_uploads() {
    let world = World::new(options(LATER));
    for name in ["a", "b"] {
        world.memory.put(&key(name), name.into(), PutOptions::default()).await.unwrap();
    }
    for (from, to) in [("a", "t"), ("b", "a"), ("t", "b")] {
        let from = world.writeback.head(&key(from)).await.unwrap().object;
        world.writeback.copy(&from, &key(to), CopyOptions::default()).await.unwrap();
    }
    world.writeback.delete(&key("t"), Precondition::None).await.unwrap();
    assert_eq!(
        (read(&*world.writeback, "a").await.unwrap(), read(&*world.writeback, "b").await.unwrap()),
        ("b".into(), "a".into())
    );
    for name in ["a", "b"] {
        world.memory.put(&key(name), "theirs".into(), PutOptions::default()).await.unwrap();
    }
    world.put("other", "x", Precondition::None).await.unwrap();
    tokio::time::timeout(Duration::from_secs(3600), world.writeback.drained()).await.unwrap();
    let found = contents(&world.memory).await;
    assert_eq!(
        (&found["a"][..], &found["b"][..], &found["other"][..]),
        (&b"theirs"[..], &b"theirs"[..], &b"x"[..])
    );
}

/// A copy is to replace an earlier object whose upload was not recorded, and another client has replaced the source. Nothing was uploaded any
/// more: the copy was tried again for good (dual world 71,004,367).
#[tokio::test(start_paused = true)]
async fn a_copy_over_an_earlier_change_whose_source_is_gone_does_not_stop_uploads() {
    let mut world = World::new(options(Duration::ZERO));
    world.put("old", "old", Precondition::None).await.unwrap();
    world.writeback.drained().await;
    world.faults.add(Rule::new(Fault::lost_reply()).on(Operation::Put).at(&key("new")).always());
    world.put("new", "earlier", Precondition::Absent).await.unwrap();
    world.faults.add(Rule::new(Fault::unavailable()).on(Operation::Head).at(&key("new")).always());
    world.writeback.sync().await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.reopen();
    let old = world.writeback.head(&key("old")).await.unwrap().object;
    world.writeback.copy(&old, &key("new"), CopyOptions::default()).await.unwrap();
    world.memory.put(&key("old"), "theirs".into(), PutOptions::default()).await.unwrap();
    world.faults.clear();
    world.put("other", "x", Precondition::None).await.unwrap();
    tokio::time::timeout(Duration::from_secs(3600), world.writeback.drained()).await.unwrap();
    let expected = [("new", "earlier"), ("old", "theirs"), ("other", "x")];
    let expected = expected.map(|(name, body)| (name.to_owned(), Bytes::from(body)));
    assert_eq!(contents(&world.memory).await, BTreeMap::from(expected));
}
