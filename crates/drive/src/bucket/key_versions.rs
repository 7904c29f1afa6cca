//! Versions of a key: lookups of its current object and its older versions, which may change places between two reads.

use super::DriveBucket;
use super::record_metadata::MetadataContext;
use crate::engine::Engine;
use crate::error::Result;
use crate::format::{IndexKey, Naming, ObjectRecord, decode_record};
use crate::frontend::Drive;
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;
use store::{ObjectKey, Version, version_id};

/// The index entry and the record of one version of a key: its current object, an older version or a delete marker.
pub(crate) type FoundVersion = (IndexKey, ObjectRecord);

/// The versions of a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyVersions<'a> {
    pub(super) bucket: &'a DriveBucket,
    pub(super) key: &'a ObjectKey,
}

impl KeyVersions<'_> {
    /// Returns the newest version of a key: the current object, or a delete marker; `None` if the key has no versions.
    pub(super) async fn newest(&self, context: MetadataContext) -> Result<Option<Version>> {
        let entry = IndexKey::object(self.bucket.id, self.key);
        let mut current = self.bucket.frontend.record(&entry).await?;
        loop {
            if let Some(record) = &current {
                return Ok(Some(context.version(self.key, record, true)));
            }
            let older = self.older(1).await?;
            // An older version may have become current meanwhile.
            current = self.bucket.frontend.record(&entry).await?;
            if current.is_none() {
                return Ok(older.first().map(|(_, record)| context.version(self.key, record, true)));
            }
        }
    }

    /// Returns all versions of a key, newest first.
    pub(super) async fn all(&self, context: MetadataContext) -> Result<Vec<Version>> {
        let entry = IndexKey::object(self.bucket.id, self.key);
        let mut current = self.bucket.frontend.record(&entry).await?;
        loop {
            let older = self.older(usize::MAX).await?.into_iter().map(|(_, record)| record);
            let now = self.bucket.frontend.record(&entry).await?;
            if is_same_write(&current, &now) {
                let records = newest_first(current, older);
                return Ok(context.versions_of(self.key, &records).collect());
            }
            current = now;
        }
    }

    /// Returns the entry and the record of the version with this id, which may be the current object; `None` if there
    /// is none.
    pub(super) async fn find(&self, context: MetadataContext, id: &str) -> Result<Option<FoundVersion>> {
        let entry = IndexKey::object(self.bucket.id, self.key);
        let mut current = self.bucket.frontend.record(&entry).await?;
        loop {
            if let Some(record) = current.as_ref().filter(|record| context.has_version_id(record, id)) {
                return Ok(Some((entry, record.clone())));
            }
            let older = self.older_with_id(context, id).await?;
            if older.is_some() {
                return Ok(older);
            }
            // The version may have become current meanwhile.
            let now = self.bucket.frontend.record(&entry).await?;
            if is_same_write(&current, &now) {
                return Ok(None);
            }
            current = now;
        }
    }

    /// Returns the older versions of a key, newest first, at most `limit`.
    pub(super) async fn older(&self, limit: usize) -> Result<Vec<FoundVersion>> {
        let prefix = IndexKey::versions(self.bucket.id, self.key.as_bytes());
        let found = self.bucket.frontend.entries(prefix, limit).await?;
        let decode = |(entry, value): (IndexKey, Bytes)| {
            let record = decode_record(&entry.0, &value)?;
            Ok((entry, record))
        };
        found.into_iter().map(decode).collect()
    }

    /// Returns the older version or delete marker of a key with this id; `None` if there is none. An id that contains a
    /// write number names the entry; `null` needs a search.
    pub(super) async fn older_with_id(
        &self,
        context: MetadataContext,
        id: &str,
    ) -> Result<Option<FoundVersion>> {
        let Some(write) = version_id::write_of(id) else {
            let null = self.older_null().await?;
            return Ok(null.filter(|(_, record)| context.has_version_id(record, id)));
        };
        let entry = IndexKey::version(self.bucket.id, self.key.as_bytes(), write);
        let record =
            self.bucket.frontend.record(&entry).await?.filter(|record| context.has_version_id(record, id));
        Ok(record.map(|record| (entry, record)))
    }

    /// Returns the older version of a key with the id `null`. A key has at most one. Returns `None` if there is none,
    /// or if the bucket does not exist any more. Costs one seek in the index for each period in which the bucket was
    /// not versioned, whatever the number of versions.
    pub(super) async fn older_null(&self) -> Result<Option<FoundVersion>> {
        let writes = match Drive(self.bucket.frontend.clone()).bucket_record(&self.bucket.name).await? {
            Some(record) if record.id == self.bucket.id => record.writes_of_null(),
            _ => return Ok(None),
        };
        let (bucket, key) = (self.bucket.id, self.key.as_bytes().to_vec());
        let find = move |engine: &Arc<Engine>| {
            let prefix = IndexKey::versions(bucket, &key);
            for writes in writes {
                let newest = IndexKey::version(bucket, &key, *writes.end());
                let mut scan = engine.index.scan(Bound::Included(&newest.0), &prefix.0)?;
                // The first entry suffices usually: such a period leaves at most one version of the key.
                while let Some((entry, value)) = scan.next()? {
                    let record = decode_record(entry, value)?;
                    if record.write < *writes.start() {
                        break;
                    }
                    if record.naming != Naming::Own {
                        return Ok(Some((IndexKey(entry.to_vec()), record)));
                    }
                }
            }
            Ok(None)
        };
        self.bucket.frontend.run_blocking(find).await
    }
}

/// Returns whether two reads of the current object saw the same write. Then no version was moved between the reads.
fn is_same_write(one: &Option<ObjectRecord>, other: &Option<ObjectRecord>) -> bool {
    let write = |record: &Option<ObjectRecord>| record.as_ref().map(|record| record.write);
    write(one) == write(other)
}

/// Returns the current record and the older ones. An object that was overwritten between the two reads appears in both; it is returned
/// once.
pub(super) fn newest_first(
    current: Option<ObjectRecord>,
    older: impl Iterator<Item = ObjectRecord>,
) -> Vec<ObjectRecord> {
    let newest = current.as_ref().map_or(u64::MAX, |current| current.write);
    current.into_iter().chain(older.filter(|record| record.write < newest)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Body, Naming};
    use store::Timestamp;

    /// A version was listed twice, as the newest and as an older one, if its key was overwritten between the reads of the current object
    /// and of the older versions.
    #[test]
    fn an_object_overwritten_between_two_reads_is_listed_once() {
        let record = |write| {
            let (modified, naming, body) = (Timestamp(1), Naming::Own, Body::DeleteMarker);
            let (attributes, tags) = Default::default();
            ObjectRecord { write, modified, naming, etag: None, body, attributes, tags }
        };
        let listed = |current: Option<u64>, older: &[u64]| -> Vec<u64> {
            let records = newest_first(current.map(record), older.iter().copied().map(record));
            records.iter().map(|record| record.write).collect()
        };
        assert_eq!(listed(Some(5), &[4, 2]), [5, 4, 2]);
        assert_eq!(listed(Some(5), &[6, 5, 4]), [5, 4]);
        assert_eq!(listed(None, &[4, 2]), [4, 2]);
    }
}
