//! Lost buckets: gives names to buckets whose index entry was lost, so that their objects can be read.

use super::Engine;
use crate::error::Result;
use crate::format::{BucketRecord, IndexKey, Kind};
use crate::index::Losses;
use std::collections::BTreeSet;
use std::ops::Bound;
use store::Timestamp;

impl Engine {
    /// Gives a name, in memory only, to each bucket that has objects or versions but no entry of its own. Returns one
    /// line for each. For drives that are opened with `before_damage`.
    pub(super) fn name_lost_buckets(&self) -> Result<Vec<String>> {
        let (mut named, mut used) = (BTreeSet::new(), BTreeSet::new());
        let mut scan = self.index.scan_readable(Bound::Unbounded, &Losses::default());
        while let Some((key, value)) = scan.next()? {
            if key.first() == Some(&(Kind::Bucket as u8)) {
                named.extend(BucketRecord::decode(value).map(|record| record.id));
            } else if let Some((bucket, _)) = IndexKey(key.to_vec()).bucket_and_key() {
                used.insert(bucket);
            }
        }
        let lost = used.difference(&named).map(|&id| {
            let name = format!("lost-{id:016x}");
            let record = BucketRecord { periods: Vec::new(), ..BucketRecord::new(id, Timestamp(0)) };
            self.index.insert(IndexKey::bucket(&name).0, record.encode());
            format!("the name of a bucket is lost: its objects are in the bucket '{name}'")
        });
        Ok(lost.collect())
    }
}
