//! Closing of volumes and batches, with their handles, files and directories, after calls of other threads have returned.

use crate::failure::{Failure, Result};
use crate::open_file::OpenFile;
use crate::runtime::wait;
use crate::tables::{DIRECTORIES, FILES, VOLUMES};
use crate::volume::{Open, Volume};
use cli::library::{BatchId, MergedBatch, OpenedBatch};
use std::sync::{Arc, RwLockWriteGuard};
use std::time::Duration;

/// Merges a batch and closes its handle. Fails with EBUSY while files in it are open; the handle then stays open. After any other error the
/// handle is closed, and `begin_batch` continues the batch.
pub(crate) fn commit_batch(handle: i64, timeout: Duration) -> Result<(String, MergedBatch)> {
    let batch = VOLUMES.get(handle)?;
    let parent = batch.parent()?;
    let mut open = batch.lock_to_close();
    if FILES.any(|file| file.is_of(&batch)) {
        return Err(Failure::new(libc::EBUSY, "files of the batch are open; close them first"));
    }
    let id = take_batch(handle, &batch, &mut open)?;
    let merged = wait(parent.enter()?.volume()?.merge_batch(id, timeout))?;
    Ok((id.to_string(), merged))
}

/// Drops a batch with all its changes, and closes its handle and its files.
pub(crate) fn discard_batch(handle: i64) -> Result<()> {
    let batch = VOLUMES.get(handle)?;
    let parent = batch.parent()?;
    let mut open = batch.lock_to_close();
    FILES.remove_if(|file| file.is_of(&batch));
    let id = take_batch(handle, &batch, &mut open)?;
    wait(parent.enter()?.volume()?.discard_batch(id))
}

/// Closes a volume with its batches, or a batch, and all their files and directories. `begin_batch` continues the batches.
pub(crate) fn close(handle: i64, timeout: Duration) -> Result<()> {
    let volume = VOLUMES.get(handle)?;
    if volume.is_batch() {
        return close_batch(handle, &volume);
    }
    // A batch that a thread begins meanwhile finds the volume closed.
    let mut outcome = Ok(());
    for batch in VOLUMES.remove_if(|found| found.is_batch_of(&volume)) {
        outcome = outcome.and(suspend(&batch));
    }
    let mut open = volume.lock_to_close();
    VOLUMES.remove(handle)?;
    let taken = open.take();
    outcome = outcome.and(close_files(&volume, taken.as_ref()));
    let Some(Open::Volume(opened)) = taken else { return Err(Failure::bad_handle()) };
    let closing =
        async { opened.close(timeout).await.map_err(|error| Failure::new(libc::EIO, format!("{error:#}"))) };
    outcome.and(wait(closing))
}

fn close_batch(handle: i64, batch: &Arc<Volume>) -> Result<()> {
    VOLUMES.remove(handle)?;
    suspend(batch)
}

/// Closes the files of a batch whose handle was removed. The batch itself stays open in the volume.
fn suspend(batch: &Arc<Volume>) -> Result<()> {
    let parent = batch.parent()?;
    let mut open = batch.lock_to_close();
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
