//! A source that subscribes to a channel. Redis does not store its messages: whatever is published while the source is not connected,
//! or faster than it is read, is lost.

use super::{Link, Server};
use events::{Message, Source, SourceError};
use redis::{AsyncConnectionConfig, PushInfo, PushKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;

/// Maximum number of messages that wait to be received.
const WAITING_MAX: usize = 65_536;

/// The source of a channel.
#[derive(Debug)]
pub(super) struct ChannelSource {
    channel: Channel,
    subscription: Option<Subscription>,
}

#[derive(Debug)]
struct Channel {
    name: String,
    server: Server,
    /// Whether messages may have been lost since `take_lost` was last called.
    has_lost: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Subscription {
    _link: Link,
    messages: mpsc::Receiver<Message>,
}

impl ChannelSource {
    pub(super) fn new(name: String, server: Server) -> Self {
        Self { channel: Channel { name, server, has_lost: Arc::default() }, subscription: None }
    }
}

impl Channel {
    async fn subscribe(&self) -> Result<Subscription, SourceError> {
        let (sender, messages) = mpsc::channel(WAITING_MAX);
        let has_lost = self.has_lost.clone();
        // The sender is dropped with the connection, which ends the receiver.
        let push = move |push: PushInfo| -> Result<(), mpsc::error::SendError<()>> {
            let Some(message) = message_of_push(push) else { return Ok(()) };
            if sender.try_send(message).is_err() {
                has_lost.store(true, Ordering::Relaxed);
            }
            Ok(())
        };
        let config = AsyncConnectionConfig::new().set_push_sender(push);
        let mut link = self.server.connect(config).await?;
        let subscribed = link.connection.subscribe(&self.name).await;
        subscribed.map_err(|error| self.server.error(&error))?;
        // Messages published before the subscription are lost.
        self.has_lost.store(true, Ordering::Relaxed);
        Ok(Subscription { _link: link, messages })
    }
}

#[async_trait::async_trait]
impl Source for ChannelSource {
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
        Err(self.channel.server.url.unavailable("the connection ended"))
    }

    async fn acknowledge(&mut self) -> Result<(), SourceError> {
        Ok(())
    }

    fn take_lost(&mut self) -> bool {
        self.channel.has_lost.swap(false, Ordering::Relaxed)
    }
}

/// Returns the message in a push of the server, whose data are the channel and the body; `None` for pushes of other
/// kinds.
fn message_of_push(push: PushInfo) -> Option<Message> {
    if push.kind != PushKind::Message {
        return None;
    }
    let body = push.data.into_iter().nth(1)?;
    super::string_bytes(body).map(Message::from)
}
