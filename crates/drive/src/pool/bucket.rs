//! A bucket of a pool: consists of the bucket of that name on each drive.

use super::placement_lock::PlacementLock;
use super::{Pool, placement, run_detached};
use crate::bucket::{DriveBucket, PoolMember};
use std::fmt;
use std::sync::Arc;
use store::{ObjectKey, Result, StoreError, Versioning};
use tokio::sync::OwnedRwLockReadGuard;

/// Free bytes that a drive must have for a new upload or another object whose length is not known.
pub(super) const UNKNOWN_BYTES: u64 = 64 << 20;

/// A bucket of a pool.
#[derive(Clone)]
pub(super) struct PoolBucket {
    pub(super) pool: Pool,
    pub(super) name: Arc<str>,
    /// The bucket on each drive, by drive number; `None` if the drive is missing.
    pub(super) buckets: Vec<Option<DriveBucket>>,
}

/// A write of a key in progress, and the key's home drive.
pub(super) struct KeyWrite {
    placement: PlacementLock,
    /// The number of the drive.
    pub(super) home: usize,
    /// Keeps buckets and settings from being changed meanwhile.
    _names: OwnedRwLockReadGuard<()>,
}

impl KeyWrite {
    /// Returns the placement lock, which a write keeps for longer than a call, and releases the rest.
    pub(super) fn into_placement(self) -> PlacementLock {
        self.placement
    }
}

impl fmt::Debug for PoolBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolBucket").field("name", &self.name).finish_non_exhaustive()
    }
}

impl PoolBucket {
    /// Returns the bucket on a drive; `Unavailable` if the drive is missing.
    pub(super) fn bucket_on(&self, number: usize) -> Result<&DriveBucket> {
        let bucket = self.buckets.get(number).and_then(Option::as_ref);
        bucket.ok_or_else(|| self.pool.missing_drive(number))
    }

    /// Returns the bucket on each drive that is present, with the number of the drive.
    pub(super) fn present(&self) -> impl Iterator<Item = (usize, &DriveBucket)> {
        self.buckets.iter().enumerate().filter_map(|(number, bucket)| Some((number, bucket.as_ref()?)))
    }

    /// Returns the bucket on all drives; `Unavailable` if a drive is missing.
    pub(super) fn all(&self) -> Result<Vec<&DriveBucket>> {
        (0..self.buckets.len()).map(|number| self.bucket_on(number)).collect()
    }

    /// Returns the bucket on the first drive that is present. Its settings are authoritative.
    pub(super) fn first(&self) -> Result<&DriveBucket> {
        self.present().next().map(|(_, bucket)| bucket).ok_or_else(|| self.pool.missing_drive(0))
    }

    /// Returns the number of the drive that has the current object of a key. Returns `None` if no drive has one, and
    /// `Unavailable` if a drive that is missing may have it. Indexes that can answer from memory are asked first: the
    /// filters of most other drives exclude the key.
    pub(super) async fn drive_with_current(&self, key: &ObjectKey) -> Result<Option<usize>> {
        let mut unsure = Vec::new();
        for (number, bucket) in self.present() {
            match PoolMember(bucket).has_current_in_memory(key) {
                Some(true) => return Ok(Some(number)),
                Some(false) => {}
                None => unsure.push((number, bucket)),
            }
        }
        let mut failed = self.pool.check_all_present().err();
        for (number, bucket) in unsure {
            match PoolMember(bucket).has_current(key).await {
                Ok(true) => return Ok(Some(number)),
                Ok(false) => {}
                Err(error) => failed = Some(error.into()),
            }
        }
        failed.map_or(Ok(None), Err)
    }

    /// Returns the number of the drive that has an object or a version of the key; `None` if no drive has any. Uploads
    /// are not considered, as they have placement locks.
    pub(super) async fn home(&self, key: &ObjectKey) -> Result<Option<usize>> {
        let current = self.drive_with_current(key).await;
        if !matches!(current, Ok(Some(_))) && self.first()?.state().await? != Versioning::Never {
            for (number, bucket) in self.present() {
                if PoolMember(bucket).has_older_versions(key).await? {
                    return Ok(Some(number));
                }
            }
            // An older version may have become current between the two lookups.
            return self.drive_with_current(key).await;
        }
        current
    }

    /// Returns the bucket on the drive that has the current object; with a `version`, on the drive that has any version of the key,
    /// without looking for this one. Fails with `NotFound` if no drive has such.
    pub(super) async fn bucket_of(&self, key: &ObjectKey, version: Option<&str>) -> Result<&DriveBucket> {
        self.bucket_on(self.drive_of(key, version).await?)
    }

    /// Returns the number of the drive of [`bucket_of`](Self::bucket_of).
    pub(super) async fn drive_of(&self, key: &ObjectKey, version: Option<&str>) -> Result<usize> {
        let home = match version {
            None => self.drive_with_current(key).await?,
            Some(_) => self.home(key).await?,
        };
        home.ok_or_else(|| StoreError::NotFound(key.clone()))
    }

    /// Begins a write of a key. A new key is placed on the drive `preferred`, or on a drive with room for `len_bytes`.
    /// Fails for a new key if a drive accepts no writes.
    pub(super) async fn begin_write(
        &self,
        key: &ObjectKey,
        preferred: Option<usize>,
        len_bytes: u64,
    ) -> Result<KeyWrite> {
        let names = self.pool.0.names.clone().read_owned().await;
        let placement = self.pool.0.placement_locks.acquire(&self.name, key);
        let find = async {
            match self.home(key).await? {
                Some(home) => Ok(home),
                None => {
                    self.check_all_writable()?;
                    Ok(preferred.unwrap_or_else(|| self.choose_drive(key, len_bytes)))
                }
            }
        };
        let home = placement.home(find).await?;
        Ok(KeyWrite { placement, home, _names: names })
    }

    /// Changes a key on its home drive. The change runs to its end even if the caller is cancelled.
    pub(super) async fn change<T, Work>(
        &self,
        key: &ObjectKey,
        len_bytes: u64,
        work: impl FnOnce(DriveBucket) -> Work,
    ) -> Result<T>
    where
        T: Send + 'static,
        Work: Future<Output = Result<T>> + Send + 'static,
    {
        let writing = self.begin_write(key, None, len_bytes).await?;
        let work = work(self.bucket_on(writing.home)?.clone());
        run_detached(writing, work).await
    }

    /// Fails if a drive does not accept writes: an unacknowledged write may be on its device, so it is unknown which keys it has.
    fn check_all_writable(&self) -> Result<()> {
        for (_, bucket) in self.present() {
            PoolMember(bucket).check_writable()?;
        }
        Ok(())
    }

    /// Returns the number of the drive for a new object.
    fn choose_drive(&self, key: &ObjectKey, len_bytes: u64) -> usize {
        let available_bytes = |bucket: &DriveBucket| PoolMember(bucket).available_bytes();
        let free: Vec<u64> =
            self.buckets.iter().map(|bucket| bucket.as_ref().map_or(0, available_bytes)).collect();
        placement::choose(placement::hash_of(&self.name, key.as_bytes()), &free, len_bytes)
    }
}
