//! Expiry of abandoned batches: an open batch is dropped after nothing was written to it for a stated time.
//!
//! Invariants:
//! - a batch that was submitted, is being merged, is used by a program, has unstored content, or whose local files cannot be read does not
//!   expire;
//! - no batch expires before `tenon status` has announced it for [`ANNOUNCED_MIN`], or for the stated time if that is shorter;
//! - a summary of the batch is durable before its changes are dropped, so that a job that comes back gets a clear message.

use super::ended_batch::{EXPIRED, EndedBatch};
use super::jobs::{self, Job};
use super::open_batch::{CLOSE_TIMEOUT, LiveBatch};
use super::{BatchAccess, Batches, SUMMARY_DIRECTORIES, open_batches};
use crate::metadata;
use crate::process::rfc3339::rfc3339;
use crate::serving::open_volume::OpenVolume;
use anyhow::{Context, Result};
use fuse::UnmountError;
use meta::{Batch, BatchId, namespace};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;
use store::Timestamp;
use tokio::sync::MutexGuard;

/// Minimum time between the start of a mount and the first expiry, for users who come back after a long time.
const ANNOUNCED_MIN: Duration = Duration::from_secs(3600);

/// Checks for abandoned batches during the time after which they expire.
const CHECKS: u32 = 24;

/// Bounds of the interval between two checks.
const INTERVAL_MIN: Duration = Duration::from_millis(200);
const INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// When batches expire.
#[derive(Debug)]
pub(super) struct Expiry {
    /// Time without a change after which an open batch expires; zero: never.
    after: Duration,
    /// Start of the mount.
    since: Timestamp,
}

/// The outcome of a check of one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Checked {
    Expired,
    /// The batch expires at this time.
    Later(Timestamp),
    /// The batch does not expire, at least not now.
    Spared,
}

impl Expiry {
    pub(super) fn new(after: Duration) -> Self {
        Self { after, since: metadata::now() }
    }

    /// Returns the time at which a batch expires that was changed last at `last`; `None` if batches do not expire.
    fn time(&self, last: Timestamp) -> Option<Timestamp> {
        if self.after.is_zero() {
            return None;
        }
        let earliest = later(self.since, self.after.min(ANNOUNCED_MIN));
        Some(later(last, self.after).max(earliest))
    }
}

impl Batches {
    /// Returns the interval at which [`Batches::expire`] should be called; `None` if batches do not expire.
    pub(crate) fn expiry_interval(&self) -> Option<Duration> {
        let after = self.expiry.after;
        let is_possible = matches!(self.access, BatchAccess::Mount(_)) && !after.is_zero();
        is_possible.then(|| (after / CHECKS).clamp(INTERVAL_MIN, INTERVAL_MAX))
    }

    /// Returns the time at which an open batch expires if nothing is written to it; `None` if it does not expire.
    pub(super) fn expires(&self, record: &Batch, job: Option<&Job>) -> Option<Timestamp> {
        let (id, job) = (record.id(), job?);
        let dir = self.dir(id);
        if record.outcome.is_some() || self.is_merging(id) || !dir.is_dir() || jobs::is_submitted(&dir) {
            return None;
        }
        self.expiry.time(job.last_change(record))
    }

    /// Drops abandoned batches. Warns once of each batch that expires soon: `warned` has those that were warned of.
    pub(crate) async fn expire(
        &self,
        opened: &OpenVolume,
        mount_point: &Path,
        warned: &mut BTreeSet<BatchId>,
    ) {
        let _not_unmounted = self.merges.read().await;
        let open = match open_batches(opened) {
            Ok(open) => open,
            Err(error) => return tracing::warn!("abandoned batches cannot be looked for: {error:#}"),
        };
        for id in open.iter().map(Batch::id) {
            let mut live = self.live.lock().await;
            match self.expire_if_abandoned(opened, id, mount_point, &mut live).await {
                Ok(Checked::Later(at)) if self.is_soon(at) && warned.insert(id) => {
                    tracing::warn!(
                        "batch {id} expires at {}, unless something is written to it or it is ended before",
                        rfc3339(at)
                    );
                }
                Ok(_) => {}
                Err(error) => tracing::warn!("batch {id} is abandoned, and cannot be dropped: {error:#}"),
            }
        }
    }

    /// Returns whether less than a quarter of the time until an expiry is left.
    fn is_soon(&self, at: Timestamp) -> bool {
        later(metadata::now(), self.expiry.after / 4) >= at
    }

    /// Drops a batch if it is abandoned.
    async fn expire_if_abandoned(
        &self,
        opened: &OpenVolume,
        id: BatchId,
        mount_point: &Path,
        live: &mut MutexGuard<'_, BTreeMap<BatchId, LiveBatch>>,
    ) -> Result<Checked> {
        let names = opened.fs.admin().batches().names().engine();
        let Some(record) = namespace::read_batch(&**names, id)?.filter(|batch| batch.outcome.is_none())
        else {
            return Ok(Checked::Spared);
        };
        let checked = self.check_age(&record);
        if checked != Checked::Expired {
            return Ok(checked);
        }
        if let Some(found) = live.get(&id) {
            if found.batch.fs.status().dirty_files > 0 {
                return Ok(Checked::Spared);
            }
            match found.unmount(false).await {
                Err(UnmountError::Busy(_)) => {
                    tracing::info!(
                        "batch {id} does not expire, although nothing is written to it: programs use it"
                    );
                    return Ok(Checked::Spared);
                }
                unmounted => unmounted?,
            }
        }
        if let Some(found) = live.remove(&id) {
            // The kernel may have kept writes until now.
            found.batch.close(CLOSE_TIMEOUT).await?;
            let checked = self.check_age(&record);
            if checked != Checked::Expired {
                self.mount(opened, record, mount_point, false, live).await?;
                return Ok(checked);
            }
        }
        self.write_expired(opened, &record)?;
        self.drop_batch(opened, &record).await?;
        tracing::warn!(
            "batch {id} has expired: nothing was written to it for {} s; its changes are dropped",
            self.expiry.after.as_secs_f64()
        );
        Ok(Checked::Expired)
    }

    /// Returns whether a batch has expired by now.
    fn check_age(&self, record: &Batch) -> Checked {
        match self.expires(record, self.jobs.get(record.id()).as_ref()) {
            None => Checked::Spared,
            Some(at) if at > metadata::now() => Checked::Later(at),
            Some(_) => Checked::Expired,
        }
    }

    /// Writes the summary of a batch that expires now.
    fn write_expired(&self, opened: &OpenVolume, record: &Batch) -> Result<()> {
        let id = record.id();
        let job = self.jobs.get(id).context("the batch has no local files")?;
        let mut progress =
            self.progress_of(opened, self.info(opened, record, None), &job, SUMMARY_DIRECTORIES);
        let batch = &mut progress.batch;
        EXPIRED.clone_into(&mut batch.state);
        batch.expired = Some(rfc3339(metadata::now()));
        (batch.expires, batch.expires_in_secs) = (None, None);
        EndedBatch { dir: record.dir.0, progress }.write(&self.root, id)
    }
}

/// Returns the time a duration after another.
fn later(at: Timestamp, by: Duration) -> Timestamp {
    Timestamp(at.0.saturating_add(i64::try_from(by.as_nanos()).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn at(days: u32) -> Timestamp {
        later(Timestamp(0), DAY * days)
    }

    #[test]
    fn a_batch_expires_after_its_last_change() {
        let expiry = Expiry { after: DAY * 30, since: at(100) };
        assert_eq!(expiry.time(at(99)), Some(at(129)));
        assert_eq!(Expiry { after: Duration::ZERO, since: at(100) }.time(at(1)), None);
    }

    /// A machine that was off for months must not drop a batch before its user could see that the batch expires.
    #[test]
    fn a_batch_does_not_expire_when_the_volume_is_mounted() {
        let expiry = Expiry { after: DAY * 30, since: at(100) };
        assert_eq!(expiry.time(at(1)), Some(later(at(100), ANNOUNCED_MIN)));
        let expiry = Expiry { after: Duration::from_secs(5), since: at(100) };
        assert_eq!(expiry.time(at(1)), Some(later(at(100), Duration::from_secs(5))));
    }
}
