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

    /// Publishes every file's writes, exports every attribute that waits, and deletes what nothing refers to. Tries all;
    /// returns the first error.
    pub async fn sync(&self) -> Result<()> {
        self.sync_as(When::Open).await
    }

    async fn sync_as(&self, when: When) -> Result<()> {
        let mut outcome = Ok(());
        for file in self.files.all() {
            outcome = outcome.and(self.commit(&file, when).await);
        }
        for ino in self.exports.all() {
            outcome = outcome.and(self.export_now(ino).await);
        }
        outcome = outcome.and(self.name_access_times());
        self.discards.drained().await;
        let outcome = outcome.and(self.store.sync().await.map_err(Error::from));
        outcome.and(self.sync_names().await)
    }

    /// Syncs, for at most `patience`.
    pub async fn shutdown(&self, patience: Duration) -> Result<()> {
        let outcome = tokio::time::timeout(patience, self.sync_as(When::Closed)).await;
        outcome.unwrap_or(Err(Error::new(libc::ETIMEDOUT, "not everything was stored in the time allowed")))
    }
}
