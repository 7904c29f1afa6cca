//! Drives for tests.

use bytes::Bytes;
use drive::device::BlockDevice;
use drive::{Drive, FormatOptions, OpenOptions};
use sim::device::SimDevice;
use std::sync::Arc;
use store::{Buckets, Entropy, ObjectKey, ObjectStore, PutOptions, SystemClock};

pub(crate) const DEVICE_BYTES: u64 = 256 << 20;

/// Returns a device in memory with an empty drive.
pub(crate) fn formatted() -> SimDevice {
    let device = SimDevice::new(DEVICE_BYTES);
    let as_device: Arc<dyn BlockDevice> = Arc::new(device.clone());
    Drive::format(&as_device, FormatOptions::default(), &Entropy::new(7)).unwrap();
    device
}

pub(crate) fn open(device: &SimDevice) -> drive::Result<Drive> {
    open_with(device, OpenOptions::default())
}

pub(crate) fn open_with(device: &SimDevice, options: OpenOptions) -> drive::Result<Drive> {
    Drive::open(Arc::new(device.clone()), options, Arc::new(SystemClock))
}

/// Returns an empty bucket on a new drive.
pub(crate) async fn bucket() -> store::Result<Arc<dyn ObjectStore>> {
    let drive = open(&formatted())?;
    drive.create("tests").await?;
    Buckets::open(&drive, "tests").await
}

/// Creates a bucket on a drive.
pub(crate) async fn bucket_of(drive: &Drive) -> Arc<dyn ObjectStore> {
    drive.create("photos").await.unwrap();
    Buckets::open(drive, "photos").await.unwrap()
}

/// The lengths of the objects of a filled drive: empty, in a frame, in a run, in several reads.
pub(crate) const LENGTHS: [usize; 6] = [0, 10, 5_000, 70_000, 300_000, 3 << 20];

pub(crate) fn key(number: usize) -> ObjectKey {
    ObjectKey::new(format!("object-{number}").into_bytes()).unwrap()
}

pub(crate) fn body(number: usize) -> Bytes {
    (0..LENGTHS[number])
        .map(|at| (at as u32).wrapping_mul(2_654_435_761).wrapping_add(number as u32) as u8)
        .collect()
}

/// Makes a bucket with objects of every kind of body, in tables and in the log.
pub(crate) async fn fill(drive: &Drive) {
    let store = bucket_of(drive).await;
    for number in 0..LENGTHS.len() {
        store.put(&key(number), body(number).into(), PutOptions::default()).await.unwrap();
        if number == 3 {
            drive.close().await.unwrap();
        }
    }
}
