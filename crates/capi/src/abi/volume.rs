//! Volumes, the version and the last error.

use crate::boundary::{self, call, call_unit};
use crate::closing;
use crate::failure::Failure;
use crate::pointers;
use crate::records::Statvfs;
use crate::runtime::wait;
use crate::tables::VOLUMES;
use crate::volume::Volume;
use std::ffi::{CStr, c_char, c_int};
use std::time::Duration;

/// Version of the library with its NUL.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");

/// Returns the duration for a time limit of a caller. A negative one means no limit.
pub(super) fn timeout(timeout_ms: i64) -> Duration {
    u64::try_from(timeout_ms).map_or(Duration::from_secs(u64::from(u32::MAX)), Duration::from_millis)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn tenon_version() -> *const c_char {
    CStr::from_bytes_with_nul(VERSION.as_bytes()).unwrap_or_default().as_ptr()
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn tenon_last_error() -> *const c_char {
    boundary::last_error()
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tenon_volume_open(url: *const c_char, options: *const *const c_char) -> i64 {
    call(|| {
        boundary::watch_process();
        // SAFETY: the caller passes a string and a list of strings.
        let (url, options) = unsafe { (pointers::string(url)?, pointers::strings(options)?) };
        let url = std::str::from_utf8(url);
        let url = url.map_err(|_| Failure::new(libc::EINVAL, "the URL is not UTF-8"))?;
        Ok(VOLUMES.add(Volume::open(url, options)?))
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn tenon_volume_close(volume: i64, timeout_ms: i64) -> c_int {
    call_unit(|| closing::close(volume, timeout(timeout_ms)))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn tenon_volume_sync(volume: i64) -> c_int {
    call_unit(|| {
        let volume = VOLUMES.get(volume)?;
        let entered = volume.enter()?;
        wait(entered.fs().sync())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tenon_statvfs(volume: i64, result: *mut Statvfs) -> c_int {
    call_unit(|| {
        let volume = VOLUMES.get(volume)?;
        let entered = volume.enter()?;
        let found = entered.fs().statfs(entered.root())?;
        // SAFETY: the caller passes a place for the result.
        unsafe { pointers::store(result, found.into()) }
    })
}
