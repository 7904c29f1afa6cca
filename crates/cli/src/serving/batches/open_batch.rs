//! An open batch: its private namespace and its files, and its mount.

use anyhow::Result;
use batch::{JobOptions, PrivateEngine, PrivateNamespace};
use fuse::{Session, UnmountError};
use meta::Batch;
use staging::packs::Packs;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use vfs::Filesystem;

/// File with the id of the machine's run during which a batch was written to.
const BOOT_FILE: &str = "boot";

/// File of the kernel with the id of the machine's present run; a reboot changes it.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// How long a batch waits for its last files to be closed.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The private namespace of a batch.
#[derive(Debug)]
pub(super) struct OpenBatch {
    pub(super) record: Batch,
    pub(super) engine: Arc<PrivateEngine>,
    pub(super) packs: Arc<Packs>,
    pub(super) fs: Arc<Filesystem>,
    /// Number of ops that could not be applied to the present names when the batch was resumed. If there are any, the merge verifies the batch
    /// by a replay, which refuses them.
    pub(super) stale_ops: u64,
}

/// A batch that programs can use.
#[derive(Debug)]
pub(super) struct LiveBatch {
    pub(super) batch: OpenBatch,
    /// The mount over the batch's directory; `None` if a program uses the batch by the library.
    pub(super) session: Option<Session>,
}

impl LiveBatch {
    /// Returns whether the kernel has ended the mount.
    pub(super) fn has_ended(&self) -> bool {
        self.session.as_ref().is_some_and(Session::has_ended)
    }

    /// Unmounts the batch, and waits a while until the kernel has ended its session. Does nothing if there is no mount any more.
    pub(super) async fn unmount(&self, lazily: bool) -> Result<(), UnmountError> {
        let Some(session) = self.session.as_ref().filter(|session| !session.has_ended()) else {
            return Ok(());
        };
        let at = session.mount_point().to_owned();
        let work = move || if lazily { fuse::detach(&at) } else { fuse::unmount(&at) };
        match tokio::task::spawn_blocking(work).await {
            Ok(Ok(()) | Err(UnmountError::NotMounted(_))) => {}
            Ok(Err(error)) => return Err(error),
            Err(error) => {
                return Err(UnmountError::Io(session.mount_point().to_owned(), io::Error::other(error)));
            }
        }
        // The kernel ends the session after the last file was closed.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, session.ended()).await;
        Ok(())
    }
}

impl OpenBatch {
    /// Stores what programs have written, and makes it durable.
    pub(super) async fn close(self, patience: Duration) -> vfs::Result<()> {
        self.fs.shutdown(patience).await.and(self.fs.sync().await)
    }
}

/// Begins the private namespace of a new batch. Returns it with the number of its stale ops, which is 0.
pub(super) fn begin_job(
    dir: &Path,
    base: Arc<dyn meta::Reader>,
    record: &Batch,
    memory: u64,
) -> Result<(PrivateNamespace, u64)> {
    let options = JobOptions { memory_bytes_max: memory as usize, ..JobOptions::default() };
    let job = PrivateNamespace::begin(dir, base, record.lease.clone(), options)?;
    fs::write(dir.join(BOOT_FILE), boot_id())?;
    Ok((job, 0))
}

/// Opens the private namespace of a batch again. After a reboot, only synced changes are kept. Returns it with the number of its stale ops.
pub(super) fn resume_job(
    dir: &Path,
    base: Arc<dyn meta::Reader>,
    memory: u64,
) -> Result<(PrivateNamespace, u64)> {
    let boot = fs::read_to_string(dir.join(BOOT_FILE)).unwrap_or_default();
    let options = JobOptions { memory_bytes_max: memory as usize, keeps_synced_only: boot != boot_id() };
    let resumed = PrivateNamespace::resume(dir, base, options)?;
    fs::write(dir.join(BOOT_FILE), boot_id())?;
    Ok(resumed)
}

/// Returns the id of the machine's run; empty if the system has none.
fn boot_id() -> String {
    fs::read_to_string(BOOT_ID).unwrap_or_default()
}
