//! Verification of submitted batches by other servers (verifiers), for the merges of this process.
//!
//! A merge offers its batch to verifiers, and waits a while. A verifier takes it by a lease, reads the snapshot of the lease, and returns a
//! verdict, which the merge adds. Without a verdict in time, or if the verdict cannot be used, the merge verifies the batch itself.
//!
//! Invariants: a verdict counts only for the newest lease of its batch, and for the snapshot of that lease; a batch waits for verifiers no longer
//! than [`leases::TOTAL_MAX`].

mod leases;
mod messages;

pub(super) use leases::Offer;

use crate::control::verification_protocol::{
    LeaseId, VerificationAnswer, VerificationRequest, VerifierRequest,
};
use anyhow::{Context, Result, bail};
use batch::{Merged, SealedBatch, VERDICT_FILE, merge_verdict};
use leases::{Decision, Lease, Leases, Outcome};
use meta::BatchId;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Beginning of the names of directories with verdicts.
const VERDICT_DIR: &str = "verdict-";

/// Room for the files of a verdict: this much, and four times the files of the batch.
const UPLOAD_BYTES_MIN: u64 = 64 << 20;

/// The batches that are offered to verifiers.
#[derive(Debug, Default)]
pub(super) struct Verifications {
    leases: Mutex<Leases>,
    changed: Notify,
}

/// A batch that another server has verified.
pub(super) struct VerifiedElsewhere {
    pub(super) merged: Merged,
    /// The name of the verifier's token.
    pub(super) verifier: String,
    /// When the verdict was there, and its changes began to be added.
    pub(super) since: Instant,
}

impl Verifications {
    /// Offers a batch to verifiers, and adds it to the volume if one returns a verdict that counts. `None` if the batch is still to be verified
    /// here.
    pub(super) async fn merge(
        &self,
        id: BatchId,
        offer: Offer,
        sealed: Arc<SealedBatch>,
        scratch: PathBuf,
    ) -> Option<VerifiedElsewhere> {
        let offer = Arc::new(offer);
        remove_verdicts(&offer.dir);
        let (lease, verifier) = self.wait_for_verdict(id, &offer).await?;
        let since = Instant::now();
        let dir = verdict_dir(&offer.dir, lease.fence);
        let work = move || {
            fs::create_dir_all(&scratch)?;
            let snapshot = lease.snapshot;
            anyhow::Ok(merge_verdict(
                offer.engine.as_ref(),
                snapshot,
                &sealed,
                &offer.terms,
                (&scratch, &dir),
            )?)
        };
        let merged = match tokio::task::spawn_blocking(work).await {
            Ok(merged) => merged,
            Err(error) => Err(error.into()),
        };
        match merged {
            Ok(Some(merged)) => {
                tracing::info!("batch {id} was verified by '{verifier}'");
                return Some(VerifiedElsewhere { merged, verifier, since });
            }
            Ok(None) => tracing::info!(
                "the verdict of '{verifier}' about batch {id} is out of date, as others have changed the same names"
            ),
            Err(error) => {
                tracing::warn!("the verdict of '{verifier}' about batch {id} cannot be used: {error:#}");
            }
        }
        None
    }

    /// Waits for a verdict. Returns its lease, and the name of the verifier; `None` if the batch is to be verified here.
    async fn wait_for_verdict(&self, id: BatchId, offer: &Arc<Offer>) -> Option<(Lease, String)> {
        self.lock().offer(id, Arc::clone(offer), Instant::now());
        let withdrawn = Withdraw { of: self, id };
        let outcome = loop {
            let changed = self.changed.notified();
            let decision = self.lock().decide(id, Instant::now());
            match decision {
                Decision::Wait(until) => {
                    tokio::select! {
                        () = changed => {}
                        () = tokio::time::sleep_until(until) => {}
                    }
                }
                Decision::VerifyHere(None) => break None,
                Decision::VerifyHere(Some(why)) => {
                    tracing::info!("batch {id} is verified here: {why}");
                    break None;
                }
                Decision::Ended(outcome) => break Some(outcome),
            }
        };
        drop(withdrawn);
        match outcome? {
            Outcome::Verdict(lease) => {
                let verifier = lease.verifier.clone();
                Some((lease, verifier))
            }
            Outcome::Failure { verifier, why } => {
                tracing::warn!("'{verifier}' cannot verify batch {id}, which is verified here: {why}");
                None
            }
        }
    }

    /// Answers a request of a verifier. `mount` is the number of the mount.
    pub(super) async fn answer(&self, mount: u64, request: VerifierRequest) -> Result<VerificationAnswer> {
        let VerifierRequest { verifier, request } = request;
        let now = Instant::now();
        match request {
            VerificationRequest::Take => self.take(mount, verifier, now),
            VerificationRequest::Renew { lease } => {
                self.lease(&verifier, &lease, now)?;
                Ok(VerificationAnswer::Done)
            }
            VerificationRequest::Read { lease, read } => {
                let (lease, _) = self.lease(&verifier, &lease, now)?;
                tokio::task::spawn_blocking(move || messages::read(&*lease.snapshot, &read)).await?
            }
            VerificationRequest::Files { lease } => {
                let (lease, offer) = self.lease(&verifier, &lease, now)?;
                let dir = verdict_dir(&offer.dir, lease.fence);
                fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
                let batch_bytes: u64 = messages::files(&offer.dir)?.iter().map(|file| file.bytes).sum();
                Ok(VerificationAnswer::Files {
                    batch_dir_hex: store::hex(offer.dir.as_os_str().as_bytes()),
                    verdict_dir_hex: store::hex(dir.as_os_str().as_bytes()),
                    upload_bytes_max: UPLOAD_BYTES_MIN + 4 * batch_bytes,
                })
            }
            VerificationRequest::Finish { lease, failure } => {
                let (found, offer) = self.lease(&verifier, &lease, now)?;
                let file = verdict_dir(&offer.dir, found.fence).join(VERDICT_FILE);
                if failure.is_none() && !file.exists() {
                    bail!("the verdict about batch {} is not uploaded", lease.batch);
                }
                self.lock().finish(batch_id(&lease)?, &verifier, lease.fence, failure, now)?;
                self.changed.notify_waiters();
                Ok(VerificationAnswer::Done)
            }
        }
    }

    /// Leases a batch to a verifier, if one waits. `mount` is the number of the mount, which distinguishes its leases from those of earlier mounts.
    fn take(&self, mount: u64, verifier: String, now: Instant) -> Result<VerificationAnswer> {
        let taken = self.lock().take(mount, verifier, now);
        let Some((id, lease, offer)) = taken? else { return Ok(VerificationAnswer::Nothing) };
        tracing::info!("batch {id} is being verified by '{}'", lease.verifier);
        let task = messages::task(id, lease.fence, &offer)?;
        self.changed.notify_waiters();
        Ok(VerificationAnswer::Taken { task: Box::new(task) })
    }

    /// Extends and returns a lease that counts.
    fn lease(&self, verifier: &str, lease: &LeaseId, now: Instant) -> Result<(Lease, Arc<Offer>)> {
        Ok(self.lock().renew(batch_id(lease)?, verifier, lease.fence, now)?)
    }

    fn lock(&self) -> MutexGuard<'_, Leases> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Withdraws an offer when it is dropped. Requests with its lease fail from then on.
struct Withdraw<'v> {
    of: &'v Verifications,
    id: BatchId,
}

impl Drop for Withdraw<'_> {
    fn drop(&mut self) {
        self.of.lock().withdraw(self.id);
    }
}

/// Returns the batch of a lease.
fn batch_id(lease: &LeaseId) -> Result<BatchId> {
    lease.batch.parse().with_context(|| format!("'{}' is not the id of a batch", lease.batch))
}

/// Removes the verdicts of an earlier attempt to merge a batch. They are of no use, and would only take space.
fn remove_verdicts(batch_dir: &Path) {
    for entry in fs::read_dir(batch_dir).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(VERDICT_DIR)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Returns the directory of the files of a verdict.
fn verdict_dir(batch_dir: &Path, fence: u64) -> PathBuf {
    batch_dir.join(format!("{VERDICT_DIR}{fence:016x}"))
}
