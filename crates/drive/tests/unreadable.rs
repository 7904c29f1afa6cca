//! Unreadable sectors: repaired from other devices, skipped where they are not needed, and reported.

use crate::array::{assert_all_there, drive_on, filled, formatted as array_of};
use crate::fixture::{DEVICE_BYTES, LENGTHS, body, bucket_of, fill, formatted, key, open, open_with};
use bytes::Bytes;
use drive::device::BLOCK_BYTES;
use drive::{Drive, Error, OpenOptions, Use};
use futures_util::TryStreamExt as _;
use sim::device::{Operation, OperationKind, SimDevice};
use store::{Buckets, GetOptions, ObjectKey, ObjectStore, Precondition, PutOptions, StoreError};

const MIB: u64 = 1 << 20;

/// Returns the writes since the last call.
fn writes(device: &SimDevice) -> Vec<Operation> {
    device.take_operations().into_iter().filter(|done| done.kind == OperationKind::Write).collect()
}

/// Returns the writes since the last call, longer than a block.
fn long_writes(device: &SimDevice) -> Vec<Operation> {
    writes(device).into_iter().filter(|done| done.len > BLOCK_BYTES).collect()
}

fn reads(device: &SimDevice) -> usize {
    device.take_operations().iter().filter(|done| done.kind == OperationKind::Read).count()
}

async fn read(store: &dyn ObjectStore, key: &ObjectKey) -> store::Result<Vec<u8>> {
    let object = store.get(key, GetOptions::default()).await?;
    Ok(object.body.try_collect::<Vec<Bytes>>().await?.concat())
}

/// A sector of one disk of an array was unreadable. The array read around it for ever, a scrub found nothing to repair, and the loss of
/// another disk lost the object. Tested for data and parity.
#[tokio::test]
async fn s490_a_scrub_rewrites_unreadable_blocks() {
    for unreadable in 0..3 {
        let devices = filled(2, 1).await;
        for at in (2 * MIB..33 * MIB).step_by(64 << 10) {
            devices[unreadable].spoil(at..at + BLOCK_BYTES);
        }
        let drive = drive_on(&devices, 0..3, false).unwrap();
        let scrubbed = drive.scrub(|_| ()).await.unwrap();
        assert_eq!(scrubbed.damaged, Vec::<String>::new(), "{unreadable}");
        assert!(scrubbed.repaired > 0, "{unreadable}");
        drop(drive);
        for lost in (0..3).filter(|&lost| lost != unreadable) {
            let devices: Vec<SimDevice> = devices.iter().map(SimDevice::fork).collect();
            let drive = drive_on(&devices, (0..3).filter(|&n| n != lost), false).unwrap();
            assert_all_there(&drive).await;
            assert_eq!(drive.scrub(|_| ()).await.unwrap().damaged, Vec::<String>::new(), "{lost}");
        }
    }
}

/// A GET repairs the blocks that it had to compute, also if each device of a mirror fails at another place.
#[tokio::test]
async fn s490_a_read_rewrites_the_blocks_it_had_to_compute() {
    let devices = array_of(2, 1, 33 * MIB);
    let drive = drive_on(&devices, 0..3, true).unwrap();
    let store = bucket_of(&drive).await;
    devices.iter().for_each(|device| drop(device.take_operations()));
    store.put(&key(5), body(5).into(), PutOptions::default()).await.unwrap();
    drop((drive, store));
    for (n, device) in devices.iter().enumerate() {
        let at = long_writes(device)[0].at + n as u64 * 8 * BLOCK_BYTES;
        device.spoil(at..at + BLOCK_BYTES);
    }
    let options = OpenOptions { read_cache_bytes: 0, ..OpenOptions::default() };
    let array = drive::device::Found::look(crate::array::named(&devices, 0..3)).open(false).unwrap();
    let io = drive::device::Io::Array(std::sync::Arc::new(array));
    let drive = Drive::open(io, options, std::sync::Arc::new(store::SystemClock)).unwrap();
    let store = Buckets::open(&drive, "photos").await.unwrap();
    assert!(read(&*store, &key(5)).await.unwrap() == body(5));
    // Parity is read only by a scrub.
    let before: Vec<u64> = devices.iter().map(|device| device.fired().unreadable).collect();
    assert!(read(&*store, &key(5)).await.unwrap() == body(5));
    let after: Vec<u64> = devices.iter().map(|device| device.fired().unreadable).collect();
    assert_eq!(before, after, "unreadable blocks remain");
}

/// Two devices may be lost. One of three cannot read a sector, and another has wrong bytes in the same row. If the sector were
/// rewritten from the wrong bytes, it would be lost for good.
#[tokio::test]
async fn unreadable_blocks_are_not_rewritten_from_a_damaged_device() {
    let devices = array_of(1, 2, 33 * MIB);
    let drive = drive_on(&devices, 0..3, true).unwrap();
    let store = bucket_of(&drive).await;
    devices.iter().for_each(|device| drop(device.take_operations()));
    store.put(&key(4), body(4).into(), PutOptions::default()).await.unwrap();
    drop((drive, store));
    let at = long_writes(&devices[0])[0].at;
    devices[0].spoil(at..at + BLOCK_BYTES);
    devices[1].flip(1, at..at + BLOCK_BYTES);
    let drive = drive_on(&devices, 0..3, false).unwrap();
    let store = Buckets::open(&drive, "photos").await.unwrap();
    assert!(read(&*store, &key(4)).await.unwrap() == body(4));
    assert_eq!(drive.scrub(|_| ()).await.unwrap().damaged, Vec::<String>::new());
    drop((drive, store));
    for (number, only) in devices[..3].iter().enumerate() {
        let drive = drive_on(&[only.fork()], [0], false).unwrap();
        let store = Buckets::open(&drive, "photos").await.unwrap();
        assert!(read(&*store, &key(4)).await.unwrap() == body(4), "{number}");
    }
}

/// A disk that fails every read was asked first by every read, and took the seconds of its error recovery each time.
#[tokio::test]
async fn a_device_that_fails_every_read_is_asked_last() {
    let devices = filled(2, 1).await;
    let array = drive::device::Found::look(crate::array::named(&devices, 0..3)).open(true).unwrap();
    devices[0].fail_reads(0..33 * MIB);
    let io = drive::device::Io::Array(std::sync::Arc::new(array));
    let options = OpenOptions { read_cache_bytes: 0, read_only: true, ..OpenOptions::default() };
    let drive = Drive::open(io, options, std::sync::Arc::new(store::SystemClock)).unwrap();
    let store = Buckets::open(&drive, "photos").await.unwrap();
    reads(&devices[0]);
    for _ in 0..100 {
        assert!(read(&*store, &key(5)).await.unwrap() == body(5));
    }
    let asked = reads(&devices[0]);
    assert!(asked < 30, "{asked} reads of a device that fails every read");
}

/// A device that fails reads and writes is excluded by the first read that would repair it, if the drive is open for writing.
#[tokio::test]
async fn a_device_that_fails_reads_and_writes_is_excluded_by_a_read() {
    let devices = filled(2, 1).await;
    let drive = drive_on(&devices, 0..3, false).unwrap();
    devices[0].break_down();
    assert_all_there(&drive).await;
    drop(drive);
    devices[0].heal();
    let found = drive::device::Found::look(crate::array::named(&devices, 0..3));
    assert_eq!(found.info().unwrap().members[0], drive::device::MemberState::Stale("dev0".into()));
}

// One device: the end of the log.

/// The power failed during the write of a frame, and left an unreadable sector. Unreadable sectors within 4 MiB of the log's end, or at the
/// beginning of a free zone, prevented the opening of the drive.
#[tokio::test]
async fn s491_an_unreadable_sector_behind_the_logs_end_is_no_damage() {
    let device = formatted();
    let drive = open(&device).unwrap();
    fill(&drive).await;
    drop(drive);
    let last = writes(&device).into_iter().rfind(|done| done.at > DEVICE_BYTES / 2).unwrap();
    let end = last.at + last.len;
    for at in [end, end + BLOCK_BYTES, end + (100 << 10), end + (512 << 10)] {
        let device = device.fork();
        device.spoil(at..at + BLOCK_BYTES);
        let drive = open(&device).unwrap();
        let store = Buckets::open(&drive, "photos").await.unwrap();
        for number in 0..LENGTHS.len() {
            assert!(read(&*store, &key(number)).await.unwrap() == body(number), "{at} {number}");
        }
        // Writing a sector makes it readable again.
        for _ in 0..20 {
            store.put(&key(3), body(3).into(), PutOptions::default()).await.unwrap();
        }
        drop((drive, store));
        let drive = open(&device).unwrap();
        assert_eq!(drive.scrub(|_| ()).await.unwrap().damaged, Vec::<String>::new());
    }
}

/// A device is broken if nothing of its log can be read. The log must not count as empty.
#[tokio::test]
async fn an_entirely_unreadable_log_is_an_error() {
    let device = formatted();
    fill(&open(&device).unwrap()).await;
    device.spoil(DEVICE_BYTES / 2..DEVICE_BYTES);
    assert!(matches!(open(&device), Err(Error::Device { .. })));
}

// Salvage.

/// A single frame in the middle of the log was unreadable, and so was the whole drive, although index and objects were intact.
#[tokio::test]
async fn s492_the_state_before_a_damaged_frame_can_be_read() {
    for is_unreadable in [false, true] {
        let device = formatted();
        let drive = open(&device).unwrap();
        fill(&drive).await;
        drive.close().await.unwrap();
        let store = Buckets::open(&drive, "photos").await.unwrap();
        long_writes(&device);
        for number in 0..5 {
            let key = ObjectKey::new(format!("later-{number}")).unwrap();
            store.put(&key, body(3).into(), PutOptions::default()).await.unwrap();
        }
        drop((drive, store));
        let damaged = long_writes(&device)[2];
        match is_unreadable {
            true => device.spoil(damaged.at..damaged.at + BLOCK_BYTES),
            false => drop(device.flip(1, damaged.at..damaged.at + damaged.len - BLOCK_BYTES)),
        }
        let error = open(&device).unwrap_err();
        assert!(error.is_damage() && error.to_string().starts_with("damaged: a frame of the log"), "{error}");
        device.take_operations();
        let drive =
            open_with(&device, OpenOptions { before_damage: true, ..OpenOptions::default() }).unwrap();
        let [loss] = drive.losses() else { panic!("{:?}", drive.losses()) };
        assert!(loss.contains("at least 2 commits"), "{loss}");
        let store = Buckets::open(&drive, "photos").await.unwrap();
        for number in 0..LENGTHS.len() {
            assert!(read(&*store, &key(number)).await.unwrap() == body(number), "{number}");
        }
        let later = |number: usize| ObjectKey::new(format!("later-{number}")).unwrap();
        for number in 0..5 {
            assert_eq!(store.find(&later(number)).await.unwrap().is_some(), number < 2, "{number}");
        }
        assert!(store.delete(&key(1), Precondition::None).await.is_err(), "the drive is open read-only");
        assert!(device.take_operations().iter().all(|done| done.kind == OperationKind::Read));
        let checked = drive.check().await.unwrap();
        assert_eq!((checked.objects, checked.problems.len()), (LENGTHS.len() as u64 + 2, 1), "{checked:?}");
    }
}

/// Returns the name of one of many objects. The names are so long that a few hundred fill several blocks of the index.
fn one_of_many(number: usize) -> ObjectKey {
    ObjectKey::new(format!("many-{number:05}-{}", "long".repeat(50))).unwrap()
}

async fn many(store: &dyn ObjectStore, from: usize, count: usize) {
    for number in from..from + count {
        store.put(&one_of_many(number), "x".into(), PutOptions::default()).await.unwrap();
    }
}

/// Returns the ranges of the index tables on the device.
fn tables(drive: &Drive) -> Vec<std::ops::Range<u64>> {
    let areas = drive.layout().unwrap().into_iter().filter(|area| area.what == Use::Index);
    areas.map(|area| area.at..area.at + area.len_bytes).collect()
}

/// A sector of an index table was unreadable. A scrub ended there without naming anything, and the drive could not be listed.
#[tokio::test]
async fn s492_the_readable_part_of_a_damaged_index_is_used() {
    let device = formatted();
    let drive = open(&device).unwrap();
    let store = bucket_of(&drive).await;
    many(&*store, 0, 400).await;
    drive.close().await.unwrap();
    let table = tables(&drive).swap_remove(0);
    drop((drive, store));
    device.spoil(table.start + 10 * BLOCK_BYTES..table.start + 11 * BLOCK_BYTES);
    let drive = open(&device).unwrap();
    let scrubbed = drive.scrub(|_| ()).await.unwrap();
    assert!((200..400).contains(&scrubbed.objects), "{}", scrubbed.objects);
    let says = |text: &str| scrubbed.damaged.iter().any(|line| line.contains(text));
    assert!(
        says("failed to read the index at byte") && says("entries up to 'many-"),
        "{:?}",
        scrubbed.damaged
    );
    let checked = drive.check().await.unwrap();
    assert!(checked.objects == scrubbed.objects && !checked.problems.is_empty());
    drop(drive);
    let drive = open_with(&device, OpenOptions { before_damage: true, ..OpenOptions::default() }).unwrap();
    assert!(
        drive.losses().iter().any(|line| line.contains("of 401 entries are readable")),
        "{:?}",
        drive.losses()
    );
    let store = Buckets::open(&drive, "photos").await.unwrap();
    let mut pages = store::Pages::new(&*store, store::ListRequest { limit: 1000, ..Default::default() });
    let mut listed = 0;
    while let Some(page) = pages.next().await.unwrap() {
        listed += page.len() as u64;
    }
    assert_eq!(listed, scrubbed.objects);
    drop((drive, store));
    // The first entries are those of buckets.
    device.spoil(table.start..table.start + BLOCK_BYTES);
    let drive = open_with(&device, OpenOptions { before_damage: true, ..OpenOptions::default() }).unwrap();
    assert!(
        drive.losses().iter().any(|line| line.contains("the name of a bucket is lost")),
        "{:?}",
        drive.losses()
    );
    let names = Buckets::list(&drive).await.unwrap();
    let store = Buckets::open(&drive, &names[0]).await.unwrap();
    assert!(read(&*store, &one_of_many(399)).await.unwrap() == b"x", "{names:?}");
}

/// A table with an unreadable end is left out. Objects named by other tables are there.
#[tokio::test]
async fn s492_a_table_that_cannot_be_opened_is_left_out() {
    let device = formatted();
    let drive = open(&device).unwrap();
    fill(&drive).await;
    let store = Buckets::open(&drive, "photos").await.unwrap();
    many(&*store, 0, 800).await;
    drive.close().await.unwrap();
    many(&*store, 800, 10).await;
    drive.close().await.unwrap();
    let lengths: Vec<u64> = drive.info().tables.iter().map(|(len_bytes, _)| *len_bytes).collect();
    assert_eq!(lengths.len(), 2, "{lengths:?}");
    let newest = tables(&drive).into_iter().find(|table| table.end - table.start < lengths[1]).unwrap();
    drop((drive, store));
    device.spoil(newest);
    assert!(open(&device).unwrap_err().is_damage());
    let drive = open_with(&device, OpenOptions { before_damage: true, ..OpenOptions::default() }).unwrap();
    assert_eq!(drive.losses().len(), 1, "{:?}", drive.losses());
    let store = Buckets::open(&drive, "photos").await.unwrap();
    assert!(read(&*store, &key(5)).await.unwrap() == body(5));
    assert!(store.find(&one_of_many(1)).await.unwrap().is_some());
    assert!(store.find(&one_of_many(801)).await.unwrap().is_none());
}

// Checkpoints.

/// A sector was unreadable in the short table that nearly every close leaves. Every checkpoint merges that table, so none succeeded any
/// more, the log was never freed, and after some thousand PUTs all writes failed for ever.
#[tokio::test]
async fn s493_an_unreadable_table_of_the_index_does_not_end_checkpoints() {
    for is_rotten in [false, true] {
        let device = formatted();
        let drive = open(&device).unwrap();
        let store = bucket_of(&drive).await;
        many(&*store, 0, 300).await;
        drive.close().await.unwrap();
        let table = tables(&drive).swap_remove(0);
        drop((drive, store));
        let second = table.start + 5 * BLOCK_BYTES..table.start + 6 * BLOCK_BYTES;
        match is_rotten {
            true => drop(device.flip(3, second)),
            false => device.spoil(second),
        }
        let drive = open(&device).unwrap();
        let store = Buckets::open(&drive, "photos").await.unwrap();
        for round in 0..40 {
            store.put(&key(round % 3), body(round % 3).into(), PutOptions::default()).await.unwrap();
            drive.maintain().await.unwrap();
            drive.close().await.unwrap();
            assert_eq!(drive.info().log_bytes, 0);
        }
        let tables = drive.info().tables.len();
        assert!(tables < 12, "{tables} tables");
    }
}

/// Regression: after a failed checkpoint, the log counted as empty, so the next checkpoint came late.
#[tokio::test]
async fn a_failed_checkpoint_keeps_the_length_of_the_log() {
    let device = formatted();
    let drive = open(&device).unwrap();
    let store = bucket_of(&drive).await;
    many(&*store, 0, 100).await;
    let length = drive.info().log_bytes;
    assert!(length > 0);
    // Runs and tables are at the beginning of the device, the log at its end.
    device.fail_writes(8192..DEVICE_BYTES / 2);
    drive.close().await.unwrap_err();
    assert_eq!(drive.info().log_bytes, length);
    device.heal();
    drive.close().await.unwrap();
    assert_eq!(drive.info().log_bytes, 0);
}

/// Checkpoints failed and the memtable was full. Every PUT copied the memtable and went on, so the memory grew without limit.
#[tokio::test]
async fn s493_without_checkpoints_growth_is_refused_and_deletions_continue() {
    let device = formatted();
    let options = OpenOptions { index_bytes: 400 << 10, ..OpenOptions::default() };
    let drive = open_with(&device, options).unwrap();
    let store = bucket_of(&drive).await;
    many(&*store, 0, 100).await;
    // Runs and tables are at the beginning of the device, the log at its end.
    device.fail_writes(8192..DEVICE_BYTES / 2);
    let mut refused = None;
    for number in 100..20_000 {
        if let Err(error) = store.put(&one_of_many(number), "x".into(), PutOptions::default()).await {
            refused = Some(error);
            break;
        }
    }
    let refused = refused.unwrap();
    assert!(
        matches!(&refused, StoreError::Unavailable(text) if text.contains("deletions go on")),
        "{refused}"
    );
    let kept_bytes = drive.info().index_memory_bytes;
    for number in 0..100 {
        let key = one_of_many(number);
        assert!(read(&*store, &key).await.unwrap() == b"x");
        store.delete(&key, Precondition::None).await.unwrap();
        assert!(store.put(&key, "x".into(), PutOptions::default()).await.is_err());
    }
    assert!(drive.info().index_memory_bytes < kept_bytes + 64_000);
    device.heal();
    drive.maintain().await.unwrap();
    store.put(&key(1), body(1).into(), PutOptions::default()).await.unwrap();
}
