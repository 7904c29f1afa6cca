//! The mark up to which the names have been backed up.

use meta::Seqno;
use tokio::sync::{Notify, watch};

/// The newest commit of which a backup of the names exists. Content that older commits refer to may be deleted only after the commit
/// that released it is in the backup.
#[derive(Debug)]
pub struct ExportMark {
    /// The newest commit that is in a backup of the names.
    exported: watch::Sender<Seqno>,
    /// Notified when a backup is wanted before its time.
    requested: Notify,
}

impl Default for ExportMark {
    fn default() -> Self {
        Self { exported: watch::Sender::new(Seqno(0)), requested: Notify::new() }
    }
}

impl ExportMark {
    /// Raises the mark to a commit. A lower mark is ignored.
    pub fn advance(&self, to: Seqno) {
        self.exported.send_if_modified(|exported| {
            let is_higher = to > *exported;
            *exported = to.max(*exported);
            is_higher
        });
    }

    /// Returns when a backup is wanted before its time.
    pub async fn requested(&self) {
        self.requested.notified().await;
    }

    /// Requests a backup before its time.
    pub(crate) fn request(&self) {
        self.requested.notify_one();
    }

    /// Returns when the mark has reached a commit.
    pub(crate) async fn reached(&self, commit: Seqno) {
        let mut receiver = self.exported.subscribe();
        // The sender is a field of `self`, so that the channel stays open.
        let _is_open = receiver.wait_for(|exported| *exported >= commit).await.is_ok();
    }
}
