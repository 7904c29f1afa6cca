//! Requests by kind, and the bytes of their bodies.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The kind of a request of the S3 API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestKind {
    /// `GetObject`.
    Get,
    /// `HeadObject` and `HeadBucket`.
    Head,
    /// `PutObject`.
    Put,
    /// `UploadPart`.
    Part,
    /// `CopyObject` and `UploadPartCopy`.
    Copy,
    /// `CreateMultipartUpload`.
    BeginUpload,
    /// `CompleteMultipartUpload`.
    CompleteUpload,
    /// `AbortMultipartUpload`.
    AbortUpload,
    /// `DeleteObject` and `DeleteObjects`.
    Delete,
    /// Listings of objects, versions, uploads and buckets.
    List,
    /// Everything else.
    Other,
}

/// Requests and bytes that passed the proxy.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Traffic {
    /// Number of requests of each kind.
    pub requests: BTreeMap<RequestKind, u64>,
    /// Bytes of request bodies that were forwarded.
    pub uploaded_bytes: u64,
    /// Bytes of response bodies that were forwarded.
    pub downloaded_bytes: u64,
}

impl Traffic {
    /// Returns the traffic since an earlier state of the same proxy.
    pub fn since(&self, earlier: &Self) -> Self {
        let count = |kind: &RequestKind| earlier.requests.get(kind).copied().unwrap_or(0);
        let requests = self.requests.iter().map(|(kind, total)| (*kind, total - count(kind)));
        Self {
            requests: requests.filter(|(_, count)| *count > 0).collect(),
            uploaded_bytes: self.uploaded_bytes - earlier.uploaded_bytes,
            downloaded_bytes: self.downloaded_bytes - earlier.downloaded_bytes,
        }
    }

    /// Returns the number of requests of all kinds.
    pub fn total(&self) -> u64 {
        self.requests.values().sum()
    }
}

impl RequestKind {
    /// Classifies a request by its method, its target in lower case, and whether it names a source to copy from.
    pub(super) fn classify(method: &str, target: &str, is_copy: bool) -> Self {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let has = |name: &str| query.split('&').any(|part| part.split('=').next() == Some(name));
        let names_object = path.trim_matches('/').contains('/');
        match method {
            "put" if is_copy => Self::Copy,
            "put" if has("partnumber") => Self::Part,
            "put" if names_object && query_is_plain(query) => Self::Put,
            "post" if has("uploads") => Self::BeginUpload,
            "post" if has("uploadid") => Self::CompleteUpload,
            "post" if has("delete") => Self::Delete,
            "delete" if has("uploadid") => Self::AbortUpload,
            "delete" if names_object => Self::Delete,
            "head" => Self::Head,
            "get" if names_object && query_is_plain(query) => Self::Get,
            "get" if !names_object && (query_is_plain(query) || is_listing(&has)) => Self::List,
            _ => Self::Other,
        }
    }
}

/// Returns whether a query asks for the object or bucket itself, and not for one of its properties.
fn query_is_plain(query: &str) -> bool {
    const PROPERTIES: [&str; 13] = [
        "tagging",
        "acl",
        "policy",
        "location",
        "versioning",
        "lifecycle",
        "uploads",
        "uploadid",
        "retention",
        "legal-hold",
        "notification",
        "cors",
        "object-lock",
    ];
    !query.split('&').any(|part| PROPERTIES.contains(&part.split('=').next().unwrap_or_default()))
}

fn is_listing(has: &impl Fn(&str) -> bool) -> bool {
    ["list-type", "versions", "uploads"].into_iter().any(has)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_classified() {
        for (method, target, is_copy, kind) in [
            ("get", "/b/k", false, RequestKind::Get),
            ("get", "/b/k?x-id=getobject", false, RequestKind::Get),
            ("get", "/b/?list-type=2&prefix=a", false, RequestKind::List),
            ("get", "/b?delimiter=/", false, RequestKind::List),
            ("get", "/", false, RequestKind::List),
            ("get", "/b?location", false, RequestKind::Other),
            ("head", "/b/k", false, RequestKind::Head),
            ("put", "/b/k", false, RequestKind::Put),
            ("put", "/b/k", true, RequestKind::Copy),
            ("put", "/b/k?partnumber=1&uploadid=u", false, RequestKind::Part),
            ("put", "/b/k?partnumber=1&uploadid=u", true, RequestKind::Copy),
            ("put", "/b", false, RequestKind::Other),
            ("post", "/b/k?uploads", false, RequestKind::BeginUpload),
            ("post", "/b/k?uploadid=u", false, RequestKind::CompleteUpload),
            ("post", "/b?delete", false, RequestKind::Delete),
            ("delete", "/b/k?uploadid=u", false, RequestKind::AbortUpload),
            ("delete", "/b/k", false, RequestKind::Delete),
            ("get", "/b/k?tagging", false, RequestKind::Other),
        ] {
            assert_eq!(RequestKind::classify(method, target, is_copy), kind, "{method} {target}");
        }
    }
}
