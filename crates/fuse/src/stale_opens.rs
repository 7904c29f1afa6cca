//! Opens of files that were replaced between lookup and open.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use vfs::Ino;

/// Maximum number of retries to remember. After that they are forgotten, and an open may be asked to retry once too often.
const STALE_OPENS_MAX: usize = 1024;

/// Opens that were answered with ESTALE, by thread and inode. The kernel then repeats lookup and open, and each open is asked to do
/// so only once.
#[derive(Debug, Default)]
pub(crate) struct StaleOpens(Mutex<HashSet<(u32, Ino)>>);

impl StaleOpens {
    /// Returns whether this open must be retried, and remembers that it was asked to. The second attempt of an open is never asked again.
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
