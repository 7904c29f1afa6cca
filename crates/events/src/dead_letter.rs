//! Dead letters: messages kept in a file, one line of JSON each, because they could not be read or delivered, or because a user
//! recorded them.

use crate::Message;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use store::Timestamp;
use tokio::fs::{File, OpenOptions};
use tokio::io::AsyncWriteExt as _;

/// Maximum length of a dead-letter file, in bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// A line of a file of dead letters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// The time at which the message was given up or recorded, in ISO 8601.
    #[serde(default)]
    time: String,
    #[serde(default)]
    source: String,
    /// The reason for giving the message up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    attributes: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// Replaces `text` if the body is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

/// The error for a line that is not a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the line is not a message of a dead-letter file or recording")]
pub struct NotADeadLetter;

impl DeadLetter {
    /// Makes a dead letter from a source's message. `reason` says why the message was given up, if it was.
    pub fn of(source: &str, reason: Option<&str>, message: &Message, now: Timestamp) -> Self {
        let text = std::str::from_utf8(&message.body).ok();
        Self {
            time: crate::aws::format_time(now),
            source: source.to_owned(),
            reason: reason.map(str::to_owned),
            attributes: message.attributes.clone(),
            text: text.map(str::to_owned),
            base64: text.is_none().then(|| BASE64_STANDARD.encode(&message.body)),
        }
    }

    /// Returns the line of the dead letter, with its line feed.
    pub fn line(&self) -> Vec<u8> {
        // Serialising plain strings cannot fail.
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }

    /// Returns the message of a line. The line may be a dead letter, or an event that a webhook could not deliver, which is itself the message.
    pub fn message(line: &[u8]) -> Result<Message, NotADeadLetter> {
        let dead_letter: Self = serde_json::from_slice(line).map_err(|_| NotADeadLetter)?;
        let body = match (dead_letter.text, dead_letter.base64) {
            (Some(text), None) => text.into(),
            (None, Some(base64)) => BASE64_STANDARD.decode(base64).map_err(|_| NotADeadLetter)?.into(),
            (None, None) if crate::aws::parse(line).is_ok() => line.to_vec().into(),
            _ => return Err(NotADeadLetter),
        };
        Ok(Message { body, attributes: dead_letter.attributes })
    }
}

/// Appends a line, which must end with a line feed. The file is created on first use, readable by its owner only.
/// Fails if the file would exceed its maximum length.
pub(crate) async fn append(path: &Path, line: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file: File = options.create(true).append(true).mode(0o600).open(path).await?;
    if file.metadata().await?.len() + line.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other("the dead-letter file is full; replay its messages, then remove it"));
    }
    file.write_all(line).await?;
    file.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_a_round_trip() {
        let attributes = vec![("eventType".to_owned(), "OBJECT_FINALIZE".to_owned())];
        for (body, attributes, reason) in [
            (&b"{\"a\": \"line\\n\xc3\xbc\"}\n"[..], Vec::new(), None),
            (b"\xff\x00", attributes.clone(), Some("it is not UTF-8")),
            (b"", attributes, Some("")),
        ] {
            let message = Message { body: body.into(), attributes };
            let line = DeadLetter::of("webhook://x", reason, &message, Timestamp(0)).line();
            assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
            assert_eq!(DeadLetter::message(&line), Ok(message));
        }
    }

    #[test]
    fn lines_that_are_no_dead_letters_are_refused() {
        for line in ["", "{}", "[]", "text", r#"{"text":"a","base64":"YQ=="}"#, r#"{"base64":"%"}"#] {
            assert_eq!(DeadLetter::message(line.as_bytes()), Err(NotADeadLetter), "{line}");
        }
    }
}
