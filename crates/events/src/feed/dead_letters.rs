//! The dead letters of a feed: messages that cannot be read, kept for inspection.

use super::status::Counters;
use crate::Message;
use crate::dead_letter::{self, DeadLetter};
use std::path::PathBuf;
use std::sync::Arc;
use store::Timestamp;

/// The dead-letter file of a feed.
#[derive(Debug)]
pub(super) struct DeadLetterFile {
    pub(super) path: PathBuf,
    pub(super) counters: Arc<Counters>,
}

impl DeadLetterFile {
    /// Appends a message to the file. A failure is counted and logged, and the feed goes on.
    pub(super) async fn append(&self, source: &str, reason: &str, message: &Message, now: Timestamp) {
        let line = DeadLetter::of(source, Some(reason), message, now).line();
        let kept = dead_letter::append(&self.path, &line).await;
        if let Err(error) = &kept {
            tracing::error!(
                source,
                "an unreadable message is lost, because the dead-letter file cannot be written: {}: {error}",
                self.path.display()
            );
        }
        self.counters.add_unreadable(kept.is_ok());
    }
}
