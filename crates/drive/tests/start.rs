//! Drives for tests.

use drive::device::BlockDevice;
use drive::{Drive, FormatOptions, OpenOptions};
use sim::device::SimDevice;
use std::sync::Arc;
use store::{Buckets, Entropy, ObjectStore, SystemClock};

pub(crate) const DEVICE_BYTES: u64 = 256 << 20;

/// A device in memory with an empty drive on it.
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

/// An empty bucket of a drive of its own.
pub(crate) async fn bucket() -> store::Result<Arc<dyn ObjectStore>> {
    let drive = open(&formatted())?;
    drive.create("tests").await?;
    Buckets::open(&drive, "tests").await
}

/// A new bucket of a drive.
pub(crate) async fn bucket_of(drive: &Drive) -> Arc<dyn ObjectStore> {
    drive.create("photos").await.unwrap();
    Buckets::open(drive, "photos").await.unwrap()
}
