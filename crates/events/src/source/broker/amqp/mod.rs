//! AMQP 0.9.1: queues of RabbitMQ, say.
//!
//! A queue gives each of those who consume it a share of what comes, and what one had not acknowledged when its connection ended to
//! another. An acknowledgement has no answer: what was acknowledged on a connection that then ended may come again.

mod transport;

use super::broker_url::{BrokerAccess, Form, Place};
use super::connection::{with_ready, within};
use crate::source::{Message, Source, SourceError};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo};
use lapin::{Channel, Connection, Consumer, ErrorKind};
use url::Url;

const FORM: Form = Form {
    scheme: "amqp",
    tls_scheme: Some("amqps"),
    port: 5672,
    parameters: &["queue"],
    example: "amqp://HOST:PORT/VHOST?queue=NAME",
};

/// How many messages the broker sends before it waits for an acknowledgement.
const UNACKNOWLEDGED_MAX: u16 = 2048;

/// Who has said nothing for twice this is gone.
const HEARTBEAT_SECS: u16 = 5;

/// What AMQP calls its errors (its specification, 1.2).
const ACCESS_REFUSED: u16 = 403;
const NOT_FOUND: u16 = 404;
const RESOURCE_LOCKED: u16 = 405;
const NOT_ALLOWED: u16 = 530;

/// How RabbitMQ ends a NOT_FOUND for a queue that is there, and not up again since its node or its process was restarted.
const NOT_UP: [&str; 3] = ["is down or inaccessible", "is stopped by supervisor", "due to timeout"];

/// The source of an `amqp:` URL. Nothing is asked of the broker yet.
///
/// # Errors
/// If the URL says no source.
pub(super) fn open(url: &Url, access: &BrokerAccess) -> Result<Box<dyn Source>, SourceError> {
    let place = Place::read(url, access, &FORM)?;
    let queue = place.required("queue", &FORM)?.to_owned();
    Ok(Box::new(Queue { at: At { place, queue }, joining: None, share: None }))
}

/// A queue's source.
struct Queue {
    at: At,
    /// A connection that is being made. It outlives the question that began it: the broker would send messages to a connection that
    /// was given up on the way, and the source would not get them until that connection has ended.
    joining: Option<BoxFuture<'static, Result<Share, SourceError>>>,
    share: Option<Share>,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("at", &self.at).field("share", &self.share).finish_non_exhaustive()
    }
}

/// A queue of a broker.
#[derive(Clone, Debug)]
struct At {
    place: Place,
    queue: String,
}

struct Share {
    messages: Consumer,
    /// The last that was handed out and not yet acknowledged.
    last: Option<u64>,
    channel: Channel,
    /// Ends when this does.
    _connection: Connection,
}

impl std::fmt::Debug for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Share").field("last", &self.last).finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl Source for Queue {
    async fn receive(&mut self, max: usize) -> Result<Vec<Message>, SourceError> {
        let share = self.share().await?;
        let first = match share.messages.next().await {
            Some(Ok(first)) => first,
            Some(Err(error)) => {
                self.share = None;
                return Err(self.at.error(&error));
            }
            None => {
                self.share = None;
                return Err(self.at.place.unavailable("the broker ended it, as when the queue was deleted"));
            }
        };
        let came = with_ready(first, &mut share.messages, max);
        share.last = came.last().map(|last| last.delivery_tag);
        Ok(came.into_iter().map(message).collect())
    }

    async fn acknowledge(&mut self) -> Result<(), SourceError> {
        let Some(share) = &mut self.share else { return Ok(()) };
        let Some(last) = share.last.take() else { return Ok(()) };
        let said =
            within(&self.at.place, share.channel.basic_ack(last, BasicAckOptions { multiple: true })).await;
        match said {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                self.share = None;
                Err(self.at.error(&error))
            }
            Err(error) => {
                self.share = None;
                Err(error)
            }
        }
    }

    async fn waiting(&mut self) -> Result<Option<u64>, SourceError> {
        let Some(share) = &self.share else { return Ok(None) };
        let queue = within(&self.at.place, self.at.look(&share.channel)).await?;
        let queue = queue.map_err(|error| self.at.error(&error))?;
        Ok(Some(u64::from(queue.message_count())))
    }
}

impl Queue {
    /// This source's share of the queue; takes one if it has none.
    async fn share(&mut self) -> Result<&mut Share, SourceError> {
        if self.share.is_none() {
            let joining = self.joining.get_or_insert_with(|| Box::pin(self.at.clone().joined()));
            let joined = joining.await;
            self.joining = None;
            self.share = Some(joined?);
        }
        self.share.as_mut().ok_or_else(|| self.at.place.unavailable("there is no connection"))
    }
}

impl At {
    async fn joined(self) -> Result<Share, SourceError> {
        within(&self.place, self.join()).await?.map_err(|error| self.error(&error))
    }

    async fn join(&self) -> lapin::Result<Share> {
        let connection = transport::greet(&self.place, self.uri()).await?;
        let channel = connection.create_channel().await?;
        channel.basic_qos(UNACKNOWLEDGED_MAX, BasicQosOptions::default()).await?;
        self.look(&channel).await?;
        let queue = self.queue.as_str();
        let options = BasicConsumeOptions::default();
        let messages = channel.basic_consume(queue.into(), "".into(), options, FieldTable::default()).await?;
        Ok(Share { messages, last: None, channel, _connection: connection })
    }

    /// Asks whether it is there, and makes none: what is bound to it is whoever's who made it.
    async fn look(&self, channel: &Channel) -> lapin::Result<lapin::Queue> {
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(self.queue.as_str().into(), passive, FieldTable::default()).await
    }

    fn uri(&self) -> AMQPUri {
        let place = &self.place;
        let login = place.login.clone();
        let (username, password) = login.map_or_else(guest, |login| (login.user, login.password));
        AMQPUri {
            // TLS is below it.
            scheme: AMQPScheme::AMQP,
            authority: AMQPAuthority {
                userinfo: AMQPUserInfo { username, password },
                host: place.host.clone(),
                port: place.port,
            },
            vhost: if place.path.is_empty() { "/".to_owned() } else { place.path.clone() },
            query: AMQPQueryString { heartbeat: Some(HEARTBEAT_SECS), ..AMQPQueryString::default() },
        }
    }

    /// What an error means to who has to do something about it.
    fn error(&self, error: &lapin::Error) -> SourceError {
        let ErrorKind::ProtocolError(said) = error.kind() else { return self.place.unavailable(error) };
        let text = said.get_message();
        match said.get_id() {
            NOT_FOUND if is_not_up(text.as_str()) => self.place.unavailable(error),
            NOT_FOUND => {
                let make = "make it and bind it to the exchange of the events, or name another";
                self.place.refused(format_args!("there is no queue '{}': {make}", self.queue))
            }
            ACCESS_REFUSED | NOT_ALLOWED => {
                self.place.refused(format_args!("the broker does not let this user in: {text}"))
            }
            RESOURCE_LOCKED => self
                .place
                .refused(format_args!("the queue '{}' is somebody else's alone: {text}", self.queue)),
            _ => self.place.unavailable(error),
        }
    }
}

fn is_not_up(said: &str) -> bool {
    NOT_UP.iter().any(|end| said.ends_with(end))
}

/// Who logs in at a broker on the same machine without a name.
fn guest() -> (String, String) {
    ("guest".to_owned(), "guest".to_owned())
}

fn message(delivery: Delivery) -> Message {
    let headers = delivery.properties.headers().iter().flat_map(|headers| headers.inner());
    let text = |value: &AMQPValue| match value {
        AMQPValue::LongString(text) => Some(text.to_string()),
        AMQPValue::ShortString(text) => Some(text.to_string()),
        _ => None,
    };
    let pairs = headers.filter_map(|(name, value)| Some((name.as_str().to_lowercase(), text(value)?)));
    Message { attributes: pairs.collect(), body: delivery.data.into() }
}

#[cfg(test)]
mod tests {
    use super::is_not_up;

    /// Right after a restart of the broker its durable queue was said not to be there.
    #[test]
    fn a_queue_that_is_not_up_yet_is_not_one_that_is_missing() {
        for said in [
            "NOT_FOUND - home node 'rabbit@host' of durable queue 'q' in vhost '/' is down or inaccessible",
            "NOT_FOUND - queue 'q' in vhost '/' process is stopped by supervisor",
            "NOT_FOUND - failed to perform operation on queue 'q' in vhost '/' due to timeout",
        ] {
            assert!(is_not_up(said), "{said}");
        }
        assert!(!is_not_up("NOT_FOUND - no queue 'is down or inaccessible' in vhost '/'"));
    }
}
