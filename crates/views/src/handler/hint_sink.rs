//! Hints come in.

use super::container::Container;
use super::reconcile::{Doubt, Outcome};
use super::stats::Counts;
use super::{Containers, Handler, HintCounts, hash};
use events::{Hint, Sink, SinkError};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::Timestamp;

/// A source's own way to a handler, which counts what comes of its hints.
#[derive(Debug)]
pub struct Ear {
    handler: Arc<Handler>,
    counts: Counts,
}

impl Ear {
    /// To a handler.
    pub fn new(handler: Arc<Handler>) -> Self {
        Self { handler, counts: Counts::default() }
    }

    /// What came of the hints so far.
    pub fn counts(&self) -> HintCounts {
        self.counts.get()
    }
}

#[async_trait::async_trait]
impl Sink for Ear {
    async fn take(&self, hints: &[Hint<'_>]) -> Result<(), SinkError> {
        let (counts, took) = self.handler.take_all(hints).await?;
        self.counts.add(&counts, took);
        Ok(())
    }

    async fn lost(&self, bucket: Option<&str>) {
        self.handler.lost(bucket).await;
    }
}

#[async_trait::async_trait]
impl Sink for Handler {
    async fn take(&self, hints: &[Hint<'_>]) -> Result<(), SinkError> {
        self.take_all(hints).await.map(drop)
    }

    async fn lost(&self, bucket: Option<&str>) {
        let containers = self.containers();
        let lost = containers.values().filter(|container| bucket.is_none_or(|name| *container.name == *name));
        for container in lost {
            self.list_again(container);
        }
        if let Err(error) = self.keep() {
            tracing::warn!(%error, "the views' state cannot be kept");
        }
    }
}

impl Handler {
    /// Takes hints, and says what came of them, and how long it took to find that out.
    async fn take_all(&self, hints: &[Hint<'_>]) -> Result<(HintCounts, Duration), SinkError> {
        let mut containers = self.containers();
        let now = self.clock.now();
        let mut looks = Vec::new();
        let mut counts = HintCounts::default();
        // What most hints have in common is asked once.
        let mut last: Option<(&str, Option<Arc<Container>>)> = None;
        for hint in hints {
            let container = match &last {
                Some((bucket, container)) if *bucket == hint.bucket => container,
                _ => &last.insert((&hint.bucket, self.container_of(hint, &mut containers))).1,
            };
            let outcome =
                container.as_ref().map_or(Outcome::Unwanted, |container| self.hear(container, hint, now));
            counts.add(outcome);
            if let (Outcome::Look, Some(container)) = (outcome, container) {
                looks.push((Arc::clone(container), Box::from(&*hint.key), Doubt::of(hint, now)));
            }
        }
        let took = self.clock.now().since(now);
        self.counts.add(&counts, took);
        // The rest changed no view.
        if counts.applied > 0 {
            self.say_news();
        }
        self.look_later(looks).await;
        self.keep().map_err(|error| SinkError(format!("the views' state cannot be kept: {error}")))?;
        Ok((counts, took))
    }

    /// Somebody knows that an object changed, but not how.
    pub async fn look_again(&self, container: &str, key: &[u8]) {
        if let Some(container) = self.containers().get(container) {
            let hash = hash(container.number, key);
            if let Some((table, pen)) = self.shard(hash).table(container.number) {
                table.note_look(key, pen);
            }
            self.look_later(vec![(Arc::clone(container), key.into(), None)]).await;
        }
    }

    fn container_of(&self, hint: &Hint<'_>, containers: &mut Arc<Containers>) -> Option<Arc<Container>> {
        let found = containers.get(&*hint.bucket).cloned();
        if found.is_some() {
            return found;
        }
        let container = self.stranger(&hint.bucket)?;
        *containers = self.containers();
        Some(container)
    }

    fn hear(&self, container: &Arc<Container>, hint: &Hint<'_>, now: Timestamp) -> Outcome {
        if container.is_outdated.load(Ordering::Acquire) {
            self.put_in_force(container);
        }
        let hash = hash(container.number, &hint.key);
        let mut shard = self.shard(hash);
        let running = container.running();
        match shard.table(container.number) {
            Some((table, pen)) => table.hear(hash, hint, now, running, pen),
            None => Outcome::Unwanted,
        }
    }
}
