//! Simulated network: a latency per call, and one link whose bandwidth all calls share.

use super::{Call, Layer, Operation};
use crate::{Object, Result};
use bytes::Bytes;
use futures_util::StreamExt;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// A layer that delays calls by tokio's clock, so that a paused runtime does not really wait. Clones share the link.
#[derive(Debug, Clone)]
pub struct Latency {
    /// Delay of calls whose kind is not in `by_operation`.
    usual: Duration,
    by_operation: BTreeMap<Operation, Duration>,
    /// Throughput of the link; `None` if it is unlimited.
    bytes_per_second: Option<u64>,
    /// Time at which the link has transferred everything given to it.
    free_at: Arc<Mutex<Option<Instant>>>,
}

impl Latency {
    /// Delays every call by `usual`.
    pub fn new(usual: Duration) -> Self {
        Self { usual, by_operation: BTreeMap::new(), bytes_per_second: None, free_at: Arc::default() }
    }

    /// Sets another delay for one kind of call.
    pub fn with_operation(mut self, operation: Operation, latency: Duration) -> Self {
        self.by_operation.insert(operation, latency);
        self
    }

    /// Limits the bandwidth that all bodies share, sent and received ones together; 0 is no limit.
    pub fn with_bandwidth(mut self, bytes_per_second: u64) -> Self {
        self.bytes_per_second = (bytes_per_second > 0).then_some(bytes_per_second);
        self
    }

    /// Reserves the link for these bytes, after those before. Returns the time at which they are transferred; `None` if
    /// the bandwidth is not limited.
    fn reserve_link(&self, bytes: u64) -> Option<Instant> {
        let rate = self.bytes_per_second.filter(|_| bytes > 0)?;
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let begins = free_at.map_or(now, |free| free.max(now));
        let ends = begins + Duration::from_secs_f64(bytes as f64 / rate as f64);
        *free_at = Some(ends);
        Some(ends)
    }

    /// Waits until the simulated link has transferred the bytes.
    async fn wait_for_link(&self, bytes: u64) {
        if let Some(done_at) = self.reserve_link(bytes) {
            sleep_until(done_at).await;
        }
    }
}

impl Layer for Latency {
    async fn around<T: Send>(&self, call: &Call, work: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let latency = *self.by_operation.get(&call.operation).unwrap_or(&self.usual);
        if !latency.is_zero() {
            sleep(latency).await;
        }
        self.wait_for_link(call.sent_bytes).await;
        work.await
    }

    fn received(&self, _: &Call, object: Object) -> Object {
        let link = self.clone();
        let body = object.body.then(move |chunk: Result<Bytes>| {
            let link = link.clone();
            async move {
                link.wait_for_link(chunk.as_ref().map_or(0, |chunk| chunk.len() as u64)).await;
                chunk
            }
        });
        Object { meta: object.meta, body: body.boxed() }
    }
}
