//! Receives hints from event sources.

use super::container::Container;
use super::reconcile::{ApplyOutcome, UnverifiedHint};
use super::stats::Counts;
use super::{Containers, Handler, HintCounts, hash};
use events::{Hint, Sink, SinkError};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::Timestamp;

/// A sink for one event source, which passes hints to the handler and counts their outcomes.
#[derive(Debug)]
pub struct HintSink {
    handler: Arc<Handler>,
    counts: Counts,
}

impl HintSink {
    /// Returns a sink for a handler.
    pub fn new(handler: Arc<Handler>) -> Self {
        Self { handler, counts: Counts::default() }
    }

    /// Returns the outcomes of the hints so far.
    pub fn counts(&self) -> HintCounts {
        self.counts.get()
    }
}

#[async_trait::async_trait]
impl Sink for HintSink {
    async fn take(&self, hints: &[Hint<'_>]) -> Result<(), SinkError> {
        let (counts, elapsed) = self.handler.apply_all(hints).await?;
        self.counts.add(&counts, elapsed);
        Ok(())
    }

    async fn lost(&self, bucket: Option<&str>) {
        self.handler.lost(bucket).await;
    }
}

#[async_trait::async_trait]
impl Sink for Handler {
    async fn take(&self, hints: &[Hint<'_>]) -> Result<(), SinkError> {
        self.apply_all(hints).await.map(drop)
    }

    async fn lost(&self, bucket: Option<&str>) {
        let containers = self.containers();
        let lost = containers.values().filter(|container| bucket.is_none_or(|name| *container.name == *name));
        for container in lost {
            self.relist(container);
        }
        if let Err(error) = self.flush_log() {
            tracing::warn!(%error, "cannot write the event handler's state");
        }
    }
}

impl Handler {
    /// Applies hints. Returns the outcomes, and the time that it took to find them.
    async fn apply_all(&self, hints: &[Hint<'_>]) -> Result<(HintCounts, Duration), SinkError> {
        let mut containers = self.containers();
        let now = self.clock.now();
        let mut to_verify = Vec::new();
        let mut counts = HintCounts::default();
        // Consecutive hints are mostly of one bucket, so its container is looked up once.
        let mut last: Option<(&str, Option<Arc<Container>>)> = None;
        for hint in hints {
            let container = match &last {
                Some((bucket, container)) if *bucket == hint.bucket => container,
                _ => &last.insert((&hint.bucket, self.container_of(hint, &mut containers))).1,
            };
            let outcome = container
                .as_ref()
                .map_or(ApplyOutcome::Unwanted, |container| self.apply_hint(container, hint, now));
            counts.add(outcome);
            if let (ApplyOutcome::Verify, Some(container)) = (outcome, container) {
                to_verify.push((
                    Arc::clone(container),
                    Box::from(&*hint.key),
                    UnverifiedHint::new(hint, now),
                ));
            }
        }
        let elapsed = self.clock.now().since(now);
        self.counts.add(&counts, elapsed);
        // Hints with other outcomes changed no view.
        if counts.applied > 0 {
            self.notify_changed();
        }
        self.verify_later(to_verify).await;
        self.flush_log()
            .map_err(|error| SinkError(format!("cannot write the event handler's state: {error}")))?;
        Ok((counts, elapsed))
    }

    /// Verifies an object that the caller knows to have changed, without knowing how.
    pub async fn verify_object(&self, container: &str, key: &[u8]) {
        if let Some(container) = self.containers().get(container) {
            let hash = hash(container.number, key);
            if let Some((table, log)) = self.shard(hash).table(container.number) {
                table.log_verify_pending(key, log);
            }
            self.verify_later(vec![(Arc::clone(container), key.into(), None)]).await;
        }
    }

    fn container_of(&self, hint: &Hint<'_>, containers: &mut Arc<Containers>) -> Option<Arc<Container>> {
        let found = containers.get(&*hint.bucket).cloned();
        if found.is_some() {
            return found;
        }
        let container = self.add_if_wanted(&hint.bucket)?;
        *containers = self.containers();
        Some(container)
    }

    fn apply_hint(&self, container: &Arc<Container>, hint: &Hint<'_>, now: Timestamp) -> ApplyOutcome {
        if container.is_outdated.load(Ordering::Acquire) {
            self.rebuild_matcher(container);
        }
        let hash = hash(container.number, &hint.key);
        let mut shard = self.shard(hash);
        let running = container.running_listing();
        match shard.table(container.number) {
            Some((table, log)) => table.apply_hint(hash, hint, now, running, log),
            None => ApplyOutcome::Unwanted,
        }
    }
}
