//! Leases: locks in a bucket that decide which of several machines works on something.
//!
//! S3 has no rename, and few servers support conditional deletes, so if two machines moved an object at the same time
//! both would believe to be first. A machine takes a lease on a text (such as a path) by storing a small object,
//! whose key is derived from the text, on condition that there is none. It renews the lease while it works, and
//! deletes the object afterwards. Another machine that finds the object waits. A lease that did not change for
//! [`LAPSE`] belongs to a machine that died and is replaced, on condition that it still has not changed. Only spans
//! of time on one machine are measured; clocks of different machines are never compared.
//!
//! A lease excludes only machines that take leases, and only while they reach the bucket. Work done under a lease
//! must therefore do no harm if another machine does the same.

use aws_lc_rs::digest::{SHA256, digest};
use futures_util::future::{Either, select};
use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use store::{
    ETag, Entropy, KeyedLocks, ListEntry, ListRequest, ObjectKey, ObjectStore, Pages, Payload, Precondition,
    PutOptions, Result, StoreError,
};
use tokio::time::{Instant, sleep, timeout};

/// A lease that was not renewed for this long has lapsed.
pub const LAPSE: Duration = Duration::from_secs(12);
/// Interval of renewals. Three of them may fail before the lease lapses.
const RENEW_INTERVAL: Duration = Duration::from_secs(3);
/// A lease renewed within this time certainly belongs to this process and may be deleted.
const CERTAINLY_HELD: Duration = Duration::from_secs(6);
/// First and longest pause between attempts to take a lease that another machine holds.
const RETRY_PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(320));
/// Time after which an attempt to take leases gives up.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(60);
/// Keys per LIST page.
const PAGE_ENTRIES: usize = 1000;

/// The leases of one mount.
#[derive(Debug)]
pub struct Leases {
    store: Arc<dyn ObjectStore>,
    prefix: Vec<u8>,
    entropy: Arc<Entropy>,
    /// Locks within this process, so that its tasks do not compete through the bucket.
    local_locks: KeyedLocks<ObjectKey>,
}

/// A held lease, as it was last stored.
#[derive(Debug)]
struct HeldLease {
    key: ObjectKey,
    etag: ETag,
    /// Time at which the request that last stored the lease was sent.
    renewed_at: Instant,
    is_lost: bool,
}

impl Leases {
    /// Creates leases whose keys in `store` begin with `prefix`, which ends in `/`.
    pub fn new(store: Arc<dyn ObjectStore>, prefix: Vec<u8>, entropy: Arc<Entropy>) -> Self {
        Self { store, prefix, entropy, local_locks: KeyedLocks::default() }
    }

    /// Runs `work` while holding the leases on all `texts`. Returns `None` without running `work` if the leases
    /// cannot all be taken within a minute, because another machine or another task holds one.
    pub async fn holding<T>(&self, texts: &[&[u8]], work: impl Future<Output = T>) -> Result<Option<T>> {
        let keys = texts.iter().map(|text| self.key(text)).collect::<Result<BTreeSet<_>>>()?;
        let mut guards = Vec::with_capacity(keys.len());
        let mut held = Vec::with_capacity(keys.len());
        let acquired = timeout(ACQUIRE_TIMEOUT, async {
            for key in &keys {
                guards.push(self.local_locks.lock(key).await);
                held.push(self.acquire(key).await?);
            }
            Ok(())
        });
        let outcome = match acquired.await {
            Ok(Ok(())) => Ok(Some(self.run_renewing(&mut held, work).await)),
            Ok(Err(error)) => Err(error),
            Err(_) => Ok(None),
        };
        self.release(held).await;
        outcome
    }

    /// Returns the key of a lease: a hash, because a text may be longer than a key and contain bytes that a server
    /// refuses.
    fn key(&self, text: &[u8]) -> Result<ObjectKey> {
        let hash = digest(&SHA256, text);
        let name = store::hex(&hash.as_ref()[..16]);
        let key = ObjectKey::new([self.prefix.as_slice(), name.as_bytes()].concat());
        key.map_err(|error| StoreError::Invalid(format!("a lease cannot be stored: {error}")))
    }

    /// Acquires the lease of a key. Waits while another holder renews it, and takes it over if it is not renewed in
    /// time.
    async fn acquire(&self, key: &ObjectKey) -> Result<HeldLease> {
        let mut pause = RETRY_PAUSES.0;
        let mut found: Option<(ETag, Instant)> = None;
        loop {
            let lapsed = found.as_ref().filter(|(_, since)| since.elapsed() >= LAPSE);
            let condition =
                lapsed.map_or(Precondition::Absent, |(etag, _)| Precondition::Matches(etag.clone()));
            match self.put(key, condition).await {
                Ok(held) => {
                    if lapsed.is_some() {
                        tracing::info!(%key, "took over a lease that was not renewed in time");
                    }
                    return Ok(held);
                }
                Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
            let current = self.store.find(key).await?.map(|meta| meta.object.etag);
            found = match (current, found.take()) {
                (Some(current), Some((etag, since))) if current == etag => Some((etag, since)),
                (current, _) => current.map(|etag| (etag, Instant::now())),
            };
            sleep(pause).await;
            pause = (pause * 2).min(RETRY_PAUSES.1);
        }
    }

    /// Stores a lease with unique bytes, so that no two leases have the same etag.
    async fn put(&self, key: &ObjectKey, precondition: Precondition) -> Result<HeldLease> {
        let renewed_at = Instant::now();
        let body = format!("{{\"version\":1,\"unique\":\"{:016x}\"}}", self.entropy.next_u64());
        let options = PutOptions { precondition, ..PutOptions::default() };
        let object = self.store.put(key, Payload::from(body), options).await?;
        Ok(HeldLease { key: key.clone(), etag: object.etag, renewed_at, is_lost: false })
    }

    /// Runs `work`, and renews the held leases at intervals meanwhile.
    async fn run_renewing<T>(&self, held: &mut [HeldLease], work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            let pause = pin!(sleep(RENEW_INTERVAL));
            if let Either::Left((outcome, _)) = select(work.as_mut(), pause).await {
                return outcome;
            }
            let renewal = pin!(self.renew(held));
            if let Either::Left((outcome, renewal)) = select(work.as_mut(), renewal).await {
                // Without its result the etag of the stored lease is unknown, and the lease could not be deleted.
                renewal.await;
                return outcome;
            }
        }
    }

    /// Renews held leases once. A lease that another holder has taken over is marked as lost.
    async fn renew(&self, held: &mut [HeldLease]) {
        for lease in held.iter_mut().filter(|lease| !lease.is_lost) {
            match self.put(&lease.key, Precondition::Matches(lease.etag.clone())).await {
                Ok(renewed) => *lease = renewed,
                Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => {
                    tracing::warn!(key = %lease.key, "the lease in the bucket is not the one that this mount stored last, so this mount has lost it; the work under the lease continues, and another machine may change the same names meanwhile");
                    lease.is_lost = true;
                }
                Err(error) => {
                    tracing::warn!(key = %lease.key, %error, "cannot renew a lease; retrying")
                }
            }
        }
    }

    /// Deletes leases. A lease that cannot be deleted in time lapses.
    async fn release(&self, held: Vec<HeldLease>) {
        for lease in held.into_iter().filter(|lease| !lease.is_lost) {
            let left = CERTAINLY_HELD.saturating_sub(lease.renewed_at.elapsed());
            let deleted = self.store.delete(&lease.key, Precondition::Matches(lease.etag));
            if !matches!(timeout(left, deleted).await, Ok(Ok(()))) {
                tracing::debug!(key = %lease.key, "could not delete a lease in time; if it still exists, it lapses");
            }
        }
    }
}

/// Finds the leases below `prefix` that nobody renews, and deletes them unless `only_find`. Takes [`LAPSE`] if there
/// are any leases.
pub async fn left_over(store: &dyn ObjectStore, prefix: &[u8], only_find: bool) -> Result<Vec<ObjectKey>> {
    let before = list_leases(store, prefix).await?;
    if before.is_empty() {
        return Ok(Vec::new());
    }
    sleep(LAPSE).await;
    let mut found = Vec::new();
    for (key, etag) in list_leases(store, prefix).await?.intersection(&before) {
        let deleted = match only_find {
            true => Ok(()),
            false => store.delete(key, Precondition::Matches(etag.clone())).await,
        };
        match deleted {
            Ok(()) => found.push(key.clone()),
            // Another machine has taken the lease over.
            Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

async fn list_leases(store: &dyn ObjectStore, prefix: &[u8]) -> Result<BTreeSet<(ObjectKey, ETag)>> {
    let request =
        ListRequest { prefix: prefix.to_vec().into(), limit: PAGE_ENTRIES, ..ListRequest::default() };
    let entries = Pages::new(store, request).collect().await?;
    let leases = entries.into_iter().filter_map(ListEntry::into_object);
    Ok(leases.map(|(object, _)| (object.key, object.etag)).collect())
}
