//! The pairs of a group in the order of their keys.

use super::Result;
use crate::bucket::DriveBucket;
use crate::error::Error;
use crate::format::{Head, IndexKey, Kind};
use bytes::Bytes;
use std::ops::Bound;
use std::vec;

/// So many are looked up at a time.
const PAIRS_AT_ONCE: usize = 256;

/// What an iteration says of a pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// Its key.
    pub key: Bytes,
    /// The length of its value.
    pub value_bytes: u64,
}

/// Goes through the pairs of a group. It is no snapshot: a pair that is there all the time comes exactly once, with the length that its
/// value had at some time meanwhile; one that is stored or deleted meanwhile comes or not. Keys ascend in any case.
#[derive(Debug)]
pub struct Iterate {
    bucket: DriveBucket,
    prefix: IndexKey,
    from: Bound<Vec<u8>>,
    found: vec::IntoIter<(IndexKey, Bytes)>,
}

impl Iterate {
    pub(super) fn new(bucket: DriveBucket, prefix: &[u8]) -> Self {
        let prefix = IndexKey::of(Kind::Object, bucket.id).then(prefix);
        let from = Bound::Included(prefix.0.clone());
        Self { bucket, prefix, from, found: Vec::new().into_iter() }
    }

    /// The next pair; `None` behind the last. After an error it goes on where it was.
    pub async fn next(&mut self) -> Result<Option<Pair>> {
        if self.found.as_slice().is_empty() {
            let from = self.from.clone();
            let found = self.bucket.shell.entries_from(from, self.prefix.clone(), PAIRS_AT_ONCE).await?;
            if let Some((last, _)) = found.last() {
                self.from = Bound::Excluded(last.0.clone());
            }
            self.found = found.into_iter();
        }
        self.found.next().map(pair).transpose()
    }
}

fn pair((entry, value): (IndexKey, Bytes)) -> Result<Pair> {
    let read = || Some((IndexKey::object_key(&entry.0)?, Head::decode(&value)?));
    let (key, head) = read().ok_or(Error::damaged("an object's record in the index", 0))?;
    Ok(Pair { key: Bytes::copy_from_slice(key.as_bytes()), value_bytes: head.len_bytes })
}
