//! Sources of events.

use bytes::Bytes;
use std::fmt;

/// A queue, stream or subscription of messages, each of which says what happened to objects.
///
/// Delivery is at least once: a message that was received and not acknowledged is delivered again after the connection or the process
/// has ended, to this source or to another one that shares the queue.
#[async_trait::async_trait]
pub trait Source: Send + fmt::Debug {
    /// Waits for messages and returns at least one and at most `max`, in the order of the source. Returns none only if `take_lost` has
    /// something to report. The future may be dropped while it waits without losing messages.
    ///
    /// # Errors
    /// The connection has ended. The caller pauses and calls again, which connects anew.
    async fn receive(&mut self, max: usize) -> Result<Vec<Message>, SourceError>;

    /// Acknowledges that everything received so far was processed durably.
    ///
    /// # Errors
    /// As for `receive`; the messages are then delivered again.
    async fn acknowledge(&mut self) -> Result<(), SourceError>;

    /// Returns the number of messages in the queue that no reader has received yet, as the source reports it. `None` if
    /// the source does not report it or is not connected.
    ///
    /// # Errors
    /// As for `receive`.
    async fn waiting(&mut self) -> Result<Option<u64>, SourceError> {
        Ok(None)
    }

    /// Returns whether messages may have been lost since the last call, so that the objects must be listed again, and
    /// resets this. Messages are lost by sources without storage, and by sources whose broker removes old messages.
    /// Called after `receive`.
    fn take_lost(&mut self) -> bool {
        false
    }
}

/// A message: events in some dialect.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Message {
    /// The content of the message.
    pub body: Bytes,
    /// Attributes that the transport carries besides the content, with names in lower case.
    pub attributes: Vec<(String, String)>,
}

impl From<Bytes> for Message {
    fn from(body: Bytes) -> Self {
        Self { body, attributes: Vec::new() }
    }
}

/// An error of a source.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The source is unavailable; a retry may succeed.
    #[error("{0}")]
    Unavailable(String),
    /// The source refuses; a retry fails until somebody fixes the cause.
    #[error("{0}")]
    Refused(String),
}
