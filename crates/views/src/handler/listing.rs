//! Containers are listed: once when the first view needs it, and again when hints were lost.

use super::change_log::{Mark, Record};
use super::container::{Container, Listing, View, covered};
use super::reconcile::Outcome;
use super::state_dir::pack_covered;
use super::{Handler, SHARDS, hash};
use futures_util::{StreamExt, TryStreamExt, stream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::{ListEntry, ListRequest, ObjectStore, Pages, StoreError, Timestamp};
use tokio::sync::watch;

/// As many entries as S3 puts into a page.
const PAGE_ENTRIES: usize = 1000;

/// Beginnings of keys that are listed beside each other; of more the whole container is listed.
const PREFIXES_MAX: usize = 16;
const PREFIXES_AT_ONCE: usize = 8;

/// What could not be looked at is listed again after this, when somebody asks.
const AGAIN_AFTER: Duration = Duration::from_secs(30);
/// A listing that failed is what it is for so long, however many ask.
const FAILED_FOR: Duration = Duration::from_secs(1);

/// By how much sources' clocks may be ahead, where hints are known to be lost.
const SKEW: Duration = Duration::from_secs(60);

pub(super) type Listed = Result<(), StoreError>;

impl Handler {
    /// Waits until everything that a view wants of a container was listed. However many wait, one listing runs.
    pub(super) async fn listed(&self, container: &Arc<Container>, view: &View) -> Listed {
        loop {
            let mut running = {
                let mut listing = container.listing();
                if listing.covers(view) {
                    self.refresh(container, &mut listing);
                    return Ok(());
                }
                if let Some(error) = &listing.failed
                    && self.clock.now().since(listing.tried) < FAILED_FOR
                {
                    return Err(error.clone());
                }
                self.start_listing(container, &mut listing)
            };
            let ended = running.wait_for(Option::is_some).await;
            let ended = ended.ok().and_then(|ended| ended.clone());
            ended.unwrap_or_else(|| Err(StoreError::Unavailable("the listing was ended".to_owned())))?;
        }
    }

    /// Lists everything again, and returns when that is done, however it went.
    pub async fn list_all_again(&self) {
        let containers = self.containers();
        let listings = containers.values().map(|container| self.list_again(container));
        for mut listing in listings.collect::<Vec<_>>() {
            listing.wait_for(Option::is_some).await.ok();
        }
    }

    /// What is known may be wrong: lists in the background, and once more if a listing runs that may have been too early.
    /// Returns the end of the first.
    pub(super) fn list_again(&self, container: &Arc<Container>) -> watch::Receiver<Option<Listed>> {
        let mut listing = container.listing();
        listing.is_stale = true;
        self.note(Record { mark: Mark::Stale, number: container.number, version: 0, body: &[] });
        self.start_listing(container, &mut listing)
    }

    fn refresh(&self, container: &Arc<Container>, listing: &mut Listing) {
        if listing.is_stale && self.clock.now().since(listing.tried) >= AGAIN_AFTER {
            self.start_listing(container, listing);
        }
    }

    /// The end of the listing that runs, or of a new one.
    fn start_listing(
        &self,
        container: &Arc<Container>,
        listing: &mut Listing,
    ) -> watch::Receiver<Option<Listed>> {
        if let Some(running) = &listing.running {
            return running.clone();
        }
        let (ended, running) = watch::channel(None);
        let is_again = listing.is_stale;
        listing.number += 1;
        listing.running = Some(running.clone());
        listing.is_stale = false;
        listing.tried = self.clock.now();
        container.set_running(Some(listing.number));
        if let Some(me) = self.me() {
            let (container, number) = (Arc::clone(container), listing.number);
            tokio::spawn(async move {
                let listed = me.list(&container, number, is_again).await;
                me.end_listing(&container, listed, &ended);
            });
        }
        running
    }

    fn end_listing(
        &self,
        container: &Arc<Container>,
        listed: Result<Vec<Arc<View>>, StoreError>,
        ended: &watch::Sender<Option<Listed>>,
    ) {
        let mut listing = container.listing();
        container.set_running(None);
        listing.running = None;
        let listed = match listed {
            Ok(views) => {
                if listing.failed.take().is_some() {
                    tracing::info!(container = %container.name, "a container can be listed now");
                }
                // Of a view that was forgotten meanwhile not everything was kept.
                listing.covered = covered(views.iter().filter(|view| container.has(view.number)));
                self.note_listed(container, &listing);
                if listing.is_stale {
                    self.note(Record { mark: Mark::Stale, number: container.number, version: 0, body: &[] });
                    self.start_listing(container, &mut listing);
                }
                Ok(())
            }
            Err(error) => {
                match listing.failed {
                    None => {
                        tracing::warn!(container = %container.name, %error, "a container cannot be listed")
                    }
                    Some(_) => {
                        tracing::debug!(container = %container.name, %error, "a container cannot be listed yet")
                    }
                }
                listing.is_stale = true;
                listing.failed = Some(error.clone());
                Err(error)
            }
        };
        drop(listing);
        // Otherwise it is listed again after a restart.
        if let Err(error) = self.keep() {
            tracing::warn!(%error, "the views' state cannot be kept");
        }
        ended.send_replace(Some(listed));
    }

    pub(super) fn note_listed(&self, container: &Container, listing: &Listing) {
        let body = pack_covered(&listing.covered);
        self.note(Record { mark: Mark::Listed, number: container.number, version: 0, body: &body });
    }

    /// Lists what the container's views want, and looks where that says too little. Returns the views that were listed for.
    async fn list(
        &self,
        container: &Arc<Container>,
        number: u32,
        is_again: bool,
    ) -> Result<Vec<Arc<View>>, StoreError> {
        if container.is_outdated.load(Ordering::Acquire) {
            self.put_in_force(container);
        }
        let views = container.rules().views.clone();
        let skew = if is_again { SKEW } else { Duration::ZERO };
        self.doubt(container, self.clock.now().after(skew));
        let mut doubtful = match self.list_prefixes(container, &views, number, is_again).await {
            // Nothing is in a bucket that is not there.
            Err(error @ StoreError::NoSuchBucket(_)) => {
                self.sweep(container, number);
                *container.store() = None;
                return Err(error);
            }
            listed => listed?,
        };
        doubtful.extend(self.sweep(container, number));
        container.set_running(None);
        self.look_at_all(container, doubtful).await;
        Ok(views)
    }

    /// Returns the keys to look at.
    async fn list_prefixes(
        &self,
        container: &Container,
        views: &[Arc<View>],
        number: u32,
        is_again: bool,
    ) -> Result<Vec<Box<[u8]>>, StoreError> {
        let store = self.store_of(container).await?;
        stream::iter(prefixes(views))
            .map(|prefix| self.list_prefix(container, &*store, prefix, number, is_again))
            .buffer_unordered(PREFIXES_AT_ONCE)
            .try_concat()
            .await
    }

    /// What the listing of a number did not show is gone. Returns the keys of which nobody knows.
    fn sweep(&self, container: &Container, number: u32) -> Vec<Box<[u8]>> {
        let mut doubtful = Vec::new();
        for shard in 0..SHARDS {
            if let Some((table, pen)) = self.shard_at(shard).table(container.number) {
                doubtful.extend(table.sweep(number, pen));
            }
        }
        self.say_news();
        doubtful
    }

    /// Hints of before are not believed any more where nothing is known.
    fn doubt(&self, container: &Container, until: Timestamp) {
        for shard in 0..SHARDS {
            if let Some((table, _)) = self.shard_at(shard).table(container.number) {
                table.doubts.until = Some(until);
            }
        }
    }

    /// Returns the keys to look at.
    async fn list_prefix(
        &self,
        container: &Container,
        store: &dyn ObjectStore,
        prefix: String,
        number: u32,
        is_again: bool,
    ) -> Result<Vec<Box<[u8]>>, StoreError> {
        let request =
            ListRequest { prefix: prefix.into_bytes().into(), limit: PAGE_ENTRIES, ..ListRequest::default() };
        let mut pages = Pages::of(store, request);
        let mut doubtful = Vec::new();
        while let Some(entries) = pages.next().await? {
            for entry in &entries {
                if self.hear_entry(container, entry, number, is_again) == Outcome::Look {
                    doubtful.push(entry.text().into());
                }
            }
            self.say_news();
        }
        Ok(doubtful)
    }

    fn hear_entry(&self, container: &Container, entry: &ListEntry, number: u32, is_again: bool) -> Outcome {
        let hash = hash(container.number, entry.text());
        match self.shard(hash).table(container.number) {
            Some((table, pen)) => table.list(hash, entry, number, is_again, pen),
            None => Outcome::Unwanted,
        }
    }

    /// The container's store, opened once.
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

/// What the keys begin with that views want, none the beginning of another.
fn prefixes(views: &[Arc<View>]) -> Vec<String> {
    let mut all: Vec<String> = views.iter().flat_map(|view| view.prefixes()).collect();
    all.sort_unstable();
    all.dedup_by(|next, last| next.starts_with(last.as_str()));
    if all.len() > PREFIXES_MAX { vec![String::new()] } else { all }
}
