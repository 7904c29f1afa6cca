//! Commits of recorded access times.

use meta::{Op, Origin};
use std::time::Duration;

use crate::Result;
use crate::names::Names;

/// Interval between commits, which bounds what a crash loses.
const FLUSH_INTERVAL: Duration = Duration::from_secs(60);

impl Names {
    /// Commits all pending access times to the namespace.
    pub(crate) fn flush_access_times(&self) -> Result<()> {
        // The op of a removed inode fails on its own, and is not needed.
        let commit = |ops: Vec<Op>| self.commit_all(Origin::FrontEnd, &ops).map(drop);
        while self.access_times.flush_batch(commit)? {}
        Ok(())
    }

    pub(crate) fn try_flush_access_times(&self) {
        if let Err(error) = self.flush_access_times() {
            tracing::warn!(%error, "cannot commit access times to the metadata; retrying later");
        }
    }

    pub(crate) fn flush_access_times_later(&self) {
        let me = self.me.clone();
        tokio::spawn(async move {
            tokio::time::sleep(FLUSH_INTERVAL).await;
            if let Some(me) = me.upgrade() {
                me.try_flush_access_times();
            }
        });
    }
}
