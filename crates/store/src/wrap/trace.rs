//! Counts, traces and reports calls: tests compare request counts, and traces show where time is spent.

use super::{Call, Layer, Operation};
use crate::{Object, ObjectKey, Outcome, Result, StoreRequest, report_request};
use bytes::Bytes;
use futures_util::StreamExt;
use metrics::{Histogram, HistogramSnapshot, Observers};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::time::Instant;

/// Number of kinds of calls.
const OPERATIONS: usize = Operation::ALL.len();

/// A layer that counts every call, emits a `tracing` event of level `DEBUG` for it, and reports it to the operation that caused it
/// ([`report_request`]) or to observers. Clones share the counts and the observers.
#[derive(Debug, Clone, Default)]
pub struct Trace(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    /// Calls that began, by operation.
    requests: [AtomicU64; OPERATIONS],
    /// Calls that ended, by operation and outcome.
    outcomes: [[AtomicU64; Outcome::ALL.len()]; OPERATIONS],
    latencies: [Histogram; OPERATIONS],
    observers: Observers<StoreRequest>,
    /// Calls that failed.
    failures: AtomicU64,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
}

impl Trace {
    /// Creates a trace with zero counts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the counts so far. A call is counted when it begins, the bytes that it sends when the store has accepted them, and
    /// those that it receives when they arrive.
    pub fn counts(&self) -> RequestCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RequestCounts {
            requests: std::array::from_fn(|at| of(&self.0.requests[at])),
            failures: of(&self.0.failures),
            sent_bytes: of(&self.0.sent_bytes),
            received_bytes: of(&self.0.received_bytes),
        }
    }
}

impl Trace {
    /// Returns how many calls of an operation ended with an outcome.
    pub fn outcomes(&self, operation: Operation, outcome: Outcome) -> u64 {
        self.0.outcomes[operation as usize][outcome as usize].load(Ordering::Relaxed)
    }

    /// Returns the observers of calls that have ended, apart from those that a traced operation collects.
    pub fn observers(&self) -> &Observers<StoreRequest> {
        &self.0.observers
    }

    /// Returns the durations of the calls of an operation, failed ones included.
    pub fn latencies(&self, operation: Operation) -> HistogramSnapshot {
        self.0.latencies[operation as usize].snapshot()
    }
}

impl Layer for Trace {
    async fn around<T: Send>(&self, call: &Call, work: impl Future<Output = Result<T>> + Send) -> Result<T> {
        self.0.requests[call.operation as usize].fetch_add(1, Ordering::Relaxed);
        let began = Instant::now();
        let result = work.await;
        let elapsed = began.elapsed();
        let outcome = Outcome::of(result.as_ref().err());
        if outcome == Outcome::Ok {
            self.0.sent_bytes.fetch_add(call.sent_bytes, Ordering::Relaxed);
        }
        self.0.outcomes[call.operation as usize][outcome as usize].fetch_add(1, Ordering::Relaxed);
        self.0.latencies[call.operation as usize].record(elapsed);
        let elapsed_us = elapsed.as_micros() as u64;
        report_request(&self.0.observers, || StoreRequest {
            operation: 0,
            kind: call.operation.name(),
            key: call.subject.clone(),
            sent_bytes: call.sent_bytes,
            began,
            took: elapsed,
            outcome,
        });
        let (operation, key) = (call.operation, DisplayKey(&call.subject));
        match &result {
            Ok(_) => tracing::debug!(?operation, %key, elapsed_us, sent_bytes = call.sent_bytes, "store"),
            Err(error) => {
                self.0.failures.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(?operation, %key, elapsed_us, %error, "store");
            }
        }
        result
    }

    fn received(&self, _: &Call, object: Object) -> Object {
        let counters = self.0.clone();
        let count = move |chunk: &Result<Bytes>| {
            if let Ok(chunk) = chunk {
                counters.received_bytes.fetch_add(chunk.len() as u64, Ordering::Relaxed);
            }
        };
        Object { meta: object.meta, body: object.body.inspect(count).boxed() }
    }
}

/// Counts of calls at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestCounts {
    requests: [u64; OPERATIONS],
    /// Calls that returned an error.
    pub failures: u64,
    /// Bytes of bodies that the store accepted.
    pub sent_bytes: u64,
    /// Bytes of bodies read from the store.
    pub received_bytes: u64,
}

impl RequestCounts {
    /// Returns how often an operation was called.
    pub fn of(&self, operation: Operation) -> u64 {
        self.requests[operation as usize]
    }

    /// Returns how many calls there were.
    pub fn total(&self) -> u64 {
        self.requests.iter().sum()
    }

    /// Returns the counts since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            requests: std::array::from_fn(|at| self.requests[at] - earlier.requests[at]),
            failures: self.failures - earlier.failures,
            sent_bytes: self.sent_bytes - earlier.sent_bytes,
            received_bytes: self.received_bytes - earlier.received_bytes,
        }
    }
}

/// Shows the operations that were called, as in `Get 2, Put 1`; `nothing` if there were none.
impl fmt::Display for RequestCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut called = Operation::ALL.into_iter().filter(|operation| self.of(*operation) > 0);
        let Some(first) = called.next() else { return f.write_str("nothing") };
        write!(f, "{first:?} {}", self.of(first))?;
        called.try_for_each(|operation| write!(f, ", {operation:?} {}", self.of(operation)))
    }
}

impl fmt::Debug for RequestCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A key or prefix in readable form.
struct DisplayKey<'a>(&'a Bytes);

impl fmt::Display for DisplayKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match ObjectKey::new(self.0.clone()) {
            Ok(key) => fmt::Display::fmt(&key, f),
            Err(_) => Ok(()),
        }
    }
}
