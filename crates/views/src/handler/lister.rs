//! Lists containers: when a view needs what earlier listings do not cover, when a new bucket is found, and again when
//! hints were lost, an object could not be verified, or a listing failed.
//!
//! Owns when a container is listed, and what becomes of a listing that fails. Invariants: a container has one listing
//! at a time; a listing that needs more memory than there is for objects ends, and the views that no earlier listing
//! covers are refused.

use super::container::Container;
use super::listing_state::{
    ListingError, ListingResult, ListingState, RunningListing, StartedListing, coverage,
};
use super::objects::{ApplyOutcome, Objects, RecordKind};
use super::state_log::StateLog;
use super::verifier::Verifier;
use super::view::View;
use futures_util::{StreamExt, TryStreamExt, stream};
use std::sync::Arc;
use std::time::Duration;
use store::{Buckets, Clock, ListRequest, ObjectStore, Pages, StoreError};

/// Maximum number of entries in a page of a listing. S3 returns no more.
const PAGE_ENTRIES: usize = 1000;

/// Maximum number of prefixes that are listed separately. If views need more, the whole container is listed.
const PREFIXES_MAX: usize = 16;
/// Maximum number of prefixes of a container that are listed at once.
const PREFIXES_IN_PARALLEL: usize = 8;

/// Assumed maximum by which the clock of an event source is ahead. After hints were lost, a hint of an unknown object
/// from before the new listing plus this time is verified.
const SKEW: Duration = Duration::from_secs(60);

/// Starts listings of containers and applies what they return.
#[derive(Debug)]
pub(super) struct Lister {
    buckets: Arc<dyn Buckets>,
    clock: Arc<dyn Clock>,
    objects: Arc<Objects>,
    log: Arc<StateLog>,
    verifier: Arc<Verifier>,
    /// Maximum memory of all objects, in bytes.
    memory_max_bytes: usize,
}

impl Lister {
    pub(super) fn new(
        buckets: Arc<dyn Buckets>,
        clock: Arc<dyn Clock>,
        verifier: Arc<Verifier>,
        (objects, log): (Arc<Objects>, Arc<StateLog>),
        memory_max_bytes: usize,
    ) -> Self {
        Self { buckets, clock, objects, log, verifier, memory_max_bytes }
    }

    /// Returns whether there is memory for more objects.
    pub(super) fn has_room(&self) -> bool {
        self.memory_max_bytes == usize::MAX || self.objects.memory_bytes() <= self.memory_max_bytes
    }

    fn no_room(&self) -> ListingError {
        let limit_mib = self.memory_max_bytes >> 20;
        ListingError::NoRoom(format!(
            "the objects of views need more than {limit_mib} MiB, their share of --memory-limit: let rulesets match fewer objects, or raise the limit"
        ))
    }

    /// Waits until everything that a view needs of a container was listed. Concurrent callers share one listing. If the
    /// known state may be wrong but covers the view, returns at once, and starts a listing in the background if one is
    /// due.
    pub(super) async fn ensure_listed(
        self: &Arc<Self>,
        container: &Arc<Container>,
        view: &View,
    ) -> ListingResult {
        loop {
            let mut running = {
                let now = self.clock.now();
                let mut listing = container.listing();
                if listing.covers(view) {
                    if listing.is_relisting_due(now) {
                        self.start(container, &mut listing);
                    }
                    return Ok(());
                }
                if let Some(error) = listing.recent_failure(now) {
                    return Err(error.clone());
                }
                self.start(container, &mut listing)
            };
            let result = running.wait_for(Option::is_some).await;
            let result = result.ok().and_then(|result| result.clone());
            let cancelled = || {
                StoreError::Unavailable("the listing of the container ended without a result".to_owned())
                    .into()
            };
            result.unwrap_or_else(|| Err(cancelled()))?;
        }
    }

    /// Marks the known state of a container as possibly wrong and lists it again in the background. If a listing is
    /// in progress, another one follows it, because the one in progress may have been too early. Returns what
    /// receives the result of the first.
    pub(super) fn relist(self: &Arc<Self>, container: &Arc<Container>) -> RunningListing {
        let mut listing = container.listing();
        listing.require_relisting();
        self.log.append_number(RecordKind::Stale, container.number);
        self.start(container, &mut listing)
    }

    /// Lists a container again if its last listing failed or an object could not be added; if that was for lack of
    /// memory, only once there is memory.
    pub(super) fn retry_if_failed(self: &Arc<Self>, container: &Arc<Container>) {
        let may_succeed = match container.listing().failed() {
            None => false,
            Some(ListingError::Store(_)) => true,
            Some(ListingError::NoRoom(_)) => self.has_room(),
        };
        if may_succeed {
            self.relist(container);
        }
    }

    /// Notes that an object of a container could not be added, because there is no memory for it. Warns once until a
    /// listing succeeds.
    pub(super) fn note_no_room(&self, container: &Container) {
        let error = self.no_room();
        if container.listing().note_failure(error.clone()) {
            tracing::warn!(container = %container.name, %error, "an object of the container could not be added for lack of memory, so views lack it");
        }
    }

    /// Returns what receives the result of the listing in progress, or starts one.
    fn start(self: &Arc<Self>, container: &Arc<Container>, listing: &mut ListingState) -> RunningListing {
        let (running, started) = listing.start(self.clock.now());
        if let Some(started) = started {
            container.set_running_listing(Some(started.number));
            let (lister, container) = (Arc::clone(self), Arc::clone(container));
            tokio::spawn(async move {
                let listed = lister.run(&container, &started).await;
                lister.end(&container, listed, started);
            });
        }
        running
    }

    fn end(
        self: &Arc<Self>,
        container: &Arc<Container>,
        listed: Result<Vec<Arc<View>>, ListingError>,
        started: StartedListing,
    ) {
        container.set_running_listing(None);
        let result = match listed {
            Ok(views) => {
                self.succeed(container, &views);
                Ok(())
            }
            Err(error) => {
                self.fail(container, &error);
                Err(error)
            }
        };
        // If this write fails, a restarted handler lists the container again.
        self.log.flush_or_warn();
        started.result.send_replace(Some(result));
    }

    fn succeed(self: &Arc<Self>, container: &Arc<Container>, views: &[Arc<View>]) {
        let mut listing = container.listing();
        // Objects of a view that was forgotten during the listing were dropped, so the listing does not cover
        // that view.
        let covered = coverage(views.iter().filter(|view| container.has_view(view.number)));
        if listing.succeed(covered) {
            tracing::info!(container = %container.name, "the container was listed again after earlier failures");
        }
        self.log.append_with(|into| listing.append_records(container.number, into));
        // A listing that was asked for meanwhile follows at once. If only an object could not be verified, the
        // container stays marked, and is listed again once a client asks and the listing is due.
        if listing.take_must_repeat() {
            self.start(container, &mut listing);
        }
    }

    fn fail(&self, container: &Container, error: &ListingError) {
        let mut listing = container.listing();
        if listing.fail(error.clone()) {
            tracing::warn!(container = %container.name, %error, "cannot list the container with all its objects; retrying in the background");
        } else {
            tracing::debug!(container = %container.name, %error, "still cannot list the container with all its objects");
        }
        if let ListingError::NoRoom(why) = error {
            let now = self.clock.now();
            let refused = container.remove_uncovered_views(&listing);
            drop(listing);
            refused.iter().for_each(|view| view.refuse(why.clone(), now));
            container.rebuild_matcher(&self.objects, now);
        }
    }

    /// Lists what the container's views want, and verifies objects of which the listing says too little. Returns the
    /// views that the listing covers.
    async fn run(
        &self,
        container: &Arc<Container>,
        started: &StartedListing,
    ) -> Result<Vec<Arc<View>>, ListingError> {
        let now = self.clock.now();
        container.rebuild_matcher(&self.objects, now);
        let views = container.views();
        let skew = if started.is_relisting { SKEW } else { Duration::ZERO };
        self.objects.distrust_hints_until(container.number, self.clock.now().after(skew));
        let mut unverified = match self.list_prefixes(container, &views, started).await {
            // A bucket that does not exist holds no objects, so all known ones are removed.
            Err(error @ ListingError::Store(StoreError::NoSuchBucket(_))) => {
                self.objects.remove_unlisted(container.number, started.number);
                container.forget_store();
                return Err(error);
            }
            listed => listed?,
        };
        unverified.extend(self.objects.remove_unlisted(container.number, started.number));
        container.set_running_listing(None);
        self.verifier.verify_all(container, unverified).await;
        Ok(views)
    }

    /// Lists the prefixes that the views need. Returns the keys of objects to verify.
    async fn list_prefixes(
        &self,
        container: &Container,
        views: &[Arc<View>],
        started: &StartedListing,
    ) -> Result<Vec<Box<[u8]>>, ListingError> {
        let store = container.open_store(&*self.buckets).await?;
        stream::iter(prefixes(views))
            .map(|prefix| self.list_prefix(container, &*store, prefix, started))
            .buffer_unordered(PREFIXES_IN_PARALLEL)
            .try_concat()
            .await
    }

    /// Lists one prefix and applies its entries. Returns the keys of objects to verify.
    async fn list_prefix(
        &self,
        container: &Container,
        store: &dyn ObjectStore,
        prefix: String,
        started: &StartedListing,
    ) -> Result<Vec<Box<[u8]>>, ListingError> {
        let request =
            ListRequest { prefix: prefix.into_bytes().into(), limit: PAGE_ENTRIES, ..ListRequest::default() };
        let mut pages = Pages::new(store, request);
        let mut unverified = Vec::new();
        while let Some(entries) = pages.next().await? {
            if !self.has_room() {
                return Err(self.no_room());
            }
            for entry in &entries {
                let outcome =
                    self.objects.apply_entry(container.number, entry, started.number, started.is_relisting);
                if outcome == ApplyOutcome::Verify {
                    unverified.push(entry.text().into());
                }
            }
            self.objects.notify_changed();
            // Records must not accumulate in memory. If the write fails they stay in the frame, and the end of the listing reports it.
            self.log.flush().ok();
        }
        Ok(unverified)
    }
}

/// Returns the prefixes of all keys that views want, without those that begin with another one of them.
fn prefixes(views: &[Arc<View>]) -> Vec<String> {
    let mut all: Vec<String> = views.iter().flat_map(|view| view.prefixes()).collect();
    all.sort_unstable();
    all.dedup_by(|next, last| next.starts_with(last.as_str()));
    if all.len() > PREFIXES_MAX { vec![String::new()] } else { all }
}
