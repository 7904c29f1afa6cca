//! Pointers of callers: strings, bytes to read, and places for results. A null pointer is EFAULT.

use crate::failure::{Failure, Result};
use std::ffi::{CStr, OsString, c_char, c_void};
use std::os::unix::ffi::OsStringExt as _;
use std::ptr::NonNull;

/// Maximum number of options, so that a list without a null pointer at its end is noticed.
const OPTIONS_MAX: usize = 1000;

fn null() -> Failure {
    Failure::new(libc::EFAULT, "a pointer is null")
}

/// Returns the bytes of a string.
///
/// # Safety
/// `text` is null, or a string that stays as it is while the result is used.
pub(crate) unsafe fn string<'a>(text: *const c_char) -> Result<&'a [u8]> {
    if text.is_null() {
        return Err(null());
    }
    // SAFETY: the pointer is not null, so the caller promises a string.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// Returns the strings of a list that ends with a null pointer; none if the list is null.
///
/// # Safety
/// `list` is null, or points to strings and a null pointer at the end.
pub(crate) unsafe fn strings(list: *const *const c_char) -> Result<Vec<OsString>> {
    let mut strings = Vec::new();
    if list.is_null() {
        return Ok(strings);
    }
    loop {
        // SAFETY: no pointer before this one was null, so it is in the list.
        let text = unsafe { *list.add(strings.len()) };
        if text.is_null() {
            return Ok(strings);
        }
        if strings.len() == OPTIONS_MAX {
            return Err(Failure::new(libc::EINVAL, "the list of options has no null pointer at its end"));
        }
        // SAFETY: the list contains strings.
        strings.push(OsString::from_vec(unsafe { string(text) }?.to_vec()));
    }
}

/// Returns bytes to read.
///
/// # Safety
/// `data` is null, or `len` bytes are there and stay as they are while the result is used.
pub(crate) unsafe fn bytes<'a>(data: *const c_void, len: usize) -> Result<&'a [u8]> {
    check_len(len)?;
    match NonNull::new(data.cast_mut().cast::<u8>()) {
        // SAFETY: the pointer is not null, so the caller promises the bytes; their length is checked.
        Some(data) => Ok(unsafe { std::slice::from_raw_parts(data.as_ptr(), len) }),
        None if len == 0 => Ok(&[]),
        None => Err(null()),
    }
}

fn check_len(len: usize) -> Result<()> {
    match isize::try_from(len) {
        Ok(_) => Ok(()),
        Err(_) => Err(Failure::new(libc::EINVAL, "the length is too large")),
    }
}

/// Memory of the caller, which need not be initialized.
#[derive(Debug)]
pub(crate) struct Buffer {
    at: NonNull<u8>,
    len: usize,
}

impl Buffer {
    /// Takes a buffer of the caller for this call.
    ///
    /// # Safety
    /// `at` is null, or `len` bytes there can be written to until the buffer is dropped.
    pub(crate) unsafe fn new(at: *mut c_void, len: usize) -> Result<Self> {
        check_len(len)?;
        match NonNull::new(at.cast::<u8>()) {
            Some(at) => Ok(Self { at, len }),
            None if len == 0 => Ok(Self { at: NonNull::dangling(), len }),
            None => Err(null()),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Copies bytes to a position, as many as fit. Returns their number.
    pub(crate) fn write(&mut self, at: usize, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.len.saturating_sub(at));
        if count > 0 {
            // SAFETY: the range is inside of the buffer, which the caller lends for this call, and `bytes` are memory of the library.
            unsafe { self.at.as_ptr().add(at).copy_from_nonoverlapping(bytes.as_ptr(), count) };
        }
        count
    }
}

/// Copies a value to the memory of the caller, as `getxattr` does: with a capacity of 0, copies nothing. Returns the length of the value;
/// ERANGE if it does not fit.
pub(crate) fn copy_value(mut to: Buffer, value: &[u8]) -> Result<i64> {
    if to.len() > 0 && to.len() < value.len() {
        return Err(Failure::new(libc::ERANGE, format!("the buffer is too small for {} bytes", value.len())));
    }
    to.write(0, value);
    Ok(value.len() as i64)
}

/// Writes a result to the memory of the caller.
///
/// # Safety
/// `to` is null, or a `T` can be written there.
pub(crate) unsafe fn store<T>(to: *mut T, value: T) -> Result<()> {
    match NonNull::new(to) {
        Some(to) => {
            // SAFETY: the pointer is not null, so the caller promises the place.
            unsafe { to.as_ptr().write(value) };
            Ok(())
        }
        None => Err(null()),
    }
}

/// Like [`store`], but does nothing without a place.
///
/// # Safety
/// As for [`store`].
pub(crate) unsafe fn store_if_wanted<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: the caller promises the place.
        unsafe { to.write(value) };
    }
}
