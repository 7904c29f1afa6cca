//! Buckets of a pool. Each bucket exists on all drives.
//!
//! A bucket is created on the first drive first, and deleted there last. So after a crash, a bucket that was half created is created on the
//! other drives too, and one that was half deleted is complete again and can be deleted again.

use super::Pool;
use super::bucket::PoolBucket;
use crate::bucket::DriveBucket;
use crate::frontend::Drive;
use std::collections::BTreeSet;
use std::sync::Arc;
use store::{Buckets, ObjectStore, Result, Settings, StoreError, Timestamp, bucket_name};

impl Pool {
    /// Returns the first drive that is present.
    fn first(&self) -> Result<&Drive> {
        self.present().next().map(|(_, drive)| drive).ok_or_else(|| self.missing_drive(0))
    }

    /// Opens a bucket on all drives that are present.
    async fn bucket(&self, name: &str) -> Result<PoolBucket> {
        let mut buckets = Vec::new();
        for drive in &self.0.drives {
            buckets.push(match drive {
                Some(drive) => Some(drive.bucket(name).await?),
                None => None,
            });
        }
        Ok(PoolBucket { pool: self.clone(), name: name.into(), buckets })
    }

    /// Creates missing buckets and copies settings, so that all drives agree. Requires that all drives are present and unused.
    pub(super) async fn repair_buckets(&self) -> Result<()> {
        let mut names = BTreeSet::new();
        for (_, drive) in self.present() {
            names.extend(Buckets::list(drive).await?);
        }
        for name in names {
            self.create_where_missing(&name).await?;
        }
        Ok(())
    }

    /// Creates a bucket where it is missing, and copies its settings from the first drive. Returns the number of buckets created.
    async fn create_where_missing(&self, name: &str) -> Result<usize> {
        let mut made = 0;
        let mut buckets = Vec::new();
        for (_, drive) in self.present() {
            match drive.bucket(name).await {
                Err(StoreError::NoSuchBucket(_)) => {
                    Buckets::create(drive, name).await?;
                    made += 1;
                }
                known => drop(known?),
            }
            buckets.push(drive.bucket(name).await?);
        }
        if let Some((first, others)) = buckets.split_first() {
            for other in others {
                copy_settings(first, other).await?;
            }
        }
        Ok(made)
    }
}

/// Copies the versioning state and the settings of a bucket from the first drive to another.
async fn copy_settings(first: &DriveBucket, other: &DriveBucket) -> Result<()> {
    let versioning = first.state().await?;
    if other.state().await? != versioning {
        other.set_versioning(versioning).await?;
    }
    let (expected, actual) = (first.all_settings().await?, other.all_settings().await?);
    for name in expected.keys().chain(actual.keys()) {
        if expected.get(name) != actual.get(name) {
            other.set(name, expected.get(name).cloned()).await?;
        }
    }
    Ok(())
}

#[async_trait::async_trait]
impl Buckets for Pool {
    async fn open(&self, name: &str) -> Result<Arc<dyn ObjectStore>> {
        Ok(Arc::new(self.bucket(name).await?))
    }

    async fn create(&self, name: &str) -> Result<()> {
        bucket_name::check(name)?;
        let _names = self.0.names.write().await;
        self.check_all_present()?;
        match self.create_where_missing(name).await? {
            0 => Err(bucket_name::exists(name)),
            _ => Ok(()),
        }
    }

    async fn delete(&self, name: &str) -> Result<()> {
        let _names = self.0.names.write().await;
        self.check_all_present()?;
        let mut found = Vec::new();
        for (_, drive) in self.present() {
            match drive.bucket(name).await {
                Err(StoreError::NoSuchBucket(_)) => {}
                bucket => found.push((drive, bucket?)),
            }
        }
        if found.is_empty() {
            return Err(StoreError::NoSuchBucket(name.to_owned()));
        }
        for (drive, bucket) in &found {
            if !drive.is_empty(bucket.id).await? {
                return Err(bucket_name::not_empty(name));
            }
        }
        for (drive, _) in found.iter().rev() {
            Buckets::delete(*drive, name).await?;
        }
        Ok(())
    }

    async fn list(&self) -> Result<Vec<String>> {
        Buckets::list(self.first()?).await
    }

    async fn made_at(&self, name: &str) -> Result<Timestamp> {
        self.first()?.made_at(name).await
    }
}
