//! A source that reads a JetStream stream through a durable consumer, which all sources that share the work use.
//!
//! Each message is acknowledged separately: acknowledging the last one for all before it would include messages that other sources of
//! the consumer are still processing. Only the last acknowledgement of a batch waits for a response. The server reads
//! acknowledgements in order, so this response confirms the earlier ones too.

use super::{Link, to_message};
use crate::broker::broker_url::BrokerUrl;
use crate::broker::connection::{TIMEOUT, take_ready, with_timeout};
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::{self, ErrorCode, message::Acker};
use events::{Message, Source, SourceError};
use futures_util::StreamExt;
use std::time::Duration;

/// Time after which a message that was not acknowledged is delivered to another source.
const ACK_TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum number of unacknowledged messages of a consumer, over all its sources.
const UNACKNOWLEDGED_MAX: i64 = 65_536;

/// Number of messages requested at a time. The client requests more when half of them have been read.
const PULL_MAX: usize = 1024;

/// Time for which JetStream holds a request for messages.
const PULL_EXPIRES: Duration = Duration::from_secs(30);
/// Interval of JetStream's heartbeats while it holds a request.
const HEARTBEAT: Duration = Duration::from_secs(3);

/// The source of a stream.
#[derive(Debug)]
pub(super) struct JetStreamSource {
    url: BrokerUrl,
    consumer: String,
    subject: Option<String>,
    session: Option<Session>,
}

struct Session {
    link: Link,
    consumer: PullConsumer,
    messages: pull::Stream,
    unacknowledged: Vec<Acker>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("unacknowledged", &self.unacknowledged.len()).finish_non_exhaustive()
    }
}

impl JetStreamSource {
    pub(super) fn new(consumer: String, subject: Option<String>, url: BrokerUrl) -> Self {
        Self { url, consumer, subject, session: None }
    }

    async fn open_session(&self) -> Result<Session, SourceError> {
        let link = Link::connect(&self.url).await?;
        let consumer = with_timeout(&self.url, self.consumer(&link)).await??;
        let messages =
            consumer.stream().max_messages_per_batch(PULL_MAX).expires(PULL_EXPIRES).heartbeat(HEARTBEAT);
        let messages = with_timeout(&self.url, messages.messages()).await?;
        let messages = messages.map_err(|error| self.url.unavailable(error))?;
        Ok(Session { link, consumer, messages, unacknowledged: Vec::new() })
    }

    /// Returns the durable consumer, and creates it unless it exists.
    async fn consumer(&self, link: &Link) -> Result<PullConsumer, SourceError> {
        let (stream, name) = (&self.url.path, &self.consumer);
        let mut context = jetstream::new(link.client.clone());
        context.set_timeout(TIMEOUT);
        let found = context.get_stream(stream).await.map_err(|error| match error.kind() {
            GetStreamErrorKind::JetStream(reply) if reply.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                let make = "make it (nats stream add), or name another";
                self.url.refused(format_args!("there is no stream '{stream}': {make}"))
            }
            GetStreamErrorKind::InvalidStreamName => {
                self.url.refused(format_args!("'{stream}' is not a valid name of a stream"))
            }
            _ => self.url.unavailable(error),
        })?;
        let config = self.consumer_config();
        let consumer = found.get_or_create_consumer(name, config.clone()).await;
        let consumer: PullConsumer = consumer.map_err(|error| {
            let reason = format!("cannot use the consumer '{name}': {error}");
            if self.is_refusal(&error) { self.url.refused(reason) } else { self.url.unavailable(reason) }
        })?;
        let is = &consumer.cached_info().config;
        if is.ack_policy == config.ack_policy && is.filter_subject == config.filter_subject {
            return Ok(consumer);
        }
        let reason = "has another configuration than needed (explicit acknowledgement, the URL's subject)";
        Err(self.url.refused(format_args!(
            "the consumer '{name}' {reason}: name another consumer, or delete this one"
        )))
    }

    fn consumer_config(&self) -> pull::Config {
        pull::Config {
            durable_name: Some(self.consumer.clone()),
            description: Some("tenon: events of objects".to_owned()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: ACK_TIMEOUT,
            max_ack_pending: UNACKNOWLEDGED_MAX,
            filter_subject: self.subject.clone().unwrap_or_default(),
            ..pull::Config::default()
        }
    }

    /// Returns whether a retry would be useless.
    fn is_refusal(&self, error: &jetstream::stream::ConsumerError) -> bool {
        use jetstream::stream::ConsumerErrorKind::{InvalidConsumerType, InvalidName, JetStream};
        matches!(error.kind(), InvalidConsumerType | InvalidName | JetStream(_))
    }
}

#[async_trait::async_trait]
impl Source for JetStreamSource {
    async fn receive(&mut self, max: usize) -> Result<Vec<Message>, SourceError> {
        if self.session.is_none() {
            self.session = Some(self.open_session().await?);
        }
        let Some(session) = &mut self.session else { return Ok(Vec::new()) };
        let next = session.link.while_connected(&self.url, session.messages.next()).await;
        let first = match next {
            Ok(Some(Ok(first))) => first,
            Ok(Some(Err(error))) => return Err(self.end_session(error)),
            Ok(None) => return Err(self.end_session("the consumer ended")),
            Err(error) => {
                self.session = None;
                return Err(error);
            }
        };
        let mut messages = Vec::new();
        for one in take_ready(first, &mut session.messages, max) {
            let (one, acker) = one.split();
            session.unacknowledged.push(acker);
            messages.push(to_message(one));
        }
        Ok(messages)
    }

    async fn acknowledge(&mut self) -> Result<(), SourceError> {
        let Some(session) = &mut self.session else { return Ok(()) };
        let Some((last, before)) = session.unacknowledged.split_last() else { return Ok(()) };
        let all = async {
            for one in before {
                one.ack().await?;
            }
            last.double_ack().await
        };
        match with_timeout(&self.url, all).await {
            Ok(Ok(())) => session.unacknowledged.clear(),
            Ok(Err(error)) => return Err(self.end_session(error)),
            Err(error) => {
                self.session = None;
                return Err(error);
            }
        }
        Ok(())
    }

    async fn waiting(&mut self) -> Result<Option<u64>, SourceError> {
        let Some(session) = &self.session else { return Ok(None) };
        let info = with_timeout(&self.url, session.consumer.get_info()).await?;
        Ok(Some(info.map_err(|error| self.url.unavailable(error))?.num_pending))
    }
}

impl JetStreamSource {
    fn end_session(&mut self, reason: impl std::fmt::Display) -> SourceError {
        self.session = None;
        self.url.unavailable(reason)
    }
}
