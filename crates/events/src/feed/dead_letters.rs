//! Messages that nobody can read, kept for people.

use super::status::Counters;
use crate::Message;
use crate::letter::{self, Letter};
use std::path::PathBuf;
use std::sync::Arc;
use store::Timestamp;

/// Where they go.
#[derive(Debug)]
pub(super) struct DeadLetters {
    pub(super) path: PathBuf,
    pub(super) counters: Arc<Counters>,
}

impl DeadLetters {
    /// Keeps a message. If that fails nobody waits for it: it is counted, and in the log.
    pub(super) async fn put(&self, source: &str, reason: &str, message: &Message, now: Timestamp) {
        let line = Letter::of(source, Some(reason), message, now).line();
        let kept = letter::append(&self.path, &line).await;
        if let Err(error) = &kept {
            tracing::error!(source, "an unreadable message is lost: {}: {error}", self.path.display());
        }
        self.counters.unreadable(kept.is_ok());
    }
}
