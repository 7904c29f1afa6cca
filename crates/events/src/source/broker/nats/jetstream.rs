//! A stream that JetStream keeps, through a durable consumer that all who share the work have.
//!
//! Each message is acknowledged by itself: the cheaper way, the last one for all before it, would acknowledge what the others who
//! share the consumer are still working at. The last acknowledgement of a batch waits for an answer, and with it those before it
//! are known to have come, for the server reads them in their order.

use super::{Link, message};
use crate::source::broker::broker_url::Place;
use crate::source::broker::connection::{PATIENCE, with_ready, within};
use crate::source::{Message, Source, SourceError};
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::{self, ErrorCode, message::Acker};
use futures_util::StreamExt;
use std::time::Duration;

/// A message that was not acknowledged after this goes to somebody else.
const DEAD: Duration = Duration::from_secs(20);

/// How many messages all who share a consumer may have at a time.
const UNACKNOWLEDGED_MAX: i64 = 65_536;

/// How many messages are asked for at a time; half of them are asked for while the others wait here.
const PULLED: usize = 1024;

/// How long JetStream keeps a question for messages open, and how often it says that it is there meanwhile.
const WAIT: Duration = Duration::from_secs(30);
const HEARTBEAT: Duration = Duration::from_secs(3);

/// A stream's source.
#[derive(Debug)]
pub(super) struct Durable {
    place: Place,
    consumer: String,
    subject: Option<String>,
    share: Option<Share>,
}

struct Share {
    link: Link,
    consumer: PullConsumer,
    messages: pull::Stream,
    handed: Vec<Acker>,
}

impl std::fmt::Debug for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Share").field("handed", &self.handed.len()).finish_non_exhaustive()
    }
}

impl Durable {
    pub(super) fn new(consumer: String, subject: Option<String>, place: Place) -> Self {
        Self { place, consumer, subject, share: None }
    }

    async fn join(&self) -> Result<Share, SourceError> {
        let link = Link::connect(&self.place).await?;
        let consumer = within(&self.place, self.consumer(&link)).await??;
        let messages = consumer.stream().max_messages_per_batch(PULLED).expires(WAIT).heartbeat(HEARTBEAT);
        let messages = within(&self.place, messages.messages()).await?;
        let messages = messages.map_err(|error| self.place.unavailable(error))?;
        Ok(Share { link, consumer, messages, handed: Vec::new() })
    }

    /// The durable consumer, made unless it is there.
    async fn consumer(&self, link: &Link) -> Result<PullConsumer, SourceError> {
        let (stream, name) = (&self.place.path, &self.consumer);
        let mut context = jetstream::new(link.client.clone());
        context.set_timeout(PATIENCE);
        let found = context.get_stream(stream).await.map_err(|error| match error.kind() {
            GetStreamErrorKind::JetStream(said) if said.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                let make = "make it (nats stream add), or name another";
                self.place.refused(format_args!("there is no stream '{stream}': {make}"))
            }
            GetStreamErrorKind::InvalidStreamName => {
                self.place.refused(format_args!("'{stream}' is no stream's name"))
            }
            _ => self.place.unavailable(error),
        })?;
        let wanted = self.wanted();
        let consumer = found.get_or_create_consumer(name, wanted.clone()).await;
        let consumer: PullConsumer = consumer.map_err(|error| {
            let reason = format!("no consumer '{name}': {error}");
            if self.is_refusal(&error) { self.place.refused(reason) } else { self.place.unavailable(reason) }
        })?;
        let is = &consumer.cached_info().config;
        if is.ack_policy == wanted.ack_policy && is.filter_subject == wanted.filter_subject {
            return Ok(consumer);
        }
        let reason = "is there and is not one as is wanted (explicit acknowledgement, the URL's subject)";
        Err(self.place.refused(format_args!("the consumer '{name}' {reason}: name another, or delete it")))
    }

    fn wanted(&self) -> pull::Config {
        pull::Config {
            durable_name: Some(self.consumer.clone()),
            description: Some("tenon: events of objects".to_owned()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: DEAD,
            max_ack_pending: UNACKNOWLEDGED_MAX,
            filter_subject: self.subject.clone().unwrap_or_default(),
            ..pull::Config::default()
        }
    }

    /// Whether trying again is of no use.
    fn is_refusal(&self, error: &jetstream::stream::ConsumerError) -> bool {
        use jetstream::stream::ConsumerErrorKind::{InvalidConsumerType, InvalidName, JetStream};
        matches!(error.kind(), InvalidConsumerType | InvalidName | JetStream(_))
    }
}

#[async_trait::async_trait]
impl Source for Durable {
    async fn receive(&mut self, max: usize) -> Result<Vec<Message>, SourceError> {
        if self.share.is_none() {
            self.share = Some(self.join().await?);
        }
        let Some(share) = &mut self.share else { return Ok(Vec::new()) };
        let next = share.link.until_it_ends(&self.place, share.messages.next()).await;
        let first = match next {
            Ok(Some(Ok(first))) => first,
            Ok(Some(Err(error))) => return Err(self.end(error)),
            Ok(None) => return Err(self.end("the consumer ended")),
            Err(error) => {
                self.share = None;
                return Err(error);
            }
        };
        let mut messages = Vec::new();
        for one in with_ready(first, &mut share.messages, max) {
            let (one, acker) = one.split();
            share.handed.push(acker);
            messages.push(message(one));
        }
        Ok(messages)
    }

    async fn acknowledge(&mut self) -> Result<(), SourceError> {
        let Some(share) = &mut self.share else { return Ok(()) };
        let Some((last, before)) = share.handed.split_last() else { return Ok(()) };
        let all = async {
            for one in before {
                one.ack().await?;
            }
            last.double_ack().await
        };
        match within(&self.place, all).await {
            Ok(Ok(())) => share.handed.clear(),
            Ok(Err(error)) => return Err(self.end(error)),
            Err(error) => {
                self.share = None;
                return Err(error);
            }
        }
        Ok(())
    }

    async fn waiting(&mut self) -> Result<Option<u64>, SourceError> {
        let Some(share) = &self.share else { return Ok(None) };
        let info = within(&self.place, share.consumer.get_info()).await?;
        Ok(Some(info.map_err(|error| self.place.unavailable(error))?.num_pending))
    }
}

impl Durable {
    fn end(&mut self, reason: impl std::fmt::Display) -> SourceError {
        self.share = None;
        self.place.unavailable(reason)
    }
}
