//! The end of volumes and batches: their handles, files and directories are closed, after the calls that use them.

use crate::failure::{Failure, Result};
use crate::open_file::OpenFile;
use crate::runtime::wait;
use crate::tables::{DIRECTORIES, FILES, VOLUMES};
use crate::volume::{Open, Volume};
use cli::library::{BatchId, MergedBatch, OpenedBatch};
use std::sync::{Arc, RwLockWriteGuard};
use std::time::Duration;

/// Merges a batch and closes its handle. EBUSY, and the handle stays open, while files in it are open. After any other error the handle is
/// closed, and the batch can be begun again.
pub(crate) fn commit_batch(handle: i64, patience: Duration) -> Result<(String, MergedBatch)> {
    let batch = VOLUMES.get(handle)?;
    let parent = batch.parent()?;
    let mut open = batch.lock_to_end();
    if FILES.any(|file| file.is_of(&batch)) {
        return Err(Failure::new(libc::EBUSY, "files of the batch are open; close them first"));
    }
    let id = take_batch(handle, &batch, &mut open)?;
    let merged = wait(parent.enter()?.volume()?.merge_batch(id, patience))?;
    Ok((id.to_string(), merged))
}

/// Drops a batch with all its changes, and closes its handle and its files.
pub(crate) fn discard_batch(handle: i64) -> Result<()> {
    let batch = VOLUMES.get(handle)?;
    let parent = batch.parent()?;
    let mut open = batch.lock_to_end();
    FILES.remove_if(|file| file.is_of(&batch));
    let id = take_batch(handle, &batch, &mut open)?;
    wait(parent.enter()?.volume()?.discard_batch(id))
}

/// Closes a volume with its batches, or a batch, and all their files and directories. Batches can be begun again.
pub(crate) fn close(handle: i64, patience: Duration) -> Result<()> {
    let volume = VOLUMES.get(handle)?;
    if volume.is_batch() {
        return close_batch(handle, &volume);
    }
    // A batch that a thread begins meanwhile finds the volume closed.
    let mut outcome = Ok(());
    for batch in VOLUMES.remove_if(|found| found.is_batch_of(&volume)) {
        outcome = outcome.and(suspend(&batch));
    }
    let mut open = volume.lock_to_end();
    VOLUMES.remove(handle)?;
    let taken = open.take();
    outcome = outcome.and(close_files(&volume, taken.as_ref()));
    let Some(Open::Volume(opened)) = taken else { return Err(Failure::bad_handle()) };
    let closing =
        async { opened.close(patience).await.map_err(|error| Failure::new(libc::EIO, format!("{error:#}"))) };
    outcome.and(wait(closing))
}

fn close_batch(handle: i64, batch: &Arc<Volume>) -> Result<()> {
    VOLUMES.remove(handle)?;
    suspend(batch)
}

/// Closes a batch whose handle is closed already. It stays open in the volume.
fn suspend(batch: &Arc<Volume>) -> Result<()> {
    let parent = batch.parent()?;
    let mut open = batch.lock_to_end();
    let taken = open.take();
    let outcome = close_files(batch, taken.as_ref());
    // Another thread may have committed it meanwhile.
    let Some(Open::Batch(OpenedBatch { id, .. })) = taken else { return outcome };
    outcome.and(wait(parent.enter()?.volume()?.suspend_batch(id)))
}

/// Takes the batch out of its handle, whose lock the caller has, and closes the handle and its directories.
fn take_batch(
    handle: i64,
    batch: &Arc<Volume>,
    open: &mut RwLockWriteGuard<'_, Option<Open>>,
) -> Result<BatchId> {
    // Another thread may have closed the handle while this one waited.
    VOLUMES.remove(handle)?;
    DIRECTORIES.remove_if(|directory| directory.is_of(batch));
    match open.take() {
        Some(Open::Batch(OpenedBatch { id, .. })) => Ok(id),
        _ => Err(Failure::bad_handle()),
    }
}

/// Closes the files and directories of a volume that no call uses any more. Returns the first error.
fn close_files(volume: &Arc<Volume>, open: Option<&Open>) -> Result<()> {
    DIRECTORIES.remove_if(|directory| directory.is_of(volume));
    let files = FILES.remove_if(|file| file.is_of(volume));
    let Some(fs) = open.map(Open::filesystem) else { return Ok(()) };
    let mut outcome = Ok(());
    for file in files {
        outcome = outcome.and(wait(OpenFile::close_in(&file, fs)));
    }
    outcome
}
