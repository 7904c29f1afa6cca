//! The number of RocksDB databases that this process has open.
//!
//! RocksDB destroys global state after `main` has returned. If a thread closes a database after that, it locks a destroyed mutex,
//! and RocksDB aborts the process ("pthread lock: Invalid argument").

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The number of open databases of this process.
static OPEN: Mutex<usize> = Mutex::new(0);
/// Notified when a database is closed.
static CLOSED: Condvar = Condvar::new();

/// Counts an open database until it is dropped. Must be dropped after the database itself.
#[cfg(feature = "rocksdb")]
pub(crate) struct OpenDatabaseGuard(());

#[cfg(feature = "rocksdb")]
impl OpenDatabaseGuard {
    pub(crate) fn new() -> Self {
        *count() += 1;
        Self(())
    }
}

#[cfg(feature = "rocksdb")]
impl Drop for OpenDatabaseGuard {
    fn drop(&mut self) {
        *count() -= 1;
        CLOSED.notify_all();
    }
}

/// Locks the number of open databases.
fn count() -> MutexGuard<'static, usize> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until this process has no open database, for at most `timeout`. Returns whether all databases are closed. Must be called
/// before `main` returns.
pub fn all_are_closed_within(timeout: Duration) -> bool {
    let waited = CLOSED.wait_timeout_while(count(), timeout, |open| *open > 0);
    *waited.unwrap_or_else(PoisonError::into_inner).0 == 0
}

#[cfg(all(test, feature = "rocksdb"))]
mod tests {
    use super::*;

    #[test]
    fn an_open_database_is_waited_for() {
        let open = OpenDatabaseGuard::new();
        assert!(!all_are_closed_within(Duration::ZERO));
        let closing = std::thread::spawn(move || drop(open));
        assert!(all_are_closed_within(Duration::from_secs(60)));
        closing.join().unwrap();
    }
}
