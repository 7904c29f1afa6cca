//! Scrubs and rebuilds of a drive in use.

use crate::array::{assert_all_there, drive_on, filled, formatted, named};
use bytes::Bytes;
use drive::device::{Array, BLOCK_BYTES, Found, Io};
use drive::{Drive, OpenOptions, Pace, Use};
use futures_util::TryStreamExt as _;
use sim::device::SimDevice;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use store::{
    Buckets, Entropy, GetOptions, ObjectKey, ObjectStore, Precondition, PutOptions, StoreError, SystemClock,
};
use tokio::task::JoinHandle;

const MIB: u64 = 1 << 20;

/// Lets other tasks run between the steps.
struct Yielding;

#[async_trait::async_trait]
impl Pace for Yielding {
    async fn after(&self, _: u64) {
        tokio::task::yield_now().await;
    }
}

fn body(seed: u64, len: usize) -> Bytes {
    let words =
        (0..len as u64 / 8 + 1).map(|n| (seed << 32 ^ n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes());
    Bytes::from(words.flatten().take(len).collect::<Vec<u8>>())
}

type Model = BTreeMap<ObjectKey, Bytes>;

/// Clients that store, read, compare and delete until they are stopped.
struct Clients {
    stop: Arc<AtomicBool>,
    keeping: JoinHandle<()>,
    clients: Vec<JoinHandle<(Model, u64)>>,
}

impl Clients {
    async fn begin(drive: &Drive) -> Self {
        let (stop, kept) = (Arc::new(AtomicBool::new(false)), drive.clone());
        let keeping = tokio::spawn(async move { kept.run_maintenance().await });
        let mut clients = Vec::new();
        for number in 0..3 {
            let store = Buckets::open(drive, "photos").await.unwrap();
            clients.push(tokio::spawn(run_client(store, number, stop.clone())));
        }
        Self { stop, keeping, clients }
    }

    /// Returns the objects that they have stored, and the number of operations.
    async fn end(self) -> (Model, u64) {
        self.stop.store(true, Ordering::Relaxed);
        let (mut all, mut count) = (Model::new(), 0);
        for client in self.clients {
            let (model, did) = client.await.unwrap();
            all.extend(model);
            count += did;
        }
        self.keeping.abort();
        (all, count)
    }
}

async fn run_client(store: Arc<dyn ObjectStore>, number: u64, stop: Arc<AtomicBool>) -> (Model, u64) {
    let (entropy, mut model, mut did) = (Entropy::new(number), Model::new(), 0);
    while !stop.load(Ordering::Relaxed) {
        did += 1;
        let key = ObjectKey::new(format!("{number}/{}", entropy.below(12)).into_bytes()).unwrap();
        match entropy.below(5) {
            0 => {
                store.delete(&key, Precondition::None).await.unwrap();
                model.remove(&key);
            }
            1 | 2 => assert_stored(&*store, &key, model.get(&key)).await,
            _ => {
                let len = [10, 5_000, 70_000, 300_000][entropy.below(4) as usize];
                let bytes = body(number << 20 | did, len);
                store.put(&key, bytes.clone().into(), PutOptions::default()).await.unwrap();
                model.insert(key, bytes);
            }
        }
    }
    (model, did)
}

async fn assert_stored(store: &dyn ObjectStore, key: &ObjectKey, expected: Option<&Bytes>) {
    match (store.get(key, GetOptions::default()).await, expected) {
        (Ok(object), Some(expected)) => {
            let pieces: Vec<Bytes> = object.body.try_collect().await.unwrap();
            assert!(pieces.concat() == *expected, "{key} has wrong bytes");
        }
        (Err(StoreError::NotFound(_)), None) => {}
        (seen, _) => panic!("{key}: {:?}", seen.map(|object| object.meta)),
    }
}

/// Checks that everything is there and undamaged, whichever device is lost.
async fn assert_whole_without_any(devices: &[SimDevice], model: &Model) {
    for lost in 0..devices.len() {
        let devices: Vec<SimDevice> = devices.iter().map(SimDevice::fork).collect();
        let drive = drive_on(&devices, (0..devices.len()).filter(|&n| n != lost), false).unwrap();
        assert_all_there(&drive).await;
        let store = Buckets::open(&drive, "photos").await.unwrap();
        for (key, bytes) in model {
            assert_stored(&*store, key, Some(bytes)).await;
        }
        assert_eq!(drive.scrub(|_| ()).await.unwrap().damaged, Vec::<String>::new(), "without {lost}");
        assert_eq!(drive.check().await.unwrap().problems, Vec::<String>::new());
    }
}

/// A scrub compared data and parity of rows that were allocated and written meanwhile, so a drive could not be scrubbed in use.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn s531_a_drive_is_scrubbed_while_it_is_used() {
    let devices = filled(2, 1).await;
    let drive = drive_on(&devices, 0..3, false).unwrap();
    let row_bytes = 2 * BLOCK_BYTES;
    // Each 64 KiB of an object is wrong on another device: unreadable sectors and flipped bits, in data and parity.
    let areas = drive.layout().unwrap();
    for area in areas.iter().filter(|area| area.what == Use::Data) {
        for at in (area.at..area.at + area.len_bytes).step_by(64 << 10) {
            let stretch = at / (64 << 10);
            let (device, at) = (&devices[stretch as usize % 3], MIB + at / row_bytes * BLOCK_BYTES);
            match stretch % 2 {
                0 => device.spoil(at..at + BLOCK_BYTES),
                _ => drop(device.flip(stretch, at..at + BLOCK_BYTES)),
            }
        }
    }
    let clients = Clients::begin(&drive).await;
    let mut repaired = Vec::new();
    for _ in 0..4 {
        let scrubbed = drive.scrub_at(&Yielding, |_| ()).await.unwrap();
        assert_eq!(scrubbed.damaged, Vec::<String>::new());
        repaired.push(scrubbed.repaired);
    }
    assert!(repaired[0] > 0 && repaired[1..] == [0; 3], "{repaired:?}");
    let (model, did) = clients.end().await;
    assert!(did > 10, "the clients did {did} operations");
    assert_eq!(drive.check().await.unwrap().problems, Vec::<String>::new());
    drive.close().await.unwrap();
    drop(drive);
    assert_whole_without_any(&devices, &model).await;
}

fn opened(devices: &[SimDevice], which: [usize; 2]) -> (Arc<Array>, Drive) {
    let array = Arc::new(Found::look(named(devices, which)).open(false).unwrap());
    let options = OpenOptions { index_bytes: 4 << 10, ..OpenOptions::default() };
    let drive = Drive::open(Io::Array(array.clone()), options, Arc::new(SystemClock)).unwrap();
    (array, drive)
}

/// A rebuild needed the array exclusively, as writes during a rebuild were missing on the new device. A cancelled rebuild, or one whose
/// device fails, changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn s532_a_device_is_rebuilt_while_the_drive_is_used() {
    let mut devices = filled(2, 1).await;
    devices[1] = SimDevice::new(33 * MIB);
    let (array, drive) = opened(&devices, [0, 2]);
    let clients = Clients::begin(&drive).await;
    let io = |device: &SimDevice| Io::from(Arc::new(device.clone()));
    let entropy = Entropy::new(9);

    let (tell, told) = tokio::sync::oneshot::channel();
    let mut tell = Some(tell);
    let (new, told_halfway) = (io(&devices[1]), |done: u64, all: u64| {
        if done > all / 2 {
            tell.take().into_iter().for_each(|tell| tell.send(()).unwrap());
        }
    });
    tokio::select! {
        rebuilt = array.rebuild_in_use("new".into(), &new, &entropy, &Yielding, told_halfway) => panic!("{rebuilt:?}"),
        halfway = told => halfway.unwrap(),
    }
    let broken = SimDevice::new(33 * MIB);
    let breaks = |done: u64, all: u64| {
        if done > all / 2 {
            broken.break_down();
        }
    };
    array.rebuild_in_use("broken".into(), &io(&broken), &entropy, &Yielding, breaks).await.unwrap_err();
    assert_eq!(array.losses_left(), 0);

    let rebuilt = array.rebuild_in_use("new".into(), &new, &entropy, &Yielding, |_, _| ()).await.unwrap();
    assert_eq!((rebuilt.member, rebuilt.rows_lost, array.losses_left()), (1, 0, 1));
    // Now another device may be lost, also while the drive is in use.
    devices[0].break_down();
    let before = clients.clients.len();
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    let (model, did) = clients.end().await;
    assert!(before == 3 && did > 10, "the clients did {did} operations");
    assert_eq!(array.losses_left(), 0);
    drive.close().await.unwrap();
    drop((drive, array));
    let drive = drive_on(&devices, [1, 2], false).unwrap();
    assert_all_there(&drive).await;
    let store = Buckets::open(&drive, "photos").await.unwrap();
    for (key, bytes) in &model {
        assert_stored(&*store, key, Some(bytes)).await;
    }
    drop((store, drive));
    // The excluded device is rebuilt too. Then everything is there whichever device is lost.
    devices[0].heal();
    let (array, drive) = opened(&devices, [1, 2]);
    array.rebuild_in_use("dev0".into(), &io(&devices[0]), &entropy, &Yielding, |_, _| ()).await.unwrap();
    drive.close().await.unwrap();
    drop((drive, array));
    assert_whole_without_any(&devices, &model).await;
}

/// A write that began when the rebuilt device had just become a member went to it twice at the same time: once as a member, and once as the
/// device that is being rebuilt.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_device_that_has_become_a_member_gets_each_write_once() {
    let mut devices = formatted(2, 1, 2 * MIB);
    for round in 0..20 {
        devices[1] = SimDevice::new(2 * MIB);
        let array = Arc::new(Found::look(named(&devices, [0, 2])).open(false).unwrap());
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..3)
            .map(|writer: u64| {
                let (io, stop) = (Io::Array(Arc::clone(&array)), Arc::clone(&stop));
                tokio::spawn(async move {
                    let at = writer * 8 * 2 * BLOCK_BYTES;
                    let units = body(writer, 8 * 2 * BLOCK_BYTES as usize);
                    while !stop.load(Ordering::Relaxed) {
                        io.write(at, std::slice::from_ref(&units)).await.unwrap();
                    }
                })
            })
            .collect();
        let new = Io::from(Arc::new(devices[1].clone()));
        let entropy = Entropy::new(round);
        array.rebuild_in_use("new".into(), &new, &entropy, &Yielding, |_, _| ()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.await.unwrap();
        }
        assert_eq!(array.losses_left(), 1, "round {round}");
    }
}
