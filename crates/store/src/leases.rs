//! Which of several machines does something with a bucket: agreed by objects that only one of them can make.
//!
//! No bucket renames, and few servers delete under a condition, so that of two who move an object each would think that it
//! was first. Who takes a lease on a text stores a small object named by it, under the condition that there is none, renews
//! it while at work, and deletes it. Who finds another's waits. One that did not change for [`LAPSE`] is of somebody who
//! died, and is replaced, under the condition that it still has not changed: spans are measured here, and no two
//! machines' clocks are compared.
//!
//! A lease keeps those apart who take one, and no longer than they reach the bucket: what is done under it must do no harm
//! if somebody else does it too.

use crate::{
    Claims, ETag, Entropy, ListEntry, ListRequest, ObjectKey, ObjectStore, Pages, Payload, Precondition,
    PutOptions, Result, StoreError,
};
use aws_lc_rs::digest::{SHA256, digest};
use futures_util::future::{Either, select};
use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// A lease that was not renewed for so long is nobody's.
pub const LAPSE: Duration = Duration::from_secs(12);
/// How often who has one says so: three times may fail.
const RENEWED_EVERY: Duration = Duration::from_secs(3);
/// A lease renewed in this time is surely still ours, and may be deleted.
const SURELY_OURS: Duration = Duration::from_secs(6);
/// The first and the longest pause of who waits for another's.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(320));
/// Who waits for others longer than this gives up.
const PATIENCE: Duration = Duration::from_secs(60);
/// Keys asked for at once.
const PAGE_ENTRIES: usize = 1000;

/// The leases of one mount.
#[derive(Debug)]
pub struct Leases {
    store: Arc<dyn ObjectStore>,
    beginning: Vec<u8>,
    entropy: Arc<Entropy>,
    /// Within this process nobody asks the bucket who else there is.
    here: Claims<ObjectKey>,
}

/// A lease that was taken, as it was stored last.
#[derive(Debug)]
struct Held {
    key: ObjectKey,
    etag: ETag,
    /// When that was asked for.
    renewed_at: Instant,
    is_lost: bool,
}

impl Leases {
    /// Leases whose keys in `store` begin with `beginning`, which ends in `/`.
    pub fn new(store: Arc<dyn ObjectStore>, beginning: Vec<u8>, entropy: Arc<Entropy>) -> Self {
        Self { store, beginning, entropy, here: Claims::default() }
    }

    /// Does something while no other lease on any of these texts is held; `None` if others hold one for a minute.
    pub async fn holding<T>(&self, texts: &[&[u8]], work: impl Future<Output = T>) -> Result<Option<T>> {
        let keys = texts.iter().map(|text| self.key(text)).collect::<Result<BTreeSet<_>>>()?;
        let mut claims = Vec::with_capacity(keys.len());
        let mut held = Vec::with_capacity(keys.len());
        let taken = timeout(PATIENCE, async {
            for key in &keys {
                claims.push(self.here.claim(key).await);
                held.push(self.take(key).await?);
            }
            Ok(())
        });
        let outcome = match taken.await {
            Ok(Ok(())) => Ok(Some(self.renewing(&mut held, work).await)),
            Ok(Err(error)) => Err(error),
            Err(_) => Ok(None),
        };
        self.release(held).await;
        outcome
    }

    /// A text may be longer than a key, and nothing that a server would take for a key.
    fn key(&self, text: &[u8]) -> Result<ObjectKey> {
        let sum = digest(&SHA256, text);
        let name = crate::hex(&sum.as_ref()[..16]);
        let key = ObjectKey::new([self.beginning.as_slice(), name.as_bytes()].concat());
        key.map_err(|error| StoreError::Invalid(format!("a lease has no key: {error}")))
    }

    async fn take(&self, key: &ObjectKey) -> Result<Held> {
        let mut pause = PAUSES.0;
        let mut found: Option<(ETag, Instant)> = None;
        loop {
            let lapsed = found.as_ref().filter(|(_, since)| since.elapsed() >= LAPSE);
            let condition =
                lapsed.map_or(Precondition::Absent, |(etag, _)| Precondition::Matches(etag.clone()));
            match self.put(key, condition).await {
                Ok(held) => {
                    if lapsed.is_some() {
                        tracing::info!(%key, "the lease of a mount that does not renew it was taken over");
                    }
                    return Ok(held);
                }
                Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
            let there = self.store.find(key).await?.map(|meta| meta.object.etag);
            found = match (there, found.take()) {
                (Some(there), Some((etag, since))) if there == etag => Some((etag, since)),
                (there, _) => there.map(|etag| (etag, Instant::now())),
            };
            sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// No two have the same bytes, and so no two the same tag.
    async fn put(&self, key: &ObjectKey, precondition: Precondition) -> Result<Held> {
        let renewed_at = Instant::now();
        let body = format!("{{\"version\":1,\"unique\":\"{:016x}\"}}", self.entropy.next_u64());
        let options = PutOptions { precondition, ..PutOptions::default() };
        let object = self.store.put(key, Payload::from(body), options).await?;
        Ok(Held { key: key.clone(), etag: object.etag, renewed_at, is_lost: false })
    }

    async fn renewing<T>(&self, held: &mut [Held], work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            let pause = pin!(sleep(RENEWED_EVERY));
            if let Either::Left((outcome, _)) = select(work.as_mut(), pause).await {
                return outcome;
            }
            let renewal = pin!(self.renew(held));
            if let Either::Left((outcome, renewal)) = select(work.as_mut(), renewal).await {
                // Else nobody would know what is there, and it could not be deleted.
                renewal.await;
                return outcome;
            }
        }
    }

    async fn renew(&self, held: &mut [Held]) {
        for one in held.iter_mut().filter(|one| !one.is_lost) {
            match self.put(&one.key, Precondition::Matches(one.etag.clone())).await {
                Ok(renewed) => *one = renewed,
                Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => {
                    tracing::warn!(key = %one.key, "a lease was taken over: this mount had not renewed it in time");
                    one.is_lost = true;
                }
                Err(error) => {
                    tracing::warn!(key = %one.key, %error, "a lease is not renewed; it is tried again")
                }
            }
        }
    }

    /// What cannot be deleted in time lapses.
    async fn release(&self, held: Vec<Held>) {
        for one in held.into_iter().filter(|one| !one.is_lost) {
            let left = SURELY_OURS.saturating_sub(one.renewed_at.elapsed());
            let deleted = self.store.delete(&one.key, Precondition::Matches(one.etag));
            if !matches!(timeout(left, deleted).await, Ok(Ok(()))) {
                tracing::debug!(key = %one.key, "a lease is left to lapse");
            }
        }
    }
}

/// Finds the leases below `beginning` that nobody renews, which takes [`LAPSE`] if there are any, and deletes them
/// unless they are only to be found.
pub async fn left_over(store: &dyn ObjectStore, beginning: &[u8], only_find: bool) -> Result<Vec<ObjectKey>> {
    let before = all(store, beginning).await?;
    if before.is_empty() {
        return Ok(Vec::new());
    }
    sleep(LAPSE).await;
    let mut found = Vec::new();
    for (key, etag) in all(store, beginning).await?.intersection(&before) {
        let deleted = match only_find {
            true => Ok(()),
            false => store.delete(key, Precondition::Matches(etag.clone())).await,
        };
        match deleted {
            Ok(()) => found.push(key.clone()),
            // Somebody has taken it over.
            Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

async fn all(store: &dyn ObjectStore, beginning: &[u8]) -> Result<BTreeSet<(ObjectKey, ETag)>> {
    let request =
        ListRequest { prefix: beginning.to_vec().into(), limit: PAGE_ENTRIES, ..ListRequest::default() };
    let entries = Pages::of(store, request).all().await?;
    let leases = entries.into_iter().filter_map(ListEntry::into_object);
    Ok(leases.map(|(object, _)| (object.key, object.etag)).collect())
}
