//! Counts of the requests to a store: requests on the wire for a server, calls for a local store.

use metrics::{HistogramSnapshot, Observation};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::wrap::{Operation, Trace};
use store::{Outcome, StoreRequest};
use store_s3::{RequestCounts, RequestKind};

/// Source of request counts.
#[derive(Debug, Clone)]
pub(super) enum RequestCounter {
    /// The clients of a server, one for each account.
    Wire(Vec<Arc<RequestCounts>>),
    /// Calls of a local store.
    Calls(Trace),
}

/// Counts of all requests to the store so far.
#[derive(Debug, Default)]
pub(crate) struct StoreFigures {
    /// Requests by kind and outcome, without those that have not ended.
    pub(crate) outcomes: Vec<(&'static str, &'static str, u64)>,
    /// Times by kind.
    pub(crate) latencies: Vec<(&'static str, HistogramSnapshot)>,
    /// Requests that were retries.
    pub(crate) retries: u64,
    /// Bytes of bodies that the store accepted.
    pub(crate) sent_bytes: u64,
    /// Bytes of bodies that were received.
    pub(crate) received_bytes: u64,
}

impl RequestCounter {
    /// Returns the requests so far, by kind, including kinds without requests.
    pub(super) fn by_kind(&self) -> BTreeMap<String, u64> {
        match self {
            Self::Wire(accounts) => {
                let mut sum = BTreeMap::new();
                for (kind, count) in accounts.iter().flat_map(|counts| counts.snapshot()) {
                    *sum.entry(kind.name().to_owned()).or_default() += count;
                }
                sum
            }
            Self::Calls(trace) => {
                let counts = trace.counts();
                let named = |call: Operation| (call.name().to_owned(), counts.of(call));
                Operation::ALL.into_iter().map(named).collect()
            }
        }
    }

    /// Calls `observer` with each request that ends and belongs to no operation in progress, until the returned values are dropped.
    pub(super) fn observe(
        &self,
        observer: impl Fn(&StoreRequest) + Clone + Send + Sync + 'static,
    ) -> Vec<Observation<StoreRequest>> {
        match self {
            Self::Wire(accounts) => {
                accounts.iter().map(|counts| counts.observers().observe(observer.clone())).collect()
            }
            Self::Calls(trace) => vec![trace.observers().observe(observer)],
        }
    }

    /// Returns all figures. Kinds without requests are left out.
    pub(super) fn figures(&self) -> StoreFigures {
        match self {
            Self::Wire(accounts) => {
                let sum = |of: &dyn Fn(&RequestCounts) -> u64| accounts.iter().map(|counts| of(counts)).sum();
                let mut figures = StoreFigures {
                    retries: sum(&RequestCounts::retries),
                    sent_bytes: sum(&RequestCounts::sent_bytes),
                    received_bytes: sum(&RequestCounts::received_bytes),
                    ..StoreFigures::default()
                };
                for &kind in RequestKind::ALL {
                    let outcomes = |outcome| sum(&|counts| counts.outcomes(kind, outcome));
                    let latencies = accounts.iter().map(|counts| counts.latencies(kind));
                    let latencies = latencies.fold(HistogramSnapshot::default(), |all, one| all.plus(&one));
                    figures.add(kind.name(), outcomes, latencies);
                }
                figures
            }
            Self::Calls(trace) => {
                let counts = trace.counts();
                let mut figures = StoreFigures {
                    sent_bytes: counts.sent_bytes,
                    received_bytes: counts.received_bytes,
                    ..StoreFigures::default()
                };
                for call in Operation::ALL {
                    let outcomes = |outcome| trace.outcomes(call, outcome);
                    figures.add(call.name(), outcomes, trace.latencies(call));
                }
                figures
            }
        }
    }
}

impl StoreFigures {
    /// Adds the figures of a kind of requests, unless there were none.
    fn add(&mut self, kind: &'static str, outcomes: impl Fn(Outcome) -> u64, latencies: HistogramSnapshot) {
        if latencies.count() == 0 {
            return;
        }
        let counts = Outcome::ALL.map(|outcome| (kind, outcome.name(), outcomes(outcome)));
        // Success and the outcomes that alerts use are there from the first request of the kind.
        let is_shown = |count: &(&str, &'static str, u64)| {
            count.2 > 0 || ["ok", "throttled", "unavailable"].contains(&count.1)
        };
        self.outcomes.extend(counts.into_iter().filter(is_shown));
        self.latencies.push((kind, latencies));
    }
}
