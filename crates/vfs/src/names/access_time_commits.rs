//! Commits of recorded access times.

use meta::{Op, Origin};
use std::time::Duration;

use crate::Result;
use crate::names::Names;

/// Interval between commits of access times, which bounds how many a crash loses.
const FLUSH_INTERVAL: Duration = Duration::from_secs(60);

impl Names {
    /// Commits all pending access times to the namespace.
    pub(crate) fn flush_access_times(&self) -> Result<()> {
        // The op of a removed inode fails on its own, and is not needed.
        let commit = |ops: Vec<Op>| self.commit_all(Origin::FrontEnd, &ops).map(drop);
        while self.access_times.flush_batch(commit)? {}
        Ok(())
    }

    /// Commits all pending access times, and returns whether that succeeded. Logs a failure; the times then stay pending.
    pub(crate) fn try_flush_access_times(&self) -> bool {
        let flushed = self.flush_access_times();
        if let Err(error) = &flushed {
            tracing::warn!(%error, "cannot commit access times to the metadata; they stay in memory, and the next commit of access times includes them");
        }
        flushed.is_ok()
    }

    /// Commits all pending access times after [`FLUSH_INTERVAL`], and after a failure again.
    pub(crate) fn flush_access_times_later(&self) {
        let me = self.me.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(FLUSH_INTERVAL).await;
                let Some(me) = me.upgrade() else { return };
                if me.try_flush_access_times() {
                    return;
                }
            }
        });
    }
}
