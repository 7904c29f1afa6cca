//! Counts of sent requests by kind. Requests cost money and time, so tests check their number.

use super::call::Call;
use bytes::Bytes;
use metrics::{Histogram, HistogramSnapshot, Observers};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use store::{Outcome, StoreError, StoreRequest, report_request};
use tokio::time::Instant;

macro_rules! request_kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)*) => {
        /// A kind of request, one for each S3 operation in use.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum RequestKind {
            $($(#[$doc])* $kind,)*
        }

        impl RequestKind {
            /// All kinds.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)*];

            /// Returns the name in logs and reports.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }
        }
    };
}

request_kinds! {
    /// GetObject.
    Get = "GET",
    /// HeadObject.
    Head = "HEAD",
    /// PutObject.
    Put = "PUT",
    /// DeleteObject.
    Delete = "DELETE",
    /// CopyObject.
    Copy = "COPY",
    /// ListObjectsV2.
    List = "LIST",
    /// CreateMultipartUpload.
    Multipart = "MULTIPART",
    /// UploadPart.
    Part = "PART",
    /// UploadPartCopy.
    PartCopy = "PART-COPY",
    /// CompleteMultipartUpload.
    Complete = "COMPLETE",
    /// AbortMultipartUpload.
    Abort = "ABORT",
    /// ListParts.
    ListParts = "LIST-PARTS",
    /// GetObjectTagging.
    GetTags = "GET-TAGS",
    /// PutObjectTagging.
    PutTags = "PUT-TAGS",
    /// HeadBucket.
    HeadBucket = "HEAD-BUCKET",
    /// CreateBucket.
    CreateBucket = "CREATE-BUCKET",
    /// DeleteBucket.
    DeleteBucket = "DELETE-BUCKET",
    /// ListBuckets.
    ListBuckets = "LIST-BUCKETS",
}

/// Counts of the HTTP requests that a client has sent, including retries, with their outcomes and times.
#[derive(Default)]
pub struct RequestCounts {
    /// Requests sent, by kind.
    sent: [AtomicU64; RequestKind::ALL.len()],
    outcomes: [[AtomicU64; Outcome::ALL.len()]; RequestKind::ALL.len()],
    latencies: [Histogram; RequestKind::ALL.len()],
    observers: Observers<StoreRequest>,
    retries: AtomicU64,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
}

impl RequestCounts {
    /// Returns the number of requests of a kind.
    pub fn of(&self, kind: RequestKind) -> u64 {
        self.sent[kind as usize].load(Ordering::Relaxed)
    }

    /// Returns the number of requests of all kinds.
    pub fn total(&self) -> u64 {
        self.sent.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Returns the number of requests that were retries.
    pub fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    /// Returns all counts, in the order of [`RequestKind::ALL`].
    pub fn snapshot(&self) -> Vec<(RequestKind, u64)> {
        RequestKind::ALL.iter().map(|&kind| (kind, self.of(kind))).collect()
    }

    /// Returns how many requests of a kind ended with an outcome. Of a GET, the head of the response counts.
    pub fn outcomes(&self, kind: RequestKind, outcome: Outcome) -> u64 {
        self.outcomes[kind as usize][outcome as usize].load(Ordering::Relaxed)
    }

    /// Returns the times from sending a request of a kind to the head of its response.
    pub fn latencies(&self, kind: RequestKind) -> HistogramSnapshot {
        self.latencies[kind as usize].snapshot()
    }

    /// Returns the observers of requests that have ended, apart from those that a traced operation collects.
    pub fn observers(&self) -> &Observers<StoreRequest> {
        &self.observers
    }

    /// Returns the bytes of all bodies that the server accepted.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes of all response bodies that were received.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }

    /// Records the end of a request that began at `began`, with its error if it failed, and reports it to the operation that caused it or to
    /// the observers.
    pub(super) fn record_outcome(&self, call: &Call, began: Instant, error: Option<&StoreError>) {
        let (kind, sent_bytes, took) = (call.kind, call.body.len(), began.elapsed());
        let outcome = Outcome::of(error);
        self.outcomes[kind as usize][outcome as usize].fetch_add(1, Ordering::Relaxed);
        self.latencies[kind as usize].record(took);
        if outcome == Outcome::Ok {
            self.sent_bytes.fetch_add(sent_bytes, Ordering::Relaxed);
        }
        report_request(&self.observers, || StoreRequest {
            operation: 0,
            kind: kind.name(),
            key: Bytes::copy_from_slice(call.subject()),
            sent_bytes,
            began,
            took,
            outcome,
        });
    }

    /// Counts bytes of a response body that have arrived.
    pub(super) fn add_received(&self, bytes: usize) {
        self.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts a request that is about to be sent.
    pub(super) fn add(&self, kind: RequestKind) {
        self.sent[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that is a retry, in addition to [`add`](Self::add).
    pub(super) fn add_retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for RequestCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sent = self.snapshot().into_iter().filter(|(_, count)| *count > 0);
        f.debug_map().entries(sent.map(|(kind, count)| (kind.name(), count))).finish()
    }
}
