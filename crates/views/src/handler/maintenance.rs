//! Periodic maintenance: retries failed listings, looks for new buckets, forgets views that no client asks for, writes snapshots.

use super::Handler;
use super::view::View;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// Wait between maintenance rounds, each of which retries failed listings. Also the longest wait before a task notices
/// that the handler was dropped.
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
        for container in handler.registry.containers().values() {
            handler.lister.retry_if_failed(container);
        }
        if round.is_multiple_of(ROUNDS_PER_SCAN) {
            handler.registry.forget_idle_views(VIEW_IDLE_MAX);
            handler.find_new_buckets().await;
        }
        handler.log.flush_or_warn();
    }
}

/// Writes a snapshot whenever one is due, until the handler is dropped.
pub(super) async fn write_snapshots(handler: Weak<Handler>, due: Arc<Notify>) {
    loop {
        // The wait is bounded so that the task ends after the handler is dropped.
        let is_due = tokio::time::timeout(RETRY_INTERVAL, due.notified()).await.is_ok();
        let Some(handler) = handler.upgrade() else { return };
        if is_due && let Err(error) = handler.snapshot().await {
            tracing::warn!(%error, "cannot write a snapshot of the event handler's state; the log keeps growing");
        }
    }
}

impl Handler {
    /// Starts listings of the buckets that match a view's container pattern and are not known yet: buckets that were
    /// created, or became visible, since the last search.
    pub(super) async fn find_new_buckets(&self) {
        let views: Vec<Arc<View>> = self.registry.pattern_views();
        if views.is_empty() {
            return;
        }
        match self.buckets.list().await {
            Ok(names) => {
                let known = self.registry.containers();
                let is_new = |name: &&String| {
                    !known.contains_key(name.as_str()) && views.iter().any(|view| view.names(name))
                };
                for name in names.iter().filter(is_new) {
                    self.lister.relist(&self.registry.find_or_add_container(name));
                }
            }
            Err(error) => {
                tracing::debug!(%error, "cannot list the buckets to find new ones for the views; retrying later")
            }
        }
    }
}
