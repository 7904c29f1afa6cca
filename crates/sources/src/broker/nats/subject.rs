//! A source that subscribes to a plain subject. NATS does not store its messages: whatever is published while the source is not
//! connected, or faster than it is read, is lost.

use super::{Link, to_message};
use crate::broker::broker_url::BrokerUrl;
use crate::broker::connection::with_timeout;
use async_nats::Subscriber;
use events::{Message, Source, SourceError};
use futures_util::{FutureExt, StreamExt};
use std::sync::atomic::Ordering;

/// The source of a subject.
#[derive(Debug)]
pub(super) struct SubjectSource {
    url: BrokerUrl,
    subject: String,
    /// The queue group: each message goes to one of the subscribers with the same group name.
    queue: Option<String>,
    subscription: Option<(Link, Subscriber)>,
    is_new_subscription: bool,
}

impl SubjectSource {
    pub(super) fn new(subject: String, queue: Option<String>, url: BrokerUrl) -> Self {
        Self { url, subject, queue, subscription: None, is_new_subscription: false }
    }

    async fn subscribe(&self) -> Result<(Link, Subscriber), SourceError> {
        let link = Link::connect(&self.url).await?;
        let subject = self.subject.clone();
        let subscribed = match self.queue.clone() {
            Some(queue) => link.client.queue_subscribe(subject, queue).await,
            None => link.client.subscribe(subject).await,
        };
        let refused =
            |error| self.url.refused(format_args!("cannot subscribe to '{}': {error}", self.subject));
        let subscriber = subscribed.map_err(refused)?;
        let known = with_timeout(&self.url, link.client.flush()).await?;
        known.map_err(|error| self.url.unavailable(error))?;
        Ok((link, subscriber))
    }
}

#[async_trait::async_trait]
impl Source for SubjectSource {
    async fn receive(&mut self, max: usize) -> Result<Vec<Message>, SourceError> {
        if self.subscription.is_none() {
            self.subscription = Some(self.subscribe().await?);
            // Messages published before the subscription are lost.
            self.is_new_subscription = true;
            return Ok(Vec::new());
        }
        let Some((link, subscriber)) = &mut self.subscription else { return Ok(Vec::new()) };
        let mut next = link.while_connected(&self.url, subscriber.next()).await.ok().flatten();
        let mut messages = Vec::new();
        while let Some(one) = next {
            messages.push(to_message(one));
            let is_more = messages.len() < max;
            next = is_more.then(|| subscriber.next().now_or_never()).flatten().flatten();
        }
        if messages.is_empty() {
            self.subscription = None;
            return Err(self.url.unavailable("the connection ended"));
        }
        Ok(messages)
    }

    async fn acknowledge(&mut self) -> Result<(), SourceError> {
        Ok(())
    }

    fn take_lost(&mut self) -> bool {
        let overflown = |(link, _): &(Link, Subscriber)| link.has_overflown.swap(false, Ordering::Relaxed);
        let has_overflown = self.subscription.as_ref().is_some_and(overflown);
        std::mem::take(&mut self.is_new_subscription) || has_overflown
    }
}
