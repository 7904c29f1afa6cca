//! Figures of the S3 endpoint's requests, by operation.

use metrics::{Histogram, HistogramSnapshot};
use s3::AccessRecord;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Name of the operation of requests that were refused before it was known.
const UNKNOWN_OPERATION: &str = "unknown";

/// Counts of finished requests.
#[derive(Debug, Default)]
pub(crate) struct EndpointMeter(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    operations: BTreeMap<String, OperationCounts>,
    received_bytes: u64,
    sent_bytes: u64,
}

#[derive(Debug, Default)]
struct OperationCounts {
    by_status: BTreeMap<u16, u64>,
    latencies: Histogram,
}

/// The figures of an endpoint at one moment.
#[derive(Debug, Default)]
pub(crate) struct EndpointFigures {
    /// Requests by operation and status.
    pub(crate) requests: Vec<(String, u16, u64)>,
    /// Times by operation, from the head of the request to the last byte of the response.
    pub(crate) latencies: Vec<(String, HistogramSnapshot)>,
    /// Bytes of request bodies.
    pub(crate) received_bytes: u64,
    /// Bytes of response bodies.
    pub(crate) sent_bytes: u64,
}

impl EndpointMeter {
    /// Counts a finished request.
    pub(crate) fn record(&self, record: &AccessRecord) {
        let operation = record.operation.as_deref().unwrap_or(UNKNOWN_OPERATION);
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.received_bytes += record.received_bytes;
        inner.sent_bytes += record.sent_bytes;
        if !inner.operations.contains_key(operation) {
            inner.operations.insert(operation.to_owned(), OperationCounts::default());
        }
        if let Some(counts) = inner.operations.get_mut(operation) {
            *counts.by_status.entry(record.status).or_default() += 1;
            counts.latencies.record(record.duration);
        }
    }

    /// Returns the figures so far.
    pub(crate) fn figures(&self) -> EndpointFigures {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut figures = EndpointFigures {
            received_bytes: inner.received_bytes,
            sent_bytes: inner.sent_bytes,
            ..EndpointFigures::default()
        };
        for (operation, counts) in &inner.operations {
            let by_status = counts.by_status.iter();
            figures.requests.extend(by_status.map(|(status, count)| (operation.clone(), *status, *count)));
            figures.latencies.push((operation.clone(), counts.latencies.snapshot()));
        }
        figures
    }
}
