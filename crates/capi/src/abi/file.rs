//! Open files.

use crate::boundary::{call, call_unit};
use crate::open_file;
use crate::pointers::{self, Buffer};
use crate::records::Stat;
use crate::tables::{FILES, VOLUMES};
use std::ffi::{c_char, c_int, c_void};

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tenon_open(volume: i64, path: *const c_char, flags: c_int, mode: u32) -> i64 {
    call(|| {
        // SAFETY: the caller passes a string.
        let path = unsafe { pointers::string(path) }?;
        Ok(FILES.add(open_file::open(&VOLUMES.get(volume)?, path, flags, mode)?))
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn tenon_close(file: i64) -> c_int {
    call_unit(|| FILES.remove(file)?.close())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tenon_pread(file: i64, buffer: *mut c_void, size: usize, offset: u64) -> i64 {
    // SAFETY: the caller passes a buffer of this size.
    call(|| FILES.get(file)?.read(offset, unsafe { Buffer::new(buffer, size) }?))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tenon_pwrite(
    file: i64,
    data: *const c_void,
    size: usize,
    offset: u64,
) -> i64 {
    // SAFETY: the caller passes `size` bytes.
    call(|| FILES.get(file)?.write(offset, unsafe { pointers::bytes(data, size) }?))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn tenon_fsync(file: i64) -> c_int {
    call_unit(|| FILES.get(file)?.sync())
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn tenon_ftruncate(file: i64, size: u64) -> c_int {
    call_unit(|| FILES.get(file)?.truncate(size))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tenon_fstat(file: i64, result: *mut Stat) -> c_int {
    call_unit(|| {
        let attr = FILES.get(file)?.attributes()?;
        // SAFETY: the caller passes a place for the result.
        unsafe { pointers::store(result, Stat::from(&attr)) }
    })
}
