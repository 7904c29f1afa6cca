//! Reports about batches: the list, the status, and the progress of one.

use super::ended_batch::EndedBatch;
use super::jobs::Job;
use super::open_batch::LiveBatch;
use super::{BatchAccess, Batches, ended_batch, id_of, no_batch};
use crate::control::batch_protocol::{BatchAnswer, BatchDirectory, BatchInfo, BatchProgress};
use crate::metadata::{self, Metadata};
use crate::process::rfc3339::rfc3339;
use crate::serving::batch_ops;
use crate::serving::open_volume::OpenVolume;
use anyhow::{Result, bail};
use meta::{Batch, BatchId, Ino, namespace};
use std::collections::{BTreeMap, BTreeSet};
use store::Timestamp;

type Live = BTreeMap<BatchId, LiveBatch>;

/// The batches of an open volume as they are now, without waiting for the beginning or the end of one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchReports<'v> {
    batches: &'v Batches,
    opened: &'v OpenVolume,
}

impl BatchReports<'_> {
    /// Returns the ids of the batches that are open, or ended and not forgotten.
    pub(crate) fn ids(&self) -> BTreeSet<BatchId> {
        if matches!(self.batches.access, BatchAccess::Refused)
            || !matches!(self.opened.metadata, Metadata::Disk(_))
        {
            return BTreeSet::new();
        }
        let records = namespace::read_batches(&**self.opened.fs.admin().batches().names().engine());
        records
            .unwrap_or_default()
            .iter()
            .map(Batch::id)
            .chain(ended_batch::ids(&self.batches.root))
            .collect()
    }

    /// Returns the progress of a batch; `None` if there is no such batch, or its numbers are not known.
    pub(crate) fn progress_now(&self, id: BatchId, directories: usize) -> Option<BatchProgress> {
        let names = self.opened.fs.admin().batches().names().engine();
        let info = match namespace::read_batch(&**names, id).ok()? {
            Some(record) => {
                self.batches.info(self.opened, &record, self.batches.live.try_lock().ok().as_deref())
            }
            None => EndedBatch::read(&self.batches.root, id)?.progress.batch,
        };
        self.known_progress(id, &info, directories)
    }

    /// Returns the time of the last change in a batch, if it is known.
    pub(crate) fn last_change(&self, id: BatchId) -> Option<Timestamp> {
        self.batches.jobs.get(id)?.progress.totals().last
    }

    /// Returns the numbers of a batch, if they are known.
    fn known_progress(&self, id: BatchId, info: &BatchInfo, directories: usize) -> Option<BatchProgress> {
        // The numbers are in the summary before the job is forgotten.
        match (self.batches.jobs.get(id), EndedBatch::read(&self.batches.root, id)) {
            (job, Some(mut ended)) if job.is_none() || info.merged.is_some() || info.expired.is_some() => {
                ended.progress.batch = info.clone();
                let largest = &mut ended.progress.largest;
                let others = largest.len().saturating_sub(directories);
                largest.truncate(directories);
                ended.progress.other_directories += others as u64;
                Some(ended.progress)
            }
            (Some(job), _) => Some(self.batches.progress_of(self.opened, info.clone(), &job, directories)),
            (None, _) => None,
        }
    }
}

impl Batches {
    /// Lists the batches that are open, or ended and not forgotten.
    pub(super) async fn list(&self, opened: &OpenVolume) -> Result<BatchAnswer> {
        let live = self.live.lock().await;
        let batches = self.infos(opened, Some(&live))?;
        Ok(BatchAnswer::Batches { batches })
    }

    /// Returns the batches that are open or have expired. Does not wait for the beginning or the end of one.
    pub(crate) fn status(&self, opened: &OpenVolume) -> Vec<BatchInfo> {
        if matches!(self.access, BatchAccess::Refused) || !matches!(opened.metadata, Metadata::Disk(_)) {
            return Vec::new();
        }
        let live = self.live.try_lock().ok();
        let mut batches = self.infos(opened, live.as_deref()).unwrap_or_default();
        batches.retain(|batch| batch.merged.is_none());
        batches
    }

    /// Returns reports that wait for nothing.
    pub(crate) fn reports<'v>(&'v self, opened: &'v OpenVolume) -> BatchReports<'v> {
        BatchReports { batches: self, opened }
    }

    /// Returns the progress of a batch, or of the only open one if `id` is `None`, with its largest directories.
    pub(super) async fn progress(
        &self,
        opened: &OpenVolume,
        id: Option<&str>,
        directories: usize,
    ) -> Result<BatchAnswer> {
        let live = self.live.lock().await;
        let mut infos = self.infos(opened, Some(&live))?;
        match id {
            Some(id) => infos.retain(|batch| batch.id == id),
            None => infos.retain(|batch| batch.merged.is_none() && batch.expired.is_none()),
        }
        let info = match (infos.pop(), infos.is_empty(), id) {
            (Some(info), true, _) => info,
            (Some(_), false, _) => bail!("several batches are open; name one that `tenon batch list` lists"),
            (None, _, Some(id)) => return Err(no_batch(id)),
            (None, _, None) => bail!("no batch is open; `tenon batch list` lists the batches"),
        };
        let id = id_of(&info.id)?;
        let unknown = || BatchProgress::unknown(info.clone());
        let progress = self.reports(opened).known_progress(id, &info, directories).unwrap_or_else(unknown);
        Ok(BatchAnswer::Progress { progress: Box::new(progress) })
    }

    /// Returns the batches that have a record, and those that have expired. `mounted` is `None` while a batch is being begun or ended.
    fn infos(&self, opened: &OpenVolume, live: Option<&Live>) -> Result<Vec<BatchInfo>> {
        let records = namespace::read_batches(&**opened.fs.admin().batches().names().engine())?;
        let expired = EndedBatch::expired(&self.root).into_iter();
        let expired = expired.filter(|(id, _)| records.iter().all(|record| record.id() != *id));
        let mut infos: Vec<_> = expired.map(|(_, ended)| ended.progress.batch).collect();
        infos.extend(records.iter().map(|record| self.info(opened, record, live)));
        infos.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(infos)
    }

    /// Describes a batch that has a record.
    pub(super) fn info(&self, opened: &OpenVolume, record: &Batch, live: Option<&Live>) -> BatchInfo {
        let (id, job) = (record.id(), self.jobs.get(record.id()));
        let found = live.and_then(|live| live.get(&id));
        let state = match (record.outcome, found) {
            (Some(_), _) => "merged",
            (None, None) if self.is_merging(id) => "merging",
            (None, None) if self.lazy.contains(id) => "submitted",
            (None, Some(found)) if !found.has_ended() => "mounted",
            (None, _) if !self.dir(id).is_dir() => "lost",
            (None, _) if live.is_none() => "busy",
            (None, _) => "suspended",
        };
        let ops = job.as_ref().map_or(0, |job| job.progress.totals().ops);
        let expires = self.expires(record, job.as_ref());
        let now = metadata::now();
        BatchInfo {
            id: id.to_string(),
            path: batch_ops::path_of(&**opened.fs.admin().batches().names().engine(), record.dir),
            began: rfc3339(record.began),
            state: state.to_owned(),
            merged: record.outcome.map(|outcome| rfc3339(outcome.merged)),
            last_change: job.filter(|_| record.outcome.is_none()).map(|job| rfc3339(job.last_change(record))),
            expires: expires.map(rfc3339),
            expires_in_secs: expires.map(|at| u64::try_from(at.secs() - now.secs()).unwrap_or(0)),
            expired: None,
            failed: self.lazy.reason(id),
            ops: record.outcome.map_or(ops, |outcome| outcome.accepted),
            refused: record.outcome.map_or(0, |outcome| outcome.refused),
        }
    }

    /// Returns the progress of a job, with its largest directories.
    pub(super) fn progress_of(
        &self,
        opened: &OpenVolume,
        batch: BatchInfo,
        job: &Job,
        directories: usize,
    ) -> BatchProgress {
        let totals = job.progress.totals();
        let (largest, others) = job.progress.largest_directories(directories);
        let (engine, volume) = (job.engine.upgrade(), opened.fs.admin().batches().names().engine());
        let path_of = |ino: Ino| match &engine {
            Some(engine) => batch_ops::path_of(&**engine, ino),
            None => batch_ops::path_of(&**volume, ino),
        };
        let largest = largest.into_iter().map(|(ino, counts)| BatchDirectory {
            path: path_of(ino),
            added: counts.added,
            removed: counts.removed,
            bytes: counts.bytes,
        });
        BatchProgress {
            files: totals.files,
            directories: totals.directories,
            removed: totals.removed,
            renames: totals.renames,
            writes: totals.writes,
            bytes: totals.bytes,
            largest: largest.collect(),
            other_directories: others as u64,
            batch,
        }
    }
}
