//! Everything at once: publishing what waits, and the end.

use std::time::Duration;

use crate::{Error, Filesystem, Result};

impl Filesystem {
    /// Publishes every file's writes and exports every attribute that waits. Tries all; returns the first error.
    pub async fn sync(&self) -> Result<()> {
        let mut outcome = Ok(());
        for file in self.files.all() {
            outcome = outcome.and(self.commit(&file).await);
        }
        for ino in self.exports.all() {
            outcome = outcome.and(self.export_now(ino).await);
        }
        outcome
    }

    /// Syncs, for at most `patience`.
    pub async fn shutdown(&self, patience: Duration) -> Result<()> {
        let outcome = tokio::time::timeout(patience, self.sync()).await;
        outcome.unwrap_or(Err(Error::new(libc::ETIMEDOUT, "not everything was stored in the time allowed")))
    }
}
