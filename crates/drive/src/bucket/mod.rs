//! Buckets of a drive: implements the traits of `store`.
//!
//! Owns no state, as buckets lie in the index. Every change of a key is made under the key's lock by an `Edit`, which gathers the
//! changes of one commit.
//!
//! Invariants: the current object of a key is an entry `Object`. Delete markers and older versions are entries `Version`, newest
//! first. A write has a greater number than all earlier writes of its key.
//! `Version`, the newest first; a write has a greater number than any of its key before.

mod buckets;
mod edit;
mod listing;
mod lost_buckets;
mod multipart;
mod objects;
mod settings;
mod uploads;
mod versions;
mod writer;

pub(crate) use multipart::DriveMultipart;
pub(crate) use writer::DriveWriter;

use crate::codec::{Decoder, Encoder};
use crate::error::{Error, Result};
use crate::format::{BucketId, IndexKey, Naming, ObjectRecord};
use crate::frontend::{Drive, Frontend};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use store::{ETag, ObjectKey, ObjectMeta, ObjectRef, Timestamp, Versioning};

/// The value of a bucket's index entry.
#[derive(Debug, Clone, PartialEq, Eq)]
struct BucketRecord {
    id: BucketId,
    made: Timestamp,
    versioning: Versioning,
    /// The last changes of `versioning`, oldest first: the state applies to writes from this number on, up to the next change. The list
    /// begins with the bucket's creation, unless a former version of Tenon created the bucket or there were too many changes.
    periods: Vec<(u64, Versioning)>,
}

/// Changes of versioning to remember.
const PERIODS_MAX: usize = 64;

impl BucketRecord {
    fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::default();
        to.number(self.id);
        to.fixed64(self.made.0 as u64);
        to.byte(number_of(self.versioning));
        to.list(self.periods.iter(), |to, &(write, versioning)| {
            to.number(write);
            to.byte(number_of(versioning));
        });
        to.0
    }

    /// Makes the record of a new bucket.
    fn new(id: BucketId, made: Timestamp) -> Self {
        let versioning = Versioning::Never;
        Self { id, made, versioning, periods: vec![(id, versioning)] }
    }

    /// Returns the record with another versioning state from a write on.
    fn with_versioning(mut self, versioning: Versioning, write: u64) -> Self {
        self.periods.push((write, versioning));
        if self.periods.len() > PERIODS_MAX {
            self.periods.remove(0);
        }
        Self { versioning, ..self }
    }

    /// Returns the ranges of write numbers that may have stored a version with the id `null`, the last range first.
    fn writes_of_null(&self) -> Vec<RangeInclusive<u64>> {
        let ends = self.periods.iter().skip(1).map(|(write, _)| write - 1).chain([u64::MAX]);
        let periods = self.periods.iter().zip(ends);
        let of_null = periods.filter(|((_, versioning), _)| *versioning != Versioning::Enabled);
        let of_null = of_null.map(|(&(first, _), last)| first..=last);
        let known_from = self.periods.first().map_or(u64::MAX, |(write, _)| *write);
        let before = (known_from > self.id).then(|| self.id..=known_from.saturating_sub(1));
        let mut writes: Vec<_> = before.into_iter().chain(of_null).collect();
        writes.reverse();
        writes
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let mut from = Decoder(bytes);
        let mut read = || {
            let (id, made) = (from.number()?, Timestamp(from.fixed64()? as i64));
            let versioning = versioning_of(from.byte()?)?;
            let mut periods = Vec::new();
            // Records written before version 0.23 end here.
            if !from.0.is_empty() {
                for _ in 0..from.number()? {
                    let write = from.number()?;
                    let is_later = periods.last().is_none_or(|(last, _)| *last < write);
                    periods.push((write, versioning_of(from.byte()?)?));
                    if !is_later || periods.len() > PERIODS_MAX {
                        return None;
                    }
                }
            }
            Some(Self { id, made, versioning, periods })
        };
        read().ok_or(Error::damaged("a bucket's record in the index", 0))
    }
}

fn number_of(versioning: Versioning) -> u8 {
    match versioning {
        Versioning::Never => 0,
        Versioning::Enabled => 1,
        Versioning::Suspended => 2,
    }
}

fn versioning_of(number: u8) -> Option<Versioning> {
    [Versioning::Never, Versioning::Enabled, Versioning::Suspended].get(usize::from(number)).copied()
}

/// A bucket of a drive.
#[derive(Clone)]
pub(crate) struct DriveBucket {
    pub(crate) frontend: Arc<Frontend>,
    name: Arc<str>,
    pub(crate) id: BucketId,
}

impl fmt::Debug for DriveBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriveBucket").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Drive {
    /// Returns the record of a bucket, if the bucket exists.
    async fn bucket_record(&self, name: &str) -> Result<Option<BucketRecord>> {
        let value = self.0.entry(&IndexKey::bucket(name)).await?;
        value.map(|value| BucketRecord::decode(&value)).transpose()
    }
}

impl DriveBucket {
    fn drive_id(&self) -> u64 {
        self.frontend.engine.drive.id
    }

    /// Returns the given etag, or the one derived from the write number.
    fn etag(&self, write: u64, given: Option<&ETag>) -> ETag {
        given.cloned().unwrap_or_else(|| etag_of_write(self.drive_id(), write))
    }

    fn etag_of(&self, record: &ObjectRecord) -> ETag {
        self.etag(record.write, record.etag.as_ref())
    }

    fn object_ref(&self, key: &ObjectKey, record: &ObjectRecord, state: Versioning) -> ObjectRef {
        ObjectRef {
            key: key.clone(),
            etag: self.etag_of(record),
            version: effective_naming(record.naming, state).id(record.write, record.modified),
            last_modified: Some(record.modified),
        }
    }

    fn meta(&self, key: &ObjectKey, record: &ObjectRecord, state: Versioning) -> ObjectMeta {
        ObjectMeta {
            object: self.object_ref(key, record, state),
            size_bytes: record.body.len_bytes(),
            attributes: record.attributes.clone(),
            tag_count: Some(record.tags.len() as u32),
        }
    }
}

/// Returns the etag of a write. Listings need it for each object, so it is built without a format string, which would take as long as
/// everything else in them.
fn etag_of_write(drive: u64, write: u64) -> ETag {
    let number = u128::from(drive) << 64 | u128::from(write);
    ETag::new(&(store::hex(&number.to_be_bytes()) + "-1"))
}

/// Returns how a version's id is formed in a bucket of this state: versions from before versioning have the id `null`.
fn effective_naming(naming: Naming, state: Versioning) -> Naming {
    match (naming, state) {
        (Naming::Unnamed, Versioning::Enabled | Versioning::Suspended) => Naming::Null,
        _ => naming,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_writes_with_null_versions_follow_from_versioning_periods() {
        let made = BucketRecord::new(7, Timestamp(1));
        assert_eq!(made.writes_of_null(), [7..=u64::MAX]);
        let enabled = made.with_versioning(Versioning::Enabled, 20);
        let record = enabled.clone().with_versioning(Versioning::Suspended, 30);
        let record = record.with_versioning(Versioning::Enabled, 40);
        assert_eq!(record.writes_of_null(), [30..=39, 7..=19]);
        assert_eq!(BucketRecord::decode(&record.encode()).unwrap(), record);
        // A former version of Tenon wrote no periods.
        let older = BucketRecord { periods: Vec::new(), ..enabled.clone() };
        assert_eq!(older.writes_of_null(), [7..=u64::MAX - 1]);
        let mut old_bytes = older.encode();
        old_bytes.pop();
        assert_eq!(BucketRecord::decode(&old_bytes).unwrap(), older);
        let mut many = older;
        for write in 0..100 {
            let state = if write % 2 == 0 { Versioning::Suspended } else { Versioning::Enabled };
            many = many.with_versioning(state, 100 + write);
        }
        assert_eq!(BucketRecord::decode(&many.encode()).unwrap(), many);
        assert_eq!(many.writes_of_null().last(), Some(&(7..=135)));
        assert_eq!(many.writes_of_null().len(), 33);
    }

    #[test]
    fn an_etag_consists_of_drive_id_and_write_number() {
        assert_eq!(etag_of_write(0xfe_dcba_9876_5432, 0x1b).as_str(), "00fedcba98765432000000000000001b-1");
    }
}
