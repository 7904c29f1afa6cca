//! Takes hints from event sources, and applies them to the known state of objects.

use super::Handler;
use super::container::Container;
use super::objects::{ApplyOutcome, UnverifiedHint};
use super::registry::Containers;
use super::stats::{HintCounters, HintCounts};
use events::{Hint, Sink, SinkError};
use std::sync::Arc;
use std::time::Duration;
use store::Timestamp;

/// A sink for one event source, which passes hints to the handler and counts their outcomes.
#[derive(Debug)]
pub struct HintSink {
    handler: Arc<Handler>,
    counts: HintCounters,
}

impl HintSink {
    /// Returns a sink for a handler.
    pub fn new(handler: Arc<Handler>) -> Self {
        Self { handler, counts: HintCounters::default() }
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

    async fn lost(&self, bucket: Option<&str>) -> Result<(), SinkError> {
        self.handler.lost(bucket).await
    }
}

#[async_trait::async_trait]
impl Sink for Handler {
    async fn take(&self, hints: &[Hint<'_>]) -> Result<(), SinkError> {
        self.apply_all(hints).await.map(drop)
    }

    async fn lost(&self, bucket: Option<&str>) -> Result<(), SinkError> {
        let containers = self.registry.containers();
        let lost = containers.values().filter(|container| bucket.is_none_or(|name| *container.name == *name));
        lost.for_each(|container| drop(self.lister.relist(container)));
        self.flush_log()
    }
}

impl Handler {
    /// Applies hints. Returns the outcomes, and the time that it took to find them.
    async fn apply_all(&self, hints: &[Hint<'_>]) -> Result<(HintCounts, Duration), SinkError> {
        let mut containers = self.registry.containers();
        let (now, has_room) = (self.clock.now(), self.lister.has_room());
        let mut to_verify = Vec::new();
        let mut counts = HintCounts::default();
        // Consecutive hints are mostly of one bucket, so its container is looked up once.
        let mut last: Option<(&str, Option<Arc<Container>>)> = None;
        for hint in hints {
            let container = match &last {
                Some((bucket, container)) if *bucket == hint.bucket => container,
                _ => &last.insert((&hint.bucket, self.container_of(hint, &mut containers))).1,
            };
            let Some(container) = container else {
                counts.add(ApplyOutcome::Unwanted);
                continue;
            };
            let outcome = self.apply_hint(container, hint, now, has_room);
            counts.add(outcome);
            match outcome {
                ApplyOutcome::Verify => {
                    let hint_to_verify = UnverifiedHint::new(hint, now);
                    to_verify.push((Arc::clone(container), Box::from(&*hint.key), hint_to_verify));
                }
                ApplyOutcome::NoRoom => self.lister.note_no_room(container),
                _ => {}
            }
        }
        let elapsed = self.clock.now().since(now);
        self.hint_counts.add(&counts, elapsed);
        // Hints with other outcomes changed no view.
        if counts.applied > 0 {
            self.objects.notify_changed();
        }
        self.verifier.enqueue(to_verify).await;
        self.flush_log()?;
        Ok((counts, elapsed))
    }

    /// Queues the verification of an object that the caller knows to have changed, without knowing how. Waits while the
    /// queue is full, not for the verification. Does nothing if no view names the container.
    pub async fn verify_object(&self, container: &str, key: &[u8]) {
        let containers = self.registry.containers();
        if let Some(container) = containers.get(container) {
            self.objects.log_verify_pending(container.number, key);
            self.verifier.enqueue([(Arc::clone(container), key.into(), None)]).await;
        }
    }

    /// Returns the container of a hint; `None` if no view names the bucket. A bucket that is not known yet and that a
    /// view names by a pattern is added and listed, and `containers` is replaced by the new set.
    fn container_of(&self, hint: &Hint<'_>, containers: &mut Arc<Containers>) -> Option<Arc<Container>> {
        let found = containers.get(&*hint.bucket).cloned();
        if found.is_some() || !self.registry.is_wanted(&hint.bucket) {
            return found;
        }
        let container = self.registry.find_or_add_container(&hint.bucket);
        self.lister.relist(&container);
        *containers = self.registry.containers();
        Some(container)
    }

    fn apply_hint(
        &self,
        container: &Container,
        hint: &Hint<'_>,
        now: Timestamp,
        has_room: bool,
    ) -> ApplyOutcome {
        container.rebuild_matcher(&self.objects, now);
        let running = || container.running_listing();
        self.objects.apply_hint(container.number, hint, now, has_room, running)
    }

    fn flush_log(&self) -> Result<(), SinkError> {
        let failed = |error| {
            SinkError(format!(
                "the event handler does not acknowledge hints because it cannot write its state: {error}"
            ))
        };
        self.log.flush().map_err(failed)
    }
}
