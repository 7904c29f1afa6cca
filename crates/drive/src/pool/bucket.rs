//! A bucket of a pool: the bucket of that name on each drive.

use super::stays::Stay;
use super::{Pool, placement, to_the_end};
use crate::bucket::DriveBucket;
use crate::format::IndexKey;
use std::fmt;
use std::sync::Arc;
use store::{ObjectKey, Result, StoreError, Versioning};
use tokio::sync::OwnedRwLockReadGuard;

/// What is stored in parts, nobody knows how long it will be, takes a drive where so many bytes fit.
pub(super) const UNKNOWN_BYTES: u64 = 64 << 20;

/// A bucket on all drives.
#[derive(Clone)]
pub(super) struct PoolBucket {
    pub(super) pool: Pool,
    pub(super) name: Arc<str>,
    /// By the drives' places; `None` on one that is missing.
    pub(super) parts: Vec<Option<DriveBucket>>,
}

/// A key that is being changed, and its home.
pub(super) struct Writing {
    stay: Stay,
    pub(super) home: usize,
    _names: OwnedRwLockReadGuard<()>,
}

impl Writing {
    /// The stay alone, to be kept for longer than a call.
    pub(super) fn into_stay(self) -> Stay {
        self.stay
    }
}

impl fmt::Debug for PoolBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolBucket").field("name", &self.name).finish_non_exhaustive()
    }
}

impl PoolBucket {
    /// The bucket on one drive.
    pub(super) fn part(&self, number: usize) -> Result<&DriveBucket> {
        let part = self.parts.get(number).and_then(Option::as_ref);
        part.ok_or_else(|| self.pool.missing(number))
    }

    /// The bucket on the drives that are there.
    pub(super) fn here(&self) -> impl Iterator<Item = (usize, &DriveBucket)> {
        self.parts.iter().enumerate().filter_map(|(number, part)| Some((number, part.as_ref()?)))
    }

    /// The bucket on each drive; `Unavailable` if one is missing.
    pub(super) fn all(&self) -> Result<Vec<&DriveBucket>> {
        (0..self.parts.len()).map(|number| self.part(number)).collect()
    }

    /// The bucket where it is said what is set for it.
    pub(super) fn first(&self) -> Result<&DriveBucket> {
        self.here().next().map(|(_, part)| part).ok_or_else(|| self.pool.missing(0))
    }

    /// The drive on which the key is an object now. Those that know it from memory are asked first, and filters there say of most others
    /// that they have not got it.
    pub(super) async fn current(&self, key: &ObjectKey) -> Result<Option<usize>> {
        let mut unsure = Vec::new();
        for (number, part) in self.here() {
            match part.shell.machine.index.get_in_memory(&IndexKey::object(part.id, key).0) {
                Some(Some(_)) => return Ok(Some(number)),
                Some(None) => {}
                None => unsure.push((number, part)),
            }
        }
        let mut failed = self.pool.complete().err();
        for (number, part) in unsure {
            match part.shell.entry(&IndexKey::object(part.id, key)).await {
                Ok(Some(_)) => return Ok(Some(number)),
                Ok(None) => {}
                Err(error) => failed = Some(error.into()),
            }
        }
        failed.map_or(Ok(None), Err)
    }

    /// The drive that has anything of the key but uploads, which have stays.
    pub(super) async fn home(&self, key: &ObjectKey) -> Result<Option<usize>> {
        let current = self.current(key).await;
        if !matches!(current, Ok(Some(_))) && self.first()?.state().await? != Versioning::Never {
            for (number, part) in self.here() {
                if !part.older(key, 1).await?.is_empty() {
                    return Ok(Some(number));
                }
            }
            // An older version may have become what the key is, between the two looks.
            return self.current(key).await;
        }
        current
    }

    /// The bucket on the drive that has a version, or what the key is now.
    pub(super) async fn existing(&self, key: &ObjectKey, version: Option<&str>) -> Result<&DriveBucket> {
        self.part(self.place_of(key, version).await?)
    }

    /// The place of the drive that has a version, or what the key is now.
    pub(super) async fn place_of(&self, key: &ObjectKey, version: Option<&str>) -> Result<usize> {
        let home = match version {
            None => self.current(key).await?,
            Some(_) => self.home(key).await?,
        };
        home.ok_or_else(|| StoreError::NotFound(key.clone()))
    }

    /// Begins to change a key. One that is new goes to the drive `near`, or where so many bytes fit.
    pub(super) async fn writing(
        &self,
        key: &ObjectKey,
        near: Option<usize>,
        len_bytes: u64,
    ) -> Result<Writing> {
        let names = self.pool.0.names.clone().read_owned().await;
        let stay = self.pool.0.stays.begin(&self.name, key);
        let find = async {
            match self.home(key).await? {
                Some(home) => Ok(home),
                None => {
                    self.check_none_in_doubt()?;
                    Ok(near.unwrap_or_else(|| self.drawn(key, len_bytes)))
                }
            }
        };
        let home = stay.home(find).await?;
        Ok(Writing { stay, home, _names: names })
    }

    /// Changes a key at its home, to the end also if nobody waits for it.
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
        let writing = self.writing(key, None, len_bytes).await?;
        let work = work(self.part(writing.home)?.clone());
        to_the_end(async move {
            let done = work.await;
            drop(writing);
            done
        })
        .await
    }

    /// An error if a drive failed: a write that it did not acknowledge may be on its device, so that nobody knows what it has not got.
    fn check_none_in_doubt(&self) -> Result<()> {
        for (_, part) in self.here() {
            part.shell.machine.check_writable()?;
        }
        Ok(())
    }

    fn drawn(&self, key: &ObjectKey, len_bytes: u64) -> usize {
        let free: Vec<u64> = self.parts.iter().map(|part| part.as_ref().map_or(0, free_bytes)).collect();
        placement::drawn(placement::die(&self.name, key.as_bytes()), &free, len_bytes)
    }
}

fn free_bytes(part: &DriveBucket) -> u64 {
    part.shell.available_bytes()
}
