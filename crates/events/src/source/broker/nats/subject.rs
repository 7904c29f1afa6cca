//! A plain subject, which nobody keeps: what is published while this is not connected, or faster than it is read, is lost.

use super::{Link, message};
use crate::source::broker::broker_url::Place;
use crate::source::broker::connection::within;
use crate::source::{Message, Source, SourceError};
use async_nats::Subscriber;
use futures_util::{FutureExt, StreamExt};
use std::sync::atomic::Ordering;

/// A subject's source.
#[derive(Debug)]
pub(super) struct Subscribed {
    place: Place,
    subject: String,
    /// Of those who subscribe with one name each message goes to one.
    queue: Option<String>,
    subscription: Option<(Link, Subscriber)>,
    is_anew: bool,
}

impl Subscribed {
    pub(super) fn new(subject: String, queue: Option<String>, place: Place) -> Self {
        Self { place, subject, queue, subscription: None, is_anew: false }
    }

    async fn subscribe(&self) -> Result<(Link, Subscriber), SourceError> {
        let link = Link::connect(&self.place).await?;
        let subject = self.subject.clone();
        let subscribed = match self.queue.clone() {
            Some(queue) => link.client.queue_subscribe(subject, queue).await,
            None => link.client.subscribe(subject).await,
        };
        let refused =
            |error| self.place.refused(format_args!("cannot subscribe to '{}': {error}", self.subject));
        let subscriber = subscribed.map_err(refused)?;
        let known = within(&self.place, link.client.flush()).await?;
        known.map_err(|error| self.place.unavailable(error))?;
        Ok((link, subscriber))
    }
}

#[async_trait::async_trait]
impl Source for Subscribed {
    async fn receive(&mut self, max: usize) -> Result<Vec<Message>, SourceError> {
        if self.subscription.is_none() {
            self.subscription = Some(self.subscribe().await?);
            // What was published until now nobody kept.
            self.is_anew = true;
            return Ok(Vec::new());
        }
        let Some((link, subscriber)) = &mut self.subscription else { return Ok(Vec::new()) };
        let mut came = link.until_it_ends(&self.place, subscriber.next()).await.ok().flatten();
        let mut messages = Vec::new();
        while let Some(one) = came {
            messages.push(message(one));
            let is_more = messages.len() < max;
            came = is_more.then(|| subscriber.next().now_or_never()).flatten().flatten();
        }
        if messages.is_empty() {
            self.subscription = None;
            return Err(self.place.unavailable("the connection ended"));
        }
        Ok(messages)
    }

    async fn acknowledge(&mut self) -> Result<(), SourceError> {
        Ok(())
    }

    fn take_lost(&mut self) -> bool {
        let overflown = |(link, _): &(Link, Subscriber)| link.has_overflown.swap(false, Ordering::Relaxed);
        let has_overflown = self.subscription.as_ref().is_some_and(overflown);
        std::mem::take(&mut self.is_anew) || has_overflown
    }
}
