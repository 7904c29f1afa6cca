//! Statements of `docs/semantics.md` about the drive.

use crate::fixture::{DEVICE_BYTES, bucket_of, formatted, open, open_with};
use bytes::Bytes;
use drive::device::BLOCK_BYTES;
use drive::kv::Batch;
use drive::{Drive, OpenOptions, ZoneUse};
use futures_util::TryStreamExt as _;
use futures_util::future::try_join_all;
use sim::device::{OperationKind, SimDevice};
use store::{
    Attributes, Buckets, CopyOptions, ETag, GetOptions, ListRequest, ObjectKey, ObjectStore, Pages, Payload,
    Precondition, PutOptions, StoreError, Tags,
};

fn key(text: &str) -> ObjectKey {
    ObjectKey::new(Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

fn body(len: usize) -> Bytes {
    (0..len).map(|at| (at as u32).wrapping_mul(2_654_435_761) as u8).collect()
}

/// Returns the bytes written to the device since the last call.
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

/// Stores objects of one length until the drive is full. Returns their names.
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
async fn s303_a_full_drive_accepts_deletions_and_reuses_their_space() {
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

/// Each checkpoint added a table. Many nearly empty ones used up the space that deletions need.
#[tokio::test(flavor = "multi_thread")]
async fn s303_a_full_drive_accepts_deletions_after_many_checkpoints() {
    let device = formatted();
    let drive = open(&device).unwrap();
    let store = bucket_of(&drive).await;
    let mut names = Vec::new();
    for len in [3 << 20, 100_000, 1000, 0] {
        names = fill(&*store, len).await;
    }
    for name in names.iter().rev().take(400) {
        store.delete(&key(name), Precondition::None).await.unwrap();
        drive.close().await.unwrap();
    }
}

/// A single unreadable zone was tried again and again, no other zone was cleaned, and small objects found no space.
#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_zone_does_not_keep_others_from_being_cleaned() {
    let device = formatted();
    let drive = open(&device).unwrap();
    let store = bucket_of(&drive).await;
    let names = fill(&*store, 100_000).await;
    for name in names.iter().step_by(2) {
        store.delete(&key(name), Precondition::None).await.unwrap();
    }
    let zone_bytes = drive.info().zone_bytes;
    let zones: Vec<u64> =
        (0..).zip(drive.map()).filter(|(_, what)| is_pack(what)).map(|(at, _)| at).collect();
    for at in zones.iter().rev().take(zones.len() / 4) {
        device.fail_reads(at * zone_bytes..(at + 1) * zone_bytes);
    }
    let again = fill(&*store, 100_000).await;
    assert!(again.len() * 5 > names.len(), "{} of {} again", again.len(), names.len());
}

fn is_pack(what: &ZoneUse) -> bool {
    matches!(what, ZoneUse::Pack { live_bytes } if *live_bytes > 0)
}

/// Index entries counted as dead bytes, although they are a large part of small objects. So cleaning rewrote zones without a gain, and
/// never ended on a drive with few zones.
#[tokio::test(flavor = "multi_thread")]
async fn zones_are_cleaned_only_if_that_gains_space() {
    let device = formatted();
    let drive = open(&device).unwrap();
    let store = bucket_of(&drive).await;
    let small: Vec<ObjectKey> = (0..10_000).map(|number| key(&format!("small-{number:05}"))).collect();
    for some in small.chunks(250) {
        let puts = some.iter().map(|name| store.put(name, body(300).into(), PutOptions::default()));
        try_join_all(puts).await.unwrap();
    }
    fill(&*store, 3 << 20).await;
    drive.close().await.unwrap();
    let info = drive.info();
    assert!(info.pack_zones >= 5 && info.pack_live_bytes == 3_000_000, "{info:?}");
    // On a busy machine the objects may be stored in small frames, so cleaning may gain a zone or two.
    upkeep_ends(&drive, &device).await;
    drive.close().await.unwrap();
    let info = drive.info();
    for some in small[..5000].chunks(250) {
        try_join_all(some.iter().map(|name| store.delete(name, Precondition::None))).await.unwrap();
    }
    upkeep_ends(&drive, &device).await;
    drive.close().await.unwrap();
    assert!(drive.info().pack_zones < info.pack_zones, "{info:?}, then {:?}", drive.info());
}

/// Runs maintenance until it has nothing left to do, which takes at most as many calls as there are zones of small objects.
async fn upkeep_ends(drive: &Drive, device: &SimDevice) {
    let zones = drive.info().pack_zones;
    written(device);
    for round in 0.. {
        drive.maintain().await.unwrap();
        if written(device) == 0 {
            return;
        }
        assert!(round < zones, "{:?}", drive.info());
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

/// No MD5 is computed for an object without a given etag.
#[tokio::test(flavor = "multi_thread")]
async fn s315_an_object_and_its_copies_have_the_given_etag() {
    let device = formatted();
    let drive = open(&device).unwrap();
    let store = bucket_of(&drive).await;
    let etag = Some(ETag::new("0123456789abcdef0123456789abcdef"));
    for len in [100, 1_000_000] {
        let own = store.put(&key("object"), body(len).into(), PutOptions::default()).await.unwrap().etag;
        assert!(own.as_str().len() == 34 && own.as_str().ends_with("-1"), "{own:?}");
        let options = PutOptions { etag: etag.clone(), ..PutOptions::default() };
        let object = store.put(&key("object"), body(len).into(), options).await.unwrap();
        assert_eq!(Some(&object.etag), etag.as_ref());
        store.set_tags(&key("object"), Tags::from([("a".into(), "b".into())])).await.unwrap();
        let copy = store.copy(&object, &key("copy"), CopyOptions::default()).await.unwrap();
        store.rename(&copy, &key("moved"), Precondition::None).await.unwrap();
        for name in ["object", "moved"] {
            assert_eq!(Some(store.head(&key(name)).await.unwrap().object.etag), etag, "{name}");
            assert_eq!(read(&*store, name).await, body(len));
        }
    }
}

#[tokio::test]
async fn s339_a_paged_listing_reads_the_index_about_once() {
    let device = formatted();
    let drive = open(&device).unwrap();
    let group = drive.create_group("photos").await.unwrap();
    for batch_number in 0..40 {
        let mut batch = Batch::default();
        for number in 0..500 {
            // In mixed order, so that every table has keys of every page.
            let key = (batch_number * 500 + number) * 7919 % 20_000;
            batch.store(&group, format!("{key:05}").as_bytes(), Payload::default(), Default::default());
        }
        drive.execute(batch).await.unwrap();
        if batch_number % 20 == 19 {
            drive.close().await.unwrap();
        }
    }
    drop((group, drive));
    let drive = open(&device).unwrap();
    let bucket = Buckets::open(&drive, "photos").await.unwrap();
    let tables: Vec<u64> = drive.info().tables.iter().map(|(len_bytes, _)| *len_bytes).collect();
    assert_eq!(tables.len(), 2);
    device.take_operations();
    let mut pages = Pages::new(&*bucket, ListRequest { limit: 100, ..ListRequest::default() });
    let mut count = 0;
    while let Some(entries) = pages.next().await.unwrap() {
        count += entries.len();
    }
    assert_eq!(count, 20_000);
    let reads = device.take_operations();
    let read_bytes: u64 =
        reads.iter().filter(|done| done.kind == OperationKind::Read).map(|done| done.len).sum();
    let index_bytes: u64 = tables.iter().sum();
    assert!(read_bytes < index_bytes + index_bytes / 2, "{read_bytes} bytes were read of {index_bytes}");
}

/// Writers that are faster than tables are written wait. Filters, blocks and entries share the configured memory.
#[tokio::test(flavor = "multi_thread")]
async fn s348_the_index_stays_within_its_memory_limit() {
    const INDEX_BYTES: usize = 2 << 20;
    const BATCHES: usize = 40;
    const OF_A_BATCH: usize = 1000;
    // The entries of one commit: keys of ten bytes, records of about 40, and the overhead of each entry.
    const OF_A_COMMIT: u64 = OF_A_BATCH as u64 * 256;
    let device = formatted();
    let options = OpenOptions { index_bytes: INDEX_BYTES, ..OpenOptions::default() };
    let mut most = 0;
    let mut look = |drive: &Drive| {
        let taken = drive.info().index_memory_bytes;
        most = most.max(taken);
        assert!(taken <= INDEX_BYTES as u64 + OF_A_COMMIT, "{taken} bytes");
    };
    for (number_of_life, is_kept_up) in [true, false].into_iter().enumerate() {
        let drive = open_with(&device, options).unwrap();
        look(&drive);
        let group = match number_of_life {
            0 => drive.create_group("photos").await,
            _ => drive.open_group("photos").await,
        };
        let group = group.unwrap();
        let keeper = drive.clone();
        let keeping = is_kept_up.then(|| tokio::spawn(async move { keeper.run_maintenance().await }));
        for number in 0..BATCHES {
            let mut batch = Batch::default();
            for n in 0..OF_A_BATCH {
                let key = (number * OF_A_BATCH + n) * 7919 % (BATCHES * OF_A_BATCH);
                batch.store(&group, format!("{key:010}").as_bytes(), Payload::default(), Default::default());
            }
            drive.execute(batch).await.unwrap();
            look(&drive);
        }
        if let Some(keeping) = keeping {
            keeping.abort();
        }
        drive.maintain().await.unwrap();
        look(&drive);
        for key in 0..BATCHES * OF_A_BATCH / 40 {
            let key = format!("{:010}", key * 40);
            assert!(group.exist(&[key.as_bytes()]).await.unwrap()[0], "{key}");
        }
        look(&drive);
    }
    assert!(most > INDEX_BYTES as u64 / 2, "at most {most} bytes: nothing was bounded");
}
