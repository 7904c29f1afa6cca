//! `sync` and shutdown: publishing of everything that waits.

use std::time::Duration;

use crate::content::write::When;
use crate::{Error, Filesystem, Result};

impl Filesystem {
    /// Makes names and attributes changed so far survive the loss of power.
    pub async fn sync_names(&self) -> Result<()> {
        self.names.sync_names().await
    }

    /// Publishes all unpublished writes, exports all pending attributes, records access times, deletes unused objects,
    /// and makes the store and the names durable. Tries everything unless the store does not answer; returns the first
    /// error.
    pub async fn sync(&self) -> Result<()> {
        self.bucket.exporter.sync(When::Open).await
    }

    /// Syncs and lets pending renames move, for at most `patience`; ETIMEDOUT if that does not suffice. On an error
    /// logs the files that are not stored.
    pub async fn shutdown(&self, patience: Duration) -> Result<()> {
        let late = || Error::new(libc::ETIMEDOUT, "not all files could be stored before the timeout");
        let Some(me) = self.me.upgrade() else { return Err(late()) };
        // The sync runs in a task of its own: a cancelled commit would lose the writes that it was storing.
        let syncing = tokio::spawn(async move {
            let synced = me.bucket.exporter.sync(When::Closed).await;
            me.bucket.moves.wait_until_at_rest().await;
            synced
        });
        let outcome = match tokio::time::timeout(patience, syncing).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) | Err(_) => Err(late()),
        };
        if outcome.is_err() {
            for file in self.content.files().all().iter().filter(|file| file.pending().is_dirty) {
                tracing::error!(path = %self.names.path_for_log(file.ino), "the file's last writes are not stored; they are lost if the process ends now");
            }
        }
        outcome
    }
}
