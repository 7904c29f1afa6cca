//! Files that stay open for long are stored now and then while they are written, so that others see them grow (DelveFS,
//! section V: "uploading objects during the writing process in intervals").
//!
//! Owns when. How is the commit's, in the order and with the conflicts that a `close` has.

use futures_util::StreamExt as _;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::content::open_file::{FileHandle, OpenFile};
use crate::content::write::When;
use crate::{Error, Filesystem, Result};

/// How often it is looked at the latest whether something is due.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Files stored at the same time.
const FILES_AT_ONCE: usize = 4;

impl Filesystem {
    /// From now on, and for as long as the file system is there, what a program wrote is stored so long after, whether it has
    /// closed the file or not.
    pub fn publish_in_background(&self, after: Duration) {
        if !after.is_zero() {
            let me = self.me.clone();
            tokio::spawn(store::supervise("publishing", move || publish(me.clone(), after)));
        }
    }

    /// Stores every file that was first written so long ago since it was stored last.
    pub async fn publish_written(&self, after: Duration) {
        let now = self.now();
        // A wall-clock time in the future is one from before the clock was set back.
        let is_due = |file: &OpenFile| {
            file.edited_since().is_some_and(|since| now < since || now.since(since) >= after)
        };
        let due = self.files.all().into_iter().filter(|file| is_due(file));
        let publish = |file: Arc<OpenFile>| async move { self.publish_open(&file).await };
        futures_util::stream::iter(due).for_each_concurrent(FILES_AT_ONCE, publish).await;
    }

    /// By path others see nothing of what lies beside, as it does after an `fsync`: it is stored as when it is closed.
    async fn publish_open(&self, file: &OpenFile) {
        if let Err(error) = self.commit(file, When::Closed).await {
            let path = self.shown(file.ino);
            tracing::warn!(path, %error, "a file that is being written was not stored");
            if matches!(error, Error::Stale(_)) && !file.pending().is_edited {
                file.lost_unheard();
            }
        }
        file.put_off(self.now());
    }
}

/// An error for who goes on with a file whose writes lost in a conflict meanwhile.
pub(crate) fn must_not_have_lost(handle: &FileHandle) -> Result<()> {
    match handle.has_lost() {
        true => Err(Error::Stale(
            "the object was changed in the bucket while its file was written; open it again".into(),
        )),
        false => Ok(()),
    }
}

async fn publish(fs: Weak<Filesystem>, after: Duration) {
    loop {
        tokio::time::sleep(after.min(LOOK_EVERY)).await;
        let Some(fs) = fs.upgrade() else { return };
        fs.publish_written(after).await;
    }
}
