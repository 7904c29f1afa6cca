//! How many databases this process has open.
//!
//! RocksDB destroys global state once `main` has returned. A thread that still closes a database by then locks a destroyed
//! mutex, and RocksDB aborts the process ("pthread lock: Invalid argument").

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

static OPEN: Mutex<usize> = Mutex::new(0);
static CLOSED: Condvar = Condvar::new();

/// An open database, counted until it is dropped. Must be dropped after the database itself.
pub(crate) struct Counted(());

impl Counted {
    pub(crate) fn new() -> Self {
        *count() += 1;
        Self(())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        *count() -= 1;
        CLOSED.notify_all();
    }
}

fn count() -> MutexGuard<'static, usize> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until no thread of this process has a database open, for at most `timeout`. Returns whether that is so. To be
/// called before `main` returns.
pub fn all_are_closed_within(timeout: Duration) -> bool {
    let waited = CLOSED.wait_timeout_while(count(), timeout, |open| *open > 0);
    *waited.unwrap_or_else(PoisonError::into_inner).0 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_database_is_waited_for() {
        let open = Counted::new();
        assert!(!all_are_closed_within(Duration::ZERO));
        let closing = std::thread::spawn(move || drop(open));
        assert!(all_are_closed_within(Duration::from_secs(60)));
        closing.join().unwrap();
    }
}
