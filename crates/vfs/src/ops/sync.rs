//! Everything at once: publishing what waits, and the end.

use futures_util::StreamExt as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::content::open_file::OpenFile;
use crate::content::write::When;
use crate::turns::Silence as _;
use crate::{Error, Filesystem, Result};

/// Files that a sync stores at the same time: for many small files the store's latency counts, and the parts of large
/// ones are bounded over all files.
const PUBLISHED_AT_ONCE: usize = 16;

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
        outcome = outcome.and(self.flush_access_times());
        if !outcome.as_ref().is_err_and(Error::is_silence) {
            self.discards.drained().await;
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
        if published.as_ref().is_err_and(Error::is_silence) {
            return published;
        }
        published.and(self.export_all().await)
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

/// The first error of many calls, some of which run at the same time.
#[derive(Debug, Default)]
pub(crate) struct Outcomes(Mutex<Option<Error>>);

impl Outcomes {
    /// Makes a call and notes its outcome, unless the store did not answer an earlier one. A call that has begun is made to
    /// its end: one that is cut off loses the writes that it was storing.
    pub(crate) async fn add(&self, call: impl Future<Output = Result<()>>) {
        if self.first().as_ref().is_some_and(Error::is_silence) {
            return;
        }
        if let Err(error) = call.await {
            let mut first = self.first();
            if first.as_ref().is_none_or(|first| error.is_silence() && !first.is_silence()) {
                *first = Some(error);
            }
        }
    }

    /// That the store does not answer, or else the first error.
    pub(crate) fn into_result(self) -> Result<()> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    fn first(&self) -> MutexGuard<'_, Option<Error>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
