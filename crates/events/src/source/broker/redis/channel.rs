//! A channel, which nobody keeps: what is published while this is not connected, or faster than it is read, is lost.

use super::{Link, Server};
use crate::source::{Message, Source, SourceError};
use redis::{AsyncConnectionConfig, PushInfo, PushKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;

/// How many messages may wait to be received.
const WAITING_MAX: usize = 65_536;

/// A channel's source.
#[derive(Debug)]
pub(super) struct Subscribed {
    channel: Channel,
    subscription: Option<Subscription>,
}

#[derive(Debug)]
struct Channel {
    name: String,
    server: Server,
    /// Whether something may have been lost since this was last said.
    has_lost: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Subscription {
    _link: Link,
    messages: mpsc::Receiver<Message>,
}

impl Subscribed {
    pub(super) fn new(name: String, server: Server) -> Self {
        Self { channel: Channel { name, server, has_lost: Arc::default() }, subscription: None }
    }
}

impl Channel {
    async fn subscribe(&self) -> Result<Subscription, SourceError> {
        let (sender, messages) = mpsc::channel(WAITING_MAX);
        let has_lost = self.has_lost.clone();
        // The sender goes with the connection, which ends the receiver.
        let push = move |push: PushInfo| -> Result<(), mpsc::error::SendError<()>> {
            let Some(message) = published(push) else { return Ok(()) };
            if sender.try_send(message).is_err() {
                has_lost.store(true, Ordering::Relaxed);
            }
            Ok(())
        };
        let config = AsyncConnectionConfig::new().set_push_sender(push);
        let mut link = self.server.connect(config).await?;
        let subscribed = link.connection.subscribe(&self.name).await;
        subscribed.map_err(|error| self.server.error(&error))?;
        // What was published until now nobody kept.
        self.has_lost.store(true, Ordering::Relaxed);
        Ok(Subscription { _link: link, messages })
    }
}

#[async_trait::async_trait]
impl Source for Subscribed {
    async fn receive(&mut self, max: usize) -> Result<Vec<Message>, SourceError> {
        if self.subscription.is_none() {
            self.subscription = Some(self.channel.subscribe().await?);
            return Ok(Vec::new());
        }
        let Some(subscription) = &mut self.subscription else { return Ok(Vec::new()) };
        let mut messages = Vec::new();
        if subscription.messages.recv_many(&mut messages, max).await > 0 {
            return Ok(messages);
        }
        self.subscription = None;
        Err(self.channel.server.place.unavailable("the connection ended"))
    }

    async fn acknowledge(&mut self) -> Result<(), SourceError> {
        Ok(())
    }

    fn take_lost(&mut self) -> bool {
        self.channel.has_lost.swap(false, Ordering::Relaxed)
    }
}

/// The message in what the server sent unasked: its channel, and its bytes.
fn published(push: PushInfo) -> Option<Message> {
    if push.kind != PushKind::Message {
        return None;
    }
    let body = push.data.into_iter().nth(1)?;
    super::bytes(body).map(Message::from)
}
