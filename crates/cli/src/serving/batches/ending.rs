//! The end of batches: they are unmounted, verified and merged, at once or in the background.
//!
//! A batch that is submitted to be merged in the background is marked durably before `tenon batch end` returns, so that the next mount continues
//! with it. Until the first attempt to merge it has ended, accesses to its directory wait.

use super::ended_batch::EndedBatch;
use super::jobs::{self, Submission};
use super::lazy_merges::Submitted;
use super::open_batch::{LiveBatch, OpenBatch};
use super::phases::Phase;
use super::verification::{Offer, VerifiedElsewhere};
use super::{Batches, Merging, SUMMARY_DIRECTORIES, directory_at, lossy, open_batches};
use crate::control::batch_protocol::BatchAnswer;
use crate::control::verification_protocol::{VerificationAnswer, VerifierRequest};
use crate::metadata;
use crate::serving::batch_ops;
use crate::serving::open_volume::OpenVolume;
use anyhow::{Context, Result, anyhow};
use batch::{Proof, SealedBatch, Terms};
use fuse::UnmountError;
use meta::access::Caller;
use meta::{Batch, BatchId, Ino, namespace};
use staging::packs;
use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;
use store::Timestamp;
use tokio::sync::MutexGuard;
use tokio::time::Instant;
use vfs::PendingMerge;

/// How long a merge in the background waits for pending uploads before it has failed.
const BACKGROUND_PATIENCE: Duration = Duration::from_secs(60);

/// A batch whose changes were added to the volume.
struct Added {
    merged: batch::Merged,
    /// The name of the server that has verified the batch, if it was another one.
    verifier: Option<String>,
    /// When the verified changes began to be added.
    since: Instant,
}

type Live<'b> = MutexGuard<'b, BTreeMap<BatchId, LiveBatch>>;

impl Batches {
    /// Ends the batch of a directory: unmounts it, and merges it, or submits it to be merged in the background. Other batches can be begun and ended
    /// meanwhile.
    pub(super) async fn end(
        &self,
        opened: &OpenVolume,
        path: &[u8],
        patience: Duration,
        is_lazy: bool,
    ) -> Result<BatchAnswer> {
        let _not_unmounted = self.merges.read().await;
        let live = self.live.lock().await;
        let dir = directory_at(opened, path)?;
        let Some(record) = open_batches(opened)?.into_iter().find(|batch| batch.dir == dir) else {
            return Err(self.not_in_batch_mode(path, dir));
        };
        match is_lazy {
            true => self.submit(opened, record, live).await,
            false => self.end_open(opened, record, patience, live).await,
        }
    }

    /// Ends an open batch.
    pub(super) async fn end_open(
        &self,
        opened: &OpenVolume,
        record: Batch,
        patience: Duration,
        mut live: Live<'_>,
    ) -> Result<BatchAnswer> {
        let id = record.id();
        self.check_not_merging(id)?;
        let submission = async {
            self.unmount_to_end(&live, id).await?;
            // A merge that fails, or is interrupted, may be repeated at any later time.
            match self.dir(id).is_dir() {
                true => self.mark_submitted(id, Submission::Waited),
                false => Ok(()),
            }
        };
        self.phases.run(&record, Phase::Submit, submission).await?;
        let found = live.remove(&id).map(|found| found.batch);
        let submitted = self.lazy.take(id).unwrap_or_default();
        let merging = Merging::begin(id, &self.merging);
        drop(live);
        let batch = self.reopen(opened, record, found.or(submitted.batch)).await?;
        let merged = self.merge(opened, batch, patience, submitted.wait).await;
        drop(merging);
        merged
    }

    /// Submits an open batch to be merged in the background. Accesses to its directory wait for the merge from now on.
    async fn submit(&self, opened: &OpenVolume, record: Batch, mut live: Live<'_>) -> Result<BatchAnswer> {
        let id = record.id();
        if !self.lazy.contains(id) {
            self.check_not_merging(id)?;
            self.check_files(id)?;
            let submission = async {
                self.unmount_to_end(&live, id).await?;
                if let Some(found) = live.get(&id) {
                    let synced = found.batch.fs.sync().await;
                    synced.context("the batch is not submitted, as its changes cannot be made durable")?;
                }
                self.mark_submitted(id, Submission::Lazy)
            };
            self.phases.run(&record, Phase::Submit, submission).await?;
            let batch = live.remove(&id).map(|found| found.batch);
            let wait = opened.fs.admin().batches().begin_wait_for_merge(record.dir).await;
            self.lazy.add(id, Submitted { batch, wait: Some(wait), ..Submitted::default() });
            tracing::info!("batch {id} is submitted, and will be merged in the background");
        }
        Ok(BatchAnswer::Submitted { id: id.to_string() })
    }

    /// Merges a batch that was submitted to be merged in the background, unless it was begun again, ended or discarded since. If that fails, it is
    /// tried again later, and accesses do not wait any more.
    pub(crate) async fn merge_submitted(&self, opened: &OpenVolume, id: BatchId) {
        let _not_unmounted = self.merges.read().await;
        let live = self.live.lock().await;
        let Some(Submitted { batch, wait, failures, .. }) = self.lazy.take(id) else { return };
        let merging = Merging::begin(id, &self.merging);
        drop(live);
        let merged = async {
            let record = open_batches(opened)?.into_iter().find(|batch| batch.id() == id);
            let Some(record) = record else { return Ok(()) };
            let batch = self.reopen(opened, record, batch).await?;
            self.merge(opened, batch, BACKGROUND_PATIENCE, wait).await.map(drop)
        };
        if let Err(error) = merged.await {
            let failures = failures + 1;
            let reason = format!("{error:#}");
            tracing::warn!(
                "batch {id} cannot be merged in the background, and this is tried again: {reason}"
            );
            self.lazy.add(id, Submitted { failures, reason: Some(reason), ..Submitted::default() });
        }
        drop(merging);
    }

    /// Has a batch merged in the background that was submitted to an earlier mount.
    pub(super) async fn resume_submitted(&self, opened: &OpenVolume, record: &Batch) {
        let id = record.id();
        self.find_job(id).await;
        let wait = opened.fs.admin().batches().begin_wait_for_merge(record.dir).await;
        self.lazy.add(id, Submitted { wait: Some(wait), ..Submitted::default() });
        tracing::info!("batch {id} was submitted to an earlier mount, and will be merged in the background");
    }

    /// Unmounts a batch that is to end. Fails if programs use it.
    async fn unmount_to_end(&self, live: &Live<'_>, id: BatchId) -> Result<()> {
        let Some(found) = live.get(&id) else { return Ok(()) };
        found.unmount(false).await.map_err(|error| match error {
            UnmountError::Busy(at) => anyhow!(
                "programs use {0}; end them (`fuser -vm {0}` lists them), and end the batch again",
                at.display()
            ),
            error => error.into(),
        })
    }

    pub(super) fn mark_submitted(&self, id: BatchId, submission: Submission) -> Result<()> {
        jobs::mark_submitted(&self.dir(id), submission).context("cannot write to the directory of the batch")
    }

    /// Returns the private namespace of a batch that is not mounted, which is opened again if it is not open any more.
    async fn reopen(
        &self,
        opened: &OpenVolume,
        record: Batch,
        batch: Option<OpenBatch>,
    ) -> Result<OpenBatch> {
        match batch {
            Some(batch) => Ok(batch),
            None => {
                self.check_files(record.id())?;
                self.open(opened, record, false).await
            }
        }
    }

    /// Merges a batch that is not mounted any more, and removes its files. `wait` is the wait of accesses for this merge.
    async fn merge(
        &self,
        opened: &OpenVolume,
        batch: OpenBatch,
        patience: Duration,
        wait: Option<PendingMerge>,
    ) -> Result<BatchAnswer> {
        let record = batch.record.clone();
        let (id, dir) = (record.id(), self.dir(record.id()));
        let before = opened.metadata.engine().head();
        let added = self.verify_and_add(opened, batch, patience).await;
        let Added { merged, verifier, since } = added
            .with_context(|| format!("batch {id} is not merged and stays open; nothing of it is lost"))?;
        // Kernels, which are notified of the merge next, may need a lock that an access holds while it waits.
        drop(wait);
        let batch::Merged { earlier, accepted, refused, released, shared, .. } = merged;
        let publication = async {
            let batches = opened.fs.admin().batches();
            batches.merged(before, released).await;
            let synced = batches.sync_names().await;
            synced
                .with_context(|| format!("batch {id} is merged, but may be open again after a power cut"))?;
            // `tenon gc` deletes the unused objects of a merge whose outcome was determined later.
            if let Some(shared) = shared
                && let Err(error) = batches.delete_unused_objects(id, shared).await
            {
                tracing::warn!("unused objects of batch {id} stay in the bucket until `tenon gc`: {error}");
            }
            anyhow::Ok(())
        };
        self.phases.run_since(&record, Phase::Merge, since, publication).await?;
        self.write_merged(opened, id);
        fs::remove_dir_all(&dir)
            .with_context(|| format!("batch {id} is merged, but {} cannot be removed", dir.display()))?;
        let (accepted, refused, earlier) = match earlier {
            Some(outcome) => (outcome.accepted, outcome.refused, true),
            None => (accepted, refused.len() as u64, false),
        };
        let path = batch_ops::path_of(&**opened.fs.admin().batches().names().engine(), record.dir);
        self.phases.report_merged(&record, Phase::Batch { path, accepted, refused }, metadata::now());
        tracing::info!("batch {id} is merged: {accepted} changes added, {refused} refused");
        Ok(BatchAnswer::Merged { id: id.to_string(), accepted, refused, earlier, verifier })
    }

    /// Stores what a batch has not stored yet, and adds its changes to the volume's names.
    async fn verify_and_add(
        &self,
        opened: &OpenVolume,
        batch: OpenBatch,
        patience: Duration,
    ) -> Result<Added> {
        let OpenBatch { record, engine, packs, fs, stale_ops } = batch;
        let seal = async {
            fs.shutdown(patience).await?;
            packs.upload().await.context("cannot store the contents of small files")?;
            Ok::<_, anyhow::Error>(Arc::new(tokio::task::spawn_blocking(move || engine.seal()).await??))
        };
        let sealed: Arc<SealedBatch> = self.phases.run(&record, Phase::Seal, seal).await?;
        let proof = if stale_ops == 0 { Proof::Reduced } else { Proof::Replay };
        let (id, volume, terms) = (record.id(), opened.metadata.engine(), terms(opened, &record));
        let (dir, scratch) = (self.dir(id), self.dir(id).join("merge"));
        let offer = Offer { dir, terms: terms.clone(), proof, engine: Arc::clone(&volume) };
        let begun = Instant::now();
        let elsewhere = self.verifications.merge(id, offer, Arc::clone(&sealed), scratch.clone()).await;
        if let Some(VerifiedElsewhere { merged, verifier, since }) = elsewhere {
            let phase = Phase::Verify { verifier: Some(verifier.clone()) };
            self.phases.report(&record, phase, (begun, since), Vec::new(), None);
            return Ok(Added { merged, verifier: Some(verifier), since });
        }
        let work = move || {
            let mut steps = Vec::new();
            let mut begins = |step| steps.push((step, Instant::now()));
            let merged = fs::create_dir_all(&scratch).map_err(anyhow::Error::from).and_then(|()| {
                Ok(batch::merge_in_steps(volume.as_ref(), &sealed, &terms, (&scratch, proof), &mut begins)?)
            });
            (merged, steps)
        };
        let (merged, steps) = tokio::task::spawn_blocking(work).await?;
        let since = self.phases.report_steps(&record, begun, steps, merged.as_ref().err());
        Ok(Added { merged: merged?, verifier: None, since })
    }

    /// Answers a request of a server that verifies batches.
    pub(crate) async fn answer_verifier(
        &self,
        opened: &OpenVolume,
        request: VerifierRequest,
    ) -> Result<VerificationAnswer> {
        self.verifications.answer(opened.fs.moment().mount, request).await
    }

    /// Writes the summary of a batch that is merged, and forgets its job. Without a summary, `tenon batch watch` shows less.
    fn write_merged(&self, opened: &OpenVolume, id: BatchId) {
        let names = opened.fs.admin().batches().names().engine();
        let record = namespace::read_batch(&**names, id).ok().flatten();
        if let (Some(record), Some(job)) = (record, self.jobs.get(id)) {
            let info = self.info(opened, &record, None);
            let progress = self.progress_of(opened, info, &job, SUMMARY_DIRECTORIES);
            if let Err(error) = (EndedBatch { dir: record.dir.0, progress }).write(&self.root, id) {
                tracing::warn!("the counts of batch {id} are not kept: {error:#}");
            }
        }
        self.jobs.remove(id);
    }

    /// Returns the error for a directory that should be in batch mode.
    fn not_in_batch_mode(&self, path: &[u8], dir: Ino) -> anyhow::Error {
        let path = lossy(path);
        let Some((id, ended)) = self.expired_in(dir) else {
            return anyhow!("'{path}' is not in batch mode; `tenon batch list` lists the batches");
        };
        let batch = ended.progress.batch;
        anyhow!(
            "batch {id} of '{path}' expired at {}: nothing had been written to it since {}, and its {} changes were dropped; `tenon batch discard` forgets it, and `tenon batch begin` begins another one",
            batch.expired.unwrap_or_default(),
            batch.last_change.unwrap_or(batch.began),
            batch.ops
        )
    }
}

/// Returns the terms of a batch of this process. The kernel has checked the rights of its callers, and a program that uses the library has those
/// of the volume's owner, so the batch has those of the superuser.
fn terms(opened: &OpenVolume, record: &Batch) -> Terms {
    let content = vfs::batch_objects(&opened.fs.admin().batches().config().prefix, record.id());
    Terms {
        caller: Caller { uid: 0, gid: 0, groups: Box::default() },
        lease: record.lease.clone(),
        at: record.at,
        times: Timestamp(i64::MIN)..=Timestamp(i64::MAX),
        packs: Some(packs::pack_prefix(&content).into()),
        content: Some(content.into()),
        keeps_refused: true,
        submitted: metadata::now(),
    }
}
