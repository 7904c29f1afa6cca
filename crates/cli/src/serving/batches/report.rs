//! Reports about batches: the list, the status, and the progress of one.

use super::ended_batch::EndedBatch;
use super::jobs::Job;
use super::open_batch::LiveBatch;
use super::{BatchAccess, Batches, id_of, no_batch};
use crate::control::batch_protocol::{BatchAnswer, BatchDirectory, BatchInfo, BatchProgress};
use crate::metadata::{self, Metadata};
use crate::process::rfc3339::rfc3339;
use crate::serving::batch_ops;
use crate::serving::open_volume::OpenVolume;
use anyhow::{Result, bail};
use meta::{Batch, BatchId, Ino, namespace};
use std::collections::BTreeMap;

type Live = BTreeMap<BatchId, LiveBatch>;

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
        let progress = match (self.jobs.get(id), EndedBatch::read(&self.root, id)) {
            (_, Some(mut ended)) if info.merged.is_some() || info.expired.is_some() => {
                ended.progress.batch = info;
                let largest = &mut ended.progress.largest;
                let others = largest.len().saturating_sub(directories);
                largest.truncate(directories);
                ended.progress.other_directories += others as u64;
                ended.progress
            }
            (Some(job), _) => self.progress_of(opened, info, &job, directories),
            (None, _) => BatchProgress::unknown(info),
        };
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
