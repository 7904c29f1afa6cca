//! The key-value API: the results of each call, and random worlds with power cuts, compared with an ordered map.

use crate::fixture::{formatted, open};
use bytes::Bytes;
use drive::device::BlockDevice;
use drive::kv::{Batch, Error, Group, Lifetime, StoreMode, StoreOptions};
use drive::{Drive, FormatOptions};
use futures_util::TryStreamExt as _;
use sim::device::SimDevice;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{Buckets, Entropy, GetOptions, ObjectKey, PutOptions, StoreError};

const PLAIN: StoreOptions = StoreOptions { mode: StoreMode::Post, lifetime: Lifetime::Unknown };

async fn drive_with(groups: [&str; 2]) -> (Drive, [Group; 2]) {
    let drive = open(&formatted()).unwrap();
    let [one, other] = groups;
    let groups = [drive.create_group(one).await.unwrap(), drive.create_group(other).await.unwrap()];
    (drive, groups)
}

async fn keys(group: &Group, prefix: &[u8]) -> Vec<Bytes> {
    let mut pairs = group.iterate(prefix);
    let mut keys = Vec::new();
    while let Some(pair) = pairs.next().await.unwrap() {
        keys.push(pair.key);
    }
    keys
}

#[tokio::test]
async fn s325_a_pair_is_stored_retrieved_and_deleted() {
    let (_drive, [group, other]) = drive_with(["one", "two-two"]).await;
    let value: Vec<u8> = (0..300_000u32).map(|at| at as u8).collect();
    group.store(b"key\0\xff", value.clone().into(), PLAIN).await.unwrap();
    let mut buffer = vec![0; 1000];
    let found = group.retrieve(b"key\0\xff", 70_000, &mut buffer).await.unwrap();
    assert_eq!((found.filled_bytes, found.value_bytes), (1000, 300_000));
    assert_eq!(buffer, value[70_000..71_000]);
    let found = group.retrieve(b"key\0\xff", 299_990, &mut buffer).await.unwrap();
    assert_eq!((found.filled_bytes, found.value_bytes), (10, 300_000));
    let found = group.retrieve(b"key\0\xff", 300_000, &mut buffer).await.unwrap();
    assert_eq!(found.filled_bytes, 0);
    let beyond = group.retrieve(b"key\0\xff", 300_001, &mut buffer).await;
    assert!(matches!(beyond, Err(Error::OffsetInvalid { value_bytes: 300_000, .. })));
    assert_eq!(group.retrieve_all(b"key\0\xff").await.unwrap(), value);
    let absent: &[u8] = b"key\0";
    assert!(matches!(group.retrieve_all(absent).await, Err(Error::KeyNotExist(_))));
    assert!(matches!(other.retrieve_all(b"key\0\xff").await, Err(Error::KeyNotExist(_))));
    assert_eq!(group.exist(&[absent, b"key\0\xff"]).await.unwrap(), [false, true]);
    group.delete(b"key\0\xff").await.unwrap();
    group.delete(b"key\0\xff").await.unwrap();
    assert_eq!(group.exist(&[b"key\0\xff"]).await.unwrap(), [false]);
    for wrong in [&b""[..], &[1; 1025]] {
        assert!(matches!(group.store(wrong, "x".into(), PLAIN).await, Err(Error::KeyInvalid(_))));
    }
    group.store(&[0xff; 1024], "longest".into(), PLAIN).await.unwrap();
    assert_eq!(group.retrieve_all(&[0xff; 1024]).await.unwrap(), "longest");
}

#[tokio::test]
async fn a_store_mode_is_a_condition_on_the_key() {
    let (_drive, [group, _]) = drive_with(["one", "two-two"]).await;
    let with = |mode| StoreOptions { mode, ..PLAIN };
    let refused = group.store(b"k", "1".into(), with(StoreMode::UpdateOnly)).await;
    assert!(matches!(refused, Err(Error::KeyNotExist(key)) if key == "k"));
    group.store(b"k", "2".into(), with(StoreMode::NoOverwrite)).await.unwrap();
    let refused = group.store(b"k", "3".into(), with(StoreMode::NoOverwrite)).await;
    assert!(matches!(refused, Err(Error::KeyExists(_))));
    group.store(b"k", "4".into(), with(StoreMode::UpdateOnly)).await.unwrap();
    assert_eq!(group.retrieve_all(b"k").await.unwrap(), "4");
}

#[tokio::test]
async fn groups_are_created_listed_and_deleted_with_their_pairs() {
    let (drive, [group, _]) = drive_with(["one", "two-two"]).await;
    assert_eq!(drive.groups().await.unwrap(), ["one", "two-two"]);
    assert!(matches!(drive.create_group("one").await, Err(Error::GroupExists(_))));
    assert!(matches!(drive.open_group("absent").await, Err(Error::GroupNotExist(_))));
    assert!(matches!(drive.create_group("No Name").await, Err(Error::Store(_))));
    for number in 0..600 {
        group.store(format!("{:03}", number).as_bytes(), "x".into(), PLAIN).await.unwrap();
    }
    assert_eq!(keys(&group, b"12").await.len(), 10);
    assert_eq!(group.delete_prefix(b"12").await.unwrap(), 10);
    let left = keys(&group, b"").await;
    assert!(left.len() == 590 && left.is_sorted());
    drive.delete_group("one").await.unwrap();
    assert_eq!(drive.groups().await.unwrap(), ["two-two"]);
    assert!(matches!(group.store(b"k", "x".into(), PLAIN).await, Err(Error::GroupNotExist(_))));
    assert_eq!(drive.check().await.unwrap().objects, 0);
}

/// A group with older versions was emptied, which left delete markers, and then could not be deleted.
#[tokio::test]
async fn a_group_that_cannot_be_deleted_keeps_its_pairs() {
    for keeps_versions in [false, true] {
        let (drive, [group, _]) = drive_with(["one", "two-two"]).await;
        group.store(b"k", "x".into(), PLAIN).await.unwrap();
        let store = Buckets::open(&drive, "one").await.unwrap();
        match keeps_versions {
            true => store.versions().unwrap().set_state(store::Versioning::Enabled).await.unwrap(),
            false => {
                let key = store::ObjectKey::new(Bytes::from_static(b"u")).unwrap();
                store.uploads().unwrap().begin(&key, Default::default(), Default::default()).await.unwrap();
            }
        }
        drive.delete_group("one").await.unwrap_err();
        assert_eq!(group.retrieve_all(b"k").await.unwrap(), "x");
        assert_eq!(drive.check().await.unwrap().objects, 1, "and no mark");
    }
}

#[tokio::test]
async fn s326_a_batch_is_applied_as_a_whole_or_not_at_all() {
    let (drive, [one, two]) = drive_with(["one", "two-two"]).await;
    one.store(b"gone", "old".into(), PLAIN).await.unwrap();
    let mut batch = Batch::default();
    batch.store(&one, b"small", "1".into(), PLAIN);
    batch.store(&two, b"large", vec![7; 2 << 20].into(), PLAIN);
    batch.delete(&one, b"gone");
    drive.execute(batch).await.unwrap();
    assert_eq!(keys(&one, b"").await, ["small"]);
    assert_eq!(two.retrieve_all(b"large").await.unwrap().len(), 2 << 20);

    let mut refused = Batch::default();
    refused.delete(&two, b"large");
    refused.store(&one, b"new", vec![7; 3 << 20].into(), PLAIN);
    let no_overwrite = StoreOptions { mode: StoreMode::NoOverwrite, ..PLAIN };
    refused.store(&one, b"small", "2".into(), no_overwrite);
    assert!(matches!(drive.execute(refused).await, Err(Error::KeyExists(_))));
    assert_eq!(keys(&one, b"").await, ["small"]);
    assert_eq!(keys(&two, b"").await, ["large"]);

    let mut twice = Batch::default();
    twice.delete(&one, b"k");
    twice.store(&one, b"k", "x".into(), PLAIN);
    assert!(matches!(drive.execute(twice).await, Err(Error::KeyTwice(_))));
    let mut long = Batch::default();
    for number in 0..40u8 {
        long.store(&one, &[number], vec![7; 100_000].into(), PLAIN);
    }
    assert!(matches!(drive.execute(long).await, Err(Error::BatchTooLong { .. })));
    let (another, [elsewhere, _]) = drive_with(["one", "two-two"]).await;
    let mut mixed = Batch::default();
    mixed.delete(&elsewhere, b"k");
    assert!(matches!(drive.execute(mixed).await, Err(Error::AnotherDrive)));
    drop(another);
    assert_eq!(drive.check().await.unwrap().problems, Vec::<String>::new());
}

/// Returns the bytes in pack zones and in runs that a value of this length takes with this hint.
async fn placed(lifetime: Lifetime, len: usize) -> (u64, u64) {
    let (drive, [group, _]) = drive_with(["one", "two-two"]).await;
    let before = drive.check().await.unwrap();
    let packed_before = drive.info().pack_live_bytes;
    group.store(b"k", vec![7; len].into(), StoreOptions { lifetime, ..PLAIN }).await.unwrap();
    assert_eq!(group.retrieve_all(b"k").await.unwrap().len(), len);
    let after = drive.check().await.unwrap();
    (drive.info().pack_live_bytes - packed_before, (after.object_blocks - before.object_blocks) * 4096)
}

#[tokio::test]
async fn s327_a_lifetime_hint_decides_where_a_value_is_stored() {
    for (lifetime, len, packed, runs) in [
        (Lifetime::Unknown, 100_000, 100_000, 0),
        (Lifetime::Unknown, 300_000, 0, 75 * 4096),
        (Lifetime::Long, 100_000, 0, 26 * 4096),
        (Lifetime::Long, 4000, 4000, 0),
        (Lifetime::Short, 100_000, 100_000, 0),
    ] {
        assert_eq!(placed(lifetime, len).await, (packed, runs), "{lifetime:?} {len}");
    }
    let device = SimDevice::new(1 << 30);
    let as_device: Arc<dyn BlockDevice> = Arc::new(device.clone());
    Drive::format(&as_device, FormatOptions { zone_bytes: Some(16 << 20) }, &Entropy::new(1)).unwrap();
    let drive = open(&device).unwrap();
    let group = drive.create_group("one").await.unwrap();
    let short = StoreOptions { lifetime: Lifetime::Short, ..PLAIN };
    group.store(b"k", vec![7; 1 << 20].into(), short).await.unwrap();
    assert_eq!(drive.info().pack_live_bytes, 1 << 20);
    assert_eq!(drive.check().await.unwrap().object_blocks, 0);
}

#[tokio::test]
async fn pairs_are_objects_and_objects_are_pairs() {
    let (drive, [group, _]) = drive_with(["photos", "two-two"]).await;
    let bucket = Buckets::open(&drive, "photos").await.unwrap();
    group.store(b"pair", "by key".into(), PLAIN).await.unwrap();
    let object = bucket.get(&ObjectKey::new("pair").unwrap(), GetOptions::default()).await.unwrap();
    assert_eq!(object.body.try_collect::<Vec<Bytes>>().await.unwrap().concat(), b"by key");
    bucket.put(&ObjectKey::new("object").unwrap(), "by S3".into(), PutOptions::default()).await.unwrap();
    assert_eq!(group.retrieve_all(b"object").await.unwrap(), "by S3");
}

/// A group and a key in it.
type Place = (usize, Vec<u8>);
type Stored = (Vec<u8>, Lifetime);
type Model = BTreeMap<Place, Vec<u8>>;

/// Draws the next changes of a world: keys of two groups, one or several at once; `None` is a deletion.
fn changes(entropy: &Entropy) -> BTreeMap<Place, Option<Stored>> {
    let count = if entropy.below(2) == 0 { 1 } else { 1 + entropy.below(6) };
    let mut changes = BTreeMap::new();
    for _ in 0..count {
        let key = vec![b'k', entropy.below(12) as u8];
        let lengths = [0, 1, 300, 5000, 40_000, 140_000, 400_000];
        let len = lengths[entropy.below(7) as usize] as usize;
        let lifetime = [Lifetime::Unknown, Lifetime::Short, Lifetime::Long][entropy.below(3) as usize];
        let value = (entropy.below(4) > 0).then(|| (vec![entropy.below(256) as u8; len], lifetime));
        changes.insert((entropy.below(2) as usize, key), value);
    }
    changes
}

async fn contents(groups: &[Group]) -> Model {
    let mut found = Model::new();
    for (number, group) in groups.iter().enumerate() {
        let mut pairs = group.iterate(b"");
        while let Some(pair) = pairs.next().await.unwrap() {
            let value = group.retrieve_all(&pair.key).await.unwrap();
            assert_eq!(value.len() as u64, pair.value_bytes);
            found.insert((number, pair.key.to_vec()), value.to_vec());
        }
    }
    found
}

/// Runs one world: periods of operation that each end with a power cut at any moment.
async fn run_world(seed: u64) {
    let entropy = Entropy::new(seed);
    let device = SimDevice::new(32 << 20);
    let as_device: Arc<dyn BlockDevice> = Arc::new(device.clone());
    Drive::format(&as_device, FormatOptions::default(), &Entropy::new(7)).unwrap();
    let first = open(&device).unwrap();
    for name in ["one", "two-two"] {
        first.create_group(name).await.unwrap();
    }
    drop(first);
    let mut model = Model::new();
    for period in 0..3 {
        let drive = open(&device).unwrap();
        let groups = [drive.open_group("one").await.unwrap(), drive.open_group("two-two").await.unwrap()];
        assert_eq!(contents(&groups).await, model, "seed {seed}, period {period}");
        device.cut_power_after(entropy.below(400));
        let mut doubtful = model.clone();
        loop {
            if entropy.below(10) == 0 && drive.maintain().await.is_err() {
                break;
            }
            let mut batch = Batch::default();
            doubtful = model.clone();
            for (key, value) in changes(&entropy) {
                let group = &groups[key.0];
                match value {
                    Some((value, lifetime)) => {
                        let options = StoreOptions { lifetime, ..PLAIN };
                        batch.store(group, &key.1, value.clone().into(), options);
                        doubtful.insert(key, value);
                    }
                    None => {
                        batch.delete(group, &key.1);
                        doubtful.remove(&key);
                    }
                }
            }
            match drive.execute(batch).await {
                Ok(()) => model = doubtful.clone(),
                Err(Error::Store(StoreError::Full(_)) | Error::BatchTooLong { .. }) => {
                    doubtful = model.clone()
                }
                Err(_) => break,
            }
        }
        drop((groups, drive));
        device.crash(entropy.next_u64());
        let drive = open(&device).unwrap();
        let groups = [drive.open_group("one").await.unwrap(), drive.open_group("two-two").await.unwrap()];
        let found = contents(&groups).await;
        assert!(
            found == model || found == doubtful,
            "seed {seed}, period {period}: a batch was applied in part"
        );
        assert_eq!(
            drive.check().await.unwrap().problems,
            Vec::<String>::new(),
            "seed {seed}, period {period}"
        );
        model = found;
    }
}

#[tokio::test]
async fn s326_batches_are_whole_after_any_power_cut() {
    for seed in 0..12 {
        run_world(seed).await;
    }
}
