//! An auxiliary server that verifies batches for the mount of a batch server (`tenon batch serve --primary`).
//!
//! Asks the batch server for a batch, fetches its files, verifies it with the primary's snapshot, which it reads over the network, and returns
//! the verdict. A failure ends only the lease: the batch is then verified by another verifier, or by its mount. So a verifier keeps nothing
//! that must survive it.
//!
//! Invariant: at most one batch is verified at a time, so memory is bounded by that of one verification.

mod primary;
mod remote_snapshot;
mod scratch;

use crate::batch_server::client::CallError;
use crate::batch_verifier::primary::Primary;
use crate::batch_verifier::remote_snapshot::RemoteSnapshot;
use crate::batch_verifier::scratch::Scratch;
use crate::control::verification_protocol::Task;
use anyhow::{Context, Result, bail};
use batch::{Proof, SEALED_FILES, SealedBatch, VERDICT_FILE, VERDICT_ROWS_FILE, write_verdict};
use meta::Reader;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Time between two requests for a batch.
const POLL: Duration = Duration::from_millis(250);

/// Time after which an unreachable server is asked again.
const RETRY: Duration = Duration::from_secs(2);

/// Requests by which a lease is extended during its time.
const RENEWALS: u32 = 4;

/// Verifies batches of a server until `is_stopping` is set. `scratch` is a directory for temporary files.
pub(crate) fn run(
    url: &str,
    token: &str,
    ca_bundle: Option<&Path>,
    scratch: &Path,
    is_stopping: &AtomicBool,
) -> Result<()> {
    let primary = Arc::new(Primary::new(url, token, ca_bundle)?);
    let scratch = Scratch::open(scratch)?;
    let mut was_reached = true;
    while !is_stopping.load(Ordering::Relaxed) {
        match primary.take() {
            Ok(Some(task)) => verify_and_report(&primary, &scratch, &task),
            Ok(None) => thread::sleep(POLL),
            Err(error) => {
                // Logged once for each outage.
                if was_reached {
                    tracing::warn!("no batches can be taken, and this is tried again: {error}");
                }
                was_reached = false;
                thread::sleep(RETRY);
                continue;
            }
        }
        was_reached = true;
    }
    Ok(())
}

/// Verifies a batch, and ends its lease.
fn verify_and_report(primary: &Arc<Primary>, scratch: &Scratch, task: &Task) {
    let id = &task.lease.batch;
    let renewal = Renewal::start(primary, task);
    let verified = scratch.with_dir(|dir| verify(primary, dir, task));
    let failure = verified.as_ref().err().map(|error| format!("{error:#}"));
    drop(renewal);
    match (primary.finish(&task.lease, failure), verified) {
        (Ok(()), Ok(())) => tracing::info!("batch {id} is verified"),
        (Ok(()), Err(error)) => tracing::warn!("batch {id} cannot be verified: {error:#}"),
        (Err(error), _) => tracing::warn!("the verification of batch {id} has ended without effect: {error}"),
    }
}

/// Verifies a batch, and uploads the verdict.
fn verify(primary: &Arc<Primary>, dir: &Path, task: &Task) -> Result<()> {
    let (batch_dir, scratch, verdict) = (dir.join("batch"), dir.join("scratch"), dir.join("verdict"));
    for dir in [&batch_dir, &scratch, &verdict] {
        fs::create_dir(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    for file in &task.files {
        if !SEALED_FILES.contains(&file.name.as_str()) {
            bail!("a batch has no file '{}'", file.name);
        }
        primary.download(&task.lease, &file.name, file.bytes, &batch_dir.join(&file.name))?;
    }
    let sealed = SealedBatch::open(&batch_dir)?;
    let snapshot: Arc<dyn Reader> = Arc::new(RemoteSnapshot::new(Arc::clone(primary), task.lease.clone()));
    let proof = if task.is_reduced { Proof::Reduced } else { Proof::Replay };
    write_verdict(&snapshot, &sealed, &task.terms.terms()?, (&scratch, &verdict), proof)?;
    for name in [VERDICT_ROWS_FILE, VERDICT_FILE] {
        let path = verdict.join(name);
        if path.exists() {
            primary.upload(&task.lease, name, &path)?;
        }
    }
    Ok(())
}

/// Extends a lease in the background until it is dropped.
struct Renewal {
    thread: Option<thread::JoinHandle<()>>,
    end: Option<std::sync::mpsc::Sender<()>>,
}

impl Renewal {
    fn start(primary: &Arc<Primary>, task: &Task) -> Self {
        let (end, ended) = channel();
        let (primary, lease) = (Arc::clone(primary), task.lease.clone());
        let interval = Duration::from_millis(task.lease_ms) / RENEWALS;
        let renew = move || {
            while !has_ended(&ended, interval) {
                // Without the lease, the next request of the verification fails, which ends it.
                if matches!(primary.renew(&lease), Err(CallError::Refused(_))) {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("renew-lease".to_owned()).spawn(renew).ok();
        Self { thread, end: Some(end) }
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits for an interval. Returns whether the sender was dropped.
fn has_ended(ended: &Receiver<()>, interval: Duration) -> bool {
    !matches!(ended.recv_timeout(interval), Err(RecvTimeoutError::Timeout))
}
