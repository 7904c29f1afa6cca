//! The queue of spans to be sent.

use crate::span::Span;
use metrics::Sampler;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Maximum memory of the spans that wait, in bytes.
pub const QUEUE_BYTES_MAX: usize = 4 << 20;
/// Maximum number of spans in a message; with fewer, the queue waits for more.
pub(crate) const BATCH_SPANS: usize = 512;

/// A bounded queue of spans. The sampler is paused while it is full.
#[derive(Debug)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    /// Notified when a whole batch waits.
    pub(crate) has_batch: Notify,
    sampler: Arc<Sampler>,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    spans: VecDeque<Span>,
    /// Memory of the spans.
    bytes: usize,
}

impl Queue {
    pub(crate) fn new(sampler: Arc<Sampler>) -> Self {
        Self { waiting: Mutex::default(), has_batch: Notify::new(), sampler, dropped: AtomicU64::new(0) }
    }

    /// Adds the spans of a trace, all or none.
    pub(crate) fn add(&self, spans: Vec<Span>) {
        let (count, bytes) = (spans.len(), spans.iter().map(Span::memory_bytes).sum::<usize>());
        let mut waiting = self.lock();
        if waiting.bytes + bytes > QUEUE_BYTES_MAX {
            self.sampler.set_paused(true);
            drop(waiting);
            self.dropped.fetch_add(count as u64, Ordering::Relaxed);
            return;
        }
        waiting.bytes += bytes;
        waiting.spans.extend(spans);
        let is_batch = waiting.spans.len() >= BATCH_SPANS;
        drop(waiting);
        if is_batch {
            self.has_batch.notify_one();
        }
    }

    /// Takes the spans of one message. The sampler continues once half of the queue is free.
    pub(crate) fn take(&self) -> Vec<Span> {
        let mut waiting = self.lock();
        let count = waiting.spans.len().min(BATCH_SPANS);
        let batch: Vec<Span> = waiting.spans.drain(..count).collect();
        waiting.bytes -= batch.iter().map(Span::memory_bytes).sum::<usize>();
        if waiting.bytes <= QUEUE_BYTES_MAX / 2 {
            self.sampler.set_paused(false);
        }
        batch
    }

    /// Returns how many spans were dropped because the queue was full, or not recorded as the sampler was paused.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed) + self.sampler.missed()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ids, Kind, Value};

    fn span(text_bytes: usize) -> Span {
        let ids = Ids::new([1, 2, 3]);
        let attributes = vec![("text", Value::Text("x".repeat(text_bytes)))];
        let (trace, id) = (ids.trace(1), ids.span(1));
        let kind = Kind::Internal;
        Span {
            trace,
            id,
            parent: None,
            name: "A".into(),
            kind,
            start_unix_ns: 1,
            took_ns: 1,
            attributes,
            is_failed: false,
        }
    }

    #[test]
    fn s766_a_full_queue_drops_and_pauses_until_half_is_free() {
        let sampler = Arc::new(Sampler::new(1.0, 0));
        let queue = Queue::new(Arc::clone(&sampler));
        let each = QUEUE_BYTES_MAX / 1000;
        let mut added = 0;
        while sampler.admit(0) {
            queue.add(vec![span(each)]);
            added += 1;
        }
        assert!((900..1000).contains(&added), "{added}");
        // The span that found the queue full, and the event that the sampler did not admit.
        assert_eq!(queue.dropped(), 2);
        assert_eq!(queue.take().len(), BATCH_SPANS);
        assert!(sampler.admit(0));
        assert_eq!(queue.take().len(), added - 1 - BATCH_SPANS);
        assert!(queue.take().is_empty() && queue.lock().bytes == 0);
    }
}
