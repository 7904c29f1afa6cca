//! The boundary between C and Rust: panics, forks and errors of calls.

use crate::failure::{Failure, Result};
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    /// Text of the last error of this thread.
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Whether this process was forked by one that used the library. The threads of the library are in the parent.
static IS_FORKED: AtomicBool = AtomicBool::new(false);

/// Carries out a call. Returns its value, or a negative errno whose text [`last_error`] then has.
pub(crate) fn call(work: impl FnOnce() -> Result<i64>) -> i64 {
    let failure = if IS_FORKED.load(Ordering::Relaxed) {
        Failure::new(libc::EBADF, "the library cannot be used after a fork; call exec first")
    } else {
        // A panic leaves no state half changed, because no lock is held across changes of several values. So poisoned locks are used.
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(value)) => return value,
            Ok(Err(failure)) => failure,
            Err(_) => Failure::new(libc::EIO, "internal error; standard error has the details"),
        }
    };
    let text = CString::new(failure.text.replace('\0', "\u{fffd}")).unwrap_or_default();
    // The text of a thread that is ending is gone.
    let _ = LAST_ERROR.try_with(|last| *last.borrow_mut() = text);
    -i64::from(failure.errno)
}

/// Like [`call`], for functions that return an `int`: 0, 1, or a negative errno.
pub(crate) fn call_int(work: impl FnOnce() -> Result<i64>) -> c_int {
    c_int::try_from(call(work)).unwrap_or(-libc::EOVERFLOW)
}

/// Like [`call_int`], for functions that return 0.
pub(crate) fn call_unit(work: impl FnOnce() -> Result<()>) -> c_int {
    call_int(|| work().map(|()| 0))
}

/// Returns the text of the last error of this thread. It is valid until another call of this thread fails.
pub(crate) fn last_error() -> *const c_char {
    LAST_ERROR.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Registers handlers for forks and for the end of the process: the library refuses calls in a child, and a process whose volumes are all
/// closed ends only after they have released their files.
pub(crate) fn watch_process() {
    static ONCE: Once = Once::new();
    unsafe extern "C" fn in_child() {
        IS_FORKED.store(true, Ordering::Relaxed);
    }
    extern "C" fn at_exit() {
        if !IS_FORKED.load(Ordering::Relaxed) && crate::tables::VOLUMES.is_empty() {
            cli::library::wait_until_closed();
        }
    }
    ONCE.call_once(|| {
        // SAFETY: both functions have C's calling convention, and the library is never unloaded (build.rs). `in_child` only stores an
        // atomic value, which is permitted in a child.
        unsafe {
            libc::pthread_atfork(None, None, Some(in_child));
            libc::atexit(at_exit);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn text() -> String {
        // SAFETY: the text is valid until the next call that fails.
        unsafe { CStr::from_ptr(last_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_becomes_an_error() {
        assert_eq!(call_unit(|| panic!("a broken invariant")), -libc::EIO);
        assert!(text().contains("internal error"), "{}", text());
    }

    #[test]
    fn each_thread_has_its_last_error() {
        assert_eq!(call(|| Err(Failure::new(libc::ENOENT, "here\0"))), -i64::from(libc::ENOENT));
        std::thread::spawn(|| assert_eq!(text(), "")).join().unwrap();
        assert_eq!((call(|| Ok(7)), text().as_str()), (7, "here\u{fffd}"));
    }
}
