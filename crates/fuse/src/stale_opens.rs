//! Opens of files that were replaced between lookup and open.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use vfs::Ino;

/// Maximum number of demanded retries to remember. Beyond it all are forgotten, and an open may be asked to retry
/// twice.
const STALE_OPENS_MAX: usize = 1024;

/// Opens that were answered with ESTALE, by thread and inode. The kernel then repeats lookup and open, and each open is asked to do
/// so only once.
#[derive(Debug, Default)]
pub(crate) struct StaleOpens(Mutex<HashSet<(u32, Ino)>>);

impl StaleOpens {
    /// Returns whether this open must be retried because the file was replaced, and remembers that. The second attempt
    /// of an open is never asked to retry.
    pub(crate) fn demand_retry(&self, thread: u32, ino: Ino, was_replaced: bool) -> bool {
        let mut demands = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if demands.remove(&(thread, ino)) || !was_replaced {
            return false;
        }
        if demands.len() >= STALE_OPENS_MAX {
            demands.clear();
        }
        demands.insert((thread, ino))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two programs opened a file that another client had just replaced, and one of them got ESTALE. The kernel retries an open once
    /// only, and the first program's second open was taken for the other program's.
    #[test]
    fn an_open_is_asked_to_retry_only_once() {
        let stale_opens = StaleOpens::default();
        assert!(stale_opens.demand_retry(1, Ino(7), true));
        assert!(stale_opens.demand_retry(2, Ino(7), true));
        assert!(!stale_opens.demand_retry(1, Ino(7), true));
        assert!(!stale_opens.demand_retry(2, Ino(7), true));
        assert!(stale_opens.demand_retry(1, Ino(7), true), "another open");
        assert!(!stale_opens.demand_retry(3, Ino(7), false));
    }
}
