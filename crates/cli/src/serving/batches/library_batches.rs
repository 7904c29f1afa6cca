//! Batches of a volume that a program has opened by the library. Nothing is mounted: the program calls the file system of the batch.

use super::open_batch::{CLOSE_TIMEOUT, LiveBatch};
use super::refused_changes::{RefusedChange, forget, next_refused, retry};
use super::{BatchAccess, Batches, directory_at, no_batch, open_batches};
use crate::control::batch_protocol::BatchAnswer;
use crate::serving::open_volume::OpenVolume;
use anyhow::{Result, bail};
use batch::Totals;
use meta::{BatchId, Ino, namespace};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use vfs::Filesystem;

/// A batch that a program uses.
#[derive(Debug)]
pub(crate) struct BegunBatch {
    pub(crate) id: BatchId,
    pub(crate) fs: Arc<Filesystem>,
    /// The directory of the batch.
    pub(crate) root: Ino,
    /// Whether the batch was open before.
    pub(crate) is_resumed: bool,
}

impl Batches {
    /// Makes the batches of a volume that a program opens by the library. None of them expires while it has the volume open.
    pub(crate) fn of_library(state_root: &Path) -> Self {
        Self::new(state_root, BatchAccess::Library, Duration::ZERO)
    }

    /// Removes what a process has left that died while it ended a batch.
    pub(crate) fn clean_up(&self, opened: &OpenVolume) -> Result<()> {
        if !self.root.is_dir() {
            return Ok(());
        }
        let all = namespace::read_batches(&**opened.fs.admin().batches().names().engine())?;
        self.remove_leftovers(&all)
    }

    /// Puts a subtree into batch mode, or opens its open batch again.
    pub(crate) async fn begin_in_process(&self, opened: &OpenVolume, path: &[u8]) -> Result<BegunBatch> {
        let dir = directory_at(opened, path)?;
        self.check_possible(opened)?;
        let mut live = self.live.lock().await;
        let (record, is_new) = self.find_or_record(opened, path, dir, &mut live).await?;
        let id = record.id();
        let batch = self.open(opened, record, is_new).await?;
        let begun = BegunBatch { id, fs: Arc::clone(&batch.fs), root: dir, is_resumed: !is_new };
        live.insert(id, LiveBatch { batch, session: None });
        Ok(begun)
    }

    /// Verifies and merges a batch. Returns the numbers of added and of refused changes. The program must not use its file system any more.
    pub(crate) async fn merge_in_process(
        &self,
        opened: &OpenVolume,
        id: BatchId,
        patience: Duration,
    ) -> Result<(u64, u64)> {
        let live = self.live.lock().await;
        let record = open_batches(opened)?.into_iter().find(|batch| batch.id() == id);
        let record = record.ok_or_else(|| no_batch(id))?;
        match self.end_open(opened, record, patience, live).await? {
            BatchAnswer::Merged { accepted, refused, .. } => Ok((accepted, refused)),
            answer => bail!("unexpected answer {answer:?}"),
        }
    }

    /// Makes a batch durable and closes it. It stays open, and can be begun again.
    pub(crate) async fn suspend_in_process(&self, id: BatchId) -> Result<()> {
        match self.live.lock().await.remove(&id) {
            Some(found) => Ok(found.batch.close(CLOSE_TIMEOUT).await?),
            None => Ok(()),
        }
    }

    /// Drops a batch with all its changes. The program must not use its file system any more.
    pub(crate) async fn discard_in_process(&self, opened: &OpenVolume, id: BatchId) -> Result<()> {
        self.discard(opened, id).await.map(drop)
    }

    /// Returns the first refused change of a merged batch from an index on; `None` if there is none.
    pub(crate) fn next_refused(
        &self,
        opened: &OpenVolume,
        id: BatchId,
        from: u64,
    ) -> Result<Option<RefusedChange>> {
        next_refused(opened, id, from)
    }

    /// Makes a refused change again on the present names, and removes it from the list.
    pub(crate) async fn retry_refused(&self, opened: &OpenVolume, id: BatchId, index: u64) -> Result<()> {
        retry(opened, id, index).await.map(drop)
    }

    /// Removes a refused change from the list.
    pub(crate) async fn forget_refused(&self, opened: &OpenVolume, id: BatchId, index: u64) -> Result<()> {
        forget(opened, id, index).await.map(drop)
    }

    /// Returns what was counted in a batch; `None` if it is not open.
    pub(crate) fn totals(&self, id: BatchId) -> Option<Totals> {
        self.jobs.get(id).map(|job| job.progress.totals())
    }
}
