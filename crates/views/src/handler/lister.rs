//! Lists containers: once when the first view needs it, and again when hints were lost.

use super::change_log::{LogRecord, RecordKind};
use super::container::{Container, Listing, View, covered};
use super::reconcile::ApplyOutcome;
use super::state_dir::pack_covered;
use super::{Handler, SHARDS, hash};
use futures_util::{StreamExt, TryStreamExt, stream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::{ListEntry, ListRequest, ObjectStore, Pages, StoreError, Timestamp};
use tokio::sync::watch;

/// Entries of a page, as many as S3 returns.
const PAGE_ENTRIES: usize = 1000;

/// Maximum number of prefixes that are listed separately. If views need more, the whole container is listed.
const PREFIXES_MAX: usize = 16;
const PREFIXES_IN_PARALLEL: usize = 8;

/// A container whose known state may be wrong is listed again after this time, when a client asks for it.
const RELIST_AFTER: Duration = Duration::from_secs(30);
/// During this time after a failed listing, requests get its error instead of starting another.
const FAILURE_TTL: Duration = Duration::from_secs(1);

/// Maximum clock skew of event sources that is assumed after hints were lost.
const SKEW: Duration = Duration::from_secs(60);

pub(super) type ListingResult = Result<(), StoreError>;

impl Handler {
    /// Waits until everything that a view needs of a container was listed. Concurrent callers share one listing.
    pub(super) async fn ensure_listed(&self, container: &Arc<Container>, view: &View) -> ListingResult {
        loop {
            let mut running = {
                let mut listing = container.listing();
                if listing.covers(view) {
                    self.relist_if_due(container, &mut listing);
                    return Ok(());
                }
                if let Some(error) = &listing.failed
                    && self.clock.now().since(listing.last_tried) < FAILURE_TTL
                {
                    return Err(error.clone());
                }
                self.start_listing(container, &mut listing)
            };
            let result = running.wait_for(Option::is_some).await;
            let result = result.ok().and_then(|result| result.clone());
            result.unwrap_or_else(|| Err(StoreError::Unavailable("the listing was cancelled".to_owned())))?;
        }
    }

    /// Lists all containers again. Returns when the listings have ended, whether they succeeded or failed.
    pub async fn list_all_again(&self) {
        let containers = self.containers();
        let listings = containers.values().map(|container| self.relist(container));
        for mut listing in listings.collect::<Vec<_>>() {
            listing.wait_for(Option::is_some).await.ok();
        }
    }

    /// Marks the known state of a container as possibly wrong and lists it again in the background. If a listing is
    /// in progress, another one follows it, because the one in progress may have been too early. Returns the result
    /// of the first.
    pub(super) fn relist(&self, container: &Arc<Container>) -> watch::Receiver<Option<ListingResult>> {
        let mut listing = container.listing();
        listing.is_stale = true;
        listing.must_repeat = listing.running.is_some();
        self.log_stale(container);
        self.start_listing(container, &mut listing)
    }

    fn relist_if_due(&self, container: &Arc<Container>, listing: &mut Listing) {
        if listing.is_stale && self.clock.now().since(listing.last_tried) >= RELIST_AFTER {
            self.start_listing(container, listing);
        }
    }

    /// Returns the result of the listing in progress, or starts one.
    fn start_listing(
        &self,
        container: &Arc<Container>,
        listing: &mut Listing,
    ) -> watch::Receiver<Option<ListingResult>> {
        if let Some(running) = &listing.running {
            return running.clone();
        }
        let (result, running) = watch::channel(None);
        let is_relisting = listing.is_stale;
        listing.number += 1;
        listing.running = Some(running.clone());
        listing.is_stale = false;
        listing.last_tried = self.clock.now();
        container.set_running_listing(Some(listing.number));
        if let Some(handler) = self.arc_self() {
            let (container, number) = (Arc::clone(container), listing.number);
            tokio::spawn(async move {
                let listed = handler.run_listing(&container, number, is_relisting).await;
                handler.end_listing(&container, listed, &result);
            });
        }
        running
    }

    fn end_listing(
        &self,
        container: &Arc<Container>,
        listed: Result<Vec<Arc<View>>, StoreError>,
        result: &watch::Sender<Option<ListingResult>>,
    ) {
        let mut listing = container.listing();
        container.set_running_listing(None);
        listing.running = None;
        let listed = match listed {
            Ok(views) => {
                if listing.failed.take().is_some() {
                    tracing::info!(container = %container.name, "the container can be listed again");
                }
                // Objects of a view that was forgotten during the listing were dropped, so the listing does not cover
                // that view.
                listing.covered = covered(views.iter().filter(|view| container.has_view(view.number)));
                self.log_listed(container, &listing);
                if listing.is_stale {
                    self.log_stale(container);
                }
                // An object that cannot be verified waits for the next listing that is due.
                if std::mem::take(&mut listing.must_repeat) {
                    self.start_listing(container, &mut listing);
                }
                Ok(())
            }
            Err(error) => {
                match listing.failed {
                    None => {
                        tracing::warn!(container = %container.name, %error, "cannot list the container; retrying in the background")
                    }
                    Some(_) => {
                        tracing::debug!(container = %container.name, %error, "still cannot list the container")
                    }
                }
                listing.is_stale = true;
                listing.failed = Some(error.clone());
                Err(error)
            }
        };
        drop(listing);
        // If this write fails, the container is listed again after a restart.
        if let Err(error) = self.flush_log() {
            tracing::warn!(%error, "cannot write the event handler's state");
        }
        result.send_replace(Some(listed));
    }

    fn log_stale(&self, container: &Container) {
        self.log_record(LogRecord {
            kind: RecordKind::Stale,
            number: container.number,
            version: 0,
            body: &[],
        });
    }

    pub(super) fn log_listed(&self, container: &Container, listing: &Listing) {
        let body = pack_covered(&listing.covered);
        self.log_record(LogRecord {
            kind: RecordKind::Listed,
            number: container.number,
            version: 0,
            body: &body,
        });
    }

    /// Lists what the container's views want, and verifies objects of which the listing says too little. Returns the
    /// views that the listing covers.
    async fn run_listing(
        &self,
        container: &Arc<Container>,
        number: u32,
        is_relisting: bool,
    ) -> Result<Vec<Arc<View>>, StoreError> {
        if container.is_outdated.load(Ordering::Acquire) {
            self.rebuild_matcher(container);
        }
        let views = container.rules().views.clone();
        let skew = if is_relisting { SKEW } else { Duration::ZERO };
        self.distrust_hints_until(container, self.clock.now().after(skew));
        let mut unverified = match self.list_prefixes(container, &views, number, is_relisting).await {
            // A bucket that does not exist holds no objects.
            Err(error @ StoreError::NoSuchBucket(_)) => {
                self.remove_unlisted(container, number);
                *container.store() = None;
                return Err(error);
            }
            listed => listed?,
        };
        unverified.extend(self.remove_unlisted(container, number));
        container.set_running_listing(None);
        self.verify_all(container, unverified).await;
        Ok(views)
    }

    /// Lists the prefixes that the views need. Returns the keys of objects to verify.
    async fn list_prefixes(
        &self,
        container: &Container,
        views: &[Arc<View>],
        number: u32,
        is_relisting: bool,
    ) -> Result<Vec<Box<[u8]>>, StoreError> {
        let store = self.store_of(container).await?;
        stream::iter(prefixes(views))
            .map(|prefix| self.list_prefix(container, &*store, prefix, number, is_relisting))
            .buffer_unordered(PREFIXES_IN_PARALLEL)
            .try_concat()
            .await
    }

    /// Removes the objects that listing `number` did not return. Returns the keys of objects to verify.
    fn remove_unlisted(&self, container: &Container, number: u32) -> Vec<Box<[u8]>> {
        let mut unverified = Vec::new();
        for shard in 0..SHARDS {
            if let Some((table, log)) = self.shard_at(shard).table(container.number) {
                unverified.extend(table.remove_unlisted(number, log));
            }
        }
        self.notify_changed();
        unverified
    }

    /// Makes hints of up to `until` untrusted where they announce an object that is not known: the hint of its
    /// removal may be lost.
    fn distrust_hints_until(&self, container: &Container, until: Timestamp) {
        for shard in 0..SHARDS {
            if let Some((table, _)) = self.shard_at(shard).table(container.number) {
                table.trust_limits.hints_lost_until = Some(until);
            }
        }
    }

    /// Lists one prefix and applies its entries. Returns the keys of objects to verify.
    async fn list_prefix(
        &self,
        container: &Container,
        store: &dyn ObjectStore,
        prefix: String,
        number: u32,
        is_relisting: bool,
    ) -> Result<Vec<Box<[u8]>>, StoreError> {
        let request =
            ListRequest { prefix: prefix.into_bytes().into(), limit: PAGE_ENTRIES, ..ListRequest::default() };
        let mut pages = Pages::of(store, request);
        let mut unverified = Vec::new();
        while let Some(entries) = pages.next().await? {
            for entry in &entries {
                if self.apply_entry(container, entry, number, is_relisting) == ApplyOutcome::Verify {
                    unverified.push(entry.text().into());
                }
            }
            self.notify_changed();
        }
        Ok(unverified)
    }

    fn apply_entry(
        &self,
        container: &Container,
        entry: &ListEntry,
        number: u32,
        is_relisting: bool,
    ) -> ApplyOutcome {
        let hash = hash(container.number, entry.text());
        match self.shard(hash).table(container.number) {
            Some((table, log)) => table.apply_entry(hash, entry, number, is_relisting, log),
            None => ApplyOutcome::Unwanted,
        }
    }

    /// Returns the container's store, which is opened at the first call.
    pub(super) async fn store_of(&self, container: &Container) -> Result<Arc<dyn ObjectStore>, StoreError> {
        let opened = container.store().clone();
        match opened {
            Some(store) => Ok(store),
            None => {
                let store = self.buckets.open(&container.name).await?;
                *container.store() = Some(Arc::clone(&store));
                Ok(store)
            }
        }
    }
}

/// Returns the prefixes of all keys that views want, without those that begin with another one of them.
fn prefixes(views: &[Arc<View>]) -> Vec<String> {
    let mut all: Vec<String> = views.iter().flat_map(|view| view.prefixes()).collect();
    all.sort_unstable();
    all.dedup_by(|next, last| next.starts_with(last.as_str()));
    if all.len() > PREFIXES_MAX { vec![String::new()] } else { all }
}
