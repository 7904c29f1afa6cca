//! Iteration over the pairs of a group in key order.

use super::Result;
use crate::bucket::{DriveBucket, decode_summary};
use crate::format::{IndexKey, Kind};
use bytes::Bytes;
use std::ops::Bound;
use std::vec;

/// Pairs fetched by one index lookup.
const PAIRS_AT_ONCE: usize = 256;

/// One pair of an iteration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The key.
    pub key: Bytes,
    /// The length of the value.
    pub value_bytes: u64,
}

/// An iteration over the pairs of a group in ascending key order. The iteration is no snapshot. A pair that exists
/// throughout is returned exactly once, with a length that its value had at some moment of the iteration. A pair stored
/// or deleted meanwhile may or may not be returned.
#[derive(Debug)]
pub struct Iterate {
    bucket: DriveBucket,
    prefix: IndexKey,
    /// The beginning of the next page.
    from: Bound<Vec<u8>>,
    /// The entries of the present page that were not returned yet.
    found: vec::IntoIter<(IndexKey, Bytes)>,
}

impl Iterate {
    pub(super) fn new(bucket: DriveBucket, prefix: &[u8]) -> Self {
        let prefix = IndexKey::prefix(Kind::Object, bucket.id).append(prefix);
        let from = Bound::Included(prefix.0.clone());
        Self { bucket, prefix, from, found: Vec::new().into_iter() }
    }

    /// Returns the next pair, or `None` after the last. After a failed read, a further call continues at the same
    /// place; after a damaged entry, it continues behind that entry.
    pub async fn next(&mut self) -> Result<Option<Pair>> {
        if self.found.as_slice().is_empty() {
            let from = self.from.clone();
            let found = self.bucket.frontend.entries_from(from, self.prefix.clone(), PAIRS_AT_ONCE).await?;
            if let Some((last, _)) = found.last() {
                self.from = Bound::Excluded(last.0.clone());
            }
            self.found = found.into_iter();
        }
        self.found.next().map(pair).transpose()
    }
}

fn pair((entry, value): (IndexKey, Bytes)) -> Result<Pair> {
    let (key, head) = decode_summary(&entry.0, &value)?;
    Ok(Pair { key: Bytes::copy_from_slice(key.as_bytes()), value_bytes: head.len_bytes })
}
