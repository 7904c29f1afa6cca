//! What time asks for: containers that could not be listed, buckets that are new, views that nobody wants any more.
//!
//! Invariant: a view is forgotten in one step with what was kept for it alone, so that who asks for it again has it listed.

use super::change_log::{Mark, Record};
use super::container::Container;
use super::state_dir::forgotten;
use super::{Handler, Registry, SHARDS, View};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often containers are tried that cannot be listed.
const EVERY: Duration = Duration::from_secs(10);
/// Every how many times somebody looks for buckets that patterns name, and for views that nobody wants.
const SELDOM: u64 = 6;
/// For so long a view is kept that nobody asks for.
const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 3600);

/// Takes care of a handler for as long as there is one.
pub(super) async fn take_care(handler: Weak<Handler>) {
    for turn in 1_u64.. {
        tokio::time::sleep(EVERY).await;
        let Some(handler) = handler.upgrade() else { return };
        handler.try_again();
        if turn.is_multiple_of(SELDOM) {
            handler.forget_unasked();
            handler.find_new_buckets().await;
        }
        if let Err(error) = handler.keep() {
            tracing::warn!(%error, "the views' state cannot be kept");
        }
    }
}

impl Handler {
    fn try_again(&self) {
        for container in self.containers().values() {
            if container.listing().failed.is_some() {
                self.list_again(container);
            }
        }
    }

    /// Buckets that patterns name and nobody knew: they were made since, or may be seen since.
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
                new.for_each(|name| drop(self.list_again(&self.container(name))));
            }
            Err(error) => tracing::debug!(%error, "nobody says which buckets are new"),
        }
    }

    /// Forgets views that nobody has asked for.
    fn forget_unasked(&self) {
        let now = self.clock.now();
        let mut registry = self.registry();
        let is_unasked = |view: &&Arc<View>| now.since(view.asked()) >= KEPT_FOR;
        let unasked: Vec<Arc<View>> = registry.views.iter().flatten().filter(is_unasked).cloned().collect();
        if unasked.is_empty() {
            return;
        }
        unasked.iter().for_each(|view| self.forget(&mut registry, view));
        registry.has_patterns = registry.views.iter().flatten().any(|view| view.containers().1);
        drop(registry);
        for container in self.containers().values() {
            self.put_in_force(container);
        }
    }

    /// What no other view wants goes when the remaining ones are put in force.
    fn forget(&self, registry: &mut Registry, view: &View) {
        let mut containers = (*registry.containers).clone();
        containers.retain(|_, container| {
            let is_named = !container.has(view.number) || self.leave(container, view);
            if !is_named {
                (0..SHARDS).for_each(|shard| self.shard_at(shard).forget(container.number));
                self.note(forgotten(Mark::ContainerForgotten, container.number));
            }
            is_named
        });
        registry.containers = Arc::new(containers);
        registry.views[view.number as usize] = None;
        registry.by_text.remove(&view.text);
        self.note(forgotten(Mark::ViewForgotten, view.number));
    }

    /// Whether another view names the container.
    fn leave(&self, container: &Container, view: &View) -> bool {
        let is_named = container.remove(view.number);
        let listing = container.listing();
        self.note_listed(container, &listing);
        if listing.is_doubtful() {
            self.note(Record { mark: Mark::Stale, number: container.number, version: 0, body: &[] });
        }
        is_named
    }
}
