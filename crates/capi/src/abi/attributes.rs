//! Attributes at paths.

use crate::boundary::call_unit;
use crate::failure::{Failure, Result};
use crate::pointers;
use crate::records::Stat;
use crate::runtime::wait;
use crate::tables::VOLUMES;
use std::ffi::{c_char, c_int};
use store::Timestamp;
use vfs::{Changes, Time};

/// Id that leaves a user or group unchanged, as for `chown`; `TENON_KEEP_ID`.
const KEEP_ID: u32 = u32::MAX;
/// Value that leaves a time unchanged, `TENON_TIME_KEEP`.
const KEEP_TIME: i64 = i64::MIN;
/// The time of the call, `TENON_TIME_NOW`.
const NOW: i64 = i64::MAX;

fn stat(volume: i64, path: &[u8], follows: bool) -> Result<Stat> {
    let volume = VOLUMES.get(volume)?;
    let entered = volume.enter()?;
    let node = wait(entered.resolve(path, follows)).map_err(|failure| failure.at(path))?;
    Ok(Stat::from(&node.attr))
}

fn change(volume: i64, path: &[u8], changes: Changes) -> Result<()> {
    let volume = VOLUMES.get(volume)?;
    let entered = volume.enter()?;
    let outcome = wait(async {
        let node = entered.resolve(path, true).await?;
        entered.fs().setattr(entered.caller(), node.ino(), changes, None).await?;
        Ok::<_, Failure>(())
    });
    outcome.map_err(|failure| failure.at(path))
}

fn time(at_ns: i64) -> Option<Time> {
    match at_ns {
        KEEP_TIME => None,
        NOW => Some(Time::Now),
        at_ns => Some(Time::At(Timestamp(at_ns))),
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tenon_stat(volume: i64, path: *const c_char, result: *mut Stat) -> c_int {
    // SAFETY: the caller passes a string and a place for the result.
    call_unit(|| unsafe { pointers::store(result, stat(volume, pointers::string(path)?, true)?) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tenon_lstat(volume: i64, path: *const c_char, result: *mut Stat) -> c_int {
    // SAFETY: the caller passes a string and a place for the result.
    call_unit(|| unsafe { pointers::store(result, stat(volume, pointers::string(path)?, false)?) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tenon_chmod(volume: i64, path: *const c_char, mode: u32) -> c_int {
    let changes = Changes { mode: Some((mode & 0o7777) as u16), ..Changes::default() };
    // SAFETY: the caller passes a string.
    call_unit(|| change(volume, unsafe { pointers::string(path) }?, changes))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tenon_chown(volume: i64, path: *const c_char, uid: u32, gid: u32) -> c_int {
    let id = |id: u32| (id != KEEP_ID).then_some(id);
    let changes = Changes { uid: id(uid), gid: id(gid), ..Changes::default() };
    // SAFETY: the caller passes a string.
    call_unit(|| change(volume, unsafe { pointers::string(path) }?, changes))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tenon_truncate(volume: i64, path: *const c_char, size: u64) -> c_int {
    call_unit(|| {
        if i64::try_from(size).is_err() {
            return Err(Failure::new(libc::EFBIG, "the length is larger than any file can be"));
        }
        let changes = Changes { size_bytes: Some(size), ..Changes::default() };
        // SAFETY: the caller passes a string.
        change(volume, unsafe { pointers::string(path) }?, changes)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tenon_utimens(
    volume: i64,
    path: *const c_char,
    atime_ns: i64,
    mtime_ns: i64,
) -> c_int {
    let changes = Changes { atime: time(atime_ns), mtime: time(mtime_ns), ..Changes::default() };
    // SAFETY: the caller passes a string.
    call_unit(|| change(volume, unsafe { pointers::string(path) }?, changes))
}
