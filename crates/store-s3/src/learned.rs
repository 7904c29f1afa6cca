//! Facts that a client has learned about its server and its buckets.

use super::headers::{ENCRYPTION, WEBSITE_REDIRECT};
use http::header::{HeaderMap, HeaderValue, SERVER};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use store::Attributes;
use tokio::sync::Semaphore;

/// Minimum size of a copy in parts, in bytes: smaller objects are copied as fast by one request.
pub(super) const LARGE_BYTES_MIN: u64 = 64 << 20;
/// Maximum part copies of a client in flight.
pub(super) const PARTS_AT_ONCE: usize = 16;

/// The knowledge that a client has gained about its server and buckets from responses.
#[derive(Debug, Default)]
pub(super) struct Learned {
    pub(super) key_probes: KeyProbes,
    pub(super) uncopied_attributes: UncopiedAttributes,
    pub(super) part_copies: PartCopies,
    pub(super) attribute_listings: AttributeListings,
}

/// Servers that return the attributes of objects in listings if the request has the parameter `metadata=true`.
const ATTRIBUTE_LISTERS: [&str; 2] = ["MinIO", "Tenon"];

/// Whether the server returns the attributes of objects in listings. Other servers might refuse the parameter.
#[derive(Debug, Default)]
pub(super) struct AttributeListings {
    /// Whether the server has the name of one that does.
    is_lister: AtomicBool,
    /// Whether the server has refused the parameter, as an older version does.
    is_refused: AtomicBool,
}

impl AttributeListings {
    /// Notes the name of the server in a response.
    pub(super) fn note_server(&self, headers: &HeaderMap) {
        let is_lister = |server: &HeaderValue| ATTRIBUTE_LISTERS.iter().any(|name| server == name);
        if !self.is_lister.load(Ordering::Relaxed) && headers.get(SERVER).is_some_and(is_lister) {
            self.is_lister.store(true, Ordering::Relaxed);
        }
    }

    /// Notes that the server has refused the parameter.
    pub(super) fn note_refusal(&self) {
        self.is_refused.store(true, Ordering::Relaxed);
    }

    /// Returns whether the server is known to list attributes.
    pub(super) fn are_available(&self) -> bool {
        self.is_lister.load(Ordering::Relaxed) && !self.is_refused.load(Ordering::Relaxed)
    }
}

/// A kind of key that is not a clean path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyKind {
    LeadingSlash,
    DoubleSlash,
    Dots,
}

/// Results of the probes: for each kind, a bit for "probed" and a bit for "normalises".
#[derive(Debug, Default)]
pub(super) struct KeyProbes(AtomicU8);

impl KeyProbes {
    /// Returns whether the server normalises keys of a kind; `None` if it was not probed.
    pub(super) fn normalizes(&self, kind: KeyKind) -> Option<bool> {
        let known = self.0.load(Ordering::Relaxed) >> (2 * kind as u8);
        (known & 1 == 1).then_some(known & 2 == 2)
    }

    pub(super) fn record(&self, kind: KeyKind, normalizes: bool) {
        let known = 1 | u8::from(normalizes) << 1;
        self.0.fetch_or(known << (2 * kind as u8), Ordering::Relaxed);
    }
}

/// Whether the client has seen an object with attributes that CopyObject does not copy.
#[derive(Debug, Default)]
pub(super) struct UncopiedAttributes(AtomicBool);

impl UncopiedAttributes {
    /// Notes that an object with these attributes was seen.
    pub(super) fn note(&self, attributes: &Attributes) {
        if has_uncopied(attributes) {
            self.note_some();
        }
    }

    /// Notes that an object has such attributes.
    pub(super) fn note_some(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether an object with such attributes was seen.
    pub(super) fn has_seen_some(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Returns whether CopyObject would not copy some of the attributes.
pub(super) fn has_uncopied(attributes: &Attributes) -> bool {
    let system = [WEBSITE_REDIRECT, ENCRYPTION];
    attributes.storage_class.is_some() || system.iter().any(|name| attributes.system.contains_key(*name))
}

/// State that the copies of a client share.
#[derive(Debug)]
pub(super) struct PartCopies {
    /// A permit for each part copy that may be in flight.
    pub(super) slots: Semaphore,
    /// Whether the client has seen a large object. In buckets without large objects, the size of a copy's source need not be
    /// requested.
    has_seen_large: AtomicBool,
}

impl Default for PartCopies {
    fn default() -> Self {
        Self { slots: Semaphore::new(PARTS_AT_ONCE), has_seen_large: AtomicBool::new(false) }
    }
}

impl PartCopies {
    /// Notes the size of an object in the bucket.
    pub(super) fn note_size(&self, size_bytes: u64) {
        if size_bytes >= LARGE_BYTES_MIN {
            self.has_seen_large.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether an object may be large. Without its size, that depends on whether a large object was seen.
    pub(super) fn may_be_large(&self, size_bytes: Option<u64>) -> bool {
        let is_large = size_bytes.map(|size_bytes| size_bytes >= LARGE_BYTES_MIN);
        is_large.unwrap_or_else(|| self.has_seen_large.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_results_are_separate_by_kind() {
        let known = KeyProbes::default();
        known.record(KeyKind::DoubleSlash, true);
        known.record(KeyKind::Dots, false);
        assert_eq!(known.normalizes(KeyKind::LeadingSlash), None);
        assert_eq!(known.normalizes(KeyKind::DoubleSlash), Some(true));
        assert_eq!(known.normalizes(KeyKind::Dots), Some(false));
    }
}
