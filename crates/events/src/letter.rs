//! Letters: messages kept in a file, a line of JSON each. Those that could not be read or delivered are dead letters; others somebody
//! had recorded.

use crate::Message;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use store::Timestamp;
use tokio::fs::{File, OpenOptions};
use tokio::io::AsyncWriteExt as _;

/// The longest file of dead letters.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// A line of such a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Letter {
    /// When it was given up or recorded, ISO 8601.
    #[serde(default)]
    time: String,
    #[serde(default)]
    source: String,
    /// Why it was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    attributes: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// Instead of `text`, for what is no UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

/// A line that is no letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is no line of a file of messages")]
pub struct NoLetter;

impl Letter {
    /// A message of a source, and why it was given up, if it was.
    pub fn of(source: &str, reason: Option<&str>, message: &Message, now: Timestamp) -> Self {
        let text = std::str::from_utf8(&message.body).ok();
        Self {
            time: crate::aws::time_text(now),
            source: source.to_owned(),
            reason: reason.map(str::to_owned),
            attributes: message.attributes.clone(),
            text: text.map(str::to_owned),
            base64: text.is_none().then(|| BASE64_STANDARD.encode(&message.body)),
        }
    }

    /// As it is written, with its line feed.
    pub fn line(&self) -> Vec<u8> {
        // Texts alone cannot fail to be written.
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }

    /// The message of a line: a letter's, or where a webhook could not deliver an event the line itself.
    pub fn message(line: &[u8]) -> Result<Message, NoLetter> {
        let letter: Self = serde_json::from_slice(line).map_err(|_| NoLetter)?;
        let body = match (letter.text, letter.base64) {
            (Some(text), None) => text.into(),
            (None, Some(base64)) => BASE64_STANDARD.decode(base64).map_err(|_| NoLetter)?.into(),
            (None, None) if crate::aws::parse(line).is_ok() => line.to_vec().into(),
            _ => return Err(NoLetter),
        };
        Ok(Message { body, attributes: letter.attributes })
    }
}

/// Adds a line, which ends with a line feed. The file is made when there is something to write; only who owns it can read it.
pub(crate) async fn append(path: &Path, line: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file: File = options.create(true).append(true).mode(0o600).open(path).await?;
    if file.metadata().await?.len() + line.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other("the file of dead letters is full; look at its lines and remove it"));
    }
    file.write_all(line).await?;
    file.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let attributes = vec![("eventType".to_owned(), "OBJECT_FINALIZE".to_owned())];
        for (body, attributes, reason) in [
            (&b"{\"a\": \"line\\n\xc3\xbc\"}\n"[..], Vec::new(), None),
            (b"\xff\x00", attributes.clone(), Some("it is no UTF-8")),
            (b"", attributes, Some("")),
        ] {
            let message = Message { body: body.into(), attributes };
            let line = Letter::of("webhook://x", reason, &message, Timestamp(0)).line();
            assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
            assert_eq!(Letter::message(&line), Ok(message));
        }
    }

    #[test]
    fn what_is_no_letter_is_none() {
        for line in ["", "{}", "[]", "text", r#"{"text":"a","base64":"YQ=="}"#, r#"{"base64":"%"}"#] {
            assert_eq!(Letter::message(line.as_bytes()), Err(NoLetter), "{line}");
        }
    }
}
