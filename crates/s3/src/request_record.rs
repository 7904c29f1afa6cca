//! The record of a request in progress, for the access log and the observer of requests. Both get it when the request has ended: after
//! the last byte of its response.

use http::Method;
use metrics::{SampledObserver, Sampler};
use s3s::Body;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use store::{Cause, Timestamp};
use tokio::time::Instant;

use crate::Endpoint;
use crate::access_log::{AccessRecord, LogContext};
use crate::traced_request::TracedRequest;

/// A request in progress. It is reported when it is dropped.
pub(crate) struct RequestRecord {
    endpoint: Endpoint,
    /// The time when the request arrived.
    time: Timestamp,
    /// That time on the monotonic clock, for the duration.
    began: Instant,
    peer: IpAddr,
    method: Method,
    /// The status of the response; 0 until there is one.
    status: u16,
    /// The bytes of the request body that were read.
    received_bytes: Arc<AtomicU64>,
    /// The bytes of the response body that were sent.
    sent_bytes: u64,
    /// The facts about the request that its response carries; `None` if the handler panicked or did not finish.
    answered: Option<LogContext>,
    /// The cause of the store's requests that are made for it, if the observer has chosen the request.
    cause: Option<Arc<Cause>>,
}

impl RequestRecord {
    /// Begins the record of a request that arrives now; `None` if nothing wants it.
    pub(crate) fn begin(endpoint: &Endpoint, method: &Method, peer: IpAddr) -> Option<Self> {
        let cause = endpoint.observer().and_then(|observer| {
            let id = Cause::reserve_id();
            observer.admit(id).then(|| Cause::begin_as(id))
        });
        if cause.is_none() && endpoint.access_log().is_none() {
            return None;
        }
        Some(Self {
            time: endpoint.now(),
            endpoint: endpoint.clone(),
            began: Instant::now(),
            peer,
            method: method.clone(),
            status: 0,
            received_bytes: Arc::default(),
            sent_bytes: 0,
            answered: None,
            cause,
        })
    }

    /// Returns the cause of the store's requests that are made for the request, if it is observed.
    pub(crate) fn cause(&self) -> Option<&Arc<Cause>> {
        self.cause.as_ref()
    }

    /// Returns the counter of the bytes of the request body that were read.
    pub(crate) fn received_bytes(&self) -> Arc<AtomicU64> {
        self.received_bytes.clone()
    }

    /// Notes the response, and takes the facts that it carries.
    pub(crate) fn note_response(&mut self, response: &mut http::Response<Body>) {
        self.status = response.status().as_u16();
        self.answered = response.extensions_mut().remove();
    }

    /// Notes bytes of the response body that were sent.
    pub(crate) fn note_sent(&mut self, bytes: usize) {
        self.sent_bytes += bytes as u64;
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        let answered = self.answered.take();
        let of = answered.as_ref();
        let record = AccessRecord {
            time: self.time,
            peer: self.peer,
            user: of.and_then(LogContext::user),
            method: self.method.clone(),
            operation: of.and_then(LogContext::operation),
            bucket: of.and_then(|answered| answered.bucket.clone()),
            key: of.and_then(|answered| answered.key.clone()),
            status: self.status,
            received_bytes: self.received_bytes.load(Ordering::Relaxed),
            sent_bytes: self.sent_bytes,
            duration: self.began.elapsed(),
            id: of.map(|answered| answered.id.clone()).unwrap_or_default(),
        };
        if let Some(log) = self.endpoint.access_log() {
            log.write(&record);
        }
        if let (Some(cause), Some(observer)) = (self.cause.take(), self.endpoint.observer()) {
            let (id, store_requests) = (cause.id(), cause.end());
            observer.report(&TracedRequest { id, began: self.began, record, store_requests });
        }
    }
}

impl Endpoint {
    /// Calls `observer` with the ended requests that the sampler admits, as long as the endpoint exists. Only the first such observer
    /// counts.
    pub fn observe_sampled(
        &self,
        sampler: Arc<Sampler>,
        observer: impl Fn(&TracedRequest) + Send + Sync + 'static,
    ) {
        self.context().observer.get_or_init(|| SampledObserver::new(sampler, observer));
    }

    fn observer(&self) -> Option<&SampledObserver<TracedRequest>> {
        self.context().observer.get()
    }
}
