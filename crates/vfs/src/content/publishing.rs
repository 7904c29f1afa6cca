//! Background publishing: files that stay open for long are stored at intervals while they are written, so that other clients
//! see them grow (DelveFS, section V: "uploading objects during the writing process in intervals").
//!
//! Decides only when to store. The commit is the one that `close` makes, with the same order and conflict handling.

use futures_util::StreamExt as _;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::content::open_file::{FileHandle, OpenFile};
use crate::content::write::When;
use crate::content::write::publisher::Publisher;
use crate::{Error, Result};

/// Maximum interval between checks for files that are due.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Files stored at the same time.
const FILES_AT_ONCE: usize = 4;

impl Publisher {
    /// Starts storing the writes of open files once they are `after` old, until the file system is dropped. Does
    /// nothing if `after` is zero.
    pub fn publish_in_background(&self, after: Duration) {
        if !after.is_zero() {
            let me = self.me.clone();
            tokio::spawn(store::supervise("publishing", move || run_publishing(me.clone(), after)));
        }
    }

    /// Stores every file whose oldest unpublished write is at least `after` old.
    pub async fn publish_written(&self, after: Duration) {
        let now = self.mount.now();
        // A time in the future is from before the wall clock was set back.
        let is_due = |file: &OpenFile| {
            file.edited_since().is_some_and(|since| now < since || now.since(since) >= after)
        };
        let due = self.content.files().all().into_iter().filter(|file| is_due(file));
        let publish = |file: Arc<OpenFile>| async move { self.publish_open(&file).await };
        futures_util::stream::iter(due).for_each_concurrent(FILES_AT_ONCE, publish).await;
    }

    /// Stores an open file as `close` does. To store it as `fsync` does would not be enough: other clients do not see
    /// the deltas that an `fsync` stores.
    async fn publish_open(&self, file: &OpenFile) {
        if let Err(error) = self.commit(file, When::Closed).await {
            let path = self.names.path_for_log(file.ino);
            tracing::warn!(path, %error, "cannot store an open file in the background; its writes, unless they lost in a conflict, are kept and stored later");
        }
        file.restart_age(self.mount.now());
    }
}

/// Fails with ESTALE if the handle's writes may have lost in a conflict that was not reported to it.
pub(crate) fn check_not_lost(handle: &FileHandle) -> Result<()> {
    match handle.has_unreported_loss() {
        true => Err(Error::Stale(
            "the object was changed in the bucket while its file was written, and the writes lost; open the file again".into(),
        )),
        false => Ok(()),
    }
}

/// Stores, again and again, the writes that are older than `after`, until the publisher is gone.
async fn run_publishing(publisher: Weak<Publisher>, after: Duration) {
    loop {
        tokio::time::sleep(after.min(CHECK_INTERVAL)).await;
        let Some(publisher) = publisher.upgrade() else { return };
        publisher.publish_written(after).await;
    }
}
