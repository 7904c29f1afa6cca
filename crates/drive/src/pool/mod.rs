//! Several drives as one place with buckets: a pool.
//!
//! Everything of a key (what it is now, its versions, its uploads) lies on one drive, its *home*. A key that nobody has goes to a drive
//! drawn by the key, as likely as that drive's share of the free space.
//!
//! Owns where keys live, and that the drives agree on buckets and what is set for them: the first drive says, the others follow.
//!
//! Refuses: to answer for a drive that is missing. What is not found on the others is then `Unavailable`, never `NotFound`.
//!
//! Invariants: a key has one home, also while several write it for the first time ([`stays`]); a change holds its stay until it is
//! durable, be it waited for or not; buckets and settings change only when all drives are there.

mod bucket;
mod buckets;
mod carry;
mod listing;
mod membership;
mod multipart;
mod objects;
mod placement;
mod settings;
mod stays;
mod uploads;
mod versions;
mod writer;

pub use membership::{Membership, join};

use crate::error::{Error, Result};
use crate::shell::Drive;
use stays::{Stay, Stays};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::{ObjectKey, StoreError};
use tokio::sync::RwLock;

/// The most drives of a pool.
pub const DRIVES_MAX: usize = 64;

/// How to open a pool.
#[derive(Debug, Clone, Copy, Default)]
pub struct PoolOptions {
    /// Also if drives are missing.
    pub degraded: bool,
}

/// Several drives. Clones share it.
#[derive(Clone)]
pub struct Pool(Arc<Drives>);

/// The drives, and who is changing what.
struct Drives {
    /// In the order of the membership; `None` for one that is missing.
    drives: Vec<Option<Drive>>,
    stays: Stays,
    /// An upload's key has its home as long as the upload is there.
    uploads: Mutex<HashMap<UploadKey, Stay>>,
    /// Held by whoever changes a key; as a whole by whoever makes, removes or sets up buckets.
    names: Arc<RwLock<()>>,
}

/// A bucket's name, a key in it, and an upload's id.
type UploadKey = (Arc<str>, ObjectKey, String);

impl Pool {
    /// Opens the pool that drives are of, and ends what a crash left half done: a drive that was to be added is told so, and buckets
    /// and settings become those of the first drive.
    ///
    /// Errors: [`Error::Unfit`] if they are not of one pool, or some are missing and that was not asked for.
    pub async fn open(drives: Vec<Drive>, options: PoolOptions) -> Result<Self> {
        let membership = membership::agreed(&drives).await?;
        let mut ordered: Vec<Option<Drive>> = vec![None; membership.drives.len()];
        for drive in drives {
            let number = membership.number_of(drive.id()).ok_or_else(|| membership::foreign(drive.id()))?;
            ordered[number] = Some(drive);
        }
        let pool = Self(Arc::new(Drives {
            drives: ordered,
            stays: Stays::default(),
            uploads: Mutex::default(),
            names: Arc::default(),
        }));
        pool.check_complete(&membership, options)?;
        if pool.here().all(|(_, drive)| drive.0.machine.check_writable().is_ok()) {
            pool.inform(&membership).await?;
            if pool.complete().is_ok() {
                pool.mend().await.map_err(unfit)?;
            }
        }
        pool.stays_of_uploads().await.map_err(unfit)?;
        Ok(pool)
    }

    /// The drives that are there, and their numbers.
    pub fn drives(&self) -> Vec<(usize, Drive)> {
        self.here().map(|(number, drive)| (number, drive.clone())).collect()
    }

    /// How many drives the pool has, with those that are missing.
    pub fn drive_count(&self) -> usize {
        self.0.drives.len()
    }

    fn here(&self) -> impl Iterator<Item = (usize, &Drive)> {
        self.0.drives.iter().enumerate().filter_map(|(number, drive)| Some((number, drive.as_ref()?)))
    }

    /// `Unavailable` if a drive is missing.
    fn complete(&self) -> store::Result<()> {
        match self.0.drives.iter().position(Option::is_none) {
            None => Ok(()),
            Some(number) => Err(self.missing(number)),
        }
    }

    fn missing(&self, number: usize) -> StoreError {
        StoreError::Unavailable(format!(
            "drive {} of {} of the pool is missing",
            number + 1,
            self.drive_count()
        ))
    }

    fn check_complete(&self, membership: &Membership, options: PoolOptions) -> Result<()> {
        let missing =
            membership.drives.iter().enumerate().filter(|(number, _)| self.0.drives[*number].is_none());
        let missing: Vec<String> =
            missing.map(|(number, id)| format!("{} ({id:016x})", number + 1)).collect();
        if missing.is_empty() || options.degraded {
            return Ok(());
        }
        Err(Error::Unfit(format!(
            "of the {} drives of the pool these are missing: {}",
            self.drive_count(),
            missing.join(", ")
        )))
    }

    /// Tells drives which the pool has.
    async fn inform(&self, membership: &Membership) -> Result<()> {
        for (_, drive) in self.here() {
            if drive.membership().await?.as_ref() != Some(membership) {
                drive.set_membership(membership).await?;
            }
        }
        Ok(())
    }
}

impl Drives {
    fn uploads(&self) -> MutexGuard<'_, HashMap<UploadKey, Stay>> {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("drives", &self.0.drives).finish_non_exhaustive()
    }
}

/// What keeps drives from being a pool.
fn unfit(error: StoreError) -> Error {
    Error::Unfit(error.to_string())
}

/// Does work to its end, also if nobody waits for it any more.
async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = store::Result<T>> + Send + 'static,
) -> store::Result<T> {
    let done = tokio::spawn(work).await;
    done.unwrap_or_else(|error| Err(StoreError::Unavailable(format!("a call was given up: {error}"))))
}
