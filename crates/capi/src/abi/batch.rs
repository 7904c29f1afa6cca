//! Batches.

use super::volume::timeout;
use crate::boundary::{call, call_unit};
use crate::closing;
use crate::pointers;
use crate::records::{BatchProgress, BatchResult};
use crate::tables::VOLUMES;
use std::ffi::{c_char, c_int};

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tenon_batch_begin(volume: i64, path: *const c_char) -> i64 {
    // SAFETY: the caller passes a string.
    call(|| Ok(VOLUMES.add(VOLUMES.get(volume)?.begin_batch(unsafe { pointers::string(path) }?)?)))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tenon_batch_commit(
    batch: i64,
    timeout_ms: i64,
    result: *mut BatchResult,
) -> c_int {
    call_unit(|| {
        let (id, merged) = closing::commit_batch(batch, timeout(timeout_ms))?;
        // SAFETY: the caller passes a place for the result, or null.
        unsafe { pointers::store_if_wanted(result, BatchResult::new(&id, merged)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn tenon_batch_discard(batch: i64) -> c_int {
    call_unit(|| closing::discard_batch(batch))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tenon_batch_progress(batch: i64, result: *mut BatchProgress) -> c_int {
    call_unit(|| {
        let progress = VOLUMES.get(batch)?.batch_progress()?;
        // SAFETY: the caller passes a place for the result.
        unsafe { pointers::store(result, progress) }
    })
}
