//! Periodic maintenance: retries failed listings, looks for new buckets, forgets views that no client asks for.
//!
//! Invariant: a view is forgotten together with the record that its objects were listed, so that a client that opens
//! the view again triggers a new listing.

use super::change_log::{LogRecord, RecordKind};
use super::container::Container;
use super::state_dir::removal_record;
use super::{Handler, Registry, SHARDS, View};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Interval between maintenance rounds, each of which retries failed listings.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// Number of rounds between searches for new buckets and for idle views.
const ROUNDS_PER_SCAN: u64 = 6;
/// A view that no client has asked for during this time is forgotten.
const VIEW_IDLE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Runs maintenance until the handler is dropped.
pub(super) async fn run(handler: Weak<Handler>) {
    for round in 1_u64.. {
        tokio::time::sleep(RETRY_INTERVAL).await;
        let Some(handler) = handler.upgrade() else { return };
        handler.retry_failed_listings();
        if round.is_multiple_of(ROUNDS_PER_SCAN) {
            handler.forget_idle_views();
            handler.find_new_buckets().await;
        }
        if let Err(error) = handler.flush_log() {
            tracing::warn!(%error, "cannot write the event handler's state");
        }
    }
}

impl Handler {
    fn retry_failed_listings(&self) {
        for container in self.containers().values() {
            if container.listing().failed.is_some() {
                self.relist(container);
            }
        }
    }

    /// Lists buckets that match a view's container pattern and are not known yet: buckets that were created, or
    /// became visible, since the last search.
    pub(super) async fn find_new_buckets(&self) {
        let views: Vec<Arc<View>> = {
            let registry = self.registry();
            let views = registry.views.iter().flatten().filter(|view| view.containers().1);
            views.cloned().collect()
        };
        if views.is_empty() {
            return;
        }
        match self.buckets.list().await {
            Ok(names) => {
                let wanted = names.iter().filter(|name| views.iter().any(|view| view.names(name)));
                let new = wanted.filter(|name| !self.containers().contains_key(name.as_str()));
                new.for_each(|name| drop(self.relist(&self.find_or_add_container(name))));
            }
            Err(error) => tracing::debug!(%error, "cannot list the buckets to find new ones"),
        }
    }

    /// Forgets the views that no client has asked for during `VIEW_IDLE_MAX`.
    fn forget_idle_views(&self) {
        let now = self.clock.now();
        let mut registry = self.registry();
        let is_idle = |view: &&Arc<View>| now.since(view.last_asked()) >= VIEW_IDLE_MAX;
        let idle: Vec<Arc<View>> = registry.views.iter().flatten().filter(is_idle).cloned().collect();
        if idle.is_empty() {
            return;
        }
        idle.iter().for_each(|view| self.remove_view(&mut registry, view));
        registry.has_patterns = registry.views.iter().flatten().any(|view| view.containers().1);
        drop(registry);
        for container in self.containers().values() {
            self.rebuild_matcher(container);
        }
    }

    /// Removes a view, and the containers that no other view names. Objects that only this view wanted, in containers
    /// that remain, are dropped when the matchers are rebuilt.
    fn remove_view(&self, registry: &mut Registry, view: &View) {
        let mut containers = (*registry.containers).clone();
        containers.retain(|_, container| {
            let is_named = !container.has_view(view.number) || self.detach_view(container, view);
            if !is_named {
                (0..SHARDS).for_each(|shard| self.shard_at(shard).forget(container.number));
                self.log_record(removal_record(RecordKind::ContainerForgotten, container.number));
            }
            is_named
        });
        registry.containers = Arc::new(containers);
        registry.views[view.number as usize] = None;
        registry.by_text.remove(&view.text);
        self.log_record(removal_record(RecordKind::ViewForgotten, view.number));
    }

    /// Removes a view from a container. Returns whether another view still names the container.
    fn detach_view(&self, container: &Container, view: &View) -> bool {
        let is_named = container.remove_view(view.number);
        let listing = container.listing();
        self.log_listed(container, &listing);
        if listing.needs_relisting() {
            self.log_record(LogRecord {
                kind: RecordKind::Stale,
                number: container.number,
                version: 0,
                body: &[],
            });
        }
        is_named
    }
}
