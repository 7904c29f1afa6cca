//! Damaged, failing, truncated and foreign devices: a clear error, never a panic, never wrong bytes.

use crate::fixture::{DEVICE_BYTES, LENGTHS, body, fill, formatted, key, open};
use bytes::Bytes;
use drive::device::{BLOCK_BYTES, BlockDevice, FileDevice};
use drive::kv::{Batch, StoreOptions};
use drive::{Drive, Error, FormatOptions, OpenOptions};
use futures_util::TryStreamExt as _;
use sim::device::{Operation, OperationKind, SimDevice};
use std::sync::Arc;
use store::{
    Buckets, Entropy, GetOptions, ListEntry, ListRequest, ListedObject, ObjectKey, ObjectStore, Precondition,
    PutOptions, Removal, StoreError, SystemClock,
};

/// Returns a drive with objects of every kind of body, in tables and in the log.
async fn filled() -> SimDevice {
    let device = formatted();
    let drive = open(&device).unwrap();
    fill(&drive).await;
    device
}

/// Checks that objects have their bytes or cannot be read. Returns the number that can.
async fn read_all(drive: &Drive) -> usize {
    let Ok(store) = Buckets::open(drive, "photos").await else { return 0 };
    let listed = store.list(ListRequest { limit: 100, ..ListRequest::default() }).await;
    let mut read = 0;
    for entry in listed.map(|page| page.entries).unwrap_or_default() {
        let ListEntry::Object(ListedObject { object, size_bytes, .. }) = entry else { continue };
        let number = LENGTHS.iter().position(|len| key_is(&object.key, *len, size_bytes)).unwrap();
        let Ok(object) = store.get(&object.key, GetOptions::default()).await else { continue };
        let Ok(pieces) = object.body.try_collect::<Vec<Bytes>>().await else { continue };
        assert!(pieces.concat() == body(number), "object {number} has wrong bytes");
        read += 1;
    }
    read
}

fn key_is(found: &ObjectKey, len: usize, size_bytes: u64) -> bool {
    let number = LENGTHS.iter().position(|known| *known == len).unwrap();
    *found == key(number) && len as u64 == size_bytes
}

fn one_line(error: &Error) -> String {
    let text = error.to_string();
    assert!(!text.contains('\n') && !text.is_empty(), "{text}");
    text
}

#[tokio::test]
async fn one_damaged_superblock_is_replaced_and_two_are_an_error() {
    let device = filled().await;
    device.flip(1, 0..4096);
    assert_eq!(read_all(&open(&device).unwrap()).await, LENGTHS.len());
    // An unreadable copy prevented the opening. It counts as damaged.
    device.fail_reads(0..4096);
    assert_eq!(read_all(&open(&device).unwrap()).await, LENGTHS.len());
    device.heal();
    // The opening has repaired it.
    device.flip(2, 4096..8192);
    assert_eq!(read_all(&open(&device).unwrap()).await, LENGTHS.len());
    device.flip(3, 8..4096);
    device.flip(4, 4096 + 8..8192);
    let error = open(&device).unwrap_err();
    assert!(one_line(&error).starts_with("damaged: both superblocks"), "{error}");
}

/// The power failed between the two copies of the superblock, the drive was used further, and the first copy of the next checkpoint was
/// torn. The second copy still named a manifest whose blocks were reused.
#[tokio::test]
async fn two_interrupted_checkpoints_do_not_lead_to_an_old_manifest() {
    for (first, second) in (0..40).flat_map(|first| [(first, 0), (first, 4), (first, 6), (first, 8)]) {
        let device = filled().await;
        let drive = open(&device).unwrap();
        device.cut_power_after(first);
        let _cut = drive.close().await;
        drop(drive);
        device.crash(first);
        let drive = open(&device).unwrap();
        let store = Buckets::open(&drive, "photos").await.unwrap();
        store.put(&key(1), body(1).into(), PutOptions::default()).await.unwrap();
        device.cut_power_after(second);
        let _cut = drive.close().await;
        drop((drive, store));
        device.crash(second);
        assert_eq!(read_all(&open(&device).unwrap()).await, LENGTHS.len(), "{first} {second}");
    }
}

#[tokio::test]
async fn flipped_bits_are_an_error_or_change_nothing() {
    let device = filled().await;
    for seed in 0..300 {
        let copy = device.fork();
        let entropy = Entropy::new(seed);
        for _ in 0..1 + entropy.below(20) {
            let ranges = [0..8192, 0..DEVICE_BYTES, 8192..8 << 20, DEVICE_BYTES - (4 << 20)..DEVICE_BYTES];
            copy.flip(entropy.next_u64(), ranges[entropy.below(4) as usize].clone());
        }
        match open(&copy) {
            Ok(drive) => drop(read_all(&drive).await),
            Err(error) => drop(one_line(&error)),
        }
    }
}

#[tokio::test]
async fn devices_without_a_drive_are_refused_as_such() {
    let zeros = open(&SimDevice::new(DEVICE_BYTES)).unwrap_err();
    assert!(matches!(zeros, Error::Foreign(_)), "{zeros}");
    assert!(one_line(&zeros).contains("tenon drive format"), "{zeros}");
    let device = SimDevice::new(DEVICE_BYTES);
    for seed in 0..2000 {
        device.flip(seed, 0..16_384);
    }
    assert!(matches!(open(&device).unwrap_err(), Error::Foreign(_)));
    // An ext4 file system begins with a kilobyte of zeros, then its superblock.
    let mut ext4 = vec![0; 4096];
    ext4[1024 + 56..1024 + 58].copy_from_slice(&[0x53, 0xef]);
    device.write_at(0, &ext4).unwrap();
    assert!(matches!(open(&device).unwrap_err(), Error::Foreign(_)));
}

#[tokio::test]
async fn a_foreign_superblock_is_damage_of_the_manifest() {
    let device = filled().await;
    let another = SimDevice::new(DEVICE_BYTES);
    let as_device: Arc<dyn BlockDevice> = Arc::new(another.clone());
    Drive::format(&as_device, FormatOptions::default(), &Entropy::new(99)).unwrap();
    let drive = open(&another).unwrap();
    drive.create("others").await.unwrap();
    drive.close().await.unwrap();
    let mut superblocks = vec![0; 8192];
    another.read_at(0, &mut superblocks).unwrap();
    device.write_at(0, &superblocks).unwrap();
    let error = open(&device).unwrap_err();
    assert!(one_line(&error).starts_with("damaged: the manifest"), "{error}");
}

#[tokio::test]
async fn a_drive_of_a_later_version_is_refused() {
    let device = filled().await;
    let mut block = vec![0; 4096];
    device.read_at(0, &mut block).unwrap();
    block[7] = 3;
    let end = block.len() - 4;
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &block[..end]) as u32;
    block[end..].copy_from_slice(&sum.to_le_bytes());
    device.write_at(0, &block).unwrap();
    device.write_at(4096, &block).unwrap();
    let error = open(&device).unwrap_err();
    assert!(
        one_line(&error)
            .contains("has format version 3, but this Tenon supports version 2: use the Tenon that wrote it"),
        "{error}"
    );
}

#[tokio::test]
async fn a_truncated_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive");
    std::fs::File::create(&path).unwrap().set_len(64 << 20).unwrap();
    let device = || -> Arc<dyn BlockDevice> { Arc::new(FileDevice::open(&path).unwrap()) };
    Drive::format(&device(), FormatOptions::default(), &Entropy::new(1)).unwrap();
    let open = || Drive::open(device(), OpenOptions::default(), Arc::new(SystemClock));
    drop(open().unwrap());
    for len in [(64 << 20) - 4096, 63 << 20, 1 << 20, 8192, 4096, 0] {
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(len).unwrap();
        let error = open().unwrap_err();
        assert!(one_line(&error).contains("short"), "{error}");
    }
}

#[tokio::test]
async fn after_a_failed_write_the_drive_is_read_only() {
    for broken_flush in [false, true] {
        let device = filled().await;
        let drive = open(&device).unwrap();
        let store = Buckets::open(&drive, "photos").await.unwrap();
        match broken_flush {
            true => device.fail_at_random(1, 1),
            false => device.fail_writes(0..DEVICE_BYTES),
        }

        let put =
            async |number: usize| store.put(&key(number), body(number).into(), PutOptions::default()).await;
        assert!(matches!(put(1).await, Err(StoreError::Unavailable(_))));
        device.heal();
        let error = put(1).await.unwrap_err();
        assert!(error.to_string().contains("open it again"), "{error}");
        assert!(drive.close().await.is_err());
        assert_eq!(read_all(&drive).await, LENGTHS.len());
        drop((store, drive));
        let drive = open(&device).unwrap();
        let store = Buckets::open(&drive, "photos").await.unwrap();
        store.put(&key(2), body(2).into(), PutOptions::default()).await.unwrap();
        drop((store, drive));
        device.crash(5);
        assert_eq!(read_all(&open(&device).unwrap()).await, LENGTHS.len());
    }
}

/// Returns the writes of frames since the last call.
fn frames_of(device: &SimDevice) -> Vec<Operation> {
    let written = device.take_operations().into_iter().filter(|done| done.kind == OperationKind::Write);
    written.filter(|done| done.at >= DEVICE_BYTES / 2).collect()
}

/// Damage of the last frame cannot be told from a torn write: the changes of the frame are lost, and all others are there. If the drive was
/// closed, or another frame follows, it is damage.
#[tokio::test]
async fn a_damaged_last_frame_of_an_unclosed_drive_counts_as_torn() {
    for is_closed in [false, true] {
        let device = filled().await;
        let drive = open(&device).unwrap();
        drive.create("others").await.unwrap();
        let store = Buckets::open(&drive, "others").await.unwrap();
        frames_of(&device);
        for name in ["earlier", "last"] {
            let name = ObjectKey::new(name.as_bytes().to_vec()).unwrap();
            store.put(&name, body(3).into(), PutOptions::default()).await.unwrap();
        }
        let [earlier, last] = frames_of(&device)[..] else { panic!("a frame each") };
        if is_closed {
            drive.close().await.unwrap();
        }
        drop((store, drive));
        for seed in 0..40 {
            let copy = device.fork();
            copy.flip(seed, last.at..last.at + body(3).len() as u64);
            let drive = open(&copy).unwrap();
            assert_eq!(read_all(&drive).await, LENGTHS.len(), "{seed}");
            let store = Buckets::open(&drive, "others").await.unwrap();
            let is_there = store.find(&ObjectKey::new("last").unwrap()).await.unwrap().is_some();
            assert_eq!(is_there, is_closed, "{seed}");
            let scrubbed = drive.scrub(|_| ()).await.unwrap();
            assert_eq!(scrubbed.damaged.is_empty(), !is_closed, "{seed}: {scrubbed:?}");
            drop((store, drive));
            let copy = device.fork();
            copy.flip(seed, earlier.at..earlier.at + body(3).len() as u64);
            match open(&copy) {
                Ok(drive) => assert!(is_closed && !drive.scrub(|_| ()).await.unwrap().damaged.is_empty()),
                Err(error) => {
                    assert!(
                        !is_closed && one_line(&error).starts_with("damaged: a frame of the log"),
                        "{error}"
                    );
                }
            }
        }
    }
}

/// A frame longer than half of its zone begins the zone, and the frame after it begins another zone, which only the first frame names.
/// The continuation of the log is detected in that zone.
#[tokio::test]
async fn a_damaged_frame_is_found_if_only_it_names_the_next_zone() {
    let device = formatted();
    let drive = open(&device).unwrap();
    let group = drive.create_group("photos").await.unwrap();
    frames_of(&device);
    for round in 0..8 {
        // The longest possible batch, so that the next one does not fit into the zone.
        let mut last_bytes = (128 << 10) - 200;
        loop {
            let mut batch = Batch::default();
            for (number, len) in [128 << 10, 128 << 10, 128 << 10, last_bytes].into_iter().enumerate() {
                let name = format!("{round}-{number}");
                batch.store(&group, name.as_bytes(), vec![7; len].into(), StoreOptions::default());
            }
            match drive.execute(batch).await {
                Ok(()) => break,
                Err(drive::kv::Error::BatchTooLong { .. }) => last_bytes -= 8,
                Err(error) => panic!("{error}"),
            }
        }
    }
    drop((group, drive));
    let frames = frames_of(&device);
    let zone_bytes = 1 << 20;
    assert!(frames.len() == 8 && frames[1..].iter().all(|frame| frame.at % zone_bytes == 0), "{frames:?}");
    for damaged in &frames[..7] {
        let copy = device.fork();
        copy.flip(1, damaged.at..damaged.at + damaged.len - BLOCK_BYTES);
        let error = open(&copy).unwrap_err();
        assert!(one_line(&error).starts_with("damaged: a frame of the log"), "{damaged:?}: {error}");
    }
}

/// A frame reached the device although its flush failed. The blocks it named were freed at once, and an upload in progress overwrote them,
/// so the next opening found wrong bytes.
#[tokio::test]
async fn blocks_named_by_a_frame_whose_flush_failed_are_not_reused() {
    const LEN: usize = 300 << 10;
    let (mut before, mut after) = (0, 0);
    for seed in 0..20 {
        let device = filled().await;
        let drive = open(&device).unwrap();
        let store = Buckets::open(&drive, "photos").await.unwrap();
        let doubted = ObjectKey::new("doubted").unwrap();
        let put = async |byte: u8| store.put(&doubted, vec![byte; LEN].into(), PutOptions::default()).await;
        put(1).await.unwrap();
        let free_bytes = drive.info().available_bytes;
        // The data, its flush, and the frame succeed.
        device.cut_power_after(3);
        assert!(put(2).await.is_err());
        assert!(
            drive.info().available_bytes + LEN as u64 <= free_bytes,
            "the blocks named by the frame are free"
        );
        drop((store, drive));
        device.crash(seed);
        let drive = open(&device).unwrap();
        let store = Buckets::open(&drive, "photos").await.unwrap();
        let object = store.get(&doubted, GetOptions::default()).await.unwrap();
        let bytes = object.body.try_collect::<Vec<Bytes>>().await.unwrap().concat();
        assert!(bytes.len() == LEN && bytes.iter().all(|byte| *byte == bytes[0]));
        match bytes[0] {
            1 => before += 1,
            _ => after += 1,
        }
    }
    assert!(before > 0 && after > 0, "the frame reached the device in some worlds: {before}, {after}");
}

/// A sector became unreadable. The scrub ended there, did not name the object, and checked nothing after it.
#[tokio::test]
async fn a_scrub_continues_after_an_unreadable_sector() {
    let device = filled().await;
    let drive = open(&device).unwrap();
    let whole = drive.scrub(|_| {}).await.unwrap();
    assert!(whole.damaged.is_empty(), "{whole:?}");
    let store = Buckets::open(&drive, "photos").await.unwrap();
    device.take_operations();
    store
        .put(&ObjectKey::new("last").unwrap(), vec![1; 1 << 20].into(), PutOptions::default())
        .await
        .unwrap();
    let written =
        device.take_operations().into_iter().find(|done| done.kind == OperationKind::Write).unwrap();
    device.fail_reads(written.at..written.at + BLOCK_BYTES);
    let scrubbed = drive.scrub(|_| {}).await.unwrap();
    assert_eq!(scrubbed.objects, whole.objects + 1);
    assert!(matches!(&scrubbed.damaged[..], [line] if line.contains("'last'")), "{scrubbed:?}");
}

/// A PUT failed although its frame had reached the device. The key was missing then, so its deletion had nothing to do and was
/// acknowledged. The next opening found the frame.
#[tokio::test]
async fn a_deletion_after_a_failed_write_is_not_acknowledged() {
    let mut survived = 0;
    for seed in 0..20 {
        let device = filled().await;
        let drive = open(&device).unwrap();
        let store = Buckets::open(&drive, "photos").await.unwrap();
        let doubted = ObjectKey::new("doubted").unwrap();
        device.cut_power_after(1);
        assert!(store.put(&doubted, "x".into(), PutOptions::default()).await.is_err());
        let deleted = store.delete(&doubted, Precondition::None).await;
        assert!(matches!(deleted, Err(StoreError::Unavailable(_))), "{deleted:?}");
        let removed =
            store.versions().unwrap().remove(&doubted, store::NULL_VERSION, Removal::default()).await;
        assert!(matches!(removed, Err(StoreError::Unavailable(_))), "{removed:?}");
        drop((store, drive));
        device.crash(seed);
        let drive = open(&device).unwrap();
        let store = Buckets::open(&drive, "photos").await.unwrap();
        survived += usize::from(store.find(&doubted).await.unwrap().is_some());
    }
    assert!(survived > 0, "the frame reached the device in some worlds");
}

#[tokio::test]
async fn an_unreadable_device_is_an_error_without_further_effects() {
    let device = filled().await;
    let drive = open(&device).unwrap();
    device.fail_reads(8192..DEVICE_BYTES);
    assert!(read_all(&drive).await <= 1, "only the empty object needs no read");
    device.heal();
    assert_eq!(read_all(&drive).await, LENGTHS.len());
    device.fail_reads(0..DEVICE_BYTES);
    assert!(matches!(open(&device).unwrap_err(), Error::Device { .. }));
}

/// An upload was completed after its caller was cancelled. Another caller deleted the object and stored another one in its blocks. The
/// repeated completion returned the other object's bytes.
#[tokio::test]
async fn a_completion_with_a_lost_answer_can_be_repeated() {
    let device = formatted();
    let drive = open(&device).unwrap();
    drive.create("photos").await.unwrap();
    let store = Buckets::open(&drive, "photos").await.unwrap();
    for polls in 0..8 {
        let (one, mine, others) = (key(1), Bytes::from(vec![1; 400_000]), Bytes::from(vec![2; 400_000]));
        let upload = store.multipart(&one, Default::default(), Default::default()).await.unwrap();
        upload.put_part(1, mine.clone().into()).await.unwrap();
        {
            let mut complete = Box::pin(upload.complete(Default::default()));
            for _ in 0..polls {
                if futures_util::poll!(&mut complete).is_ready() {
                    break;
                }
            }
        }
        if store.find(&one).await.unwrap().is_some() {
            store.delete(&one, Default::default()).await.unwrap();
        }
        store.put(&key(2), others.clone().into(), PutOptions::default()).await.unwrap();
        if upload.complete(Default::default()).await.is_ok() {
            let read = store.get(&one, GetOptions::default()).await.unwrap();
            assert_eq!(read.body.try_collect::<Vec<Bytes>>().await.unwrap().concat(), mine, "{polls}");
        }
        assert_eq!(drive.check().await.unwrap().problems, Vec::<String>::new(), "{polls}");
    }
}

/// Callers are cancelled at any moment. A key lock that was released at the cancellation let the next change of the key release the same
/// blocks again.
#[tokio::test]
async fn cancelled_callers_leave_the_space_consistent() {
    let device = formatted();
    let drive = open(&device).unwrap();
    drive.create("photos").await.unwrap();
    let store = Buckets::open(&drive, "photos").await.unwrap();
    for polls in 0..60 {
        let one = ObjectKey::new("one").unwrap();
        let put = |len: usize| store.put(&one, vec![3; len].into(), PutOptions::default());
        let (mut first, mut second) = (Box::pin(put(300_000)), Box::pin(put(400_000)));
        let (mut first_is_done, mut second_is_done) = (false, false);
        for n in 0..polls / 4 {
            if (n + polls) % 3 == 0 && !second_is_done {
                second_is_done = futures_util::poll!(&mut second).is_ready();
            } else if !first_is_done {
                first_is_done = futures_util::poll!(&mut first).is_ready();
            }
        }
        drop((first, second));
        put(1000).await.unwrap();
        assert_eq!(drive.check().await.unwrap().problems, Vec::<String>::new(), "{polls}");
    }
}
