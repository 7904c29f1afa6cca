//! Counts of sent requests by kind. Requests cost money and time, so tests check their number.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

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

/// Counts of the HTTP requests that a client has sent, including retries.
#[derive(Default)]
pub struct RequestCounts {
    sent: [AtomicU64; RequestKind::ALL.len()],
    retries: AtomicU64,
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

    pub(super) fn add(&self, kind: RequestKind) {
        self.sent[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

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
