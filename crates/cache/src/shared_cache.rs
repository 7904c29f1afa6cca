//! A cache of segments in a bucket near the machines that share it.
//!
//! An object of this bucket is a segment, followed by a CRC-32C (4 bytes, little-endian) of its identity and its bytes. Its key is the name that its
//! file in a disk cache has. Objects are never changed; a rule of the bucket's lifecycle deletes old ones.

use bytes::Bytes;
use log::Crc;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use store::{GetOptions, InvalidKey, ObjectKey, ObjectStore, Payload, PutOptions, StoreError};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::identity::{ObjectId, SegmentId};
use crate::segment::SEGMENT_BYTES;

/// Timeout of a read from the cache. After it, reading from the volume's bucket is faster.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Timeout of storing a segment.
const STORED_WITHIN: Duration = Duration::from_secs(10);
/// Time after a failure for which the cache is not used.
const PAUSE: Duration = Duration::from_secs(10);
/// Maximum number of segments that are stored at once.
const STORING_MAX: usize = 8;
/// Length of the checksum behind a segment.
const CHECKSUM_BYTES: usize = 4;

/// A cache in a bucket. Any number of machines may use it at the same time.
pub struct SharedCache {
    store: Arc<dyn ObjectStore>,
    /// Prefix of the keys.
    prefix: Vec<u8>,
    /// When the cache is used again after a failure.
    paused_until: Mutex<Option<Instant>>,
    storing: Semaphore,
    figures: Figures,
}

#[derive(Debug, Default)]
struct Figures {
    hit_bytes: AtomicU64,
    missed: AtomicU64,
    stored_bytes: AtomicU64,
    damaged: AtomicU64,
    failures: AtomicU64,
}

/// Figures of a shared cache since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SharedCounts {
    /// Bytes of segments that were there.
    pub hit_bytes: u64,
    /// Segments that were not there.
    pub missed: u64,
    /// Bytes of segments that were stored.
    pub stored_bytes: u64,
    /// Segments with a wrong checksum. They are read from the bucket.
    pub damaged: u64,
    /// Requests that failed or got no answer in time. The cache is not used for a while after each.
    pub failures: u64,
}

impl fmt::Debug for SharedCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedCache").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl SharedCache {
    /// Returns the cache in a bucket, below a prefix.
    pub fn new(store: Arc<dyn ObjectStore>, prefix: &[u8]) -> Self {
        Self {
            store,
            prefix: prefix.to_vec(),
            paused_until: Mutex::new(None),
            storing: Semaphore::new(STORING_MAX),
            figures: Figures::default(),
        }
    }

    /// Returns the figures.
    pub fn counts(&self) -> SharedCounts {
        let read = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        SharedCounts {
            hit_bytes: read(&self.figures.hit_bytes),
            missed: read(&self.figures.missed),
            stored_bytes: read(&self.figures.stored_bytes),
            damaged: read(&self.figures.damaged),
            failures: read(&self.figures.failures),
        }
    }

    /// Returns a whole segment of an object; `None` if it is not there, or if the cache fails.
    pub async fn read(&self, object: ObjectId, number: u64) -> Option<Bytes> {
        let id = object.segment(number);
        let key = self.key(id).ok()?;
        if self.is_paused() {
            return None;
        }
        let stored = match timeout(ANSWER_WITHIN, read_whole(&*self.store, &key)).await {
            Ok(Ok(stored)) => stored,
            Ok(Err(StoreError::NotFound(_))) => {
                self.figures.missed.fetch_add(1, Ordering::Relaxed);
                return None;
            }
            Ok(Err(error)) => {
                self.pause(&error);
                return None;
            }
            Err(_) => {
                self.pause(&"it does not answer");
                return None;
            }
        };
        let Some(segment) = verified(id, stored) else {
            self.figures.damaged.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                "the object '{key}' of the shared cache is damaged; its bytes are read from the bucket"
            );
            return None;
        };
        self.figures.hit_bytes.fetch_add(segment.len() as u64, Ordering::Relaxed);
        Some(segment)
    }

    /// Stores a whole segment of an object. A failure is only counted and logged.
    pub async fn store(&self, object: ObjectId, number: u64, segment: &[u8]) {
        assert!(segment.len() as u64 <= SEGMENT_BYTES, "an object of the shared cache is one segment");
        let id = object.segment(number);
        let (Ok(key), Ok(_permit)) = (self.key(id), self.storing.acquire().await) else { return };
        if self.is_paused() {
            return;
        }
        let mut body = segment.to_vec();
        body.extend_from_slice(&checksum(id, segment).to_le_bytes());
        let put = self.store.put(&key, Payload::from(Bytes::from(body)), PutOptions::default());
        match timeout(STORED_WITHIN, put).await {
            Ok(Ok(_)) => drop(self.figures.stored_bytes.fetch_add(segment.len() as u64, Ordering::Relaxed)),
            Ok(Err(error)) => self.pause(&error),
            Err(_) => self.pause(&"it does not answer"),
        }
    }

    fn key(&self, id: SegmentId) -> Result<ObjectKey, InvalidKey> {
        ObjectKey::try_from(&[&self.prefix, id.file_name().as_bytes()].concat()[..])
    }

    fn is_paused(&self) -> bool {
        let paused_until = *self.paused_until.lock().unwrap_or_else(PoisonError::into_inner);
        paused_until.is_some_and(|until| Instant::now() < until)
    }

    /// Stops using the cache for a while.
    fn pause(&self, error: &dyn fmt::Display) {
        self.figures.failures.fetch_add(1, Ordering::Relaxed);
        let mut paused_until = self.paused_until.lock().unwrap_or_else(PoisonError::into_inner);
        if paused_until.is_none() {
            tracing::warn!("the shared cache fails, so that data is read from the bucket: {error}");
        }
        *paused_until = Some(Instant::now() + PAUSE);
    }
}

async fn read_whole(store: &dyn ObjectStore, key: &ObjectKey) -> store::Result<Bytes> {
    use futures_util::TryStreamExt as _;
    let object = store.get(key, GetOptions::default()).await?;
    let mut pieces: Vec<Bytes> = object.body.try_collect().await?;
    Ok(match pieces.len() {
        1 => pieces.remove(0),
        _ => Bytes::from(pieces.concat()),
    })
}

/// Returns the bytes of a segment without their checksum; `None` if it is wrong.
fn verified(id: SegmentId, mut stored: Bytes) -> Option<Bytes> {
    let len = stored.len().checked_sub(CHECKSUM_BYTES).filter(|len| *len as u64 <= SEGMENT_BYTES)?;
    let expected = stored.split_off(len);
    (checksum(id, &stored).to_le_bytes() == expected[..]).then_some(stored)
}

fn checksum(id: SegmentId, segment: &[u8]) -> u32 {
    let mut crc = Crc::default();
    crc.add(&id.to_bytes());
    crc.add(segment);
    crc.sum()
}
