//! A pool: several drives that are served as one set of buckets.
//!
//! Everything of a key (its current object, its versions, its uploads) lies on one drive, the key's *home*. A new key is placed on a
//! drive chosen by the hash of the key, each drive with a probability proportional to its free space.
//!
//! Owns the placement of keys, and keeps buckets and their settings equal on all drives: the first drive is authoritative.
//!
//! Does not answer for missing drives: a key that is not found on the others is `Unavailable`, never `NotFound`.
//!
//! Invariants: a key has one home, even if several callers write it for the first time ([`placement_lock`]). A change holds a
//! placement lock until it is durable, even if its caller is cancelled. Buckets and settings change only while all drives are present.

mod bucket;
mod buckets;
mod listing;
mod membership;
mod multipart;
mod objects;
mod placement;
mod placement_lock;
mod settings;
mod uploads;
mod versions;
mod writer;

pub use crate::format::Membership;
pub use membership::join;

use crate::error::{Error, Result};
use crate::frontend::Drive;
use placement_lock::{PlacementLock, PlacementLocks};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::{ObjectKey, StoreError};
use tokio::sync::RwLock;

/// The most drives of a pool.
pub const DRIVES_MAX: usize = 64;

/// Options for opening a pool.
#[derive(Debug, Clone, Copy, Default)]
pub struct PoolOptions {
    /// Open the pool even if drives are missing.
    pub degraded: bool,
}

/// An open pool. Clones share it.
#[derive(Clone)]
pub struct Pool(Arc<Drives>);

/// The drives, and the locks for changes.
struct Drives {
    /// The drives by number, as in the membership; `None` if a drive is missing.
    drives: Vec<Option<Drive>>,
    placement_locks: PlacementLocks,
    /// The placement locks of uploads: an upload's key keeps its home as long as the upload exists.
    uploads: Mutex<HashMap<UploadKey, PlacementLock>>,
    /// Held shared by changes of keys, exclusively by changes of buckets and settings.
    names: Arc<RwLock<()>>,
}

/// A bucket's name, a key, and an upload's id.
type UploadKey = (Arc<str>, ObjectKey, String);

impl Pool {
    /// Opens the pool that drives belong to, and completes what a crash interrupted, if all present drives accept
    /// writes: drives that were joining get the membership, and buckets and settings are made equal to those of the
    /// first drive.
    ///
    /// Errors: [`Error::Unsuitable`] if the drives belong to different pools, or if some are missing without [`PoolOptions::degraded`].
    pub async fn open(drives: Vec<Drive>, options: PoolOptions) -> Result<Self> {
        let membership = membership::agree_on_membership(&drives).await?;
        let mut ordered: Vec<Option<Drive>> = vec![None; membership.drives.len()];
        for drive in drives {
            let number = membership.number_of(drive.id()).ok_or_else(|| membership::foreign(drive.id()))?;
            ordered[number] = Some(drive);
        }
        let pool = Self(Arc::new(Drives {
            drives: ordered,
            placement_locks: PlacementLocks::default(),
            uploads: Mutex::default(),
            names: Arc::default(),
        }));
        pool.check_complete(&membership, options)?;
        if pool.present().all(|(_, drive)| drive.0.engine.check_writable().is_ok()) {
            pool.store_membership(&membership).await?;
            if pool.check_all_present().is_ok() {
                pool.repair_buckets().await.map_err(unsuitable)?;
            }
        }
        pool.lock_upload_homes().await.map_err(unsuitable)?;
        Ok(pool)
    }

    /// Returns the drives that are present, with their numbers.
    pub fn drives(&self) -> Vec<(usize, Drive)> {
        self.present().map(|(number, drive)| (number, drive.clone())).collect()
    }

    /// Returns the number of drives of the pool, missing ones included.
    pub fn drive_count(&self) -> usize {
        self.0.drives.len()
    }

    /// Returns the drives that are present, with their numbers.
    fn present(&self) -> impl Iterator<Item = (usize, &Drive)> {
        self.0.drives.iter().enumerate().filter_map(|(number, drive)| Some((number, drive.as_ref()?)))
    }

    /// Fails with `Unavailable` if a drive is missing.
    fn check_all_present(&self) -> store::Result<()> {
        match self.0.drives.iter().position(Option::is_none) {
            None => Ok(()),
            Some(number) => Err(self.missing_drive(number)),
        }
    }

    /// Returns the error for a drive that is not present.
    fn missing_drive(&self, number: usize) -> StoreError {
        StoreError::Unavailable(format!(
            "drive {} of {} of the pool is missing",
            number + 1,
            self.drive_count()
        ))
    }

    /// Fails if drives are missing, unless the options permit that.
    fn check_complete(&self, membership: &Membership, options: PoolOptions) -> Result<()> {
        let missing =
            membership.drives.iter().enumerate().filter(|(number, _)| self.0.drives[*number].is_none());
        let missing: Vec<String> =
            missing.map(|(number, id)| format!("{} ({id:016x})", number + 1)).collect();
        if missing.is_empty() || options.degraded {
            return Ok(());
        }
        Err(Error::Unsuitable(format!(
            "some of the {} drives of the pool are missing: {}",
            self.drive_count(),
            missing.join(", ")
        )))
    }

    /// Stores the membership on drives that do not have it.
    async fn store_membership(&self, membership: &Membership) -> Result<()> {
        for (_, drive) in self.present() {
            if drive.membership().await?.as_ref() != Some(membership) {
                drive.set_membership(membership).await?;
            }
        }
        Ok(())
    }
}

impl Drives {
    fn uploads(&self) -> MutexGuard<'_, HashMap<UploadKey, PlacementLock>> {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("drives", &self.0.drives).finish_non_exhaustive()
    }
}

/// Converts an error that keeps drives from forming or opening a pool.
fn unsuitable(error: StoreError) -> Error {
    Error::Unsuitable(error.to_string())
}

/// Runs work to its end even if the caller is cancelled, and holds the guards until then.
async fn run_detached<T: Send + 'static>(
    guards: impl Send + 'static,
    work: impl Future<Output = store::Result<T>> + Send + 'static,
) -> store::Result<T> {
    let guarded = async move {
        let done = work.await;
        drop(guards);
        done
    };
    tokio::spawn(guarded).await.unwrap_or_else(|error| Err(Error::aborted(&error).into()))
}
