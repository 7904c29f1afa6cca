//! Messages that nobody can read, kept for people.

use super::status::Counters;
use crate::{Message, letters};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use store::Timestamp;

/// Where they go.
#[derive(Debug)]
pub(super) struct DeadLetters {
    pub(super) path: PathBuf,
    pub(super) counters: Arc<Counters>,
}

/// A line of the file.
#[derive(Serialize)]
struct Letter<'a> {
    /// When it was given up, ISO 8601.
    time: String,
    source: &'a str,
    reason: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    attributes: &'a [(String, String)],
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    /// Instead of `text`, for what is no UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

impl DeadLetters {
    /// Keeps a message. If that fails nobody waits for it: it is counted, and in the log.
    pub(super) async fn put(&self, source: &str, reason: &str, message: &Message, now: Timestamp) {
        let text = std::str::from_utf8(&message.body).ok();
        let letter = Letter {
            time: crate::aws::time_text(now),
            source,
            reason,
            attributes: &message.attributes,
            text,
            base64: text.is_none().then(|| BASE64_STANDARD.encode(&message.body)),
        };
        // Texts alone cannot fail to be written.
        let mut line = serde_json::to_vec(&letter).unwrap_or_default();
        line.push(b'\n');
        let kept = letters::append(&self.path, &line).await;
        if let Err(error) = &kept {
            tracing::error!(source, "an unreadable message is lost: {}: {error}", self.path.display());
        }
        self.counters.unreadable(kept.is_ok());
    }
}
