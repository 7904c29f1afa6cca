//! Batches.

use super::volume::timeout;
use crate::boundary::{call, call_int, call_unit};
use crate::closing;
use crate::pointers;
use crate::records::{BatchProgress, BatchResult, RefusedChange};
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

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tenon_batch_refused(
    volume: i64,
    id: *const c_char,
    from: u64,
    result: *mut RefusedChange,
) -> c_int {
    call_int(|| {
        // SAFETY: the caller passes a string.
        let id = unsafe { pointers::string(id) }?;
        match VOLUMES.get(volume)?.next_refused_change(id, from)? {
            Some(refused) => {
                // SAFETY: the caller passes a place for the result.
                unsafe { pointers::store(result, refused) }?;
                Ok(1)
            }
            None => Ok(0),
        }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tenon_batch_retry(volume: i64, id: *const c_char, index: u64) -> c_int {
    // SAFETY: the caller passes a string.
    call_unit(|| VOLUMES.get(volume)?.retry_refused_change(unsafe { pointers::string(id) }?, index))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tenon_batch_forget(volume: i64, id: *const c_char, index: u64) -> c_int {
    // SAFETY: the caller passes a string.
    call_unit(|| VOLUMES.get(volume)?.forget_refused_change(unsafe { pointers::string(id) }?, index))
}
