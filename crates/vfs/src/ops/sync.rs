//! `sync` and shutdown: publishing of everything that waits.

use futures_util::StreamExt as _;
use std::sync::Arc;
use std::time::Duration;

use crate::content::open_file::OpenFile;
use crate::content::write::When;
use crate::fail_fast::Unanswered as _;
use crate::outcomes::Outcomes;
use crate::{Error, Filesystem, Result};

/// Files stored at the same time by a sync: for many small files the store's latency dominates, and the parts of large files
/// are limited over all files.
const PUBLISHED_AT_ONCE: usize = 16;

impl Filesystem {
    /// Makes names and attributes changed so far survive the loss of power.
    pub async fn sync_names(&self) -> Result<()> {
        if self.config.write_back {
            // The write-back log has names and data in one order.
            return Ok(self.store.sync().await?);
        }
        let engine = self.names.engine().clone();
        let synced = store::blocking(move || Ok(engine.sync())).await;
        synced
            .map_err(|_| Error::new(libc::EIO, "the sync was interrupted"))?
            .map_err(|error| meta::FsError::from(error).into())
    }

    /// Like `sync_names`, before a deletion or an answer that relies on the names. Returns at once in write-back mode, whose
    /// log keeps the order.
    pub(crate) async fn sync_names_unless_write_back(&self) -> Result<()> {
        if self.config.write_back { Ok(()) } else { self.sync_names().await }
    }

    /// Publishes all unpublished writes, exports all pending attributes and deletes unused objects. Tries everything unless the
    /// store does not answer; returns the first error.
    pub async fn sync(&self) -> Result<()> {
        self.sync_as(When::Open).await
    }

    async fn sync_as(&self, when: When) -> Result<()> {
        let mut outcome = self.publish_all(when).await;
        outcome = outcome.and(self.flush_access_times());
        if !outcome.as_ref().is_err_and(Error::is_unanswered) {
            self.discards.wait_until_drained().await;
            outcome = outcome.and(self.store.sync().await.map_err(Error::from));
        }
        outcome.and(self.sync_names().await)
    }

    async fn publish_all(&self, when: When) -> Result<()> {
        let outcomes = Outcomes::default();
        let publish = |file: Arc<OpenFile>| {
            let outcomes = &outcomes;
            async move { outcomes.add(self.commit(&file, when)).await }
        };
        futures_util::stream::iter(self.files.all()).for_each_concurrent(PUBLISHED_AT_ONCE, publish).await;
        let published = outcomes.into_result();
        if published.as_ref().is_err_and(Error::is_unanswered) {
            return published;
        }
        published.and(self.export_all().await)
    }

    /// Syncs for at most `patience` and lets pending renames move. The log then names the files that are not stored.
    pub async fn shutdown(&self, patience: Duration) -> Result<()> {
        let late = || Error::new(libc::ETIMEDOUT, "not all files could be stored before the timeout");
        let Some(me) = self.me.upgrade() else { return Err(late()) };
        // The sync runs in a task of its own: a cancelled commit would lose the writes that it was storing.
        let syncing = tokio::spawn(async move {
            let synced = me.sync_as(When::Closed).await;
            me.moves_rest().await;
            synced
        });
        let outcome = match tokio::time::timeout(patience, syncing).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) | Err(_) => Err(late()),
        };
        if outcome.is_err() {
            for file in self.files.all().iter().filter(|file| file.pending().is_dirty) {
                tracing::error!(path = %self.path_for_log(file.ino), "the file's last writes are not stored yet");
            }
        }
        outcome
    }
}
