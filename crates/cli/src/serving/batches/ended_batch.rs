//! Summaries of batches that have ended: files `ID.ended` in the directory that has the directories of open batches.
//!
//! The summary of a merged batch has the numbers that its record in the metadata does not have. The summary of an expired batch is all that is
//! left of it; a job that continues later gets a message from it. Both stay until `tenon batch discard`.

use crate::control::batch_protocol::BatchProgress;
use crate::process::files::write_durably;
use anyhow::{Context, Result};
use meta::BatchId;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// End of the names of summaries.
const ENDED: &str = ".ended";

/// State of a batch that was dropped because nothing was written to it for a long time.
pub(super) const EXPIRED: &str = "expired";

/// The summary of a batch that has ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct EndedBatch {
    /// Inode number of the batch's directory.
    pub(super) dir: u64,
    /// The batch as it was at its end.
    pub(super) progress: BatchProgress,
}

impl EndedBatch {
    /// Writes the summary durably below `root`.
    pub(super) fn write(&self, root: &Path, id: BatchId) -> Result<()> {
        let path = path(root, id);
        let text = serde_json::to_string(self)?;
        write_durably(&path, &text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Returns the summary of a batch; `None` if there is none, or it cannot be read.
    pub(super) fn read(root: &Path, id: BatchId) -> Option<Self> {
        serde_json::from_str(&fs::read_to_string(path(root, id)).ok()?).ok()
    }

    /// Returns the summaries of expired batches below `root`, by id.
    pub(super) fn expired(root: &Path) -> Vec<(BatchId, Self)> {
        let mut ended: Vec<_> =
            ids(root).into_iter().filter_map(|id| Some((id, Self::read(root, id)?))).collect();
        ended.retain(|(_, ended)| ended.is_expired());
        ended.sort_by_key(|(id, _)| *id);
        ended
    }

    /// Returns whether the batch has expired. Otherwise it was merged.
    pub(super) fn is_expired(&self) -> bool {
        self.progress.batch.state == EXPIRED
    }

    /// Removes the summary of a batch. Returns whether there was one.
    pub(super) fn remove(root: &Path, id: BatchId) -> io::Result<bool> {
        match fs::remove_file(path(root, id)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Returns the batches that have a summary below `root`.
pub(super) fn ids(root: &Path) -> Vec<BatchId> {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let id = |name: &str| name.strip_suffix(ENDED)?.parse().ok();
    entries.filter_map(|entry| id(entry.file_name().to_str()?)).collect()
}

fn path(root: &Path, id: BatchId) -> PathBuf {
    root.join(format!("{id}{ENDED}"))
}
