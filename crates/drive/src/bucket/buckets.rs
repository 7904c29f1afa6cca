//! Buckets of a drive: lookup, creation, deletion and listing by name, and the change of the versioning state.

use super::DriveBucket;
use crate::engine::Prepared;
use crate::error::Result;
use crate::format::{BucketRecord, Change, IndexKey, Kind};
use crate::frontend::Drive;
use crate::policy::Purpose;
use std::sync::Arc;
use store::{Buckets, ObjectStore, StoreError, Timestamp, Versioning, bucket_name};

impl Drive {
    async fn existing_record(&self, name: &str) -> store::Result<BucketRecord> {
        self.bucket_record(name).await?.ok_or_else(|| StoreError::NoSuchBucket(name.to_owned()))
    }

    /// Returns the bucket of this name. Fails with `NoSuchBucket` if there is none.
    pub(crate) async fn bucket(&self, name: &str) -> store::Result<DriveBucket> {
        let record = self.existing_record(name).await?;
        Ok(DriveBucket { frontend: self.0.clone(), name: name.into(), id: record.id })
    }

    /// Returns whether a bucket has no objects, versions or uploads.
    pub(crate) async fn is_empty(&self, bucket: u64) -> Result<bool> {
        for kind in [Kind::Object, Kind::Version, Kind::Upload] {
            if !self.0.entries(IndexKey::prefix(kind, bucket), 1).await?.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[async_trait::async_trait]
impl Buckets for Drive {
    async fn open(&self, name: &str) -> store::Result<Arc<dyn ObjectStore>> {
        Ok(Arc::new(self.bucket(name).await?))
    }

    async fn create(&self, name: &str) -> store::Result<()> {
        bucket_name::check(name)?;
        let locks = vec![self.0.locks.lock_names().await];
        if self.bucket_record(name).await?.is_some() {
            return Err(bucket_name::exists(name));
        }
        let (id, made) = (self.0.engine.next_write(), self.0.clock.now());
        let record = BucketRecord::new(id, made);
        let put = Change::Put { key: IndexKey::bucket(name).0, value: record.encode() };
        Ok(self.0.commit(Prepared { changes: vec![put], ..Prepared::default() }, locks).await?)
    }

    async fn delete(&self, name: &str) -> store::Result<()> {
        let names = self.0.locks.lock_names().await;
        let record = self.existing_record(name).await?;
        let locks = vec![names, self.0.locks.lock_bucket(record.id).await];
        if !self.is_empty(record.id).await? {
            return Err(bucket_name::not_empty(name));
        }
        let settings = self.0.entries(IndexKey::prefix(Kind::Setting, record.id), usize::MAX).await?;
        let removed = settings.into_iter().map(|(key, _)| key).chain([IndexKey::bucket(name)]);
        let changes = removed.map(|key| Change::Delete { key: key.0 }).collect();
        let purpose = Purpose::Frees;
        Ok(self.0.commit(Prepared { changes, purpose, ..Prepared::default() }, locks).await?)
    }

    async fn list(&self) -> store::Result<Vec<String>> {
        let found = self.0.entries(IndexKey(vec![Kind::Bucket as u8]), usize::MAX).await?;
        let name = |(key, _): (IndexKey, _)| String::from_utf8_lossy(&key.0[1..]).into_owned();
        Ok(found.into_iter().map(name).collect())
    }

    async fn made_at(&self, name: &str) -> store::Result<Timestamp> {
        Ok(self.existing_record(name).await?.made)
    }
}

impl DriveBucket {
    /// Returns the bucket's record. Fails with `NoSuchBucket` if the bucket was deleted after it was opened, even if
    /// another bucket has its name now.
    pub(super) async fn bucket_record(&self) -> store::Result<BucketRecord> {
        let drive = Drive(self.frontend.clone());
        let record = drive.existing_record(&self.name).await?;
        match record.id == self.id {
            true => Ok(record),
            false => Err(StoreError::NoSuchBucket(self.name.to_string())),
        }
    }

    /// Sets the bucket's versioning state. Waits until all changes of the bucket that began before have ended, so that
    /// none of them still overwrites an object under the former state.
    pub(crate) async fn set_versioning(&self, versioning: Versioning) -> store::Result<()> {
        let names = self.frontend.locks.lock_names().await;
        let locks = vec![names, self.frontend.locks.lock_bucket(self.id).await];
        let record = self.bucket_record().await?;
        let record = record.with_versioning(versioning, self.frontend.engine.next_write());
        let put = Change::Put { key: IndexKey::bucket(&self.name).0, value: record.encode() };
        Ok(self.frontend.commit(Prepared { changes: vec![put], ..Prepared::default() }, locks).await?)
    }
}
