//! Everything at once: publishing what waits, and the end.

use std::time::Duration;

use crate::write::When;
use crate::{Error, Filesystem, Result};

impl Filesystem {
    /// Names and attributes changed so far survive the loss of power when this returns.
    pub async fn sync_names(&self) -> Result<()> {
        if self.config.write_back {
            // Names and data are in one log.
            return Ok(self.store.sync().await?);
        }
        let engine = self.names.engine().clone();
        let synced = store::blocking(move || Ok(engine.sync())).await;
        synced
            .map_err(|_| Error::new(libc::EIO, "the sync was cut off"))?
            .map_err(|error| meta::FsError::from(error).into())
    }

    /// The same where an object is about to go, or an answer to come, that counts on names. With write-back the log has
    /// all of it in its order, and nobody waits.
    pub(crate) async fn names_first(&self) -> Result<()> {
        if self.config.write_back { Ok(()) } else { self.sync_names().await }
    }

    /// Publishes every file's writes, exports every attribute that waits, and deletes what nothing refers to. Tries all,
    /// unless the store does not answer; returns the first error.
    pub async fn sync(&self) -> Result<()> {
        self.sync_as(When::Open).await
    }

    async fn sync_as(&self, when: When) -> Result<()> {
        let mut outcome = self.publish_all(when).await;
        outcome = outcome.and(self.name_access_times());
        if !outcome.as_ref().is_err_and(Error::is_silence) {
            self.discards.drained().await;
            outcome = outcome.and(self.store.sync().await.map_err(Error::from));
        }
        outcome.and(self.sync_names().await)
    }

    async fn publish_all(&self, when: When) -> Result<()> {
        let mut outcome = Ok(());
        for file in self.files.all() {
            let published = self.commit(&file, when).await;
            if published.as_ref().is_err_and(Error::is_silence) {
                return published;
            }
            outcome = outcome.and(published);
        }
        for ino in self.exports.all() {
            let exported = self.export_now(ino).await;
            if exported.as_ref().is_err_and(Error::is_silence) {
                return exported;
            }
            outcome = outcome.and(exported);
        }
        outcome
    }

    /// Syncs, for at most `patience`, and has what was renamed move. The log names the files that are not stored then.
    pub async fn shutdown(&self, patience: Duration) -> Result<()> {
        let late = || Error::new(libc::ETIMEDOUT, "not everything was stored in the time allowed");
        let Some(me) = self.me.upgrade() else { return Err(late()) };
        // Whoever is cut off while he stores a file has its writes with him, so he goes on.
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
                tracing::error!(path = %self.shown(file.ino), "not stored yet");
            }
        }
        outcome
    }
}
