//! Several drives as a pool: where keys go, what a crash leaves, what is said of a drive that is missing.

use bytes::Bytes;
use drive::device::BlockDevice;
use drive::pool::{self, Pool, PoolOptions};
use drive::{Drive, FormatOptions, OpenOptions};
use futures_util::TryStreamExt as _;
use futures_util::future::join_all;
use sim::device::SimDevice;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::conformance::{self, Capabilities};
use store::{
    Buckets, CompleteOptions, CopyOptions, Entropy, GetOptions, ListEntry, ListRequest, ListVersions, ObjectKey,
    ObjectStore, Precondition, PutOptions, StoreError, SystemClock, VersionEntry, Versioning,
};

const MIB: u64 = 1 << 20;
const WHOLE: PoolOptions = PoolOptions { degraded: false };
const DEGRADED: PoolOptions = PoolOptions { degraded: true };

/// Devices of these lengths, a drive on each.
fn formatted(lengths_mib: &[u64]) -> Vec<SimDevice> {
    lengths_mib.iter().enumerate().map(|(number, &mib)| formatted_one(mib, number as u64 + 11)).collect()
}

fn formatted_one(mib: u64, seed: u64) -> SimDevice {
    let device = SimDevice::new(mib * MIB);
    let as_device: Arc<dyn BlockDevice> = Arc::new(device.clone());
    Drive::format(&as_device, FormatOptions::default(), &Entropy::new(seed)).unwrap();
    device
}

fn drives(devices: &[SimDevice]) -> Vec<Drive> {
    let open = |device: &SimDevice| {
        Drive::open(Arc::new(device.clone()), OpenOptions::default(), Arc::new(SystemClock)).unwrap()
    };
    devices.iter().map(open).collect()
}

async fn joined(lengths_mib: &[u64]) -> Vec<SimDevice> {
    let devices = formatted(lengths_mib);
    pool::join(&drives(&devices), &Entropy::new(3)).await.unwrap();
    devices
}

async fn open(devices: &[SimDevice]) -> drive::Result<Pool> {
    Pool::open(drives(devices), WHOLE).await
}

/// A pool of three unequal drives.
async fn three() -> store::Result<Pool> {
    Ok(open(&joined(&[80, 128, 256]).await).await?)
}

async fn photos(pool: &Pool) -> Arc<dyn ObjectStore> {
    if pool.list().await.unwrap().is_empty() {
        pool.create("photos").await.unwrap();
    }
    Buckets::open(pool, "photos").await.unwrap()
}

fn key(text: &str) -> ObjectKey {
    ObjectKey::new(Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

async fn put(store: &dyn ObjectStore, name: &str, body: impl Into<Bytes>) -> store::Result<store::ObjectRef> {
    store.put(&key(name), body.into().into(), PutOptions::default()).await
}

async fn read(store: &dyn ObjectStore, name: &str) -> store::Result<Bytes> {
    let object = store.get(&key(name), GetOptions::default()).await?;
    Ok(object.body.try_collect::<Vec<Bytes>>().await?.concat().into())
}

/// All keys, in pages of so many entries.
async fn listed(store: &dyn ObjectStore, delimiter: Option<u8>, limit: usize) -> store::Result<Vec<String>> {
    let mut texts = Vec::new();
    let mut token = None;
    loop {
        let request = ListRequest { delimiter, token, limit, ..ListRequest::default() };
        let page = store.list(request).await?;
        assert!(page.entries.len() <= limit);
        texts.extend(page.entries.iter().map(|entry| String::from_utf8_lossy(entry.text()).into_owned()));
        token = page.next;
        if token.is_none() {
            return Ok(texts);
        }
    }
}

/// Which drives have an object of each key.
async fn homes(devices: &[SimDevice]) -> BTreeMap<String, Vec<usize>> {
    let mut homes: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (number, drive) in drives(devices).iter().enumerate() {
        let Ok(store) = Buckets::open(drive, "photos").await else { continue };
        for text in listed(&*store, None, 1000).await.unwrap() {
            homes.entry(text).or_default().push(number);
        }
    }
    homes
}

// As every store.

async fn bucket() -> store::Result<Arc<dyn ObjectStore>> {
    let pool = three().await?;
    pool.create("tests").await?;
    Buckets::open(&pool, "tests").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pools_bucket_conforms() {
    conformance::run(bucket, Capabilities::ALL).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pools_uploads_conform() {
    conformance::run_uploads(bucket, Capabilities::ALL).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pools_versions_conform() {
    conformance::run_versions(bucket, Capabilities::ALL).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pools_buckets_conform() {
    let fresh = || async { Ok(Arc::new(three().await?) as Arc<dyn Buckets>) };
    conformance::run_buckets(fresh).await.unwrap();
}
