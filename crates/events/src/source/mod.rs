//! Where events come from.

mod beanstalkd;
mod broker;
mod open;
mod sqs;
mod webhook;

#[cfg(feature = "fuzz")]
pub use beanstalkd::fuzz_jobs;
pub use broker::{BrokerAccess, Login, open_broker};
pub use open::{SourceAccess, open};
pub(crate) use webhook::ATTRIBUTE_PREFIX;
pub use webhook::WebhookSource;

use bytes::Bytes;
use std::fmt;

/// A queue, stream or subscription of messages, each of which says what happened to objects.
///
/// At least once: what was received and not acknowledged comes again, to this source or to another that shares the work, after
/// the connection or the process ended.
#[async_trait::async_trait]
pub trait Source: Send + fmt::Debug {
    /// Waits for messages: one at least, `max` at most, in the order of the source; none only where `take_lost` has something to
    /// say. May be dropped while it waits; nothing is lost by that.
    ///
    /// # Errors
    /// Whatever ends the connection. Whoever asks waits a little and asks again, which connects anew.
    async fn receive(&mut self, max: usize) -> Result<Vec<Message>, SourceError>;

    /// Says that everything received so far was processed, durably.
    ///
    /// # Errors
    /// As `receive`; the messages then come again.
    async fn acknowledge(&mut self) -> Result<(), SourceError>;

    /// How many messages are there that nobody has received yet, as the source tells it; `None` if it does not tell, or is not
    /// connected.
    ///
    /// # Errors
    /// As `receive`.
    async fn waiting(&mut self) -> Result<Option<u64>, SourceError> {
        Ok(None)
    }

    /// Whether messages may have been lost since this was last asked, so that somebody has to list again. Only of sources that
    /// nobody keeps anything for; asked after `receive`.
    fn take_lost(&mut self) -> bool {
        false
    }
}

/// One message: events in some dialect.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Message {
    /// What it says.
    pub body: Bytes,
    /// What the transport says besides: header names in lower case.
    pub attributes: Vec<(String, String)>,
}

impl From<Bytes> for Message {
    fn from(body: Bytes) -> Self {
        Self { body, attributes: Vec::new() }
    }
}

/// A source that could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It may go well later.
    #[error("{0}")]
    Unavailable(String),
    /// It will not go well without somebody's help.
    #[error("{0}")]
    Refused(String),
}
